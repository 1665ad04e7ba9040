"""Playing the trials of an evaluation: many episodes of one model, so many at once, each scored as in training.

Guarantees: a fault (endpoint, database, judge) ends its trial and not the evaluation, unless the next trial would fail
in the same way; each record goes to `on_done` as soon as it is complete, so that it can be kept; no retry. What is made
of the records stands in measures.py.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from foundation.background import Overdue, within
from foundation.rollout_keys import TIMED_OUT
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.errors import Fault, LLMFault
from sql_agent.records import Decoding, Episode, Question, Reward, Score, TrialKey, TrialRecord, rollout_record
from sql_agent.scoring.reward import reward_of_fault, run_scorer, score
from sql_agent.scoring.scorers import PUBLIC, ScoringContext, sql_result
from sql_agent.serving.endpoint import is_final


@dataclass(frozen=True)
class Trial:
    """One episode to play: which model, which question, how, and the how-manyeth time."""

    model: str
    split: str
    decoding: Decoding
    question: Question
    sample: int

    @property
    def key(self) -> TrialKey:
        return self.model, self.split, self.decoding, self.question.id, self.sample


def plan_trials(models: Iterable[str], splits: dict[str, list[Question]], *, samples: int) -> list[Trial]:
    """Model by model, every split: sampled `samples` times per question, greedily once."""
    rounds: dict[Decoding, int] = {"sampled": samples, "greedy": 1}
    return [
        Trial(model, split, decoding, question, sample)
        for model in models
        for split, questions in splits.items()
        for decoding, n in rounds.items()
        for question in questions
        for sample in range(n)
    ]


def draw(questions: list[Question], limit: int) -> list[Question]:
    """At most `limit` questions (0: all), drawn with a fixed seed, in the order of the file."""
    if not 0 < limit < len(questions):
        return questions
    chosen = set(random.Random(0).sample(range(len(questions)), limit))
    return [question for i, question in enumerate(questions) if i in chosen]


@dataclass(frozen=True)
class Setting:
    """What all trials of a model share."""

    llm: LLMEndpoint
    runner: EpisodeRunner
    scoring: ScoringContext


async def play(
    trials: Sequence[Trial], setting: Setting, *, concurrency: int, on_done: Callable[[TrialRecord], None]
) -> None:
    """Play the trials in order, at most `concurrency` at once.

    Raises LLMFault after a fault that the next trial would meet too (a wrong key or model, or nobody listens), when the
    trials in flight have ended: cancelled ones could leave connections open.
    """
    todo = iter(trials)
    final = list[LLMFault]()

    async def work() -> None:
        for trial in todo:
            try:
                on_done(await play_one(trial, setting))
            except LLMFault as fault:
                final.append(fault)
            if final:
                return

    await asyncio.gather(*(work() for _ in range(min(concurrency, len(trials)))))
    if final:
        raise final[0]


async def play_one(trial: Trial, setting: Setting) -> TrialRecord:
    """Play and score one trial.

    Raises LLMFault for a fault that the next trial would meet too.
    """
    question, limit_s = trial.question, setting.runner.config.rollout.rollout_timeout_s
    episode = None
    try:
        llm = setting.llm.sampled(setting.runner.config.rollout.evaluation)
        llm = llm if trial.decoding == "sampled" else replace(llm, temperature=0.0)
        episode = await setting.runner.run(question, llm)
        reward = await within(score(episode, setting.scoring), limit_s=limit_s)
    except Overdue as late:
        reason = f"not scored within rollout.rollout_timeout_s = {limit_s:g}; {late}"
        reward = Reward(unscored=TIMED_OUT, explanation=reason)
    except Fault as fault:
        if is_final(fault):
            raise
        reward = reward_of_fault(fault)
    match = await _execution_match(question, episode, setting.scoring)
    return TrialRecord(
        **dict(rollout_record(question, episode, reward)),
        model=trial.model,
        split=trial.split,
        decoding=trial.decoding,
        sample=trial.sample,
        execution_match=match.value,
        no_match=match.unscored,
    )


async def _execution_match(question: Question, episode: Episode | None, scoring: ScoringContext) -> Score:
    """By the public rule that the question names, else by the scorer sql_result."""
    if episode is None:
        return Score(unscored="fault")
    return await run_scorer(PUBLIC.get(question.scorer, sql_result), question, episode, scoring.of(question.agent))
