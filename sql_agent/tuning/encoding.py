"""Conversation -> training rows, by the chat template, as GRPO makes rows of rollouts.

Each message of the assistant is one LLM call: the prompt is what the template makes of everything before it, and what
follows up to the end of the turn is what the policy would have sampled. The calls become rows in
agl_plugin.update.rows, so merging and mask are GRPO's own: where a template writes the history otherwise than the
policy did (it drops earlier thoughts, say), a later call gets a row of its own.
Guarantees: supervised is exactly what the policy says, with the token that ends its turn, and nothing of the template
around it; nothing is cut. Not covered: what a model sampled in other tokens than its tokenizer's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError

from agl_plugin.update.rows import Call, Limits, Row, rows_of_calls
from foundation.chat_template import Message
from foundation.errors import Unusable, UserError
from foundation.marks import tokenizer_marks
from sql_agent.tuning.chats import Chat

MOST_TOKENS = 1 << 30


class Encoder:
    """Renders and tokenizes conversations for one model; `template_kwargs` are agent.chat_template_kwargs."""

    def __init__(self, tokenizer: Any, template_kwargs: Mapping[str, Any] | None = None) -> None:
        if not tokenizer.chat_template:
            raise UserError("the model's tokenizer has no chat template; use an instruct model, or save one with it")
        if tokenizer.eos_token is None:
            raise UserError("the model's tokenizer has no eos_token, which ends a turn; set it in its tokenizer_config")
        self._tokenizer, self._kwargs = tokenizer, dict(template_kwargs or {})
        self._marks = tokenizer_marks(tokenizer)

    def turns(self, chat: Chat) -> list[Call]:
        """The LLM calls of the conversation.

        Raises UserError for a template that does not continue its own prompt, Unusable for what it refuses.
        """
        if chat.calls:
            return [*chat.calls]
        said = [n for n, message in enumerate(chat.messages) if message["role"] == "assistant"]
        places = [n for n in said if n not in chat.context]
        return [self._turn(chat.messages[:n], chat.messages[n], chat.tools) for n in places]

    def rows(self, chat: Chat, *, merge: bool = True) -> list[Row]:
        return rows_of_calls(self.turns(chat), merge=merge, limits=Limits(MOST_TOKENS, MOST_TOKENS))

    def _turn(self, before: list[Message], message: Message, tools: list[Message]) -> Call:
        prompt = self._render(before, tools, add_generation_prompt=True)
        whole = self._render([*before, message], tools, add_generation_prompt=False)
        if not whole.startswith(prompt):
            raise UserError(
                f"the chat template writes an answer as {whole[len(prompt) - 40 :][:80]!r}, but asks for one with "
                f"{prompt[-40:]!r}: what the policy would say cannot be told apart. Use a template whose answers "
                "begin with its generation prompt"
            )
        return Call(self._ids(prompt), self._ids(self._ended(whole[len(prompt) :])))

    def _ended(self, text: str) -> str:
        """What the policy says, with the end of the turn and without what the template writes behind it."""
        end = self._tokenizer.eos_token
        head, has_end, tail = text.rpartition(end)
        return head + end if has_end and not tail.strip() else text + end

    def _render(self, messages: list[Message], tools: list[Message], *, add_generation_prompt: bool) -> str:
        turns = [self._marks.message(turn) for turn in messages]
        offered = self._marks.hidden_tree(tools)
        kwargs = {"tokenize": False, "add_generation_prompt": add_generation_prompt, **self._kwargs}
        try:
            return self._tokenizer.apply_chat_template(turns, tools=offered or None, **kwargs)
        except TemplateError as exc:
            raise Unusable(f"the model's chat template refuses it ({exc})") from None

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]


@dataclass(frozen=True)
class Encoded:
    """A row as a trainer takes it: token ids, and 1 where the token is supervised."""

    ids: list[int]
    mask: list[int]

    @classmethod
    def of(cls, row: Row) -> Encoded:
        return cls(row.prompt + row.response, [0] * len(row.prompt) + row.mask)

    def __len__(self) -> int:
        return len(self.ids)
