#!/usr/bin/env bash
# Installs the locked environment into .venv: extra `gpu` where an NVIDIA driver answers, else `cpu`.
# uv comes from PyPI into .tools; the system's Python packages are never touched. Python 3.12 is one of this machine (on
# the PATH, or pyenv's); where there is none, uv brings it.
set -euo pipefail
cd "$(dirname "$0")/.."

UV_VERSION=0.13.8
UV=.tools/bin/uv

get_uv() {
  python3 -m venv .tools 2>/dev/null && .tools/bin/python -m pip install -q "uv==$UV_VERSION" && return
  rm -rf .tools
  # Debian without python3-venv: pip alone can fill a private folder.
  python3 -m pip install -q --break-system-packages --target .tools "uv==$UV_VERSION" 2>/dev/null && return
  command -v uv >/dev/null && mkdir -p .tools/bin && ln -sf "$(command -v uv)" "$UV" && return
  echo "setup: cannot install uv. Install python3-venv (apt-get install python3-venv) or uv itself, then try again" >&2
  return 1
}

python_312() {
  local found
  for found in $(command -v python3.12) /usr/{,local/}bin/python3.12 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12.*/bin/python3.12; do
    "$found" -c 'import ctypes, sqlite3, ssl' 2>/dev/null && echo "$found" && return
  done
  echo 3.12
}

[ -x "$UV" ] || get_uv
EXTRA=cpu
if nvidia-smi -L >/dev/null 2>&1; then EXTRA=gpu; fi
# A line now and then: a first installation takes minutes.
(for s in $(seq 15 15 3600); do sleep 15 >/dev/null 2>&1; echo "setup: installing the environment, ${s}s"; done) &
telling=$!
trap 'kill "$telling" 2>/dev/null || true' EXIT
# Where Python may not keep bytecode (images say so), every process would compile what it imports: twice the CPU.
compile=()
if [ -n "${PYTHONDONTWRITEBYTECODE:-}" ]; then compile=(--compile-bytecode); fi
"$UV" sync --quiet --frozen --python "$(python_312)" "${compile[@]}" --extra "$EXTRA" --extra reward-model --extra eval
