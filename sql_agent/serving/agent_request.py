"""What a client may ask of the served agent, in OpenAI's form.

Guarantees: a key that is not known is refused by name, and so is each value that would not be obeyed; `null` says what
leaving the key out says, as clients send it for what they do not set.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from sql_agent.agent.endpoint import LLMEndpoint

Text = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, tree: Any) -> Any:
        return {key: value for key, value in tree.items() if value is not None} if isinstance(tree, dict) else tree


class _Part[Kind](_Strict):
    """A part of a message. Images, sound and files are refused."""

    type: Kind
    text: str


TextPart = _Part[Literal["text"]]


class ItemPart(_Part[Literal["input_text", "output_text"]]):
    """In the Responses API: of a client's message, or of one that the agent sent."""

    annotations: list[Any] = Field(default=[], max_length=0)
    logprobs: list[Any] = Field(default=[], max_length=0)


class _Message[P: _Part[Any]](_Strict):
    part: ClassVar[str]
    role: str
    content: list[P]

    @field_validator("role")
    @classmethod
    def _is_a_clients(cls, role: str) -> str:
        if role not in ("user", "assistant"):
            raise ValueError(f"{role[:40]!r}: prompt and tools are the agent's; send user and assistant messages alone")
        return role

    @field_validator("content", mode="before")
    @classmethod
    def _in_parts(cls, content: Any) -> Any:
        return [{"type": cls.part, "text": content}] if isinstance(content, str) else content

    @field_validator("content")
    @classmethod
    def _says_something(cls, content: list[P]) -> list[P]:
        if not any(part.text.strip() for part in content):
            raise ValueError("is empty; leave the message out, or say something")
        return content

    @property
    def text(self) -> str:
        """All its parts."""
        return "\n".join(part.text for part in self.content)


class Message(_Message[TextPart]):
    """One message of the client."""

    part = "text"


class Item(_Message[ItemPart]):
    """One message in the Responses API; what a reply's message says of itself beside the text comes back unread."""

    part = "input_text"
    type: Literal["message"] = "message"
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class StreamOptions(_Strict):
    """OpenAI's."""

    include_usage: bool = False


class _AnyRequest(_Strict):
    """What both APIs take. `tool_calls` asks for the calls of tools, with SQL and rows, beside the answer."""

    model: str
    stream: bool = False
    tool_calls: bool = False
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    user: str | None = None
    store: bool | None = None


class ChatRequest(_AnyRequest):
    """What may be asked."""

    messages: list[Message] = Field(min_length=1)
    stream_options: StreamOptions | None = None
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    seed: int | None = Field(default=None, ge=0, lt=1 << 63)
    stop: Text | Annotated[list[Text], Field(max_length=16)] | None = None
    max_tokens: int | None = Field(default=None, gt=0)
    max_completion_tokens: int | None = Field(default=None, gt=0)
    n: Literal[1] | None = None
    logprobs: Literal[False] | None = None

    @model_validator(mode="after")
    def _options_are_of_a_stream(self) -> ChatRequest:
        if self.stream_options and not self.stream:
            raise ValueError("stream_options: only with stream = true; leave it out")
        return self

    @property
    def chat(self) -> ChatRequest:
        return self

    @property
    def plain_messages(self) -> list[dict[str, str]]:
        """The messages, each with its role and its text."""
        return [{"role": message.role, "content": message.text} for message in self.messages]

    def sampled(self, llm: LLMEndpoint, number: int = 0) -> LLMEndpoint:
        """`llm` as asked for: what is left open stays, a limit can only be lowered, and stop texts come on top.

        `number` is that of an answer among several that vote: each has a seed of its own.
        """
        names = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
        keys = {name: value for name in names if (value := getattr(self, name)) is not None}
        asked_stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        limits = [limit for limit in (llm.max_tokens, self.max_tokens, self.max_completion_tokens) if limit]
        seeds = llm.seeds if self.seed is None else itertools.repeat((self.seed + number) % (1 << 63))
        stop = tuple(dict.fromkeys([*llm.stop, *asked_stops]))
        return replace(llm, **keys, stop=stop, max_tokens=min(limits, default=None), seeds=seeds)


STATELESS = "the server keeps no response; leave it out, and send what was said so far as input"


class ResponseRequest(_AnyRequest):
    """What may be asked through the Responses API."""

    input: list[Item] = Field(min_length=1)
    max_output_tokens: int | None = Field(default=None, gt=0)
    previous_response_id: Any = None
    conversation: Any = None
    instructions: Any = None

    @field_validator("store")
    @classmethod
    def _is_not_stored(cls, store: bool) -> bool:
        if store:
            raise ValueError(STATELESS)
        return store

    @field_validator("previous_response_id", "conversation", "instructions")
    @classmethod
    def _is_left_out(cls, _: Any, info: ValidationInfo) -> None:
        raise ValueError("the prompt is the agent's; leave it out" if info.field_name == "instructions" else STATELESS)

    @field_validator("input", mode="before")
    @classmethod
    def _as_messages(cls, value: Any) -> Any:
        return [{"role": "user", "content": value}] if isinstance(value, str) else value

    @property
    def chat(self) -> ChatRequest:
        """The same as a chat's."""
        messages = [{"role": item.role, "content": item.text} for item in self.input]
        keys = {name: getattr(self, name) for name in _AnyRequest.model_fields}
        return ChatRequest.model_validate({**keys, "messages": messages, "max_tokens": self.max_output_tokens})
