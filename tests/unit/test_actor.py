"""The actor's forward passes: no computed padding, results in the order of rows (updates: test_actor_updates.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from transformers import Qwen3Config, Qwen3ForCausalLM
from verl import DataProto
from verl.workers.config import ActorConfig, FSDPActorConfig, FSDPEngineConfig

from agl_plugin.patches.install import install
from agl_plugin.update import actor

install("cpu", "worker")
# verl opens a float32 autocast, which a CPU does not have.
pytestmark = pytest.mark.filterwarnings("ignore:In CPU autocast")
LENGTHS = [(3, 9), (7, 2), (1, 5), (7, 12), (4, 1), (2, 6), (6, 3)]


@pytest.fixture(autouse=True, scope="module")
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """verl's worker asks for its rank."""
    store = tmp_path_factory.mktemp("ranks") / "store"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def model() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=17, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, attn_implementation="sdpa",
    )  # fmt: skip
    return Qwen3ForCausalLM(config).float()


def rows(pairs: list[tuple[int, int]] = LENGTHS, *, width: int = 14) -> DataProto:
    """Rows of (prompt, response) tokens, prompts padded on the left to 9, responses on the right to `width`."""
    generator = torch.Generator().manual_seed(3)
    n, total = len(pairs), 9 + width
    mask = torch.zeros(n, total, dtype=torch.long)
    for i, (n_prompt, n_response) in enumerate(pairs):
        mask[i, 9 - n_prompt : 9 + n_response] = 1
    ids = torch.randint(1, 17, (n, total), generator=generator) * mask
    tensors = {
        "input_ids": ids,
        "attention_mask": mask,
        "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
        "responses": ids[:, 9:],
        "response_mask": mask[:, 9:],
        "advantages": torch.randn(n, 1, generator=generator) * mask[:, 9:],
        "old_log_probs": torch.zeros(n, width),
    }
    info: dict[str, Any] = {"temperature": 1.0, "use_dynamic_bsz": False, "micro_batch_size": 2}
    return DataProto(batch=TensorDict(tensors, batch_size=n), meta_info=info)  # pyright: ignore[reportArgumentType]


def make(*, mini: int, micro: int, aggregation: str = "token-mean") -> Any:
    config = FSDPActorConfig(
        strategy="fsdp", ppo_mini_batch_size=mini, ppo_micro_batch_size_per_gpu=micro, use_torch_compile=False,
        loss_agg_mode=aggregation, grad_clip=1e9, rollout_n=1,
        fsdp_config=FSDPEngineConfig(dtype="float32"),
    )  # fmt: skip
    assert isinstance(config, ActorConfig)
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    return actor.DataParallelPPOActor(config=config, actor_module=network, actor_optimizer=optimizer)


def test_log_probabilities_are_those_of_the_padded_rows_in_their_order() -> None:
    worker, data = make(mini=7, micro=2), rows()
    found, entropies = worker.compute_log_prob(data, calculate_entropy=True)
    their_entropies, theirs = actor._forward_micro_batch(  # pyright: ignore[reportPrivateUsage]
        worker, dict(data.batch), 1.0, True
    )
    mask = data.batch["response_mask"].bool()
    assert torch.allclose(found[mask], theirs[mask].detach(), atol=1e-5)
    assert torch.allclose(
        entropies[mask],
        their_entropies[mask].detach(),  # pyright: ignore[reportOptionalSubscript]
        atol=1e-5,
    )
    assert found.shape == theirs.shape


def test_columns_of_padding_alone_are_cut() -> None:
    cut, width = actor.cut_columns(dict(rows([(3, 4), (2, 6)]).batch))
    assert width == 6 and cut["input_ids"].shape == (2, 9) and cut["responses"].shape == (2, 6)
    assert cut["attention_mask"].sum().item() == 15


def test_other_aggregations_stay_as_verl_has_them() -> None:
    loss, mask = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1, 1], [1, 0]])
    assert actor.agg_loss(loss, mask, "token-mean").item() == pytest.approx(2.0)
    assert actor.agg_loss(loss, mask, "seq-mean-token-mean").item() == pytest.approx(2.25)
