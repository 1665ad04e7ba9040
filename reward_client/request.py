"""What a judge is asked, and how it is put to one endpoint.

The ladder of output forms: json_schema, where the server enforces the reply's form; json_object, any JSON; text, where
the prompt alone asks for JSON. A reply is read in the same strict way on every rung.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from typing import Any

from reward_client.parsing import ReplyForm
from reward_client.schema import Usage

logger = logging.getLogger(__name__)

FORMS = ("json_schema", "json_object", "text")
REFUSED_FORM = re.compile(r"response_format|json_schema|json_object|json mode|structured output|guided", re.I)
REMINDER = "\n\nYour reply must be the JSON object alone: no word before it and none behind it."
MOST_TOKENS_PER_CHAR = 4  # of byte-level tokenizers
MOST_HIDDEN_TOKENS = 65_536  # of the server's template and of reasoning that it does not show


@dataclass(frozen=True)
class Request:
    """A prompt and the form of its reply."""

    messages: list[dict[str, str]]
    max_tokens: int
    reply: ReplyForm[Any]

    @property
    def again(self) -> Request:
        """The same question, with the form of its reply said once more at the end."""
        *first, last = self.messages
        return replace(self, messages=[*first, {**last, "content": last["content"] + REMINDER}])

    @property
    def most(self) -> Usage:
        """An upper bound for usual tokenizers: one token per character of the prompt."""
        prompt_tokens = sum(len(message["content"]) for message in self.messages)
        return Usage(prompt_tokens=prompt_tokens, completion_tokens=self.max_tokens)

    def believed(self, counted: Usage) -> Usage:
        """What the server says it counted; nothing where that cannot be, so that no lie drains budget or limits."""
        most_prompt = MOST_TOKENS_PER_CHAR * self.most.prompt_tokens + MOST_HIDDEN_TOKENS
        if counted.prompt_tokens <= most_prompt and counted.completion_tokens <= self.max_tokens + MOST_HIDDEN_TOKENS:
            return counted
        logger.warning("a judge counts %.3g tokens for one call, which is not believed", min(counted.tokens, 10**300))
        return Usage()


@dataclass(frozen=True)
class Dialect:
    """How to write a request to one endpoint: a rung of FORMS, and two parameters that some models refuse."""

    form: str = FORMS[0]
    temperature: bool = True
    new_max_tokens: bool = False

    def payload(self, request: Request) -> dict[str, Any]:
        """The body of the request, without the model."""
        limit = "max_completion_tokens" if self.new_max_tokens else "max_tokens"
        payload: dict[str, Any] = {"messages": request.messages, limit: request.max_tokens}
        if self.temperature:
            payload["temperature"] = 0
        if self.form == "json_schema":
            described = {"name": request.reply.name, "strict": True, "schema": request.reply.schema}
            payload["response_format"] = {"type": "json_schema", "json_schema": described}
        elif self.form == "json_object":
            payload["response_format"] = {"type": "json_object"}
        return payload

    def after_refusal(self, detail: str) -> Dialect | None:
        """The dialect to try after a 400 with this text; None when it names nothing that could be left out."""
        if REFUSED_FORM.search(detail) and self.form != FORMS[-1]:
            return replace(self, form=FORMS[FORMS.index(self.form) + 1])
        if "max_completion_tokens" in detail and not self.new_max_tokens:
            return replace(self, new_max_tokens=True)
        if "temperature" in detail and self.temperature:
            return replace(self, temperature=False)
        return None
