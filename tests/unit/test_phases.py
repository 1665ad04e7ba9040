"""Credit by phase and by turn: against formulas in float64, on random episodes, and against the audit's own account."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import pytest

from agl_plugin.audit.facts import _tool_calls  # pyright: ignore[reportPrivateUsage]
from agl_plugin.audit.recompute import Earned, Settings, by_row
from agl_plugin.update.advantage import add_advantages
from agl_plugin.update.batch import Batch, build_batch
from agl_plugin.update.phases import phases_of
from agl_plugin.update.rows import Call
from agl_plugin.update.rules import UpdateRules

Episode = dict[str, Any]
RULES = UpdateRules(n_updates=1, cap=2.0, credit="phases", turn_shaping=0.3)


def query(turn: int, sql: str = "SELECT 1", *, error: str | None = None) -> Episode:
    return {"sql": sql, "turn": turn, "result": {"error": error, "rows": []}}


def tool(turn: int, name: str, outcome: str = "ok") -> Episode:
    return {"name": name, "turn": turn, "outcome": outcome}


def random_episode(rng: random.Random) -> Episode:
    """A rollout of some turns, each with up to two calls of tools, and an answer."""
    n_calls = rng.randrange(1, 6)
    found: Episode = {
        "sql_calls": [],
        "tool_calls": [],
        "n": n_calls,
        "reward": rng.choice([0.0, 0.1, 1.1, rng.random()]),
    }
    for turn in range(1, n_calls):
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            sql = rng.choice(["SELECT 1", "SELECT name FROM sqlite_master", "PRAGMA table_info(a)"])
            others = [tool(turn, rng.choice(["list_tables", "add"]), rng.choice(["ok", "cut", "error", "timeout"]))]
            kind = rng.random()
            found["tool_calls"] += others if kind < 0.3 else []
            found["sql_calls"] += [query(turn, sql, error=rng.choice([None, None, "no such column"]))] * (kind >= 0.3)
    return found


def made(episodes: dict[str, tuple[str, Episode]], *, tokens: dict[str, list[int]]) -> Batch:
    phases = {name: phases_of(one, one["n"], reward=one["reward"]) for name, (_, one) in episodes.items()}
    rollouts = {
        name: (group, one["reward"], [Call([1, 2], [5] * n, [0.0] * n) for n in tokens[name]])
        for name, (group, one) in episodes.items()
    }
    limits: dict[str, Any] = {"max_prompt_tokens": 8, "max_response_tokens": 8, "pad_id": 0}
    return build_batch(rollouts, merge=False, phases=phases, **limits)


def in_steps(reward: float) -> float:
    return round(reward * 2**16) / 2**16


def reference(episodes: dict[str, tuple[str, Episode]], tokens: dict[str, list[int]], size: float) -> list[float]:
    """The advantage of each turn, by the words of docs/15."""
    worth, told = {}, {}
    for name, (_, one) in episodes.items():
        by_turn: dict[int, list[tuple[bool, bool, bool]]] = {}
        for call in one["sql_calls"]:
            looks = "sqlite_master" in call["sql"] or "PRAGMA" in call["sql"]
            by_turn.setdefault(call["turn"], []).append((looks, call["result"]["error"] is None, True))
        for call in one["tool_calls"]:
            by_turn.setdefault(call["turn"], []).append(
                (call["name"] == "list_tables", call["outcome"] in ("ok", "cut"), False)
            )
        explored = sorted(turn for turn, calls in by_turn.items() if all(looks or not ok for looks, ok, _ in calls))
        ran = [t for t, calls in by_turn.items() if any(ok and is_sql and not looks for looks, ok, is_sql in calls)]
        led = not explored or any(turn > explored[0] for turn in ran)
        calls = sum(by_turn.values(), [])
        failed = sum(not ok for _, ok, _ in calls) / len(calls) if calls else 0.0
        worth[name] = (one["reward"] if led else 0.0) - failed
        told[name] = explored, {turn for turn, calls in by_turn.items() if not all(ok for _, ok, _ in calls)}
    found = []
    for name, (group, one) in episodes.items():
        members = [other for other, (its, _) in episodes.items() if its == group]
        rewards = [in_steps(episodes[other][1]["reward"]) for other in members]
        answering = (in_steps(one["reward"]) - fmean(rewards)) / (stdev(rewards) + 1e-6)
        worths = [in_steps(worth[other]) for other in members]
        exploring = (in_steps(worth[name]) - fmean(worths)) / (stdev(worths) + 1e-6)
        mean = sum(n for turn, n in enumerate(tokens[name], 1) if turn in told[name][1]) / sum(tokens[name])
        for turn in range(1, one["n"] + 1):
            value = exploring if turn in told[name][0] else answering
            found.append(value + size * (mean - (turn in told[name][1])))
    return found


def tools_of(name: str, episode: Episode) -> list[tuple[int, str, str, bool]]:
    """As the audit keeps them."""
    rows = _tool_calls(name, episode)
    return [(row["turn"], row["name"], row["arguments"], row["outcome"] in ("ok", "cut")) for row in rows]


@pytest.mark.parametrize("seed", range(20))
def test_random_episodes_have_the_advantages_of_the_formula(seed: int) -> None:
    rng = random.Random(seed)
    episodes = {f"r{n}": (f"g{n % 3}", random_episode(rng)) for n in range(15)}
    tokens = {name: [rng.randrange(1, 7) for _ in range(one["n"])] for name, (_, one) in episodes.items()}
    batch = made(episodes, tokens=tokens)
    add_advantages(batch.data, "group", RULES)
    tensors: Any = batch.data.batch
    masked = zip(tensors["advantages"], tensors["response_mask"], strict=True)
    each = [row[mask == 1].unique().tolist() for row, mask in masked]
    expected = reference(episodes, tokens, RULES.turn_shaping)
    assert [value for (value,) in each] == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert (tensors["advantages"] * (1 - tensors["response_mask"])).abs().sum() == 0
    earned = {
        name: Earned(group, one["reward"], sum(tokens[name]), tokens[name], tools_of(name, one))
        for name, (group, one) in episodes.items()
    }
    rules = {"credit": "phases", "turn_shaping": RULES.turn_shaping}
    told: dict[str, Any] = {"merge": False, "prompt_tokens": 8, "response_tokens": 8, "n_updates": 1, "seed": 0}
    settings = Settings(**told, estimator="group_rollouts", advantage_decides=True, rules=rules)
    by_the_audit = [value for values in by_row(earned, settings).values() for value in values]
    assert by_the_audit == pytest.approx([value for (value,) in each], abs=1e-5)


def test_shaping_sums_to_zero_over_an_episode() -> None:
    episodes = {"a": ("g", {"sql_calls": [query(1, error="x"), query(2)], "n": 3, "reward": 0.5}),
                "b": ("g", {"sql_calls": [query(1)], "n": 2, "reward": 0.5})}  # fmt: skip
    batch = made(episodes, tokens={"a": [5, 2, 3], "b": [1, 1]})
    add_advantages(batch.data, "group", replace(RULES, credit="rollout"))
    tensors: Any = batch.data.batch
    values = tensors["advantages"].double()
    assert values.sum(dim=1)[:3].sum().item() == pytest.approx(0, abs=1e-6) and not values[3:].any()
    assert [row[0].item() for row in values[:3]] == pytest.approx([-0.15, 0.15, 0.15])


def test_exploring_that_leads_nowhere_has_no_part_in_the_reward() -> None:
    looked = phases_of({"tool_calls": [tool(1, "list_tables")], "sql_calls": [query(2)]}, 3, reward=1.0)
    assert (looked.explores, looked.worth) == ([True, False, False], 1.0)
    in_vain = phases_of({"tool_calls": [tool(1, "list_tables")]}, 2, reward=1.0)
    assert (in_vain.explores, in_vain.worth) == ([True, False], 0.0)
    failed = phases_of({"sql_calls": [query(1, error="x"), query(2)]}, 3, reward=1.0)
    assert (failed.explores, failed.failed, failed.worth) == ([True, False, False], [True, False, False], 0.5)
    beyond = phases_of({"sql_calls": [query(4, error="x")]}, 3, reward=1.0)
    assert (beyond.explores, beyond.failed, beyond.worth) == ([False] * 3, [False] * 3, 1.0)
