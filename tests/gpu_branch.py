"""A training step as GPUs make it, on two ranks over gloo: what each rank runs. Light: ranks import this alone.

A LoRA adapter that is loaded, gradient checkpointing, the pass before the update and the reference's (the base model),
two optimizer steps with KL and entropy, in the given precision. Each rank has rows of its own, padded or packed (flash
attention is written out here), or both share each row (verl's Ulysses); weights lie in FSDP, or, with padded rows, in
FSDP2. `batch` is the same in each process.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("AGENTGRPO_CPU", "1")
os.environ.setdefault("VERL_PLATFORM", "agentgrpo_cpu")
os.environ.setdefault("VERL_USE_EXTERNAL_MODULES", "agl_plugin.cpu.platform")

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy

RANKS, STEP, LR = 2, 3, 0.5
KINDS = ("padded", "packed", "shared", "fsdp2")
KL, ENTROPY, CLIP_LOW, CLIP_HIGH, TEMPERATURE = 0.2, 0.05, 0.2, 0.3, 0.8


def adapter_of(folder: Path, base: Any) -> Path:
    """A LoRA adapter that changes what the model says, as an earlier run would have saved it."""
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    torch.manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    model.save_pretrained(str(folder / "adapter"), save_embedding_layers=False)
    return folder / "adapter"


def policy(adapter: Path) -> Any:
    """The tiny model in float32, with the adapter, as verl loads both."""
    from peft import PeftModel

    from tests.actor import tiny_model

    base = tiny_model(vocabulary=40).float()
    base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    base.enable_input_require_grads()
    return PeftModel.from_pretrained(base, str(adapter), is_trainable=True)


def batch() -> Any:
    """Eleven rollouts of two turns in three groups, one of them flat: lengths and rewards differ."""

    from agl_plugin.update.batch import build_batch
    from agl_plugin.update.rows import NAN, Call
    from tests.actor import with_advantages

    numbers = torch.Generator().manual_seed(4)

    def some(n: int) -> list[int]:
        return torch.randint(1, 40, (n,), generator=numbers).tolist()

    rollouts: dict[str, Any] = {}
    for i, reward in enumerate([1.0, 0.0, 0.3, 0.8, 0.5, 0.5, 0.5, 0.1, 0.9, 0.2, 0.7]):
        first, answer, result, last = some(3 + i % 3), some(2 + i % 4), some(2), some(1 + i % 5)
        calls = [(first, answer), (first + answer + result, last)]
        turns = [Call(p, r, [NAN] * len(r)) for p, r in calls]
        rollouts[f"r{i}"] = (f"q{min(i // 4, 2)}" if i not in (4, 5, 6) else "flat", reward, turns)
    limits: dict[str, Any] = {"max_prompt_tokens": 30, "max_response_tokens": 30, "pad_id": 0}
    data = with_advantages(build_batch(rollouts, merge=True, **limits).data)
    data.meta_info |= {"temperature": TEMPERATURE, "micro_batch_size": 2}
    return data


def rules() -> Any:
    """Two optimizer steps with a reference model and an entropy term."""
    from agl_plugin.update.rules import UpdateRules

    return UpdateRules(n_updates=2, cap=2.0, has_reference=True, has_entropy=True, seed=1)


def attention(
    query: Any, key: Any, value: Any, _mask: Any, _length: int, *, position_ids: Any, softmax_scale: float, **_: Any
) -> Any:
    """What flash attention computes of packed rows, 1 x tokens x heads x width: each token sees its own row so far."""
    row = (position_ids == 0).cumsum(dim=-1)
    seen = (row[..., None] == row[:, None]).tril()[:, None]
    query, key, value = (one.transpose(1, 2) for one in (query, key, value))
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(query, key, value, attn_mask=seen, scale=softmax_scale, enable_gqa=True).transpose(1, 2)


def exchange(received: list[Any], sent: list[Any], group: Any = None, async_op: bool = False) -> None:
    """dist.all_to_all, which gloo lacks for lists."""
    every: list[Any] = [torch.empty_like(torch.stack(sent)) for _ in sent]
    torch.distributed.all_gather(every, torch.stack(sent), group=group)
    for place, one in zip(received, every, strict=True):
        place.copy_(one[torch.distributed.get_rank(group)])


def pack_rows(model: Any, *, n_shares: int) -> Any:
    """The group whose ranks share each row of the model, which takes packed rows, made able to as verl does."""
    from verl.models.transformers import monkey_patch
    from verl.utils import ulysses

    theirs: Any = monkey_patch
    theirs._flash_attention_forward = attention
    ulysses.dist.all_to_all = exchange  # pyright: ignore
    base = model.get_base_model()
    base.config._attn_implementation_internal = "flash_attention_2"
    monkey_patch.apply_monkey_patch(base, ulysses_sp_size=n_shares, use_remove_padding=True)
    return torch.distributed.new_group(range(RANKS)) if n_shares > 1 else None


def actor_of(model: Any, *, dtype: str, kind: str) -> Any:
    """FSDP, or FSDP2, and the worker around the policy, as verl's engine builds them; `kind` of KINDS."""
    from verl.utils.fsdp_utils import apply_fsdp2, fsdp2_load_full_state_dict, get_fsdp_wrap_policy
    from verl.utils.torch_dtypes import PrecisionType

    from tests.actor import Actor, actor_config

    is_packed, param_dtype = kind in ("packed", "shared"), PrecisionType.to_dtype(dtype)
    parallel = pack_rows(model, n_shares=RANKS if kind == "shared" else 1) if is_packed else None
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("fsdp",))
    if kind == "fsdp2":
        precision = MixedPrecisionPolicy(param_dtype=param_dtype, reduce_dtype=torch.float32, cast_forward_inputs=True)
        whole, sharded = model.state_dict(), model
        apply_fsdp2(model, {"mesh": mesh, "mp_policy": precision, "reshard_after_forward": True}, {})
        fsdp2_load_full_state_dict(model, whole, mesh)
    else:
        sharded = FullyShardedDataParallel(
            model,
            auto_wrap_policy=get_fsdp_wrap_policy(module=model, config=None, is_lora=True),
            device_id=torch.device("cpu"),
            mixed_precision=MixedPrecision(
                param_dtype=param_dtype, reduce_dtype=torch.float32, buffer_dtype=torch.float32
            ),
            device_mesh=mesh,
        )
    config = actor_config(
        micro_rows=2, dtype=dtype, packed=is_packed, clip_ratio_low=CLIP_LOW, clip_ratio_high=CLIP_HIGH,
        use_kl_loss=True, kl_loss_type="k3", kl_loss_coef=KL, entropy_coeff=ENTROPY,
    )  # fmt: skip
    optimizer = torch.optim.SGD(sharded.parameters(), lr=LR)
    return Actor(sharded, optimizer, config, dtype=param_dtype, parallel=parallel)


def _train_as_rank(rank: int, folder: str, dtype: str, kind: str) -> None:
    from verl.protocol import pad_dataproto_to_divisor

    from agl_plugin.patches.install import install
    from agl_plugin.update.prepare import prepare, result

    torch.set_num_threads(1)  # the threads of two ranks would wait for each other
    install("cpu", "worker")
    address = f"file://{folder}/rendezvous_{dtype}_{kind}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=RANKS)
    own, data = actor_of(policy(Path(folder) / "adapter"), dtype=dtype, kind=kind), batch()
    n_shares, share = (1, 0) if kind == "shared" else (RANKS, rank)

    def log_probs() -> torch.Tensor:
        """Of all rows: each rank computes its share."""
        padded, _ = pad_dataproto_to_divisor(data, n_shares)
        parts: list[Any] = [None] * RANKS
        torch.distributed.all_gather_object(parts, own.compute_log_prob(padded.chunk(n_shares)[share])[0])
        return torch.cat(parts)[: len(data)]

    data.batch["old_log_probs"] = log_probs()
    with own.engine.module.disable_adapter():
        data.batch["ref_log_prob"] = log_probs()

    prepared, told = prepare(data, rules(), step=STEP, n_ranks=n_shares), [None] * RANKS
    torch.distributed.all_gather_object(told, own.update_policy(prepared.data.chunk(n_shares)[share]))
    metrics, _ = result(prepared, told)  # pyright: ignore[reportArgumentType]
    with (
        nullcontext()
        if kind == "fsdp2"
        else FullyShardedDataParallel.summon_full_params(own.engine.module, writeback=False)
    ):
        weights = {
            name.replace("_fsdp_wrapped_module.", "").replace("_checkpoint_wrapped_module.", ""): (
                weight.full_tensor() if kind == "fsdp2" else weight
            )
            .detach()
            .clone()
            for name, weight in own.engine.module.named_parameters()
            if "lora" in name
        }
    found = {"weights": weights, "metrics": metrics, "old": data.batch["old_log_probs"]}
    torch.save(found, f"{folder}/{dtype}_{rank}.pt")
    torch.distributed.destroy_process_group()


def train_on_two_ranks(folder: Path, *, dtype: str, kind: str) -> list[dict[str, Any]]:
    """What each rank found; `folder` holds the adapter, `kind` is of KINDS."""
    torch.multiprocessing.spawn(_train_as_rank, args=(str(folder), dtype, kind), nprocs=RANKS)  # pyright: ignore
    return [torch.load(folder / f"{dtype}_{rank}.pt") for rank in range(RANKS)]
