"""What must hold of advantages and losses for any step: random rewards, groups, rows and log-probabilities."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agl_plugin.update.advantage import ESTIMATES, over_rollouts
from agl_plugin.update.losses import TokenLoss, Tokens, cispo, minirl

REWARD = st.integers(0, 2**17).map(lambda n: n / 2**16)  # the steps in which a batch keeps rewards
# A rollout: its reward, and the sampled tokens of each of its rows.
ROLLOUT = st.tuples(REWARD, st.lists(st.integers(1, 5), min_size=1, max_size=3))
STEP = st.lists(st.lists(ROLLOUT, min_size=1, max_size=5), min_size=1, max_size=4)
Step = list[list[tuple[float, list[int]]]]


def found(kind: str, step: Step, *, merged: bool) -> dict[str, float]:
    """The advantage of each rollout, from rows: one per rollout where `merged`, else as many as it has."""
    rows = [
        (f"q{q}/r{q}.{n}", reward, length)
        for q, group in enumerate(step)
        for n, (reward, lengths) in enumerate(group)
        for length in ([sum(lengths)] if merged else lengths)
    ]
    width = max(length for _, _, length in rows)
    mask = torch.tensor([[1] * n + [0] * (width - n) for _, _, n in rows])
    scores = torch.zeros(mask.shape)
    scores[torch.arange(len(rows)), mask.sum(1) - 1] = torch.tensor([reward for _, reward, _ in rows])
    uids = np.array([uid for uid, _, _ in rows], dtype=object)
    advantages = over_rollouts(kind, scores, mask, uids)
    assert not advantages[mask == 0].any()
    values: dict[str, set[float]] = defaultdict(set)
    for uid, line, on in zip(uids, advantages, mask.bool(), strict=True):
        values[uid] |= set(line[on].tolist())
    assert all(len(each) == 1 for each in values.values())
    return {uid: each.pop() for uid, each in values.items()}


def expected(kind: str, step: Step) -> dict[str, float]:
    """By the formulas, in float64, with `statistics`."""
    every = [reward for group in step for reward, lengths in group for _ in range(sum(lengths))]
    out: dict[str, float] = {}
    for q, group in enumerate(step):
        rewards = [reward for reward, _ in group]
        weighed = [reward for reward, lengths in group for _ in range(sum(lengths))]
        for n, (reward, _) in enumerate(group):
            if kind == "reinforce++":
                value = (reward - statistics.mean(every)) / (deviation(every) + 1e-6)
            elif len(group) == 1:
                value = 0.0
            elif kind == "rloo":
                value = reward - statistics.mean(rewards[:n] + rewards[n + 1 :])
            else:
                value = reward - statistics.mean(weighed if kind == "opo" else rewards)
                value /= deviation(rewards) + 1e-6 if kind == "group" else 1.0
            out[f"q{q}/r{q}.{n}"] = value
    return out


def deviation(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


@settings(deadline=None, max_examples=60)
@given(step=STEP)
@pytest.mark.parametrize("kind", ESTIMATES)
def test_an_advantage_is_its_formula_whatever_the_rows(kind: str, step: Step) -> None:
    exact, apart = expected(kind, step), found(kind, step, merged=False)
    assert apart == found(kind, step, merged=True)
    assert apart.keys() == exact.keys()
    assert all(apart[uid] == pytest.approx(value, rel=1e-6, abs=1e-6) for uid, value in exact.items())


@settings(deadline=None, max_examples=30)
@given(reward=REWARD, lengths=st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=3), min_size=1, max_size=9))
@pytest.mark.parametrize("kind", ESTIMATES)
def test_equal_rewards_are_worth_exactly_nothing(kind: str, reward: float, lengths: list[list[int]]) -> None:
    assert set(found(kind, [[(reward, each) for each in lengths]], merged=False).values()) == {0.0}


@settings(deadline=None, max_examples=30)
@given(step=STEP, scale=st.sampled_from([0.5, 2.0, 4.0]))
@pytest.mark.parametrize("kind", ["group_no_std", "rloo", "opo"])
def test_without_a_deviation_advantages_grow_with_the_rewards(kind: str, step: Step, scale: float) -> None:
    larger = [[(reward * scale, lengths) for reward, lengths in group] for group in step]
    one, many = found(kind, step, merged=True), found(kind, larger, merged=True)
    assert all(many[uid] == pytest.approx(scale * value, rel=1e-6, abs=1e-6) for uid, value in one.items())


GAP = st.floats(-3, 3)
TOKEN = st.tuples(st.floats(-6, -0.01), GAP, st.sampled_from([-1.5, -0.5, 0.0, 0.5, 2.0]))
LOW, HIGH = 0.2, 0.3


def cispo_weight(ratio: float, _advantage: float) -> float:
    return min(max(ratio, 1 - LOW), 1 + HIGH)


def minirl_weight(ratio: float, advantage: float) -> float:
    dropped = ratio > 1 + HIGH if advantage > 0 else ratio < 1 - LOW if advantage < 0 else False
    return 0.0 if dropped else ratio


@settings(deadline=None, max_examples=60)
@given(tokens=st.lists(TOKEN, min_size=1, max_size=8))
@pytest.mark.parametrize(("loss", "weight"), [(cispo, cispo_weight), (minirl, minirl_weight)])
def test_a_weighed_policy_gradient(loss: TokenLoss, weight: Any, tokens: list[tuple[float, float, float]]) -> None:
    """Each token's loss, and its gradient: minus weight times advantage, since the weight has none."""
    log_probs, gaps, advantages = (torch.tensor([column], dtype=torch.float64) for column in zip(*tokens, strict=True))
    log_probs.requires_grad_()
    given_ = Tokens(log_probs, log_probs.detach() - gaps, advantages, torch.ones_like(gaps).bool(), LOW, HIGH)
    losses = loss(given_)
    losses.sum().backward()
    assert log_probs.grad is not None
    rows = zip(tokens, losses[0].tolist(), log_probs.grad[0].tolist(), strict=True)
    for (log_prob, gap, advantage), value, slope in rows:
        expected_weight = weight(math.exp(gap), advantage)
        assert value == pytest.approx(-expected_weight * advantage * log_prob, rel=1e-9, abs=1e-12)
        assert slope == pytest.approx(-expected_weight * advantage, rel=1e-9, abs=1e-12)


@settings(deadline=None, max_examples=30)
@given(tokens=st.lists(TOKEN, min_size=1, max_size=8))
def test_what_is_beyond_the_bounds_is_what_ppo_gives_no_gradient(tokens: list[tuple[float, float, float]]) -> None:
    log_probs, gaps, advantages = (torch.tensor([column], dtype=torch.float64) for column in zip(*tokens, strict=True))
    log_probs.requires_grad_()
    seen = Tokens(log_probs, log_probs.detach() - gaps, advantages, torch.ones_like(gaps).bool(), LOW, HIGH)
    clipped = seen.ratio.clamp(1 - LOW, 1 + HIGH)
    (-torch.minimum(seen.ratio * advantages, clipped * advantages)).sum().backward()
    assert log_probs.grad is not None
    assert torch.equal(seen.beyond | (advantages == 0), log_probs.grad == 0)
