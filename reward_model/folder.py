"""Is a model folder safe to load, and is it a reward model? Checked before a byte of weights is read.

Guarantees: no code of the folder runs (what names some is refused, trust_remote_code is never set); weights are
safetensors, pickled files are never opened; shards lie inside the folder.
Not covered: what the weights do, and bugs in the libraries that read them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from foundation.model_code import LOADED, code_key

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
MAX_JSON_BYTES = 64 << 20


def check_weights_folder(folder: Path) -> dict[str, Any]:
    """The config of a folder that holds safetensors and no code. Raises UserError otherwise."""
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: no config.json there; give the folder of a Hugging Face model")
    check_no_code(folder)
    config = read_json(folder / "config.json")
    weight_files(folder)
    return config


def check_reward_model(folder: Path) -> dict[str, Any]:
    """The config of a folder that can be served as a reward model. Raises UserError otherwise."""
    if (folder / ADAPTER).is_file() and not (folder / "config.json").is_file():
        raise UserError(
            f"{folder}: a LoRA adapter, not a whole model; merge it first: agentgrpo reward-model merge "
            f"--adapter {folder} --out DIR"
        )
    config = check_weights_folder(folder)
    if not has_head(config):
        raise UserError(
            f"{folder}: architectures is {config.get('architectures')}, and a reward model is a "
            "...ForSequenceClassification. Train one with `agentgrpo reward-model train`"
        )
    labels = config.get("id2label")
    if not isinstance(labels, dict) or len(labels) != 1:
        n_labels = len(labels) if isinstance(labels, dict) else "2 (the default)"
        raise UserError(f"{folder}: the head has {n_labels} outputs; a reward model has 1 (num_labels in config.json)")
    return config


def has_head(config: dict[str, Any]) -> bool:
    """Whether the model of a configuration ends in scores and not in a vocabulary."""
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        return False
    return all(str(name).endswith("ForSequenceClassification") for name in names)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model. Raises UserError when there are none, or the index points elsewhere."""
    if (folder / INDEX).is_file():
        shards = read_json(folder / INDEX).get("weight_map")
        names = sorted(set(shards.values())) if isinstance(shards, dict) else []
        # A name is used as a path: no separators, no "..", nothing but a file of this folder.
        good = [n for n in names if isinstance(n, str) and n == Path(n).name and n.endswith(".safetensors")]
        files = [folder / name for name in good]
        if not files or len(good) != len(names) or not all(path.is_file() for path in files):
            raise UserError(f"{folder / INDEX}: names files that are missing or not *.safetensors of this folder")
        return files
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    raise UserError(
        f"{folder}: no {WEIGHTS} there. Pickled weights (*.bin, *.pt) can run code when loaded and are refused; "
        "convert them to safetensors"
    )


def weights_fingerprint(folder: Path) -> str:
    """SHA-256 over the weight files, in the order of their names; 32 hex digits."""
    digest = hashlib.sha256()
    for path in weight_files(folder):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:32]


def check_no_code(folder: Path) -> None:
    """Raise UserError when a configuration of the folder asks for code of its own."""
    for name in LOADED:
        if (folder / name).is_file() and (key := code_key(read_json(folder / name))):
            raise UserError(
                f"{folder / name}: has {key}, which names code to import, and that is not run here. Use a model whose "
                "architecture is part of transformers"
            )


def read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise UserError(f"{path}: larger than {MAX_JSON_BYTES} bytes, which is no configuration")
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as exc:
        raise UserError(f"{path}: not a readable JSON file ({type(exc).__name__}); download the model again") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}: must hold a JSON object; download the model again")
    return value
