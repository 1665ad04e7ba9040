"""verl's own actor on the CPU, around a tiny model, for benchmarks and tests of what an update does.

One process, gloo, no FSDP. `actor_of(model, ...)` gives the actor that training runs, with this project's additions
(agl_plugin.update.actor); `as_planned` is a batch as the trainer hands it to that actor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from verl import DataProto
from verl.workers.actor.dp_actor import DataParallelPPOActor
from verl.workers.config import FSDPActorConfig, FSDPEngineConfig

from agl_plugin.patches.install import install
from agl_plugin.update.advantage import FUNCTIONS
from agl_plugin.update.plan import planned
from agl_plugin.update.rules import UpdateRules

install("cpu", "worker")


def tiny_model(*, vocabulary: int = 12) -> Any:
    """A random Qwen3 of two layers, in float64: the same one each time."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, attn_implementation="sdpa",
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


def actor_of(model: Any, *, micro_rows: int, mini_rows: int = 64, lr: float = 1.0, **more: Any) -> DataParallelPPOActor:
    """The actor with plain gradient descent: weights move by -lr times the gradient of the loss.

    `mini_rows` is verl's, which counts for batches without a plan alone; `more` are keys of verl's actor.
    """
    clips = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.3}
    config = FSDPActorConfig(
        rollout_n=1,
        ppo_mini_batch_size=mini_rows,
        ppo_micro_batch_size_per_gpu=micro_rows,
        grad_clip=1e9,
        use_torch_compile=False,
        fsdp_config=FSDPEngineConfig(dtype="float32"),
        **{**clips, **more},
    )
    return DataParallelPPOActor(config, model, torch.optim.SGD(model.parameters(), lr=lr))


def with_advantages(data: DataProto) -> DataProto:
    """The batch as it reaches the trainer's `update_actor`: advantages, and what verl adds."""
    tensors: Any = data.batch
    advantages, _ = FUNCTIONS["group"](
        tensors["token_level_scores"], tensors["response_mask"], data.non_tensor_batch["data_id_list"]
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
