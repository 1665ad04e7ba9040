"""What an evaluation is: questions, models, settings, looked at before the first trial; and its figures at the end.

Guarantees: all that can be wrong in what was asked is a UserError here, with value, rule and remedy; `flags` find the
same things again from any folder; `facts` tell whether they are still the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from foundation.files import fingerprint
from foundation.grouping import grouped
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.grading import scoring_of
from sql_agent.agent.toolset import fingerprints_of
from sql_agent.config import FileConfig, TrainConfig, build_config, command_tree, data_path, load_recipe
from sql_agent.config.commands import EVALUATE
from sql_agent.config.data import QUESTION_FILES
from sql_agent.data.bundled import SPLITS as BUNDLED
from sql_agent.data.bundled import ensure_bundled
from sql_agent.data.dataset import load_files
from sql_agent.evaluation.measures import by_task, compare, compare_groups, summarize
from sql_agent.evaluation.results import Counts, EvalReport
from sql_agent.evaluation.targets import Target, label, look_at, settings_for
from sql_agent.evaluation.trials import Trial, draw, plan_trials
from sql_agent.records import Question, TrialRecord, by_agent
from sql_agent.scoring.check import check_judge
from sql_agent.scoring.registry import ScoringContext
from sql_agent.scoring.vote import choose

SPLITS = ("test_entities", "test")


@dataclass(frozen=True)
class Evaluation:
    """All that is decided before the first trial."""

    flags: dict[str, Any]
    config: TrainConfig
    splits: dict[str, list[Question]]
    targets: dict[str, Target]
    facts: dict[str, Any]
    scoring: ScoringContext

    def trials(self) -> list[Trial]:
        return plan_trials(self.targets, self.splits, samples=self.flags["samples"])


def prepare(flags: dict[str, Any]) -> Evaluation:
    """Look at questions, models, judge and database. Raises UserError."""
    files = question_files(flags["split"])
    splits = {name: draw(load_files([file])[0], flags["limit"]) for name, file in files.items()}
    texts = {"before": flags["before"], "after": flags["after"]} if flags["after"] else {"model": flags["before"]}
    base = load_recipe(flags["recipe"]) if flags["recipe"] else settings_for(texts.values())
    config = build_config(base, command_tree(EVALUATE, flags["set"], recipe=flags["recipe"], flags={}))
    targets = {
        name: look_at(text, config, option="--after" if name == "after" else "--before") for name, text in texts.items()
    }
    config = next(iter(targets.values())).config
    for target in targets.values():
        with EpisodeRunner(target.config) as runner:
            runner.check()
    scoring = scoring_of(config)
    check_judge(scoring)
    facts = {
        "targets": {name: target.facts() for name, target in targets.items()},
        "questions": {name: [len(splits[name]), fingerprint(file.file)] for name, file in files.items()},
        "database": " ".join(fingerprints_of(config).values()),
        "judge": scoring.judge_name,
    }
    # A resumed evaluation must find the same things, from wherever it is started.
    named = {"split": [f"{file.agent}={file.file}" if file.agent else file.file for file in files.values()]}
    named |= {_option(target): target.text for target in targets.values()}
    return Evaluation({**flags, **named}, config, splits, targets, facts, scoring)


def _option(target: Target) -> str:
    return target.option.removeprefix("--")


def question_files(names: list[str]) -> dict[str, FileConfig]:
    """Split name -> file; a name is a bundled split or a question file, after AGENT= that of its rows' agent.

    Raises UserError.
    """
    files: dict[str, FileConfig] = {}
    for text in names or SPLITS:
        agent, _, name = text.rpartition("=")
        is_file = name.endswith(QUESTION_FILES)
        if not is_file and name not in BUNDLED:
            raise UserError(
                f"--split {text}: neither a bundled split ({', '.join(BUNDLED)}) nor a file {QUESTION_FILES}"
            )
        stem = f"{agent}-{Path(name).stem}" if agent else Path(name).stem
        if stem in files:
            raise UserError(f"--split {text}: there is a split {stem} already; give the file another name")
        path = name if is_file else f"data/{name}.parquet"
        ensure_bundled(path)
        files[stem] = FileConfig(file=str(data_path(path)), agent=agent)
    return files


def report(evaluation: Evaluation, records: list[TrialRecord], *, started: str, seconds: float) -> EvalReport:
    """Figures per model, split and decoding; and the paired differences of two models."""
    vote = evaluation.flags.get("vote", 0)
    decodings = ["sampled", "greedy", *([f"vote of {vote}"] if vote else [])]
    keys = [f"{split}/{decoding}" for split in evaluation.splits for decoding in decodings]
    groups = _groups(evaluation, records)
    planned = len(evaluation.trials())
    before, after = groups.values() if len(groups) == 2 else ({}, {})
    both = [key for key in keys if key in before and key in after]
    return EvalReport(
        started=started,
        seconds=seconds,
        partial=len(records) < planned,
        trials=Counts(planned=planned, played=len(records)),
        targets={name: evaluation.flags[_option(target)] for name, target in evaluation.targets.items()},
        labels={name: label(target) for name, target in evaluation.targets.items()},
        samples=evaluation.flags["samples"],
        questions={name: len(questions) for name, questions in evaluation.splits.items()},
        judge=evaluation.facts["judge"],
        database=evaluation.facts["database"],
        keys=keys,
        models={name: {key: summarize(group[key]) for key in keys if key in group} for name, group in groups.items()},
        delta={key: compare(before[key], after[key]) for key in both},
        delta_by_task={key: compare_groups(by_task(before[key]), by_task(after[key])) for key in both},
        delta_by_agent={
            key: delta for key in both if (delta := compare_groups(by_agent(before[key]), by_agent(after[key])))
        },
    )


def _groups(evaluation: Evaluation, records: Sequence[TrialRecord]) -> dict[str, dict[str, list[TrialRecord]]]:
    """model -> split/way -> its records; a vote's are those of the samples that it chose."""
    groups: dict[str, dict[str, list[TrialRecord]]] = {name: {} for name in evaluation.targets}
    for record in records:
        groups[record.model].setdefault(f"{record.split}/{record.decoding}", []).append(record)
    if vote := evaluation.flags.get("vote", 0):
        for by_key in groups.values():
            for split in evaluation.splits:
                if chosen := voted(by_key.get(f"{split}/sampled", []), vote):
                    by_key[f"{split}/vote of {vote}"] = chosen
    return groups


def voted(records: Sequence[TrialRecord], k: int) -> list[TrialRecord]:
    """The chosen record of each question that has k samples, with the tokens and seconds of all k."""
    in_order = sorted(records, key=lambda trial: trial.sample)
    questions = grouped(in_order, lambda record: record.question_id)
    return [_with_cost(choose(samples[:k]), samples[:k]) for samples in questions.values() if len(samples) >= k]


def _with_cost(chosen: TrialRecord, samples: Sequence[TrialRecord]) -> TrialRecord:
    costs: dict[str, float | None] = {}
    for name in ("prompt_tokens", "completion_tokens", "episode_s"):
        values = [getattr(sample, name) for sample in samples]
        costs[name] = None if None in values else sum(values)
    return chosen.model_copy(update=costs)
