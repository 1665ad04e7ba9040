"""The questions of a run, looked at before it starts: each can be scored, and together they fill a step."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from itertools import chain

from foundation.errors import UserError
from foundation.rollout_keys import DEFAULT_AGENT
from sql_agent.config import OptimConfig, RolloutConfig, TrainConfig, TrainerConfig
from sql_agent.data.dataset import load_files
from sql_agent.records import Question
from sql_agent.scoring.check import check_scorers, needs_answer
from sql_agent.scoring.registry import ScoringContext
from sql_agent.training.stored import stored_questions, stored_run

logger = logging.getLogger(__name__)
SHOWN_ROWS = 10


def load_data(config: TrainConfig, scoring: ScoringContext) -> tuple[list[Question], list[Question]]:
    """Training and validation questions that `scoring` can grade, or of training those of the stored groups.

    Raises UserError naming the others.
    """
    data = config.data
    train_key = "data.train_files" if data.train_files else "data.train_file"
    train = [] if data.from_store else load_files(data.training, key=train_key)
    val = load_files(data.validation, key="data.val_files" if data.val_files else "data.val_file")
    for entry, questions in chain(zip(data.training, train, strict=False), zip(data.validation, val, strict=True)):
        check_gradable(questions, scoring, source=entry.file)
    if data.from_store:  # scored already
        with closing(stored_run(data, config.trainer.runs)) as stored:
            train = [stored_questions(stored, config.rollout)]
            for why, n in stored.left_out.items():
                logger.warning("data.from_store = %s: left out are %d %s", data.from_store, n, why)
    for warning in silent_faults(
        config.rollout, config.optim, config.trainer, train=[*chain(*train)], val=[*chain(*val)]
    ):
        logger.warning("%s", warning)
    whole = sum(entry.weight for entry in data.validation)
    shares = [max(1, round(data.val_max_rows * entry.weight / whole)) for entry in data.validation]
    return [*chain(*train)], [*chain(*(evenly(part, n) for part, n in zip(val, shares, strict=True)))]


def evenly(questions: list[Question], n: int) -> list[Question]:
    """At most n of a file, from all over it: its rows are ordered by kind."""
    return questions[:: max(1, len(questions) // n)][:n]


def silent_faults(
    rollout: RolloutConfig, optim: OptimConfig, trainer: TrainerConfig, *, train: list[Question], val: list[Question]
) -> Iterator[str]:
    """What a run survives and nobody wants."""
    if rollout.group_size == 1:
        yield "rollout.group_size = 1: a rollout alone has no advantage, so nothing is learned. Take 4 or more"
    if rollout.is_shifted and optim.importance_correction == "off":
        yield (
            f"rollout.top_p = {rollout.top_p:g} and rollout.top_k = {rollout.top_k} cut what training samples from, "
            "and the update takes it for the whole distribution. optim.importance_correction = truncated weighs the "
            "gap (sampler/...); rollout.validation and rollout.evaluation have keys of their own"
        )
    shared = {q.question for q in train} & {q.question for q in val}
    if shared and (trainer.validate_first or trainer.validate_every > 0):
        yield (
            f"{len(shared)} of {len(val)} questions of data.val_file are in data.train_file too: validation "
            "will look better than it is. Split the data with `agentgrpo data --raw FILE --out DIR`"
        )
    if unseen := sorted({q.agent for q in train} - {q.agent for q in val}):
        yield (
            f"agent {unseen[0] or DEFAULT_AGENT}: no validation question is its own, so nothing shows how it does. "
            "Name a file with such questions in data.val_files"
        )


def check_gradable(questions: list[Question], scoring: ScoringContext, *, source: str) -> None:
    """Raise UserError for rows whose scorer cannot run, or whose reference answer is missing where it is needed."""
    check_scorers(questions, scoring, source=source)
    missing = [str(row) for row, q in enumerate(questions, start=1) if not q.answer and needs_answer(q, scoring)]
    if missing:
        raise UserError(
            f"{source}: {len(missing)} of {len(questions)} questions have no reference answer (rows "
            f"{', '.join(missing[:SHOWN_ROWS])}{', ...' if len(missing) > SHOWN_ROWS else ''}), and the offline judge "
            "needs one. Add answers, or set TEACHER_API_KEY, TEACHER_MODEL and TEACHER_BASE_URL for an LLM judge"
        )


def total_steps(config: TrainConfig, n_questions: int) -> int:
    """Training steps of the run. Raises UserError when the questions do not fill one."""
    per_epoch = n_questions // config.optim.questions_per_step
    if per_epoch == 0:
        files = config.data.from_store or ", ".join(entry.file for entry in config.data.training)
        raise UserError(
            f"{files}: {n_questions} questions, but a step takes optim.questions_per_step = "
            f"{config.optim.questions_per_step}. Add questions, or --set optim.questions_per_step={n_questions} "
            f"--set optim.mini_batch_questions={n_questions} --set optim.micro_batch_rows=1"
        )
    steps = per_epoch * config.passes
    return min(steps, config.trainer.max_steps) if config.trainer.max_steps else steps
