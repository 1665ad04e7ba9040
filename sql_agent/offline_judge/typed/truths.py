"""What an answer has to say: the values of a query's rows, or of a reference, and of which kind they are.

Guarantees: pure functions. A truth that the question itself says is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sql_agent.offline_judge.doubts import TITLES
from sql_agent.offline_judge.lexicon import spell, tokens
from sql_agent.offline_judge.sections import ORDER, Cell
from sql_agent.offline_judge.typed.columns import asked_for
from sql_agent.offline_judge.typed.verdicts_of_cells import verdict_of_cells
from sql_agent.offline_judge.units import UNITS
from sql_agent.offline_judge.values import DATE, NUMBER, TIME, plain
from sql_agent.records import AnswerType

MAX_CHARS, MAX_HAN, MAX_WORDS, MAX_ITEMS = 60, 24, 6, 30  # of a truth; longer ones are no values
MAX_ITEM_WORDS, MAX_ITEM_TOKENS = 3, 8  # of a list within a cell
FLAGS = {"1": True, "y": True, "t": True, "0": False, "n": False, "f": False}
YES_WORDS, NO_WORDS = {"yes", "true", "是", "是的", "对"}, {"no", "false", "否", "不是", "不对"}
ASKS_YES_NO = re.compile(
    r"^(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should)\b|[吗否]|(.)[不没]\1|没有[?？]?$", re.I
)
COMMA, LIST_JOINT = re.compile(r"、|, (?=[a-z])"), re.compile(r"、|, (?:and )?(?=[a-z])| and (?=[a-z])")
SEPARATOR = re.compile(r"\s*(?:[,;、，；\n|]|\band\b|和|以及)\s*", re.I)
IS_SENTENCE = re.compile(r"[:：。\n!?]|\.\s")
SENTENCE_MARK = re.compile(r"[;；。：？！\n]|[!?:](?![!-~]|$)|(?<![!-~])[!?:]")
MEASURE = re.compile(rf"{NUMBER.pattern}(?: percent)?(?: ?[^\W\d]{{1,9}}| ?[\u4e00-\u9fff]{{1,3}})?")
CODE = re.compile(r"#?\d+([A-Za-z]\w*)")  # 12B, #6bcefb, or an amount: 5mg
READ_IN_CHINESE = re.compile(rf"{NUMBER.pattern}|{DATE.pattern}|{TIME}")
TITLED = re.compile(rf"^(?:(?:{'|'.join(title for title in TITLES.split() if title.isascii())})(?:\. ?| ))+")


@dataclass(frozen=True)
class Truth:
    """What an answer has to say: values in the canonical form; `rows` is what stands together, the question's too."""

    kind: AnswerType
    values: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...] = ()
    columns: tuple[str, ...] = ()
    is_ordered: bool = False

    @property
    def n_values(self) -> int:
        return len({*self.values})

    @property
    def is_named(self) -> bool:
        """Whether the values are names, or several: what an answer tells besides may be one more."""
        return self.kind in ("name", "list", "set")

    @property
    def known(self) -> list[str]:
        """All that the query found, and the names of its columns."""
        return [*self.columns, *self.values, *sum(self.rows, ())]


def kind_of_cells(question: str, cells: Sequence[Cell]) -> AnswerType | Literal[""]:
    """What the cells that a query found are, by number, column and form; "" where they are no values. (Raw texts.)"""
    asks_yes_no = ASKS_YES_NO.search(question) is not None
    cells = _itemised(asked_for(question, cells, is_yes_no=asks_yes_no))
    texts = [plain(cell.text) for cell in cells]
    if asks_yes_no and _stated(question, cells) is not None:
        return "yes_no"
    if asks_yes_no and len(texts) > 1 and all(map(NUMBER.fullmatch, texts)) and all(cell.column for cell in cells):
        return ""
    if not texts or len(texts) > MAX_ITEMS or not all(_is_short(cell.text) for cell in cells):
        return ""
    if len(texts) > 1:
        return "list" if ORDER.search(plain(question)) else "set"
    if texts[0] in YES_WORDS | NO_WORDS or (texts[0] in FLAGS and asks_yes_no):
        return "yes_no"
    code = CODE.fullmatch(cells[0].text.strip())
    unit = code and (code[1] if re.fullmatch("[A-KM-Z]", code[1]) else code[1].lower())  # 5L is an amount, 5G none
    return "name" if unit and unit not in UNITS and not NUMBER.fullmatch(texts[0]) else form_of(texts[0])


def kind_of_texts(question: str, reference: str, evidence: Sequence[str]) -> AnswerType | Literal[""]:
    """The same by the form of reference and quotes, which in Chinese are texts but for numbers and dates."""
    asked = plain(question)
    quotes = [quote for quote in evidence if spell(plain(quote)) not in spell(asked)]
    is_read = asked.isascii() or all(READ_IN_CHINESE.fullmatch(plain(quote)) for quote in quotes)
    if quotes and is_read and all(spell(plain(quote)) in spell(plain(reference)) or not reference for quote in quotes):
        values = list(dict.fromkeys(quotes))
    else:
        values = [] if IS_SENTENCE.search(reference) else _split(reference)
    is_han = re.search("[\u4e00-\u9fff]", "".join(values)) and not {*values} & (YES_WORDS | NO_WORDS)
    has_lines = any("\n" in plain(value).strip() for value in values)  # a cell of several lines is a text
    if not values or has_lines or not all(map(_is_short, values)) or (is_han and (len(values) > 1 or evidence)):
        return ""
    return kind_of_cells(question, [Cell(value) for value in values])


def is_value(*, question: str, reference: str, evidence: Sequence[str]) -> bool:
    """Whether the truth is by its form a value, or a few of them, that the question leaves open. (Raw texts.)"""
    kind = kind_of_texts(question, reference, evidence)
    return bool(kind and truth_of(question, reference, [Cell(text) for text in evidence], kind))


def truth_of(question: str, reference: str, cells: Sequence[Cell], kind: AnswerType) -> Truth | None:
    """The values of this kind in cells or reference; None where they are none, or stand in the question. (Raw.)"""
    asked = spell(plain(question))
    wanted = asked_for(question, cells, is_yes_no=kind == "yes_no")
    wanted = _itemised(wanted) if kind in ("list", "set") else wanted
    cells = wanted if len(wanted) >= len(cells) else _without_places(cells, wanted)
    columns = tuple(plain(column.replace("_", " ")) for column in dict.fromkeys(cell.column for cell in cells))
    rows: dict[str, list[str]] = {}
    for cell in cells:
        rows.setdefault(cell.row, []).append(_untitled(plain(cell.text)))
    values = [_untitled(plain(cell.text)) for cell in wanted]
    if kind == "yes_no" and (stated := _stated(question, wanted)) is not None:
        return Truth(kind, ("yes" if stated else "no",), tuple(map(tuple, rows.values())), columns)
    is_open = kind == "number" and bool(cells) and all(cell.column for cell in cells)  # 5 of "below 5 percent" too
    values = [value for value in values if kind == "yes_no" or is_open or spell(value) not in asked]
    said = spell(plain(reference))
    if not values or (reference and not all(spell(value) in said for value in values)):
        texts = _split(reference) if kind in ("list", "set") else [plain(reference)]
        values, rows = [_untitled(text) for text in texts if text], {}
    if kind == "yes_no":
        values = [_yes_or_no(value) for value in values if value in {*YES_WORDS, *NO_WORDS, *FLAGS}]
    elif not is_open and any(spell(value) in asked for value in values):
        return None
    fits = {"number": NUMBER.match, "date": DATE.fullmatch}.get(kind, bool)
    if not values or not all(map(fits, values)) or (kind not in ("list", "set") and len({*values}) > 1):
        return None
    is_ordered = kind == "list" or (kind == "set" and ORDER.search(plain(question)) is not None)
    return Truth(kind, tuple(values), tuple(map(tuple, rows.values())), columns, is_ordered)


def form_of(value: str) -> AnswerType:
    return "date" if DATE.fullmatch(value) else "number" if MEASURE.fullmatch(value) else "name"


def _yes_or_no(value: str) -> str:
    return "yes" if value in YES_WORDS or FLAGS.get(value) else "no"


def _stated(question: str, cells: Sequence[Cell]) -> bool | None:
    """What cells without a flag say to a question of yes or no; None where they are of several rows or of no column, as
    what is quoted, or say nothing."""
    texts = [plain(cell.text) for cell in cells]
    is_flag = any(text in {*YES_WORDS, *NO_WORDS, *FLAGS} for text in texts)
    if len({cell.row for cell in cells}) > 1 or not all(cell.column for cell in cells) or (len(texts) == 1 and is_flag):
        return None
    return verdict_of_cells(plain(question), texts, [cell.column for cell in cells])


def _without_places(cells: Sequence[Cell], wanted: Sequence[Cell]) -> Sequence[Cell]:
    """Cells without the columns, not asked for, that only count the rows: 1, 2, 3 of a ranking."""
    columns: dict[str, list[str]] = {}
    for cell in cells:
        columns.setdefault(cell.column, []).append(cell.text)
    counts = {name for name, texts in columns.items() if texts == [str(n) for n in range(1, len(texts) + 1)]}
    counts -= {cell.column for cell in wanted}
    return [cell for cell in cells if cell.column not in counts]


def _itemised(cells: Sequence[Cell]) -> Sequence[Cell]:
    """Cells; of one that holds a list, as "nausea, headache and rash", its items."""
    text = cells[0].text if len(cells) == 1 else ""
    items = [item.strip() for item in LIST_JOINT.split(text)] if COMMA.search(text) else []
    is_list = all(0 < len(item.split()) <= MAX_ITEM_WORDS and len(tokens(item)) <= MAX_ITEM_TOKENS for item in items)
    return [replace(cells[0], text=item) for item in items] if items and is_list else cells


def _is_short(raw: str) -> bool:
    """Whether a cell is short, or a title (half of the words have a capital), and has no mark that ends a sentence but
    at its end or within a word (a URL)."""
    text, words = plain(raw), raw.split()
    most = MAX_HAN if re.search("[\u4e00-\u9fff]", text) else MAX_CHARS
    has_few_words = len(words) <= MAX_WORDS or 2 * sum(word[0].isupper() for word in words) >= len(words)
    return 0 < len(text) <= most and has_few_words and not SENTENCE_MARK.search(raw.strip())


def _split(reference: str) -> list[str]:
    """The values that a raw reference lists."""
    whole = plain(reference).strip(" .[]")
    items = [plain(item).strip(" .[]") for item in SEPARATOR.split(reference)] if form_of(whole) == "name" else [whole]
    return list(dict.fromkeys(filter(None, items)))


def _untitled(value: str) -> str:
    """A value without the titles before it: "dr. keller" is "keller"."""
    value = value.strip(" .[]")
    return TITLED.sub("", value) or value
