"""Shards of a small policy, written by two ranks of FSDP as verl writes its own. Light: the ranks import this alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardedStateDictConfig, StateDictType
from transformers import Qwen3Config, Qwen3ForCausalLM

RANKS = 2


def policy(vocabulary: int) -> Any:
    """A random Qwen3 of two layers, in float32: the same one each time."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, tie_word_embeddings=True, architectures=["Qwen3ForCausalLM"],
    )  # fmt: skip
    return Qwen3ForCausalLM(config)


def _write_as_rank(rank: int, folder: str, vocabulary: int) -> None:
    address = f"file://{folder}/rendezvous"
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("fsdp",))
    model = FullyShardedDataParallel(policy(vocabulary), device_mesh=mesh, device_id=torch.device("cpu"))
    kind = StateDictType.SHARDED_STATE_DICT
    with FullyShardedDataParallel.state_dict_type(model, kind, ShardedStateDictConfig(offload_to_cpu=True)):
        torch.save(model.state_dict(), f"{folder}/model_world_size_{RANKS}_rank_{rank}.pt")
    torch.distributed.destroy_process_group()


def write_two_ranks(folder: Path, vocabulary: int) -> None:
    """Write the shards of both ranks into `folder`."""
    torch.multiprocessing.spawn(_write_as_rank, args=(str(folder), vocabulary), nprocs=RANKS)  # pyright: ignore
    (folder / "rendezvous").unlink(missing_ok=True)
