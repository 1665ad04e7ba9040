"""results.json as a type: every figure of an evaluation, written once and read by tables, report, demo and logs.

An Estimate without questions holds NaN, which is null on disk. "split/decoding" is the key of everything measured.
"""

from __future__ import annotations

from pathlib import Path

from pydantic.dataclasses import dataclass

from foundation.files import write_json
from foundation.stats import Difference, Estimate, Quantiles
from sql_agent.records import Record


class Counts(Record):
    planned: int
    played: int


class TaskFigures(Record):
    """Figures of one task type, or of one agent; `measures` has those of measures.BY_TASK."""

    questions: int
    measures: dict[str, Estimate]


@dataclass(frozen=True)
class OfK:
    best: Estimate
    mean: Estimate
    worst: Estimate


class Figures(Record):
    """All figures of one model on one split with one decoding. `of_k`: measure -> k -> figures.

    `by_agent` is empty where [agent] played all of it.
    """

    trials: int
    unscored: dict[str, int]
    no_execution_match: dict[str, int]
    stop_reasons: dict[str, int]
    measures: dict[str, Estimate]
    by_task: dict[str, TaskFigures]
    by_agent: dict[str, TaskFigures] = {}
    of_k: dict[str, dict[int, OfK]]
    latency_s: dict[str, Quantiles]


class EvalReport(Record):
    """One evaluation: what was measured, and figures by model and key; the differences are of two models alone."""

    started: str
    seconds: float
    partial: bool
    trials: Counts
    targets: dict[str, str]
    labels: dict[str, str]
    samples: int
    questions: dict[str, int]
    judge: str
    database: str
    keys: list[str]
    models: dict[str, dict[str, Figures]]
    delta: dict[str, dict[str, Difference]]
    delta_by_task: dict[str, dict[str, dict[str, Difference]]]
    delta_by_agent: dict[str, dict[str, dict[str, Difference]]] = {}

    @property
    def sides(self) -> tuple[dict[str, Figures], dict[str, Figures]]:
        """Figures by key before ({} where one model was measured) and after."""
        *before, after = self.models.values()
        return (before[0] if before else {}), after

    @classmethod
    def read(cls, file: Path) -> EvalReport:
        """The results in a file. Raises OSError, and ValueError where it holds anything else."""
        return cls.model_validate_json(file.read_bytes())

    def write(self, file: Path) -> None:
        write_json(file, self.model_dump())
