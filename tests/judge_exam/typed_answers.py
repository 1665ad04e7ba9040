"""Sentences around values, right and wrong, and what the offline judge pays.

    python -m tests.judge_exam.typed_answers

Numbers with units, thousands, decimals and words, dates in many forms, yes and no, names with titles, lists and sets,
over four small databases that exist here alone: shops and weather in the part `chosen`, sports and finance in `kept`.
Each part has its own questions, sentences, frames and ways to be wrong, so that rules can be chosen without `kept`.
The parts `open` and `locked`, `fresh` and `unread` are sentences that were written one by one, halves of two sets by
question; `later` is a third set, `office` and `second office` a fourth, `trade` and `held trade` a fifth,
`reworded` right ones alone, `club` and `held club` a sixth,
`against club` was written against rules chosen on it; `fields` and `held fields`, halves by question, are ten other
fields, and wrong as a policy in training finds it; `turbine` and `held turbine`, halves by the hash of the question,
have rows of two columns, ids that are numbers and times with dates; `loyalty` and `held loyalty`, halves likewise, have
sides, rows and names exchanged; `market` and `held market`, halves likewise, are ten other fields in models' sentences;
`observatory` and `held observatory`, halves likewise, are twelve more, one right and one wrong sentence a question;
`ferry` and `held ferry`, halves by another hash of the question, are twelve more, with counts of none, questions that
deny, other units and offers at the end; `clinic` and `depot` with their held halves are twelve fields in answers that
tell more than the value, and wrong ones that have the value in them.
Guarantees: a pure function of the seed.
"""

from __future__ import annotations

import random
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any
from zlib import crc32

import typer
from rich.console import Console
from rich.table import Table

from sql_agent.offline_judge.judge import grade
from sql_agent.offline_judge.sections import Cell
from sql_agent.offline_judge.typed import kind_of_cells
from tests.judge_exam.typed_forms import days, lists, numbers, titled

TEXT = tomllib.loads((Path(__file__).parent / "typed_sentences.toml").read_text(encoding="utf-8"))
PARTS = [(part, language) for part, languages in TEXT.items() for language in languages]
HALVED = (
    "clinic",
    "depot",
    "harbour",
    "columns",
    "winery",
    "tramway",
    "kennel",
    "gauge",
    "auction",
    "foundry",
    "hopfarm",
    "glass",
    "saltworks",
    "cinema",
    "roster",
)
_OPEN, _FRESH, _LATER, _OFFICE, _TRADE, _REWORDED, _CLUB, _FIELDS, _TURBINE, _LOYALTY, _MARKET, *_LAST = (
    tomllib.loads((Path(__file__).parent / f"{file}_answers.toml").read_text(encoding="utf-8"))["ask"]
    for file in (
        *("written", "fresh", "later", "office", "trade", "reworded"),
        *("club", "fields", "turbine", "loyalty", "market", "observatory", "ferry"),
        *HALVED,
    )
)
_OBSERVATORY, _FERRY, *_HALVED = _LAST
WRITTEN: dict[str, list[dict[str, Any]]] = {
    **{"open": _OPEN[::2], "locked": _OPEN[1::2], "fresh": _FRESH[::2], "unread": _FRESH[1::2]},
    **{"later": _LATER, "office": [ask for ask in _OFFICE if "part" not in ask]},
    "second office": [ask for ask in _OFFICE if "part" in ask],
    "trade": [ask for ask in _TRADE if "held" not in ask],
    "held trade": [ask for ask in _TRADE if "held" in ask],
    "reworded": _REWORDED,
    "club": [ask for ask in _CLUB if "against" not in ask][::2],
    "held club": [ask for ask in _CLUB if "against" not in ask][1::2],
    "against club": [ask for ask in _CLUB if "against" in ask],
    "fields": _FIELDS[::2],
    "held fields": _FIELDS[1::2],
    "turbine": [ask for ask in _TURBINE if crc32(ask["question"].encode()) % 2 == 0],
    "held turbine": [ask for ask in _TURBINE if crc32(ask["question"].encode()) % 2],
    "loyalty": [ask for ask in _LOYALTY if crc32(ask["question"].encode()) % 2 == 0],
    "held loyalty": [ask for ask in _LOYALTY if crc32(ask["question"].encode()) % 2],
    "market": [ask for ask in _MARKET if crc32(ask["question"].encode()) % 2 == 0],
    "held market": [ask for ask in _MARKET if crc32(ask["question"].encode()) % 2],
    "observatory": [ask for ask in _OBSERVATORY if crc32(ask["question"].encode()) % 2 == 0],
    "held observatory": [ask for ask in _OBSERVATORY if crc32(ask["question"].encode()) % 2],
    "ferry": [ask for ask in _FERRY if sha256(ask["question"].encode()).digest()[-1] % 2 == 0],
    "held ferry": [ask for ask in _FERRY if sha256(ask["question"].encode()).digest()[-1] % 2],
    **{
        half + name: [ask for ask in asks if ask["half"] == of]
        for name, asks in zip(HALVED, _HALVED, strict=True)
        for half, of in (("", "A"), ("held ", "B"))
    },
}


@dataclass(frozen=True)
class Told:
    """One answer to a question whose query found `cells`; `reference` is the bare truth, or empty."""

    kind: str
    question: str
    reference: str
    cells: tuple[Cell, ...]
    answer: str
    why: str  # "right", or how it is wrong

    @property
    def value(self) -> float:
        """What the offline judge gives, as the scorer `reference` asks it."""
        kind = kind_of_cells(self.question, self.cells)
        found = grade(
            question=self.question, reference=self.reference, answer=self.answer, evidence=self.cells, kind=kind
        )
        return found.value if found else 0.0


def answers(n: int, *, part: str, language: str, seed: int = 0) -> Iterator[Told]:
    """`n` questions of a part in one language, each with two right answers and two wrong ones."""
    draw = random.Random(f"{part} {language} {seed}")
    asks = [(domain, ask) for domain in TEXT[part][language]["domains"] for ask in domain["asks"]]
    for i in range(n):
        domain, ask = asks[i % len(asks)]
        yield from _answers(draw, part, language, domain, ask)


def written(part: str, language: str) -> Iterator[Told]:
    """The answers that were written one by one."""
    for ask in WRITTEN[part]:
        rows = [zip(ask.get("columns", ["value"]), row, strict=True) for row in ask["rows"]]
        cells = tuple(Cell(str(value), f"0 {n}", column) for n, row in enumerate(rows) for column, value in row)
        for why in ("right", "wrong", "part") if ask["language"] == language else ():
            for answer in ask.get(why, []):
                yield Told(ask["kind"], ask["question"], "", cells, answer, ask["kind"] if why == "wrong" else why)


def _answers(draw: random.Random, part: str, language: str, domain: dict[str, Any], ask: str) -> Iterator[Told]:
    kind, question, *sentences = ask.split("|")
    frames = TEXT[part][language]["frames"]
    kind, _, unit = kind.partition(" ")
    subject, other = draw.sample(domain["subjects"].split("|"), 2)
    truth, lie = _values(draw, kind, language, domain)
    cells = tuple(
        Cell(str(one), f"0 {n}", "value") for n, one in enumerate(truth if isinstance(truth, list) else [truth])
    )
    plain = ("、" if language == "zh" else ", ").join(cell.text for cell in cells)
    reference = "" if plain in ("0", "1") else draw.choice(["", plain])

    def told(answer: str, why: str = "right") -> Told:
        return Told(kind, question.replace("{s}", subject), reference, cells, answer, why)

    def sentence(value: object, who: str = subject) -> str:
        chosen = sentences
        if kind == "yes_no":
            half = len(sentences) // 2
            chosen = sentences[:half] if value in ("yes", "是", 1) else sentences[half:]
        chosen = [one for one in chosen if who == subject or "{s}" in one]
        return draw.choice(chosen).replace("{s}", who).replace("{v}", _written(draw, kind, value, language, unit))

    def framed(text: str) -> str:
        fitting = [one for one in (*frames["right"], "{t}", "{t}") if kind != "yes_no" or "that {t}" not in one]
        before, _, behind = draw.choice(fitting).partition("{t}")
        names = f"{subject} {plain}"
        if before.endswith((", ", "that ")) and text.split(" ")[0] not in names:
            text = text[0].lower() + text[1:]
        return before + text + behind

    yield told(framed(sentence(truth)))
    yield told(framed(sentence(truth)))
    yield told(framed(sentence(lie)), "another value")
    why = draw.choice(["alternative", "doubt", "denial", "retraction", "another thing"])
    if kind == "yes_no":
        yield told(draw.choice(frames["yes_no"]).replace("{s}", subject), "doubt")
    elif why == "another thing" and kind not in ("list", "set"):
        yield told(sentence(truth, other), why)
    else:
        why = "denial" if why == "another thing" else why
        text = draw.choice(frames[why]).replace("{t}", sentence(truth))
        v, w = (_written(draw, kind, one, language, unit) for one in (truth, lie))
        yield told(text.replace("{v}", v).replace("{w}", w), why)


def _values(draw: random.Random, kind: str, language: str, domain: dict[str, Any]) -> list[Any]:
    """The truth and another value of its kind."""
    if kind == "number":
        n = draw.choice(
            [draw.randint(2, 19), draw.randint(20, 999), draw.randint(1000, 99_999), draw.randint(10**6, 10**7)]
        )
        n = draw.choice([n, n, round(n % 1000 + draw.choice([0.5, 0.25, 0.75, 0.1]), 2)])
        return [n, draw.choice([n + 1, n * 10, n + 20])]
    if kind == "date":
        first = date(draw.randint(1960, 2025), draw.randint(1, 12), draw.randint(1, 28))
        return [first.isoformat(), first.replace(year=first.year - draw.randint(1, 9)).isoformat()]
    if kind == "yes_no":
        yes_no = draw.choice([["yes", "no"] if language == "en" else ["是", "否"], [1, 0]])
        return draw.sample(yes_no, 2)
    if kind == "name":
        return draw.sample(domain["people"].split("|"), 2)
    things = draw.sample(domain["things"].split("|"), draw.randint(2, 5) + 1)
    truth, spare = things[:-1], things[-1]
    if kind == "list" and draw.random() < 0.5:
        return [truth, [*truth[1:], truth[0]]]
    return [truth, draw.choice([[*truth, spare], [*truth[:-1], spare]])]


def _written(draw: random.Random, kind: str, value: Any, language: str, unit: str) -> str:
    if kind == "yes_no":
        return ""
    if kind == "number":
        return draw.choice(numbers(value, language, unit))
    return draw.choice({"date": days, "name": titled}.get(kind, lists)(value, language))


def main(
    n: Annotated[int, typer.Option(help="questions of each part and language")] = 500,
    seed: int = 0,
    part: Annotated[str, typer.Option(help="one part alone")] = "",
    show: Annotated[int, typer.Option(help="print so many answers that earn what they should not")] = 0,
) -> None:
    """Print the share of right answers that earn .9 or more, and of wrong ones that earn .1 or less."""
    by_hand = [(one, language) for one in WRITTEN for language in ("en", "zh")]
    asked = [key for key in [*PARTS, *by_hand] if part in ("", key[0])]
    hits: dict[str, dict[tuple[str, str], list[bool]]] = defaultdict(lambda: defaultdict(list))
    for key in asked:
        missed = []
        for told in written(*key) if key in by_hand else answers(n, part=key[0], language=key[1], seed=seed):
            is_right = told.why == "right"
            hit = told.value >= 0.9 if is_right else told.value <= (0.9 if told.why == "part" else 0.1)
            wrong = ("wrong", f"wrong: {told.why}") if told.why != "part" else ("a part, .9 or less",)
            for row in ("right", f"right: {told.kind}") if is_right else wrong:
                hits[row][key].append(hit)
            missed += [] if hit else [told]
        for told in missed[:show]:
            truth = told.reference or [cell.text for cell in told.cells]
            print(told.kind, told.why, truth, told.question, repr(told.answer), f"{told.value:.2f}", sep=" | ")
    table = Table("answer", *map(" ".join, asked))
    for row, found in sorted(hits.items()):
        table.add_row(row, *(f"{fmean(hit):.1%} of {len(hit)}" if (hit := found[key]) else "-" for key in asked))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
