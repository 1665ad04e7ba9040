"""What a run folder holds, read for the report in one pass.

Guarantees: a missing, torn or damaged file becomes a line of `problems`, never an exception; rollouts and trials stay
on disk, and of each only what choosing among them needs is kept, so a run of 100,000 rollouts fits into memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from foundation import run_folder
from foundation.errors import UserError
from sql_agent.evaluation.folder import RESULTS, TRIALS
from sql_agent.evaluation.results import EvalReport
from sql_agent.records import RolloutRecord, RunRecord, TrialRecord
from sql_agent.run_audit.search import trail_in
from sql_agent.run_report.plain import Tree, number

EVALUATION = "evaluation"
KEPT_CHARS = 200
TEXTS = ("split", "decoding", "group", "question_id", "unscored", "rollout_id", "agent")


@dataclass(frozen=True, slots=True)
class Entry:
    """One rollout or trial: where its record stands, and what it is chosen by.

    `side` is train or val of a rollout, and the model of a trial; `reward` is None where it is unscored.
    """

    file: Path
    offset: int
    side: str
    step: int
    split: str
    decoding: str
    group: str
    question_id: str
    reward: float | None
    unscored: str
    rollout_id: str = ""
    agent: str = ""

    def line(self) -> bytes:
        with self.file.open("rb") as file:
            file.seek(self.offset)
            return file.readline()

    def record(self) -> RolloutRecord:
        return RolloutRecord.model_validate_json(self.line())

    def trail(self) -> str:
        """What became of a rollout in the update, with ids; "" for a trial, and without an audit."""
        return trail_in(self.file.parent, self.rollout_id)


@dataclass
class RunData:
    """All files of a run, as far as they could be read."""

    folder: Path
    summary: Tree = field(default_factory=dict)
    config: Tree = field(default_factory=dict)
    metrics: list[Tree] = field(default_factory=list)
    rollouts: list[Entry] = field(default_factory=list)
    results: EvalReport | None = None
    trials: list[Entry] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def rows(self, kind: str) -> list[Tree]:
        """The metrics of one kind (train, val, checkpoint), in the order of the steps: finite numbers."""
        return [row for row in self.metrics if row.get("kind") == kind]


def read_run(folder: Path, *, evaluation: Path | None = None, played: list[Entry] | None = None) -> RunData:
    """Everything of a run folder; the evaluation from its own folder `evaluation` unless another is given. `played`
    are its rollouts where they are read already.

    Raises UserError where the folder is not that of a run, or the given one not that of an evaluation.
    """
    names = (run_folder.SUMMARY, run_folder.CONFIG, run_folder.METRICS, run_folder.ROLLOUTS)
    if not any((folder / name).is_file() for name in names):
        raise UserError(f"{folder}: no run folder. It must hold one of {', '.join(names)}; runs are below runs/")
    if evaluation and not any((evaluation / name).is_file() for name in (RESULTS, TRIALS)):
        raise UserError(f"{evaluation}: no folder of an evaluation. It must hold {RESULTS} or {TRIALS}")
    run = RunData(folder)
    if (folder / run_folder.SUMMARY).exists():  # a run that goes on, or was killed, has none: its status says so
        run.summary = _json(folder / run_folder.SUMMARY, run.problems)
    run.config = _json(folder / run_folder.CONFIG, run.problems)
    metrics = [row for _, row in _lines(folder / run_folder.METRICS, _metrics, run.problems)]
    run.metrics = sorted((row for row in metrics if "step" in row), key=lambda row: row["step"])
    # SFT and DPO learn from files: they play nothing, so nothing is missing.
    missing: list[str] = []
    run.rollouts = rollouts_after(folder, 0, missing)[0] if played is None else played
    from_files = run.summary.get("method") in ("sft", "dpo") and not (folder / run_folder.ROLLOUTS).exists()
    run.problems += [] if from_files else missing
    place = evaluation or folder / EVALUATION
    if evaluation or place.exists():
        with _reading(place / RESULTS, run.problems):
            run.results = EvalReport.read(place / RESULTS)
        trials = place / TRIALS
        records = _lines(trials, TrialRecord.model_validate_json, run.problems)
        # A resumed evaluation plays a trial anew that had a fault: the later line counts.
        latest = {record.key: _entry(trials, at, record, side=record.model) for at, record in records}
        run.trials = list(latest.values())
    return run


@contextmanager
def _reading(file: Path, problems: list[str]) -> Iterator[None]:
    """What hinders the reading of a file is one of the problems, and no fault."""
    try:
        yield
    except FileNotFoundError:
        problems.append(f"{file.name} is missing")
    except (OSError, ValueError, RecursionError) as exc:
        problems.append(f"{file.name} cannot be read: {' '.join(str(exc).split())[:300]}")


def _json(file: Path, problems: list[str]) -> Tree:
    with _reading(file, problems):
        tree = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(tree, dict):
            return tree
        problems.append(f"{file.name} does not hold a JSON object")
    return {}


def rollouts_after(folder: Path, offset: int, problems: list[str]) -> tuple[list[Entry], int]:
    """The rollouts that were written behind an offset, and the offset behind the last of them."""
    file, entries = folder / run_folder.ROLLOUTS, []
    for at, record in _lines(file, RunRecord.model_validate_json, problems, offset=offset):
        entries.append(_entry(file, at, record, side=record.mode))
    return entries, entries[-1].offset + len(entries[-1].line()) if entries else offset


def _lines[T](
    file: Path, parse: Callable[[bytes], T], problems: list[str], *, offset: int = 0
) -> Iterator[tuple[int, T]]:
    """What the lines of a file say from an offset on, with their offsets. A torn last line ends a killed run; others
    are counted."""
    bad = 0
    with _reading(file, problems), file.open("rb") as stream:
        stream.seek(offset)
        for line in stream:
            try:
                yield offset, parse(line)
            except (ValueError, RecursionError):
                bad += bool(line.endswith(b"\n") and line.strip())
            offset += len(line)
    if bad:
        problems.append(f"{file.name}: {bad} line(s) cannot be read and were left out")


def _metrics(line: bytes) -> Tree:
    """What is a finite number, the kind of the row, and its warnings."""
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("no JSON object")
    figures = {key: value for key, value in row.items() if key == "kind" or number(value) is not None}
    return figures | ({"warnings": row["warnings"]} if isinstance(row.get("warnings"), list) else {})


def _entry(file: Path, offset: int, record: RunRecord | TrialRecord, *, side: str) -> Entry:
    texts = {name: getattr(record, name, "")[:KEPT_CHARS] for name in TEXTS}
    # A rollout without token ids has a reward, but was not learned from.
    reward = None if record.unscored else record.reward
    step = getattr(record, "step", 0)
    return Entry(file=file, offset=offset, side=side[:KEPT_CHARS], step=step, reward=reward, **texts)
