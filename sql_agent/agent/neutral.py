"""Text of others - tool results, tool descriptions - with nothing in it that a chat template could take for its own.

Guarantees: no marker of the families in use (`<|im_start|>`, `<tool_call>`, `<｜tool▁sep｜>`, `[INST]`, `<<SYS>>`) is
in what comes out, wherever it stood and however it was put together: the first character of each is replaced by its
full-width form, which Unicode's NFKC turns back. Length and all other characters stay. `forgeable` finds the tokens of
a model that this rule does not know.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

# A bracket at which a marker may begin: "<" before a letter, "|", "/" or another "<"; "[" before capitals and "]".
MARK = re.compile(r"<(?=[|｜/<!a-zA-Z_])|\[(?=/?[a-z]?[A-Z_]{3,}\])")
WIDE = {"<": "＜", "[": "［"}


def neutral(text: str) -> str:
    """The text without markers."""
    return MARK.sub(lambda found: WIDE[found[0]], text)


def neutral_tree(value: Any) -> Any:
    """The JSON value with each text in it made neutral, keys too."""
    if isinstance(value, str):
        return neutral(value)
    if isinstance(value, list):
        return [neutral_tree(item) for item in value]
    if isinstance(value, dict):
        return {neutral(str(key)): neutral_tree(item) for key, item in value.items()}
    return value


def special_tokens(model: Path) -> list[str]:
    """The control tokens of a model folder, which mark turns and calls; [] without a tokenizer.json."""
    file = model / "tokenizer.json"
    if not file.is_file():
        return []
    added = json.loads(file.read_text(encoding="utf-8")).get("added_tokens", [])
    return [token["content"] for token in added if token.get("special") or MARK.search(token["content"])]


def forgeable(tokens: list[str]) -> list[str]:
    """Those tokens that text could still hold."""
    return [token for token in tokens if token in neutral(token)]
