"""Judged answers, to measure judges with: JSONL in, validated items out; and rewritings that must not change a score.

One object a line: question, reference, evidence (a text or a list of texts), answer, label in [0, 1], kind, and, where
it is known, task_type and attack (true or false; without it, kinds outside HONEST_KINDS count as attacks); other keys
are notes. Guarantees: every error names file and line; a rewriting keeps the label, and is None where it has nothing to
change. How labels of the bundled set are made: data/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, ValidationError, field_validator

from foundation.errors import UserError, first_of, problems_of
from foundation.files import decode_line, numbered_lines
from sql_agent.data.bundled import DATA
from sql_agent.records import Record

BUNDLED_ITEMS = DATA / "judge_items.jsonl"
HONEST_KINDS = (
    *("good", "partial", "wrong", "paraphrase", "reordered", "unattributed", "honest"),
    *("correct", "incorrect", "incomplete", "fair"),  # as others call them
)

FACT_END = re.compile(r"[；;]\s*")
SENTENCE = re.compile(r"[^。\n]+[。\n]?")
# Other words for the same, as database texts and answers use them; none is a part of a medical name here.
SYNONYMS = {
    "慎用": "谨慎使用",
    "禁用": "禁止使用",
    "升高": "上升",
    "降低": "下降",
    "增加": "增多",
    "每日": "每天",
    "每次": "一次",
    "避免": "不要",
    "多见于": "常见于",
    "引起": "导致",
}


class JudgedItem(Record):
    """One answer with the score that it deserves. `kind` says what sort of answer it is."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = ""
    question: str = Field(min_length=1)
    reference: str = ""
    evidence: list[str] = Field(default_factory=list)
    answer: str
    label: float = Field(ge=0, le=1, allow_inf_nan=False, strict=True)
    kind: str = Field(min_length=1)
    task_type: str = ""
    attack: bool | None = None

    @field_validator("id", mode="before")
    @classmethod
    def _number_is_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) else value or ""

    @field_validator("evidence", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        """A text is one piece of evidence; of an object, as question files have them, the quote counts."""
        if value is None:
            return []
        pieces = [value] if isinstance(value, str) else value
        if not isinstance(pieces, list):
            return pieces
        return [p["quote"] if isinstance(p, dict) and "quote" in p else p for p in pieces if p != ""]

    @property
    def is_attack(self) -> bool:
        """True for an answer that tries to earn more than it says."""
        return self.kind.lower() not in HONEST_KINDS if self.attack is None else self.attack


@dataclass(frozen=True)
class Rewriting:
    """A way to write an item anew that leaves what it deserves as it is; `changed` gives the other values."""

    name: str
    about: str
    changed: Callable[[JudgedItem], dict[str, Any]]


def load_items(path: Path) -> list[JudgedItem]:
    """All items of a file, with ids (the line's number where there is none). Raises UserError listing the bad lines."""
    if not path.is_file():
        raise UserError(f"{path}: {'is a folder' if path.is_dir() else 'does not exist'}; a JSONL file is needed")
    items: list[JudgedItem] = []
    bad: list[str] = []
    for number, line in numbered_lines(path):
        try:
            item = _parse(line)
            items.append(item if item.id else item.model_copy(update={"id": str(number)}))
        except ValueError as exc:
            bad.append(f"line {number}: {exc}")
    if bad:
        raise UserError("\n  ".join([f"{path}: bad lines ({len(bad)}); mend or remove them:", *first_of(bad)]))
    if not items:
        raise UserError(f"{path}: no line; a judge is measured on judged answers, one JSON object a line")
    return items


def _parse(line: bytes) -> JudgedItem:
    """Raises ValueError with a reason for people."""
    value = decode_line(line)
    if not isinstance(value, dict):
        raise ValueError(f"an object is needed, not {type(value).__name__}")
    try:
        item = JudgedItem.model_validate(value)
    except ValidationError as exc:
        raise ValueError(problems_of(exc, most=3)) from None
    if not item.reference.strip() and not item.evidence:
        raise ValueError("reference and evidence are both empty: there is nothing to judge by")
    return item


def rewrite(item: JudgedItem, how: Rewriting) -> JudgedItem | None:
    """The item written anew; None where nothing changes."""
    new = item.model_copy(update=how.changed(item))
    return None if new == item else new


def _reordered(item: JudgedItem) -> dict[str, Any]:
    evidence = [SENTENCE.sub(_reversed_facts, quote) for quote in reversed(item.evidence)]
    return {"reference": SENTENCE.sub(_reversed_facts, item.reference), "evidence": evidence}


def _reversed_facts(match: re.Match[str]) -> str:
    """The facts of a sentence in reverse order; its label, which ends at the last colon, stays in front."""
    sentence = match[0]
    body = sentence.rstrip("。\n")
    head = max(body.rfind("："), body.rfind(": ")) + 1
    facts = FACT_END.split(body[head:].strip())
    if len(facts) < 2:
        return sentence
    return body[:head] + "；".join(reversed(facts)) + sentence[len(body) :]


def _framed(answer: str) -> str:
    if not re.search(r"\w", answer):
        return answer
    # A new line would cut a table.
    plain = answer.replace("；", "，" if "|--" in answer else "，\n").strip()
    if re.search(r"[\u3400-\u9fff]", answer):
        return f"您好！根据查询结果，{plain}\n希望对您有帮助，谢谢！"
    return f"Hello! According to the database: {plain}\nThank you."


def _listed(answer: str) -> str:
    lines = [line for line in FACT_END.split(answer.strip()) if line]
    return answer if len(lines) < 2 or "|--" in answer else "\n".join(f"- {line}" for line in lines)


def _reworded(answer: str) -> str:
    for word, other in SYNONYMS.items():
        answer = answer.replace(word, other)
    return answer


AGAIN = Rewriting(
    "again",
    "the same, judged a second time: a blank after the question keeps a cache from answering",
    lambda item: {"question": f"{item.question} "},
)
LAYOUT = Rewriting("layout", "the answer as a list, an item a line", lambda item: {"answer": _listed(item.answer)})
ORDER = Rewriting("order", "facts of reference and evidence in reverse order", _reordered)
FRAME = Rewriting(
    "frame", "polite frame and other punctuation around the answer", lambda item: {"answer": _framed(item.answer)}
)
WORDS = Rewriting("words", "synonyms in the answer", lambda item: {"answer": _reworded(item.answer)})
REWRITINGS = (AGAIN, LAYOUT, ORDER, FRAME, WORDS)
HARMLESS = (AGAIN, LAYOUT, ORDER, FRAME)  # no word of the answer is another
