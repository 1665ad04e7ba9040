"""What the audit chain costs: seconds and bytes per rollout, and how long its queries take over many rollouts.

    python -m benchmarks.audit                       100,000 rollouts of two LLM calls, 391 steps of 256
    python -m benchmarks.audit --rollouts 1000       a quick look

Rows are made by the code of training (agl_plugin/audit/facts.py) from made-up calls of realistic length, and written
by its thread; a query's time is the longest of three.
"""

from __future__ import annotations

import gc
import math
import random
import tempfile
import timeit
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from agentlightning.types import Attempt, Rollout

from agl_plugin.audit.facts import Batched, rollout_rows, update_rows
from agl_plugin.audit.log import AuditLog
from agl_plugin.audit.schema import opened
from agl_plugin.audit.spans import seen_rollout
from agl_plugin.update.rows import Call, Limits, rows_of_calls
from agl_plugin.update.rules import Updated, UpdatedRow
from foundation import run_folder
from sql_agent.run_audit.chain import Chain
from sql_agent.run_audit.search import find, reasons, steps, trail, values_of

PER_STEP, GROUP = 256, 8
PROMPT_TOKENS, SAMPLED_TOKENS, TOOL_TOKENS = 600, 60, 120
LIMITS = Limits(2048, 4096)
ASKED = {
    "rewards below 0.05": values_of(max_reward=0.05),
    "rewards between 0.3 and 0.4 of a late step": values_of(min_reward=0.3, max_reward=0.4, step=300),
    "unscored": values_of(unscored="any"),
    "judge faults": values_of(unscored="judge_fault"),
    "a question's text": values_of(question="number 77 "),
    "failed tools": values_of(tool_error=True),
    "nothing that there is": values_of(min_reward=9.0, tool_error=True),
}


def calls_of(rng: random.Random, attempt: str) -> list[Call]:
    """Two calls, the second of which goes on where the first ended."""

    def tokens(n: int) -> list[int]:
        return [rng.randrange(150_000) for _ in range(n)]

    first, answer = tokens(PROMPT_TOKENS), tokens(SAMPLED_TOKENS)
    second, last = [*first, *answer, *tokens(TOOL_TOKENS)], tokens(SAMPLED_TOKENS)
    calls = []
    for n, (prompt, sampled) in enumerate([(first, answer), (second, last)]):
        facts = {"response_id": f"{attempt}-{n}", "attempt_id": attempt, "weights_version": 0}
        facts |= {"started_s": float(n), "ended_s": n + 0.5}
        calls.append(Call(prompt, sampled, [-rng.random() for _ in sampled], "stop", facts))
    return calls


def record_of(rng: random.Random, name: str, *, step: int, question: int) -> dict[str, Any]:
    """A line of rollouts.jsonl."""
    is_lost, has_failed = rng.random() < 0.02, rng.random() < 0.1
    result = {"columns": ["a"], "rows": [["x" * 80]] * 3, "error": "no such column" if has_failed else None}
    record = {"rollout_id": name, "step": step, "mode": "train", "group": f"g{step}-{question}", "status": "succeeded"}
    record |= {"question_id": f"q{question}", "question": f"question number {question} of many", "reference": "r" * 80}
    record |= {"answer": "a" * 200, "sql_calls": [{"sql": "SELECT a FROM b", "result": result}]}
    if is_lost:
        return record | {"reward": None, "unscored": "judge_fault"}
    return record | {"reward": rng.random(), "unscored": "", "judge": "reference", "reason": "coverage 0.5"}


def write_step(audit: AuditLog, rng: random.Random, step: int, n: int) -> None:
    rollouts, records, rows = [], {}, []
    for place in range(n):
        name = f"ro-{step:04d}{place:04d}"
        attempt = f"at-{step:04d}{place:04d}"
        record = record_of(rng, name, step=step, question=(step * 31 + place // GROUP) % 2000)
        rollout = Rollout(rollout_id=name, input={}, start_time=0.0, status="succeeded")
        attempts = [Attempt(rollout_id=name, attempt_id=attempt, sequence_id=1, start_time=0.0, status="succeeded")]
        calls = calls_of(rng, attempt)
        rollouts.append(seen_rollout(rollout, attempts, [], calls))
        records[name] = record
        if not record["unscored"]:
            rows += [(name, row) for row in rows_of_calls(calls, merge=True, limits=LIMITS)]
    batch = Batched(rows, LIMITS, {name: "unscored" for name, record in records.items() if record["unscored"]})
    updated_rows = {number: UpdatedRow(0.5, 120, True, 1) for number in range(len(rows))}
    updated = Updated(updated_rows, [0.1], "b" * 16, "a" * 16, {"settings": {}})
    audit.add(lambda: rollout_rows(rollouts, records, run_id=audit.run_id), step=step)
    audit.add(lambda: update_rows(batch, updated, {}, step=step, run_id=audit.run_id), step=step)


def query_seconds(folder: Path) -> dict[str, float]:
    """The longest of three, of each query."""
    with closing(opened(folder)) as connection:
        (some,) = connection.execute("SELECT id FROM rollout ORDER BY rowid DESC LIMIT 1").fetchone()
        queries: dict[str, Any] = {
            f"find: {name}": lambda wanted=wanted: find(connection, wanted, limit=50) for name, wanted in ASKED.items()
        }
        queries["show"] = lambda: (steps(connection), reasons(connection))
        queries["why"] = lambda: list(Chain(connection, some, folder=folder).lines())
        queries["a transcript's line in the report"] = lambda: trail(connection, some)
        return {name: max(timeit.repeat(ask, gc.enable, number=1, repeat=3)) for name, ask in queries.items()}


def measure(folder: Path, *, n_rollouts: int, seed: int = 1) -> dict[str, Any]:
    rng = random.Random(seed)
    n_steps = math.ceil(n_rollouts / PER_STEP)
    spent = 0.0
    with AuditLog(folder, settings={}) as audit:
        for step in range(1, n_steps + 1):
            write_step(audit, rng, step, min(PER_STEP, n_rollouts - (step - 1) * PER_STEP))
            audit.wait()
            spent += audit.metrics()["audit/seconds"]
    return {
        "rollouts": n_rollouts,
        "tokens_per_rollout_in_calls": 2 * PROMPT_TOKENS + 3 * SAMPLED_TOKENS + TOOL_TOKENS,
        "bytes_per_rollout": (folder / run_folder.AUDIT).stat().st_size / n_rollouts,
        "ms_per_rollout": 1000 * spent / n_rollouts,
        "seconds_per_step": spent / n_steps,
        "query_seconds": query_seconds(folder),
    }


def main(rollouts: Annotated[int, typer.Option(min=1, help="how many")] = 100_000) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as place:
        figures = measure(Path(place), n_rollouts=rollouts)
    figures |= figures.pop("query_seconds")
    for name, value in figures.items():
        print(f"{name:45} {value:.4g}" if isinstance(value, float) else f"{name:45} {value}")


if __name__ == "__main__":
    typer.run(main)
