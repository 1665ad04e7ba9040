"""Typed answers of the offline judge: a sentence around a value costs nothing; alternatives, doubts and lies do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from faker import Faker
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.sections import Cell
from sql_agent.offline_judge.slots import is_form
from sql_agent.offline_judge.typed import kind_of_cells, sought
from tests.judge_exam.typed_answers import PARTS, WRITTEN, answers, written
from tests.linear import is_linear

PAGES = "How many pages does The Silent Lantern have?"
RIGHT = [
    (PAGES, "847", a)
    for a in [
        "847",
        "The Silent Lantern has 847 pages.",
        "There are 847 pages in The Silent Lantern.",
        "According to the catalogue, The Silent Lantern runs to 847 pages.",
        "It has eight hundred and forty-seven pages.",
        "The answer is 847.",
        "**847**",
        "847 pages",
        "The book contains 847 pages in total.",
        "Based on the query result, The Silent Lantern has 847 pages.",
    ]
]
RIGHT += [
    ("What does the lamp cost?", "33.5", a)
    for a in ["33.50", "The lamp costs $33.50.", "It costs 33.5 dollars.", "The price of the lamp is 33.50 euros."]
]
RIGHT += [
    ("When was The Silent Lantern published?", "1994-05-03", a)
    for a in [
        "It was published on 3 May 1994.",
        "May 3, 1994",
        "The Silent Lantern was published on May 3rd, 1994.",
        "1994-05-03",
        "1994/5/3",
    ]
]
RIGHT += [
    ("Is The Silent Lantern in print?", "yes", a)
    for a in ["Yes.", "Yes, The Silent Lantern is in print.", "yes, it is", "The Silent Lantern is in print."]
]
RIGHT += [
    ("Is The Silent Lantern in print?", "no", a)
    for a in ["No.", "No, The Silent Lantern is not in print.", "It is not in print."]
]
RIGHT += [
    ("Who wrote The Silent Lantern?", "Jane Doe", a)
    for a in [
        "Jane Doe",
        "The Silent Lantern was written by Jane Doe.",
        "The author is Jane Doe.",
        "Jane Doe wrote The Silent Lantern.",
        "It was Jane Doe who wrote it.",
    ]
]
LONGEST = ("List the three longest books in order from longest to shortest.", "Iron Tide, Pale Fire, Old Salt")
RIGHT += [
    (*LONGEST, a)
    for a in [
        "Iron Tide, Pale Fire, Old Salt",
        "The three longest books are Iron Tide, Pale Fire and Old Salt.",
        "1. Iron Tide\n2. Pale Fire\n3. Old Salt",
        "In order: Iron Tide, Pale Fire, and Old Salt.",
    ]
]
RIGHT += [(*LONGEST, "Ranked from longest to shortest: 1. Iron Tide 2. Pale Fire 3. Old Salt")]
PARKS = ("按面积从大到小列出前三个公园。", "青山公园、北湖公园、东门公园")
RIGHT += [(*PARKS, a) for a in ["青山公园、北湖公园、东门公园", "从大到小依次是青山公园、北湖公园和东门公园。"]]
GENRES = ("Which genres does the library hold?", "fantasy, crime, poetry")
RIGHT += [
    (*GENRES, a)
    for a in [
        "crime, poetry and fantasy",
        "The library holds poetry, crime and fantasy.",
        "- fantasy\n- poetry\n- crime",
    ]
]
PAGES_ZH = "《沉默的灯笼》有多少页？"
RIGHT += [
    (PAGES_ZH, "847", a)
    for a in [
        "847",
        "《沉默的灯笼》共有847页。",
        "这本书一共847页。",
        "根据查询结果，该书有八百四十七页。",
        "页数是847。",
    ]
]
RIGHT += [
    ("《沉默的灯笼》是哪天出版的？", "1994-05-03", a)
    for a in ["1994年5月3日", "《沉默的灯笼》于1994年5月3日出版。", "出版日期是1994-05-03。"]
]
RIGHT += [("《沉默的灯笼》还在售吗？", "是", a) for a in ["是", "是的，还在售。", "在售。"]]
RIGHT += [("《沉默的灯笼》还在售吗？", "否", a) for a in ["否", "不，已经不在售了。", "没有在售。"]]
RIGHT += [
    ("《沉默的灯笼》的作者是谁？", "余平", a) for a in ["余平", "《沉默的灯笼》的作者是余平。", "这本书由余平所写。"]
]
WRONG = [
    (PAGES, "847", a)
    for a in [
        "848",
        "The Silent Lantern has 746 pages.",
        "847 or 848",
        "847, maybe 850",
        "It does not have 847 pages.",
        "I doubt it has 847 pages.",
        "Between 800 and 847 pages",
        "about 847",
        "The Golden Compass has 847 pages.",
        "847 is wrong.",
        "847. The truth is quite the opposite.",
        "1, 2, 847",
        "",
        "847?",
    ]
]
WRONG += [("What is 2+2?", "4", "3 or 4"), ("How many?", "4", "14"), ("How many?", "4", "4.5")]
WRONG += [("全程多少公里？", "1836", a) for a in ["全程约1836公里。", "全程近1836公里。", "全程逾1836公里。"]]
WRONG += [
    ("When was it published?", "1994-05-03", a) for a in ["3 May 1995", "May 4, 1994", "1994-05-03 or 1994-05-04"]
]
WRONG += [
    ("Is The Silent Lantern in print?", "yes", a)
    for a in ["No.", "no, it is not", "It is not in print.", "Maybe.", "yes and no", "I don't know"]
]
WRONG += [
    ("Who wrote The Silent Lantern?", "Jane Doe", a)
    for a in [
        "John Doe",
        "Jane Doe or John Smith",
        "Jane Doe and John Smith",
        "The author is not Jane Doe.",
        "Jane Doering",
    ]
]
WRONG += [
    (*LONGEST, a)
    for a in ["Old Salt, Pale Fire, Iron Tide", "The three longest books are Old Salt, Pale Fire and Iron Tide."]
]
WRONG += [(*PARKS, "从大到小依次是东门公园、北湖公园和青山公园。")]
WRONG += [(*LONGEST, "1. Old Salt 2. Pale Fire 3. Iron Tide")]
WRONG += [(*GENRES, "fantasy, crime, poetry and romance")]
WRONG += [
    (PAGES_ZH, "847", a)
    for a in ["848", "共有748页", "846或847页", "不是847页", "大约847页", "847页。真实情况恰恰相左。"]
]
WRONG += [("《沉默的灯笼》还在售吗？", "是", a) for a in ["否", "不在售", "可能在售"]]
WRONG += [("《沉默的灯笼》的作者是谁？", "余平", a) for a in ["李平", "余平或李平", "余平和李平", "不是余平"]]


BAKER = ("Which baker delivers the plain rolls in June?", "Ute Brandt")
WRONG += [
    (*BAKER, a)
    for a in [
        "Ute Brandt delivers the plain rolls in July.",
        "Ute Brandt delivers the seeded rolls in June.",
        "Ute Brandt delivers the plain cakes in June.",
    ]
]
RIGHT += [
    (*BAKER, a)
    for a in ["Ute Brandt delivers plain rolls in June.", "The June delivery of plain rolls is done by Ute Brandt."]
]
WEIGHT = ("How many kilos does the crate weigh?", "12")
WRONG += [(*WEIGHT, a) for a in ["The crate weighs 12 grams.", "It weighs 12 tonnes."]]
RIGHT += [(*WEIGHT, a) for a in ["The crate weighs 12 kg.", "It is 12 kilograms."]]
# Single characters are no opposites: 新 and 老师, 高 and 低年级, 分店 and 元.
RIGHT += [
    ("新校区的教师有多少人？", "30", "老师共有30人。"),
    ("胜利路店有多少员工？", "15", "15名员工，负责人另计。"),
    ("高血压药的价格是多少？", "18", "18元，价格较低。"),
    ("长安路分店的营业额是多少？", "5000", "5000元"),
    ("南京分公司成立于哪一年？", "2008", "该公司于2008年成立，总部在北京。"),
]
SENT = ("三月份向恒信公司发了多少箱货？", "86")
WRONG += [
    (*SENT, "三月份恒信公司退了86箱货。"),
    ("Did the Falcons beat the Wolves?", "yes", "The Wolves beat the Falcons."),
    ("How many pupils are in class 9b?", "27", "27 pupils are in class 9a."),
    ("Who taught chemistry in May?", "Abel Hart", "Abel Hart taught physics in May."),
    ("What is the maximum load in kg?", "450", "At least 450 kg."),
    ("How many boxes were sold in May?", "86", "At most 86 boxes."),
    ("How many boxes did the shop with the most sales sell?", "86", "Up to 86."),
    ("How many orders hit the credit limit?", "12", "Not more than 12 orders."),
    ("销量最多的店卖了多少箱？", "86", "至多86箱。"),
    ("价格最低的药多少钱？", "18", "不低于18元"),
    ("这套房的月租是多少？", "3000", "月租约3000元"),
    ("合唱团还招男生吗？", "yes", "男生"),
]
RIGHT += [
    (*SENT, "三月份向恒信公司发了86箱货。"),
    ("Did the Falcons beat the Wolves?", "yes", "The Falcons beat the Wolves."),
    ("What is the maximum load in kg?", "450", "At most 450 kg."),
    ("How many guests can the hall hold?", "90", "Up to 90 guests."),
    ("电梯最多能载多少公斤？", "450", "不超过450公斤。"),
    ("起订量最少是多少件？", "20", "至少20件。"),
    ("合唱团还招男生吗？", "yes", "招。"),
]
GATE = ("When does the gate close?", "2024-05-01")
CENTS, FARE = ("What is the price in cents of the bolt?", "971"), ("How much is the fare in euros?", "2.5")
RIGHT += [(*CENTS, "971 cents"), (*FARE, "€2.50"), (*FARE, "2.50 EUR")]
RIGHT += [("Which columns are read?", "alpha", "The columns with IDs are in alpha.")]
WRONG += [(*CENTS, "It costs $971."), (*FARE, "$2.50"), (*FARE, "2.5 pounds")]
WRONG += [("How heavy is it in pounds?", "7", a) for a in ["7 kg", "seven grams"]]
FINE, MOST = ("What is the average fine of the loans?", "2.95"), ("所有员工的最高工资是多少？", "9000")
RIGHT += [(*FINE, a) for a in ["On average, a loan's fine is 2.95.", "The average fine is 2.95."]]
RIGHT += [("What is the sum of the parts?", "9120", "In total there are 9,120."), (*MOST, "最高工资是9000元。")]
RIGHT += [("How many floors does the highest tower have?", "42", "It has 42 floors in total.")]
WRONG += [(*FINE, f"The {how} fine is 2.95.") for how in ("highest", "maximum", "lowest")]
WRONG += [(*MOST, "平均工资是9000元。"), (*MOST, "最低工资是9000元。")]
PRICE = ("Was kostet die Fußmatte?", "1.012,50 €")
RIGHT += [(*PRICE, a) for a in ["1.012,50 €", "Sie kostet €1,012.50.", "1012.50 euros"]]
WRONG += [(*PRICE, a) for a in ["1.012,05 €", "101250 €", "1012 €"]]
WRONG += [("How many seconds did it take?", "52", "It took 52 minutes.")]
WRONG += [(*GATE, "The gate opens on 1 May 2024."), ("大门哪天关闭？", "2024-05-01", "大门2024年5月1日开放。")]
RIGHT += [
    (*GATE, "The gate will be shut on 1 May 2024."),
    ("大门哪天关闭？", "2024-05-01", "大门2024年5月1日起不开放。"),
]


MOONS, CONDUCTOR = (
    ("How many moons does the planet Korvath have?", "17"),
    ("Who led the choir of the Lindau festival?", "Ingrid Sol"),
)
EXAM = ("How many students passed the exam Organic Chemistry I in spring?", "58")
WRONG += [
    (*MOONS, "Korvath has 17 rings."),
    (*EXAM, "58 students passed Organic Chemistry II in spring."),
    (*EXAM, "58 students enrolled in Organic Chemistry I in spring."),
    (*EXAM, "58 % of the students passed Organic Chemistry I in spring."),
    ("How much does a night in the lodge Pine Rest cost?", "129", "A week in Pine Rest costs 129 euros."),
    ("What is the statue 'Morning Wind' made of?", "bronze", "Evening Wind is made of bronze."),
    ("What is the statue 'Morning Wind' made of?", "bronze", "Morning Wind is painted to look like bronze."),
    ("Which hive gave the most honey?", "Willow Hive", "The second most honey came from Willow Hive."),
    (*CONDUCTOR, "Ingrid Sol heard the choir."),
    (*CONDUCTOR, "The choir was led by the teacher of Ingrid Sol."),
    ("音乐会由谁指挥？", "李思远", "音乐会由李思远的学生指挥。"),
]
RIGHT += [
    (*MOONS, "There are seventeen moons orbiting Korvath."),
    (*EXAM, "In spring, 58 students passed Organic Chemistry I."),
    (*CONDUCTOR, "Ingrid Sol led the choir."),
    ("安娜的老师是谁？", "李思远", "安娜是李思远的学生。"),
    ("By how many percent did it grow?", "17", "It grew by 17 %."),
]


def value(question: str, reference: str, answer: str, *evidence: str) -> float:
    found = grade(question=question, reference=reference, answer=answer, evidence=evidence)
    assert found is not None
    return found.value


@pytest.mark.parametrize(("question", "reference", "answer"), RIGHT)
def test_a_sentence_around_the_truth_costs_nothing(question: str, reference: str, answer: str) -> None:
    assert value(question, reference, answer) >= 0.9


@pytest.mark.parametrize(("question", "reference", "answer"), WRONG)
def test_another_value_a_doubt_or_a_denial_pays_nothing(question: str, reference: str, answer: str) -> None:
    assert value(question, reference, answer) <= 0.1


def test_a_part_of_a_set_earns_a_part_and_order_counts_only_where_it_is_asked_for() -> None:
    assert 0.5 < value(*GENRES, "crime and poetry") < 0.9
    assert value(*GENRES, "poetry, fantasy, crime") == 1


def test_the_cells_of_a_query_are_the_truth_where_the_reference_is_a_sentence() -> None:
    reference = "The Silent Lantern has 847 pages."
    assert value(PAGES, reference, "It is 847 pages long.", "847") == 1
    assert value(PAGES, "", "There are 847 pages.", "847") == 1
    assert value(PAGES, reference, "It is 748 pages long.", "847") == 0


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("Height 210, width 90", 1.0),
        ("90 is the width and 210 the height.", 1.0),
        ("The height and width are 210 and 90.", 1.0),
        ("Its height is 210 while 90 is its width.", 1.0),
        ("It is 210 high, width 90.", 1.0),
        ("Height 90, width 210", 0.0),
        ("The width is 210 and the height is 90.", 0.0),
        ("210 is the width and 90 the height.", 0.0),
    ],
)
def test_a_value_of_one_row_told_of_another_column_pays_nothing(answer: str, value: float) -> None:
    question = "What are the height and the width of the door?"
    cells = [Cell("210", "0 0", "height"), Cell("90", "0 0", "width")]
    kind = kind_of_cells(question, cells)
    verdict = grade(question=question, reference="", answer=answer, evidence=cells, kind=kind)
    assert verdict and verdict.value == value


def test_a_quote_of_a_long_cell_pays_beside_a_short_reference() -> None:
    cell = "The Silent Lantern, a novel of the north; first edition sold out; second edition in print since spring"
    assert value("Is The Silent Lantern in print?", "yes", cell, cell) >= 0.9


@pytest.mark.parametrize("part", WRITTEN)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_written_sentences_earn_what_they_should(part: str, language: str) -> None:
    told = [one for one in written(part, language) if one.kind != "text"]
    right, parts = ([one.value for one in told if one.why == why] for why in ("right", "part"))
    lies = [one.value for one in told if one.why not in ("right", "part")]
    shares = {"reworded en": 0.96, "against club en": 0.83, "against club zh": 0.9}
    shares |= {"held fields zh": 0.9, "held turbine zh": 0.95, "held loyalty zh": 0.83, "held market en": 0.98}
    shares |= {"held observatory zh": 0.96, "held ferry en": 0.92, "held ferry zh": 0.95}
    shares |= {"clinic en": 0.76, "clinic zh": 0.84, "held clinic en": 0.8, "held clinic zh": 0.75}
    shares |= {"depot en": 0.79, "depot zh": 0.87, "held depot en": 0.73, "held depot zh": 0.74}
    shares |= {"harbour en": 0.89, "harbour zh": 0.86, "held harbour en": 0.83, "held harbour zh": 0.85}
    shares |= {"columns en": 0.94, "columns zh": 0.92, "held columns en": 0.9, "held columns zh": 0.91}
    shares |= {"winery zh": 0.92, "held winery en": 0.92, "held winery zh": 0.91}
    shares |= {"held tramway en": 0.85, "held tramway zh": 0.94}
    shares |= {"auction en": 0.91, "auction zh": 0.95, "held auction en": 0.92, "held auction zh": 0.9}
    shares |= {"foundry en": 0.87, "held foundry en": 0.84, "held foundry zh": 0.88}
    shares |= {"hopfarm en": 0.87, "held hopfarm en": 0.81, "held hopfarm zh": 0.78}
    shares |= {"held glass en": 0.82, "saltworks en": 0.92}
    shares |= {"cinema en": 0.78, "cinema zh": 0.8, "held cinema en": 0.7, "held cinema zh": 0.65}
    shares |= {"roster en": 0.75, "roster zh": 0.63, "held roster en": 0.78, "held roster zh": 0.8}
    shares |= {"gauge en": 0.94, "gauge zh": 0.97, "held gauge en": 0.8}
    shares |= {"kennel en": 0.88, "kennel zh": 0.9, "held kennel en": 0.74, "held kennel zh": 0.79}
    paid = shares.get(f"{part} {language}", 0.93)
    assert sum(value >= 0.9 for value in right) >= paid * len(right)
    floors = {
        "trade zh": 0.93,
        "held trade zh": 0.96,
        "held trade en": 0.84,
        "held club zh": 0.95,
        "against club zh": 1,
        "fields en": 0.9,
        "held fields en": 0.91,
        "held fields zh": 0.88,
        "held loyalty en": 0.88,
        "held loyalty zh": 0.91,
        "held observatory en": 0.89,
        "held observatory zh": 0.92,
        "held ferry en": 0.92,
        "clinic en": 0.95,
        "held clinic en": 0.9,
        "held clinic zh": 0.93,
        "depot zh": 0.94,
        "held depot en": 0.91,
        "held depot zh": 0.9,
        "held harbour zh": 0.9,
        "winery en": 0.95,
        "held kennel en": 0.92,
        "held kennel zh": 0.89,
        "held gauge en": 0.88,
        "auction zh": 0.92,
        "held auction en": 0.88,
        "held auction zh": 0.89,
        "foundry en": 0.87,
        "foundry zh": 0.85,
        "held foundry zh": 0.89,
        "hopfarm zh": 0.89,
        "held hopfarm en": 0.92,
        "glass en": 0.85,
        "held glass en": 0.91,
        "held glass zh": 0.82,
        "saltworks en": 0.9,
        "roster en": 0.87,
        "roster zh": 0.87,
        "held roster en": 0.89,
        "held roster zh": 0.84,
    }
    least = floors.get(f"{part} {language}", 0.93)
    assert sum(value <= 0.1 for value in lies) >= least * len(lies)
    least = {"columns": 0.95, "winery": 0.95, "tramway": 0.88, "kennel": 0.9}.get(part.removeprefix("held "), 1)
    assert sum(value < 0.9 for value in parts) >= least * len(parts)


DOORS = [("1", "oak", "12"), ("2", "pine", "7"), ("3", "teak", "3")]


@pytest.mark.parametrize(
    ("question", "rows", "answer", "value"),
    [
        ("How high is the dam?", [("31",)], "31 metres. If you're curious, I can run the same for the others.", 1),
        ("How high is the dam?", [("31",)], "31 metres. Would a chart be useful?", 1),
        ("How high is the dam?", [("31",)], "31 metres. I could be off: I think it is lower.", 0),
        ("How high is the dam?", [("31.25",)], "It rises thirty-one and a quarter metres.", 1),
        ("How high is the dam?", [("31.25",)], "It rises thirty-one and a half metres.", 0),
        ("Which wood sells most?", [("oak", "1904")], 'It is "oak", with 1,904 sales (some 1.9 thousand).', 1),
        ("Which wood sells most?", [("oak", "1904")], "It is oak, with 1,804 sales.", 0),
        ("Which wood sells most?", [("oak", "1904")], "It is oak, with 2,000 sales.", 0),
        ("Which wood sells most?", [("oak", "1904")], "Oak is the rarest of the woods.", 0),
        ("Which wood sells most?", [("oak", "1904")], "### Best seller\n\n- Name: oak\n- Sales: 1904", 1),
        ("Which mill sawed it in March 2023?", [("Elm Mill",)], "I kept 2023-03-04 to 2023-03-31. It was Elm Mill.", 1),
        ("Which woods do we sell?", DOORS, "Oak, pine and teak.", 1),
        ("Which woods do we sell?", DOORS, "Oak, pine, and that's it.", 0),
        ("How many doors of each wood?", DOORS, "Oak 12 (about 55%), pine 7 (about 32%), teak 3.", 1),
        ("Who sold the most doors?", [("Ann Lee", "61")], "Nobody sold more doors than Ann Lee.", 1),
        ("Who sold the most doors?", [("Ann Lee", "61")], "Nobody sold fewer doors than Ann Lee.", 0),
        ("Which woods do we sell?", DOORS, "We sell exactly two woods: oak and pine.", 0),
        ("How many doors came last week?", [("184",)], "184 doors, so about 26 a day.", 1),
        ("Is the yard open on Sundays?", [("0",)], "The yard stays closed on Sundays.", 1),
        ("Is the yard open on Sundays?", [("1",)], "The yard stays closed on Sundays.", 0),
        ("Is the yard open on Sundays?", [("0",)], "**The yard**\n\n- Open on Sundays: no", 1),
        ("Is the yard open on Sundays?", [("0",)], "- Closed on Sundays: no", 0),
        ("Was the oak older than the pine?", [("1",)], "The oak was three years older than the pine.", 1),
        ("Was the oak older than the pine?", [("1",)], "The pine was three years older than the oak.", 0),
        ("How many doors of each wood?", DOORS, "Oak 7, pine 12, teak 3.", 0),
    ],
)
def test_what_stands_around_the_values_of_rows(
    question: str, rows: list[tuple[str, ...]], answer: str, value: float
) -> None:
    names = ["id", "wood", "doors"] if len(rows[0]) == 3 else ["value", "sold"]
    cells = [Cell(text, f"0 {n}", name) for n, row in enumerate(rows) for name, text in zip(names, row, strict=False)]
    verdict = grade(question=question, reference="", answer=answer, evidence=cells, kind=kind_of_cells(question, cells))
    assert verdict and verdict.value == value


@pytest.mark.parametrize(
    "stamp", ["- Date: 29 February 2024\n- Time: 17:45", "2024-02-29 17:45", "日期:2024年2月29日\n时间:17:45"]
)
def test_day_and_time_on_lines_of_their_own(stamp: str) -> None:
    assert value("When was the last parcel booked in?", "", stamp, "2024-02-29 17:45:00") == 1
    assert value("When was the last parcel booked in?", "", stamp.replace("17", "16"), "2024-02-29 17:45:00") == 0


HIKE, HEIGHT, BUILT = (
    "How many hikers signed up?",
    "How high is the Alder hut in metres?",
    "When was the Alder hut built?",
)
WARDEN, IS_OPEN = "Who is the warden of the Alder hut?", "Is the Alder hut open in May?"
STEEP, MARKER = "How many trails are steeper than 5 %?", "Which marker is the lowest?"
CLOSED_ZH = "哪座山屋还没修？"
COUNT_ZH, WARDEN_ZH, BUILT_ZH = "报名的有多少人？", "赤杨山屋由谁管理？", "赤杨山屋是哪天建成的？"


@pytest.mark.parametrize(
    ("question", "truth", "answer", "value"),
    [
        (HIKE, "27", "27 hikers signed up, 11 of them women.", 1),
        (HIKE, "27", "Adding up both lists (12 + 15), 27 hikers signed up.", 1),
        (HIKE, "27", "27 of the 40 hikers signed up.", 1),
        (HIKE, "27", "27 hikers signed up, according to another list 31.", 0),
        (HIKE, "27", "27 hikers signed up, 31 hikers in all.", 0),
        (HIKE, "27", "27 hikers signed up at first, later 31.", 0),
        (HIKE, "27", "I ran 2 queries and both agree: 27 hikers signed up.", 1),
        (HIKE, "27", f"Question: {HIKE}\nAnswer: 27 hikers signed up.", 1),
        (HIKE, "27", f"{HIKE} I could not tell.", 0),
        (HEIGHT, "1850.5", "1850.5 m (about 6,071 feet), the second-highest hut of the range.", 1),
        (HEIGHT, "1850.5", "1850.5 m (about 7,000 m).", 0),
        (HEIGHT, "1850.5", "1850.5 km.", 0),
        (HEIGHT, "1850.5", "1850.5 m (about 1.85 km), by the 12 surveys of 2019.", 1),
        (HEIGHT, "1850.5", "Some 1.86 km: 1860.5 m.", 0),
        (HIKE, "27", "There are 27; the other 13 of the 40 stayed in.", 1),
        ("Who signed the 2021 list of hikers?", "Ilka Brandt", "Ilka Brandt signed the 2020 list of hikers.", 0),
        (WARDEN, "Ilka Brandt", "Ilka Brandt of Norway is the warden of the Alder hut.", 1),
        (WARDEN, "Ilka Brandt", "Ilka Brandt is the warden of the Cedar hut.", 0),
        (IS_OPEN, "1", "The query returned 1 (true): guests are welcome that month.", 1),
        (IS_OPEN, "1", "The query returned 0 (false): guests are welcome that month.", 0),
        ("Are all huts open in May?", "0", "Not all of them: two huts open later.", 1),
        (BUILT, "1987-06-02", "It was built on 2 June 1987, by a crew of 14 under Hanna Voss.", 1),
        (BUILT, "1987-06-02", "It was extended on 2 June 1987; it had been built in 1960.", 0),
        (WARDEN, "Ilka Brandt", "The warden is Ilka Brandt (since 2016); her deputy is Tomas Reyes.", 1),
        (WARDEN, "Ilka Brandt", "Ilka Brandt, Tomas Reyes", 0),
        (WARDEN, "Ilka Brandt", "Ilka Brandt. The warden of the Alder hut is Tomas Reyes.", 0),
        (WARDEN, "Ilka Brandt", "Ilka Brandt, now replaced by Tomas Reyes.", 0),
        (IS_OPEN, "1", "Yes. The season begins in April, and Tomas Reyes cooks.", 1),
        (IS_OPEN, "0", "No, the season begins with the feast of St John.", 1),
        (IS_OPEN, "1", "Yes, but it is not open in May.", 0),
        (COUNT_ZH, "27", "27人报名，其中11人是学生。", 1),
        (COUNT_ZH, "27", "我查了两遍，结果一致：27人报名。", 1),
        (COUNT_ZH, "27", "甲班12人，乙班15人，12+15=27人。", 1),
        (COUNT_ZH, "27", "起初27人报名，实为31人。", 0),
        (WARDEN_ZH, "周野", "赤杨山屋由周野管理，2016年从南坡调来。", 1),
        (WARDEN_ZH, "周野", "赤杨山屋由周野管理，后来换成林可。", 0),
        (WARDEN_ZH, "周野", "周野负责做饭，赤杨山屋由林可管理。", 0),
        (BUILT_ZH, "1987-06-02", "1987年6月2日建成，工程队共14人。", 1),
        ("租期是多少个月？", "18", "租期18年。", 0),
        ("哪个季度的客人最多？", "Q3", "第三季度的客人最多。", 1),
        ("In which month did most guests come?", "1", "Most guests came in January.", 1),
        ("Do all huts have a stove?", "Y", "Yes, all huts have a stove.", 1),
        (STEEP, "5", "5 trails are steeper than 5 %.", 1),
        (STEEP, "5", "9 trails are steeper than 5 %.", 0),
        (STEEP, "5", "Which trails are steeper than 5 % is not known.", 0),
        (MARKER, "M-3", "M-3 (88.9 km from the pass).", 1),
        (MARKER, "M-3", "M-3 (M-4 as well).", 0),
        ("小屋比山口高多少米？", "146", "小屋比山口矮146米。", 0),
        ("小屋比山口高多少米？", "146", "山口比小屋高146米。", 0),
        ("小屋比山口高多少米？", "146", "山口比小屋矮146米。", 1),
        ("小屋比山口高多少米？", "146", "两处相差146米，小屋更高。", 1),
        ("How many huts have 30 beds or more?", "12", "12 huts have at least 30 beds.", 1),
        ("How many huts have 30 beds or more?", "12", "12 huts have at most 30 beds.", 0),
        ("How many huts have 30 beds or fewer?", "12", "12 huts have at most 30 beds.", 1),
        ("How many huts have 30 beds or fewer?", "12", "12 huts have at least 30 beds.", 0),
        ("What did the repair cost in Swiss francs?", "450", "450 euros", 0),
        ("未付的占全部的百分之几？", "41.2", "未付的占41.2%。", 1),
        ("未付的占全部的百分之几？", "41.2", "未付的是41.2元。", 0),
        ("How much power did the hut use in May, in MWh?", "3.2", "The hut used 3.2 kWh in May.", 0),
        ("How many more hikers than bikers came?", "26", "26 more hikers than bikers came.", 1),
        ("How many more hikers than bikers came?", "26", "26 more bikers than hikers came.", 0),
        ("How long is hut HK-4417 from the pass in km?", "8", "Hut HK-4417 is 8 km from the pass.", 1),
        ("How long is hut HK-4417 from the pass in km?", "8", "HK-4471 is 8 km away; HK-4417 is 9 km away.", 0),
        ("Is the lake more than 30 m deep?", "1", "Yes, it is over 30 m deep.", 1),
        ("Is the lake more than 30 m deep?", "1", "Yes, it is at most 30 m deep.", 0),
        ("湖水浅于4米、低于4米吗？", "1", "是，水深不足4米。", 1),
        ("湖水深度超过4米吗？", "1", "是，水深不到4米。", 0),
        ("湖水深度超过4米吗？", "0", "没有，水深不到4米。", 1),
        ("When does the hut open?", "17:20:40", "The hut opens at 17:20:00.", 0),
        ("When does the hut open?", "17:20", "The hut opens at 17:20:00.", 1),
        ("What did the repair cost?", "18432.50", "It cost € 18 432.50.", 1),
        ("Which gate?", "7A", "Gate 7A.", 1),
        ("Which gate?", "7A", "Gate 7B.", 0),
        ("Which gate?", "7A", "The gate is K9D; 7A is the old one.", 0),
        ("Which colour?", "#6bcefb", "#6dd452", 0),
        ("When does the hut open?", "13:29:17", "13:29:17 or 10:41:27", 0),
        (CLOSED_ZH, "周野山屋", "还没修好的有一座：周野山屋。", 1),
        (CLOSED_ZH, "周野山屋", "没有找到：周野山屋。", 0),
    ],
)
def test_what_is_told_beside_a_value_is_free_where_it_is_no_other_answer(
    question: str, truth: str, answer: str, value: int
) -> None:
    cells = [Cell(truth, "0 0", "value")]
    kind = kind_of_cells(question, cells)
    verdict = grade(question=question, reference="", answer=answer, evidence=cells, kind=kind)
    assert verdict is not None and verdict.value == value


ROOMS, TOURS = "Give the fee for each of 12, 108.", "What are the longest and the shortest tour, in km?"
TEAMS = "How many points above 30 does each team have?"
SALES, TABLES = "Did branch 4 sell more than branch 9?", "Give the price for Oak Table and Elm Chair."


@pytest.mark.parametrize(
    ("question", "columns", "rows", "answer", "value"),
    [
        (ROOMS, "room fee", [[12, 205.62], [108, 94.91]], "12的费用是205.62，108的费用是94.91", 1),
        (ROOMS, "room fee", [[12, 205.62], [108, 94.91]], "12 = 205.62, 108 = 94.91", 1),
        (ROOMS, "room fee", [[12, 205.62], [108, 94.91]], "12 = 94.91, 108 = 205.62", 0),
        (ROOMS, "room fee", [[12, 205.62], [108, 94.91]], "12 = 205.62, 108 = 12", 0),
        (
            "Give the points of Swift, Dark",
            "team points",
            [["Dark", 55], ["Swift", 2]],
            "Dark has 55 and Swift has 2",
            1,
        ),
        ("How many beds has each hall?", "hall beds", [[3, 18], [5, 24]], "Hall 3: 18 beds; hall 5: 24 beds", 1),
        ("How many beds has each hall?", "hall beds", [[3, 18], [5, 24]], "Hall 3: 24 beds; hall 5: 18 beds", 0),
        (TEAMS, "team points", [["Dark", 55], ["Swift", 2]], "Dark has 30 and Swift has 2", 0),
        (TEAMS, "team points", [["Dark", 55], ["Swift", 2]], "Dark has 55", 0.67),
        (TOURS, "max(km) min(km)", [[42, 7.5]], "The shortest tour has 7.5 km, the longest 42 km.", 1),
        (TOURS, "max(km) min(km)", [[42, 7.5]], "The largest is 7.5 km, the smallest 42 km.", 0),
        ("How many siblings has Kink?", "SibSp", [[2]], "The SibSp is 2.", 1),
        ("When did game 7 begin?", "at", [["2020-04-30 19:54:02"]], "2020-04-30 19:54:02 and 7", 0),
        ("When did game 7 begin?", "at", [["2020-04-30 19:54:02"]], "Game 7 began on 30 April 2020 at 19:54:02.", 1),
        ("How heavy is parcel 88?", "kg", [[12.5]], "Parcel 12.5 weighs 88 kg.", 0),
        (TEAMS, "team points", [["Reds", 4], ["Dark", 25]], "above 30: Reds 4", 0.67),
        (SALES, "x", [[0]], "Yes, branch 4 sold more than branch 9.", 0),
        (SALES, "x", [[1]], "Yes, branch 9 sold more than branch 4.", 0),
        (SALES, "x", [[1]], "Yes, branch 9 sold less than branch 4.", 1),
        (SALES, "x", [[0]], "No, branch 9 sold more.", 1),
        (SALES, "x", [[0]], "No, branch 4 sold more.", 0),
        ("Is the Lion cheaper than the Swan?", "x", [[1]], "Yes, the Swan is more expensive.", 1),
        ("Is the Lion cheaper than the Swan?", "x", [[1]], "Yes, the Swan is cheaper.", 0),
        ("7路比12路的乘客多吗？", "x", [[0]], "没有，12路的乘客更多。", 1),
        ("7路比12路的乘客多吗？", "x", [[1]], "是的，12路的乘客更多。", 0),
        (TABLES, "item price", [["Oak Table", 450], ["Elm Chair", 80]], "Pine Table at 450", 0),
        (TABLES, "item price", [["Oak Table", 450], ["Elm Chair", 80]], "450 and 80", 1),
        (TABLES, "item price", [["Oak Table", 450], ["Elm Chair", 80]], "80 and 450", 0),
        ("Did passenger 341 survive?", "Survived", [[1]], "Yes (Survived = 1).", 1),
        ("Did passenger 341 survive?", "Survived", [[1]], "Yes (Survived = 0).", 0),
        ("341号乘客幸存了吗？", "Survived", [[1]], "341号乘客幸存了下来。", 1),
        ("What was the fee, in million euros?", "fee", [[3.5]], "The fee was 3,500,000 euros.", 1),
        ("What was the fee, in million euros?", "fee", [[3.5]], "The fee was 3.5 million euros.", 1),
        ("What was the fee, in million euros?", "fee", [[3.5]], "The fee was 35,000,000 euros.", 0),
        ("How many people live there?", "n", [[3.5]], "3.5 million", 0),
        ("Which day did game 7 begin?", "at", [["2020-04-30 19:54:00"]], "On 30 April 2020.", 1),
        ("Which day did game 7 begin?", "at", [["2020-04-30 19:54:00"]], "On 30 April 2020 at 07:00.", 0),
        ("What date and time did game 7 begin?", "at", [["2020-04-30 19:54:00"]], "On 30 April 2020.", 0),
        ("第7场是哪天几点开始的？", "at", [["2020-04-30 19:54:00"]], "2020年4月30日。", 0),
        ("停车场每天的价格是多少？", "daily", [[24]], "24元/天", 1),
        ("停车场每天的价格是多少？", "daily", [[24]], "24元/月", 0),
        ("Are there more than 30 beds in hall 3?", "x", [[1]], "Yes, there are more than 3 beds in hall 30.", 0),
        ("第7场几点开始？", "at", [["19:54:02"]], "第7场下午7:54:02开始。", 1),
        ("第7场几点开始？", "at", [["19:54:02"]], "第7场19时54分02秒开始。", 1),
        ("How many minutes is tour 3?", "n", [[135]], "Tour 3 takes 2 hours and 15 minutes.", 1),
        ("How many dives were made?", "n", [[18]], "The number of dives is 18. The table has one row.", 1),
        ("How many dives were made?", "n", [[18]], "✅ 18 dives were made. (Source: the database.)", 1),
        ("How many dives were made?", "n", [[18]], "Got it! 18 were made. It was not only 18.", 0),
        ("Which dives were made?", "n", [["Reef"], ["Wreck"]], "The dives are 1. Reef 2. Wreck", 1),
        ("Which dives were made?", "n", [["Reef"], ["Wreck"]], "Only the dive Reef was made.", 0),
        ("Which boat made the most dives?", "boat n", [["Alba", 18]], "Bora made the most dives: 18.", 0),
        ("Which boat made the most dives?", "boat n", [["Alba", 18]], "Alba made 18 dives, the most of all boats.", 1),
        ("Who won the race?", "name s", [["Ada Lund", 71]], "Ada Lund came second in the race, in 71 s.", 0),
        ("Who came second in the race?", "name s", [["Ada Lund", 71]], "Ada Lund came second in the race, in 71 s.", 1),
        ("Who saved Bo Dahl?", "name", [["Ada Lund"]], "Bo Dahl saved Ada Lund.", 0),
        ("Who saved Bo Dahl?", "name", [["Ada Lund"]], "Bo Dahl was saved by Ada Lund.", 1),
        ("How warm is the pool in degrees Celsius?", "t", [[28]], "The pool is 28 °F warm.", 0),
        ("What was the average depth?", "avg", [[18.5]], "The total depth was 18.5.", 0),
        ("What was the deepest day of 2022?", "at", [["2022-12-04"]], "It was December 4.", 1),
        ("What was the deepest day of 2022?", "at", [["2022-12-04"]], "It was December 14.", 0),
        ("2022年哪天潜得最深？", "at", [["2022-12-04"]], "2022年12月4日最深，其次是11月4日。", 0),
        ("2022年哪天潜得最深？", "at", [["2022-12-04"]], "12月4日潜得最深。", 1),
        ("When was the last dive?", "at", [["2022-05-04"]], "The most recent dive was on 04.05.2022.", 1),
        ("When was the last dive?", "at", [["2022-05-04"]], "It was on 04/05/2022 (4 May 2022).", 1),
        ("When was the last dive?", "at", [["2022-05-04"]], "It was on 04/05/2022.", 0),
        ("When was the last dive?", "at", [["2022-05-04 14:30:00"]], "It was on 4 May 2022 (14:30).", 1),
        ("Was the boat out on 2 May?", "x", [[0]], "According to the log, the boat was not out that day.", 1),
        ("Was the boat out on 2 May?", "x", [[0]], "Not only was the boat out on 2 May.", 0),
        ("卞安潜了多少次？", "n", [[18]], "卞安共潜了18次。以上信息来自数据库。", 1),
        ("卞安得了多少分？", "n", [[18]], "卞安获得18分。", 1),
        (
            "When did Ada Lund sail?",
            "on pass_no",
            [["2021-03-09", 414]],
            "Ada Lund (pass no. 414) sailed on 9 March 2021.",
            1,
        ),
        (
            "Did we rent out more kayaks than rafts?",
            "n_kayaks n_rafts",
            [[12, 31]],
            "No, more rafts (31) than kayaks (12).",
            1,
        ),
        ("Did we rent out more kayaks than rafts?", "n_kayaks n_rafts", [[12, 31]], "Yes, 31 kayaks and 12 rafts.", 0),
        ("Did we rent out fewer kayaks than rafts?", "n_kayaks n_rafts", [[12, 31]], "Yes, we did.", 1),
        ("Has the skipper signed the form?", "form_status", [["signed"]], "Yes, it is signed.", 1),
        ("Has the skipper signed the form?", "form_status", [["unsigned"]], "Yes, it is signed.", 0),
        ("Has the skipper signed the form?", "form_status", [["unsigned"]], "No, the skipper has not.", 1),
        ("Is the jetty open?", "state", [["closed"]], "The jetty is open.", 0),
        ("On which day of June 2021 did it rain most?", "d mm", [["2021-06-17", 44]], "On the 17th, with 44 mm.", 1),
        ("On which day of June 2021 did it rain most?", "d mm", [["2021-06-17", 44]], "On the 16th, with 44 mm.", 0),
        ("When does the lease end?", "d", [["2023-09-30"]], "At the end of September 2023 (2023-09-30).", 1),
        ("雨最大的是哪天？", "d", [["2021-06-17"]], "6月17日（2021年）。", 1),
        ("雨最大的是哪天？", "d", [["2021-06-17"]], "6月17日（2020年）。", 0),
        ("Who won the race?", "name s", [["Ada Dorvik", 71]], "The race went to Dorvik.", 1),
        ("Who won the race?", "name s", [["Ada Dorvik", 71]], "The race went to Bo Dorvik.", 0),
        ("Which crews raced?", "name", [["The Otters"], ["Vellmar RC"]], "Otters and Vellmar.", 1),
        ("Which pump is used for oil?", "name", [["rotary"]], "Rotary is used for water; for oil it's piston.", 0),
        (
            "Which boat made the most dives?",
            "boat n",
            [["Alba", 18]],
            "Sorting the boats by dives, Alba comes first.",
            1,
        ),
        ("哪条船出海最多？", "boat n", [["白鹭号", 18]], "我按出海次数降序取第一条，是白鹭号。", 1),
        (
            "List the boats by length, longest first.",
            "boat m",
            [["Alba", 31], ["Bora", 24]],
            "| # | Boat | Metres |\n|---|---|---|\n| 1 | Alba | 31 |\n| 2 | Bora | 24 |",
            1,
        ),
        (
            "List the boats by length, longest first.",
            "boat m",
            [["Alba", 31], ["Bora", 24]],
            "| # | Boat | Metres |\n|---|---|---|\n| 1 | Bora | 24 |\n| 2 | Alba | 31 |",
            0,
        ),
        ("这批货是哪天买入的？", "d", [["2021-06-17"]], "2021年6月17日卖出。", 0),
        ("一锅玉米粥要煮多少分钟？", "n", [[18]], "一锅鱼丸要煮18分钟。", 0),
        ("How many dives were made in 2021?", "n", [[18]], "18 dives were made. Shall I compare it with 2020?", 1),
    ],
)
def test_rows_and_numbers(question: str, columns: str, rows: list[list[object]], answer: str, value: float) -> None:
    cells = [Cell(str(v), str(n), c) for n, row in enumerate(rows) for c, v in zip(columns.split(), row, strict=True)]
    kind = kind_of_cells(question, cells)
    verdict = grade(question=question, reference="", answer=answer, evidence=cells, kind=kind)
    assert verdict
    assert verdict.value == pytest.approx(value, abs=0.01)


def test_a_time_of_day_belongs_to_its_date() -> None:
    begins = ("When does the talk start?", "")
    for answer in ("On 8 November 2024 at 7:30 pm.", "It starts at 19:30 on November 8, 2024."):
        assert value(*begins, answer, "2024-11-08 19:30:00") == 1
    assert value(*begins, "On 8 November 2024 at 7:30 am.", "2024-11-08 19:30:00") == 0


@pytest.mark.parametrize(
    "piece",
    [
        "1",
        "1.",
        "1.234.",
        "1万",
        "1,23€",
        "€ ",
        "a",
        "ǆ",
        "a1",
        "亿一",
        "五十一",
        "上午",
        "12:",
        "847, 9 ",
        "1h1 min",
        "了",
        "5.5.2024 ",
    ],
)
def test_long_typed_answers_take_linear_time(piece: str) -> None:
    def earns_nothing(n: int) -> None:
        assert value(PAGES, "", piece * (n // len(piece)), "847") < 0.25

    assert is_linear(earns_nothing, 4_000, 16_000)


@pytest.mark.long
@pytest.mark.parametrize(("part", "language"), PARTS)
def test_generated_sentences_earn_what_they_should(part: str, language: str) -> None:
    told = list(answers(120, part=part, language=language, seed=3))
    right, wrong = ([one.value for one in told if (one.why == "right") is is_right] for is_right in (True, False))
    assert sum(value >= 0.9 for value in right) >= {"chosen": 0.98, "kept": 0.96}[part] * len(right)
    assert sum(value <= 0.1 for value in wrong) >= 0.97 * len(wrong)


CELLS = re.findall(
    r"\w+",
    "name company city country color_name currency_name license_plate iban url email phone_number mac_address ipv4 "
    "file_name mime_type uuid4 date time date_time postcode hex_color word",
)
LOCALES = ["en_US", "en_GB", "de_DE", "fr_FR", "es_ES", "tr_TR", "zh_CN"]


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("locale", LOCALES)
def test_what_a_cell_holds_is_a_right_answer_in_any_frame_and_another_cell_is_none(locale: str, kind: str) -> None:
    fake = Faker(locale, use_weighting=False)
    fake.seed_instance(20261127)
    cells = list(dict.fromkeys(str(getattr(fake, kind)()) for _ in range(12)))
    cells = [one for one in cells if one.strip("—") and not any(one != other and one in other for other in cells)]
    is_chinese = locale == "zh_CN"
    question = "记录17的内容是什么？" if is_chinese else "What is the entry of record 17?"
    for cell, other in pairwise(cells):
        frames = ["{}", "**{}**", '"{}"', "Answer: {}"]
        frames += (
            ["记录17的内容是{}。", "{}是记录17的内容。"]
            if is_chinese
            else ["It is {}.", "{} is the entry of record 17."]
        )
        for frame in frames:
            assert earned(question, [cell], frame.format(cell)) >= 0.9, frame.format(cell)
            assert earned(question, [cell], frame.format(other)) <= 0.1, (cell, frame.format(other))
        wrong = "不是{}，是{}。 {}或{}" if is_chinese else "It is not {}. {} or {}"
        for frame in wrong.split(" " if is_chinese else ". "):
            assert earned(question, [cell], frame.format(cell, other)) <= 0.1, frame.format(cell, other)


CLOCK = st.builds("{:02}:{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
CODE = st.from_regex(r"[A-HKX0-9]{2,7}", fullmatch=True).filter(lambda code: re.search(r"\d", code) and code[0] != "0")


@settings(max_examples=300, deadline=None)
@given(st.tuples(CLOCK, CLOCK) | st.tuples(CODE, CODE))
@example(("46", "50"))
def test_another_code_or_time_is_another_answer(cells: tuple[str, str]) -> None:
    cell, other = cells
    assume(cell not in other and other not in cell)
    for frame in ("{1}", "It is {1}.", "{0} or {1}", "{1}, not {0}"):
        told = frame.format(cell, other)
        assert earned("What is the entry of record 17?", [cell], told) <= 0.1, (cell, told)


@pytest.mark.parametrize("kind", [kind for kind in CELLS if kind not in ("mac_address", "file_name", "word")])
@pytest.mark.parametrize("locale", LOCALES)
def test_what_several_cells_hold_is_a_set(locale: str, kind: str) -> None:
    fake = Faker(locale, use_weighting=False)
    fake.seed_instance(20261127)
    cells = list(dict.fromkeys(str(getattr(fake, kind)()) for _ in range(12)))
    cells = [one for one in cells if not any(one != other and one in other for other in cells)][:3]
    is_chinese = locale == "zh_CN"
    question = "所有记录的内容是什么？" if is_chinese else "What are the entries of the records?"
    joined = "{}、{}和{}" if is_chinese else "{}, {} and {}"
    for frame in (joined, "- {}\n- {}\n- {}", "1. {}\n2. {}\n3. {}"):
        assert earned(question, cells, frame.format(*cells)) >= 0.9, frame.format(*cells)
    assert 0.7 < earned(question, cells, "\n".join(cells[1:])) < 0.9


CASES = "How many cases were closed in the second quarter of 2024?"
RIDES = "What percentage of rides in May were by members?"
SOUP = "What does the soup contain?"


@pytest.mark.parametrize(
    ("question", "cell", "answer", "value"),
    [
        (SOUP, "leek, potato and cream", "It contains potato, leek and cream.", 1),
        ("When does the night market open?", "18:30", "The night market opens after 18:30.", 0),
        ("When does the night market open?", "18:30", "The night market opens at 6:30 pm.", 1),
        ("How long is the tunnel in km?", "7.8", "The tunnel is 7.8 km wide.", 0),
        ("How long is the tunnel in km?", "7.8", "The length of the tunnel is 7.8 km.", 1),
        ("What is the fare to Skerry in euros?", "12.5", "The fare to Skerry starts at 12.50 euros.", 0),
        ("Who is the treasurer of the co-op?", "Dele Okafor", "Dele Okafor is the former treasurer of the co-op.", 0),
        ("《归途》的导演是谁？", "沈墨言", "《归途》的副导演是沈墨言。", 0),
        ("《归途》的导演是谁？", "沈墨言", "《归途》的导演是沈墨言的学生。", 0),
        ("年费是多少元？", "299", "年费是299美元。", 0),
        ("年费是多少元？", "299", "年费涨了299元。", 0),
        ("Is Hilda older than Bruno?", "yes", "Yes, Bruno is younger than Hilda.", 1),
        ("Is the red line longer than the blue line?", "yes", "The blue line is longer than the red line.", 0),
        ("从杭州到苏州要几小时？", "2", "从苏州至杭州要2小时。", 0),
        ("Which model is the cheapest?", "Nova", "Nova is the least expensive model.", 1),
        (SOUP, "leek, potato and cream", "leek, potato", 0.8),
        (SOUP, "leek, potato and cream", "The soup contains leek, potato, cream and butter.", 0),
        ("流感有哪些症状？", "发热、咳嗽、头痛", "症状有头痛、发热和咳嗽。", 1),
        ("流感有哪些症状？", "发热、咳嗽、头痛", "发热、咳嗽、头痛、腹泻", 0),
        ("What is the pudding called?", "bread and butter pudding", "butter pudding", 0),
        ("Who delivers the milk?", "Smith, Jones and Sons", "Jones, Smith and Sons", 0),
        ("Who discovered it?", "Curie, Marie", "Marie Curie discovered it.", 1),
        ("When did it end?", "2024-05-03 18:30:12", "It ended on 3 May 2024 at 6:30 pm.", 1),
        ("When did it end?", "2024-05-03 18:30:12", "It ended on 3 May 2024 at 6:31 pm.", 0),
        ("How big is the field in square metres?", "12000", "The field is 12,000 m² big.", 1),
        ("大号锅多少钱？", "89", "大号锅89元。", 1),
        ("Who pays the lowest fee?", "Uri", "Uri's fee is the lowest.", 1),
        ("Who pays the lowest fee?", "Uri", "Uri's brother pays the lowest fee.", 0),
        (
            "Which department has the largest budget?",
            "Research",
            "The department with the highest budget is Research.",
            1,
        ),
        ("How long is the crossing in minutes?", "45", "It's a 45-minute crossing.", 1),
        (CASES, "88", "From April 1 to June 30, 2024, 88 cases were closed.", 1),
        (CASES, "88", "From July 1 to September 30, 2024, 88 cases were closed.", 0),
        (CASES, "88", "From April 1 to June 30, 2023, 88 cases were closed.", 0),
        ("2024年2月卖出多少张票？", "310", "2月1日至29日卖出310张票。", 1),
        ("2024年2月卖出多少张票？", "310", "3月1日至29日卖出310张票。", 0),
        (RIDES, "0.62", "In May, 62 out of every 100 rides were by members.", 1),
        (RIDES, "0.62", "In May, 26 out of every 100 rides were by members.", 0),
        ("五月的退货率是多少？", "0.034", "五月的退货率是3.4%，每一千单里有34单退货。", 1),
        ("What is the deadline for the bid?", "2024-07-15", "The bid is due no later than 15 July 2024.", 1),
        ("When was the bid sent?", "2024-07-15", "The bid was sent no later than 15 July 2024.", 0),
    ],
)
def test_what_one_cell_holds(question: str, cell: str, answer: str, value: float) -> None:
    assert earned(question, [cell], answer) == pytest.approx(value)


def earned(question: str, cells: Sequence[str], answer: str) -> float:
    """What an answer earns where a query found these cells, a row each."""
    found = [Cell(cell, row=str(n)) for n, cell in enumerate(cells)]
    kind = kind_of_cells(question, found)
    assert kind, cells
    verdict = grade(question=question, reference="", answer=answer, evidence=found, kind=kind)
    assert verdict, cells
    return verdict.value


@pytest.mark.parametrize(
    ("end", "value"),
    [
        ("Let me know if you need anything else!", 1),
        ("Feel free to ask if you have further questions. Hope this helps.", 1),
        ("如果您还有其他问题，请随时告诉我。", 1),
        ("Would you like to know about dogs?", 1),
        ("Feel free to ask if you want to dig deeper.", 1),
        ("Just let me know!", 1),
        ("Shall I draw them as CSV?", 1),
        ("I could also list their names if that would be of use.", 1),
        ("If you like, I can show the dogs.", 1),
        ("要不要我把猫的名字也列出来？", 1),
        ("您是否想查看狗的数量？", 1),
        ("Should I say six?", 0),
        ("Should I make it a dozen?", 0),
        ("Do you want another answer instead?", 0),
        ("要不要我改成别的数？", 0),
        ("需要我再核实吗？", 0),
        ("Let me know if you want to see Ivan Calloway.", 0),
        ("Would you like to hear that it is not so?", 0),
        ("Let me know if you need more, since this is not right.", 0),
        ("Let me know if Ivan Calloway could help.", 0),
        ("If you need more help, it may be 6.", 0),
        ("If you need help help help. " * 500 + "Or 6?", 0),  # in linear time
    ],
)
def test_an_offer_at_the_end_costs_nothing_and_hides_nothing(end: str, value: int) -> None:
    found = grade(question="How many cats live here?", reference="", evidence=["5"], answer=f"5 cats live here. {end}")
    assert found and found.value == value


@pytest.mark.parametrize(
    ("question", "cell", "answer", "value"),
    [
        ("Does the shop never close?", "no", "No, the shop does close.", 1),
        ("Does the shop never close?", "no", "The shop never closes.", 0),
        ("Does the shop never close?", "no", "No, the shop never closes.", 0),
        ("Doesn't the museum sell maps?", "yes", "Yes, it does.", 1),
        ("Doesn't the museum sell maps?", "yes", "No, it doesn't.", 0),
        ("这家店从不打烊吗？", "no", "不，这家店会打烊。", 1),
        ("这家店从不打烊吗？", "no", "是的，这家店从不打烊。", 0),
        ("Is the hall free on Monday?", "yes", "Yes – I found no booking for it.", 1),
        ("Which guides speak Basque?", "none", "No guide speaks Basque.", 1),
        ("Which guides speak Basque?", "none", "No guide speaks Basque, except Iker.", 0),
        ("哪些导游会说藏语？", "无", "查询没有返回记录：没有导游会说藏语。", 1),
        ("哪些导游会说藏语？", "无", "没有导游会说蒙古语。", 0),
        ("How many fires were there in 2021?", "0", "There were no fires in 2021.", 1),
        ("How many fires were there in 2021?", "0", "There were not many fires in 2021.", 0),
        ("How many bears live in the zoo?", "1", "There is a single bear in the zoo.", 1),
        ("How many bears live in the zoo?", "1", "There is not a single bear in the zoo.", 0),
        ("How long is the tunnel in km?", "2.5", "The tunnel is 2.5 km (2500 m) long.", 1),
        ("How long is the tunnel in km?", "2.5", "The tunnel is 2.5 m long.", 0),
        ("这座桥长多少米？", "1200", "这座桥长1.2公里。", 1),
        ("这座桥长多少米？", "1200", "这座桥长1200公里。", 0),
        ("What percentage of tickets was refunded?", "25", "One in four tickets was refunded, i.e. 25%.", 1),
        ("What percentage of tickets was refunded?", "25", "One in five tickets was refunded.", 0),
        ("Which month had the most visitors?", "2022-08", "August 2022 had the most visitors.", 1),
        ("Which month had the most visitors?", "2022-08", "August 2021 had the most visitors.", 0),
        ("末班车几点发车？", "22:10", "晚上十点十分发车。", 1),
        ("末班车几点发车？", "17:45", "下午五点三刻发车。", 1),
        ("末班车几点发车？", "22:10", "上午十点十分发车。", 0),
        ("Which dish is the cheapest?", "Lentil soup", "The cheapest one is the lentil soup.", 1),
        ("On which weekday is the market held?", "Monday", "It is held on Mondays.", 1),
        ("On which weekday is the market held?", "Monday", "It opens on Monday and ends on Tuesday.", 0),
    ],
)
def test_none_one_months_times_and_other_units(question: str, cell: str, answer: str, value: float) -> None:
    assert earned(question, [cell], answer) == pytest.approx(value)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("The average price is about 3.1 dollars.", 1),
        ("平均价格为3.1元左右。", 1),
        ("Here is the information about the price: it is 3.1 dollars.", 0),
        ("The average price is 3.1 dollars.", 0),
    ],
)
def test_a_number_may_be_rounded_where_the_answer_says_so_of_it(answer: str, value: int) -> None:
    question = "What is the average price?" if answer.isascii() else "平均价格是多少？"
    found = grade(question=question, reference="", evidence=["3.12"], answer=answer)
    assert found and found.value == value


@pytest.mark.parametrize(
    ("question", "column", "cell", "answer", "value"),
    [
        ("What was the mean speed?", "v", "14.386", "It was 14.39.", 1),
        ("What was the mean speed?", "v", "14.386", "It was 14.38.", 0),
        ("What was the mean speed?", "v", "14.386", "It was 14.", 0),
        ("What percentage of tyres failed?", "rate", "0.1284", "12.8% of the tyres failed.", 1),
        ("What percentage of tyres failed?", "rate", "0.1284", "About 13% of the tyres failed.", 1),
        ("What percentage of tyres failed?", "rate", "0.1284", "0.1284% of the tyres failed.", 0),
        ("What percentage of tyres failed?", "rate", "0.1284", "0.128% of the tyres failed.", 0),
        ("What percentage of tyres failed?", "failed_pct", "0.1284", "0.1284% of the tyres failed.", 1),
    ],
)
def test_what_is_rounded_to_three_digits_is_the_value(
    question: str, column: str, cell: str, answer: str, value: float
) -> None:
    cells = [Cell(cell, "0", column)]
    found = grade(question=question, reference="", evidence=cells, answer=answer, kind="number")
    assert found and found.value == value


TREES = "List the three tallest trees, tallest first."


@pytest.mark.parametrize(
    ("question", "cells", "answer", "value"),
    [
        ("Who signed for the crate?", ["Ms Keller"], "Ms Keller sent it, and Mr Ives signed for it.", 0),
        ("When was the mill built?", ["1811-04-02"], "It burnt on 2 April 1811; it had been built in June 1790.", 0),
        ("What is the depth of Lake Orr?", ["38"], "Lake Ash is 38 m deep, Lake Orr 51 m.", 0),
        ("屏风是谁检查的？", ["梅以琳"], "康博检查的，梅以琳负责拍照。", 0),
        ("屏风是谁检查的？", ["梅以琳"], "梅以琳检查的，康博负责拍照。", 1),
        ("On which weekday is the paper delivery?", ["Tue"], "Ink is delivered on Tuesday; paper on Friday.", 0),
        ("In which month was the weir mended?", ["May"], "It was damaged in May and mended in August.", 0),
        ("谷子存放在哪几个库？", ["A库", "C库"], "A库、B库和C库都有。", 0),
        ("Which guests stayed?", ["Ann", "Bea", "Cleo"], "Only Ann and Bea stayed; Cleo went home.", 0),
        (TREES, ["Oak", "Elm", "Fir"], "From shortest to tallest: Oak, Elm, Fir.", 0),
        (TREES, ["Oak", "Elm", "Fir"], "1. Oak\n2. Elm\n3. Yew\n\nThe Fir is fourth.", 0),
    ],
)  # fmt: skip
def test_a_value_told_of_something_else_is_no_answer(
    question: str, cells: list[str], answer: str, value: float
) -> None:
    assert earned(question, cells, answer) == pytest.approx(value)


KEEPER, SHEETS = "Who keeps the keys of the Alder hut?", "How many sheets are in the chest?"


@pytest.mark.parametrize(
    ("question", "truth", "answer", "is_right"),
    [
        (KEEPER, "Dele Okafor", "The keys are kept by dele okafor.", True),
        (KEEPER, "Dele Okafor", "DELE OKAFOR", True),
        (KEEPER, "Dele Okafor", 'The keeper is "Dele Okafor".', True),
        (KEEPER, "Dele Okafor", "the result is dele okafor with tomas brandl", False),
        (KEEPER, "Dele Okafor", "THE RESULT IS DELE OKAFOR WITH TOMAS BRANDL", False),
        (KEEPER, "Dele Okafor", 'the result is "Dele" "Okafor" with "Tomas" "Brandl"', False),
        ("谁保管桤木屋的钥匙？", "王建国", "根据钥匙表的记录，钥匙由王建国保管。", True),
        ("谁保管桤木屋的钥匙？", "王建国", "据李秀兰的记录，据王建国的记录，据赵德明的记录", False),
        (SHEETS, "41", "The chest has 41 sheets (12 small ones and 29 large ones).", True),
        (SHEETS, "41", "12 + 29 = 41", True),
        (SHEETS, "41", "(41 old) (14 new) (37 torn) (23 red)", False),
        (SHEETS, "41", "41 - 12 = 29", False),
    ],
)
def test_candidates_in_small_letters_quotes_sources_and_parentheses_are_no_answer(
    question: str, truth: str, answer: str, is_right: bool
) -> None:
    cells = [Cell(truth, row="0 0", column="value")]
    verdict = grade(question=question, reference="", answer=answer, evidence=cells, kind=kind_of_cells(question, cells))
    assert verdict is not None and verdict.value == is_right


@pytest.mark.parametrize("seed", range(20))
def test_of_numbers_told_of_one_thing_each_one_at_most_is_the_answer(seed: int) -> None:
    fake = Faker(["en_US", "zh_CN"][seed % 2])
    fake.seed_instance(seed)
    guesses = [str(n) for n in fake.random_elements(range(2, 400), length=5, unique=True)]
    things = fake.words(5, part_of_speech="noun", unique=True) if seed % 2 == 0 else [*"狗船窗树灯"]
    tell, between = fake.random_element(
        (("{n} {thing}s", ". "), ("There are {n} {thing}s", ", "), ("I ran {n} {thing} queries", "\n"))
        if seed % 2 == 0
        else (("有{n}只{thing}", "。"), ("{n}{thing}", "，"), ("看见{n}个{thing}", "\n"))
    )
    question = SHEETS if seed % 2 == 0 else "箱子里有多少张纸？"
    answer = between.join(tell.format(n=n, thing=thing) for n, thing in zip(guesses, things, strict=True))
    assert sum(earned(question, [guess], answer) > 0.1 for guess in guesses) <= 1
    assert earned(question, guesses[:1], f"{guesses[0]} {things[0]}") == 1


def test_a_question_that_repeats_itself_costs_each_of_its_words_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = list[str]()

    def counting(one: str, other: str) -> bool:
        counted.append(one)
        return is_form(one, other)

    monkeypatch.setattr(sought, "is_form", counting)
    n_calls = list[int]()
    for n in (1, 60):
        counted.clear()
        answer = "Its binding looks splendid. The Silent Lantern has 847 pages."
        assert grade(question=PAGES * n, reference="", answer=answer, evidence=[Cell("847")], kind="number")
        n_calls.append(len(counted))
    assert 0 < n_calls[1] <= 2 * n_calls[0]
