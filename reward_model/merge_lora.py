"""Merge a LoRA adapter of `agentgrpo reward-model train` into its base: a whole model that can be served.

    agentgrpo reward-model merge --adapter reward_model_output --out merged_model [--base FOLDER]

Guarantees: code and pickled weights are refused on both sides; an adapter that notes its base (all that were trained
here from a local folder do) is merged into no other.
Not covered: bases with quantised weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from peft import PeftConfig, PeftModel
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from foundation.chat_template import pad_id_of
from foundation.command import alias
from foundation.errors import UserError
from foundation.weights import share
from reward_model.folder import ADAPTER, check_no_code, check_weights_folder, has_head, read_json, weights_fingerprint

BASE_NOTE = "base.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
HEAD = "score"


def base_note(base: Path) -> dict[str, str]:
    """What an adapter folder says about its base."""
    return {"name": base.name, "weights_sha256": weights_fingerprint(base)}


def merge(adapter: Path, out: Path, *, base: Path | None = None) -> None:
    """Write the merged model and the tokenizer to `out`. Raises UserError when the two do not belong together."""
    if not (adapter / ADAPTER).is_file() or not (adapter / ADAPTER_WEIGHTS).is_file():
        raise UserError(f"{adapter}: no {ADAPTER} and {ADAPTER_WEIGHTS} there; give the folder of a LoRA training")
    if out.exists() and any(out.iterdir()):
        raise UserError(f"--out {out}: is not empty; name a new folder")
    check_no_code(adapter)
    config = PeftConfig.from_pretrained(str(adapter))
    if (config.peft_type, config.task_type) != ("LORA", "SEQ_CLS"):
        raise UserError(
            f"{adapter}: is {config.peft_type} for {config.task_type}, and a reward model is LORA for SEQ_CLS; "
            "train one with `agentgrpo reward-model train --lora`"
        )
    base = base or Path(str(config.base_model_name_or_path))
    if not base.is_dir():
        raise UserError(f"{base}: the adapter's base is no folder here; download it and name it with --base")
    base_config = check_weights_folder(base)
    _check_same_base(adapter, base)
    _check_head(adapter, base, base_config)
    model: Any = AutoModelForSequenceClassification.from_pretrained(
        base, num_labels=1, dtype=torch.float32, use_safetensors=True, local_files_only=True, trust_remote_code=False
    )
    try:
        adapted: Any = PeftModel.from_pretrained(model, str(adapter))
        merged = adapted.merge_and_unload(safe_merge=True)
    except (RuntimeError, ValueError, SafetensorError) as exc:
        raise UserError(
            f"{adapter}: does not fit the base {base} ({' '.join(str(exc).split())[:200]}); name its own with --base"
        ) from exc
    tokenizer = AutoTokenizer.from_pretrained(adapter, local_files_only=True, trust_remote_code=False)
    merged.config.get_text_config().pad_token_id = pad_id_of(tokenizer)
    merged.save_pretrained(out, safe_serialization=True)
    tokenizer.save_pretrained(out)
    share(out)


def _check_same_base(adapter: Path, base: Path) -> None:
    if not (adapter / BASE_NOTE).is_file():
        return
    note = read_json(adapter / BASE_NOTE)
    if note.get("weights_sha256") != weights_fingerprint(base):
        raise UserError(
            f"{base}: has other weights than the base {note.get('name')} that {adapter} was trained on; "
            "name the right one with --base"
        )


def _check_head(adapter: Path, base: Path, base_config: dict[str, Any]) -> None:
    """A head that neither of the two brings would be made up at random."""
    with safe_open(adapter / ADAPTER_WEIGHTS, framework="pt") as weights:
        brings_head = any(HEAD in key.split(".") for key in list(weights.keys()))
    if not brings_head and not has_head(base_config):
        raise UserError(
            f"{adapter}: has no weights of the head ({HEAD}), and {base} has no head either; train the head too: "
            "`agentgrpo reward-model train --lora` does (lora_modules_to_save)"
        )


def main(
    adapter: Annotated[Path, typer.Option(help="folder of the LoRA training")],
    out: Annotated[Path, typer.Option(help="new folder for the merged model")],
    base: Annotated[Path | None, typer.Option(help="folder of the base (default: as noted in the adapter)")] = None,
) -> None:
    """Merge a LoRA adapter into its base."""
    merge(adapter, out, base=base)
    typer.echo(f"merged model: {out}")


if __name__ == "__main__":
    alias(main)
