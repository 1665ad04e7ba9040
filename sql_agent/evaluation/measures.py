"""What an evaluation measures: from the records of trials to the figures of results.json.

A measure gives a number for a record, or None where it has no meaning there: such a trial is left out of that measure
and counted, it is never a 0. The samples of one question are averaged first, so a question counts once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from foundation.grouping import grouped
from foundation.stats import Difference, Estimate, best_of, difference, estimate, quantiles, worst_of
from sql_agent.evaluation.results import Figures, OfK, TaskFigures
from sql_agent.records import TrialRecord, by_agent

Grouped = Mapping[str, Sequence[TrialRecord]]
Measure = Callable[[TrialRecord], float | None]
REPEAT_CHARS = 8
FAULT = "fault"


def is_played(record: TrialRecord) -> bool:
    """True when the episode came to an end of its own, whether or not it could be scored."""
    return record.stop_reason != FAULT


def sql_validity(record: TrialRecord) -> float | None:
    """The share of the episode's SQL calls that ran without error; None without calls."""
    ran = [call.result.ok for call in record.sql_calls]
    return fmean(ran) if ran else None


def repeated_text(record: TrialRecord) -> float | None:
    """The share of the answer's pieces of 8 characters that stand in it before; None for a shorter answer."""
    answer = record.answer
    pieces = [answer[i : i + REPEAT_CHARS] for i in range(len(answer) - REPEAT_CHARS + 1)]
    return 1 - len(set(pieces)) / len(pieces) if pieces else None


MEASURES: dict[str, Measure] = {
    "reward": lambda r: r.reward,
    "answer score": lambda r: r.answer_score,
    "execution match": lambda r: r.execution_match,
    "called the tool": lambda r: float(bool(r.sql_calls or r.tool_calls)),
    "executed SQL": lambda r: float(r.executed_sql),
    "SQL found rows": lambda r: float(r.found_rows),
    "SQL validity": sql_validity,
    "malformed tool calls": lambda r: float(r.n_bad_tool_calls),
    "turns": lambda r: float(r.n_turns),
    "prompt tokens": lambda r: r.prompt_tokens,
    "completion tokens": lambda r: r.completion_tokens,
    "answer chars": lambda r: float(len(r.answer)),
    "repeated text": repeated_text,
    "seconds": lambda r: r.episode_s,
}
# These get a p-value in a comparison; the more tests, the more of them are small by chance.
TESTED = ("reward", "answer score", "execution match", "executed SQL")
PART = "reward part "
# Without meaning where the agent has no SQL tool: tables leave them out.
OF_SQL = ("execution match", "executed SQL", "SQL found rows", "SQL validity")
BY_TASK = ("reward", "execution match")
OF_K = ("reward", "execution match")


def measures_of(records: Sequence[TrialRecord]) -> list[str]:
    """The measures, and one for each part of the reward; of `sql` and `answer` alone "answer score" tells all."""
    parts = dict.fromkeys(name for record in records for name in record.reward_parts if name != "sql")
    return [*MEASURES, *(f"{PART}{name}" for name in parts if list(parts) != ["answer"])]


def samples_of(records: Sequence[TrialRecord], measure: str) -> dict[str, list[float]]:
    """Question id -> the values of its trials that the measure has a meaning for."""
    value_of = MEASURES.get(measure) or (lambda record: record.reward_parts.get(measure.removeprefix(PART)))
    values: dict[str, list[float]] = defaultdict(list)
    for record in records:
        value = value_of(record) if is_played(record) else None
        if value is not None:
            values[record.question_id].append(value)
    return dict(values)


def by_question(records: Sequence[TrialRecord], measure: str) -> dict[str, float]:
    return {question: fmean(values) for question, values in samples_of(records, measure).items()}


def summarize(records: Sequence[TrialRecord]) -> Figures:
    """All figures of one model on one split with one decoding."""
    played = [record for record in records if is_played(record)]
    return Figures(
        trials=len(records),
        unscored=Counter(r.unscored for r in records if r.reward is None),
        no_execution_match=Counter(r.no_match for r in played if r.execution_match is None),
        stop_reasons=Counter(record.stop_reason for record in records),
        measures=estimates(records, measures_of(records)),
        by_task={task: _task(group) for task, group in by_task(records).items()},
        by_agent={agent: _task(group) for agent, group in by_agent(records).items()},
        of_k=of_k(records),
        latency_s={
            "llm call": quantiles([seconds for record in played for seconds in record.llm_seconds]),
            "episode": quantiles([record.episode_s for record in played]),
        },
    )


def estimates(records: Sequence[TrialRecord], measures: Iterable[str]) -> dict[str, Estimate]:
    return {name: estimate(by_question(records, name).values()) for name in measures}


def by_task(records: Sequence[TrialRecord]) -> dict[str, list[TrialRecord]]:
    return dict(sorted(grouped(records, lambda record: record.task_type).items()))


def _task(records: Sequence[TrialRecord]) -> TaskFigures:
    return TaskFigures(questions=len({record.question_id for record in records}), measures=estimates(records, BY_TASK))


def of_k(records: Sequence[TrialRecord]) -> dict[str, dict[int, OfK]]:
    """measure -> k -> best, mean and worst of k samples; {} where no question has several."""
    table: dict[str, dict[int, OfK]] = {}
    for measure in OF_K:
        samples = samples_of(records, measure)
        most = max((len(values) for values in samples.values()), default=0)
        if ks := [k for k in (2, 4, 8, 16, 32, 64) if k < most] + ([most] if most > 1 else []):
            table[measure] = {k: _of_k([v for v in samples.values() if len(v) >= k], k) for k in ks}
    return table


def _of_k(samples: Sequence[Sequence[float]], k: int) -> OfK:
    return OfK(
        best=estimate(best_of(values, k) for values in samples),
        mean=estimate(fmean(values) for values in samples),
        worst=estimate(worst_of(values, k) for values in samples),
    )


def compare(
    before: Sequence[TrialRecord],
    after: Sequence[TrialRecord],
    *,
    measures: Iterable[str] = (),  # none: all
    tested: Iterable[str] = TESTED,
) -> dict[str, Difference]:
    """measure -> mean paired difference after - before, over the questions that both have a value for."""
    return {
        name: difference(by_question(before, name), by_question(after, name), test=name in tested)
        for name in measures or measures_of([*before, *after])
    }


def compare_groups(before: Grouped, after: Grouped) -> dict[str, dict[str, Difference]]:
    """task type or agent -> measure -> difference, without p-values: there are many task types."""
    return {name: compare(before[name], after[name], measures=BY_TASK, tested=()) for name in before if name in after}
