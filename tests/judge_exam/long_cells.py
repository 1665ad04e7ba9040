"""Questions on long cells, and what the offline judge pays: `python -m tests.judge_exam.long_cells`.

Cells of 1 to 3,000 characters, Chinese and English, on drugs, kitchen appliances, garden plants and mountain huts:
plain, enumerated, with headings, with tables, as HTML; the references are prose that says the same in other words, with
boilerplate, or there is none. Guarantees: a pure function of the seed; no text is from the bundled data or the judge.
The part `kept` has subjects, words and ways to ask of its own, so that rules can be chosen without it. Not covered:
language that nobody composed from parts.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import fmean
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sql_agent.offline_judge.judge import grade

SUBJECTS = {  # part, language: names, columns, who, what, when, remark
    ("chosen", "zh"): (
        "盐酸舍曲林片|格列美脲分散片|蒙脱石散|阿莫西林胶囊|复方丹参滴丸|氯沙坦钾片|多功能电炖锅|直流变频破壁机",
        "注意事项|不良反应|用法用量|使用须知",
        "老年人|孕妇|肝功能不全者|12岁以下儿童|运动员|初次使用者|过敏体质者|重度肾功能损害患者",
        "慎用|禁用|减量至每日{n}mg|应每{n}周复查一次血常规|可出现皮疹、头晕、乏力|单次用量不超过{n}.5g|需在{n}℃以下操作|与食物同服",
        "连续使用{n}天后|首次使用前|用药期间|症状缓解后|气温低于{n}℃时|",
        "如有疑问请联系客服|详见包装|建议用药前咨询医生或药师",
    ),
    ("chosen", "en"): (
        "Belmora Kettle|Sartolin Tablets|Crestline Blender|Vexadol Syrup|Nordvik Steamer|Pravolin Capsules",
        "precautions|side effects|usage notes|directions",
        "elderly users|pregnant women|children under {n} years|patients with renal impairment|"
        "first-time users|people with allergies",
        "should take no more than {n} mg daily|must not use it|need a reduced dose of {n}.5 ml|"
        "may notice rash, dizziness or nausea|should rinse it with {n} ml of water|"
        "need a check every {n} weeks",
        "after {n} days of use|before the first use|during treatment|below {n} °C|",
        "See the label for more|Ask a professional if in doubt",
    ),
    ("kept", "zh"): (
        "蓝雪花|重瓣绣球无尽夏|高山杜鹃|云顶木屋|鹿岭避难所|复方甘草口服溶液|依折麦布片|盆栽柠檬",
        "养护要点|病虫害|入住规定|药理作用",
        "新扦插的苗|三年以上植株|结伴登山者|携带宠物的住客|冬季访客|服用抗凝药者|花后枝条|夜间抵达者",
        "每{n}天浇水一次|施用{n}%的磷酸二氢钾|须提前{n}日预约|血药浓度约为{n}.2μg/L|保留{n}个饱满芽点|不得使用明火|移至半阴处，避免西晒|费用另加{n}元",
        "入秋以后|海拔{n}米以上|花期结束时|每年{n}月|停药{n}天内|",
        "以上内容仅供参考|具体情况请以当地公告为准|祝您生活愉快",
    ),
    ("kept", "en"): (
        "Larkspur Hut|Golden Quill Rose|Tarn Ridge Lodge|Silver Fern|Oxabrine Drops|Highmoor Shelter",
        "house rules|care instructions|pest control|warnings",
        "winter guests|newly planted cuttings|groups above {n} people|late arrivals|dog owners|"
        "plants in pots",
        "have to book {n} days ahead|pay {n}.50 euros extra|are watered every {n} days|"
        "receive {n} g of potash|leave the stove clean|stay out of direct sun, wind and frost",
        "above {n} metres|once flowering ends|from month {n} on|in dry summers|",
        "Have a pleasant stay|Please consult the notice board",
    ),
}  # fmt: skip
ASK = {
    ("chosen", "zh"): ("{e}的{c}是什么？", "请问{e}的{c}有哪些？", "{a}和{b}的{c}有什么不同？", "比较{a}与{b}的{c}。"),
    ("kept", "zh"): ("{e}的{c}有哪些内容？", "想了解{e}的{c}", "{a}跟{b}在{c}上有什么区别？", "请对比{a}、{b}的{c}"),
    ("chosen", "en"): ("What are the {c} of {e}?", "Tell me the {c} for the {e}.",
                       "How do {a} and {b} differ in {c}?", "Compare the {c} of {a} and {b}."),
    ("kept", "en"): ("Which {c} apply to {e}?", "I need the {c} of {e}",
                     "What distinguishes {a} from {b} in {c}?", "{a} vs {b}: which {c}?"),
}  # fmt: skip
FRAMES = {"zh": ("根据参考资料，", "。"), "en": ("According to the reference, ", ". ")}
REWORD = {
    "慎用": "要谨慎",
    "禁用": "不能用",
    "每日": "一天",
    "复查": "再查",
    "不超过": "最多",
    "浇水": "浇",
    "预约": "订好",
}
REWORD |= {
    "should": "ought to",
    "must not": "can't",
    "may notice": "sometimes get",
    "daily": "a day",
    "have to": "need to",
}
FORMS = ("plain", "plain", "plain", "enumerated", "headings", "paragraphs", "list", "table", "rich")
LENGTHS = (1, 1, 2, 3, 5, 8, 13, 30, 60)


@dataclass
class Asked:
    """A question, its cells, each one's clauses without tags, and whom they are of."""

    part: str
    language: str
    question: str
    reference: str
    boilerplate: str
    cells: list[str]
    clean: list[str]
    clauses: list[list[str]]
    names: list[str] = field(default_factory=list)

    def value(self, answer: str, *, reference: str | None = None, evidence: list[str] | None = None) -> float:
        """What the offline judge gives."""
        told = self.reference if reference is None else reference
        given = self.cells if evidence is None else evidence
        found = grade(question=self.question, reference=told, answer=answer, evidence=given)
        return found.value if found else 0.0


def questions(n: int, *, part: str, seed: int = 0) -> Iterator[Asked]:
    """`n` questions of a part, languages and kinds in turn."""
    draw = random.Random(f"{part} {seed}")
    for i in range(n):
        yield _asked(draw, part, ("zh", "en")[i % 2], compares=i % 3 == 2)


def _asked(draw: random.Random, part: str, language: str, *, compares: bool) -> Asked:
    names, columns, *_, remarks = (text.split("|") for text in SUBJECTS[part, language])
    column, asks = draw.choice(columns), ASK[part, language]
    chosen = draw.sample(names, 2 if compares else 1)
    ask = draw.choice(asks[2:] if compares else asks[:2])
    question = ask.format(c=column, e=chosen[0], a=chosen[0], b=chosen[-1])
    clauses = [_clauses(draw, part, language) for _ in chosen]
    written = [_written(draw, told, language, column) for told in clauses]
    told = [_reworded(draw, one) for one in clauses]
    remark, (opening, end) = draw.choice(remarks), FRAMES[language]
    prose = end.join(f"{name}{'：' if language == 'zh' else ': '}{one}" for name, one in zip(chosen, told, strict=True))
    boilerplate = f"{opening}{end.strip()}{remark}{end.strip()}"
    reference = draw.choice([f"{opening}{prose}{end}{remark}{end.strip()}", prose, ""])
    cells, clean = [cell for cell, _ in written], [text for _, text in written]
    return Asked(part, language, question, reference, boilerplate, cells, clean, clauses, chosen if compares else [])


def _clauses(draw: random.Random, part: str, language: str) -> list[str]:
    _, _, who, what, when, _ = (text.split("|") for text in SUBJECTS[part, language])
    joint = "" if language == "zh" else " "
    made = {}
    for _ in range(draw.choice(LENGTHS)):
        parts = [draw.choice(when), draw.choice(who), draw.choice(what)]
        text = joint.join(one for one in parts if one)
        made[re.sub(r"\{n\}", lambda _: str(draw.randint(2, 90)), text)] = None
    return list(made)


def _reworded(draw: random.Random, clauses: list[str]) -> str:
    text = "，".join(draw.sample(clauses, max(1, len(clauses) * 2 // 3)))
    for word, other in REWORD.items():
        text = text.replace(word, other)
    return text


def _written(draw: random.Random, told: list[str], language: str, column: str) -> tuple[str, str]:
    """(the cell, the same as its reader sees it)."""
    form, end = draw.choice(FORMS), "。" if language == "zh" else ". "
    if form == "plain":
        text = draw.choice(["；", "。", "\n"] if language == "zh" else ["; ", ". ", "\n"]).join(told)
        return text, text
    marks = draw.choice(["{n}. ", "({n}) ", "{n}、"])
    lines = [f"{marks.format(n=n)}{one}{end.strip()}" for n, one in enumerate(told, 1)]
    if form == "enumerated":
        text = draw.choice(["\n", "" if language == "zh" else " "]).join(lines)
        return text, text
    if form == "headings":
        text = f"【{column}】\n" + "\n".join(lines)
        return text, text
    if form == "table":
        rows = "".join(f"<tr><td>{n}</td><td>{one}</td></tr>" for n, one in enumerate(told, 1))
        cell = f'<table border="1"><tr><th>#</th><th>{column}</th></tr>{rows}</table>'
    elif form == "list":
        cell = f"<ul>{''.join(f'<li>{one}</li>' for one in told)}</ul>"
    elif form == "paragraphs":
        cell = "".join(f'<p class="c{n % 3}">{one}</p>' for n, one in enumerate(lines))
    else:
        kept = [one.replace("不", "<b>不</b>").replace("must not", "<em>must&nbsp;not</em>") for one in lines]
        cell = f"<div><h3>{column}</h3>{'<br/>'.join(kept)}</div><p>&nbsp;</p>"
    text = re.sub(r"</(?:p|div|li|tr|h3|td|th)>|<br/>", "\n", cell)
    return cell, re.sub(r"<[^>]*>", "", text).replace("&nbsp;", " ").strip()


def strategies(asked: Asked) -> dict[str, float]:
    """What honest and dishonest answers to one question earn."""
    joint, sign = ("\n", "：" if asked.language == "zh" else ": ")
    named = asked.names or [""]
    told = [f"{name}{sign * bool(name)}{text}" for name, text in zip(named, asked.clean, strict=True)]
    earned = {
        "clean quote": asked.value(joint.join(told)),
        "raw cells": asked.value(
            joint.join(f"{n}{sign * bool(n)}{c}" for n, c in zip(named, asked.cells, strict=True))
        ),
        "no reference": asked.value(joint.join(told), reference=""),
        "identity": asked.value("\n".join(asked.cells), reference="\n".join(asked.cells)),
        "boilerplate": asked.value(asked.boilerplate),
        "question again": asked.value(asked.question),
    }
    if asked.names:
        texts = reversed(asked.clean)
        earned["entities swapped"] = asked.value(joint.join(f"{n}{sign}{t}" for n, t in zip(named, texts, strict=True)))
    flat = [clause for told in asked.clauses for clause in told]
    if len(flat) > 1 and not asked.names:
        earned["half of the clauses"] = asked.value("\n".join(flat[: len(flat) // 2]))
    lie = "可以放心使用。" if asked.language == "zh" else " It is perfectly safe."
    earned["a lie added"] = asked.value(joint.join(told) + lie)
    return earned


GOOD = ("clean quote", "raw cells", "no reference", "identity")


def main(n: Annotated[int, typer.Option(help="questions of each part and language")] = 300, seed: int = 0) -> None:
    """Print the mean value, and the share that earns .9 or more (.1 or less where nothing should be earned)."""
    table = Table("answer", *(f"{part} {language}" for part, language in SUBJECTS))
    earned: dict[str, dict[tuple[str, str], list[float]]] = {}
    for part in ("chosen", "kept"):
        for asked in questions(2 * n, part=part, seed=seed):
            for name, value in strategies(asked).items():
                earned.setdefault(name, {}).setdefault((part, asked.language), []).append(value)
    for name, values in earned.items():
        hit = (lambda v: v >= 0.9) if name in GOOD else (lambda v: v <= 0.1)
        shown = (values.get(key, []) for key in SUBJECTS)
        table.add_row(name, *(f"{fmean(v):.2f} ({fmean(map(hit, v)):.0%})" if v else "-" for v in shown))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
