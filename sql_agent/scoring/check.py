"""Which rows can be scored, found before a run: unknown scorers, and what a scorer needs and does not have."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from foundation.errors import UserError, first_of
from reward_client.errors import JudgeFault
from sql_agent.config import RewardConfig
from sql_agent.config.agents import unknown_agent
from sql_agent.offline_judge.typed import truth_of
from sql_agent.records import ANSWER_TYPES, Question
from sql_agent.scoring.functions import RewardFunction
from sql_agent.scoring.registry import SCORERS, ScoringContext, unknown_scorer
from sql_agent.scoring.scorers import (
    OF_QUERIES,
    environment,
    exact,
    judge,
    length_penalty,
    llm,
    math,
    no_yardstick,
    offline_kind,
    overlong_penalty,
    reference,
    reward_model,
    turn_rank,
)

SAMPLED_ROWS = 200


def check_scorers(
    questions: Sequence[Question],
    context: ScoringContext | None = None,
    *,
    source: str = "",
    may_be_unscored: bool = False,
) -> None:
    """Raise UserError naming the rows (from 1) whose scorer is unknown, or, given a context, cannot run in it; or whose
    agent or database it does not know.

    `source` is the file that the rows are from; `may_be_unscored`: a row may do without any reference.
    """
    problems = []
    for row, question in enumerate(questions, start=1):
        has_reference = bool(question.answer or question.sql or question.evidence)
        grades = has_reference or not may_be_unscored
        if problem := _row_problem(question, context) or (grades and _reference_problem(question, context)):
            problems.append(f"row {row} ({question.id}): {problem}")
    if problems:
        where = f"{source}: " if source else ""
        title = f"{where}unknown or unusable scorers, agents or databases:"
        raise UserError("\n".join([title, *first_of(problems)]))


def _row_problem(question: Question, context: ScoringContext | None) -> str:
    if context and question.agent and question.agent not in context.agents:
        return f"agent {question.agent!r}: {unknown_agent(question.agent, context.agents)}"
    context = context and context.of(question.agent)
    if question.scorer and (problem := why_unusable(question.scorer, context)):
        return f"scorer {question.scorer!r}{'' if question.scorer in SCORERS else ':'} {problem}"
    if context and context.databases and (problem := context.databases.problem(question.db_id)):
        return problem
    return ""


def _reference_problem(question: Question, context: ScoringContext | None) -> str:
    """What the row lacks for its scorers, or has in a form that they do not read."""
    terms = context.of(question.agent) if context else RewardConfig()
    scorers = [term.scorer for term in terms.terms_for(question.scorer)]
    if problem := _type_problem(question, scorers):
        return problem
    for name in scorers:
        function = SCORERS.get(name)
        if function in OF_QUERIES and not question.sql:
            return f"scorer {name!r} needs reference queries in `sql`; or give the row another scorer"
        if isinstance(function, RewardFunction) and (problem := function.problem(question)):
            return f"scorer {name!r} {problem}"
    return ""


def _type_problem(question: Question, scorers: Sequence[str]) -> str:
    """Why nothing reads the answer as the type that the row names."""
    kind = question.answer_type
    if kind and not any(SCORERS.get(name) in (judge, reference) for name in scorers):
        return f"answer_schema: {kind} is read by the scorers judge and reference, and the row has {', '.join(scorers)}"
    if kind in ("", "text") or not question.answer or question.sql or question.evidence:
        return ""
    if truth_of(question.question, question.answer, [], kind):
        return ""
    return f"answer_schema: the answer {question.answer!r:.60} is no {kind} that the question leaves open"


def needs_answer(question: Question, context: ScoringContext) -> bool:
    """True when a scorer of the row compares with the reference answer and nothing else."""
    context = context.of(question.agent)
    functions = [SCORERS.get(term.scorer) for term in context.terms_for(question.scorer)]
    has_rows = bool(context.own_database and question.sql)  # what the query finds is the answer
    return any(f in (reference, exact, math) or (f is judge and not context.llm and not has_rows) for f in functions)


# Why a scorer cannot run in a context, "" when it can; scorers that are not here always can.
REQUIREMENTS: dict[Any, Callable[[ScoringContext], str]] = {
    llm: lambda context: "" if context.llm else "needs the TEACHER_* variables",
    reward_model: lambda context: "" if context.reward_model else context.no_reward_model,
    **{scorer: lambda context: "" if context.databases else "needs a database" for scorer in OF_QUERIES},
    environment: lambda context: "" if context.environment else "needs an environment with a reward method",
    turn_rank: lambda context: (
        "" if context.config.turn_parts else "compares answers that another term grades; make it one of reward.terms"
    ),
    length_penalty: lambda context: "" if context.target else "needs a target in characters, which a term can give",
    overlong_penalty: lambda context: "" if context.target else "needs a target in tokens, which a term can give",
}


def why_unusable(name: str, context: ScoringContext | None) -> str:
    if name not in SCORERS:
        return unknown_scorer(name)
    requirement = REQUIREMENTS.get(SCORERS[name])
    return requirement(context) if requirement and context else ""


def useless_queries(questions: Sequence[Question], context: ScoringContext) -> str:
    """For people, how many rows have a reference query that fails, finds nothing or too much, and what is wrong with
    the first; "" where none has. Raises DatabaseFault."""
    sampled = _sampled(questions)

    async def reasons() -> list[str]:
        useless = []
        for question in sampled:
            database = context.of(question.agent).database_of(question.db_id)
            results = [await database.query(sql) for sql in question.sql] if database else []
            why = next(filter(None, map(no_yardstick, results)), "")
            useless += [f"{question.id}: {why}"] if why else []
        return useless

    useless = asyncio.run(reasons())
    how_many = f"the reference SQL of {len(useless)} of {len(sampled)} rows fails, finds nothing or too much"
    return f"{how_many}; {useless[0]}" if useless else ""


def _sampled(questions: Sequence[Question]) -> Sequence[Question]:
    return questions[:: max(1, len(questions) // SAMPLED_ROWS)]


def offline_kinds(questions: Sequence[Question], context: ScoringContext) -> str:
    """For people, how rows are graded that the offline judge gets; "" where it gets none. Reference queries run."""
    judged = []
    for question in _sampled(questions):
        of_agent = context.of(question.agent)
        scorers = [SCORERS.get(term.scorer) for term in of_agent.terms_for(question.scorer)]
        if judge in scorers and not of_agent.llm:
            judged.append((question, of_agent))

    async def kinds() -> Counter[str]:
        return Counter([await offline_kind(question, of_agent) for question, of_agent in judged])

    ways = {kind: f"by the {kind.replace('_', ' or ')} in the answer" for kind in ANSWER_TYPES}
    ways |= {"sql_result": "by the result of the query (sql_result)"}
    ways |= dict.fromkeys(("quote", "text"), "by quotes of the record")
    counts = asyncio.run(kinds()).most_common()
    return f"of {len(judged)} rows: " + ", ".join(f"{n} {ways[kind]}" for kind, n in counts) if counts else ""


def check_llm(context: ScoringContext) -> None:
    """Ask an LLM judge once, so that what is wrong shows now. Raises UserError."""
    if context.llm is not None:
        try:
            asyncio.run(context.llm.preflight())
        except JudgeFault as exc:
            raise UserError(f"judge: {exc}") from exc


def check_judge(context: ScoringContext) -> None:
    """The same, and of a reward model. Raises UserError."""
    check_llm(context)
    if context.reward_model is not None:
        try:
            # During a run a server that starts again is waited for; one that is not there before it is an error now.
            client = dataclasses.replace(context.reward_model, waits_for_server=False)
            asyncio.run(client.score(prompt="1 + 1 = ?", response="2", reference="2"))
        except JudgeFault as exc:
            raise UserError(f"reward model (unset REWARD_MODEL_URL to go without): {exc}") from exc
