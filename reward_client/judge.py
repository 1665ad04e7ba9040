"""An LLM as judge of medical answers: rubric + question + reference + evidence + answer -> Verdict.

Guarantees: the judge sees the reference and the evidence; a verdict is read only from one strict JSON object; text
from outside stands between markers that it cannot forge; every failure is a JudgeFault, never a number.
`overall` = min(accuracy, 0.5 accuracy + 0.3 completeness + 0.1 clarity + 0.1 professionalism): accuracy gates, so a
wrong answer scores low however fluent it is (accuracy 0.1 and all else 1 give 0.1, where the plain sum gives 0.55).
Not covered: caching, several endpoints.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from pathlib import Path
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

from pydantic import ValidationError

from reward_client.client import ChatReply, JudgeBadRequest, post_chat, with_retries
from reward_client.errors import JudgeUnparsable
from reward_client.schema import Criteria, JudgeEndpoint, JudgeItem, Verdict

PROMPTS = Path(__file__).resolve().parent / "prompts"
WEIGHTS = {"accuracy": 0.5, "completeness": 0.3, "clarity": 0.1, "professionalism": 0.1}
MAX_ANSWER_CHARS = 8000
MAX_CONTEXT_CHARS = 16_000
NONE_GIVEN = "(none)"
# What a chat template or another call's prompt could take for structure.
MARKER = re.compile(r"<{2,8}\s{0,8}(?:BEGIN|END)\s{1,8}[A-Z]+\s{1,8}[0-9a-f]+\s{0,8}>{2}>*|<\|[^<>|]{0,64}\|>", re.I)

# A semaphore belongs to one event loop, and each rollout runs its own. Kept outside the judge, which must pickle.
_gates: WeakKeyDictionary[LLMJudge, dict[asyncio.AbstractEventLoop, asyncio.Semaphore]] = WeakKeyDictionary()


class LLMJudge:
    """Grades answers with a model behind an OpenAI-compatible endpoint.

    `rubric` names a file of reward_client/prompts without .txt. `timeout_s` bounds one verdict with all its tries, not
    counting the wait for one of the `concurrency` places. Raises ValueError for an unknown rubric.
    """

    def __init__(
        self,
        endpoint: JudgeEndpoint,
        *,
        rubric: str = "rubric_zh",
        timeout_s: float = 60.0,
        max_tokens: int = 512,
        attempts: int = 3,
        concurrency: int = 8,
    ) -> None:
        self.endpoint = endpoint
        self._rubric = load_rubric(rubric)
        self._timeout_s = timeout_s
        self._max_tokens = max_tokens
        self._attempts = attempts
        self._concurrency = concurrency
        self._json_mode = True

    @property
    def name(self) -> str:
        """Model and address, for people; without the key."""
        return str(self.endpoint)

    async def grade(self, item: JudgeItem) -> Verdict:
        """The verdict on one answer. Raises JudgeFault; which one tells what was wrong (see errors.py)."""
        async with self._gate():
            return await with_retries(
                lambda seconds: self._ask(item, seconds), attempts=self._attempts, timeout_s=self._timeout_s
            )

    async def preflight(self) -> None:
        """Grade one trivial answer, to find a wrong key, model or address before the first step.

        Raises JudgeFault whose text says value, rule and remedy.
        """
        item = JudgeItem(question="1 + 1 = ?", reference="2", answer="2")
        try:
            await self.grade(item)
        except JudgeUnparsable as exc:
            raise JudgeUnparsable(
                f"{exc}. A judge must answer with the JSON verdict of its rubric. Choose a stronger TEACHER_MODEL, or "
                "raise the limit on the verdict's length if the answer was cut"
            ) from None

    async def _ask(self, item: JudgeItem, seconds: float) -> Verdict:
        messages = build_messages(self._rubric, item)
        payload: dict[str, Any] = {"messages": messages, "temperature": 0, "max_tokens": self._max_tokens}
        started_s = time.monotonic()
        try:
            reply = await self._post(payload, seconds)
        except JudgeBadRequest as exc:
            if "response_format" not in exc.detail:
                raise
            self._json_mode = False
            reply = await self._post(payload, seconds - (time.monotonic() - started_s))
        return self._verdict(reply, answer_cut=len(item.answer) > MAX_ANSWER_CHARS)

    async def _post(self, payload: dict[str, Any], seconds: float) -> ChatReply:
        extra = {"response_format": {"type": "json_object"}} if self._json_mode else {}
        return await post_chat(self.endpoint, {**payload, **extra}, timeout_s=seconds)

    def _verdict(self, reply: ChatReply, *, answer_cut: bool) -> Verdict:
        try:
            criteria = parse_criteria(reply.text)
        except JudgeUnparsable as exc:
            raise JudgeUnparsable(f"judge {self.name}: {exc} (finish_reason {reply.finish_reason})") from None
        return Verdict(
            criteria=criteria,
            overall=overall(criteria),
            explanation=criteria.reason,
            raw=reply.text,
            usage=reply.usage,
            model=reply.model or self.endpoint.model,
            answer_cut=answer_cut,
        )

    def _gate(self) -> asyncio.Semaphore:
        gates = {loop: gate for loop, gate in _gates.get(self, {}).items() if not loop.is_closed()}
        gate = gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._concurrency))
        _gates[self] = gates
        return gate


def load_rubric(name: str) -> str:
    """The text of reward_client/prompts/NAME.txt. Raises ValueError naming those there are."""
    path = PROMPTS / f"{name}.txt"
    if not path.is_file():
        names = ", ".join(sorted(p.stem for p in PROMPTS.glob("*.txt")))
        raise ValueError(f"rubric {name!r}: no such file in reward_client/prompts. There are: {names}")
    return path.read_text(encoding="utf-8").strip()


def overall(criteria: Criteria) -> float:
    """One number in [0, 1]: the weighted mean of the criteria, but never more than accuracy."""
    mean = sum(weight * getattr(criteria, name) for name, weight in WEIGHTS.items())
    return min(criteria.accuracy, mean)


def build_messages(rubric: str, item: JudgeItem) -> list[dict[str, str]]:
    """The prompt: the rubric as system message, then the four texts, each between markers of this call's own."""
    nonce = secrets.token_hex(8)
    evidence = "\n".join(f"- {quote}" for quote in item.evidence)
    blocks = {
        "QUESTION": item.question[:MAX_ANSWER_CHARS],
        "REFERENCE": item.reference[:MAX_CONTEXT_CHARS],
        "EVIDENCE": evidence[:MAX_CONTEXT_CHARS],
        "ANSWER": item.answer[:MAX_ANSWER_CHARS] + (" [CUT]" if len(item.answer) > MAX_ANSWER_CHARS else ""),
    }
    text = "\n\n".join(
        f"<<<BEGIN {name} {nonce}>>>\n{strip_markers(body, nonce).strip() or NONE_GIVEN}\n<<<END {name} {nonce}>>>"
        for name, body in blocks.items()
    )
    return [{"role": "system", "content": rubric.replace("{nonce}", nonce)}, {"role": "user", "content": text}]


def strip_markers(text: str, nonce: str) -> str:
    """`text` without anything that looks like a marker or a chat template's control token, nested ones included."""
    text = text.encode("utf-8", errors="replace").decode()  # a lone surrogate cannot be sent
    while True:
        clean = MARKER.sub("", text).replace(nonce, "")
        if clean == text:
            return clean
        text = clean


def parse_criteria(text: str) -> Criteria:
    """Read the verdict from the one JSON object in `text`; a fence or plain words around it are fine.

    Raises JudgeUnparsable for none, for several different ones, for duplicate keys, NaN, infinity, and for scores that
    are missing, outside [0, 1], or no numbers.
    """
    found = _json_objects(text.rpartition("</think>")[2])
    if not found:
        raise JudgeUnparsable(f"no JSON object in {text[:120]!r}")
    if any(other != found[0] for other in found[1:]):
        raise JudgeUnparsable(f"{len(found)} JSON objects that differ")
    try:
        return Criteria.model_validate(found[0])
    except ValidationError as exc:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors())
        raise JudgeUnparsable(f"the verdict breaks the rules: {problems}") from None


def _json_objects(text: str) -> list[dict[str, Any]]:
    """All top-level objects. A brace that opens no valid object makes the whole text invalid: no guessing."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    objects, position = [], text.find("{")
    while position >= 0:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as exc:
            raise JudgeUnparsable(f"invalid JSON at character {position}: {type(exc).__name__}") from None
        objects.append(value)
        position = text.find("{", end)
    return objects


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) != len(dict(pairs)):
        raise ValueError("duplicate keys")
    return dict(pairs)
