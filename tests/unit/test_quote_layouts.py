"""Quotes as models write them: tables with numbers, headings, sentences around a quote, questions of two things."""

from __future__ import annotations

import json
import re
from itertools import permutations

import pytest

from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.reading import CAP
from sql_agent.offline_judge.sections import Cell

OAK = ["树皮深裂；秋叶变红。", "<table><tr><td>1</td><td>怕积水</td></tr><tr><td>2</td><td>喜强光</td></tr></table>"]
LINDEN = ["<p><b>形态</b></p><ul><li>叶心形</li><li>花有蜜香</li></ul>", "【习性】1. 耐修剪。2. 畏盐碱。"]
BOTH = [
    Cell(OAK[0], "1", "looks"),
    Cell(OAK[1], "1", "habit"),
    Cell(LINDEN[0], "2", "looks"),
    Cell(LINDEN[1], "2", "habit"),
]
QUESTIONS_ZH = [
    "比较红栎和心叶椴的形态、习性。",
    "从形态和习性两方面对比红栎与心叶椴。",
    "红栎和心叶椴的形态、习性各是什么？",
    "请分别说明红栎和心叶椴的形态与习性。",
]
TOLD_ZH = {
    ("红栎", "形态"): "树皮深裂；秋叶变红",
    ("红栎", "习性"): "怕积水；喜强光",
    ("心叶椴", "形态"): "叶心形；花有蜜香",
    ("心叶椴", "习性"): "耐修剪；畏盐碱",
}
QUESTIONS_EN = [
    "Compare the fuel and range of Kestrel and Osprey.",
    "Give the fuel and range of both Kestrel and Osprey.",
    "Compare Kestrel and Osprey with regard to fuel and range.",
    "For each of Kestrel and Osprey, what are the fuel and the range?",
]
EVIDENCE_EN = [
    Cell("FUEL\n1. kerosene\n2. sunflower oil", "1", "burns"),
    Cell("320 km with two seats", "1", "goes"),
    Cell("<h4>Fuel</h4><p>wood gas; peat</p>", "2", "burns"),
    Cell("45 km in still air", "2", "goes"),
]
TOLD_EN = {
    ("Kestrel", "fuel"): "kerosene; sunflower oil",
    ("Kestrel", "range"): "320 km with two seats",
    ("Osprey", "fuel"): "wood gas; peat",
    ("Osprey", "range"): "45 km in still air",
}
LAYOUTS_ZH = [
    lambda told: "\n".join(f"**{a}的{b}**：{text}" for (a, b), text in told.items()),
    lambda told: "\n".join(f"{a}（{b}）：{text}。" for (a, b), text in told.items()),
    lambda told: "\n\n".join(f"## {a}的{b}\n- " + text.replace("；", "\n- ") for (a, b), text in told.items()),
    lambda told: (
        "|项目|红栎|心叶椴|\n|---|---|---|\n"
        + "\n".join(f"|{b}|{told['红栎', b]}|{told['心叶椴', b]}|" for b in ("形态", "习性"))
    ),
]
LAYOUTS_EN = [
    lambda told: "\n".join(f"**{b.title()} of {a}**: {text}" for (a, b), text in told.items()),
    lambda told: "\n".join(f"{a} - {b.title()}: {text}." for (a, b), text in told.items()),
    lambda told: (
        "|Item|Kestrel|Osprey|\n|---|---|---|\n"
        + "\n".join(f"|{b}|{told['Kestrel', b]}|{told['Osprey', b]}|" for b in ("fuel", "range"))
    ),
]


def paid(question: str, answer: str, evidence: list[Cell], reference: str = "") -> float:
    verdict = grade(question=question, reference=reference, answer=answer, evidence=evidence)
    assert verdict is not None
    return verdict.value


def exchanged(told: dict[tuple[str, str], str], axis: int) -> dict[tuple[str, str], str]:
    """Each text under the other name of one axis: the other thing, or the other column."""
    names = [*dict.fromkeys(key[axis] for key in told)]
    other = dict(zip(names, names[::-1], strict=True))
    return {key: told[(other[key[0]], key[1]) if axis == 0 else (key[0], other[key[1]])] for key in told}


@pytest.mark.parametrize("layout", LAYOUTS_ZH)
@pytest.mark.parametrize("question", QUESTIONS_ZH)
def test_two_things_and_two_columns_in_chinese(question: str, layout) -> None:
    assert paid(question, layout(TOLD_ZH), BOTH) >= 0.9
    for axis in (0, 1):
        assert paid(question, layout(exchanged(TOLD_ZH, axis)), BOTH) <= 0.1


@pytest.mark.parametrize("layout", LAYOUTS_EN)
@pytest.mark.parametrize("question", QUESTIONS_EN)
def test_two_things_and_two_columns_in_english(question: str, layout) -> None:
    assert paid(question, layout(TOLD_EN), EVIDENCE_EN) >= 0.9
    for axis in (0, 1):
        assert paid(question, layout(exchanged(TOLD_EN, axis)), EVIDENCE_EN) <= 0.1


@pytest.mark.parametrize("question", QUESTIONS_ZH)
def test_the_cells_themselves_earn_what_they_say(question: str) -> None:
    assert paid(question, "\n".join(cell.text for cell in BOTH), BOTH) >= 0.9
    under_the_other = f"红栎：{LINDEN[0]}\n{LINDEN[1]}\n心叶椴：{OAK[0]}\n{OAK[1]}"
    assert paid(question, under_the_other, BOTH) <= 0.1


@pytest.mark.parametrize(
    "question",
    [
        "Tell me the fuel of Kestrel. Also, what is its range?",
        "Please explain the fuel of Kestrel, as well as its range.",
        "For Kestrel, I need both the fuel and the range.",
    ],
)
def test_two_columns_of_one_thing_however_they_are_asked_for(question: str) -> None:
    told, evidence = {key: text for key, text in TOLD_EN.items() if key[0] == "Kestrel"}, EVIDENCE_EN[:2]
    for layout in LAYOUTS_EN[:2]:
        assert paid(question, layout(told), evidence) >= 0.9
        assert paid(question, layout(exchanged(told, 1)), evidence) <= 0.1


def test_three_things_of_an_english_list() -> None:
    question = "Compare the nests of Wren, Robin and Jackdaw."
    nests = {"Wren": "moss dome", "Robin": "leaf cup on a bank", "Jackdaw": "sticks in a chimney"}
    evidence = [Cell(text, str(n), "nests") for n, text in enumerate(nests.values())]
    rows = "|Item|Wren|Robin|Jackdaw|\n|---|---|---|---|\n|nests|{}|{}|{}|"
    right = [*nests.values()]
    assert paid(question, rows.format(*right), evidence) >= 0.9
    assert paid(question, rows.format(*right[1:], right[0]), evidence) <= 0.1


NESTS = {"Wren": "a moss dome by the brook", "Robin": "a leaf cup on a bank", "Jackdaw": "some sticks in a chimney"}
SHELLS = {"蛾螺": "壳口宽大；壳面有粗肋", "织纹螺": "壳顶尖锐；外唇内侧有齿", "玉螺": "壳面光滑；脐孔很深"}


@pytest.mark.parametrize(
    "between", ["{text} ({name})\n", "{text} – {name}\n\n", "| {text} | {name} |\n", "{text}\n{name}\n"]
)
@pytest.mark.parametrize("before", ["", "{first}, {second}:\n"])
@pytest.mark.parametrize(
    ("question", "told"), [("Compare the nests of {} and {}.", NESTS), ("比较{}和{}的外壳。", SHELLS)]
)
def test_names_behind_what_is_told_of_them(question: str, told: dict[str, str], before: str, between: str) -> None:
    for first, second in permutations(told, 2):
        evidence = [Cell(told[name], name, "looks") for name in (first, second)]
        asked = question.format(first, second)
        texts = [told[first], told[second]]
        for names in ((first, second), (second, first)):
            rows = [between.format(text=text, name=name) for text, name in zip(texts, names, strict=True)]
            for rows_told in (rows, rows[::-1]):
                value = paid(asked, before.format(first=first, second=second) + "".join(rows_told), evidence)
                assert value >= 0.9 if names[0] == first else value <= 0.1


def test_columns_named_one_after_the_other_above_what_stands_in_them() -> None:
    told = {"fuel": "kerosene; sunflower oil", "range": "320 km with two seats"}
    question, evidence = "What are the fuel and the range of Kestrel?", EVIDENCE_EN[:2]
    for texts in permutations(told.values()):
        value = paid(question, "Fuel\nRange\n\n" + "\n\n".join(texts), evidence)
        assert value <= 0.1 or [*texts] == [*told.values()]


QUOTE_ZH = "槭树的习性：忌西晒；宜疏松土壤"
EVIDENCE_ZH = [Cell("忌西晒；宜疏松土壤", "1", "habit")]
QUOTE = "The habitat of the pika is: talus slopes; alpine meadows"
EVIDENCE = [Cell("talus slopes; alpine meadows", "1", "habitat")]


@pytest.mark.parametrize(
    "answer",
    [
        "您好，这是个好问题！关于槭树的习性，说明如下：\n{}。",
        "为您查到槭树的习性：\n{}。",
        "{}。\n以上信息仅供参考，如有疑问请咨询专业人士。",
        "{}。（来源：数据库“槭树”条目）",
        "{}。还有其他问题吗？",
        "{}。\n如果您还想了解其他内容，可以继续问我！",
        "总的来说，{}。希望对您有所帮助。",
    ],
)
def test_talk_around_a_chinese_quote_costs_nothing(answer: str) -> None:
    assert paid("槭树的习性是什么？", answer.format(QUOTE_ZH), EVIDENCE_ZH) >= 0.9


@pytest.mark.parametrize(
    "answer",
    [
        "Great question! {}.",
        "Here is what is recorded on the habitat of the pika:\n{}.",
        "The habitat is listed below:\n{}.",
        "{}.\n\nPlease consult an expert if you are unsure.",
        "{} (source: database record).",
        "{}. Is there anything else you would like to know?",
        "{}.\n\nWould you like me to check another entry?",
        "{}. Feel free to ask more questions.",
    ],
)
def test_talk_around_an_english_quote_costs_nothing(answer: str) -> None:
    assert paid("What is the habitat of the pika?", answer.format(QUOTE), EVIDENCE) >= 0.9


@pytest.mark.parametrize(
    "answer",
    [
        "{}。是吗？",
        "{}。可以西晒。",
        "{}。以上信息有误。",
        "{}。其他资料说不是这样。",
        "可以使用：{}。",
        "仅供参考：{}。",
    ],
)
def test_talk_that_doubts_permits_or_denies_is_foreign_in_chinese(answer: str) -> None:
    assert paid("槭树的习性是什么？", answer.format(QUOTE_ZH), EVIDENCE_ZH) < CAP


@pytest.mark.parametrize(
    "answer",
    [
        "{}. Is this right?",
        "{}. I do not know of any other source that says so.",
        "{}. Or anything else.",
        "Please consult anything else: {}.",
        "{}\nsql\nSELECT 1",
        "Not in our records: {}.",
    ],
)
def test_talk_that_doubts_or_denies_is_foreign_in_english(answer: str) -> None:
    assert paid("What is the habitat of the pika?", answer.format(QUOTE), EVIDENCE) < CAP


def test_what_a_question_with_yes_or_no_is_about_may_be_said_and_not_what_it_asks_of_it() -> None:
    evidence = [Cell("采蜜；筑巢；<br>守卫", "1", "work")]
    question, reference = "工蜂的职责是否包括产卵？请列出全部职责。", "不包括。采蜜；筑巢；守卫"
    assert paid(question, "不包括。工蜂的职责：采蜜；筑巢；守卫", evidence, reference) >= 0.9
    assert paid(question, "工蜂的职责包括产卵：采蜜；筑巢；守卫", evidence, reference) < CAP


def test_what_stands_in_a_table_cell_after_a_number_is_told_without_it_and_with_it() -> None:
    cell = "<table><tr><td>1</td><td>长2m</td></tr><tr><td>2</td><td>宽0.5m</td></tr></table>"
    for answer in ("长2m；宽0.5m", "1 长2m\n2 宽0.5m", cell):
        assert paid("独木舟的尺寸是什么？", answer, [Cell(cell)], reference=cell) == 1
    assert paid("独木舟的尺寸是什么？", "长1m；宽0.5m", [Cell(cell)], reference=cell) < CAP


HABITAT = "Talus slopes above 2500 m.\nAlpine meadows."
JSON_EN = '```json\n{\n  "habitat": "Talus slopes above 2500 m.\\nAlpine meadows."\n}\n```'
HABIT = "忌西晒。\n宜疏松土壤。"


@pytest.mark.parametrize(
    "answer",
    [
        JSON_EN,
        '{"habitat": "Talus slopes above 2500 m. \\"Alpine\\" meadows."}',
        "> Habitat:\n> - Talus slopes above 2500 m.\n>\n> - Alpine meadows.",
        "a) Talus slopes above 2500 m.\nb) Alpine meadows.",
        "First, talus slopes above 2500 m. Moreover, alpine meadows.",
    ],
)
def test_more_layouts_of_a_quote(answer: str) -> None:
    assert paid("What is the habitat of the pika?", answer, [Cell(HABITAT, "1", "habitat")]) >= 0.9
    wrong = answer.replace("2500", "3500")
    assert paid("What is the habitat of the pika?", wrong, [Cell(HABITAT, "1", "habitat")]) <= CAP


@pytest.mark.parametrize(
    "answer", ['```json\n{"习性": "忌西晒。\\n宜疏松土壤。"}\n```', "> 习性：\n> - 忌西晒。\n> \n> - 宜疏松土壤。"]
)
def test_more_layouts_of_a_chinese_quote(answer: str) -> None:
    assert paid("槭树的习性是什么？", answer, [Cell(HABIT, "1", "习性")]) >= 0.9
    assert paid("槭树的习性是什么？", answer.replace("忌", "喜"), [Cell(HABIT, "1", "习性")]) <= CAP


def test_a_fence_frees_no_other_word() -> None:
    assert paid("槭树的习性是什么？", f"```wrong\n{HABIT}\n```", [Cell(HABIT, "1", "习性")]) <= CAP


@pytest.mark.parametrize(
    ("question", "reference", "right", "wrong"),
    [
        ("槭树能种在西晒的墙边吗？", "忌西晒。", "不能", "可以"),
        ("槭树要不要疏松土壤？", "需要疏松土壤。", "是的", "不是"),
        ("鼠兔冬天冬眠吗？", "否。根据习性，全年活动，不冬眠。", "否", "是的"),
        ("Does the pika hibernate?", "It does not hibernate.", "No", "Yes"),
        ("May the tent be used with a stove?", "Do not use a stove inside the tent.", "No", "Yes"),
        ("Does the pika live in meadows?", "Yes. It lives in talus slopes and meadows.", "Yes", "No"),
    ],
)
def test_yes_or_no_above_a_clause(question: str, reference: str, right: str, wrong: str) -> None:
    clause = reference.split("。根据习性，")[-1].removeprefix("Yes. ")
    evidence = [Cell(clause, "1", "习性" if "。" in reference else "habit")]
    sign = "。" if "。" in reference else ". "
    assert paid(question, f"{right}{sign}{clause}", evidence, reference) >= 0.9
    assert paid(question, f"{clause}因此答案是：{right}。" if sign == "。" else clause, evidence, reference) >= 0.9
    assert paid(question, f"{wrong}{sign}{clause}", evidence, reference) <= 0.1


def test_yes_or_no_that_nobody_can_decide_is_not_free() -> None:
    question, clause = "Is the pass open at 3000 m?", "The pass is closed above 2800 m."
    for word in ("Yes", "No"):
        assert paid(question, f"{word}. {clause}", [Cell(clause, "1", "notes")], clause) <= CAP


LODGE = "<b>Summer</b><br/>Beds cost 20 euros.<br/><b>Winter</b><br/>The kitchen is locked.<br/>"


def test_bold_lines_are_headings() -> None:
    question, evidence = "What are the rules of the lodge?", [Cell(LODGE, "1", "rules")]
    right = "Summer:\nBeds cost 20 euros.\nWinter:\nThe kitchen is locked."
    assert paid(question, right, evidence) >= 0.9
    assert paid(question, "Winter:\nBeds cost 20 euros.\nSummer:\nThe kitchen is locked.", evidence) <= 0.1


TRAILS = [["Trail", "Length", "Climb"], ["Ridge", "12 km", "800 m"], ["Lake", "7 km", "150 m"]]
TABLE = f"<table>{''.join(f'<tr>{"".join(f"<td>{field}</td>" for field in row)}</tr>' for row in TRAILS)}</table>"


@pytest.mark.parametrize(
    "reference", ["", "The trails: Ridge: Length 12 km, Climb 800 m; Lake: Length 7 km, Climb 150 m."]
)
def test_a_table_read_out_with_its_headers(reference: str) -> None:
    question, evidence = "What trails does the valley have?", [Cell(TABLE, "1", "trails")]
    right = "Ridge: Length 12 km, Climb 800 m.\nLake: Length 7 km, Climb 150 m."
    assert paid(question, right, evidence, reference) >= 0.9
    by_row = "Lake: Length 12 km, Climb 800 m.\nRidge: Length 7 km, Climb 150 m."
    by_column = "Ridge: Climb 12 km, Length 800 m.\nLake: Climb 7 km, Length 150 m."
    for answer in (by_row, by_column):
        assert paid(question, answer, evidence, reference) <= 0.1


@pytest.mark.parametrize(
    ("question", "reference", "asked", "other"),
    [
        (
            "What is the food of the pika?",
            "As for the pika, the food information is: grasses and lichens; thistle.",
            ["grasses and lichens", "thistle"],
            "talus slopes",
        ),
        ("鼠兔吃什么？", "鼠兔的食物为高山禾草；地衣。", ["高山禾草", "地衣"], "岩屑坡"),
    ],
)
def test_a_framed_reference_asks_for_what_it_quotes(
    question: str, reference: str, asked: list[str], other: str
) -> None:
    column = "food" if question.isascii() else "食物"
    evidence = [Cell("; ".join(asked), "1", column), Cell(other, "1", "home" if question.isascii() else "栖息地")]
    assert paid(question, "\n".join(asked), evidence, reference) >= 0.9
    for part in asked:
        assert paid(question, part, evidence, reference) <= 0.8


ROW = {
    "en": {
        "habitat": "It lives on talus slopes above the tree line. It winters under the snow.",
        "diet": "It eats thistle and lichens all summer. It dries grass on stones.",
        "enemies": "Stoats hunt it in its burrow. Hawks take the young ones in June.",
    },
    "zh": {"习性": "忌西晒。宜疏松土壤。", "形态": "树皮深裂，秋叶变红。", "病害": "叶片生褐斑。"},
}
LABELLED = [
    lambda told: "\n".join(f"{label}: {text}" for label, text in told.items()),
    lambda told: "\n\n".join(f"## {label}\n{text}" for label, text in told.items()),
    lambda told: "| | |\n|---|---|\n" + "\n".join(f"| {label} | {text} |" for label, text in told.items()),
    lambda told: "|" + "|".join(told) + "|\n|" + "---|" * len(told) + "\n|" + "|".join(told.values()) + "|",
    lambda told: json.dumps(told, ensure_ascii=False),
]


@pytest.mark.parametrize("layout", LABELLED)
@pytest.mark.parametrize("language", ROW)
def test_what_stands_under_another_column_s_name_is_a_lie(language: str, layout) -> None:
    row = ROW[language]
    name = "pika" if language == "en" else "槭树"
    cells = [Cell(name, "1", "name"), *(Cell(text, "1", column) for column, text in row.items())]
    for asked in row:
        question = f"What is the {asked} of the {name}?" if language == "en" else f"{name}的{asked}是什么？"
        assert paid(question, layout(row), cells) >= 0.9
        for n in range(1, len(row)):
            others = [*row.values()][n:] + [*row.values()][:n]
            assert paid(question, layout(dict(zip(row, others, strict=True))), cells) <= 0.1


OVER = [
    lambda name, texts: f"# {name}\n\n" + "\n".join(texts),
    lambda name, texts: "\n".join(f"{name}: {text}" for text in texts),
    lambda name, texts: f"| {name} |\n|---|\n" + "\n".join(f"| {text} |" for text in texts),
    lambda name, texts: "| | |\n|---|---|\n" + "\n".join(f"| {name} | {text} |" for text in texts),
]


@pytest.mark.parametrize("layout", OVER)
@pytest.mark.parametrize(("language", "name"), [("en", "aspirin"), ("en", "hoax"), ("zh", "阿司匹林"), ("zh", "沙漠")])
def test_one_caption_over_all_that_is_told_is_no_order_in_it(layout, language: str, name: str) -> None:
    asked, text = next(iter(ROW[language].items()))
    question = f"What is the {asked} of the pika?" if language == "en" else f"槭树的{asked}是什么？"
    texts = [f"{one}{text[-1]}" for one in re.split(r"\. |。", text.rstrip(".。"))]
    assert paid(question, layout(asked, texts), [Cell(text, "1", asked)]) >= 0.9
    assert paid(question, layout(name, texts), [Cell(text, "1", asked)]) <= CAP


SAID = {
    "en": ["Riddle: {}", "Propaganda: {}", "{} Hype.", "{} Satire.", "{} Disputed.", "He said: {}", "They claim: {}"]
    + ["{}\nGull:", "{}\nHoax:", "{}\nIn a dream:", "{} (F)", "{} Or so.", "{} So he claims."],
    "zh": ["谜语：{}", "歌词：{}", "{}童话。", "{}差评。", "{}移花接木。", "网上说：{}", "所谓{}"]
    + ["{}\n海鸥：", "{}\n谬论：", "{}\n梦里：", "{}他们这么说。"],
}


@pytest.mark.parametrize(("language", "around"), [(one, text) for one in SAID for text in SAID[one]])
def test_what_dictionaries_know_is_no_frame_by_itself(language: str, around: str) -> None:
    for asked, text in ROW[language].items():
        question = f"What is the {asked} of the pika?" if language == "en" else f"槭树的{asked}是什么？"
        assert paid(question, text, [Cell(text, "1", asked)]) >= 0.9
        assert paid(question, around.format(text), [Cell(text, "1", asked)]) <= CAP


@pytest.mark.parametrize("word", ["cancelled", "expired", "swapped"])
@pytest.mark.parametrize("joint", [" ", " — ", ", "])
def test_a_verb_behind_the_last_fact_joins_nothing(word: str, joint: str) -> None:
    for asked, text in ROW["en"].items():
        said = f"{text.rstrip('.')}{joint}{word}"
        assert paid(f"What is the {asked} of the pika?", said, [Cell(text, "1", asked)]) <= CAP
