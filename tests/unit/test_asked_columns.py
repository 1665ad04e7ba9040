"""What of a result, or of a long cell, a question asks for: the rest may be told beside, and pays nothing."""

from __future__ import annotations

import pytest

from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.sections import Cell
from sql_agent.offline_judge.typed import kind_of_cells
from sql_agent.offline_judge.typed.columns import asked_for


def rows(columns: str, *told: str) -> list[Cell]:
    names = columns.split(",")
    return [
        Cell(text, f"0 {n}", name)
        for n, row in enumerate(told)
        for name, text in zip(names, row.split("|"), strict=True)
    ]


@pytest.mark.parametrize(
    ("question", "cells", "asked"),
    [
        ("Which grower picked the most pears?", rows("grower,kilos", "Hollow Farm|812"), "grower"),
        ("How many pears did Hollow Farm pick?", rows("grower,kilos", "Hollow Farm|812"), "kilos"),
        ("When did train 88 leave Ulm?", rows("train,left_on", "88|2024-05-02"), "left_on"),
        ("Is berth 12 free?", rows("berth,free,length_m", "12|0|14"), "free"),
        ("Who has the best time?", rows("runner,club,time_s", "Ada Lund|Nord|611"), "runner"),
        ("Which club has the best runner?", rows("runner,club", "Ada Lund|Nord"), "club"),
        ("In which month were the most tents sold?", rows("month,sold", "2022-07|94"), "month"),
        ("List all facts about berth 12.", rows("berth,free,length_m", "12|0|14"), "berth,free,length_m"),
        ("哪位医生的门诊量最高？", rows("doctor,visits", "孙晓燕|412"), "doctor"),
        ("海景酒店的入住率是多少？", rows("hotel,occupancy", "海景酒店|91.3"), "occupancy"),
        ("Which grower picked the most, and how many kilos?", rows("grower,kilos", "Hollow Farm|812"), "grower,kilos"),
        ("List each grower's pears.", rows("grower,kilos", "Hollow Farm|812", "Tansy Hill|640"), "grower,kilos"),
        ("What are the name and phone number of the clerk?", rows("name,phone", "Yusuf Demir|555-0142"), "name,phone"),
        ("哪部影片借得最少，借了几次？", rows("title,loans", "落潮|7"), "title,loans"),
        ("各房型每晚多少钱？", rows("room,price", "单人间|288", "套房|888"), "room,price"),
        ("What is the top load: its number, the buyer and the weight?", rows("no,name,kg", "S9|Ada|24"), "no,name,kg"),
        ("列出两位领班及其入职日期。", rows("name,hired_on", "王一|1998-04-02", "李二|2004-10-11"), "name,hired_on"),
        ("What was the average catch per boat, in tonnes?", rows("boats,avg_t", "36|27.4"), "avg_t"),
        ("What was the quantity sold per shop?", rows("shops,qty", "Old Mill|4", "Quay|9"), "shops,qty"),
        ("How deep was the deepest dive?", rows("dive_id,depth_m", "7714|61"), "depth_m"),
        ("Which dive was the deepest?", rows("dive_id,depth_m", "7714|61"), "dive_id"),
        ("Who are the skippers?", rows("skip_cd,name", "RX|Ada Lund", "QV|Bo Dahl"), "name"),
        ("Who steered most often, and how many times?", rows("name,n,pass_no", "Ada Lund|9|P-3"), "name,n"),
        ("What are the name and pass number?", rows("name,pass_no", "Ada Lund|P-3"), "name,pass_no"),
    ],
)  # fmt: skip
def test_the_columns_that_a_question_asks_for(question: str, cells: list[Cell], asked: str) -> None:
    found = asked_for(question, cells, is_yes_no=question.startswith("Is "))
    assert ",".join(dict.fromkeys(cell.column for cell in found)) == asked


def earned(question: str, cells: list[Cell], answer: str, reference: str = "", *, typed: bool = True) -> float:
    kind = kind_of_cells(question, cells) if typed else ""
    found = grade(question=question, reference=reference, answer=answer, evidence=cells, kind=kind)
    assert found
    return found.value


PEARS = rows("grower,kilos", "Hollow Farm|812", "Tansy Hill|640", "Old Mill|455")
MOST = "Which three growers picked the most pears, from most to least?"
TOP = rows("grower,kilos", "Hollow Farm|812")


@pytest.mark.parametrize(
    ("question", "cells", "answer", "is_right"),
    [
        ("Which grower picked the most pears?", TOP, "Hollow Farm picked the most pears.", True),
        ("Which grower picked the most pears?", TOP, "Hollow Farm picked the most pears, 812 kilos.", True),
        ("Which grower picked the most pears?", TOP, "Hollow Farm picked the most pears, 900 pears.", False),
        ("Which grower picked the most pears?", TOP, "812", False),
        (MOST, PEARS, "1. Hollow Farm\n2. Tansy Hill\n3. Old Mill", True),
        (MOST, PEARS, "Hollow Farm (812), Tansy Hill (640), Old Mill (455)", True),
        (MOST, PEARS, "Hollow Farm (640), Tansy Hill (812), Old Mill (455)", False),
        (MOST, PEARS, "Tansy Hill, Hollow Farm, Old Mill", False),
    ],
)  # fmt: skip
def test_what_is_not_asked_for_may_be_told_beside(
    question: str, cells: list[Cell], answer: str, is_right: bool
) -> None:
    value = earned(question, cells, answer)
    assert value >= 0.9 if is_right else value <= 0.1


CARE = "<h3>Light</h3><p>Half shade. No midday sun.</p><h3>Water</h3><p>Keep moist, water twice a week.</p>"
CARE += "<h3>Winter</h3><p>Cover the roots with leaves. Stop feeding in October.</p><h3>Pests</h3><p>Slugs in May.</p>"
FERN = [Cell("shield fern", "0 0", "plant"), Cell(CARE, "0 0", "care")]
WINTER = "How does the shield fern get through the cold?"
LEAVES = "Put leaves over its roots and give no more food from October on."
STEPS = "1. Rinse the tank and fill it.\n2. Fill the hopper with beans.\n"
STEPS += "3. Wipe the wand with a damp cloth after each milk."
BREWER = [Cell("Brewer S2", "0 0", "product"), Cell(STEPS, "0 0", "manual"), Cell("Two years.", "0 0", "warranty")]


@pytest.mark.parametrize(
    ("question", "cells", "reference", "answer", "is_right"),
    [
        (WINTER, FERN, LEAVES, "Cover the roots with leaves. Stop feeding in October.", True),
        (WINTER, FERN, LEAVES, CARE, True),
        (WINTER, FERN, LEAVES, "Cover the roots with leaves.", False),
        (WINTER, FERN, LEAVES, "Half shade. No midday sun.", False),
        ("How do I clean the milk pipe of the Brewer S2?", BREWER, "Clean the wand with a wet cloth after milk.",
         "Wipe the wand with a damp cloth after each milk.", True),
        ("How do I clean the milk pipe of the Brewer S2?", BREWER, "Clean the wand with a wet cloth after milk.",
         "Two years.", False),
    ],
)  # fmt: skip
def test_a_reference_in_other_words_chooses_the_part(
    question: str, cells: list[Cell], reference: str, answer: str, is_right: bool
) -> None:
    value = earned(question, cells, answer, reference, typed=False)
    assert value >= 0.9 if is_right else value < 0.7


def test_what_was_quoted_for_the_question_is_asked_for_whole() -> None:
    quotes = [Cell("Mix two spoons with water."), Cell("Wait for ten minutes.")]
    value = earned("How is it mixed?", quotes, "Mix two spoons with water.", "Stir two spoons into water.", typed=False)
    assert value < 0.7


TYPES = [*rows("drug,category", "Velocarb|D"), Cell("Nortal", "0 1", "drug"), Cell("C", "0 1", "category")]
WHICH = "Which is in pregnancy category D, Velocarb or Nortal?"
DOSE = [Cell("Do not use bleach. Wipe the seal with a damp cloth.", "0 0", "care")]
BLEACH = "May I use bleach on the seal?"
NO = "No, bleach must not be used."


@pytest.mark.parametrize(
    ("question", "cells", "reference", "answer", "is_right"),
    [
        (WHICH, TYPES, "", "Velocarb is in pregnancy category D.", True),
        (WHICH, TYPES, "", "Nortal is in pregnancy category D, while Velocarb is in category C.", False),
        (BLEACH, DOSE, NO, "No, bleach is not allowed. Do not use bleach.", True),
        (BLEACH, DOSE, NO, "Yes, bleach is allowed. Do not use bleach.", False),
        ("藿香水和连花颗粒，哪个没有等待期？", rows("名称,等待期", "藿香水|无等待期", "连花颗粒|90天"), "藿香水。",
         "藿香水没有等待期，连花颗粒的等待期为90天。", True),
        ("藿香水和连花颗粒，哪个没有等待期？", rows("名称,等待期", "藿香水|无等待期", "连花颗粒|90天"), "藿香水。",
         "连花颗粒没有等待期。", False),
    ],
)  # fmt: skip
def test_which_of_two_and_yes_or_no_by_the_record(
    question: str, cells: list[Cell], reference: str, answer: str, is_right: bool
) -> None:
    value = earned(question, cells, answer, reference, typed=False)
    assert value >= 0.9 if is_right else value <= 0.25


SINGERS = rows("name,born", "Élodie Dvořák|1881-04-27", "Łucja O'Brien|1879-04-08")
BORN = "When were Élodie Dvořák and Łucja O'Brien born?"
STAGE = rows("debut_on,retired_on", "1921-04-20|1952-08-19")
ACTIVE = "When were her debut and her retirement?"
CLOSED = rows("closed_on", "1966-12-28")


@pytest.mark.parametrize(
    ("question", "cells", "answer", "is_right"),
    [
        (BORN, SINGERS, "Elodie Dvorak was born on 27 April 1881 and Lucja O'Brien on 8 April 1879.", True),
        (BORN, SINGERS, "Élodie Dvořák = 1879-04-08", False),
        (BORN, SINGERS, "Élodie Dvořák was born on 1879-04-08.", False),
        (ACTIVE, STAGE, "Debut date: 1921-04-20, retired date: 1952-08-19", True),
        (ACTIVE, STAGE, "Debut date: 1952-08-19, retired date: 1921-04-20", False),
        ("When was the account closed?", CLOSED, "It was closed on 1966-12-28.", True),
        ("When was the account closed?", CLOSED, "It is certainly not 1966-12-28.", False),
        ("Which member did not pay?", rows("member", "Ada Lund"), "The member who did not pay is Ada Lund.", True),
        ("Which member did not pay?", rows("member", "Ada Lund"), "It is not Ada Lund.", False),
        ("哪位会员没有缴费？", rows("member", "孙晓燕"), "不是孙晓燕。", False),
        ("Which pages are torn?", rows("page", "110", "122", "155"), "110, 122, 155", True),
        ("Which pages are torn?", rows("page", "110", "122", "155"), "110, 122" + ", 110, 122" * 4, False),
    ],
)  # fmt: skip
def test_values_are_told_of_what_they_are_of(question: str, cells: list[Cell], answer: str, is_right: bool) -> None:
    value = earned(question, cells, answer)
    assert value >= 0.9 if is_right else value <= 0.1


LEAFLET = [
    Cell("乌梅止泻片", "乌梅止泻片", "name"),
    Cell("腹痛，水样便，每日三次以上", "乌梅止泻片", "symptoms"),
    Cell("24个月", "乌梅止泻片", "shelf_life"),
    Cell("密封，置阴凉处", "乌梅止泻片", "storage"),
    Cell("乌梅、黄连、干姜；辅料为淀粉，压制成片", "乌梅止泻片", "composition"),
]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("乌梅止泻片的保质期是多久？", "24个月"),
        ("乌梅止泻片怎么存放？", "密封，置阴凉处"),
        ("乌梅止泻片对应的表现有什么？", "腹痛，水样便，每日三次以上"),
        ("乌梅止泻片含有哪些药材？", "药材组成：乌梅、黄连、干姜；辅料为淀粉，压制成片"),
    ],
)
def test_columns_are_asked_for_in_another_language_than_theirs(question: str, answer: str) -> None:
    assert earned(question, LEAFLET, answer, typed=False) >= 0.9


BIRDS = [
    Cell(text, row, column)
    for row, texts in (
        ("Ashen tern", ("Sand eels", "2–3 eggs", "61 g")),
        ("Reed stint", ("Brine flies", "4–5 eggs", "29 g")),
    )
    for column, text in zip(("diet", "clutch_size", "weight"), texts, strict=True)
]
ASKS_OF_BIRDS = "How do the ashen tern and the reed stint differ in what they eat and in how many eggs they lay?"
TELLS_OF_BIRDS = "The ashen tern eats sand eels and lays 2–3 eggs, the reed stint eats brine flies and lays 4–5 eggs."


@pytest.mark.parametrize("reference", ["", TELLS_OF_BIRDS])
def test_short_cells_that_a_reference_quotes_are_asked_for_and_not_to_be_exchanged(reference: str) -> None:
    right = "Ashen tern: sand eels, 2–3 eggs. Reed stint: brine flies, 4–5 eggs."
    assert earned(ASKS_OF_BIRDS, BIRDS, right, reference, typed=False) >= 0.9
    assert earned(ASKS_OF_BIRDS, BIRDS, right.replace("2–3", "4-5", 1), reference, typed=False) <= 0.25
    exchanged = "Ashen tern: sand eels, 4–5 eggs. Reed stint: brine flies, 2–3 eggs."
    assert earned(ASKS_OF_BIRDS, BIRDS, exchanged, reference, typed=False) <= 0.1
    only = "The ashen tern eats sand eels, the reed stint eats brine flies."
    assert 0.1 < earned(ASKS_OF_BIRDS, BIRDS, only, TELLS_OF_BIRDS, typed=False) < 0.9


PLOT = [
    Cell("Quarry Field", "Quarry Field – plot rules", "site"),
    Cell("31 full plots, 9 half plots", "Quarry Field – plot rules", "plots"),
    Cell("From October on, and never after dark.", "Quarry Field – plot rules", "fires"),
]
MOSS = [
    Cell("石松癣", "石松癣", "name"),
    Cell("石松癣是一种多见于林区的皮肤病。", "石松癣", "introduction"),
    Cell("红斑、脱屑，夜间瘙痒。", "石松癣", "symptoms"),
    Cell("外用硫磺软膏，每晚一次。", "石松癣", "treatment"),
]


@pytest.mark.parametrize(
    ("question", "cells", "answer"),
    [
        ("What are the rules for fires on a Quarry Field plot?", PLOT, "From October on, and never after dark."),
        ("请介绍石松癣的症状和治疗。", MOSS, "症状：红斑、脱屑，夜间瘙痒。治疗：外用硫磺软膏，每晚一次。"),
    ],
)
def test_a_word_of_a_name_and_a_verb_that_asks_are_no_columns(question: str, cells: list[Cell], answer: str) -> None:
    assert earned(question, cells, answer, typed=False) >= 0.9
