"""Scorers: Episode -> Score.

Guarantees: a value lies in [0, 1]; a failure of what a scorer asks is a Fault or a JudgeFault, which `run_scorer` makes
`unscored` with its kind, never a number.
To add a scorer, see `registry.scorer`. Not covered: normalising rewards over a group (see verl).
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from foundation.rollout_keys import AWAITS_GROUP
from reward_client.judge import LLMJudge
from reward_client.schema import JudgeItem
from sql_agent.environment.database import Database
from sql_agent.offline_judge import judge as reference_judge
from sql_agent.offline_judge.sections import Cell
from sql_agent.offline_judge.typed import kind_of_cells, kind_of_texts, truth_of
from sql_agent.records import AnswerType, Episode, QueryResult, Question, Score, SqlCall
from sql_agent.scoring.data_read import reads_data
from sql_agent.scoring.math_check import MathFault, mathematician
from sql_agent.scoring.public_match import RULES
from sql_agent.scoring.registry import ScoringContext, scorer
from sql_agent.scoring.result_match import MAX_RESULT_ROWS, is_ordered, nearness, same_results

NO_REFERENCE = "no_reference"
NO_LLM_JUDGE = "no_llm_judge"
NO_REWARD_MODEL = "no_reward_model"
NO_DATABASE = "no_database"
NO_ENVIRONMENT = "no_environment"
BAD_QUERY = "bad_reference_query"
MATH_FAULT = "math_fault"
NO_TOKEN_COUNT = "no_token_count"


NO_QUERY = "no query was executed, and this question needs one"


@scorer("judge")
async def judge(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """The LLM judge where there is one; else the offline judge, or on a database of one's own the query's result."""
    if context.llm:
        return await llm(question, episode, context)
    grade = sql_result if await offline_kind(question, context) == "sql_result" else reference
    return await grade(question, episode, context)


async def offline_kind(question: Question, context: ScoringContext) -> AnswerType | Literal["sql_result", "quote"]:
    """How the scorer `judge` grades a row without an LLM: by a value of this type, as `quote`, or, where the row has
    reference queries and no evidence and the database is not the bundled one, as `sql_result` what is no value. Raises
    DatabaseFault."""
    kind = value_kind(question, await _evidence(question, context))
    asks_query = context.own_database and question.sql and not question.evidence and question.answer_type != "text"
    return kind or ("sql_result" if asks_query else "quote")


def value_kind(question: Question, cells: list[Cell]) -> AnswerType | Literal[""]:
    """The type that the row names in `answer_schema`, else that of what its queries found, else of its texts' form."""
    if question.answer_type:
        return "" if question.answer_type == "text" else question.answer_type
    if question.evidence or not cells:
        kind = kind_of_texts(question.question, question.answer, [cell.text for cell in cells])
    else:
        kind = kind_of_cells(question.question, cells)
    return kind if kind and truth_of(question.question, question.answer, cells, kind) else ""


@scorer("reference")
async def reference(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """The offline judge: the value in the answer, or the share of the asked facts quoted, if nothing else is said.

    With `reward.reword` a reward model raises answers in other words in which the judge saw no lie.
    """
    evidence = await _evidence(question, context)
    if question.sql and not episode.used_a_tool:
        return Score(value=0.0, explanation=NO_QUERY)
    by_row = question.answer_type or bool(evidence and not question.evidence)
    kind = (question.answer_type or value_kind(question, evidence) or "text") if by_row else ""
    verdict = reference_judge.grade(
        question=question.question, reference=question.answer, answer=episode.final_answer, evidence=evidence, kind=kind
    )
    if verdict is None:
        lack = f"is no {question.answer_type} that the question leaves open" if question.answer_type else "is not there"
        return Score(unscored=NO_REFERENCE, explanation=f"question {question.id}: the reference {lack}")
    metadata = {"coverage": verdict.coverage, "foreign": len(verdict.foreign)}
    value, cap = verdict.value, context.config.reword
    if not context.reward_model or not verdict.open or value >= cap or _lacks_query(question, episode):
        return Score(value=value, explanation=verdict.explanation, metadata=metadata)
    row = question.model_copy(update={"answer": question.answer or "\n".join(cell.text for cell in evidence)})
    by_model = await reward_model(row, episode, context)
    raised = value + (cap - value) * verdict.open * (by_model.value or 0.0)
    why = f"{verdict.explanation}; {raised:.2f} for other words ({by_model.explanation})"
    return Score(value=raised, explanation=why, metadata=metadata | by_model.metadata)


async def _evidence(question: Question, context: ScoringContext) -> list[Cell]:
    """The quoted cells; where a question has none, the cells that its reference queries find. Raises DatabaseFault."""
    database = context.database_of(question.db_id)
    if question.evidence or not question.sql or database is None:
        return [
            Cell(item.quote, f"{item.source_table} {item.row_id}".strip(), item.field) for item in question.evidence
        ]
    return cells_of([await database.reference(sql) for sql in question.sql])


def cells_of(results: Sequence[QueryResult]) -> list[Cell]:
    """The cells of results, each with its query, row and column."""
    return [
        Cell(str(cell), f"{n} {row}", column)
        for n, result in enumerate(results)
        for row, cells in enumerate(result.rows)
        for column, cell in zip(result.columns, cells, strict=True)
        if cell is not None
    ]


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
    if _lacks_query(question, episode):
        return NO_QUERY
    return llm.gate(question.question, episode.final_answer)


def _lacks_query(question: Question, episode: Episode) -> bool:
    return bool(question.sql or question.evidence) and not episode.executed_sql


async def _grade_alone(item: JudgeItem, llm: LLMJudge) -> Score:
    verdict = await llm.grade(item)
    metadata = verdict.criteria.model_dump(exclude={"reason"}) | {"judge_usage": verdict.usage.model_dump()}
    metadata |= {"model": verdict.model, "answer_cut": verdict.answer_cut}
    return Score(value=verdict.overall, explanation=verdict.explanation, metadata=metadata)


@scorer("exact")
async def exact(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """1 where answer and reference are the same but for width, case, blanks and final stops; numbers by value."""
    wanted, answer = _plain(question.answer), _plain(episode.final_answer)
    if not wanted:
        return Score(unscored=NO_REFERENCE, explanation=f"question {question.id} has no reference answer")
    return Score(value=float(wanted == answer), explanation="" if wanted == answer else "differs from the reference")


@scorer("math")
async def math(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """1 where answer and reference are the same mathematics, 1/2 and 0.5 for example."""
    if not question.answer:
        return Score(unscored=NO_REFERENCE, explanation=f"question {question.id} has no reference answer")
    try:
        verdict = await asyncio.to_thread(mathematician.compare, question.answer, episode.final_answer)
    except MathFault as fault:
        return Score(unscored=MATH_FAULT, explanation=f"question {question.id}: {fault}")
    return Score(value=float(verdict.equal), explanation=verdict.why)


async def _by_results(
    name: str, compare: Callable[..., float], question: Question, episode: Episode, context: ScoringContext
) -> Score:
    """The mean over the k reference queries of the best that one of the agent's last k queries earns by `compare`.

    Only queries that ran and that read a table count, each where it ran last. Only the last k: a row of guesses must
    not pay.
    """
    if not question.sql:
        return Score(unscored=NO_REFERENCE, explanation=f"question {question.id} has no reference query")
    database = context.database_of(question.db_id)
    if database is None:
        return Score(unscored=NO_DATABASE, explanation=f"the scorer {name} needs a database, and none is open")
    dialect = database.dialect
    wanted = [await database.reference(sql) for sql in question.sql]
    if problem := next(filter(None, map(no_yardstick, wanted)), ""):
        return Score(unscored=BAD_QUERY, explanation=f"question {question.id}: reference query: {problem}")
    schema = await asyncio.to_thread(database.schema)
    names = {name.lower() for table, columns in schema.items() for name in (table, *columns)}
    calls = [call for call in episode.sql_calls if call.result.ok and reads_data(call.sql, dialect, names)]
    last_places = {call.sql: place for place, call in enumerate(calls)}.values()
    last_calls = [calls[place] for place in sorted(last_places)[-len(wanted) :]]
    whole = [g for g in [await _whole_result(call, database) for call in last_calls] if not g.truncated]

    def best_of(sql: str, w: QueryResult) -> float:
        ordered = is_ordered(sql, dialect)
        return max((float(compare(w.rows, g.rows, ordered=ordered)) for g in whole), default=0.0)

    # Wide results take seconds, in which other rollouts go on.
    earned = [await asyncio.to_thread(best_of, sql, w) for sql, w in zip(question.sql, wanted, strict=True)]
    explanation = f"{sum(value == 1 for value in earned)} of {len(earned)} reference results were found"
    near = [value for value in earned if 0 < value < 1]
    return Score(value=sum(earned) / len(earned), explanation=explanation + (f", {len(near)} nearly" if near else ""))


# sql_partial also pays up to half where a result is near the reference's (result_match.nearness).
sql_result = scorer("sql_result")(partial(_by_results, "sql_result", same_results))
sql_partial = scorer("sql_partial")(partial(_by_results, "sql_partial", nearness))


def no_yardstick(result: QueryResult) -> str:
    """Why a reference result cannot be compared with, or ""."""
    if result.error or result.rows:
        return result.error or (f"more than {MAX_RESULT_ROWS} rows" if result.truncated else "")
    return "it finds nothing, and any query that finds nothing would equal it"


async def _whole_result(call: SqlCall, database: Database) -> QueryResult:
    """The result without the agent's limit of rows; as it was where the query no longer runs."""
    again = await database.query(call.sql) if call.result.truncated else call.result
    return again if again.ok else call.result


async def _public_execution(name: str, question: Question, episode: Episode, context: ScoringContext) -> Score:
    """1 where the agent's last query that ran gives what the reference gives by a rule of public_match.py, else 0.

    Both queries run without the agent's limit of rows.
    """
    as_run, equal = RULES[name]
    if len(question.sql) != 1:
        why = f"question {question.id} has {len(question.sql)} reference queries, and the scorer {name} compares one"
        return Score(unscored=NO_REFERENCE, explanation=why)
    database = context.database_of(question.db_id)
    if database is None:
        return Score(unscored=NO_DATABASE, explanation=f"the scorer {name} needs a database, and none is open")
    wanted = await database.reference(as_run(question.sql[0]))
    if wanted.error or wanted.truncated:
        problem = wanted.error or f"more than {MAX_RESULT_ROWS} rows, or too much text"
        return Score(unscored=BAD_QUERY, explanation=f"question {question.id}: reference query: {problem}")
    last = next((call.sql for call in reversed(episode.sql_calls) if call.result.ok), None)
    if last is None:
        return Score(value=0.0, explanation="no query ran")
    result = await database.query(as_run(last))
    same = result.ok and not result.truncated and equal(wanted.rows, result.rows, reference=question.sql[0])
    return Score(value=float(same), explanation="the reference's result" if same else "another result")


@scorer("reward_model")
async def reward_model(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """What the reward model behind REWARD_MODEL_URL gives, in [0, 1]."""
    if context.reward_model is None:
        return Score(unscored=NO_REWARD_MODEL, explanation=context.no_reward_model)
    reference = question.answer if context.config.reward_model.send_reference else ""
    score = await context.reward_model.score(
        prompt=question.question, response=episode.final_answer, reference=reference
    )
    return Score(value=score.reward, explanation=f"logit {score.logit:.3f}", metadata={"logit": score.logit})


@scorer("environment")
async def environment(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """What the episode's environment gave, in [0, 1]."""
    if episode.environment_reward is None:
        why = "neither an environment of agent.tools nor the agent gave one"
        return Score(unscored=NO_ENVIRONMENT, explanation=why)
    return Score(value=episode.environment_reward)


@scorer("length_penalty")
async def length_penalty(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """How many characters the last reply, thoughts included, goes beyond the target."""
    n = len(episode.final_answer)
    over = _beyond(n, context)
    return Score(value=over, explanation=f"{n} characters" if over else "")


@scorer("overlong_penalty")
async def overlong_penalty(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """How many tokens the longest answer of an LLM call goes beyond the target."""
    counts = [call.completion_tokens for call in episode.llm_calls]
    counted = [n for n in counts if n is not None]
    if len(counted) < len(counts):
        return Score(unscored=NO_TOKEN_COUNT, explanation="the model's endpoint does not count tokens")
    over = _beyond(max(counted, default=0), context)
    return Score(value=over, explanation=f"{max(counted)} tokens" if over else "")


def _beyond(n: int, context: ScoringContext) -> float:
    """0 up to the target, 1 from the limit, without one from twice the target; a straight line between."""
    end = context.limit or 2 * context.target
    return min(1.0, max(0.0, (n - context.target) / (end - context.target)))


@scorer("step_bonus")
async def step_bonus(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """0 where no tool call ran; 1 with at most `target` (or one) tool calls, bad ones included; else target / calls."""
    others = sum(call.outcome != "bad_arguments" for call in episode.tool_calls)
    calls = len(episode.sql_calls) + others + episode.n_bad_tool_calls
    value = min(1.0, (context.target or 1) / calls) if episode.used_a_tool else 0.0
    return Score(value=value, explanation=f"{calls} tool calls")


@scorer("turn_rank")
async def turn_rank(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """In training, how the turns of an answer compare with those of its group (see groups.py); alone, nothing."""
    if context.in_group:
        return Score(unscored=AWAITS_GROUP, explanation="its turns are compared with its group's")
    return Score(value=0.0)


PUBLIC = {name: scorer(name)(partial(_public_execution, name)) for name in RULES}
# These run reference queries.
OF_QUERIES = (sql_result, sql_partial, *PUBLIC.values())
# These look at the whole episode, so an empty answer is no reason to skip them.
OF_THE_EPISODE = (environment, length_penalty, overlong_penalty, step_bonus, turn_rank)


def _plain(text: str) -> str:
    text = re.sub(r"\s+", "", unicodedata.normalize("NFKC", text)).casefold().rstrip("。.!;,、")
    try:
        return repr(float(text))
    except ValueError:
        return text
