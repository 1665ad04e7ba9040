"""Answers that get 0 without asking anybody: they say nothing, or only what they were given.

Guarantees: pure functions, linear time; only what is literally empty or copied is caught (case, width, blanks and
punctuation aside), so a gate is a verdict and no guess. Near copies and set phrases are for the judge.
"""

from __future__ import annotations

import functools
import re
import unicodedata

MAX_READ_CHARS = 8000
# A reply of these alone has fooled LLM judges (Zhao et al. 2025, "One Token to Fool LLM-as-a-Judge").
MASTER_KEYS = {"solution", "thoughtprocess", "letssolvethisproblemstepbystep", "解", "解答", "答案", "思路", "解决方案"}
# What leads in to a question; behind one, the same words would be an answer ("...吗？是。").
LEADS_IN = re.compile(r"(?:(?:您的|你的|the|your)?(?:question|问题|题目)(?:是|is)?|请问|问|q)?")
SHINGLE_CHARS = 8
RUBRIC_SHARE = 0.6


def why_zero(*, question: str, answer: str, rubric: str = "") -> str:
    """Why this answer is worth nothing, or "" where a judge has to look at it."""
    plain_answer = _plain(answer[:MAX_READ_CHARS])
    if not plain_answer:
        return "the answer is empty"
    if plain_answer in MASTER_KEYS:
        return "the answer is a set phrase without content"
    if is_copied_question(question, answer):
        return "the answer only repeats the question"
    if _share_from(plain_answer, rubric) >= RUBRIC_SHARE:
        return "the answer is copied from the judge's rubric"
    return ""


def is_copied_question(question: str, answer: str) -> bool:
    """True when the answer is the question, however often, with at most a word like "Question" before it."""
    plain_question, plain_answer = _plain(question), _plain(answer[:MAX_READ_CHARS])
    *before, behind = plain_answer.split(plain_question) if plain_question else [plain_answer]
    return bool(before) and not behind and all(LEADS_IN.fullmatch(lead) for lead in before)


def _plain(text: str) -> str:
    """Letters and digits only, in one width and case."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text)).casefold()


def _share_from(text: str, rubric: str) -> float:
    """Share of the pieces of `text` that stand in `rubric`, in [0, 1]; 0 for texts too short to be recognised."""
    pieces = _pieces(text)
    return len(pieces & _known(rubric)) / len(pieces) if len(pieces) >= SHINGLE_CHARS else 0.0


@functools.lru_cache(maxsize=8)
def _known(rubric: str) -> frozenset[str]:
    return _pieces(_plain(rubric))


def _pieces(text: str) -> frozenset[str]:
    return frozenset(text[i : i + SHINGLE_CHARS] for i in range(len(text) - SHINGLE_CHARS + 1))
