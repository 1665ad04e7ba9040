"""Text of others on its way to a model: a model's own control tokens in it are hidden, and nothing else is touched.

A token that marks turns, calls or thoughts (`<|im_end|>`, `</tool_response>`) loses its first ASCII character to its
full-width form where a request is sent, never before: tools, records and files hold the text as it is. `Marks.shown`
takes that back in what the model copied, exactly: text that had such a full-width form from the start gets one more.
Guarantees: no marker is in what `Marks.hidden` gives, however it was put together; `shown(hidden(x)) == x` for any
text. What the policy said and the system prompt, which is yours, keep thoughts and calls (`<think>`, `<tool_call>`);
of the tokenizer's special tokens, which no decoded answer has, they are `sealed` too. Where a tokenizer normalises text
before it looks for its tokens, text that it would turn into one is sent with a space in it, and not turned back.
Not covered: tokens without any ASCII character (`forgeable`).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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
# Of these, what a model writes as text: its thoughts and calls.
WRITTEN = {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"}
POLICYS = ("assistant", "system")  # whose messages keep what a model writes


@dataclass(frozen=True)
class Marks:
    """The control tokens of a model; `special` are those that its answers never hold. `normal` is what the tokenizer
    makes of text before it looks for the `loose` ones."""

    tokens: tuple[str, ...] = FAMILIES
    special: tuple[str, ...] = tuple(token for token in FAMILIES if token not in WRITTEN)
    loose: tuple[str, ...] = ()
    normal: Callable[[str], str] | None = field(default=None, repr=False, compare=False)

    def hidden(self, text: str) -> str:
        """The text as it is sent to the model."""
        return self._unforged(_each(self.tokens, text, lambda first, wide, n, bare: wide * (2 * n + bare)))

    def shown(self, text: str) -> str:
        """What the model copied, as it was before `hidden`."""
        return _each(
            self.tokens,
            text,
            lambda first, wide, n, bare: wide * n + first if bare else wide * (n // 2) + first * (n % 2),
        )

    def sealed(self, text: str) -> str:
        """What the policy said, without special tokens; what it copied of hidden ones stays to the letter."""
        return self._unforged(_each(self.special, text, lambda first, wide, n, bare: wide * (n + bare)))

    def _unforged(self, text: str) -> str:
        if self.normal and any(token in self.normal(text) for token in self.loose):
            text = self.normal(text)
            for token in self.loose:
                text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    def undecided(self, text: str) -> int:
        """Where the end of the text begins that could become a hidden token with what follows."""
        places = [len(text)]
        for token in self.tokens:
            at = _first(token)
            if at is not None and (wide := _wide(token[at])) in text:
                before, _, tail = text.rpartition(wide)
                if token.startswith(tail, at + 1):
                    places.append(max(0, len(before.rstrip(wide)) - at))
        return min(places)

    def hidden_tree(self, value: Any) -> Any:
        """The JSON value with each text in it hidden, keys too."""
        return _in_tree(value, self.hidden)

    def arguments(self, raw: str) -> str:
        """The arguments of a call, a JSON text, as they were before `hidden`."""
        return _in_json(raw, self.shown)

    def message(self, message: Any) -> Any:
        """A message of a request as it is sent: all that it says but its role, text in parts joined to one."""
        if not isinstance(message, Mapping):
            return message
        change = self.sealed if message.get("role") in POLICYS else self.hidden
        other_keys = {key: value for key, value in message.items() if key not in ("role", "content", "tool_calls")}
        sent = {**message, **{key: _in_tree(value, change) for key, value in other_keys.items()}}
        if "content" in sent:
            sent["content"] = _in_tree(_joined(sent["content"]), change)
        if "tool_calls" in sent:
            sent["tool_calls"] = _in_tree(sent["tool_calls"], change, of_json=("arguments",))
        return sent

    def forgeable(self) -> list[str]:
        """Those tokens that text could still hold: none of their characters has a full-width form."""
        return [token for token in self.tokens if token in self.hidden(token)]


NO_MARKS = Marks((), ())


class Showing:
    """`Marks.shown` of a text that comes in pieces."""

    def __init__(self, marks: Marks) -> None:
        self.marks, self._held = marks, ""

    def add(self, piece: str) -> str:
        """What can be told with this piece: all but what could be the beginning of a token."""
        text = self._held + piece
        at = self.marks.undecided(text)
        self._held = text[at:]
        return self.marks.shown(text[:at])

    def end(self) -> str:
        """What was held back."""
        rest, self._held = self._held, ""
        return self.marks.shown(rest)


# A first character, its full-width form, and what finds both before the rest of a token.
Pattern = tuple[str, str, re.Pattern[str]]


@functools.cache
def _patterns_of(tokens: tuple[str, ...]) -> list[Pattern]:
    """A pattern for all tokens with the same text up to, and the same, first character that a mark may begin with."""
    rests: dict[tuple[str, str], set[str]] = {}
    for token in tokens:
        if (at := _first(token)) is not None:
            rests.setdefault((token[:at], token[at]), set()).add(token[at + 1 :])
    # Those within others first: of "<PRE>" and "▁<PRE>" one is enough.
    plain = {head + first + rest for (head, first), each in rests.items() if not head for rest in each}
    for head, first in [key for key in rests if key[0]]:
        rests[head, first] = {rest for rest in rests[head, first] if not any(text in first + rest for text in plain)}
    return [
        (first, _wide(first), _pattern(head, first, _wide(first), each))
        for (head, first), each in sorted(rests.items())
        if each
    ]


def _each(tokens: tuple[str, ...], text: str, written: Callable[[str, str, int, bool], str]) -> str:
    """The text with what stands before the rest of each token, n full-width first characters and perhaps a `bare`
    one, `written` anew."""
    for first, wide, pattern in _patterns_of(tokens):
        if first not in text and wide not in text:
            continue

        def anew(match: re.Match[str], first: str = first, wide: str = wide) -> str:
            return written(first, wide, len(match["wides"]), match[0].endswith(first))

        text = pattern.sub(anew, text)
    return text


def _joined(content: Any) -> Any:
    """Text in parts as one text, as model servers join it: a token could stand in two of them."""
    texts = [
        part["text"]
        for part in (content if isinstance(content, list) else [])
        if isinstance(part, Mapping) and part.get("type", "text") == "text" and isinstance(part.get("text"), str)
    ]
    return "\n".join(texts) if texts and len(texts) == len(content) else content


def _in_json(raw: str, change: Callable[[str], str]) -> str:
    try:
        tree = json.loads(raw)
        meant = _in_tree(tree, change)
        return raw if meant == tree else json.dumps(meant, ensure_ascii=False)
    except (ValueError, RecursionError):
        return change(raw)


def _in_tree(value: Any, change: Callable[[str], str], *, of_json: tuple[str, ...] = ()) -> Any:
    """The value with each text changed; what stands under a key `of_json` is JSON itself."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_in_tree(item, change, of_json=of_json) for item in value]
    if isinstance(value, dict):
        return {
            change(str(key)): _in_json(item, change)
            if key in of_json and isinstance(item, str)
            else _in_tree(item, change, of_json=of_json)
            for key, item in value.items()
        }
    return value


def _wide(character: str) -> str:
    """The full-width form of a visible ASCII character, which Unicode's NFKC turns back; "" for others."""
    return chr(ord(character) + 0xFEE0) if "!" <= character <= "~" else ""


def _first(token: str) -> int | None:
    """The place of the character that is changed."""
    return next((n for n, character in enumerate(token) if _wide(character)), None) if len(token) > 2 else None


def _pattern(head: str, first: str, wide: str, rests: Iterable[str]) -> re.Pattern[str]:
    # The rest is only looked at, so that a token that begins within another one is found too.
    rest = "|".join(re.escape(text) for text in sorted(rests, key=len, reverse=True))
    before = f"(?<={re.escape(head)})" if head else f"(?<!{wide})"  # from a run's first alone: linear time
    return re.compile(f"{before}(?P<wides>{wide}*)(?:{re.escape(first)}|(?<={wide}))(?={rest})")


@dataclass(frozen=True)
class Added:
    """A token that was added to a tokenizer's vocabulary; `normalized` ones are looked for in normalised text."""

    text: str
    special: bool
    normalized: bool = False


def marks_of(added: Iterable[Added], template: str, normal: Callable[[str], str] | None = None) -> Marks:
    """The marks of a tokenizer: its special tokens, what its chat template writes that looks like a control token, and
    those that were added and can be nothing else. An added `<table>` is text.
    """
    added, written = list(added), SHAPE.findall(template)
    special = [token.text for token in added if token.special and token.text.strip()]
    barred = {token.text for token in added if SHAPE.fullmatch(token.text) and token.text[1] in "|｜"}
    others = [token.text for token in added if token.text in (*written, *FAMILIES, *barred)]
    tokens = tuple(dict.fromkeys([*special, *others, *written]))
    loose = (
        {normal(token.text) for token in added if token.normalized and token.text in tokens} if normal else set[str]()
    )
    return Marks(tokens, tuple(special), tuple(sorted(loose)), normal if loose else None)


def model_marks(model: Path) -> Marks:
    """The marks of a model folder; those of the known families where it has no tokenizer.json that can be read."""
    file = model / "tokenizer.json"
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        added = [
            Added(entry["content"], bool(entry.get("special")), bool(entry.get("normalized")))
            for entry in tree.get("added_tokens", [])
        ]
    except (OSError, ValueError):
        return Marks()
    normal = None
    if tree.get("normalizer") and any(token.normalized for token in added):
        from tokenizers import Tokenizer

        normal = Tokenizer.from_file(str(file)).normalizer.normalize_str
    return marks_of(added, read_template(model), normal)


def tokenizer_marks(tokenizer: Any) -> Marks:
    """The marks of a transformers tokenizer."""
    added = [Added(token.content, token.special, token.normalized) for token in tokenizer.added_tokens_decoder.values()]
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    return marks_of(added, str(tokenizer.chat_template or ""), normalizer.normalize_str if normalizer else None)
