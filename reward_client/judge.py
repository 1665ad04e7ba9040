"""LLMs as judges of medical answers: question + reference + evidence + answer -> Verdict; and which answer is better.

Guarantees: the judge sees the reference and the evidence; a verdict is read only from one strict JSON object; text
from outside stands between markers that it cannot forge; every failure is a JudgeFault, never a number; the same
question to the same judge is asked once by the processes that share `folder`, for as long as the folder is kept (and
more often where several of them ask at the same moment).
`overall` is gated by accuracy (see parsing.py). Groups are graded in groups.py.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from reward_client.chain import AGAIN, Answer, Chain, Request
from reward_client.client import FORMS, Dialect, JudgeBadRequest
from reward_client.errors import JudgeFault, JudgeFolderFault, JudgeUnparsable, JudgeUnreachable
from reward_client.gates import why_zero
from reward_client.ledger import Ledger, Spending
from reward_client.parsing import (
    CRITERIA_SCHEMA,
    GROUP_SCHEMA,
    PAIR_SCHEMA,
    GroupReply,
    PairReply,
    overall,
    parse_criteria,
    parse_pair,
    ranking_parser,
)
from reward_client.prompting import (
    FORMAT,
    MAX_ANSWER_CHARS,
    build_group_messages,
    build_messages,
    load_prompt,
    read_prompt,
)
from reward_client.schema import Budget, Criteria, JudgeEndpoint, JudgeItem, PairVerdict, Usage, Verdict

logger = logging.getLogger(__name__)

NOTHING = Criteria(accuracy=0, completeness=0, clarity=0, professionalism=0)
TOKENS_PER_RANK = 16
TRIVIAL = JudgeItem(question="1 + 1 = ?", reference="2", answer="2")


class _Graded(BaseModel):
    """What is kept of a single verdict."""

    criteria: Criteria
    raw: str = ""
    model: str = ""


class LLMJudge:
    """Grades answers with models behind OpenAI-compatible endpoints, the first of which is asked while it works.

    `rubric`, `pair_rubric` and `group_rubric` name files of reward_client/prompts without .txt; `prompt` is a file of
    one's own instead of the first (see prompting.read_prompt). `timeout_s` bounds one verdict with all its tries, not
    counting the wait for one of the `concurrency` places that this process has at each endpoint. `folder` holds what is
    shared between processes (cache, limits a minute, budget); without one a temporary folder is shared with forks.
    `run` names the account of `budget`. Raises ValueError for an unknown rubric, no endpoint, or a budget of money
    without prices.
    """

    def __init__(
        self,
        endpoints: JudgeEndpoint | Sequence[JudgeEndpoint],
        *,
        rubric: str = "rubric_zh",
        prompt: Path | None = None,
        pair_rubric: str = "pairwise_zh",
        group_rubric: str = "groupwise_zh",
        timeout_s: float = 60.0,
        max_tokens: int = 512,
        attempts: int = 3,
        concurrency: int = 16,
        rpm: int = 0,
        tpm: int = 0,
        budget: Budget | None = None,
        folder: Path | None = None,
        run: str = "",
    ) -> None:
        self.endpoints = [endpoints] if isinstance(endpoints, JudgeEndpoint) else list(endpoints)
        budget = budget or Budget()
        check_endpoints(self.endpoints, budget)
        self._prompt = prompt
        self._rubrics = {
            "point": read_prompt(prompt) if prompt else load_prompt(rubric),
            "pair": load_prompt(pair_rubric),
        }
        self._rubrics["group"] = load_prompt(group_rubric)
        self._max_tokens = max_tokens
        self._ledger = Ledger(folder) if folder else Ledger.temporary()
        self.spending = Spending(self._ledger, run=run or secrets.token_hex(8), budget=budget)
        self._chain = Chain(
            self.endpoints,
            ledger=self._ledger,
            spending=self.spending,
            timeout_s=timeout_s,
            attempts=attempts,
            concurrency=concurrency,
            rpm=rpm,
            tpm=tpm,
        )

    @property
    def name(self) -> str:
        """Models and addresses, and which prompt where it is not a bundled one, for people; without the keys."""
        names = ", else ".join(str(endpoint) for endpoint in self.endpoints)
        mark = hashlib.sha256(self.prompt.encode()).hexdigest()[:8]
        return f"{names}, prompt {self._prompt.name} ({mark})" if self._prompt else names

    @property
    def prompt(self) -> str:
        """The system message of a single grading."""
        return self._rubrics["point"]

    def gate(self, question: str, answer: str) -> str:
        """Why the answer is worth 0 without a call; "" where it must be judged."""
        return why_zero(question=question, answer=answer, rubric=self._rubrics["point"])

    async def grade(self, item: JudgeItem) -> Verdict:
        """The verdict on one answer. Raises JudgeFault; which one tells what was wrong (see errors.py)."""
        gated = self.gate(item.question, item.answer)
        if gated:
            return Verdict(criteria=NOTHING, overall=0.0, explanation=f"{gated} (not sent to the judge)", gated=gated)
        request = self._request(build_messages(self._rubrics["point"], item), "verdict", CRITERIA_SCHEMA)
        kept, usage = await self._once("point", item.model_dump(), request, parse_criteria, _Graded, to_keep=_graded)
        criteria = kept.criteria
        return Verdict(
            criteria=criteria,
            raw=kept.raw,
            model=kept.model,
            overall=overall(criteria),
            explanation=criteria.reason,
            usage=usage,
            answer_cut=len(item.answer) > MAX_ANSWER_CHARS,
            cached=usage.calls == 0,
        )

    async def compare(self, item: JudgeItem, other: str) -> PairVerdict:
        """Whether the answer of `item` ("first") or `other` ("second") is better, asked in both orders at once.

        Raises JudgeFault when either order cannot be had.
        """
        pair = [(item.answer, other), (other, item.answer)]
        orders = [self._better(item, list(answers)) for answers in pair]
        replies = await gather_or_fault(orders, usage_of=lambda replies: replies[1])
        (there, usage_there), (back, usage_back) = replies
        agreed = there.better == {0: 0, 1: 2, 2: 1}[back.better]
        winner = {0: "tie", 1: "first", 2: "second"}[there.better if agreed else 0]
        return PairVerdict.model_validate(
            {"winner": winner, "agreed": agreed, "explanation": there.reason, "usage": usage_there + usage_back}
        )

    async def _better(self, item: JudgeItem, answers: list[str]) -> tuple[PairReply, Usage]:
        messages = build_group_messages(self._rubrics["pair"], item, answers)
        request = self._request(messages, "comparison", PAIR_SCHEMA)
        return await self._once("pair", {**item.model_dump(), "answer": answers}, request, parse_pair, PairReply)

    async def rank(self, item: JudgeItem, answers: Sequence[str]) -> tuple[GroupReply, Usage]:
        """One call that ranks `answers` to the question of `item` (whose own answer is not looked at).

        Raises JudgeUnparsable at the first ranking that cannot be used: grading each alone is better than asking again.
        """
        messages, content = build_group_messages(self._rubrics["group"], item, answers), item.model_dump()
        request = self._request(messages, "ranking", GROUP_SCHEMA, more_tokens=TOKENS_PER_RANK * len(answers))
        parse, once = ranking_parser(len(answers)), (JudgeUnreachable,)
        return await self._once("group", content | {"answer": [*answers]}, request, parse, GroupReply, again=once)

    async def preflight(self) -> None:
        """Have each endpoint grade one trivial answer, to find a wrong key, model or address before the first step,
        and the highest rung of output forms that it masters.

        Raises JudgeFault whose text says value, rule and remedy. An endpoint that is only down is a warning as long as
        another one answers.
        """
        down: list[JudgeFault] = []
        for endpoint in self.endpoints:
            try:
                await self._find_form(endpoint)
            except JudgeUnreachable as fault:
                down.append(fault)
                logger.warning("%s", fault)
        if len(down) == len(self.endpoints):
            raise down[0]

    async def _find_form(self, endpoint: JudgeEndpoint) -> None:
        fault: JudgeFault | None = None
        messages = build_messages(self._rubrics["point"], TRIVIAL)
        for form in FORMS:
            self._chain.remember(endpoint, Dialect(form=form))
            try:
                await self._chain.ask(
                    self._request(messages, "verdict", CRITERIA_SCHEMA),
                    parse_criteria,
                    endpoints=[endpoint],
                    again=(JudgeUnreachable,),
                )
                return
            except (JudgeUnparsable, JudgeBadRequest) as exc:
                fault = exc
        assert fault is not None
        if not isinstance(fault, JudgeUnparsable):
            raise fault
        raise JudgeUnparsable(
            f"{fault}. A judge must answer with the JSON verdict of its rubric. Choose a stronger "
            "TEACHER_MODEL, or raise the limit on the verdict's length if the answer was cut"
        ) from None

    def _request(
        self, messages: list[dict[str, str]], name: str, schema: dict[str, Any], *, more_tokens: int = 0
    ) -> Request:
        return Request(messages=messages, max_tokens=self._max_tokens + more_tokens, name=name, schema=schema)

    async def _once[M: BaseModel](
        self,
        mode: str,
        content: dict[str, Any],
        request: Request,
        parse: Callable[[str], Any],
        form: type[M],
        *,
        to_keep: Callable[[Answer[Any]], dict[str, Any]] = lambda answer: answer.value.model_dump(),
        again: tuple[type[JudgeFault], ...] = AGAIN,
    ) -> tuple[M, Usage]:
        """What is kept of the answer, from the cache where any of the endpoints was asked the same before."""
        keys = {endpoint.id: self._key(endpoint, mode, content) for endpoint in self.endpoints}
        usage = Usage(cache_hits=1)

        async def compute() -> tuple[str, dict[str, Any]]:
            nonlocal usage
            answer = await self._chain.ask(request, parse, again=again)
            usage = answer.usage
            return keys[answer.endpoint.id], to_keep(answer)

        kept = await self._ledger.once(list(keys.values()), compute)
        try:
            return form.model_validate(kept), usage
        except ValidationError:
            raise JudgeFolderFault(
                f"judge folder {self._ledger.folder}: holds a verdict that breaks the rules; delete the folder"
            ) from None

    def _key(self, endpoint: JudgeEndpoint, mode: str, content: dict[str, Any]) -> str:
        parts = [str(endpoint), mode, FORMAT, self._rubrics[mode], content]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def check_endpoints(endpoints: Sequence[JudgeEndpoint], budget: Budget) -> None:
    """Raise ValueError where nobody can be asked, or money cannot be counted."""
    if not endpoints:
        raise ValueError("a judge needs at least one endpoint")
    unpriced = [str(e) for e in endpoints if not (e.prompt_price and e.completion_price)]
    if budget.cost and unpriced:
        raise ValueError(
            f"reward.judge.budget_cost = {budget.cost:g}: {', '.join(unpriced)} has no prompt_price and "
            "completion_price. Give them in the file JUDGE_ENDPOINTS, or limit calls or tokens instead"
        )


def _graded(answer: Answer[Criteria]) -> dict[str, Any]:
    model = answer.reply.model or answer.endpoint.model
    return {"criteria": answer.value.model_dump(), "raw": answer.reply.text, "model": model}


async def gather_or_fault[T](tasks: Sequence[Awaitable[T]], *, usage_of: Callable[[T], Usage]) -> list[T]:
    """All results; when some raise JudgeFault, the first fault after all have ended, with what all of them cost."""
    results = await asyncio.gather(*tasks, return_exceptions=True)
    good = [result for result in results if not isinstance(result, BaseException)]
    bad = [result for result in results if isinstance(result, BaseException)]
    faults = [fault for fault in bad if isinstance(fault, JudgeFault)]
    if len(faults) < len(bad):
        raise next(fault for fault in bad if not isinstance(fault, JudgeFault))
    if faults:
        faults[0].usage = sum([fault.usage for fault in faults] + [usage_of(result) for result in good], Usage())
        raise faults[0]
    return good
