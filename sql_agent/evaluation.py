"""Evaluation: many episodes of one model on held-out questions, and the difference between two models.

Guarantees: every mean has a 95 % interval, from a bootstrap over questions (samples of one question are not independent
of each other); a fault (endpoint, database, judge) leaves its trial out and is counted by reason, it is never a 0; two
models are compared question by question, on those that both have scored trials of.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import numpy as np

from sql_agent.agent import LLMEndpoint, run_episode
from sql_agent.config import TrainConfig
from sql_agent.database import Database
from sql_agent.errors import Fault
from sql_agent.records import Question, Reward, rollout_record
from sql_agent.scorers import ScoringContext, score

Decoding = Literal["sampled", "greedy"]
RESAMPLES = 4000
SEED = 0


@dataclass(frozen=True)
class Estimate:
    """A mean over questions and its 95 % bootstrap interval; `n` questions."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]" if self.n else "-"


def estimate(values: Iterable[float]) -> Estimate:
    """Mean and percentile bootstrap interval (Efron 1979), seeded: the same values give the same interval."""
    data = np.asarray(list(values), dtype=float)
    if not len(data):
        return Estimate(math.nan, math.nan, math.nan, 0)
    rng = np.random.default_rng(SEED)
    means = np.concatenate(
        [data[rng.integers(0, len(data), (200, len(data)))].mean(axis=1) for _ in range(RESAMPLES // 200)]
    )
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(float(data.mean()), float(low), float(high), len(data))


def draw(questions: list[Question], limit: int, *, seed: int = SEED) -> list[Question]:
    """At most `limit` questions (0: all), drawn with a fixed seed, in the order of the file."""
    if not 0 < limit < len(questions):
        return questions
    chosen = set(random.Random(seed).sample(range(len(questions)), limit))
    return [question for i, question in enumerate(questions) if i in chosen]


async def run_trials(
    questions: list[Question],
    llm: LLMEndpoint,
    *,
    config: TrainConfig,
    database: Database,
    scoring: ScoringContext,
    samples: int,
    concurrency: int,
    on_done: Callable[[dict[str, Any]], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Play `samples` episodes per question, at most `concurrency` at once; one record per trial, in order.

    A record is rollout_record's, plus `sample`, the number of the trial of its question.
    """
    room = asyncio.Semaphore(concurrency)

    async def trial(question: Question, sample: int) -> dict[str, Any]:
        async with room:
            episode = None
            try:
                episode = await run_episode(
                    question, llm=llm, config=config.agent, database=database, max_chars=config.database.max_chars
                )
                reward = await score(episode, scoring)
            except Fault as fault:
                reward = Reward(unscored=fault.kind, explanation=str(fault)[:500])
            record = {**rollout_record(question, episode, reward), "sample": sample}
        on_done(record)
        return record

    return list(await asyncio.gather(*(trial(q, i) for q in questions for i in range(samples))))


MEASURES: dict[str, Callable[[dict[str, Any]], float]] = {
    "reward": lambda r: r["reward"],
    "answer score": lambda r: r["reward_parts"].get("answer", 0.0),
    "called the tool": lambda r: float(bool(r["sql_calls"])),
    "executed SQL": lambda r: float(any(call["result"]["error"] is None for call in r["sql_calls"])),
    "SQL found rows": lambda r: float(any(call["result"]["rows"] for call in r["sql_calls"])),
    "turns": lambda r: float(r["n_turns"]),
    "seconds": lambda r: r["episode_s"],
}


def by_question(records: list[dict[str, Any]], measure: str) -> dict[str, float]:
    """Question id -> mean of a measure over its scored trials."""
    values: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if record["reward"] is not None:
            values[record["question_id"]].append(MEASURES[measure](record))
    return {question: fmean(found) for question, found in values.items()}


def summarize(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Estimates of all measures, of the reward by task type, and the unscored trials by reason."""
    types = sorted({record["task_type"] for record in records})
    return {
        "trials": len(records),
        "unscored": dict(Counter(r["unscored"] for r in records if r["reward"] is None)),
        "measures": {name: vars(estimate(by_question(records, name).values())) for name in MEASURES},
        "reward_by_task": {
            task: vars(estimate(by_question([r for r in records if r["task_type"] == task], "reward").values()))
            for task in types
        },
    }


def compare(before: list[dict[str, Any]], after: list[dict[str, Any]], measure: str = "reward") -> Estimate:
    """The mean paired difference after - before, over questions scored in both."""
    old, new = by_question(before, measure), by_question(after, measure)
    return estimate([new[question] - old[question] for question in old if question in new])
