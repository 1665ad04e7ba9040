"""The model that a checkpoint holds: of verl's FSDP actor, put together from the shards of its ranks, or of a
run in one process.

Guarantees: weights keep the precision of the checkpoint (verl's own merger rounds them to bfloat16); a LoRA adapter
keeps the scale of its training (verl's merger writes 0, which leaves the base model); shards are read without running
code from them. Raises UserError where files are missing or do not fit together.
"""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foundation.errors import UserError
from foundation.files import read_object
from foundation.weights import damage_of

if TYPE_CHECKING:
    import torch

FSDP_NOTE = "fsdp_config.json"
BROKEN = "{path}: {why}; the checkpoint is damaged or was not written whole. Use another global_step_N folder"

# What TRL's trainer and sql_agent.local write into a checkpoint, and verl does not.
TRL_STATE = "trainer_state.json"
# What goes along with weights: tokenizer, chat template, generation settings.
TEXT_FILES = (".json", ".jinja", ".txt", ".model")
# JSON files there that are not the model's.
NOT_THE_MODELS = (TRL_STATE, "adapter_config.json")


def text_folder(actor: Path) -> Path:
    """Where a checkpoint has tokenizer, chat template and generation settings."""
    return actor if (actor / TRL_STATE).is_file() else actor / "huggingface"


def checkpoint_model(actor: Path) -> torch.nn.Module:
    """The model of a checkpoint's `actor` folder, on the CPU; with a LoRA adapter a PeftModel, not merged."""
    if (actor / TRL_STATE).is_file():
        return _trl_model(actor)
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    weights = whole_weights(actor)
    config = AutoConfig.from_pretrained(actor / "huggingface")
    dtype = next(weight.dtype for weight in weights.values() if weight.is_floating_point())
    with init_empty_weights(include_buffers=False):
        model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
        if any("lora_" in name for name in weights):
            model = _with_adapter(model, actor / "lora_adapter")
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError as exc:
        raise UserError(BROKEN.format(path=actor, why=str(exc).splitlines()[-1].strip())) from exc
    model.tie_weights()  # embeddings that the output shares are one tensor again
    return model.eval()


def _trl_model(actor: Path) -> Any:
    """A model folder as transformers wrote it, or a LoRA adapter on the model that it was trained from."""
    from peft import PeftConfig, PeftModel
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    is_adapter = (actor / "adapter_config.json").is_file()
    try:
        base = Path(PeftConfig.from_pretrained(str(actor)).base_model_name_or_path or "") if is_adapter else actor
        if is_adapter and not (base / "config.json").is_file():
            raise UserError(f"{actor}: a LoRA adapter of {base}, which is gone; put that model back there")
        model = AutoModelForCausalLM.from_pretrained(base, dtype="auto", use_safetensors=True, local_files_only=True)
        return PeftModel.from_pretrained(model, str(actor)).eval() if is_adapter else model.eval()
    except (OSError, ValueError, RuntimeError, SafetensorError) as exc:
        raise UserError(BROKEN.format(path=actor, why=str(exc).splitlines()[0])) from exc


def shards_of(actor: Path) -> list[Path]:
    """The weights of each rank as verl calls their files, there or not; [] where verl wrote none."""
    ranks = read_object(actor / FSDP_NOTE).get("world_size", 0)
    return [actor / f"model_world_size_{ranks}_rank_{rank}.pt" for rank in range(ranks)]


def whole_weights(actor: Path) -> dict[str, torch.Tensor]:
    """Each tensor of the actor by its name, joined from the shards of all ranks, in the checkpoint's precision."""
    import torch
    from torch.distributed.tensor import DTensor, Shard  # also tells torch.load that they are no foreign code

    for path in (actor / FSDP_NOTE, actor / "huggingface" / "config.json"):
        if why := damage_of(path):
            raise UserError(BROKEN.format(path=path, why=why))
    shards: list[dict[str, Any]] = []
    for path in shards_of(actor):
        try:
            shards.append(torch.load(path, map_location="cpu", weights_only=True))
        except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as exc:
            why = (str(exc).strip() or type(exc).__name__).splitlines()[0]
            raise UserError(BROKEN.format(path=path, why=why)) from exc
    whole: dict[str, torch.Tensor] = {}
    for name in list(shards[0]):
        parts = [shard.pop(name) for shard in shards]
        first = parts[0]
        if not isinstance(first, DTensor):
            whole[name] = first if len(parts) == 1 else torch.cat(parts)
            continue
        placement, local = first.placements[-1], [part._local_tensor for part in parts]
        whole[name] = torch.cat(local, dim=placement.dim) if isinstance(placement, Shard) else local[0]
    return whole


def _with_adapter(model: Any, folder: Path) -> Any:
    """The model with an empty LoRA adapter of the rank, scale and places that verl wrote beside the shards."""
    from peft import LoraConfig, get_peft_model

    if not (folder / "adapter_config.json").is_file():
        raise UserError(
            f"{folder}: no adapter_config.json, which holds the scale of the LoRA adapter. Copy it from another "
            "checkpoint of the same run"
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*`runtime_config`")  # verl writes it; nothing reads it
        config = LoraConfig.from_pretrained(str(folder))
    config.base_model_name_or_path = model.name_or_path  # the one at hand, not where it was in training
    return get_peft_model(model, config)
