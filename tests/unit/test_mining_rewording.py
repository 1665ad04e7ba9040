"""Free wordings of demonstrations: what of a wording must stay, and what may not come in."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

import pytest

from sql_agent.mining.asks import KINDS
from sql_agent.mining.questions import shown_wordings
from sql_agent.mining.rewording import IN_ORDER, Rewording, everyday

SLOT = re.compile(r"{\w+}")
N = 40


def reworded(language: str, kind: str, *, seed: int = 1) -> list[tuple[str, str]]:
    made = Rewording(language, random.Random(f"{seed} {kind}"))
    shown = shown_wordings(language, kind)
    return [(wording, made.of(wording, kind)) for wording in shown * N]


def words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"[a-z]+|[\u4e00-\u9fff]", SLOT.sub(" ", text.lower()))}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("kind", KINDS)
def test_placeholders_stay_each_as_often_and_in_the_order_of_the_query(language: str, kind: str) -> None:
    for wording, text in reworded(language, kind):
        slots = SLOT.findall(text)
        assert sorted(slots) == sorted(SLOT.findall(wording))
        for first, last in IN_ORDER:
            assert not {first, last} <= {*slots} or slots.index(first) < slots.index(last)
        assert text.count("“{") == wording.count("“{") and text.count("}”") == wording.count("}”")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_word_comes_in_that_only_held_wordings_have(language: str) -> None:
    shown = words(text for kind in KINDS for text in shown_wordings(language, kind))
    held = words(text for kind in KINDS for text in shown_wordings(language, kind, held=True)) - shown
    assert held and everyday(language)
    made = words(text for kind in KINDS for _, text in reworded(language, kind))
    assert made - shown and not made & held


@pytest.mark.parametrize(
    ("language", "kind", "told"),
    [
        ("en", "counted", "how many|count|number"),
        ("en", "most", "most|largest number|more .*than"),
        ("en", "without", "no|without"),
        ("zh", "counted", "多少|几个|数"),
        ("zh", "without", "没"),
    ],
)
def test_what_tells_a_kind_stays(language: str, kind: str, told: str) -> None:
    for wording, text in reworded(language, kind):
        assert re.search(told, text, re.IGNORECASE), wording
    assert not [word for word in everyday(language) if re.fullmatch(told, word)]


def test_wordings_differ_and_are_decided_by_the_seed() -> None:
    texts = [text for _, text in reworded("en", "counted")]
    assert texts == [text for _, text in reworded("en", "counted")]
    assert len({*texts}) > 0.95 * len(texts)
    orders = {tuple(SLOT.findall(text)) for text in texts}
    assert len(orders) > 3
