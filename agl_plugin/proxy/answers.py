"""What vLLM is asked for beyond the agent's request, what of its answer the agent gets, and what stands in the span.

Guarantees: token ids and log-probabilities go to the span, and never to an agent; a streamed answer whose token ids are
not as many as its tokens has none in the span, so that its rollout is left out. The request is one that is `allowed`
(foundation/chat_request.py), so nothing in it can stand for what the model server answered.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agl_plugin.proxy.spans import FIELD, LOG_PROB_REQUEST, LOG_PROBS, plain_log_probs
from foundation.http_local import as_event

IDS = "prompt_token_ids"
Json = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """A chat completion as the agent asked for it, by keys that it may ask for."""

    body: Json
    log_probs: bool  # whether the sampler's are wanted where it samples
    rollout: str = ""  # whose call it is
    pack: Callable[[Mapping[str, Any]], Json] | None = None  # its token ids as attributes; None: as lists

    @property
    def wants_usage(self) -> bool:
        return "stream_options" in self.body

    @property
    def streams(self) -> bool:
        """Whether the model server is asked for a stream too: with tools, vLLM leaves tokens out of it."""
        return bool(self.body.get("stream")) and not self.body.get("tools")

    def asking(self) -> Json:
        """What the model server gets. A greedy request (validation) is not trained on: without log-probabilities."""
        body = {**self.body, "return_token_ids": True}
        if self.log_probs and self.body.get("temperature"):
            body |= LOG_PROB_REQUEST
        if self.streams:
            return body | {"stream_options": {"include_usage": True}}
        body.pop("stream_options", None)
        return body | {"stream": False} if "stream" in body else body

    def notes(self, answer: Mapping[str, Any]) -> Json:
        """The attributes of the span: what was asked and what was answered, as agent-lightning's proxy names them.

        Where token ids are packed, what grows with the history is left out: messages, tools and the lists of ids.
        """
        if self.pack and (packed := self.pack(answer)):
            fields = {k: v for k, v in {**self.body, **answer}.items() if k not in ("messages", "tools", IDS)}
            bare = [
                {k: v for k, v in choice.items() if k not in ("logprobs", "token_ids")} for choice in answer["choices"]
            ]
            return _named({**fields, "choices": bare}) | packed
        choices = [
            {k: v for k, v in choice.items() if k != "logprobs"} | {LOG_PROBS: plain_log_probs(choice.get("logprobs"))}
            for choice in answer.get("choices") or []
        ]
        return _named({**self.body, **answer, "choices": choices})

    def strip(self, answer: Json) -> Json:
        """The answer, or an event of a stream, as the agent gets it: without ids and log-probabilities."""
        answer.pop(IDS, None)
        for choice in answer.get("choices") or []:
            choice.pop("token_ids", None)
            if choice.get("logprobs"):
                choice["logprobs"] = None
        if self.streams and not self.wants_usage:
            answer.pop("usage", None)
        return answer

    def event(self, line: bytes, whole: Collected) -> bytes:
        """What the agent gets now of a line of a stream, which `whole` notes. Raises ValueError for what is no JSON."""
        line = line.strip()
        if line.endswith(b"[DONE]"):
            whole.end = line + b"\n\n"
            return b""
        if not line.startswith(b"data:"):
            return line + b"\n\n" if line else b""
        event = json.loads(line.removeprefix(b"data:"))
        if not isinstance(event, dict):
            raise ValueError(f"an event is {type(event).__name__}, and must be an object")
        whole.add(event)
        unasked = not event.get("choices") and event.get("usage") and not self.wants_usage
        return b"" if unasked else as_event(self.strip(event))


def _named(fields: Json) -> Json:
    return {
        f"{FIELD}{k}": v if isinstance(v, str | int | float) else str(v) for k, v in fields.items() if v is not None
    }


class Collected:
    """A streamed answer, put together again; `end` is what closes it, for which the agent waits."""

    def __init__(self) -> None:
        self.end = b""
        self._whole: Json = {}
        self._choices: dict[int, Json] = {}

    def add(self, event: Json) -> None:
        self._whole |= {k: v for k, v in event.items() if v is not None and k not in ("choices", "object")}
        for part in event.get("choices") or []:
            choice = self._choices.setdefault(
                part["index"], {"index": part["index"], "message": {}, "token_ids": [], "logprobs": {"content": []}}
            )
            for name, text in (part.get("delta") or {}).items():
                before = choice["message"].get(name)
                choice["message"][name] = before + text if before and isinstance(text, str) and name != "role" else text
            choice["token_ids"] += part.get("token_ids") or []
            choice["logprobs"]["content"] += (part.get("logprobs") or {}).get("content") or []
            choice["finish_reason"] = part.get("finish_reason") or choice.get("finish_reason")

    @property
    def complete(self) -> bool:
        """Whether all tokens that the server counted came with their ids."""
        n_tokens = sum(len(choice["token_ids"]) for choice in self._choices.values())
        return "error" not in self._whole and (self._whole.get("usage") or {}).get("completion_tokens") == n_tokens

    @property
    def answer(self) -> Json:
        """As a chat completion, without token ids where some are missing."""
        choices = [
            choice if self.complete else {k: v for k, v in choice.items() if k != "token_ids"}
            for choice in self._choices.values()
        ]
        return {**self._whole, "object": "chat.completion", "choices": choices}
