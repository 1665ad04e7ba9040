"""Evaluation episodes per second through an OpenAI-compatible endpoint whose every call takes the same time.

  .venv/bin/python benchmarks/evaluation.py [--out evaluation.json] [--latency-s 0.5]

Each episode is two calls (a query, an answer) with the bundled questions and database, scored by the offline judge and
written to trials.jsonl with its execution match, as evaluate.py does. The endpoint is a process of its own.
ratio    wall time over its lower bound, episodes x calls x latency / concurrency. Best of --rounds
cpu_ms   processor time of the evaluating process per episode; at high concurrency it is what sets the pace
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.support.measure import own_process
from foundation.files import write_json
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import build_config, data_path, resolve_system_prompt
from sql_agent.data.dataset import load_questions
from sql_agent.evaluation import folder as eval_folder
from sql_agent.evaluation.trials import Setting, Trial, play
from sql_agent.records import Question, TrialRecord
from sql_agent.scoring.build import build_context
from sql_agent.testing.server import Handler, chat_reply, tool_call_reply

CONCURRENCIES = (1, 8, 64)
CALLS = 2
TOOL = "query_database_by_sql"


def answers_to(questions: list[Question], *, latency_s: float) -> Handler:
    """Asks the reference query, then gives the reference answer."""
    known = {question.question: question for question in questions}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        time.sleep(latency_s)
        question = known[next(m["content"] for m in request["messages"] if m["role"] == "user")]
        asked = request["messages"][-1]["role"] == "tool"
        return chat_reply(question.answer) if asked else tool_call_reply((TOOL, {"sql": question.sql[0]}))

    return answer


def measure(setting: Setting, questions: list[Question], *, concurrency: int, latency_s: float) -> dict[str, float]:
    """One round: enough episodes for eight to be played in each place."""
    n = 8 * concurrency
    trials = [Trial("model", "test", "greedy", questions[i % len(questions)], i) for i in range(n)]
    records: list[TrialRecord] = []
    with tempfile.TemporaryDirectory() as folder:

        def on_done(record: TrialRecord) -> None:
            eval_folder.keep(Path(folder), record)
            records.append(record)

        started_s, cpu_s = time.perf_counter(), time.process_time()
        asyncio.run(play(trials, setting, concurrency=concurrency, on_done=on_done))
        wall_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_s
    assert all(r.n_turns == CALLS and r.reward is not None and r.execution_match is not None for r in records)
    bound_s = n * CALLS * latency_s / concurrency
    return {
        "episodes": n,
        "wall_s": round(wall_s, 2),
        "bound_s": round(bound_s, 2),
        "ratio": round(wall_s / bound_s, 3),
        "episodes_per_s": round(n / wall_s, 2),
        "cpu_ms": round(1000 * cpu_s / n, 1),
    }


def main(
    out: Annotated[Path | None, typer.Option(help="write the figures there as JSON")] = None,
    latency_s: Annotated[float, typer.Option(min=0.01, help="seconds of every LLM call")] = 0.5,
    rounds: Annotated[int, typer.Option(min=1, help="runs of each concurrency; the best counts")] = 3,
) -> None:
    """Measure how fast evaluate.py plays; about a minute and a half on an idle machine."""
    config = resolve_system_prompt(build_config({"reward": {"judge": {"kind": "reference"}}}), tiny=False)
    questions = [question for question in load_questions(data_path("data/test.parquet")) if len(question.sql) == 1]
    with (
        own_process(answers_to(questions, latency_s=latency_s)) as (url, _),
        EpisodeRunner(config) as runner,
        closing(build_context(config.reward, config.database)) as scoring,
    ):
        setting = Setting(LLMEndpoint(url, "local"), runner, scoring)
        measure(setting, questions, concurrency=4, latency_s=latency_s)  # imports and SQL workers
        found = {
            str(n): min(
                (measure(setting, questions, concurrency=n, latency_s=latency_s) for _ in range(rounds)),
                key=lambda figures: figures["ratio"],
            )
            for n in CONCURRENCIES
        }
    # Other work on the machine lengthens the wall time, not the processor time.
    about = {"latency_s": latency_s, "calls": CALLS, "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}
    figures: dict[str, Any] = {**about, "concurrency": found}
    if out:
        write_json(out, figures)
    shown = "; ".join(
        f"{n} at once: {one['episodes_per_s']:.1f} episodes/s, {one['ratio']:.2f} times the bound"
        for n, one in found.items()
    )
    cpu_ms = found[str(CONCURRENCIES[-1])]["cpu_ms"]
    typer.echo(f"calls of {latency_s:g} s, two per episode; {shown}; {cpu_ms:.0f} ms of processor time per episode")


if __name__ == "__main__":
    typer.run(main)
