"""Rows, masks and advantages, recomputed here from the token ids of the calls."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

from agl_plugin.update.advantage import over_rollouts
from agl_plugin.update.batch import Batch, build_batch
from agl_plugin.update.rows import NAN, Call, Limits, rows_of_calls

WIDE = Limits(99, 99)
TOKENS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def call(prompt: list[int], response: list[int], log_probs: list[float] | None = None) -> Call:
    return Call(prompt, response, log_probs or [NAN] * len(response))


def talk(first: list[int], turns: list[tuple[list[int], list[int]]]) -> list[Call]:
    """Calls that continue each other: each turn is what the environment adds, and what the policy then samples."""
    calls, so_far = [], first
    for added, sampled in turns:
        so_far = so_far + added
        calls.append(call(so_far, sampled))
        so_far = so_far + sampled
    return calls


def batch_of(
    rollouts: dict[str, tuple[str, float, list[Call]]], *, merge: bool = True, prompt: int = 99, response: int = 99
) -> Batch:
    return build_batch(
        dict(rollouts),
        merge=merge,
        max_prompt_tokens=prompt,
        max_response_tokens=response,
        pad_id=0,
    )


@settings(deadline=None)
@given(first=TOKENS, turns=st.lists(st.tuples(st.lists(st.integers(1, 9), max_size=4), TOKENS), min_size=1, max_size=5))
def test_a_merged_talk_is_one_row_that_trains_exactly_what_was_sampled(
    first: list[int], turns: list[tuple[list[int], list[int]]]
) -> None:
    calls = talk(first, turns)
    (row,) = rows_of_calls(calls, merge=True, limits=WIDE)
    last = calls[-1]
    assert row.prompt + row.response == [*last.prompt, *last.sampled]
    trained = [token for token, on in zip(row.response, row.mask, strict=True) if on]
    assert trained == [token for _, sampled in turns for token in sampled]
    apart = rows_of_calls(calls, merge=False, limits=WIDE)
    assert [(r.prompt, r.response) for r in apart] == [(c.prompt, c.sampled) for c in calls]
    assert all(all(r.mask) for r in apart)


@settings(deadline=None)
@given(calls=st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=5), merge=st.booleans())
def test_trained_tokens_are_the_sum_of_the_responses_whatever_the_history(
    calls: list[tuple[list[int], list[int]]], merge: bool
) -> None:
    made = batch_of({"r": ("q", 0.5, [call(*c) for c in calls])}, merge=merge)
    assert int(made.data.batch["response_mask"].sum()) == sum(len(response) for _, response in calls)
    assert made.metrics["batch/trained_over_sampled"] == 1


def test_a_turn_that_adds_no_token_copies_nothing() -> None:
    (row,) = rows_of_calls([call([1, 2], [3]), call([1, 2, 3], [4])], merge=True, limits=WIDE)
    assert (row.prompt, row.response, row.mask) == ([1, 2], [3, 4], [1, 1])


def test_a_long_later_piece_trains_no_prompt_token_and_loses_none_of_its_own() -> None:
    calls = [call([1], [2]), call([7] * 8, [3, 4])]
    made = batch_of({"r": ("q", 1.0, calls)}, prompt=5)
    assert made.data.batch["responses"].tolist() == [[2, 0, 0, 0, 0], [7, 7, 7, 3, 4]]
    assert made.data.batch["response_mask"].tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 1, 1]]
    assert made.data.batch["is_drop_mask"].tolist() == [False, False]
    assert made.metrics["batch/unmerged_prefix_mismatch"] == 1 and made.metrics["batch/merged_share"] == 0


def test_a_first_prompt_over_the_limit_is_dropped_and_not_counted_as_trained() -> None:
    made = batch_of({"a": ("q", 1.0, [call([7] * 8, [3, 4])]), "b": ("q", 0.0, [call([1], [2, 2])])}, prompt=5)
    assert made.data.batch["is_drop_mask"].tolist() == [True, False]
    assert made.metrics["batch/trained_over_sampled"] == 0.5


def test_a_talk_over_the_limit_goes_on_in_another_row() -> None:
    calls = talk([1, 2], [([], [3, 4]), ([5], [6, 7]), ([8], [9])])
    made = batch_of({"r": ("q", 1.0, calls)}, prompt=4, response=5)
    batch = made.data.batch
    assert batch["prompts"].tolist() == [[0, 0, 1, 2], [1, 2, 3, 4]]
    assert batch["responses"].tolist() == [[3, 4, 5, 6, 7], [5, 6, 7, 8, 9]]
    assert batch["response_mask"].tolist() == [[1, 1, 0, 1, 1], [0, 0, 0, 0, 1]]
    assert not batch["is_drop_mask"].any() and made.metrics["batch/trained_over_sampled"] == 1
    assert made.metrics["batch/unmerged_too_long"] == 1 and made.metrics["batch/rows_cut"] == 0


@settings(deadline=None)
@given(
    turns=st.lists(st.tuples(st.lists(st.integers(1, 9), max_size=4), TOKENS), min_size=1, max_size=6),
    prompt=st.integers(1, 12),
    response=st.integers(6, 20),
)
def test_no_sampled_token_is_lost_while_each_call_fits_a_row(
    turns: list[tuple[list[int], list[int]]], prompt: int, response: int
) -> None:
    """A row holds prompt + response tokens; vLLM's own limit keeps each call within that."""
    calls = [c for c in talk([1], turns) if len(c.prompt) + len(c.sampled) <= prompt + response]
    if not calls or len(calls[0].prompt) > prompt:
        return
    made = batch_of({"r": ("q", 1.0, calls)}, prompt=prompt, response=response)
    assert made.metrics["batch/trained_over_sampled"] == 1 and made.metrics["batch/rows_cut"] == 0
    assert made.data.batch["responses"].shape[1] <= response and made.data.batch["prompts"].shape[1] <= prompt


def test_the_samplers_log_probabilities_stand_where_it_sampled() -> None:
    calls = [call([1, 2], [3, 4], [-0.5, -0.25]), call([1, 2, 3, 4, 5], [6], [-1.0])]
    rollouts = {"a": ("q", 1.0, calls), "b": ("q", 0.0, [call([1], [2])])}
    made = batch_of(rollouts)
    given = made.data.batch["rollout_log_probs"]
    assert given[0].tolist() == [-0.5, -0.25, 0.0, -1.0]
    assert given[1].isnan().tolist() == [True, False, False, False] and given[1, 1:].tolist() == [0, 0, 0]
    assert made.metrics["batch/calls_without_log_probs"] == 1
    apart = batch_of(rollouts, merge=False)
    assert apart.data.batch["rollout_log_probs"][:2].tolist() == [[-0.5, -0.25], [-1.0, 0.0]]


def test_without_any_log_probability_there_is_no_tensor() -> None:
    made = batch_of({"a": ("q", 1.0, [call([1], [2])]), "b": ("q", 0.0, [call([1], [2])])})
    assert "rollout_log_probs" not in made.data.batch and made.metrics["batch/calls_without_log_probs"] == 2


def test_tensors_fit_and_are_no_wider_than_needed() -> None:
    made = batch_of({"a": ("q", 0.25, talk([1, 2, 3], [([], [4, 5]), ([6], [7])])), "b": ("q", 0.75, [call([8], [9])])})
    batch = made.data.batch
    assert batch["prompts"].tolist() == [[1, 2, 3], [0, 0, 8]]
    assert batch["responses"].tolist() == [[4, 5, 6, 7], [9, 0, 0, 0]]
    assert batch["response_mask"].tolist() == [[1, 1, 0, 1], [1, 0, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1] * 7, [0, 0, 1, 1, 0, 0, 0]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 1, 1, 1]]
    assert batch["token_level_scores"].tolist() == [[0, 0, 0, 0.25], [0.75, 0, 0, 0]]
    assert made.metrics["batch/rows_per_rollout"] == 1


def test_rows_over_the_limit_are_cut_and_counted() -> None:
    made = batch_of({"a": ("q", 1.0, [call([1], [2] * 9)]), "b": ("q", 0.0, [call([1], [2])])}, response=4)
    assert made.data.batch["responses"].shape == (2, 4)
    assert made.metrics["batch/rows_cut"] == 1 and made.metrics["batch/trained_over_sampled"] == 0.5
    assert made.data.batch["token_level_scores"].sum(-1).tolist() == [1.0, 0.0]


def test_each_rollout_counts_once_in_its_group_however_many_rows_it_has() -> None:
    talks = {"a": ("q", 1.0, [call([n], [n]) for n in range(1, 6)]), "b": ("q", 0.0, [call([1], [2])])}
    made = batch_of(talks, merge=False)
    batch, uid = made.data.batch, made.data.non_tensor_batch["data_id_list"]
    advantages = over_rollouts("group", batch["token_level_scores"], batch["response_mask"], uid)
    expected = 0.5 / (np.std([1.0, 0.0], ddof=1) + 1e-6)
    assert advantages[:, 0].tolist() == pytest.approx([expected] * 5 + [-expected])


def test_with_one_row_each_it_is_verls_grpo() -> None:
    generator = torch.Generator().manual_seed(1)
    rewards = torch.zeros(12, 3)
    rewards[:, 2] = torch.rand(12, generator=generator)
    mask = torch.ones(12, 3)
    groups = np.array([f"q{i % 3}" for i in range(12)], dtype=object)
    uids = np.array([f"q{i % 3}/r{i}" for i in range(12)], dtype=object)
    ours = over_rollouts("group", rewards, mask, uids)
    theirs, _ = compute_grpo_outcome_advantage(rewards, mask, groups)
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_without_scaling_the_advantage_is_the_distance_to_the_mean() -> None:
    rewards, mask = torch.tensor([[1.0], [0.0], [0.5], [0.25]]), torch.ones(4, 1)
    uids = np.array(["q/a", "q/b", "p/c", "p/d"], dtype=object)
    plain = over_rollouts("group_no_std", rewards, mask, uids)
    assert plain[:, 0].tolist() == [0.5, -0.5, 0.125, -0.125]


def test_a_group_without_variance_has_advantage_zero_exactly() -> None:
    rollouts = {str(i): ("q", 0.73, [call([1], [2])]) for i in range(7)}
    made = batch_of(rollouts)
    batch, uid = made.data.batch, made.data.non_tensor_batch["data_id_list"]
    assert not over_rollouts("group", batch["token_level_scores"], batch["response_mask"], uid).any()


def test_merged_and_unmerged_rows_give_the_same_gradient() -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=12, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).double()
    rollouts = {
        "a": ("q", 1.0, talk([1, 2, 3], [([], [4, 5]), ([6, 7], [8]), ([9], [10, 11])])),
        "b": ("q", 0.0, talk([3, 2], [([], [5]), ([4], [6, 7, 8])])),
    }
    gradients = [policy_gradient(model, batch_of(rollouts, merge=merge)) for merge in (True, False)]
    assert gradients[0].norm() > 1e-3
    assert (gradients[0] - gradients[1]).norm() < 1e-5 * gradients[0].norm()


def policy_gradient(model: torch.nn.Module, made: Batch) -> torch.Tensor:
    """The gradient of -sum(A log pi) over trained tokens."""
    batch, uid = made.data.batch, made.data.non_tensor_batch["data_id_list"]
    advantages = over_rollouts("group", batch["token_level_scores"], batch["response_mask"], uid)
    model.zero_grad()
    logits = model(
        input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], position_ids=batch["position_ids"]
    ).logits
    width = batch["responses"].shape[1]
    log_probs = torch.log_softmax(logits[:, -width - 1 : -1], dim=-1)
    chosen = log_probs.gather(-1, batch["responses"][:, :, None])[:, :, 0]
    (-(chosen * advantages.double()).sum()).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
