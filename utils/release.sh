#!/usr/bin/env bash
# Makes a release in the folder $1: wheel, source distribution, and for machines without and with a GPU the locked
# requirements and what is in them as a CycloneDX SBOM. Nothing is uploaded.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$1
rm -rf "$out"
.venv/bin/python -m hatchling build -d "$out" >/dev/null
for extra in cpu gpu; do
  locked=(.tools/bin/uv export --quiet --frozen --no-dev --no-emit-project --extra "$extra" --extra reward-model)
  "${locked[@]}" --no-hashes --output-file "$out/requirements-$extra.txt" >/dev/null
  "${locked[@]}" --format cyclonedx1.5 --output-file "$out/sbom-$extra.cdx.json" >/dev/null
done
ls "$out"
