"""From a dialogue to token ids, in one way for training and for serving.

Guarantees: control tokens inside a text (`<|im_end|>` and its like) are removed before the chat template is applied, so
no answer can end its own turn or speak for another; what does not fit is cut from the last answer first, then from the
first turn, and the caller is told; the template's own tokens are never cut.
Not covered: control words of a template that are no special tokens of the tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from foundation.errors import UserError
from reward_model.pairs import Dialogue

CUT_ROUNDS = 8


@dataclass(frozen=True)
class Encoded:
    """Token ids of a dialogue, and whether a text had to be cut to fit."""

    ids: list[int]
    truncated: bool


class Encoder:
    """Applies a tokenizer's chat template within `max_tokens`.

    Raises UserError when the tokenizer has no chat template, or one that leaves no room for texts.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, max_tokens: int) -> None:
        if not tokenizer.chat_template:
            raise UserError(
                f"{tokenizer.name_or_path}: the tokenizer has no chat template; start from an instruct model, or "
                "save a template with the tokenizer"
            )
        self.max_tokens = max_tokens
        self._tokenizer = tokenizer
        decoder = tokenizer.added_tokens_decoder
        marks = {token.content for token in decoder.values() if token.special} | set(tokenizer.all_special_tokens)
        self._marks = sorted((mark for mark in marks if mark.strip()), key=len, reverse=True)
        self._marks_by_end: dict[str, list[str]] = {}
        for mark in self._marks:
            self._marks_by_end.setdefault(mark[-1], []).append(mark)
        if len(self._ids([("user", ""), ("assistant", "")])) > max_tokens // 2:
            raise UserError(f"a limit of {max_tokens} tokens leaves no room beside the chat template; raise it")

    def encode(self, dialogue: Dialogue) -> Encoded:
        """The ids of a dialogue; at most `max_tokens`."""
        turns = [(role, self.without_marks(text)) for role, text in dialogue]
        ids = self._ids(turns)
        if len(ids) <= self.max_tokens:
            return Encoded(ids, truncated=False)
        for place in (len(turns) - 1, *range(len(turns) - 1)):
            for _ in range(CUT_ROUNDS):
                excess = len(ids) - self.max_tokens
                role, text = turns[place]
                if excess <= 0 or not text:
                    break
                turns[place] = (role, self._shortened(text, excess))
                ids = self._ids(turns)
        # Removing text never adds tokens beyond the check above by more than a few merges; the rounds absorb those.
        return Encoded(ids[-self.max_tokens :], truncated=True)

    def without_marks(self, text: str) -> str:
        """The text without control tokens, those too that come about when one is taken out of another.

        One pass: marks nested a thousand deep must not take a thousand passes.
        """
        if not any(mark in text for mark in self._marks):
            return text
        kept: list[str] = []
        for char in text:
            kept.append(char)
            for mark in self._marks_by_end.get(char, ()):
                if kept[-len(mark) :] == list(mark):
                    del kept[-len(mark) :]
                    break
        return "".join(kept)

    def _ids(self, turns: Dialogue) -> list[int]:
        messages = [{"role": role, "content": text} for role, text in turns]
        return self._call(str(self._tokenizer.apply_chat_template(messages, tokenize=False)))["input_ids"]

    def _shortened(self, text: str, n_tokens: int) -> str:
        """The text without its last `n_tokens` tokens."""
        offsets = self._call(text, return_offsets_mapping=True)["offset_mapping"]
        return text[: offsets[-n_tokens][0]] if n_tokens < len(offsets) else ""

    def _call(self, text: str, **options: Any) -> Any:
        return self._tokenizer(text, add_special_tokens=False, verbose=False, **options)
