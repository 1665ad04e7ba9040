"""Scores for the answers of one group: each alone (pointwise), by duels (pairwise) or by one ranking (groupwise).

Pairwise and groupwise values tell how an answer compares with the others of its group: 1 the best, 0 the worst, ties
share. They say nothing across groups, which is all that GRPO needs. Answers that say nothing (gates.py) are worse than
all others and cost nothing; equal answers are judged once. Fewer than two different answers are graded pointwise.
Guarantees: a fault leaves the answers concerned unscored; an unusable ranking falls back to pointwise.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from itertools import combinations

from reward_client.errors import JudgeFault, JudgeUnparsable
from reward_client.judge import LLMJudge, all_or_fault
from reward_client.schema import GroupScore, GroupVerdict, JudgeItem, Mode, Usage

Scores = Mapping[str, GroupScore]


async def grade_group(
    judge: LLMJudge, item: JudgeItem, answers: Sequence[str], *, mode: Mode, n_worse: int = 0
) -> GroupVerdict:
    """A score for each of `answers` to the question of `item` (whose own answer is not looked at).

    `n_worse`: answers of the group that are not in `answers` because they are known to be worth 0.
    """
    gated = {text: why for text in answers if (why := judge.gate(item.question, text))}
    standing = [text for text in answers if text not in gated]
    by_text: dict[str, GroupScore] = {
        text: GroupScore(value=0.0, explanation=f"{why} (not sent to the judge)") for text, why in gated.items()
    }
    grading = _Grading(judge, item, standing, n_worse=n_worse + len(answers) - len(standing))
    by_text |= await grading.scores("pointwise" if len(set(standing)) < 2 else mode)
    return GroupVerdict(scores=[by_text[text] for text in answers], fell_back=grading.fell_back, usage=grading.usage)


class _Grading:
    """One group on its way. `answers` may hold equal ones."""

    def __init__(self, judge: LLMJudge, item: JudgeItem, answers: Sequence[str], *, n_worse: int) -> None:
        self.judge = judge
        self.item = item
        self.answers = answers
        self.different = sorted(set(answers))
        self.n_worse = n_worse
        self.usage = Usage()
        self.fell_back = False

    async def scores(self, mode: Mode) -> Scores:
        """The score of each different answer."""
        if mode == "pointwise":
            return await self._pointwise()
        try:
            return await (self._pairwise() if mode == "pairwise" else self._groupwise())
        except JudgeUnparsable as fault:
            self.usage += fault.usage
            self.fell_back = True
            return await self._pointwise()
        except JudgeFault as fault:
            self.usage += fault.usage
            return {text: GroupScore(unscored=fault.kind, explanation=str(fault)) for text in self.different}

    async def _pointwise(self) -> Scores:
        async def score(text: str) -> GroupScore:
            try:
                verdict = await self.judge.grade(self.item.model_copy(update={"answer": text}))
            except JudgeFault as fault:
                self.usage += fault.usage
                return GroupScore(unscored=fault.kind, explanation=str(fault))
            self.usage += verdict.usage
            return GroupScore(value=verdict.overall, explanation=verdict.explanation)

        scores = await asyncio.gather(*(score(text) for text in self.different))
        return dict(zip(self.different, scores, strict=True))

    async def _pairwise(self) -> Scores:
        pairs = list(combinations(self.different, 2))
        duels = [self.judge.compare(self.item.model_copy(update={"answer": a}), b) for a, b in pairs]
        verdicts = await all_or_fault(duels)
        beaten = {text: float(self.n_worse) for text in self.different}
        for (first, second), verdict in zip(pairs, verdicts, strict=True):
            self.usage += verdict.usage
            share = {"first": 1.0, "tie": 0.5, "second": 0.0}[verdict.winner]
            beaten[first] += share * self.answers.count(second)
            beaten[second] += (1 - share) * self.answers.count(first)
        return {text: self._score(text, n, "won") for text, n in beaten.items()}

    async def _groupwise(self) -> Scores:
        order = list(self.different)
        random.Random(self.item.question).shuffle(order)  # no place of the list belongs to the best or the shortest
        reply, usage = await self.judge.rank(self.item, order)
        self.usage += usage
        beaten = {}
        below = float(self.n_worse)
        for tier in reversed(reply.ranking):
            texts = [order[number - 1] for number in tier]
            size = sum(self.answers.count(text) for text in texts)
            beaten |= {text: below + (size - self.answers.count(text)) / 2 for text in texts}
            below += size
        return {text: self._score(text, n, f"ranked: {reply.reason}") for text, n in beaten.items()}

    def _score(self, text: str, beaten: float, how: str) -> GroupScore:
        """`beaten`: how many answers this one is better than, ties counting half; its own copies are ties."""
        n_others = len(self.answers) + self.n_worse - 1
        better_than = beaten + (self.answers.count(text) - 1) / 2
        return GroupScore(
            value=better_than / n_others, explanation=f"better than {better_than:g} of {n_others} others; {how}"
        )
