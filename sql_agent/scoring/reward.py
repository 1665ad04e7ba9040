"""Episode -> Reward: the rule bonus and the value of the row's scorer."""

from __future__ import annotations

import asyncio
import inspect

import sql_agent.scoring.scorers  # noqa: F401  (registers the bundled scorers)
from foundation.errors import UserError
from foundation.rollout_keys import AWAITS_GROUP
from sql_agent.records import Episode, Question, Reward, Score
from sql_agent.scoring.answer_text import extract_answer, strip_thinking
from sql_agent.scoring.registry import SCORERS, Scorer, ScoringContext, unknown_scorer

BAD_SCORE = "bad_score"


async def score(episode: Episode, context: ScoringContext) -> Reward:
    """The reward of an episode: parts "sql" (the bonus or 0) and "answer" (in [0, 1]), and their sum.

    Unscored, with the scorer's reason and no total, where the scorer has no value; an episode that awaits its group
    keeps the part "sql". Raises UserError for a scorer that SCORERS does not know (`check_scorers` finds it earlier).
    """
    name = episode.question.scorer or context.config.default_scorer
    if name not in SCORERS:
        raise UserError(f"question {episode.question.id}: scorer {name!r}: {unknown_scorer(name)}")
    found = await _score_answer(name, episode, context)
    parts = {"sql": context.config.sql_bonus if episode.executed_sql else 0.0}
    about = {"explanation": found.explanation, "scorer": name, "metadata": found.metadata}
    if found.value is None:
        return Reward(unscored=found.unscored, parts=parts if found.unscored == AWAITS_GROUP else {}, **about)
    parts["answer"] = found.value
    return Reward(total=sum(parts.values()), parts=parts, **about)


async def _score_answer(name: str, episode: Episode, context: ScoringContext) -> Score:
    question = episode.question
    answer = extract_answer(episode.final_answer, question.answer_schema)
    if not answer:
        marks = {"answer": "no <answer>...</answer>", "boxed": r"no \boxed{...}"}
        said = strip_thinking(episode.final_answer)
        return Score(value=0.0, explanation=marks.get(question.answer_schema, "empty") if said else "empty answer")
    return await run_scorer(SCORERS[name], question, episode.model_copy(update={"final_answer": answer}), context)


async def run_scorer(function: Scorer, question: Question, episode: Episode, context: ScoringContext) -> Score:
    """What a scorer gives, as a Score. A sync one runs in a thread, so that it cannot hold up the others.

    A value that is no number in [0, 1] is unscored (`bad_score`): it is a mistake of the scorer, not of the policy.
    """
    if inspect.iscoroutinefunction(function):
        found = await function(question, episode, context)
    else:
        found = await asyncio.to_thread(function, question, episode, context)
        found = await found if inspect.isawaitable(found) else found
    if isinstance(found, Score):
        return found
    if not (isinstance(found, int | float) and 0 <= found <= 1):
        text = f"the scorer gave {found!r:.80}; it must give a Score or a number in [0, 1]"
        return Score(unscored=BAD_SCORE, explanation=text)
    return Score(value=float(found))
