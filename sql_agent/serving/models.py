"""The folder of a model: built, downloaded or named; looked at as files before anything loads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from foundation.model_code import LOADED, code_key
from foundation.weights import damage_in
from sql_agent.config import ROOT, ModelConfig, resolve_path

PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
TOKENIZERS = ("tokenizer.json", "vocab.*", "*.model", "*.tiktoken", "tekken.json")  # one of them holds the tokens
AGAIN = "The model was not saved, copied or downloaded whole: do that again, or name another folder"
GPU_MODEL = "Qwen/Qwen3-0.6B"


def model_folder(model: ModelConfig, *, tiny: bool) -> Path:
    """The absolute folder of the policy, built (the tiny one) or downloaded (hub name) where needed.

    verl takes a relative or missing path for a hub name and dies in a worker, so only absolute folders go further.
    """
    if tiny:
        from sql_agent.tiny_policy.build import ensure_tiny_policy
        from sql_agent.tiny_policy.task import load_task

        return ensure_tiny_policy(model.tiny_seed, load_task(model.tiny))
    text = model.path or GPU_MODEL
    path = resolve_path(text, ROOT / "sql_agent", ROOT)
    if not path.exists():
        path = _download(text)
    check_model_folder(path, allow_remote_code=model.allow_remote_code)
    return path


def check_model_name(name: str) -> None:
    """Raises UserError for a name that is neither a path that exists nor one that the hub may have."""
    if not name or resolve_path(name, ROOT / "sql_agent", ROOT).exists():
        return
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise UserError(
            f"--model {name}: no such folder, and not a hub name like Qwen/Qwen3-0.6B. Give the folder that holds "
            "config.json"
        )


def _download(name: str) -> Path:
    check_model_name(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError, ValueError) as exc:
        raise UserError(
            f"--model {name}: neither a local folder nor to be had from the hub ({type(exc).__name__}). Check the "
            "spelling and the network, or download it elsewhere and give the folder"
        ) from exc


def check_model_folder(path: Path, *, allow_remote_code: bool) -> None:
    """A folder with config.json, weights, a tokenizer and a chat template, none of them cut off; no code of its own
    unless allowed."""
    _read_json(path / "config.json", path)
    for file in sorted(path.glob("*.json")) if not allow_remote_code else ():
        if file.name in LOADED and (key := code_key(_read_json(file, path))):
            raise UserError(
                f"--model {path}: {file.name} has {key}, so loading it may run code from that folder or the hub. If "
                "you trust it: --set model.allow_remote_code=true"
            )
    if not allow_remote_code:
        _check_files(path)
    if why := damage_in(path):
        raise UserError(f"--model {path}: {why}. {AGAIN}")
    tokenizer = _read_json(path / "tokenizer_config.json", path)
    if "chat_template" not in tokenizer and not (path / "chat_template.jinja").is_file():
        raise UserError(f"--model {path}: the tokenizer has no chat template; use an instruct model")


def language_model(folder: Path) -> Mapping[str, Any]:
    """config.json, or the part of it that is the language model's where the model sees images too. Raises UserError."""
    tree = _read_json(folder / "config.json", folder)
    text = tree.get("text_config", tree)
    return text if isinstance(text, dict) else tree


def _check_files(path: Path) -> None:
    """Tokens, and weights that are no pickles, also where a loader would fall back on one; no code."""
    if not any(path.glob("*.safetensors")):
        raise UserError(
            f"--model {path}: no *.safetensors there (pickled weights can run code). Convert the model first"
        )
    if not any(file for name in TOKENIZERS for file in path.glob(name)):
        raise UserError(f"--model {path}: {TOKENIZERS[0]} is missing. {AGAIN}")
    pickle = next((file for pattern in PICKLES for file in path.glob(pattern)), None)
    if pickle and not any(path.glob("model*.safetensors")):
        raise UserError(
            f"--model {path}: a loader that finds no model*.safetensors there takes {pickle.name}, a pickle, which can "
            "run code. Convert the model first, or delete that file"
        )
    if code := next(path.rglob("*.py"), None):
        raise UserError(
            f"--model {path}: {code.relative_to(path)} is code, which loading the model may run. Delete it if the "
            "model needs none; if you trust it: --set model.allow_remote_code=true"
        )


def _read_json(file: Path, folder: Path) -> dict[str, object]:
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise UserError(f"--model {folder}: {file.name} is missing; give the folder of a Hugging Face model") from exc
    except (OSError, ValueError) as exc:
        raise UserError(f"--model {folder}: {file.name} cannot be read ({exc})") from exc
    if not isinstance(tree, dict):
        raise UserError(f"--model {folder}: {file.name} must hold a JSON object")
    return tree
