"""Text of others on its way to a model: a model's own control tokens in it are hidden, and nothing else is touched.

A token that marks turns, calls or thoughts (`<|im_end|>`, `</tool_response>`) loses its first character to its
full-width form where a request is sent, never before: tools, records and files hold the text as it is. `Marks.shown`
takes that back in what the model copied, exactly: text that had such a full-width form from the start gets one more.
Guarantees: no marker is in what `Marks.hidden` gives, however it was put together; `shown(hidden(x)) == x` for any
text. What the policy itself said is left as it is, and so is the system prompt, which is yours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from foundation.chat_template import read_template

# What control tokens look like: "<|im_end|>", "</think>", "<｜tool▁sep｜>", "<<SYS>>", "[INST]", "[gMASK]".
SHAPE = re.compile(r"<{1,2}[|｜/!]{0,2}[A-Za-z_][^<>{}\s'\"%]{0,60}>{1,2}|\[/?[a-z]?[A-Z_]{3,}\]")
# Of the families in use, for a model whose files are not here: an endpoint of others.
FAMILIES = (
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>", "<tool_response>"),
    *("</tool_response>", "<think>", "</think>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eot_id|>", "<|eom_id|>", "<|python_tag|>", "<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>"),
    *("<|return|>", "<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "[INST]", "[/INST]", "[TOOL_CALLS]"),
    *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[gMASK]", "<|user|>"),
    *("<|assistant|>", "<|system|>", "<|observation|>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁sep｜>"),
    *(f"<｜{at}▁of▁sentence｜>" for at in ("begin", "end")),
    *(f"<｜tool▁{what}▁{at}｜>" for what in ("call", "calls", "output", "outputs") for at in ("begin", "end")),
)
POLICYS = ("assistant", "system")  # whose messages go out as they are


@dataclass(frozen=True)
class Marks:
    """The control tokens of a model."""

    tokens: tuple[str, ...] = FAMILIES

    def hidden(self, text: str) -> str:
        """The text as it is sent to the model."""
        return self._each(text, lambda first, wide, n, bare: wide * (2 * n + bare))

    def shown(self, text: str) -> str:
        """What the model copied, as it was before `hidden`."""
        return self._each(
            text, lambda first, wide, n, bare: wide * n + first if bare else wide * (n // 2) + first * (n % 2)
        )

    def _each(self, text: str, written: Callable[[str, str, int, bool], str]) -> str:
        """The text with what stands before the rest of each token, n full-width first characters and perhaps a `bare`
        one, `written` anew."""
        for first, wide, pattern in self._patterns:
            if first not in text and wide not in text:
                continue

            def anew(found: re.Match[str], first: str = first, wide: str = wide) -> str:
                return written(first, wide, len(found["wides"]), found[0].endswith(first))

            text = pattern.sub(anew, text)
        return text

    @cached_property
    def _patterns(self) -> list[tuple[str, str, re.Pattern[str]]]:
        rests: dict[str, set[str]] = {}
        for token in self.tokens:
            if len(token) > 2 and _wide(token[0]):
                rests.setdefault(token[0], set()).add(token[1:])
        return [(first, _wide(first), _pattern(first, _wide(first), each)) for first, each in sorted(rests.items())]

    def hidden_tree(self, value: Any) -> Any:
        """The JSON value with each text in it hidden, keys too."""
        return _in_tree(value, self.hidden)

    def arguments(self, raw: str) -> str:
        """The arguments of a call, a JSON text, as they were before `hidden`."""
        try:
            tree = json.loads(raw)
        except (ValueError, RecursionError):
            return self.shown(raw)
        meant = _in_tree(tree, self.shown)
        return raw if meant == tree else json.dumps(meant, ensure_ascii=False)

    def message(self, message: Any) -> Any:
        """A message of a request as it is sent: its texts hidden, unless the policy or you said them."""
        if not isinstance(message, Mapping) or message.get("role") in POLICYS or "content" not in message:
            return message
        return {**message, "content": self.hidden_tree(message["content"])}

    def forgeable(self) -> list[str]:
        """Those tokens that text could still hold: their first character has no full-width form."""
        return [token for token in self.tokens if token in self.hidden(token)]


def _in_tree(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_in_tree(item, change) for item in value]
    if isinstance(value, dict):
        return {change(str(key)): _in_tree(item, change) for key, item in value.items()}
    return value


def _wide(character: str) -> str:
    """The full-width form of a visible ASCII character, which Unicode's NFKC turns back; "" for others."""
    return chr(ord(character) + 0xFEE0) if "!" <= character <= "~" else ""


def _pattern(first: str, wide: str, rests: Iterable[str]) -> re.Pattern[str]:
    # The rest is only looked at, so that a token that begins within another one is found too.
    rest = "|".join(re.escape(one) for one in sorted(rests, key=len, reverse=True))
    return re.compile(f"(?P<wides>{wide}*)(?:{re.escape(first)}|(?<={wide}))(?={rest})")


def marks_of(added: Iterable[tuple[str, bool]], template: str) -> Marks:
    """The marks of a tokenizer: its special tokens (each added one comes with whether it is), and what looks like a
    control token among the others and in its chat template.
    """
    tokens = [text for text, special in added if special or SHAPE.fullmatch(text)]
    return Marks(tuple(dict.fromkeys(token for token in [*tokens, *SHAPE.findall(template)] if token.strip())))


def model_marks(model: Path) -> Marks:
    """The marks of a model folder; those of the known families where it has no tokenizer.json that can be read."""
    try:
        added = json.loads((model / "tokenizer.json").read_text(encoding="utf-8")).get("added_tokens", [])
    except (OSError, ValueError):
        return Marks()
    return marks_of(((token["content"], bool(token.get("special"))) for token in added), read_template(model))


def tokenizer_marks(tokenizer: Any) -> Marks:
    """The marks of a transformers tokenizer."""
    added = ((token.content, token.special) for token in tokenizer.added_tokens_decoder.values())
    return marks_of(added, str(tokenizer.chat_template or ""))
