"""What of a recipe a run in one process cannot do, and which checkpoints it goes on from. Light to import."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

from foundation.errors import UserError
from foundation.weights import damage_in
from sql_agent.config import LocalConfig, TrainConfig, flatten
from sql_agent.serving.checkpoint_model import TRL_STATE
from sql_agent.serving.models import AGAIN
from sql_agent.training.verl_keys import check_verl

MAKER = "sql_agent.local"  # what a checkpoint of this back end says that it was made by
ACTOR = "actor_rollout_ref.actor."
OF_VERL = (f"{ACTOR}clip_ratio_c", f"{ACTOR}ppo_epochs", f"{ACTOR}optim.")  # keys of verl that mean the same here


def check_keys(config: TrainConfig) -> None:
    """Raise UserError naming the keys that have no meaning in one process, with what to set instead."""
    if wrong := list(_refused(config)):
        raise UserError("agentgrpo train --backend local cannot do what is configured:\n  " + "\n  ".join(wrong))
    if config.verl:
        check_verl(config)


def _refused(config: TrainConfig) -> Iterator[str]:
    for key, value, wanted in (
        ("rollout.tool_parser", config.rollout.tool_parser, "hermes"),
        ("trainer.n_gpus", config.trainer.n_gpus, 1),
        ("rollout.async_groups", config.rollout.async_groups, 0),
    ):
        if value != wanted:
            yield f"{key} = {value!r} must be {wanted!r} here; --backend verl does it"
    teacher, folder = config.optim.teacher, Path(config.optim.teacher).expanduser()
    if teacher and not teacher.startswith("http"):
        if not (folder / "config.json").is_file():
            yield f"optim.teacher = {teacher!r}: no model folder, and not the address of a server; name one of both"
        elif why := damage_in(folder):
            yield f"optim.teacher = {teacher!r}: {why}. {AGAIN}"
    if others := [key for key in flatten(config.verl) if not key.startswith(OF_VERL)]:
        yield f"verl.* ({', '.join(others[:3])}): has no meaning in one process; leave these keys out"
    yield from _missing_for_8_bits_and_less(config.local, gpu=config.trainer.device == "cuda")
    if config.local.quantization == "nf4" and not config.model.lora_rank:
        yield "local.quantization = 'nf4' trains adapters on frozen weights: add --lora"


def _missing_for_8_bits_and_less(local: LocalConfig, *, gpu: bool) -> Iterator[str]:
    installed = importlib.util.find_spec("bitsandbytes") is not None
    if local.quantization == "nf4" and not installed:
        yield "local.quantization = 'nf4' needs bitsandbytes: install the extra quantized (uv sync --extra quantized)"
    if local.optimizer == "adamw_8bit" and not (installed and gpu):
        yield "local.optimizer = 'adamw_8bit' needs a GPU and bitsandbytes (uv sync --extra quantized)"


def check_checkpoint(checkpoint: str) -> None:
    """One of this back end's, or "". Raises UserError for those of verl, and of TRL, with which 0.1.0 made them."""
    state = Path(checkpoint) / "actor" / TRL_STATE
    if not checkpoint:
        return
    if not state.is_file() or json.loads(state.read_text(encoding="utf-8")).get("made_by") != MAKER:
        raise UserError(
            f"--resume {checkpoint}: was not made by `agentgrpo train --backend local` of this version, so its "
            "optimizer cannot be continued here. Begin with its weights: `agentgrpo export`, then --model"
        )
