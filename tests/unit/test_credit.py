"""Masks, log-probabilities and advantages of a batch, against a second and naive account of the stored spans.

The account reads the attributes of the spans by itself and asks, for every token that the policy sampled: after which
tokens, with which log-probability, worth which advantage? The batch must hold exactly these tokens, each with the
context that the model saw, whatever the level, the limits and the shape of the conversations.
"""

from __future__ import annotations

import json
import math
import random
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import pytest
from agentlightning.types import Span
from hypothesis import given, settings
from hypothesis import strategies as st

from agl_plugin.update.adapter import reward_of, scored_calls
from agl_plugin.update.advantage import over_rollouts
from agl_plugin.update.batch import build_batch
from tests.spans import fault_span, llm_call, noise, reward_span

PAD = 0
IDS = st.lists(st.integers(1, 6), max_size=4)  # few different tokens, so that accidental prefixes happen


@dataclass(frozen=True)
class Call:
    """What the environment adds before the call, what is sampled, and whether the history is written anew."""

    added: list[int]
    sampled: list[int]
    rewritten: bool


CALLS = st.lists(st.builds(Call, added=IDS, sampled=IDS.filter(bool), rewritten=st.booleans()), min_size=1, max_size=5)
ROLLOUTS = st.tuples(CALLS, st.sampled_from([None, 0.0, 0.1, 0.5, 1.1]))
STEP = st.lists(st.lists(ROLLOUTS, min_size=2, max_size=4), min_size=1, max_size=3)


def spans_of(rollout: str, calls: list[Call], reward: float | None, rng: random.Random) -> list[Span]:
    """The spans of a rollout in no order, some of them twice, as a store may give them."""
    history, spans = [1, 2], noise(seq=1, rollout=rollout)
    for turn, call in enumerate(calls):
        if call.rewritten:
            history = [7, *history[1:]]
        history = history + call.added
        log_probs = [-rng.randint(1, 4096) / 1024 for _ in call.sampled]  # exact in float32
        spans.append(
            llm_call(
                history, call.sampled, seq=turn + 2, rollout=rollout, call_id=f"{rollout}-{turn}", log_probs=log_probs
            )
        )
        history = history + call.sampled
    end = {"seq": len(calls) + 2, "rollout": rollout}
    spans.append(
        fault_span("judge_unreachable", **end) if reward is None else reward_span(reward, n_calls=len(calls), **end)
    )
    spans += rng.sample(spans, rng.randint(0, 2))
    rng.shuffle(spans)
    return spans


def account(stored: dict[str, tuple[str, list[Span]]]) -> tuple[Counter[Any], dict[str, float]]:
    """(rollout, context, token, log-probability) of each token to be trained, and each rollout's advantage."""
    rewards: dict[str, dict[str, float]] = defaultdict(dict)
    for rollout, (question, spans) in stored.items():
        found = [s.attributes["agentlightning.reward.0.value"] for s in spans if "reward" in str(s.attributes)]
        if found:
            rewards[question][rollout] = float(str(found[0]))
    tokens: Counter[Any] = Counter()
    advantages: dict[str, float] = {}
    for group in rewards.values():
        if len(group) < 2:
            continue
        mean, std = statistics.mean(group.values()), statistics.stdev(group.values())
        for rollout, reward in group.items():
            advantages[rollout] = (reward - mean) / (std + 1e-6)
            tokens += sampled_tokens(rollout, stored[rollout][1])
    return tokens, advantages


def sampled_tokens(rollout: str, spans: list[Span]) -> Counter[Any]:
    """(rollout, context, token, log-probability) of each token that one rollout sampled."""
    calls = {s.attributes["llm.hosted_vllm.id"]: s.attributes for s in spans if s.name == "raw_gen_ai_request"}
    tokens: Counter[Any] = Counter()
    for attributes in calls.values():
        context = json.loads(str(attributes["llm.hosted_vllm.prompt_token_ids"]))
        (choice,) = json.loads(str(attributes["llm.hosted_vllm.choices"]).replace("'", '"'))
        for token, log_prob in zip(choice["token_ids"], choice["log_probs"], strict=True):
            tokens[rollout, tuple(context), token, log_prob] += 1
            context = [*context, token]
    return tokens


def trained(data: Any) -> tuple[Counter[Any], dict[str, set[float]]]:
    """The same of a batch: every position with mask 1, after the tokens that stand before it."""
    batch, uids = data.batch, data.non_tensor_batch["data_id_list"]
    advantages = over_rollouts("group", batch["token_level_scores"], batch["response_mask"], uids)
    width = batch["prompts"].shape[1]
    tokens: Counter[Any] = Counter()
    values: dict[str, set[float]] = defaultdict(set)
    columns = (batch[name].tolist() for name in ("input_ids", "attention_mask", "position_ids", "response_mask"))
    more = (batch["rollout_log_probs"].tolist(), advantages.tolist())
    for rollout, ids, seen, positions, mask, log_probs, advantage in zip(
        data.non_tensor_batch["rollout_id_list"], *columns, *more, strict=True
    ):
        assert all((token != PAD) == bool(on) for token, on in zip(ids, seen, strict=True))
        for k, on in enumerate(mask):
            if not on:
                assert advantage[k] == 0 and log_probs[k] == 0
                continue
            context = tuple(token for token in ids[: width + k] if token != PAD)
            assert positions[width + k] == len(context)
            tokens[rollout, context, ids[width + k], log_probs[k]] += 1
            values[rollout].add(advantage[k])
    return tokens, values


@settings(deadline=None, max_examples=100)
@given(step=STEP, merge=st.booleans(), width=st.integers(4, 60), seed=st.integers(0, 99))
def test_the_batch_is_what_the_spans_say(
    step: list[list[tuple[list[Call], float | None]]], merge: bool, width: int, seed: int
) -> None:
    rng = random.Random(seed)
    stored = {
        f"r{q}{n}": (f"q{q}", spans_of(f"r{q}{n}", calls, reward, rng))
        for q, group in enumerate(step)
        for n, (calls, reward) in enumerate(group)
    }
    scored = {i: (q, reward_of(spans), scored_calls(spans)) for i, (q, spans) in stored.items()}
    sizes = Counter(q for q, reward, _ in scored.values() if reward is not None)
    kept = {i: (q, r, calls) for i, (q, r, calls) in scored.items() if r is not None and sizes[q] > 1}
    if not kept:
        return
    longest = max(len(c.prompt) + len(c.sampled) for _, _, calls in kept.values() for c in calls)
    made = build_batch(
        kept,
        merge=merge,
        max_prompt_tokens=60 if not merge else 6,  # a first prompt is 2 + at most 4 tokens
        max_response_tokens=max(width, longest),
        pad_id=PAD,
    )
    (tokens, values), (expected, advantages) = trained(made.data), account(stored)
    assert tokens == expected and values.keys() == advantages.keys()
    assert all(value == pytest.approx(advantages[i], abs=1e-3) for i, found in values.items() for value in found)
    assert made.metrics["batch/trained_over_sampled"] == 1
    alone = sum(calls > 0 for calls in Counter(made.data.non_tensor_batch["rollout_id_list"]).values())
    assert alone == len(kept) == made.metrics["batch/rollouts"]
    apart = made.metrics["batch/unmerged_prefix_mismatch"] + made.metrics["batch/unmerged_too_long"]
    assert made.metrics["batch/rows"] == (len(kept) + apart if merge else made.metrics["batch/calls"])


def test_an_unscored_member_changes_neither_mean_nor_deviation() -> None:
    rng = random.Random(0)
    plain = [Call([3], [4, 5], False)]
    stored = {i: ("q", spans_of(i, plain, reward, rng)) for i, reward in (("a", 0.1), ("b", 1.1), ("c", None))}
    _, advantages = account(stored)
    scored = {i: ("q", reward_of(spans), scored_calls(spans)) for i, (_, spans) in stored.items()}
    assert scored["c"] == ("q", None, [])
    kept = {i: (q, r, calls) for i, (q, r, calls) in scored.items() if r is not None}
    limits: dict[str, Any] = {"max_prompt_tokens": 9, "max_response_tokens": 9, "pad_id": PAD}
    _, values = trained(build_batch(kept, merge=True, **limits).data)
    half = math.sqrt(0.5)  # two rewards lie half a deviation from their mean, whatever they are
    assert advantages == {"a": pytest.approx(-half, abs=1e-3), "b": pytest.approx(half, abs=1e-3)}
    assert {i: found.pop() for i, found in values.items()} == pytest.approx(advantages, abs=1e-3)
