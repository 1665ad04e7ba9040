"""Reading a judge's reply: one strict JSON object, or a JudgeUnparsable. Nothing is guessed.

Plain words or a code fence around the object are fine, text before </think> (or another model's mark) is ignored, and
reasoning that does not end is refused. No object, several different ones, duplicate keys, NaN, infinity, and values of
another type or range are refused; so is a remark behind the object that holds a number or a brace, because it may take
the verdict back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reward_client.errors import JudgeUnparsable
from reward_client.schema import Criteria

WEIGHTS = {"accuracy": 0.5, "completeness": 0.3, "clarity": 0.1, "professionalism": 0.1}
_THOUGHT = (
    r"(?:\w+:)?(?:think|thinking|thought|reasoning)"  # <think>, <seed:think>; ◁think▷ of Kimi, [THINK] of Mistral
)
_REASONING = re.compile(rf".*(?:[<◁\[]/{_THOUGHT}[>▷\]]|<\|channel\|>final)", re.DOTALL | re.IGNORECASE)
_REASONING_BEGINS = re.compile(rf"[<◁\[]{_THOUGHT}\b|<\|channel\|>analysis", re.IGNORECASE)
# 零点二, 五分, 百分之三十; 十分 says "very".
_NUMBER = re.compile(r"\d|[零〇]|[一二两三四五六七八九十]点[一二三四五六七八九]|[一二两三四五六七八九]分|百分之")
M = TypeVar("M", bound=BaseModel)


class _Reply(BaseModel):
    """Base of what a judge may say: strict types, further keys do no harm."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class PairReply(_Reply):
    """1 or 2: the better answer; 0: equally good."""

    better: int = Field(ge=0, le=2)
    reason: str = ""


class GroupReply(_Reply):
    """Numbers of answers (from 1) from best to worst; those in one list are equally good."""

    ranking: list[Annotated[list[int], Field(min_length=1)]]
    reason: str = ""


class KeepReply(_Reply):
    """Whether a question is worth keeping."""

    keep: bool
    reason: str = ""


CRITERIA_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {**{name: {"type": "number"} for name in WEIGHTS}, "reason": {"type": "string"}},
    "required": [*WEIGHTS, "reason"],
    "additionalProperties": False,
}
PAIR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"better": {"type": "integer", "enum": [0, 1, 2]}, "reason": {"type": "string"}},
    "required": ["better", "reason"],
    "additionalProperties": False,
}
GROUP_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "ranking": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
        "reason": {"type": "string"},
    },
    "required": ["ranking", "reason"],
    "additionalProperties": False,
}


KEEP_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"keep": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["keep", "reason"],
    "additionalProperties": False,
}


def parse_criteria(text: str) -> Criteria:
    """The four scores of one answer. Raises JudgeUnparsable."""
    return _read(text, Criteria)


def parse_pair(text: str) -> PairReply:
    """Which of two answers is better. Raises JudgeUnparsable."""
    return _read(text, PairReply)


def parse_keep(text: str) -> KeepReply:
    """Whether to keep a question. Raises JudgeUnparsable."""
    return _read(text, KeepReply)


def ranking_parser(n_answers: int) -> Callable[[str], GroupReply]:
    """A parser for the ranking of `n_answers` answers, in which each number from 1 must stand exactly once."""

    def parse(text: str) -> GroupReply:
        reply = _read(text, GroupReply)
        named = sorted(number for tier in reply.ranking for number in tier)
        if named != list(range(1, n_answers + 1)):
            raise JudgeUnparsable(f"the ranking names {named[:40]}, but must name each of 1 to {n_answers} once")
        return reply

    return parse


def overall(criteria: Criteria) -> float:
    """One number in [0, 1]: the weighted mean of the criteria, but never more than accuracy.

    So a wrong answer scores low however fluent it is: accuracy 0.1 and all else 1 give 0.1, not the mean of 0.55.
    """
    mean = sum(weight * getattr(criteria, name) for name, weight in WEIGHTS.items())
    return min(criteria.accuracy, mean)


def _read(text: str, model: type[M]) -> M:
    reasoned = _REASONING.match(text)  # not a search, which would take the square of a long text's length
    said = text[reasoned.end() :] if reasoned else text
    found, remark = _json_objects(said)
    if _REASONING_BEGINS.search(said[: said.find("{")]) or _REASONING_BEGINS.search(remark):
        raise JudgeUnparsable("reasoning that does not end")
    if not found:
        raise JudgeUnparsable(f"no JSON object in {text[:120]!r}")
    if any(other != found[0] for other in found[1:]):
        raise JudgeUnparsable(f"{len(found)} JSON objects that differ")
    if _NUMBER.search(remark):
        raise JudgeUnparsable(
            f"a remark with a number behind the JSON object, which may take it back: {remark[:120]!r}"
        )
    try:
        return model.model_validate(found[0])
    except ValidationError as exc:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors())
        raise JudgeUnparsable(f"the verdict breaks the rules: {problems}") from None


def _json_objects(text: str) -> tuple[list[dict[str, Any]], str]:
    """All top-level objects, and the text behind the last. A brace that opens no valid object makes the whole text
    invalid: no guessing."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    objects, position, end = [], text.find("{"), 0
    while position >= 0:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as exc:
            raise JudgeUnparsable(f"invalid JSON at character {position}: {type(exc).__name__}") from None
        objects.append(value)
        position = text.find("{", end)
    return objects, text[end:]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) != len(dict(pairs)):
        raise ValueError("duplicate keys")
    return dict(pairs)
