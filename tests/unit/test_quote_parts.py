"""Parts of cells: what a question asks of one, what a summary repeats, and what else the evidence says."""

from __future__ import annotations

import pytest

from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.reading import CAP
from sql_agent.offline_judge.sections import Cell

SCREWS = Cell(
    "<p>【拧紧力矩】</p><p><strong>铝件</strong></p><p>手动预紧后拧到6Nm。</p><table><tr><th>规格</th><th>力矩</th><th>复查</th></tr>"
    "<tr><td>M6</td><td>9Nm</td><td>每月一次</td></tr><tr><td>M8</td><td>21Nm</td><td>每年一次</td></tr></table>",
    "manuals 4",
    "torque",
)
SCREWS_EN = Cell(
    "<h4>Soil</h4><p>Loam with sand.</p><p>Lime in spring.</p><h4>Water</h4><p>Twice a week.</p><p>Never at noon.</p>",
    "garden 2",
    "care",
)


def _value(question: str, reference: str, answer: str, *cells: Cell) -> float:
    found = grade(question=question, reference=reference, answer=answer, evidence=cells)
    assert found
    return found.value


@pytest.mark.parametrize(
    ("answer", "least", "most"),
    [
        ("M8：21Nm，每年一次。", 0.9, 1),
        ("数据库中泵架的拧紧力矩如下：\n|规格|力矩|复查|\n|---|---|---|\n|M8|21Nm|每年一次|", 0.9, 1),
        ("M6：9Nm，每月一次。", 0, 0.1),
        ("M8：9Nm，每月一次。", 0, 0.25),
        ("M8：21Nm。", 0.5, 0.8),
    ],
)
def test_a_row_that_the_question_names_is_what_it_asks_for(answer: str, least: float, most: float) -> None:
    assert least <= _value("泵架的M8螺栓怎么拧？", "拧到二十一，一年复查一回。", answer, SCREWS) <= most


def test_a_section_that_the_question_names_is_all_that_stands_under_it() -> None:
    asked = ("What does the guide say about water for roses?", "")
    assert _value(*asked, "Water: Twice a week. Never at noon.", SCREWS_EN) >= 0.9
    assert 0 < _value(*asked, "Water: Twice a week.", SCREWS_EN) < 0.8
    assert _value(*asked, "Soil: Loam with sand. Lime in spring.", SCREWS_EN) <= 0.1


def test_rows_that_are_not_asked_for_keep_their_headings() -> None:
    asked = ("泵架的拧紧力矩是多少？", "手动预紧后拧到6Nm。")
    whole = "铝件：手动预紧后拧到6Nm。M6：9Nm，每月一次。M8：21Nm，每年一次。"
    assert _value(*asked, whole, SCREWS) >= 0.9
    assert _value(*asked, whole.replace("9Nm", "?").replace("21Nm", "9Nm").replace("?", "21Nm"), SCREWS) <= CAP


TENT = Cell(
    "Pitch the tent on level ground, with its door away from the wind. Peg the corners first. In rain, open both vents "
    "for ten minutes each hour, or the walls drip. Dry it before it is packed, never in a tumble dryer.",
    "gear 7",
    "instructions",
)


@pytest.mark.parametrize(
    ("answer", "least", "most"),
    [
        ("In rain, open both vents for ten minutes each hour, or the walls drip.", 0.9, 1),
        ("In rain, open both vents for ten minutes each hour.", 0.2, 0.89),
        ("Peg the corners first. Or the walls drip.", 0, 0.8),
        ("Dry it before it is packed, never in a tumble dryer.", 0, 0.8),
        ("In rain, open both vents for twenty minutes each hour, or the walls drip.", 0, 0.25),
    ],
)
def test_one_run_of_facts_with_all_that_a_reference_tells_is_the_part_that_is_asked_for(
    answer: str, least: float, most: float
) -> None:
    reference = "Let air through both vents, ten minutes in the hour; otherwise the walls get wet and drip."
    assert least <= _value("What must one do with a Fjell in wet weather?", reference, answer, TENT) <= most


COLUMNS = [Cell("漆面哑光；接缝无胶", "1", "c1"), Cell("1931年建成；现存三处", "1", "c2")]


@pytest.mark.parametrize("question", ["列出磁器口门的外观和历史与分布。", "磁器口门的外观和历史与分布分别是什么？"])
def test_a_title_may_have_a_joint_of_its_own(question: str) -> None:
    reference = "\n".join(cell.text for cell in COLUMNS)
    told = "外观：{}。\n历史与分布：{}。"
    assert _value(question, reference, told.format(*(cell.text for cell in COLUMNS)), *COLUMNS) >= 0.9
    assert _value(question, reference, told.format(*(cell.text for cell in COLUMNS[::-1])), *COLUMNS) <= 0.1


KITES = [Cell("silk with paper; bamboo", "1", "frame"), Cell("up to 12 m/s", "1", "wind")]
KITES += [Cell("nylon; carbon rods", "2", "frame"), Cell("up to 30 m/s", "2", "wind")]
BODY = "\n".join(
    f"- {thing} ({column}): {cell.text}."
    for (thing, column), cell in zip(
        [(thing, column) for thing in ("Swift", "Heron") for column in ("frame", "wind")], KITES, strict=True
    )
)


@pytest.mark.parametrize(
    ("summary", "is_true"),
    [
        ("In short, for Swift: silk with paper.", True),
        ("To sum up: Heron, nylon; carbon rods.", True),
        ("In short, for Swift: nylon; carbon rods.", False),
        ("In short, for Swift: silk with glass.", False),
        ("Overall, ignore that.", False),
    ],
)
def test_a_summary_that_repeats_is_free_and_one_that_does_not_is_none(summary: str, is_true: bool) -> None:
    question = "Compare the frame and wind of Swift and Heron."
    reference = "\n".join(cell.text for cell in KITES)
    assert (_value(question, reference, f"{BODY}\n\n{summary}", *KITES) >= 0.9) is is_true


@pytest.mark.parametrize(
    "talk",
    [
        "来源：garden 表中“care”一栏。",
        "(Source: table garden, column care)",
        "Here's the text, exactly as recorded:",
        "我在数据库中找到了原文，逐条列出如下：",
        "This information does not replace professional medical advice.",
        "如有疑问，请咨询相关部门。",
    ],
)
def test_what_only_says_whence_a_quote_is_costs_nothing(talk: str) -> None:
    quote = "Loam with sand. Lime in spring."
    answer = f"{talk}\n{quote}" if talk.endswith((":", "：")) else f"{quote}\n{talk}"
    assert _value("Which soil do roses want?", quote, answer, SCREWS_EN) >= 0.9


@pytest.mark.parametrize(
    "lie", ["Sorry, I read another row.", "这一条已经作废。", "Only for old bushes:", "另外还可以喂鱼。"]
)
def test_what_takes_a_quote_back_or_adds_to_it_does_not(lie: str) -> None:
    quote = "Loam with sand. Lime in spring."
    answer = f"{lie}\n{quote}" if lie.endswith(":") else f"{quote}\n{lie}"
    assert _value("Which soil do roses want?", quote, answer, SCREWS_EN) <= CAP


LAMPS = [
    Cell("床头灯；夜灯模式：亮度5%；暖光；勿覆盖。", "0 0", "usage"),
    Cell("落地灯；阅读模式：亮度80%；冷光；勿覆盖。", "0 1", "usage"),
]
BOTH_LAMPS = ("夜明灯和高塔灯的用法有什么区别？", "")
NIGHT, READING = "床头灯；夜灯模式：亮度5%；暖光；勿覆盖。", "落地灯；阅读模式：亮度80%；冷光；勿覆盖。"


def test_two_things_are_told_apart_as_the_former_and_the_latter() -> None:
    assert _value(*BOTH_LAMPS, f"前者：{NIGHT}\n后者：{READING}", *LAMPS) >= 0.9
    assert _value(*BOTH_LAMPS, f"前者：{READING}\n后者：{NIGHT}", *LAMPS) <= 0.1


KILN = Cell(
    "Load the shelves from below. Stoneware: hold the kiln at 1240 °C, then cool it slowly. "
    "Earthenware: stop at 1060 °C. Leave the lid shut for a day.",
    "studio 3",
    "firing",
)


def test_the_one_line_that_has_the_words_of_the_question_is_the_part() -> None:
    asked = ("How is stoneware fired?", "At 1240 °C.")
    assert _value(*asked, "Stoneware: hold the kiln at 1240 °C, then cool it slowly.", KILN) >= 0.9
    assert _value(*asked, "Earthenware: stop at 1060 °C.", KILN) <= 0.1


def test_a_yes_and_its_reason_are_not_all_where_more_is_asked() -> None:
    question = "青苔锭可以外用吗？如果可以，怎么外用、治什么？"
    reference = "青苔锭可以外用，方法为酒磨调敷患处，外治冻疮、湿疹、癣。"
    cells = [
        Cell("口服，一次0.4g。外用，酒磨调敷患处。", "青苔锭", "用法用量"),
        Cell("用于腹痛吐泻；外治冻疮，湿疹，癣。", "青苔锭", "功能主治"),
        Cell("孕妇忌用。", "青苔锭", "禁忌"),
    ]

    def value(answer: str) -> float:
        found = grade(question=question, reference=reference, answer=answer, evidence=cells)
        return found.value if found else -1.0

    assert value(reference) >= 0.9
    assert value("可以外用，酒磨调敷患处，外治冻疮、湿疹、癣。") >= 0.9
    assert value("可以外用，酒磨调敷患处。") < 0.9


LEDGER = Cell(
    "**Juniors.** 6 to 9 years: one racket a week; 10 to 12 years: two rackets a week.\n"
    "**Adults.** Three rackets a week; strings are extra.\n**Storage.** Keep rackets below 30 °C.",
    "club 3",
    "rules",
)
TARIFF = Cell(
    "<table><tr><th>货类</th><th>约定</th></tr><tr><td>干货</td><td>免赔额2%</td></tr>"
    "<tr><td>鲜货</td><td>每两小时记录温度；免赔额5%</td></tr></table>",
    "条款 8",
    "正文",
)
SALT = [Cell("含盐酸的清洁剂；含铜的器具。", "白垩膏", "禁忌"), Cell("涂薄层，每日2次。", "白垩膏", "用法")]


@pytest.mark.parametrize(
    ("question", "cells", "answer", "least", "most"),
    [
        # A bold word with a full stop is a heading; labels stand below it.
        (
            "What do the rules store about juniors?",
            [LEDGER],
            "6 to 9 years: one racket a week; 10 to 12 years: two.",
            0,
            0.8,
        ),
        (
            "What do the rules store about juniors?",
            [LEDGER],
            "**Juniors.** 6 to 9 years: one racket a week; 10 to 12 years: two rackets a week.",
            0.9,
            1,
        ),
        ("What do the rules store about juniors?", [LEDGER], "Three rackets a week; strings are extra.", 0, 0.25),
        # A row and a column of a table that are asked for cross in one field.
        ("运输条款里，鲜货有哪些约定？", [TARIFF], "每两小时记录温度；免赔额5%。", 0.9, 1),
        ("运输条款里，鲜货有哪些约定？", [TARIFF], "免赔额2%。", 0, 0.25),
        # A title that asks for the column, in other words and without a colon, claims nothing; with more it does.
        ("白垩膏有哪些禁忌？", SALT, "## 白垩膏不能用的情况\n- 含盐酸的清洁剂\n- 含铜的器具", 0.9, 1),
        ("白垩膏有哪些禁忌？", SALT, "## 白垩膏老年人不能用的情况\n- 含盐酸的清洁剂\n- 含铜的器具", 0, 0.25),
        ("白垩膏有哪些禁忌？", SALT, "白垩膏的用法：\n- 含盐酸的清洁剂\n- 含铜的器具", 0, 0.25),
        # From a column's name nobody is told what to do with the thing.
        ("白垩膏的用法是什么？", SALT, "使用白垩膏时：涂薄层，每日2次。", 0.9, 1),
        ("白垩膏的用法是什么？", SALT, "停用白垩膏后：涂薄层，每日2次。", 0, 0.25),
    ],
)
def test_what_is_asked_of_a_part_is_told_under_any_heading_for_it(
    question: str, cells: list[Cell], answer: str, least: float, most: float
) -> None:
    assert least <= _value(question, "", answer, *cells) <= most
