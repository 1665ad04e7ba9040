"""What counts of an answer: thoughts removed, and only the marked part where the row's `answer_schema` asks for one.

Guarantees: pure functions, linear in the text's length; what comes out is a part of what went in; the last mark counts,
one inside a thought does not. Not covered: what the answer means.
"""

from __future__ import annotations

import re


def strip_thinking(text: str) -> str:
    """`text` without <think> blocks, also one that the prompt opened or that the length limit left open."""
    kept: list[str] = []
    is_open = False
    for piece in re.split(r"(</?think>)", text):
        if piece == "</think>" and not is_open:
            kept.clear()
        if piece in ("<think>", "</think>"):
            is_open = piece == "<think>"
        elif not is_open:
            kept.append(piece)
    return "".join(kept).strip()


def extract_answer(text: str, schema: str) -> str:
    """What the answer says: without thoughts and, for schema "answer" or "boxed", the last marked part ("" if none)."""
    text = strip_thinking(text)
    if schema == "answer":
        marked = re.findall(r"<answer>((?:(?!<answer>).)*?)</answer>", text, flags=re.DOTALL | re.IGNORECASE)
        return marked[-1].strip() if marked else ""
    return last_boxed(text) if schema == "boxed" else text


def last_boxed(text: str) -> str:
    r"""The content of the last complete \boxed{...} or \fbox{...}, braces inside included; "" when there is none."""
    open_braces: list[re.Match[str]] = []
    start, content = -1, ""
    for match in re.finditer(r"\\(?:boxed|fbox)\s*\{|\\?[{}]", text):
        if match[0] == "}" and open_braces:
            opening = open_braces.pop()
            if len(opening[0]) > 2 and opening.start() > start:
                start, content = opening.start(), text[opening.end() : match.start()].strip()
        elif match[0] == "{" or len(match[0]) > 2:
            open_braces.append(match)
    return content
