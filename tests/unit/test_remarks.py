"""Words beside quotes: remarks, wishes and glue cost nothing; what claims, denies, doubts or counts wrongly does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sql_agent.config import ROOT
from sql_agent.offline_judge import verdicts
from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.lexicon import Lexicon, spell
from sql_agent.offline_judge.reading import CAP
from sql_agent.offline_judge.sections import Cell

ROW = [
    Cell("Marlin 24", row="b1", column="boat"),
    Cell("Rinse with fresh water; dry in the shade; store at most 6 months.", row="b1", column="sail_care"),
    Cell("Oak on steel frames", row="b1", column="hull"),
    Cell("14 days before the trip", row="b1", column="cancellation"),
    Cell("900 euros a week", row="b1", column="price"),
]
QUOTE = "Rinse with fresh water, dry in the shade, and store at most 6 months"
ZH = [
    Cell("云杉膏", row="m1", column="名称"),
    Cell("每日涂抹2次；疗程不超过14天。", row="m1", column="用法"),
    Cell("皮肤破损者禁用", row="m1", column="禁忌"),
    Cell("密封，置阴凉处", row="m1", column="贮藏"),
    Cell("松节油、蜂蜡", row="m1", column="成分"),
]
QUOTE_ZH = "每日涂抹2次，疗程不超过14天"


def value(question: str, answer: str, cells: list[Cell], reference: str = "") -> float:
    verdict = grade(question=question, reference=reference, answer=answer, evidence=cells)
    assert verdict is not None
    return verdict.value


@pytest.mark.parametrize(
    "answer",
    [
        f"{QUOTE}. Enjoy your trip!",
        f"{QUOTE}. Have a pleasant day!",
        f"Rule 3 covers this: {QUOTE}.",
        f"The boat table has one match. {QUOTE}.",
        f"There are three steps: {QUOTE}.",
        "The Marlin 24 needs: rinse with fresh water, dry in the shade, store at most 6 months.",
        "Rinse with fresh water, then dry it in the shade and store it at most 6 months.",
        "- [x] Rinse with fresh water\n- [x] dry in the shade\n- [x] store at most 6 months",
    ],
)
def test_remarks_wishes_and_words_of_grammar_cost_nothing(answer: str) -> None:
    assert value("How do I look after the sails of the Marlin 24 (sail care)?", answer, ROW) >= 0.9


@pytest.mark.parametrize(
    "answer",
    [
        f"{QUOTE}. The record was deleted.",
        f"{QUOTE}. Good for the hull, too, says nobody.",
        f"{QUOTE}. Safe in acid.",
        f"There are seven steps: {QUOTE}.",
        f"The table is wrong. {QUOTE}.",
        f"{QUOTE}. Bleach cures mould.",
        f"Never: {QUOTE}.",
    ],
)
def test_claims_denials_and_wrong_counts_are_lies(answer: str) -> None:
    assert value("How do I look after the sails of the Marlin 24 (sail care)?", answer, ROW) < CAP


@pytest.mark.parametrize(
    ("question", "answer", "column"),
    [
        ("云杉膏怎么涂？", QUOTE_ZH, "用法"),
        ("云杉膏哪些人不能用？", "皮肤破损者禁用。", "禁忌"),
        ("云杉膏怎么保存？", "云杉膏的保存方法：密封、置阴凉处。以上供参考。", "贮藏"),
        ("云杉膏里含有哪些东西？", "成分是松节油和蜂蜡。", "成分"),
    ],
)
def test_a_question_asks_for_a_column_by_what_it_is_for(question: str, answer: str, column: str) -> None:
    assert value(question, answer, ZH) >= 0.9
    assert value(question, "；".join(cell.text for cell in ZH if cell.column != column), ZH) <= 0.1


@pytest.mark.parametrize(
    ("question", "text", "told"),
    [
        ("May the drops be given to infants", "They may not be given to infants. So they may not.", [False, False]),
        ("May the drops be given to infants", "The drops may be given to infants.", [True]),
        ("May the drops be given to infants", "If they may be given to infants: ask.", []),
        ("May the drops be given to infants", "They might be given to infants.", []),
        ("病人能不能吃这个药", "因此病人不能吃这个药。", [False]),
        ("病人能不能吃这个药", "病人能吃这个药吗。", []),
        ("病人能不能吃这个药", "病人可能吃这个药。", []),
    ],
)
def test_a_verdict_in_the_words_of_the_question(question: str, text: str, told: list[bool]) -> None:
    assert [is_yes for *_, is_yes in verdicts.repeated(text.lower(), question.lower())] == told


def test_words_of_grammar_may_stand_in_a_word_or_be_left_out_and_no_other() -> None:
    lexicon = Lexicon(["服用时将本品倒入温开水"], skips=True)
    told = spell("服用时将本品倒入温开水")
    for text in ("服用时将本品倒入温开水", "服用时倒入温开水", "服用时应倒入温开水"):
        words, unknown = lexicon.read(text)
        assert [word for *_, word in words] == [told] and not unknown
    for text in ("服用时不倒入温开水", "服用时倒入冷开水", "服用时倒入半温开水"):
        assert not lexicon.read(text)[0]
    assert not Lexicon(["服用时将本品倒入温开水"]).read("服用时倒入温开水")[0]


def test_the_value_does_not_hang_on_the_order_of_sets() -> None:
    code = (
        "import json\n"
        "from tests.unit.test_quoted_answers import values\n"
        "from tests.unit import test_quoted_answers as sets\n"
        "sets.ASKS = [ask for ask in sets.ASKS if ask['kind'] in ('which', 'compared')][::3]\n"
        "print(json.dumps([values(half, 'honest') for half in 'ABC']))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(told) == 1
