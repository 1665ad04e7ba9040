"""Fenced blocks of a Markdown page, those of list items too."""

from __future__ import annotations

import re
import textwrap

FENCE = re.compile(r"^([ ]*)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
Block = tuple[str, str]


def blocks_of(text: str) -> list[Block]:
    """(language, body) of each."""
    return [(m[2], textwrap.dedent(m[3])) for m in FENCE.finditer(text)]
