"""Manuals, visa rules and course outlines, and what the judge pays: `python -m tests.judge_exam.manual_cells`.

Cells of 500 to 3,000 characters with what web pages have: headings, nested lists, tables of properties, terms with their
definitions, entities, Markdown. Each question compares two records of the same outline that differ in numbers and in
some clauses, or asks for one. References are prose about the cells, or absent. Guarantees: a pure function of the
seed. The part `second` has other words and was not run before the rules had been mended after `first`.
"""

# ruff: noqa: E501
from __future__ import annotations

import html
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

import typer
from bs4 import BeautifulSoup
from rich.console import Console
from rich.table import Table

from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.sections import Cell

WORDS: dict[tuple[str, str], dict[str, str]] = {
    ("first", "en"): {
        "names": "Aquila 300|Boreas XT|Corvus Mini|Dorado 5",
        "column": "service manual",
        "ask": "What does the {c} of the {a} say?|Compare the {c} of the {a} and the {b}.",
        "headings": "Before you start|Cleaning|Faults & remedies|Storage",
        "who": "The pump|The inner lid|Each hose|The control board|A worn seal|The left valve|The fan (rear)|The tank",
        "what": "is rinsed for {n} minutes|must not be opened while hot|takes {n} ml of oil|is replaced after {n} hours|"
        "needs a torque of {n}.5 Nm|runs at < {n} °C only|is checked every {n} weeks|stays dry: no water, no steam",
        "terms": "Voltage|Weight|Noise|Fuse|Warranty",
        "values": "{n} V|{n}.2 kg|≤ {n} dB(A)|{n} A, slow|{n} months",
    },
    ("first", "zh"): {
        "names": "天鹰三号|北风增压泵|乌鸦迷你机|剑鱼五型",
        "column": "维护手册",
        "ask": "{a}的{c}写了什么？|比较{a}和{b}的{c}。",
        "headings": "开机之前|清洁|故障与排除|存放",
        "who": "水泵|内盖|每根软管|控制板|磨损的密封圈|左侧阀门|风扇（后部）|油箱",
        "what": "冲洗{n}分钟|高温时不得打开|加注{n}ml机油|使用{n}小时后更换|拧紧力矩为{n}.5N·m|仅在<{n}℃时运行|每{n}周检查一次|保持干燥，不可接触水或蒸汽",
        "terms": "电压|重量|噪声|保险丝|保修期",
        "values": "{n}V|{n}.2kg|≤{n}dB|{n}A，慢熔|{n}个月",
    },
    ("second", "en"): {
        "names": "Ostmark|Republic of Talia|Kerala Islands|Norvania",
        "column": "entry requirements",
        "ask": "What are the {c} of {a}?|How do {a} and {b} differ in their {c}?",
        "headings": "Visas & fees|On arrival|Customs|Long stays",
        "who": "Students|Business visitors|A minor without parents|Transit passengers|Journalists (accredited)|Pet owners",
        "what": "pay {n} euros|may stay for {n} days|cannot extend beyond {n} weeks|show a bank statement of {n} months|"
        "apply {n} days ahead, in person or online|need no visa up to {n} hours|carry > {n} g of gold only with a form",
        "terms": "Processing|Photo size|Currency limit|Vaccination",
        "values": "{n} working days|{n} x {n} mm|{n},000 dollars|{n} days before entry",
    },
    ("second", "zh"): {
        "names": "声学导论|有机合成实验|拜占庭史|数值分析二",
        "column": "课程说明",
        "ask": "{a}的{c}有哪些内容？|{a}与{b}的{c}有何不同？",
        "headings": "选课条件|考核方式|实验与安全|教材",
        "who": "大一新生|旁听者|补考学生|小组长|国际交换生（秋季）|缺课者",
        "what": "须提前{n}天登记|最多缺席{n}次|期末占{n}%|不得携带计算器|提交{n}页报告，手写或打印|补交费用{n}元|成绩<{n}分者重修",
        "terms": "学分|学时|教室容量|开课周次",
        "values": "{n}分|{n}小时|{n}人|第{n}周",
    },
}
FORMS = ("sections", "nested", "properties", "terms", "markdown")


@dataclass(frozen=True)
class Record:
    """A long cell, all its clauses and those that are sentences, and what its reader sees."""

    cell: str
    clauses: tuple[str, ...]
    sentences: tuple[str, ...]

    @property
    def seen(self) -> str:
        """The text without tags, a line for each block."""
        if "<" not in self.cell or self.cell.startswith("#"):
            return self.cell
        return re.sub(r"\n\s*\n+", "\n", BeautifulSoup(self.cell, "html.parser").get_text("\n")).strip()


def _record(draw: random.Random, words: dict[str, str], form: str, size: int, like: Record | None) -> Record:
    """A record; one that is `like` another has half of its clauses, and others with the same subjects."""
    split = {key: value.split("|") for key, value in words.items()}
    joint = " " if words["names"].isascii() else ""

    def clause() -> str:
        return draw.choice(split["who"]) + joint + draw.choice(split["what"]).replace("{n}", str(draw.randint(2, 98)))

    made: dict[str, None] = dict.fromkeys(draw.sample(like.sentences, len(like.sentences) // 2) if like else ())
    while sum(map(len, made)) < size:
        made[clause()] = None
    clauses = draw.sample(list(made), len(made))
    e, heads = html.escape, draw.sample(split["headings"], 3)
    cut, sentences = [clauses[n::3] for n in range(3)], tuple(clauses)
    if form == "sections":
        cell = "".join(
            f"<h3>{e(head)}</h3>" + "".join(f"<p>{e(one)}.</p>" for one in part)
            for head, part in zip(heads, cut, strict=True)
        )
    elif form == "nested":
        inner = (
            f"<li><b>{e(head)}</b><ol>{''.join(f'<li>{e(one)}</li>' for one in part)}</ol></li>"
            for head, part in zip(heads, cut, strict=True)
        )
        cell = f"<ul class='x'>{''.join(inner)}</ul>"
    elif form in ("properties", "terms"):
        row = "<tr><th>{}</th><td>{}</td></tr>" if form == "properties" else "<dt>{}</dt><dd>{}</dd>"
        told = [
            (term, value.replace("{n}", str(draw.randint(2, 98))))
            for term, value in zip(split["terms"], split["values"], strict=True)
        ]
        rows = "".join(row.format(e(a), e(b)) for a, b in told)
        cell = (f"<table>{rows}</table>" if form == "properties" else f"<dl>{rows}</dl>") + "".join(
            f"{e(one)}<br/>" for one in clauses
        )
        clauses = [*(f"{a}: {b}" if joint else f"{a}：{b}" for a, b in told), *clauses]
    else:
        cell = "\n".join(
            f"## {head}\n" + "\n".join(f"- {one}" for one in part) for head, part in zip(heads, cut, strict=True)
        )
    return Record(cell, tuple(clauses), sentences)


def values(n: int, *, part: str, language: str, seed: int = 0) -> Iterator[tuple[str, str, float]]:
    """(answer, form, what the judge gives) for `n` questions."""
    draw, words = random.Random(f"{part} {language} {seed}"), WORDS[part, language]
    sign, end = (": ", ". ") if language == "en" else ("：", "；")
    for i in range(n):
        names = draw.sample(words["names"].split("|"), 3)
        form, size = FORMS[i % len(FORMS)], draw.choice([450, 800, 1500, 2500])
        first = _record(draw, words, form, size, None)
        records = [first, *(_record(draw, words, form, size, first) for _ in range(2))]
        pair = i % 2
        asked = list(zip(names, records, strict=True))[: 1 + pair]
        question = words["ask"].split("|")[pair].format(a=names[0], b=names[1], c=words["column"])
        prose = end.join(f"{name}{sign}{', '.join(record.clauses[:2])}" for name, record in asked)
        reference = draw.choice(["", f"{prose}{end}"])
        cells = [Cell(record.cell, f"manuals {name}", words["column"]) for name, record in asked]

        def value(
            answer: str, question: str = question, reference: str = reference, cells: list[Cell] = cells
        ) -> float:
            found = grade(question=question, reference=reference, answer=answer, evidence=cells)
            return found.value if found else 0.0

        def told(texts: list[str], names: list[str] = names) -> str:
            return "\n".join(f"{name}{sign}\n{text}" for name, text in zip(names, texts, strict=False))

        seen, clauses = [r.seen for _, r in asked], [r.clauses for _, r in asked]
        yield "clean quote", form, value(told(seen))
        yield "raw cells", form, value(told([r.cell for _, r in asked]))
        yield "a list of the clauses", form, value(told(["\n".join(f"- {one}" for one in c) for c in clauses]))
        yield "clauses in a row", form, value(told([end.join(c) + end.strip() for c in clauses]))
        lie = " It is perfectly safe." if language == "en" else "可以完全放心。"
        yield "a lie added", form, value(told(seen) + lie)
        yield "numbers changed", form, value(told([re.sub(r"\d+", lambda m: str(int(m[0]) + 1), s) for s in seen]))
        yield "another record", form, value(told([records[2].seen] * (1 + pair)))
        if reference:  # which asks for the clauses that it quotes alone
            continue
        if pair:
            yield "exchanged", form, value(told(seen[::-1]))
            yield "exchanged clauses", form, value(told([end.join(c) for c in clauses[::-1]]))
            yield "unnamed and exchanged", form, value("\n".join(seen[::-1]))
            ask = "What do the records say?" if language == "en" else "这些记录写了什么？"
            rows = [
                one for cell, name in zip(cells, names, strict=False) for one in (Cell(name, cell.row, "name"), cell)
            ]
            yield "nothing asked by name", form, value(told(seen), question=ask, cells=rows)
            yield "exchanged, nothing asked by name", form, value(told(seen[::-1]), question=ask, cells=rows)
        yield "half", form, value(told([end.join(c[: len(c) // 2]) for c in clauses]))


LIMITS = {"a lie added": 0.25, "numbers changed": 0.25, "another record": 0.25, "half": 0.8}
GOOD = ("clean quote", "raw cells", "a list of the clauses", "clauses in a row", "nothing asked by name")


def main(
    n: Annotated[int, typer.Option(help="questions of each language")] = 100, seed: int = 0, part: str = "first"
) -> None:
    """Print the share that earns .9 or more, and of what is wrong .1 or less (.25 where something is right)."""
    hits: dict[tuple[str, str], dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for language in ("en", "zh"):
        for answer, form, value in values(n, part=part, language=language, seed=seed):
            hit = value >= 0.9 if answer in GOOD else value <= LIMITS.get(answer, 0.1)
            for column in ("all", form):
                hits[language, answer][column].append(hit)
    table = Table(part, "answer", "all", *FORMS)
    for (language, answer), found in hits.items():
        table.add_row(language, answer, *(f"{fmean(found[c]):.0%}" if found[c] else "-" for c in ("all", *FORMS)))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
