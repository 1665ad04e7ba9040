"""Which turns of an episode explored and which answered, and what exploring was worth.

As in TRUST-SQL (Jian et al. 2026, arXiv:2603.16448) each of both phases is compared with its group by a reward of its
own, under a mask of its tokens. There the first track is paid for the right part of the schema; here by what any record
of a rollout tells. A turn explores when it called tools and each call looked up the schema or failed; all other turns
answer. With reward r of a rollout, c calls of tools and f failed ones among them, exploring is worth

    e = r * led - f / max(1, c)

where led is 0 if no query ran in a turn after the first one that explored, and 1 otherwise, also where nothing
explored. Answering is worth r. Turns are LLM calls by number, from 1: a record whose tools name later turns than there
are calls tells of no phase. Light to import; agl_plugin.audit.recompute has it once more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SCHEMA_TOOLS = ("list_tables", "describe_table", "sample_values")
LOOKS = re.compile(r"\b(?:pragma|sqlite_master|sqlite_schema|information_schema)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Phases:
    """Of each LLM call of a rollout whether it explored and whether a tool call of its failed; what exploring was
    worth."""

    explores: list[bool]
    failed: list[bool]
    worth: float


def phases_of(record: Mapping[str, Any], n_calls: int, *, reward: float) -> Phases:
    """The phases of a rollout of `n_calls` LLM calls, from its line of rollouts.jsonl."""
    queries, others = record.get("sql_calls") or [], record.get("tool_calls") or []
    calls = [(call.get("turn", 1), bool(LOOKS.search(call["sql"])), not call["result"].get("error"), True)
             for call in queries]  # fmt: skip
    calls += [(call.get("turn", 1), call["name"] in SCHEMA_TOOLS, call.get("outcome", "ok") in ("ok", "cut"), False)
              for call in others]  # fmt: skip
    if any(turn > n_calls for turn, *_ in calls):
        return Phases([False] * n_calls, [False] * n_calls, reward)
    of_turn = [[call for call in calls if call[0] == turn] for turn in range(1, n_calls + 1)]
    explores = [bool(turn_calls) and all(looks or not ok for _, looks, ok, _ in turn_calls) for turn_calls in of_turn]
    failed = [any(not ok for *_, ok, _ in turn_calls) for turn_calls in of_turn]
    first = explores.index(True) + 1 if any(explores) else 0
    led = not first or any(turn > first and ok and query and not looks for turn, looks, ok, query in calls)
    n_failed = sum(not ok for *_, ok, _ in calls)
    return Phases(explores, failed, reward * led - n_failed / max(1, len(calls)))
