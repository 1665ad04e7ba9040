"""Reading a judge's reply: one strict JSON object and nothing else, or a JudgeUnparsable. Nothing is guessed.

Taken off are a code fence around the object and, before it, reasoning that its mark closes (</think> and its kin, also
where the model's template opened it). Whatever else stands beside the object, words, a second object, a mark that
nobody knows, may take the verdict back, so there is none. Duplicate keys, NaN, infinity, numbers as text and values out
of range are refused; further keys do no harm. `inert` takes the meaning that it has here from a text that is judged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, NoReturn

from pydantic import Field, ValidationError

from foundation.errors import problems_of
from reward_client.errors import JudgeUnparsable
from reward_client.schema import Criteria, Reply

WEIGHTS = {"accuracy": 0.5, "completeness": 0.3, "clarity": 0.1, "professionalism": 0.1}
# <think>, <seed:think>; ◁think▷ of Kimi, [THINK] of Mistral, channels of gpt-oss.
_THOUGHT = r"(?:\w{1,20}:)?(?:think|thinking|thought|reasoning)"
_OPENS = rf"[<◁\[]{_THOUGHT}[>▷\]]"
_CLOSES = rf"(?:[<◁\[]/{_THOUGHT}[>▷\]]|<\|channel\|>final(?:\s*<\|constrain\|>\s*\w+)?<\|message\|>)"
_REASONING = re.compile(rf".*?{_CLOSES}(?:\s*{_OPENS}.*?{_CLOSES})*", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```(?:json\w{0,2})?\s*", re.IGNORECASE)
_READ = re.compile(rf'(?P<object>\{{(?=\s*"))|{_OPENS}|{_CLOSES}', re.IGNORECASE)


class PairReply(Reply):
    """1 or 2: the better answer; 0: equally good."""

    better: int = Field(ge=0, le=2)
    reason: str = ""


class GroupReply(Reply):
    """Numbers of answers (from 1) from best to worst; those in one list are equally good."""

    ranking: list[Annotated[list[int], Field(min_length=1)]]
    reason: str = ""


class KeepReply(Reply):
    """Whether a question is worth keeping."""

    keep: bool
    reason: str = ""


@dataclass(frozen=True)
class ReplyForm[M: Reply]:
    """A JSON object that a judge can be asked for. `parse` reads it from a reply, or raises JudgeUnparsable."""

    name: str
    schema: dict[str, Any]
    parse: Callable[[str], M]


def _form[M: Reply](name: str, model: type[M], **properties: Any) -> ReplyForm[M]:
    """An object with these keys and a reason, all of them needed."""
    properties["reason"] = {"type": "string"}
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return ReplyForm(name, schema, lambda text: _read(text, model))


VERDICT = _form("verdict", Criteria, **{name: {"type": "number"} for name in WEIGHTS})
COMPARISON = _form("comparison", PairReply, better={"type": "integer", "enum": [0, 1, 2]})
RANKING = _form(
    "ranking", GroupReply, ranking={"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
)
DECISION = _form("decision", KeepReply, keep={"type": "boolean"})


def ranking_of(n_answers: int) -> ReplyForm[GroupReply]:
    """A ranking in which each number from 1 to `n_answers` must stand exactly once."""

    def parse(text: str) -> GroupReply:
        reply = RANKING.parse(text)
        named = sorted(number for tier in reply.ranking for number in tier)
        if named != list(range(1, n_answers + 1)):
            raise JudgeUnparsable(f"the ranking names {named[:40]}, but must name each of 1 to {n_answers} once")
        return reply

    return replace(RANKING, parse=parse)


def overall(criteria: Criteria) -> float:
    """One number in [0, 1]: the weighted mean of the criteria, but never more than accuracy.

    So a wrong answer scores low however fluent it is: accuracy 0.1 and all else 1 give 0.1, not the mean of 0.55.
    """
    mean = sum(weight * getattr(criteria, name) for name, weight in WEIGHTS.items())
    return min(criteria.accuracy, mean)


def inert(text: str, taken_out: str) -> str:
    """`text` with nothing in it that could be read here: a judge that repeats it has given no verdict by that."""
    return _READ.sub(lambda match: "｛" if match["object"] else taken_out, text)


def _read[M: Reply](text: str, model: type[M]) -> M:
    reply = text.strip()
    if not reply.startswith(("{", "```")) and (reasoned := _REASONING.match(reply)):
        reply = reply[reasoned.end() :].strip()
    if len(reply) > 6 and reply.endswith("```") and (fence := _FENCE.match(reply)):
        reply = reply[fence.end() : -3].strip()
    try:
        tree = _DECODER.decode(reply)
    except (ValueError, RecursionError) as exc:
        why = str(exc)[:80] or type(exc).__name__
        raise JudgeUnparsable(f"the reply is not one JSON object and nothing else ({why}): {text[:120]!r}") from None
    try:
        return model.model_validate(tree)
    except ValidationError as exc:
        raise JudgeUnparsable(f"the verdict breaks the rules: {problems_of(exc)}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) != len(dict(pairs)):
        raise ValueError("duplicate keys")
    return dict(pairs)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
