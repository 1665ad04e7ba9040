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
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reward_client.chain import AGAIN, Chain
from reward_client.client import ChatReply, JudgeBadRequest
from reward_client.errors import JudgeFault, JudgeUnparsable, JudgeUnreachable
from reward_client.gates import why_zero
from reward_client.ledger import Ledger, Spending
from reward_client.parsing import COMPARISON, RANKING, VERDICT, GroupReply, ReplyForm, overall, ranking_of
from reward_client.prompting import (
    FORMAT,
    MAX_ANSWER_CHARS,
    answer_blocks,
    build_messages,
    group_blocks,
    load_prompt,
    read_prompt,
)
from reward_client.request import FORMS, Dialect, Request
from reward_client.schema import Budget, Criteria, JudgeEndpoint, JudgeItem, PairVerdict, Reply, Usage, Verdict, Winner

logger = logging.getLogger(__name__)

NOTHING = Criteria(accuracy=0, completeness=0, clarity=0, professionalism=0)
TOKENS_PER_RANK = 16
WINNERS: tuple[Winner, ...] = ("tie", "first", "second")
TRIVIAL = JudgeItem(question="1 + 1 = ?", reference="2", answer="2")


class LLMJudge:
    """Grades answers with models behind OpenAI-compatible endpoints, the first of which is asked while it works.

    `language` is that of the bundled rubrics, zh or en; `prompt` is a file of one's own instead of the one for single
    answers (see prompting.read_prompt). `timeout_s` bounds one verdict with all its tries, not counting the wait for
    one of the `concurrency` places that this process has at each endpoint. `folder` holds what is shared between
    processes (cache, limits a minute, budget); without one a temporary folder is shared with forks. `run` names the
    account of `budget`. Raises ValueError for an unknown language, no endpoint, or a budget of money without prices.
    """

    def __init__(
        self,
        endpoints: JudgeEndpoint | Sequence[JudgeEndpoint],
        *,
        language: str = "zh",
        prompt: Path | None = None,
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
        configured = [endpoints] if isinstance(endpoints, JudgeEndpoint) else endpoints
        self.endpoints = [e.model_copy(update={"rpm": e.rpm or rpm, "tpm": e.tpm or tpm}) for e in configured]
        budget = budget or Budget()
        check_endpoints(self.endpoints, budget)
        self._prompt = prompt
        self._rubrics = {
            VERDICT.name: read_prompt(prompt) if prompt else load_prompt(f"rubric_{language}"),
            COMPARISON.name: load_prompt(f"pairwise_{language}"),
            RANKING.name: load_prompt(f"groupwise_{language}"),
        }
        self._max_tokens = max_tokens
        self._ledger = Ledger(folder) if folder else Ledger.temporary()
        self.spending = Spending(self._ledger, run=run or secrets.token_hex(8), budget=budget)
        self._chain = Chain(
            self.endpoints,
            spending=self.spending,
            timeout_s=timeout_s,
            attempts=attempts,
            concurrency=concurrency,
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
        return self._rubrics[VERDICT.name]

    def gate(self, question: str, answer: str) -> str:
        """Why the answer is worth 0 without a call; "" where it must be judged."""
        return why_zero(question=question, answer=answer, rubric=self.prompt)

    async def grade(self, item: JudgeItem) -> Verdict:
        """The verdict on one answer. Raises JudgeFault; which one tells what was wrong (see errors.py)."""
        gated = self.gate(item.question, item.answer)
        if gated:
            return Verdict(criteria=NOTHING, overall=0.0, explanation=f"{gated} (not sent to the judge)", gated=gated)
        criteria, reply = await self._once(VERDICT, answer_blocks(item))
        return Verdict(
            criteria=criteria,
            raw=reply.text,
            model=reply.model,
            overall=overall(criteria),
            explanation=criteria.reason,
            usage=reply.usage,
            answer_cut=len(item.answer) > MAX_ANSWER_CHARS,
            cached=reply.usage.calls == 0,
        )

    async def compare(self, item: JudgeItem, other: str) -> PairVerdict:
        """Whether the answer of `item` ("first") or `other` ("second") is better, asked in both orders at once.

        Raises JudgeFault when either order cannot be had.
        """
        orders = [(item.answer, other), (other, item.answer)]
        there, back = await all_or_fault([self._better(item, answers) for answers in orders])
        agreed = {there.winner, back.winner} in ({"first", "second"}, {"tie"})
        winner = there.winner if agreed else "tie"
        return there.model_copy(update={"winner": winner, "agreed": agreed, "usage": there.usage + back.usage})

    async def _better(self, item: JudgeItem, answers: Sequence[str]) -> PairVerdict:
        reply, answer = await self._once(COMPARISON, group_blocks(item, answers))
        return PairVerdict(winner=WINNERS[reply.better], explanation=reply.reason, usage=answer.usage)

    async def rank(self, item: JudgeItem, answers: Sequence[str]) -> tuple[GroupReply, Usage]:
        """One call that ranks `answers` to the question of `item` (whose own answer is not looked at).

        Raises JudgeUnparsable at the first ranking that cannot be used: grading each alone is better than asking again.
        """
        n, blocks = len(answers), group_blocks(item, answers)
        ranking, answer = await self._once(
            ranking_of(n), blocks, more_tokens=TOKENS_PER_RANK * n, again=(JudgeUnreachable,)
        )
        return ranking, answer.usage

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
        request = self._request(VERDICT, answer_blocks(TRIVIAL))
        for form in FORMS:
            self._chain.remember(endpoint, Dialect(form=form))
            try:
                await self._chain.ask(request, endpoints=[endpoint], again=(JudgeUnreachable,))
                return
            except JudgeBadRequest:
                if form == FORMS[-1]:
                    raise
            except JudgeUnparsable as fault:
                if form == FORMS[-1]:
                    raise JudgeUnparsable(
                        f"{fault}. A judge must answer with the JSON verdict of its rubric. Choose a stronger "
                        "TEACHER_MODEL, or raise the limit on the verdict's length if the answer was cut"
                    ) from None

    def _request(self, form: ReplyForm[Any], blocks: Mapping[str, str], *, more_tokens: int = 0) -> Request:
        return Request(build_messages(self._rubrics[form.name], blocks), self._max_tokens + more_tokens, form)

    async def _once[M: Reply](
        self,
        form: ReplyForm[M],
        blocks: Mapping[str, str],
        *,
        more_tokens: int = 0,
        again: tuple[type[JudgeFault], ...] = AGAIN,
    ) -> tuple[M, ChatReply]:
        """What the reply says, and the reply: from the cache where any of the endpoints was asked the same before, and
        what it said then is still read."""
        keys = {endpoint.id: self._key(endpoint, form, blocks) for endpoint in self.endpoints}
        usage = Usage(cache_hits=1)

        async def compute() -> tuple[str, dict[str, Any]]:
            nonlocal usage
            request = self._request(form, blocks, more_tokens=more_tokens)
            endpoint, reply = await self._chain.ask(request, again=again)
            usage = reply.usage
            return keys[endpoint.id], reply.model_dump(exclude={"usage"})

        def read(stored: Any) -> tuple[M, ChatReply]:
            reply = ChatReply.model_validate(stored)
            return form.parse(reply.text), reply

        parsed, reply = await self._ledger.once(list(keys.values()), read, compute)
        return parsed, reply.model_copy(update={"usage": usage})

    def _key(self, endpoint: JudgeEndpoint, form: ReplyForm[Any], blocks: Mapping[str, str]) -> str:
        parts = [str(endpoint), FORMAT, form.name, self._rubrics[form.name], blocks]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


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


async def all_or_fault(comparisons: Sequence[Awaitable[PairVerdict]]) -> list[PairVerdict]:
    """All verdicts; when some raise JudgeFault, the first fault after all have ended, with what all of them cost."""
    ended = await asyncio.gather(*comparisons, return_exceptions=True)
    faults = [end for end in ended if isinstance(end, JudgeFault)]
    verdicts = [end for end in ended if isinstance(end, PairVerdict)]
    for end in ended:
        if isinstance(end, BaseException) and not isinstance(end, JudgeFault):
            raise end
    if faults:
        faults[0].usage = sum((end.usage for end in [*faults, *verdicts]), Usage())
        raise faults[0]
    return verdicts
