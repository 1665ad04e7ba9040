"""Rows, masks and advantages once more, from calls and rewards: other code than training's, to check it by.

Plain Python on lists, without torch, and without anything of agl_plugin.update. The rules are those of
docs/15-training.md; what they are in a run stands in its settings.
"""

from __future__ import annotations

import math
import random
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from foundation.grouping import grouped

Call = tuple[list[int], list[int]]  # what the policy saw, what it sampled
Estimate = Callable[[list[float], list[int]], list[float]]  # of a group's rewards, and its numbers of trained tokens
REWARD_STEPS = 2**16
EPSILON = 1e-6


@dataclass(frozen=True)
class Settings:
    """What a run's settings mean for its rows."""

    merge: bool
    prompt_tokens: int
    response_tokens: int
    estimator: str
    n_updates: int
    seed: int
    advantage_decides: bool
    rules: Mapping[str, Any]
    max_staleness: int = 0
    from_store: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Settings:
        """From the column `settings` of the table `run`."""
        verl, rules = settings["verl"], settings["rules"]
        aggregator = verl["agentlightning"]["trace_aggregator"]
        algorithm = verl["algorithm"]
        merge = aggregator["level"] == "trajectory"
        data = verl["data"]
        limits = (data["max_prompt_length"], data["max_response_length"])
        if merge:
            limits = (aggregator["trajectory_max_prompt_length"], aggregator["trajectory_max_response_length"])
        others = ("has_reference", "has_entropy", "has_own_loss", "imitation")
        return cls(
            merge=merge,
            prompt_tokens=limits[0],
            response_tokens=limits[1],
            estimator=algorithm["adv_estimator"],
            n_updates=rules["n_updates"],
            seed=rules["seed"],
            advantage_decides=not any(rules.get(name) for name in others),
            rules=rules,
            max_staleness=settings.get("max_staleness", 0),
            from_store=settings.get("from_store", {}),
        )


@dataclass(frozen=True)
class Expected:
    """A training row as it must be, as wide as the limits allow; `too_long`: its prompt is above the limit."""

    prompt: list[int]
    response: list[int]
    mask: list[int]
    too_long: bool


def rows_of(calls: Sequence[Call], settings: Settings) -> Iterator[Expected]:
    pieces: list[list[Call]] = []
    for call in calls:
        if settings.merge and pieces and _continues(pieces[-1], call, settings, first=len(pieces) == 1):
            pieces[-1].append(call)
        else:
            pieces.append([call])
    for n, piece in enumerate(pieces):
        yield _row(piece, settings, later=settings.merge and n > 0)


def _head(piece: Sequence[Call], settings: Settings, *, first: bool) -> int:
    """How many tokens of a piece stand on the prompt's side of its row."""
    n_prompt = len(piece[0][0])
    return n_prompt if first else min(n_prompt, settings.prompt_tokens)


def _continues(piece: Sequence[Call], call: Call, settings: Settings, *, first: bool) -> bool:
    """Whether a call's prompt goes on where the piece ended, and the row still holds it."""
    so_far = piece[-1][0] + piece[-1][1]
    n_after = len(call[0]) + len(call[1]) - _head(piece, settings, first=first)
    return call[0][: len(so_far)] == so_far and n_after <= settings.response_tokens


def _row(piece: Sequence[Call], settings: Settings, *, later: bool) -> Expected:
    whole = piece[-1][0] + piece[-1][1]
    sampled = [0] * len(whole)
    for prompt, answer in piece:
        sampled[len(prompt) : len(prompt) + len(answer)] = [1] * len(answer)
    head = _head(piece, settings, first=not later)
    cut = slice(head, head + settings.response_tokens)
    prompt = whole[:head]
    return Expected(
        prompt[: settings.prompt_tokens], whole[cut], sampled[cut], too_long=len(prompt) > settings.prompt_tokens
    )


@dataclass(frozen=True)
class Earned:
    """A rollout of the batch: its group, its reward, how many trained tokens its rows have, together and each, and its
    tool calls: turn, name, arguments, whether it went well."""

    group: str
    reward: float
    n_tokens: int
    each: Sequence[int] = ()
    tools: Sequence[tuple[int, str, str, bool]] = ()


def advantages(earned: Mapping[str, Earned], settings: Settings) -> dict[str, float]:
    """The advantage of each rollout. Raises ValueError for an estimator that is not known here."""
    if settings.estimator not in ESTIMATES:
        raise ValueError(f"the advantage {settings.estimator} cannot be recomputed here")
    groups = [list(earned)]
    if settings.estimator != OVER_THE_STEP:
        groups = grouped(earned, lambda rollout: earned[rollout].group).values()
    values_of: dict[str, float] = {}
    for members in groups:
        rewards = [round(earned[member].reward * REWARD_STEPS) / REWARD_STEPS for member in members]
        values = ESTIMATES[settings.estimator](rewards, [earned[member].n_tokens for member in members])
        values_of |= dict(zip(members, map(float32, values), strict=True))
    return values_of


def by_row(earned: Mapping[str, Earned], settings: Settings) -> dict[str, list[float]]:
    """The advantage of each row of each rollout; where turns have their own, a row is a turn. Raises ValueError."""
    values = advantages(earned, settings)
    of_rows = {rollout: [values[rollout]] * max(1, len(of_rollout.each)) for rollout, of_rollout in earned.items()}
    if settings.rules.get("credit", "rollout") == "phases":
        exploring = {rollout: _exploring(of_rollout) for rollout, of_rollout in earned.items()}
        worth = advantages(
            {name: replace(of_rollout, reward=exploring[name][1]) for name, of_rollout in earned.items()}, settings
        )
        for rollout, (turns, _) in exploring.items():
            of_rows[rollout] = [
                worth[rollout] if n in turns else value for n, value in enumerate(of_rows[rollout], start=1)
            ]
    if size := settings.rules.get("turn_shaping", 0.0):
        for rollout, of_rollout in earned.items():
            bad = {turn for turn, *_, well in of_rollout.tools if not well} if _in_order(of_rollout) else set()
            mean = sum(n for turn, n in enumerate(of_rollout.each, start=1) if turn in bad) / max(
                1, of_rollout.n_tokens
            )
            of_rows[rollout] = [v + size * (mean - (n in bad)) for n, v in enumerate(of_rows[rollout], start=1)]
    return of_rows


def _in_order(rollout: Earned) -> bool:
    return all(turn <= len(rollout.each) for turn, *_ in rollout.tools)


def _exploring(rollout: Earned) -> tuple[set[int], float]:
    """The turns of a rollout that explored, and what that was worth."""
    if not _in_order(rollout):
        return set(), rollout.reward
    of_schema = {
        n for n, (_, name, sql, _) in enumerate(rollout.tools) if name in LOOKING or (name == "sql" and _looks(sql))
    }
    explored = {turn: True for turn, *_ in rollout.tools}
    for n, (turn, *_, well) in enumerate(rollout.tools):
        explored[turn] &= n in of_schema or not well
    turns = {turn for turn, explores in explored.items() if explores}
    after = [
        turn for n, (turn, name, _, well) in enumerate(rollout.tools) if well and name == "sql" and n not in of_schema
    ]
    in_vain = bool(turns) and not any(turn > min(turns) for turn in after)
    n_failed = sum(not well for *_, well in rollout.tools)
    return turns, (0.0 if in_vain else rollout.reward) - n_failed / max(1, len(rollout.tools))


LOOKING = {"list_tables", "describe_table", "sample_values"}


def _looks(sql: str) -> bool:
    words = set(re.findall(r"\w+", sql.lower()))
    return bool(words & {"pragma", "sqlite_master", "sqlite_schema", "information_schema"})


def _distance(rewards: list[float], weights: list[int]) -> list[float]:
    """To the mean, in which each reward counts by its weight."""
    mean = math.fsum(r * n for r, n in zip(rewards, weights, strict=True)) / max(1, sum(weights))
    return [reward - mean for reward in rewards]


def _deviations(rewards: list[float], weights: list[int]) -> list[float]:
    distances = _distance(rewards, weights)
    squares = math.fsum(n * distance**2 for n, distance in zip(weights, distances, strict=True))
    deviation = math.sqrt(squares / max(1, sum(weights) - 1))
    return [distance / (deviation + EPSILON) for distance in distances]


def _even(estimate: Callable[[list[float], list[int]], list[float]]) -> Estimate:
    return lambda rewards, _n_tokens: estimate(rewards, [1] * len(rewards))


def _without_itself(rewards: list[float], _n_tokens: list[int]) -> list[float]:
    n = len(rewards)
    return [(r - math.fsum(rewards) / n) * n / (n - 1) if n > 1 else 0.0 for r in rewards]


OVER_THE_STEP = "reinforce++_rollouts"
ESTIMATES: dict[str, Estimate] = {
    "group_rollouts": _even(_deviations),
    "group_no_std_rollouts": _even(_distance),
    "rloo_rollouts": _without_itself,
    "opo_rollouts": lambda rewards, n: _distance(rewards, n) if len(rewards) > 1 else [0.0],
    OVER_THE_STEP: _deviations,
}


def float32(value: float) -> float:
    """The nearest number that the update can hold."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def optimizer_steps(row_numbers: Sequence[int], settings: Settings, *, step: int) -> dict[int, int]:
    """The optimizer step, from 1, of the row of each number."""
    order = sorted(row_numbers)
    random.Random(f"{settings.seed}/{step}").shuffle(order)
    return {number: place % settings.n_updates + 1 for place, number in enumerate(order)}
