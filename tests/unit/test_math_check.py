"""Answers compared as mathematics, in a real child process."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sql_agent.scoring.math_check import MathChecker, MathFault, candidate


@pytest.fixture(scope="module")
def checker() -> Iterator[MathChecker]:
    made = MathChecker(cpu_s=2.0)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("reference", "answer", "equal"),
    [
        ("1/2", r"\boxed{0.5}", True),
        ("0.5", r"so $\frac{1}{2}$.", True),
        ("1/2", r"\frac{2}{4}", True),
        ("1,000", "1000", True),
        ("x=3", "3", True),
        ("(x+1)^2", "x^2+2x+1", True),
        (r"\{1,2\}", r"\{2,1\}", True),
        (r"\sqrt{2}", r"\boxed{2^{1/2}}", True),
        ("4", "答案是 4。", True),
        ("4", "The answer is: 4", True),
        ("4", r"first \boxed{5}, no: \fbox{4}", True),
        ("4", r"\boxed{4} or \boxed{5}", False),
        ("4", "3 or 4", False),
        ("4", "1, 2, 3, 4", False),
        ("4", "14", False),
        ("4", "-4", False),
        ("(1,2)", "(2,1)", False),
        ("4", "four", False),
        ("48 / 2 = <<48/2=24>>24 in May.\n48 + 24 = 72\n#### 72", "First 24, then 48 + 24.\n#### 72", True),
        ("12 * 100 = 1200\n#### 1,200", "#### 1200", True),
        ("#### 18", "The answer is 18.", True),
        ("#### 18", "18 it is not.\n#### 17", False),
        ("#### 18", "#### 17\nNo:\n#### $18", True),
        ("#### 18", r"#### \boxed{18}", True),
        ("#### 18", "####", False),
        ("50%", "0.5", True),
        (r"12.5\%", r"\boxed{\frac{1}{8}}", True),
        ("50%", "50.0%", True),
        ("50%", "50", False),
        (r"5\text{ mg}", r"\boxed{5\text{毫克}}", True),
        (r"5\text{ mg}", r"\boxed{5}", True),
        (r"5\text{ mg}", r"\boxed{5\text{ g}}", False),
        (r"5\ \mathrm{mg}", r"\boxed{5\text{ μg}}", False),
        ("4", "x > 3", False),
    ],
)
def test_equal_as_mathematics(checker: MathChecker, reference: str, answer: str, equal: bool) -> None:
    verdict = checker.compare(reference, answer)
    assert verdict.equal is equal and bool(verdict.why) is not equal


BOMBS = {
    "tower": "9^{9^{9^{9}}}",
    "power": "9**9**9**9",
    "open fractions": r"\frac{" * 300 + "1",
    "open brackets": "(" * 1900,
    "factorials": "10000000!!!!",
    "long": "1" * 5000,
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=list(BOMBS))
def test_a_bomb_is_a_wrong_answer_and_the_next_one_is_compared(checker: MathChecker, bomb: str) -> None:
    started_s = time.monotonic()
    assert not checker.compare("4", bomb).equal
    assert checker.compare("4", "4").equal
    assert time.monotonic() - started_s < 30


def test_a_reference_that_cannot_be_read_is_a_fault(checker: MathChecker) -> None:
    for reference in ("", " ", "1" * 5000):
        with pytest.raises(MathFault, match="reference"):
            checker.compare(reference, "4")
    assert checker.compare("4", "4").equal


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{1} then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("$1$ and $$2$$", "2"),
        (r"\(x\)", "x"),
        ("答案是：4。", "4"),
        ("4", "4"),
    ],
)
def test_the_candidate(text: str, expected: str) -> None:
    assert candidate(text) == expected
