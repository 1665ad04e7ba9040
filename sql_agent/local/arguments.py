"""What of a recipe train_local.py can do, and the arguments of TRL's GRPOConfig. Nothing is imported for it."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from sql_agent.config import TrainConfig, TuneConfig
from sql_agent.tuning.arguments import shared_arguments


def check_keys(config: TrainConfig) -> None:
    """Raise UserError naming the keys that have no meaning in one process, with what to set instead."""
    if wrong := list(_refused(config)):
        raise UserError("train_local.py cannot do what is configured:\n  " + "\n  ".join(wrong))


def _refused(config: TrainConfig) -> Iterator[str]:
    optim, rollout = config.optim, config.rollout
    if optim.mini_batch_questions != optim.questions_per_step:
        yield (
            f"optim.mini_batch_questions = {optim.mini_batch_questions} must be {optim.questions_per_step}, as "
            "optim.questions_per_step: one optimizer step is made per step"
        )
    for key, value, wanted in (
        ("optim.loss", optim.loss, "grpo"),
        ("optim.advantage", optim.advantage, "group"),
        ("optim.loss_aggregation", optim.loss_aggregation, "token-mean"),
        ("optim.overlong_filter", optim.overlong_filter, False),
        ("optim.positive_only", optim.positive_only, False),
        ("optim.kl_estimator", optim.kl_estimator, "k3"),
        ("optim.warmup", optim.warmup, 0.0),
        ("optim.entropy_coef", optim.entropy_coef, 0.0),
        ("optim.micro_batch_tokens", optim.micro_batch_tokens, 0),
        ("optim.importance_correction", optim.importance_correction, "off"),
        ("rollout.resample_flat_groups", rollout.resample_flat_groups, 0),
        ("rollout.tool_parser", rollout.tool_parser, "hermes"),
        ("rollout.presence_penalty", rollout.presence_penalty, 0.0),
        ("rollout.frequency_penalty", rollout.frequency_penalty, 0.0),
        ("rollout.validation.presence_penalty", rollout.validation.presence_penalty, 0.0),
        ("rollout.validation.frequency_penalty", rollout.validation.frequency_penalty, 0.0),
        ("trainer.n_gpus", config.trainer.n_gpus, 1),
    ):
        if value != wanted:
            yield f"{key} = {value!r} must be {wanted!r} here; train_sql_agent.py does it"
    if config.verl:
        yield f"verl.* ({', '.join(list(config.verl)[:3])}): there is no verl here; leave these keys out"
    yield from _missing_for_8_bits_and_less(config)
    if config.local.quantization == "nf4" and not config.model.lora_rank:
        yield "local.quantization = 'nf4' trains adapters on frozen weights: add --lora"


def _missing_for_8_bits_and_less(config: TrainConfig) -> Iterator[str]:
    local, installed = config.local, importlib.util.find_spec("bitsandbytes") is not None
    if local.quantization == "nf4" and not installed:
        yield "local.quantization = 'nf4' needs bitsandbytes: install the extra quantized (uv sync --extra quantized)"
    if local.optimizer == "adamw_8bit" and not (installed and config.trainer.device == "cuda"):
        yield "local.optimizer = 'adamw_8bit' needs a GPU and bitsandbytes (uv sync --extra quantized)"


def grpo_arguments(config: TrainConfig, *, run_dir: Path, checkpoints: Path, steps: int) -> dict[str, Any]:
    """What TRL's GRPOConfig is made of: a mean over all sampled tokens of a step, clipped as configured."""
    optim, rollout = config.optim, config.rollout
    n_rows = optim.questions_per_step * rollout.group_size
    n_passes = math.ceil(n_rows / optim.micro_batch_rows)
    while n_rows % n_passes:
        n_passes += 1
    tune = TuneConfig(
        batch_size=n_rows // n_passes,
        gradient_accumulation_steps=n_passes,
        lr=optim.lr,
        weight_decay=optim.weight_decay,
        grad_clip=optim.grad_clip,
    )
    shared = shared_arguments(config, tune, run_dir=run_dir, checkpoints=checkpoints, steps=steps)
    del shared["max_length"]
    cosine = {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": optim.lr_final_share}}
    return {
        **shared,
        **(cosine if optim.lr_schedule == "cosine" else {"lr_scheduler_type": "constant"}),
        "optim": "adamw_torch" if config.local.optimizer == "adamw" else "adamw_bnb_8bit",
        "steps_per_generation": n_passes,
        "num_generations": rollout.group_size,
        "max_completion_length": rollout.max_response_tokens,
        "temperature": rollout.temperature,
        "loss_type": "dapo",
        "epsilon": optim.clip_low,
        "epsilon_high": optim.clip_high,
        "beta": optim.kl_coef,
        "num_iterations": 1,
        "shuffle_dataset": False,
    }
