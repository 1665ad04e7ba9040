"""Scorers: Episode -> Score; and `score`, which adds the rule bonus -> Reward.

Guarantees: the SQL bonus is paid once and only for a query that executed; an answer's value lies in [0, 1]; a failure
of what a scorer asks is `unscored` with its kind, never a number; who judges is decided once, in `build_context`.
To add a scorer, see `scorer_registry.scorer`. Not covered: normalising rewards over a group (see verl).
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reward_client.endpoints import endpoints_from_env
from reward_client.errors import JudgeFault
from reward_client.judge import LLMJudge
from reward_client.reward_model import RewardModelClient, reward_model_from_env
from reward_client.schema import Budget, JudgeEndpoint, JudgeItem
from sql_agent import reference_judge
from sql_agent.answer_text import extract_answer, strip_thinking
from sql_agent.config import ROOT, DatabaseConfig, RewardConfig, database_path, resolve_path
from sql_agent.database import Database
from sql_agent.errors import DatabaseFault, UserError
from sql_agent.math_check import MathChecker, MathFault
from sql_agent.records import Episode, QueryResult, Question, Reward, Score, SqlCall
from sql_agent.result_match import is_ordered, reads_data, same_results
from sql_agent.scorer_registry import SCORERS, Scorer, ScoringContext, load_scorers, scorer, unknown_scorer

NO_REFERENCE = "no_reference"
NO_LLM_JUDGE = "no_llm_judge"
AWAITS_GROUP = "awaits_group"  # the same word as in agl_plugin.adapter, which may not be imported here
NO_REWARD_MODEL = "no_reward_model"
NO_DATABASE = "no_database"
BAD_QUERY = "bad_reference_query"
BAD_SCORE = "bad_score"
MATH_FAULT = "math_fault"
SHOWN_ROWS = 10
MAX_RESULT_ROWS = 10_000  # of a result that is compared as a whole

_mathematician = MathChecker()
atexit.register(_mathematician.close)

__all__ = ["SCORERS", "Scorer", "ScoringContext", "build_context", "check_scorers", "score", "scorer"]


@scorer("judge")
async def judge(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """The configured judge: the LLM where there is one, else the offline reference judge."""
    return await (llm if context.llm else reference)(question, episode, context)


@scorer("reference")
async def reference(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """The offline judge: fact F1 against the reference answer."""
    verdict = reference_judge.grade(
        question=question.question,
        reference=question.answer,
        answer=episode.final_answer,
        evidence=[item.quote for item in question.evidence],
    )
    if verdict is None:
        return Score(unscored=NO_REFERENCE, explanation=f"question {question.id} has no reference answer")
    metadata = {"coverage": verdict.coverage, "support": verdict.support}
    return Score(value=verdict.value, explanation=verdict.explanation, metadata=metadata)


@scorer("llm", "agentcpm")  # the second is the name that AgentCPM data sets use
async def llm(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """The LLM judge. It sees reference and evidence; with neither of them there is nothing to judge by."""
    if context.llm is None:
        why = "this question asks for the LLM judge: set TEACHER_API_KEY, TEACHER_MODEL and TEACHER_BASE_URL"
        return Score(unscored=NO_LLM_JUDGE, explanation=why)
    evidence = [item.quote for item in question.evidence]
    if not question.answer and not evidence:
        return Score(unscored=NO_REFERENCE, explanation=f"question {question.id} has neither reference nor evidence")
    why = _gate(question, episode, context.llm)
    if why:
        return Score(value=0.0, explanation=f"{why} (not sent to the judge)")
    item = JudgeItem(
        question=question.question, reference=question.answer, evidence=evidence, answer=episode.final_answer
    )
    if context.in_group and context.config.judge.mode != "pointwise":
        return Score(unscored=AWAITS_GROUP, explanation="graded with its group", metadata={"item": item.model_dump()})
    return await _grade_alone(item, context.llm)


def _gate(question: Question, episode: Episode, llm: LLMJudge) -> str:
    """Why the answer is worth 0 without a call, or "". SQL is needed where the reference rests on the database."""
    if (question.sql or question.evidence) and not episode.executed_sql:
        return "no query was executed, and this question needs one"
    return llm.gate(question.question, episode.final_answer)


async def _grade_alone(item: JudgeItem, llm: LLMJudge) -> Score:
    try:
        verdict = await llm.grade(item)
    except JudgeFault as fault:
        return Score(unscored=fault.kind, explanation=str(fault), metadata={"judge_usage": fault.usage.model_dump()})
    metadata = {
        **verdict.criteria.model_dump(exclude={"reason"}),
        "judge_usage": verdict.usage.model_dump(),
        "model": verdict.model,
        "answer_cut": verdict.answer_cut,
    }
    return Score(value=verdict.overall, explanation=verdict.explanation, metadata=metadata)


@scorer("exact")
async def exact(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """1 where answer and reference are the same but for width, case, blanks and final stops; numbers by value."""
    wanted, given = _plain(question.answer), _plain(episode.final_answer)
    if not wanted:
        return Score(unscored=NO_REFERENCE, explanation=f"question {question.id} has no reference answer")
    return Score(value=float(wanted == given), explanation="" if wanted == given else "differs from the reference")


@scorer("math")
async def math(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """1 where answer and reference are the same mathematics, 1/2 and 0.5 for example."""
    if not question.answer:
        return Score(unscored=NO_REFERENCE, explanation=f"question {question.id} has no reference answer")
    try:
        verdict = await asyncio.to_thread(_mathematician.compare, question.answer, episode.final_answer)
    except MathFault as fault:
        return Score(unscored=MATH_FAULT, explanation=f"question {question.id}: {fault}")
    return Score(value=float(verdict.equal), explanation=verdict.why)


@scorer("sql_result")
async def sql_result(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """The share of the k reference queries whose result one of the agent's last k queries gave (see result_match.py).

    Only queries that ran and that read a table count, each once. Only the last k: a row of guesses must not pay.
    """
    if not question.sql:
        return Score(unscored=NO_REFERENCE, explanation=f"question {question.id} has no reference query")
    if context.database is None:
        return Score(unscored=NO_DATABASE, explanation="the scorer sql_result needs a database, and none is open")
    try:
        wanted = [await context.database.query(sql) for sql in question.sql]
        if problem := next(filter(None, map(_no_yardstick, wanted)), ""):
            return Score(unscored=BAD_QUERY, explanation=f"question {question.id}: reference query: {problem}")
        calls = {call.sql: call for call in episode.sql_calls if call.result.ok and reads_data(call.sql)}
        given = [await _whole_result(call, context.database) for call in list(calls.values())[-len(wanted) :]]
    except DatabaseFault as fault:
        return Score(unscored=fault.kind, explanation=str(fault))
    hits = [
        any(not g.truncated and same_results(w.rows, g.rows, ordered=is_ordered(sql)) for g in given)
        for sql, w in zip(question.sql, wanted, strict=True)
    ]
    return Score(value=sum(hits) / len(hits), explanation=f"{sum(hits)} of {len(hits)} reference results were found")


def _no_yardstick(result: QueryResult) -> str:
    """Why a reference result cannot be compared with, or ""."""
    if result.error or result.rows:
        return result.error or (f"more than {MAX_RESULT_ROWS} rows" if result.truncated else "")
    return "it finds nothing, and any query that finds nothing would equal it"


async def _whole_result(call: SqlCall, database: Database) -> QueryResult:
    """The result without the agent's limit of rows; as it was where the query no longer runs."""
    again = await database.query(call.sql) if call.result.truncated else call.result
    return again if again.ok else call.result


@scorer("reward_model")
async def reward_model(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """What the reward model behind REWARD_MODEL_URL gives, in [0, 1]."""
    if context.reward_model is None:
        return Score(unscored=NO_REWARD_MODEL, explanation=context.no_reward_model)
    try:
        reference = question.answer if context.config.reward_model.send_reference else ""
        found = await context.reward_model.score(
            prompt=question.question, response=episode.final_answer, reference=reference
        )
    except JudgeFault as fault:
        return Score(unscored=fault.kind, explanation=str(fault))
    return Score(value=found.reward, explanation=f"logit {found.logit:.3f}", metadata={"logit": found.logit})


def build_context(config: RewardConfig, database: DatabaseConfig | None = None, *, run: str = "") -> ScoringContext:
    """Decide who judges: the configuration, JUDGE_ENDPOINTS, TEACHER_* and REWARD_MODEL_*. No request is made here.

    `database` is what `sql_result` queries. `run` names the account that all processes of a run share; "" opens one of
    its own. Raises UserError for an unknown or unusable default scorer, a module of scorers that cannot be imported,
    kind "llm" without an endpoint, half-set variables, or a mode that needs an LLM judge.
    """
    load_scorers(config.scorer_modules)
    name, judge = _judge(config, run)
    model, no_model = _reward_model(config)
    tables = database and database.model_copy(update={"max_rows": MAX_RESULT_ROWS})
    context = ScoringContext(
        config=config,
        judge_name=name,
        llm=judge,
        reward_model=model,
        no_reward_model=no_model,
        database=tables and Database(tables, database_path(tables)),
    )
    if problem := _unusable(config.default_scorer, context):
        raise UserError(f"reward.default_scorer = {config.default_scorer!r}: {problem}")
    return context


def _judge(config: RewardConfig, run: str) -> tuple[str, LLMJudge | None]:
    if config.judge.kind == "reference":
        return _offline(config, "offline reference judge (reward.judge.kind = reference)"), None
    try:
        endpoints = endpoints_from_env()
        judge = _llm_judge(endpoints, config, run=run) if endpoints else None
    except ValueError as exc:
        raise UserError(str(exc)) from exc
    if judge:
        return judge.name, judge
    if config.judge.kind == "llm":
        raise UserError(
            "reward.judge.kind = 'llm': the LLM judge needs TEACHER_API_KEY, TEACHER_MODEL and TEACHER_BASE_URL. "
            "Set them in .env, or use --set reward.judge.kind=reference"
        )
    return _offline(config, "offline reference judge (no TEACHER_* endpoint set)"), None


def _offline(config: RewardConfig, name: str) -> str:
    if config.judge.mode != "pointwise":
        raise UserError(
            f"reward.judge.mode = {config.judge.mode!r}: the offline reference judge grades pointwise only. Set "
            "TEACHER_API_KEY, TEACHER_MODEL and TEACHER_BASE_URL, or use --set reward.judge.mode=pointwise"
        )
    return name


def _reward_model(config: RewardConfig) -> tuple[RewardModelClient | None, str]:
    """The client, or why there is none: an error only where a row asks for it."""
    options = config.reward_model
    scale = resolve_path(options.scale_file, ROOT) if options.scale_file else None
    try:
        client = reward_model_from_env(scale, timeout_s=options.timeout_s, attempts=options.attempts)
    except ValueError as exc:
        return None, str(exc)
    return client, "" if client else "needs REWARD_MODEL_URL, the address of a scoring API. Set it in .env"


def _llm_judge(endpoints: Sequence[JudgeEndpoint], config: RewardConfig, *, run: str) -> LLMJudge:
    options = config.judge
    return LLMJudge(
        endpoints,
        rubric=f"rubric_{options.language}",
        pair_rubric=f"pairwise_{options.language}",
        group_rubric=f"groupwise_{options.language}",
        timeout_s=options.timeout_s,
        max_tokens=options.max_tokens,
        attempts=options.attempts,
        concurrency=options.concurrency,
        rpm=options.rpm,
        tpm=options.tpm,
        budget=Budget(calls=options.budget_calls, tokens=options.budget_tokens, cost=options.budget_cost),
        folder=(ROOT / Path(options.folder).expanduser()).resolve(),
        run=run,
    )


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


def check_scorers(questions: Sequence[Question], context: ScoringContext | None = None, *, source: str = "") -> None:
    """Raise UserError naming the rows (from 1) whose scorer is unknown, or, given a context, cannot run in it.

    `source` is the file that the rows are from.
    """
    problems = []
    for row, question in enumerate(questions, start=1):
        if problem := _row_problem(question, context):
            problems.append(f"row {row} ({question.id}): scorer {question.scorer!r}{problem}")
    if problems:
        more = [f"... and {len(problems) - SHOWN_ROWS} more"] if len(problems) > SHOWN_ROWS else []
        title = f"{source}: unknown or unusable scorers:" if source else "unknown or unusable scorers:"
        raise UserError("\n".join([title, *problems[:SHOWN_ROWS], *more]))


def _row_problem(question: Question, context: ScoringContext | None) -> str:
    if question.scorer and (problem := _unusable(question.scorer, context)):
        return f": {problem}" if question.scorer not in SCORERS else f" {problem}"
    name = question.scorer or (context.config.default_scorer if context else "")
    return " needs reference queries in `sql`" if SCORERS.get(name) is sql_result and not question.sql else ""


def needs_answer(question: Question, context: ScoringContext) -> bool:
    """True when the row's scorer compares with the reference answer and nothing else."""
    function = SCORERS.get(question.scorer or context.config.default_scorer)
    return function in (reference, exact, math) or (function is judge and context.llm is None)


# Why a scorer cannot run in a context, "" when it can; scorers that are not here always can.
REQUIREMENTS: dict[Any, Callable[[ScoringContext], str]] = {
    llm: lambda context: "" if context.llm else "needs the TEACHER_* variables",
    reward_model: lambda context: "" if context.reward_model else context.no_reward_model,
    sql_result: lambda context: "" if context.database else "needs a database",
}


def _unusable(name: str, context: ScoringContext | None) -> str:
    if name not in SCORERS:
        return unknown_scorer(name)
    requirement = REQUIREMENTS.get(SCORERS[name])
    return requirement(context) if requirement and context else ""


def _plain(text: str) -> str:
    text = re.sub(r"\s+", "", unicodedata.normalize("NFKC", text)).casefold().rstrip("。.!;,、")
    try:
        return repr(float(text))
    except ValueError:
        return text
