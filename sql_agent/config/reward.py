"""Section `reward`: what an episode earns, and who says so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from sql_agent.config.node import Node, option


class JudgeConfig(Node):
    """Who grades answers, and how. Endpoints come from the environment (TEACHER_* or JUDGE_ENDPOINTS)."""

    kind: Literal["auto", "llm", "reference"] = option(
        "auto", "auto: the LLM judge if an endpoint is set, else the offline reference judge"
    )
    mode: Literal["pointwise", "pairwise", "groupwise"] = option(
        "pointwise", "training: grade each answer alone, by duels within its group, or by one ranking of the group"
    )
    language: Literal["zh", "en"] = option("zh", "language of the bundled rubric")
    prompt: str = option(
        "",
        "text file with [a rubric of your own](20-reward.md#a-rubric-of-your-own); relative paths start at "
        "the recipe's folder, then at the one you start in and the project root",
    )
    timeout_s: float = option(60.0, "longest wait for one verdict", gt=0)
    max_tokens: int = option(512, "longest verdict", ge=16)
    attempts: int = option(3, "tries per verdict and endpoint, all kinds of failure together", ge=1)
    concurrency: int = option(16, "most calls in flight per endpoint, shared by the runners, one each at least", ge=1)
    rpm: int = option(0, "requests a minute per endpoint; 0: no limit", ge=0)
    tpm: int = option(0, "tokens a minute per endpoint; 0: no limit", ge=0)
    budget_calls: int = option(0, "most calls of one run, then nothing is graded; 0: no limit", ge=0)
    budget_tokens: int = option(0, "most tokens of one run; 0: no limit", ge=0)
    budget_cost: float = option(0.0, "most money of one run, in the currency of the endpoints' prices; 0: any", ge=0)
    folder: str = option(
        ".cache/judge", "verdicts, limits and budget of all processes; paths start at the project root", min_length=1
    )

    def problems(self) -> Iterator[str]:
        if self.prompt and self.mode != "pointwise":
            yield (
                f"reward.judge.prompt = {self.prompt!r} grades answers alone, and reward.judge.mode = {self.mode!r} "
                "compares them with prompts of its own: leave the prompt out, or set reward.judge.mode = pointwise"
            )


class RewardModelConfig(Node):
    """The reward model of the scorer `reward_model`. Its address comes from REWARD_MODEL_URL."""

    scale_file: str = option("", "JSON file that maps raw logits to [0, 1]; empty: the server must send rewards")
    send_reference: bool = option(False, "send the reference answer too, as a model that was trained with them needs")
    timeout_s: float = option(30.0, "longest wait for one score, all tries together", gt=0)
    attempts: int = option(3, "failed tries per score; a server that starts again or asks to wait is waited for", ge=1)


# Terms that look at how an answer was found, and not at what it says.
SHAPING = ("length_penalty", "overlong_penalty", "step_bonus", "turn_rank")
# Terms that are taken off.
PENALTIES = ("length_penalty", "overlong_penalty")


class TermConfig(Node):
    """One part of the reward: weight x the scorer's value."""

    scorer: str = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0, le=100)
    target: int = Field(default=0, ge=0)
    limit: int = Field(default=0, ge=0)
    name: str = ""

    @property
    def part(self) -> str:
        """The name of what it pays; without one of its own, that of the scorer or function."""
        return self.name or self.scorer.rpartition(":")[2]

    @property
    def factor(self) -> float:
        """What its value in [0, 1] is multiplied by: a penalty is taken off."""
        return -self.weight if self.scorer in PENALTIES else self.weight


class RewardConfig(Node):
    """reward = sql_bonus (once, for SQL that really executed) + each term's weight x its value in [0, 1]."""

    sql_bonus: float = option(0.1, "paid once for a query that ran without error", ge=0, le=1)
    default_scorer: str = option("judge", "scorer of rows whose `scorer` column is empty")
    terms: list[TermConfig] = option([], "what those rows earn instead, in [several parts](20-reward.md#several-terms)")
    reword: float = option(
        0.0,
        "most to which the reward model may raise [an answer in other words](20-reward.md#other-words) "
        "that the offline judge grades by its quotes; 0: off",
        ge=0,
        le=1,
    )
    scorer_modules: list[str] = option([], "modules or .py files with scorers of your own, imported before the run")
    reward_model: RewardModelConfig = RewardModelConfig()
    judge: JudgeConfig = JudgeConfig()

    @property
    def turn_parts(self) -> frozenset[str]:
        """The parts that compare the turns of a group's answers."""
        return frozenset(term.part for term in self.terms if term.scorer == "turn_rank")

    @property
    def answer_parts(self) -> frozenset[str]:
        """The parts that say what an answer is worth."""
        return frozenset(term.part for term in self.terms if term.scorer not in SHAPING) or frozenset({"answer"})

    def terms_for(self, scorer: str) -> list[TermConfig]:
        """What a row is graded by: the scorer that it names, else the terms, else the default scorer."""
        if self.terms and not scorer:
            return self.terms
        return [TermConfig(scorer=scorer or self.default_scorer, name="answer")]

    def problems(self) -> Iterator[str]:
        if self.terms and self.default_scorer != "judge":
            yield (
                f"reward.default_scorer = {self.default_scorer!r} grades nothing beside reward.terms: make it one of "
                "the terms, and leave the key out (or set it to judge)"
            )
        if self.turn_parts and all(term.scorer in SHAPING for term in self.terms):
            yield (
                f"reward.terms: {', '.join(term.scorer for term in self.terms)} look at how an answer was found, not "
                'at what it says: add a term that grades it, { scorer = "judge" } for example'
            )
        parts = [term.part for term in self.terms]
        for term, part in zip(self.terms, parts, strict=True):
            if not re.fullmatch(r"[\w.-]+", part) or part in ("sql", "total") or parts.count(part) > 1:
                yield (
                    f"reward.terms: the part {part!r} of {term.scorer!r} must have a name of its own, of letters, "
                    "digits, '_', '.' and '-', and not sql or total. Give the term one: name = ..."
                )
            if term.target and term.scorer not in (*PENALTIES, "step_bonus"):
                yield (
                    f"reward.terms: target = {term.target} is for {', '.join(PENALTIES)} and step_bonus only; leave it "
                    f"out of {term.scorer!r}"
                )
            if term.limit and (term.scorer not in PENALTIES or term.limit <= term.target):
                yield (
                    f"reward.terms: limit = {term.limit} is where {' or '.join(PENALTIES)} is whole, above target = "
                    f"{term.target}; {'raise it' if term.scorer in PENALTIES else 'leave it out'} ({term.scorer!r})"
                )
