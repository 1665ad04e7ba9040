"""TrainConfig -> verl's keys. What a recipe may say of them itself stands in verl_rules; nothing else knows them.

They are of the one version of verl that `agl_plugin.patches.register.VERSIONS` names: another one is refused.
"""

from __future__ import annotations

import math
from operator import attrgetter
from pathlib import Path
from typing import Any

from agl_plugin.run.curriculum import CurriculumRules
from agl_plugin.run.kept import KeepRules
from agl_plugin.update.rules import UpdateRules
from sql_agent.config import (
    ROOT,
    CurriculumConfig,
    ModelConfig,
    OptimConfig,
    RolloutConfig,
    TrainConfig,
    TrainerConfig,
    flatten,
    merge,
    nested,
    resolve_path,
)
from sql_agent.config.losses import CLIPPED, is_own
from sql_agent.serving.server import context_tokens
from sql_agent.training.memory import offloads
from sql_agent.training.verl_rules import COPIED

# How vLLM's engine runs its only worker on a CPU.
ALONE = "agl_plugin.cpu.executor.OneProcess"


def verl_overrides(config: TrainConfig, *, model_path: str, run_dir: Path, total_steps: int) -> dict[str, Any]:
    """The overrides for agent-lightning's VERL: this project's, and over them the section [verl].

    `total_steps` counts training steps of the whole run.
    """
    overrides = own_overrides(config, model_path=model_path, run_dir=run_dir, total_steps=total_steps)
    # In TOML a quoted "a.b" is one name; verl would look past it.
    return merge(overrides, nested(flatten(config.verl)))


def own_overrides(config: TrainConfig, *, model_path: str, run_dir: Path, total_steps: int) -> dict[str, Any]:
    """What this project's own keys mean to verl: those of COPIED, and what is made of several, or of other words."""
    trainer, rollout, optim, model = config.trainer, config.rollout, config.optim, config.model
    offload = offloads(model, optim, rollout, trainer)
    fsdp = _fsdp(trainer, offload=offload)
    derived = {
        "algorithm": {"adv_estimator": f"{optim.advantage}_rollouts", "use_kl_in_reward": False},
        # Of agl_plugin.trainer.
        "data": {"sampler": {"weights": [file.weight for file in config.data.train_files]}},
        "actor_rollout_ref": {
            "model": _model(model, trainer, model_path=model_path, keeps_adapter=config.merged_adapter is None),
            "rollout": _rollout(rollout, trainer, model_path=model_path, lora=model.lora_rank > 0),
            "actor": {**_actor(optim, total_steps=total_steps), "fsdp_config": {**fsdp, "optimizer_offload": offload}},
            "ref": {"fsdp_config": fsdp},
        },
        "trainer": _trainer(trainer, run_dir=run_dir, total_steps=total_steps),
    }
    return merge(nested({key: attrgetter(our_key)(config) for key, our_key in COPIED.items()}), derived)


def _model(model: ModelConfig, trainer: TrainerConfig, *, model_path: str, keeps_adapter: bool) -> dict[str, Any]:
    cpu = trainer.device == "cpu"
    lora = {"lora_rank": model.lora_rank, "lora_alpha": model.lora_alpha, "target_modules": "all-linear"}
    if model.lora_adapter_path and keeps_adapter:
        lora["lora_adapter_path"] = str(Path(model.lora_adapter_path).expanduser().resolve())
    return {
        "path": model_path,
        # Packed rows need flash attention, which is made for GPUs; agl_plugin/update computes no padding either way.
        "use_remove_padding": not cpu and model.attention == "flash_attention_2",
        # Recomputing spares memory, which small models do not lack; in bf16 a CPU drills what GPUs do.
        "enable_gradient_checkpointing": not cpu or trainer.in_bf16,
        **(lora if model.lora_rank else {}),
    }


def _rollout(rollout: RolloutConfig, trainer: TrainerConfig, *, model_path: str, lora: bool) -> dict[str, Any]:
    cpu = trainer.device == "cpu"
    # verl would take prompt_length + response_length, and so bound the whole conversation by the prompt of a row.
    n_context = context_tokens(Path(model_path), rollout)
    vllm: dict[str, Any] = {"enable_auto_tool_choice": True, "max_model_len": n_context}
    keys: dict[str, Any] = {"name": "vllm", "top_k": rollout.top_k or -1, "engine_kwargs": {"vllm": vllm}}
    keys["max_num_batched_tokens"] = max(8192, n_context)
    if rollout.sampler_logprobs and (rollout.temperature != 1.0 or rollout.is_shifted):
        # vLLM's default are the probabilities before temperature, by which the trainer divides, cut and penalties.
        vllm["logprobs_mode"] = "processed_logprobs"
    if cpu:
        # Sleep mode, the freed KV cache and CUDA graphs are of vLLM's GPU platform.
        vllm["enable_sleep_mode"] = False
        keys |= {"enforce_eager": True, "free_cache_engine": False}
        if rollout.tensor_parallel == 1:
            vllm["distributed_executor_backend"] = ALONE
    if not trainer.in_bf16:
        keys["dtype"] = "float32"
    if lora:
        # On one rank without a GPU torch has no way to fetch an adapter layer by layer.
        keys |= {"load_format": "safetensors", "layered_summon": not cpu}
    return keys


def _fsdp(trainer: TrainerConfig, *, offload: bool) -> dict[str, Any]:
    # What verl would compile is its own entropy, which this update does not use.
    keys: dict[str, Any] = {"param_offload": offload, "use_torch_compile": False}
    if trainer.in_bf16:
        return keys
    # Of `dtype` verl reads nothing here; without these all passes would be in bfloat16.
    exact = dict.fromkeys(("param_dtype", "reduce_dtype", "buffer_dtype"), "fp32")
    return {**keys, "model_dtype": "fp32", "dtype": "float32", "mixed_precision": exact}


def loss_name(loss: str) -> str:
    """The name of `optim.loss` in verl's registry. A file is named as the workers find it."""
    where, _, function = loss.rpartition(":")
    if where.endswith(".py"):
        return f"{resolve_path(where, ROOT)}:{function}"
    return "vanilla" if loss in CLIPPED else loss


def _actor(optim: OptimConfig, *, total_steps: int) -> dict[str, Any]:
    warmup = int(optim.warmup if optim.warmup >= 1 else optim.warmup * total_steps)
    return {
        "strategy": "fsdp",
        "policy_loss": {"loss_mode": loss_name(optim.loss)},
        "use_kl_loss": optim.kl_coef > 0,
        "optim": {"lr_warmup_steps": warmup},
    }


def _trainer(trainer: TrainerConfig, *, run_dir: Path, total_steps: int) -> dict[str, Any]:
    resume = trainer.resume not in ("", "latest")
    return {
        "device": "cpu" if trainer.device == "cpu" else "cuda",
        "total_training_steps": total_steps,
        "default_local_dir": str(run_dir / "checkpoints"),
        "resume_mode": "resume_path" if resume else "disable",
        "resume_from_path": trainer.resume if resume else None,
    }


def update_rules(config: TrainConfig) -> UpdateRules:
    """What is done to a batch before verl's update."""
    optim = config.optim
    return UpdateRules(
        n_updates=math.ceil(optim.questions_per_step / optim.mini_batch_questions),
        correction=optim.importance_correction,
        level=optim.importance_level,
        cap=optim.importance_cap,
        has_reference=optim.kl_coef > 0,
        has_entropy=optim.entropy_coef > 0,
        has_own_loss=is_own(optim.loss),
        seed=config.data.seed,
        overlong_filter=optim.overlong_filter,
        positive_only=optim.positive_only,
        row_tokens=config.rollout.row_response_tokens,
        micro_batch_tokens=optim.micro_batch_tokens,
        credit=optim.credit,
        turn_shaping=optim.turn_shaping,
        teacher=optim.teacher,
        imitation=optim.imitation_coef,
        imitated_from=optim.imitated_from,
    )


def keep_rules(trainer: TrainerConfig) -> KeepRules:
    return KeepRules(newest=trainer.keep_checkpoints, best_over=trainer.best_over, early_stop=trainer.early_stop)


def curriculum_rules(curriculum: CurriculumConfig) -> CurriculumRules | None:
    """How questions are chosen by how often they were solved; None: as they come."""
    keys = curriculum.model_dump(exclude={"on"})
    return CurriculumRules(**keys) if curriculum.on else None
