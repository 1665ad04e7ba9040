"""From what the trainer's side holds of a step to rows of the audit.

Ids are stable: rollouts and attempts have the store's; a call is ATTEMPT/c1, a tool call ROLLOUT/t1, a training row
ROLLOUT/r1, an update step-N, a question a hash of its texts.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agl_plugin.audit.schema import Row, Rows, pack, text
from agl_plugin.proxy.tokens import Prompt
from agl_plugin.update.rows import Call, Limits
from agl_plugin.update.rows import Row as TrainRow
from agl_plugin.update.rules import Updated
from foundation.files import jsonable

# Why a row, or a whole rollout, was not learned from.
UNSCORED, SMALL, REPLACED, TOO_OLD = "unscored", "group_too_small", "group_replaced", "too_old"
PROMPT_TOO_LONG, NOTHING_SAMPLED = "prompt_too_long", "nothing_sampled"
FILTERED, NO_ADVANTAGE = "left_out_by_recipe", "no_advantage"


@dataclass(frozen=True)
class Seen:
    """A finished rollout. `question`: the row of data; `attempts`: rows of the table; `calls` in order, those whose
    server gave no token ids without any."""

    rollout_id: str
    question: Mapping[str, Any]
    attempts: Sequence[Row]
    calls: Sequence[Call]


@dataclass(frozen=True)
class Batched:
    """What became of a step's rollouts: the rows of those in the batch, and why the others are not."""

    rows: Sequence[tuple[str, TrainRow]]
    limits: Limits
    left_out: Mapping[str, str] = field(default_factory=dict)


def rollout_rows(seen: Sequence[Seen], records: Mapping[str, Mapping[str, Any]], *, run_id: str) -> Rows:
    """Questions, rollouts, attempts, calls, tool calls and verdicts; `records` are the lines of rollouts.jsonl."""
    rows: Rows = {name: [] for name in ("question", "rollout", "attempt", "llm_call", "tool_call", "verdict")}
    for rollout in seen:
        record = records[rollout.rollout_id]
        question = _question(rollout.question, record, run_id=run_id)
        rows["question"].append(question)
        rows["rollout"].append(_rollout(rollout, record, question_id=question["id"]))
        rows["attempt"] += rollout.attempts
        rows["llm_call"] += _calls(rollout.calls)
        rows["tool_call"] += _tool_calls(rollout.rollout_id, record)
        rows["verdict"].append(_verdict(rollout.rollout_id, record))
    return rows


def _question(data_row: Mapping[str, Any], record: Mapping[str, Any], *, run_id: str) -> Row:
    name = text(record.get("question_id") or data_row.get("id"))
    question = text(record.get("question") or data_row.get("question"))
    reference = text(record.get("reference") or data_row.get("answer"))
    task_type = text(record.get("task_type") or data_row.get("task_type"))
    key = hashlib.sha256(json.dumps([name, question, reference]).encode()).hexdigest()[:16]
    texts = {"name": name, "question": question, "reference": reference, "task_type": task_type}
    return {"id": f"q-{key}", "run_id": run_id, **texts}


def _rollout(rollout: Seen, record: Mapping[str, Any], *, question_id: str) -> Row:
    same = {key: record.get(key) for key in ("step", "mode", "resampled", "status", "stop_reason")}
    return same | {
        "id": rollout.rollout_id,
        "question_id": question_id,
        "group_id": record.get("group"),
        "attempt_id": rollout.attempts[-1]["id"] if rollout.attempts else None,
        "agent": record.get("agent") or "",
        "answer": text(record.get("answer")),
        "n_calls": len(rollout.calls),
    }


def _calls(calls: Sequence[Call]) -> list[Row]:
    """Each by what is new of its prompt since the call that it goes on from."""
    prompts: list[Prompt] = []
    for call in calls:
        prompts.append(Prompt.of(call.prompt, call.sampled, before=prompts[-1] if prompts else None))
    places = {id(prompt): n for n, prompt in enumerate(prompts, start=1)}
    prompts = [
        prompt if not prompt.before or id(prompt.before) in places else Prompt.of(prompt[:], prompt.sampled)
        for prompt in prompts
    ]
    return [
        _call(call, n, prompt.new) | {"follows": places.get(id(prompt.before)), "n_shared": prompt.n_shared}
        for n, (call, prompt) in enumerate(zip(calls, prompts, strict=True), start=1)
    ]


def _call(call: Call, n: int, new: Any) -> Row:
    same = {key: call.facts[key] for key in ("attempt_id", "response_id", "weights_version", "started_s", "ended_s")}
    return same | {
        "id": f"{call.facts['attempt_id']}/c{n}",
        "n": n,
        "finish_reason": call.finish_reason,
        "n_prompt": len(call.prompt),
        "n_sampled": len(call.sampled),
        "prompt_ids": pack(new),
        "sampled_ids": pack(call.sampled),
        "log_probs": pack(call.log_probs, "f") if call.log_probs else None,
    }


def _tool_calls(rollout_id: str, record: Mapping[str, Any]) -> list[Row]:
    queries = [_query(call) for call in record.get("sql_calls") or []]
    others = [_other_tool(call) for call in record.get("tool_calls") or []]
    in_order = sorted([*queries, *others], key=lambda row: row["turn"])
    return [{**row, "id": f"{rollout_id}/t{n}", "rollout_id": rollout_id, "n": n} for n, row in enumerate(in_order, 1)]


def _query(call: Mapping[str, Any]) -> Row:
    result = call["result"]
    shown = {key: result.get(key) for key in ("columns", "rows", "truncated")}
    return {
        "turn": call.get("turn", 1),
        "name": "sql",
        "arguments": text(call["sql"]),
        "result": text(shown),
        "n_rows": len(result.get("rows") or []),
        "outcome": "error" if result.get("error") else "ok",
        "error": text(result.get("error")),
        "seconds": result.get("elapsed_s"),
    }


def _other_tool(call: Mapping[str, Any]) -> Row:
    outcome, result = call.get("outcome", "ok"), text(call.get("result"))
    good = outcome in ("ok", "cut")
    return {
        "turn": call.get("turn", 1),
        "name": call["name"],
        "arguments": text(call.get("arguments")),
        "result": result if good else "",
        "error": "" if good else result,
        "outcome": outcome,
        "seconds": call.get("elapsed_s"),
    }


def _verdict(rollout_id: str, record: Mapping[str, Any]) -> Row:
    return {
        "rollout_id": rollout_id,
        "reward": record.get("reward"),
        "unscored": record.get("unscored"),
        "judge": text(record.get("judge")),
        "parts": text(record.get("reward_parts") or {}),
        "reason": text(record.get("reason")),
        "usage": text(record.get("judge_usage") or {}),
    }


def update_rows(
    batched: Batched, updated: Updated | None, metrics: Mapping[str, Any], *, step: int, run_id: str
) -> Rows:
    """Training rows, rollouts without any, and the update of a step."""
    update_id = f"step-{step}"
    rows: list[Row] = []
    per_rollout: dict[str, int] = {}
    for number, (rollout_id, row) in enumerate(batched.rows):
        per_rollout[rollout_id] = n = per_rollout.get(rollout_id, 0) + 1
        place = {"id": f"{rollout_id}/r{n}", "rollout_id": rollout_id, "step": step, "row_number": number}
        rows.append(place | _tokens(row, batched.limits) | _fate(number, row, batched, updated, update_id=update_id))
    left_out = [{"rollout_id": i, "step": step, "why": why} for i, why in batched.left_out.items()]
    tables: Rows = {"train_row": rows, "left_out": left_out}
    if updated:
        tables["policy_update"] = [_update(updated, rows, metrics, step=step) | {"id": update_id, "run_id": run_id}]
        samples = {name: value for name, value in updated.state.items() if name != "settings"}
        state = {name: pack(value.tolist(), "f") for name, value in samples.items()}
        tables["update_state"] = [{"id": update_id, "settings": json.dumps(updated.state["settings"]), **state}]
    return tables


def _tokens(row: TrainRow, limits: Limits) -> Row:
    """As wide as the batch holds it."""
    prompt, response = row.prompt[: limits.prompt_tokens], row.response[: limits.response_tokens]
    mask = row.mask[: limits.response_tokens]
    return {
        "apart": row.why,
        "n_prompt": len(prompt),
        "n_response": len(response),
        "n_trained": sum(mask),
        "prompt_ids": pack(prompt),
        "response_ids": pack(response),
        "mask": pack(mask, "B"),
    }


def _fate(number: int, row: TrainRow, batched: Batched, updated: Updated | None, *, update_id: str) -> Row:
    """Whether the row was learned from, as the update tells."""
    if updated is None:
        return {"used": 0, "why_not": "no_update"}
    if number not in updated.rows:
        long = len(row.prompt) > batched.limits.prompt_tokens
        return {"used": 0, "why_not": PROMPT_TOO_LONG if long else NOTHING_SAMPLED}
    moved = updated.rows[number]
    if not moved.computed:
        return {"advantage": moved.advantage, "used": 0, "why_not": NO_ADVANTAGE if moved.n_trained else FILTERED}
    place = {"optimizer_step": moved.optimizer_step, "update_id": update_id}
    return {"advantage": moved.advantage, "used": 1, "why_not": "", **place}


def _update(updated: Updated, rows: Sequence[Row], metrics: Mapping[str, Any], *, step: int) -> Row:
    numbers = {key: value for key, value in jsonable(dict(metrics)).items() if isinstance(value, int | float)}
    used = [row for row in rows if row["used"]]
    return {
        "step": step,
        "loss": numbers.get("actor/pg_loss"),
        "grad_norm": numbers.get("actor/grad_norm"),
        "grad_norms": json.dumps([n if math.isfinite(n) else None for n in updated.grad_norms]),
        "lr": numbers.get("actor/lr"),
        "metrics": json.dumps(numbers),
        "weights_before": updated.weights_before,
        "weights_after": updated.weights_after,
        "n_rollouts": len({row["rollout_id"] for row in rows}),
        "n_rows": len(rows),
        "n_used": len(used),
        "n_tokens": sum(row["n_trained"] for row in used),
    }


def checkpoint_rows(step: int, path: str) -> Rows:
    return {"checkpoint": [{"id": f"checkpoint-{step}", "update_id": f"step-{step}", "path": path}]}
