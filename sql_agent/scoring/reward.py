"""Episode -> Reward: the rule bonus and the terms, each a part of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
import traceback
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

from foundation.background import Exited
from foundation.errors import UserError
from foundation.rollout_keys import AWAITS_GROUP
from reward_client.errors import JudgeFault
from sql_agent.config.reward import TermConfig
from sql_agent.errors import Fault, ToolFault
from sql_agent.records import Episode, Question, Reward, Score
from sql_agent.scoring.answer_text import extract_answer, strip_thinking
from sql_agent.scoring.functions import call
from sql_agent.scoring.registry import BAD_SCORE, SCORERS, Scorer, ScoringContext, unknown_scorer
from sql_agent.scoring.scorers import OF_THE_EPISODE
from sql_agent.scoring.values import number_of

logger = logging.getLogger(__name__)
SCORER_ERROR = "scorer_error"
TOO_FEW_TURNS = "too_few_turns"
_told: set[tuple[str, int | None, type[BaseException]]] = set()  # whose traceback is in the log


def reward_of_fault(fault: Fault) -> Reward:
    """No reward; the reason, and of a tool its name and a word for what became of it."""
    about = {"tool": fault.tool, "reason": fault.reason} if isinstance(fault, ToolFault) and fault.tool else {}
    return Reward(unscored=fault.kind, explanation=str(fault)[:500], metadata={"fault": about})


async def graded(
    playing: Awaitable[Episode], question: Question, scoring: ScoringContext
) -> tuple[Episode | None, Reward]:
    """What is played, with the time of its grading, and its reward; of a fault no episode and no value."""
    try:
        episode = await playing
    except Fault as fault:
        logger.warning("rollout of question %s is unscored: %s", question.id, fault)
        return None, reward_of_fault(fault)
    started = time.time()
    try:
        reward = await score(episode, scoring)
    except asyncio.CancelledError:
        logger.warning("question %s: ended, its scorer gave nothing for %.0f s", question.id, time.time() - started)
        raise
    moments = [*episode.timeline, ("judge", started, time.time())]
    return episode.model_copy(update={"timeline": moments}), reward


async def score(episode: Episode, context: ScoringContext) -> Reward:
    """The reward of an episode: its parts, and their sum.

    Part "sql" is the bonus or 0, where there is one; a row that one scorer grades has "answer" in [0, 1], others a part
    for each of `reward.terms`. Unscored, with the reason and no total, where any term has no value; an episode that
    awaits its group keeps the parts that it has. Raises UserError for a scorer that SCORERS does not know
    (`check_scorers` finds it earlier).
    """
    context = context.of(episode.question.agent)
    terms = context.terms_for(episode.question.scorer)
    for term in terms:
        if term.scorer not in SCORERS:
            raise UserError(f"question {episode.question.id}: scorer {term.scorer!r}: {unknown_scorer(term.scorer)}")
    scores = await asyncio.gather(*(_score_term(term, episode, context) for term in terms))
    graded = list(zip(terms, scores, strict=True))
    about = {"explanation": _explain(graded), "scorer": " + ".join(t.scorer for t in terms), "metadata": _merge(scores)}
    awaits = {term.part: term.factor for term, score in graded if score.unscored == AWAITS_GROUP}
    if fault := next((score.unscored for score in scores if score.unscored not in ("", AWAITS_GROUP)), ""):
        return Reward(unscored=fault, **about)
    bonus = context.config.sql_bonus
    parts = {"sql": bonus if episode.executed_sql else 0.0} if bonus else {}
    # Adding 0 makes a penalty of -0.0 a plain 0.
    parts |= {term.part: term.factor * score.value + 0.0 for term, score in graded if score.value is not None}
    answers = [parts.get(name, 0.0) > 0 or name in awaits for name in context.config.answer_parts]
    if context.in_group and max(episode.n_turns, 1) < context.min_turns and any(answers):
        return Reward(unscored=TOO_FEW_TURNS, **about)
    if awaits:
        about["metadata"] |= {"awaits": awaits}
        return Reward(unscored=AWAITS_GROUP, parts=parts, **about)
    return Reward(total=sum(parts.values()), parts=parts, **about)


def _explain(graded: Sequence[tuple[TermConfig, Score]]) -> str:
    if len(graded) == 1:
        return graded[0][1].explanation
    return "; ".join(f"{term.part}: {score.explanation}" for term, score in graded if score.explanation)


def _merge(scores: Sequence[Score]) -> dict[str, Any]:
    """The metadata of all, and what their judging cost together."""
    merged = {key: value for score in scores for key, value in score.metadata.items()}
    usages = [usage for score in scores if (usage := score.metadata.get("judge_usage"))]
    if len(usages) > 1:
        merged["judge_usage"] = {key: sum(usage.get(key, 0) for usage in usages) for key in usages[0] | usages[1]}
    return merged


async def _score_term(term: TermConfig, episode: Episode, context: ScoringContext) -> Score:
    question, function = episode.question, SCORERS[term.scorer]
    context = dataclasses.replace(context, target=term.target, limit=term.limit)
    if function in OF_THE_EPISODE:
        return await run_scorer(function, question, episode, context)
    answer = extract_answer(episode.final_answer, question.answer_mark)
    if not answer:
        marks = {"answer": "no <answer>...</answer>", "boxed": r"no \boxed{...}"}
        reply = strip_thinking(episode.final_answer)
        return Score(value=0.0, explanation=marks.get(question.answer_mark, "empty") if reply else "empty answer")
    return await run_scorer(function, question, episode.model_copy(update={"final_answer": answer}), context)


async def run_scorer(function: Scorer, question: Question, episode: Episode, context: ScoringContext) -> Score:
    """What a scorer gives, as a Score.

    What the scorer asks and fails is unscored with the fault's kind. So is a value that is no number in [0, 1]
    (`bad_score`), and what raises else (`scorer_error`): a mistake of the scorer, not of the policy.
    """
    try:
        result = await call(function, question, episode, context)
    except (Fault, JudgeFault) as fault:
        cost = {"judge_usage": fault.usage.model_dump()} if isinstance(fault, JudgeFault) else {}
        return Score(unscored=fault.kind, explanation=str(fault), metadata=cost)
    except Exception as raised:  # anybody's function
        exc = (raised.__cause__ or raised) if isinstance(raised, Exited) else raised
        frame = traceback.extract_tb(exc.__traceback__)[-1]
        place = (frame.filename, frame.lineno, type(exc))
        logger.warning("question %s: a scorer failed: %r", question.id, exc, exc_info=None if place in _told else exc)
        _told.add(place)
        where = f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})"
        return Score(unscored=SCORER_ERROR, explanation=f"the scorer raised {exc!r:.250} in {where}")
    if isinstance(result, Score):
        return result
    value = number_of(result)
    if value is None or not 0 <= value <= 1:
        text = f"the scorer gave {result!r:.80}; it must give a Score or a number in [0, 1]"
        return Score(unscored=BAD_SCORE, explanation=text)
    return Score(value=value)
