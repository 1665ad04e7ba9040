"""Qwen3.5, whose layers are gated delta nets and attention, and which reads images too: what trains it here.

A random small one, in float64, without the kernels of a GPU. `make full-shape` has its weights in vLLM.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration
from verl.models.transformers.monkey_patch import apply_monkey_patch
from verl.utils.model import get_hf_auto_model_class
from vllm import ModelRegistry

from agl_plugin.update.batch import build_batch
from agl_plugin.update.rows import NAN, Call
from tests.actor import actor_of, as_planned, with_advantages

pytestmark = pytest.mark.usefixtures("rank")

TEXT = {
    "vocab_size": 30, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 2,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1],
    },
}  # fmt: skip
VISION = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}


def model() -> Any:
    torch.manual_seed(0)
    config = Qwen3_5Config(text_config=TEXT, vision_config=VISION, tie_word_embeddings=True)
    return Qwen3_5ForConditionalGeneration(config).double()


def rows() -> Any:
    """Rollouts of one and two turns, of several lengths."""
    said = {"a": ([1, 2, 3], [4, 5]), "b": ([3, 2], [5, 6, 7, 8, 9, 10]), "c": ([2] * 9, [1, 7, 9])}
    rollouts = {name: [Call(prompt, sampled, [NAN] * len(sampled))] for name, (prompt, sampled) in said.items()}
    rollouts["a"].append(Call([1, 2, 3, 4, 5, 20, 21], [22, 8], [NAN] * 2))
    rewarded = {name: ("q", reward, rollouts[name]) for name, reward in (("a", 1.0), ("b", 0.0), ("c", 0.25))}
    limits: dict[str, Any] = {"max_prompt_tokens": 30, "max_response_tokens": 30, "pad_id": 0}
    return with_advantages(build_batch(rewarded, merge=True, **limits).data)


def alone(policy: Any, data: Any) -> torch.Tensor:
    """Log-probabilities of the trained tokens, rows x response, each row by itself, as transformers computes them."""
    tensors = data.batch
    width, found = tensors["responses"].shape[1], torch.zeros(tensors["responses"].shape, dtype=torch.float64)
    for n, (ids, mask) in enumerate(zip(tensors["input_ids"], tensors["attention_mask"].bool(), strict=True)):
        with torch.no_grad():
            logits = policy(input_ids=ids[mask][None], use_cache=False).logits[0]
        scores = torch.log_softmax(logits, dim=-1)[:-1].gather(-1, ids[mask][1:, None])[:, 0]
        found[n, mask[-width:]] = scores[-int(mask[-width:].sum()) :]
    return found * tensors["response_mask"]


def test_the_trainer_loads_what_vllm_serves() -> None:
    config = model().config
    loader: Any = get_hf_auto_model_class(config)
    assert loader._model_mapping[type(config)] is Qwen3_5ForConditionalGeneration
    assert Qwen3_5ForConditionalGeneration.__name__ in ModelRegistry.get_supported_archs()


def test_padded_rows_are_scored_as_each_alone_and_an_update_leaves_the_eyes_alone() -> None:
    policy, data = model(), rows()
    expected = alone(policy, data)
    apply_monkey_patch(policy, use_remove_padding=False)
    policy.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    data.meta_info |= {"micro_batch_size": 3}
    found, _ = actor_of(policy, micro_rows=3).compute_log_prob(data)
    assert expected.abs().sum() > 1 and (found - expected).abs().max() < 1e-9
    before = {name: weight.detach().clone() for name, weight in policy.named_parameters()}
    actor_of(policy, micro_rows=2).update_policy(as_planned(data))
    moved = {name for name, weight in policy.named_parameters() if not torch.equal(weight, before[name])}
    assert moved == {name for name in before if "visual" not in name}
