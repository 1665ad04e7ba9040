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
class ToolCall:
    """Its turn; whether it looked up the schema, went well, and was a query."""

    turn: int
    looks: bool
    well: bool
    is_query: bool


@dataclass(frozen=True)
class Phases:
    """Of each LLM call of a rollout whether it explored and whether a tool call of its failed; what exploring was
    worth."""

    explores: list[bool]
    failed: list[bool]
    worth: float


def phases_of(record: Mapping[str, Any], n_calls: int, *, reward: float) -> Phases:
    """The phases of a rollout of `n_calls` LLM calls, from its line of rollouts.jsonl."""
    calls = _tool_calls(record)
    if any(call.turn > n_calls for call in calls):
        return Phases([False] * n_calls, [False] * n_calls, reward)
    turns = [[call for call in calls if call.turn == turn] for turn in range(1, n_calls + 1)]
    explores = [bool(turn) and all(call.looks or not call.well for call in turn) for turn in turns]
    failed = [any(not call.well for call in turn) for turn in turns]
    first = explores.index(True) + 1 if any(explores) else 0
    led = not first or any(c.turn > first and c.well and c.is_query and not c.looks for c in calls)
    n_failed = sum(not call.well for call in calls)
    return Phases(explores, failed, reward * led - n_failed / max(1, len(calls)))


def _tool_calls(record: Mapping[str, Any]) -> list[ToolCall]:
    calls: list[ToolCall] = []
    for call in record.get("sql_calls") or []:
        looks, well = bool(LOOKS.search(call["sql"])), not call["result"].get("error")
        calls.append(ToolCall(call.get("turn", 1), looks, well, is_query=True))
    for call in record.get("tool_calls") or []:
        looks, well = call["name"] in SCHEMA_TOOLS, call.get("outcome", "ok") in ("ok", "cut")
        calls.append(ToolCall(call.get("turn", 1), looks, well, is_query=False))
    return calls
