"""Quotes of sentences that other people wrote, and what the offline judge pays.

    python -m tests.judge_exam.catalogue_cells

Cells are messages of the programs of this machine, in English and as their catalogues translate them into Chinese, with
HTML and without; an entity is a program. Guarantees: a pure function of catalogues and seed. Not covered: facts.
"""

from __future__ import annotations

import gettext
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.sections import Cell

CATALOGUES = Path("/usr/share/locale/zh_CN/LC_MESSAGES")
CODE, HAN = re.compile(r"[%<>{}|\\`\x04]"), re.compile("[\u4e00-\u9fff]{6}")
LAYOUTS = ("{}\n", "<p>{}</p>", "<ul><li>{}</li></ul>", '<div><span style="color:#333">{}</span></div>', "{}<br/>")
WORDS = {
    "en": ("common faults", "What are the {c} of {a}?", "What are the {c} of {a} and of {b}?", "Ask an expert first."),
    "zh": ("常见故障", "{a}的{c}是什么?", "{a}和{b}的{c}分别是什么?", "使用前请咨询专业人员。"),
}
Said = tuple[str, float, bool]  # what was answered, what it earned, whether it should


def messages(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Program -> its messages (English, Chinese) of 25 to 200 characters without places to fill."""
    found = {}
    for file in sorted(folder.glob("*.mo")):
        with file.open("rb") as stream:
            pairs = gettext.GNUTranslations(stream)._catalog.items()  # pyright: ignore[reportAttributeAccessIssue]
        found[re.sub(r"\W", "", file.stem)] = [
            (" ".join(en.split()), " ".join(zh.split()))
            for en, zh in pairs
            if isinstance(en, str) and 25 <= len(en) <= 200 and HAN.search(zh) and not CODE.search(en + zh)
        ]
    return {name: pairs for name, pairs in found.items() if len(pairs) > 16}


def answers(n: int, language: str, pool: dict[str, list[tuple[str, str]]], seed: int) -> Iterator[Said]:
    """What answers to `n` questions of one program, and of two, earn."""
    draw = random.Random(f"{language} {seed}")
    column, of_one, of_two, boilerplate = WORDS[language]
    for _ in range(n):
        a, b = draw.sample(sorted(pool), 2)
        size, layout = draw.choice([1, 2, 4, 8, 16]), draw.choice(LAYOUTS)
        of_a, of_b = ([pair[language == "zh"] for pair in draw.sample(pool[name], size)] for name in (a, b))
        cells = [Cell("".join(map(layout.format, of)), f"programs {i}", column) for i, of in enumerate((of_a, of_b))]
        plain, prose = "\n".join(of_a), f"{column}: {'; '.join(of_a[:2])}. {boilerplate}"
        right, swapped = (f"{a}: {'; '.join(x)}\n{b}: {'; '.join(y)}" for x, y in ((of_a, of_b), (of_b, of_a)))
        for asked, evidence, reference, what, answer, is_right in (
            (of_one, cells[:1], "", "a cell quoted", plain, True),
            (of_one, cells[:1], "", "the raw cell", cells[0].text, True),
            (of_one, cells[:1], prose, "quoted beside prose", plain, True),
            (of_one, cells[:1], prose, "boilerplate of the reference", boilerplate, False),
            (of_one, cells[:1], "", "another program's", "\n".join(of_b), False),
            (of_two, cells, "", "two quoted", right, True),
            (of_two, cells, "", "the raw cells of two", "\n".join(cell.text for cell in cells), True),
            (of_two, cells, "", "two exchanged", swapped, False),
        ):
            question = asked.format(a=a, b=b, c=column)
            found = grade(question=question, reference=reference, answer=answer, evidence=evidence, kind="text")
            if found:
                yield what, found.value, is_right


def main(
    n: Annotated[int, typer.Option(help="questions of each language")] = 150,
    seed: int = 0,
    folder: Annotated[Path, typer.Option(help="gettext catalogues (*.mo) of one language")] = CATALOGUES,
) -> None:
    """Print the mean value, and the share that earns .9 or more (.1 or less where nothing should be earned)."""
    pool = messages(folder)
    if len(pool) < 2:
        raise typer.BadParameter(f"{folder} has no two catalogues with 17 messages: install language packs (*.mo)")
    hits: dict[str, dict[str, list[tuple[float, bool]]]] = defaultdict(lambda: defaultdict(list))
    for language in WORDS:
        for what, value, is_right in answers(n, language, pool, seed):
            hits[what][language].append((value, value >= 0.9 if is_right else value <= 0.1))
    table = Table("answer", *WORDS)
    for what, found in hits.items():
        table.add_row(
            what, *(f"{fmean(v for v, _ in one):.2f} ({fmean(h for _, h in one):.0%})" for one in found.values())
        )
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
