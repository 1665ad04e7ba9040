"""Which columns of its rows a question asks for.

Each part of the question asks by the surest sign that it has: the column's name, words of it, what such columns are
for, a dictionary, its cells' words, a character of the name; and a reference tells of columns by its clauses.
Guarantees: pure functions on text in normal form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

from sql_agent.offline_judge.clauses import CLAUSE_END
from sql_agent.offline_judge.doubts import is_frame
from sql_agent.offline_judge.lexicon import spell, tokens
from sql_agent.offline_judge.naming import naming_cells, translated
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.sections import ASK_END, ASKING, Cell, Fact, means
from sql_agent.offline_judge.slots import COMMON, content, is_form, stem
from sql_agent.offline_judge.words import AUDIENCES, COLUMNS, is_related

MIN_SAID, MIN_TOLD = 0.5, 0.5  # of a column's name, and of a clause of the reference
ASKS = re.compile(rf"{ASKING.pattern}|[吗么]$|啥|谁|(.)[不没]\1|能否|是否")
TELL = re.compile("请?[您你]?介绍(?:1下)?")  # asks for no introduction
LISTS = re.compile(r"^(?:please )?(?:list|name|enumerate)(?![a-z])|列出|列举|逐条")
PART = re.compile(r"[,、:和与及]|以及|还有|(?<![a-z])(?:and|or|as well as)(?![a-z])")
GENERAL = {*re.findall(r"\w+", "方法 情况 方式 标准 时间 信息 内容 说明 要求 特点 使用")}  # in many columns' names
LIGHT_CHARS = {*"的了是有在和与及各多少几何什么怎样哪些个人事者吗能不可以会要用法情况病药"}
MIN_CLAUSE = 3  # words of a clause of a reference


def of_columns(question: str, reference: str, cells: Sequence[Cell], facts: list[Fact]) -> list[Fact]:
    """Those of the columns that parts of the question ask for, or that the reference tells. What names a row is of no
    such column; where a part has no sign, it asks for what is left, if that is one column."""
    columns = {cell.column for cell in cells} - of_names(question, cells) - {""}
    names = [normalise(cell.text) for cell in naming_cells(cells, question)]
    things = said_words("\n".join([*names, *(normalise(cell.row) for cell in cells)]))
    words = {column: set[str]() for column in columns}
    for fact in facts:
        if (column := cells[fact.section].column) in words:
            words[column] |= said_words(" ".join(fact.forms))
    told = _told_columns(reference, said_words(question), words) | _quoted_columns(reference, question, cells, columns)
    words = {column: words[column] | said_words(column) for column in columns}
    asks = [[*_parts(TELL.sub(" ", ask), columns)] for ask in ASK_END.split(question)]
    asking = [part for parts in asks if any(map(ASKS.search, parts)) for part in _without_topic(parts, things)]
    parts = [part for ask in asks for part in ask]
    sure = {part: _surely_of(_without(part, things), columns) for part in parts}
    if not any(sure.values()):
        sure = {part: _surely_of(part, columns) for part in parts}
    is_list = any(LISTS.search(part) and sure[part] for part in parts)
    unsure = [part for part in asking or parts if not sure[part] and not told and not is_list and _says(part)]
    found = sure | {part: _nearest(part, words, things) for part in unsure}
    named = told.union(*found.values())
    left = [part for part in unsure if not found[part] and (ASKING.search(part) or not said_words(part) & things)]
    if left and named and len(columns - named) <= len(left):
        named |= columns
    return [fact for fact in facts if cells[fact.section].column in named]


def _told_columns(reference: str, asked: set[str], words: dict[str, set[str]]) -> set[str]:
    """The columns that a reference tells: of each clause the one that has most of its words, and half of them."""
    found = set[str]()
    for clause in CLAUSE_END.split(reference):
        said = said_words(clause) - asked
        shares = {one: len(said & own) / len(said) for one, own in words.items()} if len(said) >= MIN_CLAUSE else {}
        best = _most(shares, MIN_TOLD)
        found |= best if len(best) == 1 else set()
    return found


def _quoted_columns(reference: str, question: str, cells: Sequence[Cell], columns: set[str]) -> set[str]:
    """The columns of short cells that a reference quotes whole and the question does not, where no other column says
    that."""
    texts = [(cell.column, spell(normalise(cell.text))) for cell in cells]
    quoted = {
        (column, text)
        for column, text in texts
        if any(map(str.isdecimal, text)) and text in spell(reference) and text not in spell(question)
    }
    return {
        column
        for column, text in quoted
        if column in columns and not any(text in other for one, other in texts if one != column)
    }


def _parts(ask: str, columns: Iterable[str]) -> Iterator[str]:
    """What stands between commas and joints of a question, no name of a column cut."""
    whole = [found.span() for column in columns for found in re.finditer(re.escape(column), ask)]
    last = 0
    for joint in PART.finditer(ask):
        if not any(start < joint.end() and joint.start() < end for start, end in whole):
            yield ask[last : joint.start()]
            last = joint.end()
    yield ask[last:]


def _without_topic(parts: list[str], things: set[str]) -> list[str]:
    """Parts of a question without a first one that names its thing and asks nothing."""
    is_topic = len(parts) > 1 and not ASKS.search(parts[0]) and things & said_words(parts[0])
    return parts[1:] if is_topic else parts


def _surely_of(part: str, columns: set[str]) -> set[str]:
    """The columns that a part of a question asks for by name, by what they are for, or by a dictionary."""
    said = {one: {*translated(one, part)} | ({one} if not one.isascii() else set()) for one in columns}
    named = {one for one in columns if any(spell(name) in spell(part) for name in said[one])}
    named = {one for one in named if not any(one != other and one in other for other in named)}
    if named := named or _most({one: _share_said(one, part) for one in columns}, MIN_SAID):
        return named
    for relations in (COLUMNS, AUDIENCES):
        if named := {one for one in columns if is_related(one, part, relations)}:
            return named
    return {one for one in columns if not one.isascii() and means(part, one)}


def _without(part: str, things: set[str]) -> str:
    """A part without English words of the things that it names."""
    return re.sub("[a-z]+", lambda found: "" if stem(found[0]) in things else found[0], part)


def _nearest(part: str, words: dict[str, set[str]], things: set[str]) -> set[str]:
    """The one column that has most of a part's words, else most characters in its name; none where several have."""
    asked = said_words(ASKING.sub(" ", part)) - things
    nearest = _most({one: float(len(asked & own)) for one, own in words.items()})
    nearest = nearest or _most({one: float(len({*one} & {*part} - LIGHT_CHARS)) for one in words if not one.isascii()})
    return nearest if len(nearest) == 1 else set()


def _share_said(column: str, part: str) -> float:
    """Which share of a column's name a part says: of its words in any form, or of its characters in a row."""
    if column.isascii():
        own = [one[0] for one in tokens(column) if one[0] not in COMMON]
        words = [one[0] for one in tokens(part)]
        said = sum(any(one == word or is_form(one, word) for word in words) for one in own)
        return said / len(own) if own else 0.0
    run = SequenceMatcher(None, column, part, autojunk=False).find_longest_match()
    return run.size / len(column) if run.size > 1 and column[run.a : run.a + run.size] not in GENERAL else 0.0


def _most(shares: dict[str, float], least: float = 0.0) -> set[str]:
    """Those with the largest share, if that is anything."""
    most = max(shares.values(), default=0)
    return {one for one, share in shares.items() if share == most} if most and most >= least else set()


def _says(part: str) -> bool:
    """Whether a part of a question has words that are no talk."""
    return bool(content(part)) and not is_frame(part, [(0, len(part))], is_last=True)


def of_names(question: str, cells: Sequence[Cell]) -> set[str]:
    """The columns of what names rows."""
    return {cell.column for cell in naming_cells(cells, question)}


def said_words(text: str) -> set[str]:
    """The stems of words that say something, and what has a digit or a hyphen."""
    found = [one[0] for one in tokens(text)]
    return {stem(word) for word in content(text)} - COMMON | {one for one in found if one[0].isdecimal() or "-" in one}
