"""What the offline judge promises on cells whose letters are drawn at random: nothing here is from its own lists."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from statistics import fmean

import pytest
from faker import Faker

from sql_agent.offline_judge.echoes import JUDGING
from sql_agent.offline_judge.exam import make_exam
from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.reading import CAP
from sql_agent.offline_judge.sections import Cell

N = 160
UNITS = ("mg", "ml", "℃", "%", "kg", "mmol/L", "周", "元", "毫克", "小时", "IU")
ASK = {
    ("one", True): ("{a}的{c}是什么？", "请问{a}的{c}？", "{a}有哪些{c}？"),
    ("one", False): ("What is the {c} of {a}?", "Which {c} does {a} have?"),
    ("two", True): (
        "{a}和{b}的{c}有何不同？",
        "比较{a}与{b}的{c}。",
        "{a}跟{b}比，{c}怎么样？",
        "{a}的{c}是什么？{b}的呢？",
    ),
    ("two", False): (
        "Compare the {c} of {a} and {b}.",
        "How does the {c} of {a} differ from {b}?",
        "{a} vs {b}: {c}?",
        "What is the {c} of {a}, and what is that of {b}?",
    ),
    ("columns", True): ("{a}的{c}和{e}分别是什么？", "{a}的{c}以及{e}？"),
    ("columns", False): ("What are the {c} and {e} of {a}?", "Give the {c} and the {e} of {a}."),
}


@dataclass
class Asked:
    """A question, its cells, the same as a reader sees them, their clauses, and the labels that tell them apart."""

    kind: str
    question: str
    cells: list[str]
    clean: list[str]
    clauses: list[list[str]]
    labels: list[str]

    def value(self, answer: str, reference: str = "") -> float:
        found = grade(question=self.question, reference=reference, answer=answer, evidence=self.cells)
        return found.value if found else 0.0

    def told(self, texts: list[str]) -> str:
        return "\n".join(f"{label}{'：' * bool(label)}{text}" for label, text in zip(self.labels, texts, strict=True))


def word(draw: random.Random, zh: bool, n: int) -> str:
    if zh:
        return "".join(chr(draw.randint(0x4E00, 0x9FA5)) for _ in range(n))
    letters = "abcdefghijklmnopqrstuvwxyz"
    return " ".join("".join(draw.choices(letters, k=draw.randint(3, 9))) for _ in range(max(1, n // 2)))


def clauses(draw: random.Random, zh: bool) -> list[str]:
    """One to two hundred, with quantities and parentheses, of at most 3,000 characters together."""
    made: dict[str, None] = {}
    for _ in range(draw.choice([1, 1, 2, 3, 5, 9, 20, 60, 200])):
        text, joint = word(draw, zh, draw.choice([2, 3, 5, 7, 10, 15])), "" if zh else " "
        number = draw.choice(["{}", "{}.5", "{}-80", "{},250"]).format(draw.randint(2, 70))
        aside = draw.choice([f"{joint}{number}{draw.choice(UNITS)}", f"{joint}({word(draw, zh, 3)})", "", "", ""])
        if sum(map(len, made)) + len(text) < 2900:
            made[text + aside] = None
    return list(made)


def written(draw: random.Random, told: list[str], column: str, zh: bool) -> tuple[str, str]:
    """(the cell, as its reader sees it)."""
    form, end = (
        draw.choice(["plain", "plain", "enumerated", "headed", "table", "list", "paragraphs"]),
        "。" if zh else ".",
    )
    lines = [draw.choice(["{n}. ", "({n})", "{n}、"]).format(n=n) + one for n, one in enumerate(told, 1)]
    if form in ("plain", "enumerated", "headed"):
        plain = draw.choice("；。，、\n" if zh else [". ", "; ", ", ", "\n"]).join(told)
        text = {"plain": plain, "enumerated": "\n".join(lines)}.get(form, f"【{column}】" + f"{end}\n".join(lines))
        return text, text
    rows = "".join(f"<tr><td>{n}</td><td>{one}</td></tr>" for n, one in enumerate(told, 1))
    cell = {
        "table": f'<table border="1"><tbody><tr><th>No</th><th>{column}</th></tr>{rows}</tbody></table>',
        "list": "<ol>" + "".join(f'<li class="x"><span style="color:red">{one}</span></li>' for one in told) + "</ol>",
        "paragraphs": "".join(f"<p>{one}{end}<br></p>" for one in lines),
    }[form]
    return cell, re.sub(r"<[^>]*>", "", re.sub(r"</(?:p|li|tr|td|th)>", "\n", cell)).strip()


def asked(seed: int) -> Asked:
    draw = random.Random(seed)
    zh, kind = draw.random() < 0.6, draw.choice(["one", "one", "two", "columns"])
    a, b = (word(draw, zh, draw.randint(2, 6)).title() for _ in "ab")
    c, e = (word(draw, zh, draw.randint(2, 4)) for _ in "ce")
    labels = {"one": [""], "two": [a, b], "columns": [c, e]}[kind]
    told = [clauses(draw, zh) for _ in labels]
    columns = [c, e] if kind == "columns" else [c] * len(labels)
    pairs = [written(draw, one, column, zh) for one, column in zip(told, columns, strict=True)]
    question = draw.choice(ASK[kind, zh]).format(a=a, b=b, c=c, e=e)
    return Asked(kind, question, [cell for cell, _ in pairs], [text for _, text in pairs], told, labels)


QUESTIONS = [asked(seed) for seed in range(N)]
MANY = [one for one in QUESTIONS if one.kind != "one"]


def test_the_cells_are_of_all_lengths_and_forms() -> None:
    lengths = sorted(len(cell) for one in QUESTIONS for cell in one.cells)
    assert lengths[0] < 5 and lengths[-1] > 2500 and any("<td>" in cell for one in QUESTIONS for cell in one.cells)


@pytest.mark.long
def test_reference_evidence_and_answer_that_are_one_earn_nearly_all() -> None:
    texts = ["\n".join(one.cells) for one in QUESTIONS]
    found = [
        grade(question=one.question, reference=text, answer=text, evidence=[text])
        for one, text in zip(QUESTIONS, texts, strict=True)
    ]
    assert all(verdict and verdict.value >= 0.95 for verdict in found)


@pytest.mark.long
@pytest.mark.parametrize(
    "reference", ["", "其说如是，别无他言。", "The book says so in words of its own, and much else."]
)
def test_a_quote_pays_with_its_tags_without_them_and_in_any_order_of_things(reference: str) -> None:
    for one in QUESTIONS:
        cut = [re.sub(r"<[^>]*>", "", cell) for cell in one.cells]
        values = [one.value(one.told(texts), reference) for texts in (one.clean, one.cells, cut)]
        turned = [f"{label}：{text}" for label, text in zip(one.labels, one.clean, strict=True)][::-1]
        values.append(one.value("\n".join(turned), reference) if one.kind != "one" else 1.0)
        assert min(values) >= 0.9, (one.question, values)


def test_things_or_columns_exchanged_pay_nothing() -> None:
    swapped = [one.value(one.told(one.clean[::-1])) for one in MANY]
    assert len(MANY) > 60 and sum(value <= 0.1 for value in swapped) >= 0.98 * len(swapped)


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("对比一下麦凯和West And Sons的保修", ["麦凯", "West And Sons"]),  # a joint within a name
        ("How do 다올 (주) and 주식회사 이노 differ in warranty?", ["다올 (주)", "주식회사 이노"]),  # signs within one
        ("What are the 保修 of 良诺传媒有限公司 and of 维涛网络有限公司?", ["良诺传媒有限公司", "维涛网络有限公司"]),
        ("Welches gilt: Bergmann Söhne oder Holt & Kranz?", ["Bergmann Söhne", "Holt & Kranz"]),
    ],
)
def test_things_that_only_the_answer_sets_apart_cannot_be_exchanged(question: str, names: list[str]) -> None:
    cells = ["twelve months; parts alone", "two winters<br/>labour too; no travel"]

    def value(first: str, second: str) -> float:
        answer = f"{names[0]}: {first}\n{names[1]}: {second}"
        found = grade(question=question, reference="", answer=answer, evidence=cells)
        return found.value if found else -1.0

    assert value(*cells) >= 0.9
    assert value(*cells[::-1]) <= 0.1
    turned = f"{names[1]}: {cells[1]}\n{names[0]}: {cells[0]}"  # told of its own, in another order
    found = grade(question=question, reference="", answer=turned, evidence=cells)
    assert found and found.value >= 0.9


def test_each_clause_left_out_lowers_the_value_and_order_is_free() -> None:
    for one in [one for one in QUESTIONS if one.kind == "one" and 1 < len(one.clauses[0]) < 70]:
        told = one.clauses[0]
        whole, gone = one.value("\n".join(told)), random.Random(one.question).randrange(len(told))
        assert one.value("\n".join(told[:gone] + told[gone + 1 :])) < whole
        assert one.value("\n".join(reversed(told))) == pytest.approx(whole)


def test_any_lie_caps_a_quote_and_neither_lie_nor_question_earns() -> None:
    for one, other in zip(QUESTIONS, QUESTIONS[1:], strict=False):
        lie = other.clauses[0][0]
        assert one.value(f"{one.told(one.clean)}\n{lie}") < CAP, one.question
        assert one.value(lie) <= 0.1 and one.value(one.question) <= 0.1


def test_what_the_reference_adds_to_the_evidence_earns_nothing_alone() -> None:
    draw = random.Random(1)
    frame = "根据参考资料，{}。建议用药前咨询医生或药师。"
    values = [
        one.value(frame.format(""), frame.format("，".join(word(draw, True, 9) for _ in "abc"))) for one in QUESTIONS
    ]
    assert fmean(values) <= 0.02 and max(values) <= 0.1


def test_rows_and_columns_that_are_known_deal_out_four_cells() -> None:
    question = "甲药和乙药的色泽与气味各是怎样的？"
    cells = [Cell(text, row, column) for text, row, column in (
        ("赤褐", "1", "colour"), ("辛香", "1", "smell"), ("青灰", "2", "colour"), ("腥臭", "2", "smell"),
    )]  # fmt: skip

    def value(answer: str) -> float:
        found = grade(question=question, reference="", answer=answer, evidence=cells)
        assert found is not None
        return found.value

    exam = make_exam(question, "", tuple(cells))
    assert exam and exam.names[" 甲 药 "] == {0, 1} and exam.names[" 气 味 "] == {1, 3}
    assert value("甲药的色泽：赤褐。甲药的气味：辛香。乙药的色泽：青灰。乙药的气味：腥臭。") == 1
    assert value("甲药的色泽：青灰。甲药的气味：腥臭。乙药的色泽：赤褐。乙药的气味：辛香。") <= 0.1
    assert value("甲药的色泽：辛香。甲药的气味：赤褐。乙药的色泽：腥臭。乙药的气味：青灰。") <= 0.1


def tabular(draw: random.Random, zh: bool, form: str) -> tuple[str, list[tuple[str, list[str]]], list[str]]:
    """(the cell, its rows as heading and values, the names of the columns)."""
    n, m = draw.randint(2, 7), 1 if form == "labels" else draw.randint(1, 3)
    words = (word(draw, zh, draw.randint(2, 6)) for _ in range(9 * (n + m)))
    made = [one for one in words if not JUDGING.search(one)][: n + m]  # what judges begins a clause
    values = draw.sample(range(2, 900), n * m)
    told = [(made[i], [f"{value} {draw.choice(UNITS)}" for value in values[i * m : i * m + m]]) for i in range(n)]
    head, columns = word(draw, zh, 3), made[n:]
    if form == "labels":
        return draw.choice(["; ", "\n", ", "]).join(f"{name}: {one[0]}" for name, one in told), told, columns
    lines = [[head, *columns], *([name, *one] for name, one in told)]
    if form == "html":
        rows = [[f"<t{'d' if n else 'h'}>{one}</t{'d' if n else 'h'}>" for one in row] for n, row in enumerate(lines)]
        return "<table>" + "".join(f"<tr>{''.join(row)}</tr>" for row in rows) + "</table>", told, columns
    lines.insert(1, ["---"] * (m + 1))
    return "\n".join(f"| {' | '.join(row)} |" for row in lines), told, columns


@pytest.mark.parametrize("form", ["labels", "html", "markdown"])
def test_rows_of_a_table_in_a_cell_are_told_of_their_own(form: str) -> None:
    for seed in range(60):
        draw = random.Random(f"{form} {seed}")
        zh = draw.random() < 0.5
        cell, told, columns = tabular(draw, zh, form)
        name, column = word(draw, zh, 4).title(), word(draw, zh, 3)
        question = f"{name}的{column}是什么？" if zh else f"What is the {column} of {name}?"

        def value(answer: str, question: str = question, cell: str = cell) -> float:
            found = grade(question=question, reference="", answer=answer, evidence=[cell])
            assert found is not None
            return found.value

        def lines(rows: list[tuple[str, list[str]]], named: bool = False, columns: list[str] = columns) -> str:
            fields = [
                (one, [f"{c} {v}" if named else v for c, v in zip(columns, values, strict=True)])
                for one, values in rows
            ]
            return "\n".join(f"{one}：{'，'.join(values)}" for one, values in fields)

        turned = [(one, values) for (one, _), (_, values) in zip(told, told[1:] + told[:1], strict=True)]
        exchanged = [told[1][0], told[0][0], *(one for one, _ in told[2:])]
        two = [(one, values) for one, (_, values) in zip(exchanged, told, strict=True)]
        right = [cell, re.sub(r"<[^>]*>", " ", re.sub(r"</t[dhr]>", "\n", cell)), lines(told), lines(told[::-1])]
        wrong = [lines(turned), lines(two)]
        if len(columns) > 1:
            right.append(lines(told, True))
            wrong.append(lines([(one, values[::-1]) for one, values in told], True))
        if form == "markdown":
            wrong.append(cell.replace(told[0][0], "\0").replace(told[1][0], told[0][0]).replace("\0", told[1][0]))
        assert min(map(value, right)) >= 0.9, (question, cell, [*map(value, right)])
        assert max(map(value, wrong)) <= 0.1, (question, cell, [*map(value, wrong)], wrong)
        assert value("\n".join("，".join(values) for _, values in told)) > 0.5


@pytest.mark.parametrize("locale", ["ja_JP", "ru_RU", "el_GR", "fr_FR", "vi_VN", "zh_CN", "en_US"])
def test_words_of_other_languages_that_come_again_as_headings_are_quoted(locale: str) -> None:
    """Few words, so that what is a heading in one line is text in others."""
    words = Faker(locale)
    words.seed_instance(5)
    for n in range(12):
        lines = ["".join(f"{one} " for one in words.words(3)).strip() for _ in range(4 + 5 * n)]
        told = list(dict.fromkeys(f"{words.word()}: {one}" if i % 4 == 0 else one for i, one in enumerate(lines)))
        cell = "<ul>" + "".join(f"<li>{one}</li>" for one in told) + "</ul>"
        for answer in (cell, "\n".join(told)):
            found = grade(question="What does Quadri Ltd say?", reference="", answer=answer, evidence=[cell])
            assert found and found.value >= 0.95, (told, found)
        found = grade(question="What does Quadri Ltd say?", reference="", answer=f"{cell}\nxyzzy", evidence=[cell])
        assert found and found.value < CAP


def test_an_english_question_tells_chinese_columns_apart() -> None:
    for question in ("Give 色泽 and 气味 of 甲药.", "What are the 色泽 and the 气味 of 甲药?"):
        for answer, pays in (("色泽：赤褐\n气味：辛香", True), ("色泽：辛香\n气味：赤褐", False)):
            found = grade(question=question, reference="", answer=answer, evidence=["赤褐", "辛香"])
            assert found and (found.value >= 0.9) is pays


A_CELL, B_CELL = "规律运动；每3个月复查\n少吃盐", "<p>规律运动</p><p>病因：吸烟</p><p>接种疫苗；每周2次</p>"
COMPARED = "对比胆囊结石、克罗恩病两者的预防"


@pytest.mark.parametrize(
    "told",
    [
        "胆囊结石的预防：{}\n克罗恩病的预防：{}",
        "| | 胆囊结石 | 克罗恩病 |\n|---|---|---|\n| 预防 | {} | {} |",
        "## 胆囊结石\n- {}\n## 克罗恩病\n- {}",
    ],
)
@pytest.mark.parametrize("reference", ["胆囊结石的预防：{}\n克罗恩病的预防：{}", "{}\n{}"])
def test_names_hold_over_the_lines_of_a_cell_and_in_tables(told: str, reference: str) -> None:
    quoted = reference.format(A_CELL, B_CELL)
    cells = [A_CELL.replace("\n", "<br>"), B_CELL]

    def value(*cells: str) -> float:
        found = grade(question=COMPARED, reference=quoted, answer=told.format(*cells), evidence=[A_CELL, B_CELL])
        return found.value if found else -1.0

    assert value(*cells) >= 0.9
    assert value(*cells[::-1]) <= 0.1


def test_a_column_is_called_by_its_name_in_any_order_of_the_cells() -> None:
    cells = [Cell("two spoons; at night", "1", "dosage"), Cell("colds; mild fever", "1", "indications")]

    def value(first: str, second: str) -> float:
        question = "What are the indications of Zorvex, and what is its dosage?"
        answer = f"Dosage of Zorvex: {first}.\nIndications of Zorvex: {second}.\nI hope this helps!"
        found = grade(question=question, reference="", answer=answer, evidence=cells)
        return found.value if found else -1.0

    texts = [cell.text for cell in cells]
    assert value(*texts) >= 0.9
    assert value(*texts[::-1]) <= 0.1


def test_a_bullet_before_a_number_and_the_name_of_a_column_are_layout() -> None:
    cells = [Cell("1、甲状腺检查；\n2、胸片", "1", "检查"), Cell("1、休息", "1", "护理")]
    answer = "检查：\n- 1、甲状腺检查；\n- 2、胸片\n护理：\n- 1、休息"
    found = grade(question="请介绍该记录的全部内容。", reference="", answer=answer, evidence=cells)
    assert found and found.value >= 0.9


DOSES = "①1～5岁儿童：一次50mg，睡前服用。<br/>②老年人：一次20mg，整片吞服。<br/>③疗程一般为12日。"
REACTIONS = "<ul><li>罕见：口干、抽搐</li><li>常见：水肿、呕吐</li><li>停药后可自行消失</li></ul>"


@pytest.mark.parametrize("name", ["阿司匹林肠溶片", "盐酸莫西沙星片", "非洛地平缓释片"])
@pytest.mark.parametrize(
    "told",
    [
        "{0}的用法用量：{1}\n{0}的不良反应：{2}",
        "## {0}用法用量\n- {1}\n\n## {0}不良反应\n- {2}",
        "**用法用量**\n-\u00a0{1}\n**不良反应**\n-\u00a0{2}",
    ],
)
def test_cells_that_are_quoted_whole_are_told_of_their_columns(name: str, told: str) -> None:
    cells = [Cell(DOSES, "1", "用法用量"), Cell(REACTIONS, "1", "不良反应")]
    plain = [re.sub(r"(?:<[^>]+>)+", "\n", cell.text).strip() for cell in cells]
    reference = f"{name}的用法用量：{plain[0]}\n{name}的不良反应：{plain[1]}"

    def value(first: str, second: str) -> float:
        answer = told.format(name, first, second)
        found = grade(
            question=f"{name}有哪些用法用量，不良反应如何？", reference=reference, answer=answer, evidence=cells
        )
        return found.value if found else -1.0

    assert value(*plain) >= 0.9
    assert value(*plain[::-1]) <= 0.1


@pytest.mark.parametrize(
    "reference", ["口干和抽搐比较少，水肿、呕吐多一些，停了药就会好。", "Dry mouth is rare; it goes by itself."]
)
def test_the_reference_itself_is_right_in_whatever_words(reference: str) -> None:
    for answer in (reference, reference.replace("，", ", ")):
        found = grade(question="有哪些不良反应？", reference=reference, answer=answer, evidence=[REACTIONS])
        assert found and found.value == 1.0
    found = grade(
        question="有哪些不良反应？", reference=reference, answer=f"{reference}以上不实。", evidence=[REACTIONS]
    )
    assert found and found.value < 0.25


def test_a_label_of_a_thing_and_a_column_names_both() -> None:
    texts = ["18个月", "过量可引起呕吐", "24个月", "过量可引起肌痛"]
    cells = [
        Cell(text, row, column) for text, row, column in zip(texts, "1122", ["validity", "overdose"] * 2, strict=True)
    ]
    label = "{}的{}：{}".format

    def told(columns: list[str]) -> str:
        names = ["复方甘草片", "复方甘草片", "对乙酰氨基酚片", "对乙酰氨基酚片"]
        return "\n".join(map(label, names, columns * 2, texts))

    def value(answer: str) -> float:
        question = "比较复方甘草片和对乙酰氨基酚片的有效期与药物过量。"
        found = grade(question=question, reference=told(["有效期", "药物过量"]), answer=answer, evidence=cells)
        return found.value if found else -1.0

    assert value(f"您好，{told(['有效期', '药物过量'])}") >= 0.9
    assert value(told(["药物过量", "有效期"])) <= 0.1


@pytest.mark.parametrize(
    ("question", "label"),
    [
        ("子宫肌瘤与2型糖尿病在检查和概述上有什么区别？", "{}的{}"),
        ("Compare 子宫肌瘤 and 2型糖尿病 in terms of 检查 and 概述.", "{}, its {}"),
    ],
)
@pytest.mark.parametrize("reference", ["{}", "就{1}来说，主要是：{0}"])
def test_things_and_columns_are_both_told_apart(question: str, label: str, reference: str) -> None:
    texts = ["可见蛋白尿", "一种皮肤疾病", "血清铁升高", "一种呼吸疾病"]
    names, columns = ["子宫肌瘤", "子宫肌瘤", "2型糖尿病", "2型糖尿病"], ["检查", "概述"] * 2
    cells = [Cell(text, row, column) for text, row, column in zip(texts, "1122", columns, strict=True)]
    whole = "\n".join(map(reference.format, texts, columns))

    def value(order: list[int]) -> float:
        lines = (f"{label.format(names[n], columns[n])}：{texts[i]}" for n, i in enumerate(order))
        found = grade(question=question, reference=whole, answer="\n".join(lines), evidence=cells)
        return found.value if found else -1.0

    assert value([0, 1, 2, 3]) >= 0.9
    assert value([2, 3, 0, 1]) <= 0.1
    assert value([1, 0, 3, 2]) <= 0.1


@pytest.mark.parametrize(
    "told",
    [
        "{0}的护理：{1}\n{0}的症状：{2}\n如需更多信息，请随时告诉我。",
        "您好！根据数据库查询结果：\n{0}的症状：{2}\n{0}的护理：{1}",
        "| 名称 | 内容 |\n|---|---|\n| 护理 | {1} |\n| 症状 | {2} |",
        "| name | content |\n|---|---|\n| {0}的护理 | {1} |\n| {0}的症状 | {2} |",
    ],
)
@pytest.mark.parametrize("then", ["另外症状呢", "症状呢", "症状又有哪些"])
def test_a_second_question_asks_for_another_column_of_the_same_thing(told: str, then: str) -> None:
    name, texts = "冠状动脉粥样硬化性心脏病", ["每2h测量体温", "胸闷、乏力"]
    cells = [Cell(text, "1", column) for text, column in zip(texts, ("nursing", "symptoms"), strict=True)]

    def value(*texts: str) -> float:
        answer = told.format(name, *texts)
        found = grade(question=f"{name}的护理是什么？{then}？", reference="", answer=answer, evidence=cells)
        return found.value if found else -1.0

    assert value(*texts) >= 0.9
    assert value(*texts[::-1]) <= 0.1


def test_what_one_condition_of_a_cell_says_is_not_told_under_another() -> None:
    question = "铜锈中毒和铅粉中毒时，解毒散的剂量分别是多少？"
    cell = Cell("口服。铜锈中毒，一次3～4g；铅粉中毒，一次7～9g，最多21g。", "解毒散", "用量")

    def value(answer: str) -> float:
        found = grade(question=question, reference="", answer=answer, evidence=[cell])
        return found.value if found else -1.0

    assert value(cell.text) >= 0.9
    assert value("口服。铅粉中毒，一次7～9g，最多21g；铜锈中毒，一次3～4g。") >= 0.9
    assert value("口服。铜锈中毒，一次7～9g，最多21g；铅粉中毒，一次3～4g。") <= 0.1
