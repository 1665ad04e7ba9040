"""The files of a model: whole or cut off, and who may read them.

Guarantees: no weight is loaded, and a file that is cut off anywhere is found: of safetensors the header is held against
the size, of torch.save the directory is read, which stands at the end. Not covered: bytes that changed inside.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Literal

INDEX = ".safetensors.index.json"
Precision = Literal["auto", "float32", "bfloat16", "float16"]  # of exported weights


def damage_of(path: Path) -> str:
    """Why a file (safetensors, .pt or JSON) cannot be read to its end, or what its index names is gone; "" if whole."""
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return "does not exist"
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="numpy"):
                return ""
        if path.suffix == ".pt":
            return "" if zipfile.is_zipfile(path) else "is cut off"
        tree = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError, SafetensorError) as exc:
        return f"cannot be read to its end ({exc})"
    named = set(tree["weight_map"].values()) if path.name.endswith(INDEX) else set()
    missing = min((name for name in named if not (path.parent / name).is_file()), default="")
    return f"names {missing}, which does not exist" if missing else ""


def damage_in(folder: Path) -> str:
    """The first such file of a model folder with its damage; "" if all are whole."""
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("*.json")])
    return next((f"{file.name} {why}" for file in files if (why := damage_of(file))), "")


def share(folder: Path) -> None:
    """Let those who may read the JSON files of a folder read its weights, which safetensors writes for their owner."""
    mode = next(folder.glob("*.json")).stat().st_mode
    for path in folder.glob("*.safetensors"):
        path.chmod(mode)
