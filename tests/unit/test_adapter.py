"""The calls of a rollout, of spans shaped like the LLM proxy's: all of them, or none at all."""

from __future__ import annotations

import random
from typing import Any

import pytest
from agentlightning.types import Span
from hypothesis import given
from hypothesis import strategies as st

from agl_plugin.update.adapter import annotation_of, read_calls, reward_of, scored_calls
from agl_plugin.update.rows import Call
from tests.spans import call_without_ids, fault_span, llm_call, noise, reward_span

CALLS = [([1, 2], [3]), ([1, 2, 3, 4], [5, 6]), ([1, 2, 3, 4, 5, 6, 7], [8])]


def episode(n_calls: int = 3, *, reward: float = 0.7) -> list[Span]:
    """A rollout as it is stored: noise and a call per turn, then the reward."""
    spans: list[Span] = []
    for number, (prompt, response) in enumerate(CALLS[:n_calls]):
        spans += [*noise(seq=2 * number + 1), llm_call(prompt, response, seq=2 * number + 2)]
    return [*spans, reward_span(reward, seq=2 * n_calls + 1, n_calls=n_calls)]


def tokens(calls: list[Call]) -> list[tuple[list[int], list[int]]]:
    return [(list(call.prompt), list(call.sampled)) for call in calls]


def test_each_call_comes_once_and_in_order() -> None:
    assert tokens(scored_calls(episode())) == CALLS


@pytest.mark.long
@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 9), max_size=6))
def test_order_and_copies_of_spans_do_not_matter(rng: random.Random, copied: list[int]) -> None:
    spans = episode()
    spans += [spans[i % len(spans)] for i in copied]
    rng.shuffle(spans)
    assert tokens(scored_calls(spans)) == CALLS and reward_of(spans) == 0.7


@pytest.mark.parametrize("reward", [0.0, -0.5, 0.1, 1.1])
def test_any_number_is_a_reward_also_zero(reward: float) -> None:
    assert len(scored_calls(episode(reward=reward))) == 3 and reward_of(episode(reward=reward)) == reward


def test_log_probabilities_and_the_end_of_a_call_come_along() -> None:
    spans = [
        llm_call([1], [2, 3], seq=1, log_probs=[-0.5, -0.25], finish_reason="length"),
        llm_call([1, 2, 3], [4], seq=2, log_probs=[-0.5, -0.25]),  # not one per token: not believed
        llm_call([1, 2, 3, 4], [5], seq=3),
        reward_span(0.5, seq=4, n_calls=3),
    ]
    first, *others = scored_calls(spans)
    assert (first.sampled, first.log_probs, first.finish_reason) == ([2, 3], [-0.5, -0.25], "length")
    assert not any(other.log_probs for other in others)


@pytest.mark.parametrize("ids", ["None", "[]", "nonsense ["])
def test_what_is_no_list_of_ids_is_no_call(ids: str) -> None:
    call = llm_call([1], [2], seq=1)
    call.attributes["llm.hosted_vllm.prompt_token_ids"] = ids
    assert scored_calls([call, reward_span(1.0, seq=2)]) == []


def test_no_reward_gives_no_calls() -> None:
    assert scored_calls(episode()[:-1]) == []
    assert scored_calls([*episode()[:-1], fault_span("llm_fault", seq=9)]) == []
    assert scored_calls([]) == []


def test_a_call_without_token_ids_spoils_the_rollout() -> None:
    """Half a trace would teach the policy to answer without its query."""
    spans = [llm_call(*CALLS[0], seq=1), call_without_ids(seq=2), reward_span(1.0, seq=3, n_calls=2)]
    assert scored_calls(spans) == []


def test_a_call_whose_span_never_came_spoils_the_rollout() -> None:
    assert scored_calls([span for span in episode() if span.sequence_id != 4]) == []


def test_a_reward_without_any_call_gives_nothing() -> None:
    assert scored_calls([reward_span(1.0, seq=1, n_calls=0)]) == []
    assert scored_calls([reward_span(1.0, seq=1)]) == []


def test_an_agent_that_does_not_count_its_calls_is_trusted() -> None:
    spans = [llm_call(*CALLS[0], seq=1), reward_span(0.5, seq=2)]
    assert tokens(scored_calls(spans)) == CALLS[:1]


def test_a_call_of_an_older_attempt_is_not_mixed_in() -> None:
    """The daemon asks for the latest attempt; should a stray span come along, nothing is better than a mixture."""
    stray = llm_call([9], [9], seq=1, call_id="chatcmpl-old", attempt="at-0")
    assert scored_calls([stray, *episode()]) == []


def test_the_last_reward_and_annotation_count() -> None:
    spans = [*episode(1, reward=0.2), reward_span(0.9, seq=50, n_calls=1)]
    assert reward_of(spans) == 0.9 and reward_of(list(reversed(spans))) == 0.9
    assert annotation_of([fault_span("late", seq=8), fault_span("early", seq=2)], "agentgrpo.unscored") == "late"
    assert annotation_of(spans, "agentgrpo.unscored") is None


def test_a_prompt_holds_what_is_new_since_the_one_before_it() -> None:
    """And one that does not begin with it all of its own."""
    base = 10**6
    first, second, other = [base, base + 1], [base, base + 1, base + 9, base + 2], [base + 1, base, base + 2]
    found, _ = read_calls([llm_call(one, [base + 9], seq=n) for n, one in enumerate((first, second, other), 1)])
    prompts: list[Any] = [call.prompt for call in found]
    assert prompts == [first, second, other]
    assert [list(prompt.new) for prompt in prompts] == [first, [base + 2], other]
