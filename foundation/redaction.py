"""Secrets of this process, taken out of every text that comes from outside or goes to people.

Guarantees: a secret that was named with `keep_secret` is replaced by *** as it stands, in hex, in base64 (also inside
a longer text, "Bearer ..." or "user:..."), and with any of its characters escaped as in a URL, JSON or HTML, repeatedly
too. Not covered: a secret that is cut in two, written backwards or in other capitals.
"""

from __future__ import annotations

import base64
import functools
import re
from typing import Any

MIN_SECRET_CHARS = 5  # a shorter key is no secret, and may be part of a word
NO_SECRETS = {"EMPTY", "dummy"}  # what people write where a server asks for no key
MASK = "***"
ESCAPES = ("\\", "%", "&#")
_secrets: set[str] = set()


def keep_secret(value: str) -> None:
    """Never show this value from now on."""
    if len(value) >= MIN_SECRET_CHARS and value not in NO_SECRETS:
        _secrets.add(value)


def redacted(text: str) -> str:
    """`text` without the secrets of this process."""
    for secret in _secrets:
        for form in _forms(secret):
            text = text.replace(form, MASK)
        if any(mark in text for mark in ESCAPES):
            text = _escaped(secret).sub(MASK, text)
    return text


def redacted_tree(tree: Any) -> Any:
    """The same for all texts among the values of a JSON tree."""
    if isinstance(tree, str):
        return redacted(tree)
    if isinstance(tree, list):
        return [redacted_tree(branch) for branch in tree]
    return {key: redacted_tree(value) for key, value in tree.items()} if isinstance(tree, dict) else tree


@functools.lru_cache(maxsize=64)
def _forms(secret: str) -> tuple[str, ...]:
    data = secret.encode()
    forms = [secret, data.hex(), data.hex().upper()]
    # base64 depends on where in a group of three bytes the secret begins: the bytes before it reach into its characters
    for before, first in ((0, 0), (1, 2), (2, 3)):
        coded = base64.b64encode(bytes(before) + data).decode()
        inner = coded[first : (before + len(data)) * 8 // 6]
        forms += [inner, inner.replace("+", "-").replace("/", "_")]
    return tuple(form for form in dict.fromkeys(forms) if len(form) >= MIN_SECRET_CHARS)


@functools.lru_cache(maxsize=64)
def _escaped(secret: str) -> re.Pattern[str]:
    def ways(character: str) -> str:
        code = ord(character)
        numbered = rf"(?:\\+(?:u00|x)|%(?:25)*){code:02x}|&(?:amp;)*#(?:x0*{code:x}|0*{code});"
        return rf"(?:\\*{re.escape(character)}|(?i:{numbered}))"

    # From the first of a run of backslashes alone, or from what follows it: linear time.
    return re.compile(rf"(?:(?<!\\)|(?!\\)){''.join(map(ways, secret))}")
