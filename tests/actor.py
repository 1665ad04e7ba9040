"""The worker of training on the CPU, around a tiny model, for tests of what an update does.

One process, gloo, no FSDP. `actor_of(model, ...)` gives the passes and the update that training runs
(agl_plugin.update.worker); `as_planned` is a batch as the trainer hands it to that worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from verl import DataProto
from verl.workers.config import FSDPActorConfig, FSDPEngineConfig, FSDPOptimizerConfig

from agl_plugin.patches.install import install
from agl_plugin.update.advantage import over_rollouts
from agl_plugin.update.passes import unpadded
from agl_plugin.update.plan import planned
from agl_plugin.update.policy_loss import step_loss
from agl_plugin.update.rules import PLAN, UpdateRules
from agl_plugin.update.worker import GrpoWorker, PlannedEngine

install("cpu", "worker")


def tiny_model(*, vocabulary: int = 12) -> Any:
    """A random Qwen3 of two layers, in float64: the same one each time."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).double()


@contextmanager
def one_rank(folder: Path) -> Iterator[None]:
    """A process group of this process alone."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


class Actor:
    """A worker around a module that is there already, in the precision `dtype` of its passes.

    `config` may take rows without padding; `parallel` is then the group, if any, whose ranks share each row.
    """

    def __init__(
        self,
        module: Any,
        optimizer: torch.optim.Optimizer,
        config: FSDPActorConfig,
        *,
        dtype: Any,
        parallel: Any = None,
    ) -> None:
        self.engine: Any = PlannedEngine.__new__(PlannedEngine)
        vars(self.engine).update(
            module=module,
            optimizer=optimizer,
            lr_scheduler=SimpleNamespace(step=lambda: None, get_last_lr=lambda: [0.0]),
            engine_config=config.fsdp_config,
            optimizer_config=config.optim,
            scaler=None,
            pad_to_length=False,
            _autocast_dtype=dtype,
            _is_offload_param=False,
            _is_offload_optimizer=False,
            _qat_enabled=False,
            ulysses_device_mesh=None,
            ulysses_parallel_group=parallel,
            use_ulysses_sp=parallel is not None,
            ulysses_sequence_parallel_size=parallel.size() if parallel else 1,
        )
        self.worker: Any = GrpoWorker.__new__(GrpoWorker)
        self.worker.actor = SimpleNamespace(engine=self.engine, loss_fn=partial(step_loss, config))
        self.config = config

    def compute_log_prob(
        self, data: DataProto, calculate_entropy: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Of the trained tokens, rows x response, and their entropies."""
        size = data.meta_info.get("micro_batch_size", self.config.ppo_micro_batch_size_per_gpu)
        rows = self._rows(data, calculate_entropy=calculate_entropy, micro_batch_size_per_gpu=size)
        with self.engine.eval_mode():
            told = self.engine.infer_batch(rows)["model_output"]
        width = data.batch["responses"].shape[1]  # pyright: ignore[reportOptionalSubscript]
        found = [told[name].values().reshape(-1, width) for name in ("log_probs", "entropy") if name in told]
        return found[0], found[1] if calculate_entropy else None

    def update_policy(self, data: DataProto) -> dict[str, Any]:
        """What the worker tells of its update."""
        only_pass = data.meta_info[PLAN].only_pass
        settings = {
            "calculate_entropy": only_pass or self.config.entropy_coeff != 0,
            "epochs": self.config.ppo_epochs,
            "return_model_output": only_pass,
        }
        return self.worker.update_actor(self._rows(data, **settings))

    def _rows(self, data: DataProto, **settings: Any) -> Any:
        plain = {"use_remove_padding": self.config.fsdp_config.use_remove_padding, "use_dynamic_bsz": False}
        return unpadded(data, temperature=data.meta_info["temperature"], **plain, **settings)


def actor_config(*, micro_rows: int, dtype: str = "float32", packed: bool = False, **more: Any) -> FSDPActorConfig:
    """verl's configuration of an actor, which takes rows without padding if `packed`; `more` are keys of it."""
    engine: dict[str, Any] = {"micro_batch_size_per_gpu": micro_rows, "use_dynamic_bsz": False}
    return FSDPActorConfig(
        rollout_n=1,
        ppo_mini_batch_size=64,
        ppo_micro_batch_size_per_gpu=micro_rows,
        optim=FSDPOptimizerConfig(lr=1.0, clip_grad=1e9),
        use_torch_compile=False,
        fsdp_config=FSDPEngineConfig(dtype=dtype, use_remove_padding=packed, use_fused_kernels=False, **engine),
        **{"clip_ratio_low": 0.2, "clip_ratio_high": 0.3, **more},
    )


def actor_of(model: Any, *, micro_rows: int, lr: float = 1.0, **more: Any) -> Actor:
    """The worker with plain gradient descent: weights move by -lr times the gradient of the loss.

    `more` are keys of verl's actor.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return Actor(model, optimizer, actor_config(micro_rows=micro_rows, **more), dtype=torch.float32)


def with_advantages(data: DataProto) -> DataProto:
    """The batch as it reaches the trainer's `update_actor`: advantages, and what verl adds."""
    tensors: Any = data.batch
    advantages = over_rollouts(
        "group", tensors["token_level_scores"], tensors["response_mask"], data.non_tensor_batch["data_id_list"]
    )
    tensors["advantages"] = advantages
    tensors["old_log_probs"] = torch.zeros_like(advantages)
    data.meta_info |= {"temperature": 1.0}
    return data


def as_planned(data: DataProto, *, n_updates: int = 1, leave_out: bool = False, row_tokens: int = 1) -> DataProto:
    """The batch as it reaches the actor of a single rank; all rows are in it unless `leave_out`."""
    rules = UpdateRules(n_updates=n_updates, cap=2.0, has_entropy=not leave_out, row_tokens=row_tokens)
    return planned(data, rules, n_ranks=1, step=1)


def flat_weights(model: Any) -> torch.Tensor:
    """All weights in one vector, copied."""
    return torch.cat([p.detach().flatten().clone() for p in model.parameters()])
