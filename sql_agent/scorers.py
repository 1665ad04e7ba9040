"""Scorers: Episode -> Score; and `score`, which adds the rule bonus -> Reward.

Guarantees: the SQL bonus is paid once and only for a query that executed; an answer's value lies in [0, 1]; a failure
of the judge is `unscored` with its kind, never a number; which judge grades is decided once, in `build_context`.
To add a scorer, write an async function and name it in SCORERS. It gets the episode with the cleaned final answer,
never an empty one.
Not covered: normalising rewards over a group (see verl).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rapidfuzz import process

from reward_client.endpoints import endpoints_from_env
from reward_client.errors import JudgeFault
from reward_client.judge import LLMJudge
from reward_client.schema import Budget, JudgeEndpoint, JudgeItem
from sql_agent import reference_judge
from sql_agent.config import ROOT, RewardConfig
from sql_agent.errors import UserError
from sql_agent.records import Episode, Question, Reward, Score

NO_REFERENCE = "no_reference"
NO_LLM_JUDGE = "no_llm_judge"
AWAITS_GROUP = "awaits_group"  # the same word as in agl_plugin.adapter, which may not be imported here
SHOWN_ROWS = 10


@dataclass(frozen=True)
class ScoringContext:
    """What scorers share. `llm` is None where the offline reference judge grades; `judge_name` is for people.

    `in_group`: the episode belongs to a group that will be graded together (see group_grading.py).
    """

    config: RewardConfig
    judge_name: str
    llm: LLMJudge | None = None
    in_group: bool = False


Scorer = Callable[[Question, Episode, ScoringContext], Awaitable[Score]]


async def judge(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """The configured judge: the LLM where there is one, else the offline reference judge."""
    return await (llm if context.llm else reference)(question, episode, context)


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


async def exact(question: Question, episode: Episode, context: ScoringContext) -> Score:
    """1 where answer and reference are the same but for width, case, blanks and final stops; numbers by value."""
    wanted, given = _plain(question.answer), _plain(episode.final_answer)
    if not wanted:
        return Score(unscored=NO_REFERENCE, explanation=f"question {question.id} has no reference answer")
    return Score(value=float(wanted == given), explanation="" if wanted == given else "differs from the reference")


SCORERS: dict[str, Scorer] = {
    "judge": judge,
    "reference": reference,
    "llm": llm,
    "agentcpm": llm,  # the name that AgentCPM data sets use
    "exact": exact,
}


def build_context(config: RewardConfig, *, run: str = "") -> ScoringContext:
    """Decide who judges: reward.judge.kind, JUDGE_ENDPOINTS and the TEACHER_* variables. No request is made here.

    `run` names the account that all processes of a run share; "" opens one of its own. Raises UserError for an unknown
    default scorer, kind "llm" without an endpoint, half-set variables, or a mode that needs an LLM judge.
    """
    if config.default_scorer not in SCORERS:
        raise UserError(f"reward.default_scorer = {config.default_scorer!r}: {_known(config.default_scorer)}")
    if config.judge.kind == "reference":
        return _offline(config, "offline reference judge (reward.judge.kind = reference)")
    try:
        endpoints = endpoints_from_env()
        judge = _llm_judge(endpoints, config, run=run) if endpoints else None
    except ValueError as exc:
        raise UserError(str(exc)) from exc
    if judge:
        return ScoringContext(config, judge.name, judge)
    if config.judge.kind == "llm":
        raise UserError(
            "reward.judge.kind = 'llm': the LLM judge needs TEACHER_API_KEY, TEACHER_MODEL and TEACHER_BASE_URL. "
            "Set them in .env, or use --set reward.judge.kind=reference"
        )
    return _offline(config, "offline reference judge (no TEACHER_* endpoint set)")


def _offline(config: RewardConfig, name: str) -> ScoringContext:
    if config.judge.mode != "pointwise":
        raise UserError(
            f"reward.judge.mode = {config.judge.mode!r}: the offline reference judge grades pointwise only. Set "
            "TEACHER_API_KEY, TEACHER_MODEL and TEACHER_BASE_URL, or use --set reward.judge.mode=pointwise"
        )
    return ScoringContext(config, name)


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
        raise UserError(f"question {episode.question.id}: scorer {name!r}: {_known(name)}")
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
    return await SCORERS[name](question, episode.model_copy(update={"final_answer": answer}), context)


def check_scorers(questions: Sequence[Question], context: ScoringContext | None = None) -> None:
    """Raise UserError naming the rows (from 1) whose scorer is unknown, or, given a context, cannot run in it."""
    problems = []
    for row, question in enumerate(questions, start=1):
        name = question.scorer
        if name and name not in SCORERS:
            problems.append(f"row {row} ({question.id}): scorer {name!r}: {_known(name)}")
        elif context and not context.llm and name and SCORERS[name] is llm:
            problems.append(f"row {row} ({question.id}): scorer {name!r} needs the TEACHER_* variables")
    if problems:
        more = [f"... and {len(problems) - SHOWN_ROWS} more"] if len(problems) > SHOWN_ROWS else []
        raise UserError("\n".join(["unknown or unusable scorers:", *problems[:SHOWN_ROWS], *more]))


def _known(name: str) -> str:
    near = process.extractOne(name, list(SCORERS), score_cutoff=60)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"no such scorer. There are: {', '.join(SCORERS)}{hint}"


def strip_thinking(text: str) -> str:
    """`text` without <think> blocks, also one that the prompt opened or that the length limit left open."""
    kept: list[str] = []
    is_open = False
    for piece in re.split(r"(</?think>)", text):
        if piece == "</think>" and not is_open:
            kept.clear()
        if piece in ("<think>", "</think>"):
            is_open = piece == "<think>"
        elif not is_open:
            kept.append(piece)
    return "".join(kept).strip()


def extract_answer(text: str, schema: str) -> str:
    """What the answer says: without thoughts and, for schema "answer" or "boxed", the last marked part ("" if none)."""
    text = strip_thinking(text)
    if schema == "answer":
        found = re.findall(r"<answer>((?:(?!<answer>).)*?)</answer>", text, flags=re.DOTALL | re.IGNORECASE)
        return found[-1].strip() if found else ""
    return _last_boxed(text) if schema == "boxed" else text


def _last_boxed(text: str) -> str:
    r"""The content of the last complete \boxed{...} or \fbox{...}, braces inside included."""
    open_braces: list[re.Match[str]] = []
    start, found = -1, ""
    for match in re.finditer(r"\\(?:boxed|fbox)\s*\{|\\?[{}]", text):
        if match[0] == "}" and open_braces:
            opening = open_braces.pop()
            if len(opening[0]) > 2 and opening.start() > start:
                start, found = opening.start(), text[opening.end() : match.start()].strip()
        elif match[0] == "{" or len(match[0]) > 2:
            open_braces.append(match)
    return found


def _plain(text: str) -> str:
    text = re.sub(r"\s+", "", unicodedata.normalize("NFKC", text)).casefold().rstrip("。.!;,、")
    try:
        return repr(float(text))
    except ValueError:
        return text
