"""How the served agent's answer is sent: as a chat completion, or as a response of OpenAI's Responses API.

Guarantees: whole, a reply holds what was said after the last call of a tool; a stream holds all that was said, and a
fault in it is an event with `error` that nothing follows. A response's stretches of text between calls of tools are
messages of their own, the last one with the phase `final_answer`.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

from sql_agent.serving.agent_answer import Answer
from sql_agent.serving.agent_request import ChatRequest


def _calls(request: ChatRequest, answer: Answer) -> dict[str, Any]:
    if not request.tool_calls:
        return {}
    context = answer.chosen.context
    sql = [call.model_dump(mode="json") for call in context.sql_calls]
    return {"sql_calls": sql, "tool_calls": [call.model_dump(mode="json") for call in context.tool_calls]}


class ChatReply:
    """One chat completion: `body`, or `begin`, `tell` and `end` in server-sent events; `id` is its name."""

    def __init__(self, request: ChatRequest) -> None:
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self._request = request
        self._head = {"id": self.id, "created": int(time.time()), "model": request.model}

    def body(self, answer: Answer) -> dict[str, Any]:
        """The reply's body."""
        message = {"role": "assistant", "content": answer.chosen.text}
        choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason, "logprobs": None}
        reply = {**self._head, "object": "chat.completion", "choices": [choice], "usage": answer.usage}
        return {**reply, **_calls(self._request, answer)}

    def begin(self) -> Iterator[str]:
        """Before anything was said."""
        yield self._event({"role": "assistant", "content": ""})

    def tell(self, kind: str, text: str) -> Iterator[str]:
        """What came of an answer (agent/conversation.py)."""
        if kind == "text":
            yield self._event({"content": text})

    def end(self, answer: Answer) -> Iterator[str]:
        """When all was said."""
        yield self._event({}, finish_reason=answer.finish_reason, **_calls(self._request, answer))
        if self._request.stream_options and self._request.stream_options.include_usage:
            yield self._line({"choices": [], "usage": answer.usage})
        yield "data: [DONE]\n\n"

    def fault(self, body: dict[str, Any]) -> str:
        """Instead of the end."""
        return f"data: {json.dumps(body)}\n\n"

    def _event(self, delta: dict[str, Any], *, finish_reason: str | None = None, **more: Any) -> str:
        return self._line({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}], **more})

    def _line(self, content: dict[str, Any]) -> str:
        return f"data: {json.dumps({**self._head, 'object': 'chat.completion.chunk', **content})}\n\n"


class ResponseReply:
    """The same as a response: https://platform.openai.com/docs/api-reference/responses."""

    def __init__(self, request: ChatRequest) -> None:
        self.id = f"resp_{uuid.uuid4().hex}"
        self._request = request
        self._created = int(time.time())
        self._number = 0
        self._messages: list[dict[str, Any]] = []
        self._text: str | None = None  # of the message that is being written

    def body(self, answer: Answer) -> dict[str, Any]:
        """The reply's body."""
        self._begin_message()
        self._end_message(answer.chosen.text, "final_answer")
        return self._ended(answer)

    def begin(self) -> Iterator[str]:
        """Before anything was said."""
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=self._response("in_progress"))

    def tell(self, kind: str, text: str) -> Iterator[str]:
        """What came of an answer (agent/conversation.py)."""
        if kind == "text":
            if self._text is None:
                message = self._begin_message()
                yield self._event("response.output_item.added", item=message, **self._item)
                yield self._event("response.content_part.added", part=_part(""), **self._place)
                self._text = ""
            self._text += text
            yield self._event("response.output_text.delta", delta=text, logprobs=[], **self._place)
        elif kind == "call":
            yield from self._written("commentary")

    def end(self, answer: Answer) -> Iterator[str]:
        """When all was said."""
        yield from self._written("final_answer")
        response = self._ended(answer)
        yield self._event(f"response.{response['status']}", response=response)

    def fault(self, body: dict[str, Any]) -> str:
        """Instead of the end."""
        error = body["error"]
        return self._event("error", code=error["type"], message=error["message"], param=None, **body)

    def _written(self, phase: str) -> Iterator[str]:
        if self._text is None:
            return
        text, self._text = self._text, None
        message = self._end_message(text, phase)
        yield self._event("response.output_text.done", text=text, logprobs=[], **self._place)
        yield self._event("response.content_part.done", part=_part(text), **self._place)
        yield self._event("response.output_item.done", item=message, **self._item)

    def _begin_message(self) -> dict[str, Any]:
        message = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant"}
        self._messages.append({**message, "status": "in_progress", "content": []})
        return self._messages[-1]

    def _end_message(self, text: str, phase: str) -> dict[str, Any]:
        self._messages[-1] |= {"status": "completed", "content": [_part(text)], "phase": phase}
        return self._messages[-1]

    @property
    def _item(self) -> dict[str, Any]:
        return {"output_index": len(self._messages) - 1}

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self._messages[-1]["id"], "content_index": 0, **self._item}

    def _ended(self, answer: Answer) -> dict[str, Any]:
        is_cut = answer.finish_reason == "length"
        response = self._response("incomplete" if is_cut else "completed")
        used = answer.usage
        response["incomplete_details"] = {"reason": "max_output_tokens"} if is_cut else None
        response["usage"] = {
            "input_tokens": used["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": used["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": used["total_tokens"],
        }
        return {**response, **_calls(self._request, answer)}

    def _response(self, status: str) -> dict[str, Any]:
        request = self._request
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "model": request.model,
            "status": status,
            "output": self._messages,
            "error": None,
            "incomplete_details": None,
            "usage": None,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "max_output_tokens": request.max_tokens,
            "store": False,
            "previous_response_id": None,
            "instructions": None,
            "metadata": {},
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
        }

    def _event(self, kind: str, **content: Any) -> str:
        event = {"type": kind, "sequence_number": self._number, **content}
        self._number += 1
        return f"event: {kind}\ndata: {json.dumps(event)}\n\n"


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
