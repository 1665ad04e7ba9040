"""Token ids of LLM calls as bytes: of a prompt what is new since another call of its attempt, by reference.

The gateway writes (`Packer`) and the trainer reads (`linked`); the audit keeps calls in the same parts. Guarantees:
each part is in one place, so that bytes, memory and reading grow with what is new and not with the sum of prompts; a
call that goes on from one that is not there, from more than that one has, or in a circle is a ValueError that names
it, and so is one whose prompt is not the one that was packed (a checksum); a gateway that was started again begins with
whole prompts. Numbers are little-endian: ids unsigned 32-bit, log-probabilities 32-bit floats; base64 in a span.
"""

from __future__ import annotations

import base64
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agl_plugin.proxy.spans import plain_log_probs

IDS_TYPE, NUMBERS_TYPE = "<u4", "<f4"
Array = np.ndarray[Any, Any]
# Attributes of a call's span.
AFTER = "agentgrpo.tokens.after"  # the response id of the call that it goes on from; none: `NEW` is the whole prompt
SHARED = "agentgrpo.tokens.shared"  # how many of its first tokens are those that call saw and sampled
NEW, SAMPLED, LOG_PROBS = (f"agentgrpo.tokens.{name}" for name in ("new", "sampled", "log_probs"))
CHECK = "agentgrpo.tokens.crc32"  # of the bytes of the whole prompt
FINISH = "agentgrpo.tokens.finish_reason"
MOST_TOKENS = 2**26  # of the last calls that a gateway remembers: 256 MiB


class Prompt(Sequence[int]):
    """What a call saw: the first `n_shared` tokens of what call `before` saw and sampled, then `new`; and what it
    `sampled` after that. Its slices are lists."""

    __slots__ = ("before", "n_shared", "new", "sampled")

    def __init__(self, new: Array, sampled: Array, before: Prompt | None = None, n_shared: int = 0) -> None:
        self.new, self.sampled, self.before, self.n_shared = new, sampled, before, n_shared

    @classmethod
    def of(cls, ids: Sequence[int], sampled: Sequence[int] | Array, *, before: Prompt | None = None) -> Prompt:
        """Of numbers, by what they share with the call before."""
        if isinstance(ids, Prompt):
            return ids
        new = array_of(ids)
        n_shared = n_common(new, before.first(before.n_seen_and_sampled)) if before else 0
        return cls(new[n_shared:].copy(), array_of(sampled), before if n_shared else None, n_shared)

    @property
    def n_seen_and_sampled(self) -> int:
        """Tokens of the prompt and of what was sampled after it."""
        return len(self) + len(self.sampled)

    def first(self, n: int) -> Array:
        """So many tokens of the prompt and of what was sampled after it."""
        parts: list[Array] = []
        call: Prompt | None = self
        while call and n:
            for part, place in ((call.sampled, len(call)), (call.new, call.n_shared)):
                if n > place:
                    parts.append(part[: n - place])
                    n = place
            call = call.before
        return np.concatenate(parts[::-1]) if parts else array_of(())

    def __len__(self) -> int:
        return self.n_shared + len(self.new)

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, slice):
            return self[:][place]
        start, stop, step = place.indices(len(self))
        if start >= self.n_shared and step == 1:
            return self.new[start - self.n_shared : max(0, stop - self.n_shared)].tolist()
        return self.first(len(self))[place].tolist()

    def __iter__(self) -> Iterator[int]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self[:] == list(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def array_of(numbers: Sequence[int] | Array) -> Array:
    """Token ids. Raises TypeError for what is no whole number, OverflowError for one outside of 32 bits."""
    return np.array(array("I", numbers), IDS_TYPE)


def n_common(tokens: Array, other: Array) -> int:
    """How many first tokens are the same."""
    n = min(len(tokens), len(other))
    differ = np.flatnonzero(tokens[:n] != other[:n])
    return int(differ[0]) if len(differ) else n


def pack(numbers: Array) -> str:
    return base64.b64encode(numbers.tobytes()).decode()


def unpack(text: Any, kind: str = IDS_TYPE) -> Array:
    """The numbers of a text. Raises ValueError."""
    if not isinstance(text, str):
        raise ValueError(f"{type(text).__name__} in the place of packed numbers")
    return np.frombuffer(base64.b64decode(text, validate=True), kind)


class Packer:
    """Writes the calls of each attempt, each by what is new since the one that was answered before it."""

    def __init__(self) -> None:
        self._last = OrderedDict[Hashable, tuple[str, Array]]()  # attempt -> response id, what was seen and sampled
        self._n_tokens = 0

    def packed(self, attempt: Hashable, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes of the span of this answer; {} where it has no token ids, or several choices."""
        try:
            (choice,), name = answer["choices"], answer["id"]
            prompt, sampled = array_of(answer["prompt_token_ids"]), array_of(choice["token_ids"])
            log_probs = np.array(plain_log_probs(choice.get("logprobs")), NUMBERS_TYPE)
        except (KeyError, TypeError, ValueError, OverflowError):
            return {}
        if not (isinstance(name, str) and name and len(prompt) and len(sampled) and np.isfinite(log_probs).all()):
            return {}
        before, seen = self._last.get(attempt, ("", prompt[:0]))
        n_shared = n_common(prompt, seen)
        self._remember(attempt, name, np.concatenate([prompt, sampled]))
        attributes = {SHARED: n_shared, NEW: pack(prompt[n_shared:]), SAMPLED: pack(sampled), CHECK: zlib.crc32(prompt)}
        if n_shared:
            attributes[AFTER] = before
        if len(log_probs) == len(sampled):
            attributes[LOG_PROBS] = pack(log_probs)
        return {**attributes, FINISH: choice.get("finish_reason") or ""}

    def _remember(self, attempt: Hashable, name: str, tokens: Array) -> None:
        self._n_tokens += len(tokens) - len(self._last.pop(attempt, ("", ()))[1])
        self._last[attempt] = name, tokens
        while self._n_tokens > MOST_TOKENS:
            self._n_tokens -= len(self._last.popitem(last=False)[1][1])


@dataclass(frozen=True)
class Part:
    """A call as its span holds it; `check` is the checksum of its prompt."""

    after: Hashable | None
    n_shared: int
    new: Array
    sampled: Array
    check: int


def part_of(attributes: Mapping[str, Any]) -> Part:
    """What a span's attributes say. Raises ValueError."""
    n_shared, check = attributes.get(SHARED), attributes.get(CHECK)
    if not isinstance(n_shared, int) or not isinstance(check, int):
        raise ValueError(f"{SHARED} is {n_shared!r} and {CHECK} {check!r}, and must be numbers")
    return Part(attributes.get(AFTER), n_shared, unpack(attributes.get(NEW)), unpack(attributes.get(SAMPLED)), check)


def linked(parts: Mapping[Any, Part]) -> dict[Any, Prompt]:
    """The prompts of calls by their names, in whatever order. Raises ValueError for one that cannot be had."""
    prompts: dict[Any, Prompt] = {}
    checks: dict[Any, int] = {}  # of what each call saw and sampled
    for name in parts:
        path: dict[Any, None] = {}
        while name is not None and name not in prompts:
            if name not in parts:
                raise ValueError(f"call {next(reversed(path))} goes on from call {name}, which is not there")
            if name in path:
                raise ValueError(f"call {name} goes on from itself")
            path[name] = None
            name = parts[name].after
        for name in reversed(path):
            prompts[name], check = _prompt(name, parts[name], prompts, checks)
            checks[name] = zlib.crc32(parts[name].sampled, check)
    return prompts


def _prompt(name: Any, part: Part, prompts: Mapping[Any, Prompt], checks: Mapping[Any, int]) -> tuple[Prompt, int]:
    """A call's prompt and its checksum, which goes on from that of the call before where the whole of it is shared."""
    before = prompts[part.after] if part.after is not None else None
    there = before.n_seen_and_sampled if before else 0
    if not 0 <= part.n_shared <= there:
        raise ValueError(f"call {name} shares {part.n_shared} tokens with call {part.after}, which has {there}")
    shared = (
        checks.get(part.after, 0) if part.n_shared == there or not before else zlib.crc32(before.first(part.n_shared))
    )
    check = zlib.crc32(part.new, shared)
    if check != part.check:
        raise ValueError(f"the prompt of call {name} is not the one that was packed: a span was changed or mixed up")
    return Prompt(part.new, part.sampled, before, part.n_shared), check
