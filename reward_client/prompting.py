"""The judge's prompts: a rubric as system message, then the texts to judge between markers that they cannot forge.

Guarantees: each call has a random number of its own in its markers; whatever looks like a marker or like the control
token of a chat template is replaced in the texts by TAKEN_OUT, and no part of them can be read as a verdict, however
the judge repeats it; long texts are cut, and the cut is marked.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from foundation.files import writable
from reward_client.parsing import WEIGHTS, inert
from reward_client.schema import JudgeItem

PROMPTS = Path(__file__).resolve().parent / "prompts"
# Raise it when the layout of the user message changes: replies that were cached before do not count. Those that
# parsing.py does not read any more are asked for anew without that.
FORMAT = 4
GRADED = "QUESTION, REFERENCE, EVIDENCE and ANSWER"
MAX_ANSWER_CHARS = 8000
MAX_GROUP_CHARS = 48_000
MAX_CONTEXT_CHARS = 16_000
MAX_PROMPT_CHARS = 16_000
PLACEHOLDER = re.compile(r"\{\s*(\w+)\s*\}")
NONE_GIVEN = "(none)"
TAKEN_OUT = "\ufffd"  # no marker can hold it: what stood around a marker does not become one, however deep it is nested
# Our own markers, and what chat templates take for structure (ChatML, Llama, DeepSeek, Gemma, Mistral).
MARKER = re.compile(
    r"<{2,8}\s{0,8}(?:BEGIN|END)\s{1,8}[A-Z]+(?:[_\s]\d+)?\s{1,8}[0-9a-f]+\s{0,8}>{2}>*"
    r"|<[|｜][^<>|｜\ufffd]{0,64}[|｜]>|</?(?:start_of_turn|end_of_turn|bos|eos|s)>|\[/?INST\]|<</?SYS>>|<{3,}|>{3,}",
    re.I,
)


def load_prompt(name: str) -> str:
    """The text of reward_client/prompts/NAME.txt. Raises ValueError naming those there are."""
    path = PROMPTS / f"{name}.txt"
    if not path.is_file():
        names = ", ".join(sorted(p.stem for p in PROMPTS.glob("*.txt")))
        raise ValueError(f"rubric {name!r}: no such file in reward_client/prompts. There are: {names}")
    return path.read_text(encoding="utf-8").strip()


def read_prompt(path: Path, *, asks_for: Sequence[str] = tuple(WEIGHTS), blocks: str = GRADED) -> str:
    """A rubric of one's own: what `build_messages` needs must be in it. Raises ValueError with what to change.

    `asks_for` are the keys of the JSON object that it must ask for, `blocks` the names of the texts in the message.
    """
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "no UTF-8"
        raise ValueError(f"{path}: cannot be read ({why}); name a text file") from None
    if len(text) > MAX_PROMPT_CHARS:
        raise ValueError(f"{path}: has {len(text)} characters, and at most {MAX_PROMPT_CHARS} are sent; shorten it")
    named = set(PLACEHOLDER.findall(text))
    if "{nonce}" not in text:
        raise ValueError(
            f"{path}: must hold the placeholder {{nonce}}: say that each text stands between markers with the number "
            "{nonce}, so that no answer can forge one"
        )
    if unknown := sorted(named - {"nonce"}):
        raise ValueError(
            f"{path}: unknown placeholder {{{unknown[0]}}}: {{nonce}} is the only one. The texts come in the user "
            f"message; call them {blocks}"
        )
    if missing := [name for name in asks_for if name not in text]:
        raise ValueError(
            f"{path}: does not ask for {', '.join(missing)}: the judge must be told to answer with one JSON object of "
            f"{', '.join(asks_for)}{' (each from 0 to 1)' if len(asks_for) > 1 else ''} and reason"
        )
    return text


def answer_blocks(item: JudgeItem) -> dict[str, str]:
    """The texts by which one answer is graded."""
    return {**_context(item), "ANSWER": _cut(item.answer, MAX_ANSWER_CHARS)}


def question_blocks(*, question: str, reference: str) -> dict[str, str]:
    """The texts by which a question is kept or not."""
    return {"QUESTION": _cut(question, MAX_ANSWER_CHARS), "REFERENCE": _cut(reference, MAX_ANSWER_CHARS)}


def group_blocks(item: JudgeItem, answers: Sequence[str]) -> dict[str, str]:
    """Several answers to the question of `item` (whose own answer is not shown), numbered from 1."""
    longest = min(MAX_ANSWER_CHARS, MAX_GROUP_CHARS // max(1, len(answers)))
    numbered = {f"ANSWER_{n}": _cut(text, longest) for n, text in enumerate(answers, start=1)}
    return {**_context(item), **numbered}


def strip_markers(text: str, nonce: str) -> str:
    """`text` without anything that looks like a marker, a chat template's control token or a judge's reply."""
    return inert(MARKER.sub(TAKEN_OUT, writable(text)), TAKEN_OUT).replace(nonce, TAKEN_OUT)


def _context(item: JudgeItem) -> dict[str, str]:
    return {
        "QUESTION": item.question[:MAX_ANSWER_CHARS],
        "REFERENCE": item.reference[:MAX_CONTEXT_CHARS],
        "EVIDENCE": "\n".join(f"- {quote}" for quote in item.evidence)[:MAX_CONTEXT_CHARS],
    }


def _cut(text: str, most_chars: int) -> str:
    return text if len(text) <= most_chars else f"{text[:most_chars]} [CUT]"


def build_messages(rubric: str, blocks: Mapping[str, str]) -> list[dict[str, str]]:
    """The prompt: the rubric, and the texts by their names."""
    nonce = secrets.token_hex(8)
    text = "\n\n".join(
        f"<<<BEGIN {name} {nonce}>>>\n{strip_markers(body, nonce).strip() or NONE_GIVEN}\n<<<END {name} {nonce}>>>"
        for name, body in blocks.items()
    )
    return [{"role": "system", "content": rubric.replace("{nonce}", nonce)}, {"role": "user", "content": text}]
