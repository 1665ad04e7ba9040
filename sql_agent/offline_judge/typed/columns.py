"""Which columns of a result the question asks for: of (orchard, kilos) "which orchard?" asks for the orchard alone.

By what the question asks with (who, how many, when), by the columns that it names, and by what it says itself. Where it
joins things ("the name and the price"), those that it names are asked for too. What is not asked for may be told
beside. A column of keys (match_id, 会员编号) is no amount, and asked for only where the question names it or no other
column has an answer. Guarantees: pure functions on text in the normal form, linear in it; where nothing tells columns
apart, all are asked for. Not covered: a column that is named by a word of another meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import isclose

from sql_agent.offline_judge.lexicon import spell, tokens
from sql_agent.offline_judge.sections import Cell
from sql_agent.offline_judge.slots import is_form
from sql_agent.offline_judge.values import DATE, NUMBER, TIME, plain
from sql_agent.words.meanings import in_chinese

COUNTS = re.compile(
    r"\bhow (?!late|early)[a-z]+\b|\b(?:number|count|amount|percentage|percent|share|rate|average|mean|total|sum)\b"
    r"|多[少大长高久远重]|几(?![月号日年点])|百分之|[总平]均?[数量]"
)
DATES = re.compile(
    r"\bwhen\b|\b(?:what|which) (?:day|time|month|year)\b|\bdate\b|\bhow (?:late|early|recently|soon)\b"
    r"|什么时[候间]|何[时日年]|哪1?[天日年月]|几[月号日年点]|日期"
)
NAMES = re.compile(r"\bwho(?:m|se)?\b|\bwhich\b|^(?:list|rank|name|order|sort)\b|谁|哪|什么(?!时[候间])|列出|列举")
JOINS = re.compile(r"\b(?:and|with|along)\b|[和与及、]")
JOINED = re.compile(r",(?! and\b)|\band\b|[和与及、]")
OWN = re.compile(r"\band (?:its|their|his|her)\b|及其|和(?:其|它们?的|他们?的)")
EACH = re.compile(r"\b(?:each|every|per|respective(?:ly)?)\b|每|分别|各")
RATE = re.compile(r"\b(?:every|per)\b|每")
ASKS = re.compile(  # a question may ask twice
    r"(?:^|\band |[,;] ?)(?:(?:in|on|at|for|of|from|by|to|with) )?"
    r"(?:how|what|when|where|which|who|whose|list|name|rank|give)\b"
    r"|多[少大长高久远重]|几|哪|什么|谁|怎"
)
IS_KEY = re.compile(
    r"(?:^|[ _])(?:id|no|nr|nbr|num|code|cd|key|number|uuid)$|(?:编|证|代|卡|单|工|学)号$|号码$|[编代]码$"
)
WHOLE = re.compile(  # of a row
    r"\b(?:all|every|complete|full)(?: of)?(?: the)? (?:facts?|data|details?|information|fields?|columns?|values?)\b"
    r"|\beverything\b|(?:全部|所有|详细|完整)的?(?:信息|资料|数据|记录|字段|内容|情况)|详情"
)
WHO = re.compile(r"\bwho(?:m|se)?\b|谁")
DIFFERS = re.compile(
    r"\bmore\b.*\bthan\b|\b(?:differ|exceed|increase|grow|rise|change|gap)|[增减相][加长少差比]|差[多距额]?|[多少高低](?:出|了)?多少"
)
IS_FLAG = re.compile(r"[01ynft]|yes|no|true|false|[是否]")
MOMENT = re.compile(rf"{DATE.pattern}|{TIME}|\d{{4}}(?:-\d\d)?")
AMOUNT = re.compile(rf"{NUMBER.pattern}(?: percent)?")


def asked_for(question: str, cells: Sequence[Cell], *, is_yes_no: bool) -> Sequence[Cell]:
    """The cells of the columns that the question asks for; all where that is not known. (A raw question.)"""
    asked = plain(question)
    columns: dict[str, list[str]] = {}
    for cell in cells:
        columns.setdefault(cell.column, []).append(plain(cell.text))
    if len(columns) < 2 or "" in columns or WHOLE.search(asked):
        return cells
    asks_of_each = EACH.search(asked if len({cell.row for cell in cells}) > 1 else RATE.sub(" ", asked))
    if asks_of_each or len(ASKS.findall(asked)) > 1:
        spare = {name for name in columns if _is_key(name) and place_of(name, asked) < 0}
        return [cell for cell in cells if cell.column not in spare] if len(columns) - len(spare) > 1 else cells
    said = spell(asked)
    open_columns = {name: texts for name, texts in columns.items() if not all(spell(text) in said for text in texts)}
    if DIFFERS.search(asked) and _is_difference(*(texts[0] for texts in open_columns.values())):
        return cells[-1:]
    for text in {text for texts in columns.values() for text in texts if len(text) > 1}:
        asked = asked.replace(text, " ")
    is_each_joined = len(JOINED.findall(asked)) + 1 == len(open_columns) > 2 or OWN.search(asked)
    are_all = len(open_columns) < 2 or (is_each_joined and not is_yes_no)
    names = [*open_columns] if are_all else _of_form(asked, open_columns, is_yes_no=is_yes_no)
    return [cell for cell in cells if cell.column in names] or cells


def _of_form(asked: str, columns: dict[str, list[str]], *, is_yes_no: bool) -> list[str]:
    """The columns whose values have the form of what is asked for, and those that are joined to them."""
    is_form_asked = IS_FLAG.fullmatch if is_yes_no else _form_asked(asked)
    fitting = [name for name, texts in columns.items() if is_form_asked and all(map(is_form_asked, texts))]
    places = {name: place for name in columns if (place := place_of(name, asked)) >= 0}
    is_name = is_form_asked is _is_name and not WHO.search(asked)
    fitting = _without_keys(fitting, asked, places, is_name=is_name)
    if is_yes_no:
        return [_first(fitting, places)] if fitting else [*columns]
    if not fitting:
        of_names = [name for name, texts in columns.items() if all(map(_is_name, texts))]
        others = [name for name in columns if is_name or not _is_key(name)]
        fitting = [name for name in places if name in others] or (of_names if len(of_names) == 1 else [])
        if not fitting:
            return others or [*columns]
    if fitting and not JOINS.search(asked):
        return [_first(fitting, places)]
    joined = [name for name, place in places.items() if JOINS.search(asked[:place])]
    return [*fitting, *joined]


def _is_difference(*numbers: str) -> bool:
    """Whether the last of three numbers is how much the others differ."""
    if len(numbers) != 3 or not all(map(NUMBER.fullmatch, numbers)):
        return False
    one, other, difference = map(float, numbers)
    return isclose(abs(one - other), abs(difference), rel_tol=1e-6)


def _is_key(column: str) -> bool:
    """Whether a column has keys, and the question asks for none."""
    return IS_KEY.search(plain(column)) is not None


def _without_keys(fitting: list[str], asked: str, places: dict[str, int], *, is_name: bool) -> list[str]:
    """Columns without those of keys, where others are left; the question's "match" may name match_id as what it asks
    for, where no other column is named, and never as an amount."""
    others = [name for name in fitting if not _is_key(name)]
    is_named = is_name and any(name in places for name in fitting) and not any(name in places for name in others)
    return fitting if is_named else others or fitting


def _form_asked(asked: str) -> Callable[[str], object] | None:
    """The form of what the first word that asks wants: a moment, an amount or a name."""
    forms: list[tuple[re.Pattern[str], Callable[[str], object]]]
    forms = [(DATES, MOMENT.fullmatch), (COUNTS, AMOUNT.fullmatch), (NAMES, _is_name)]
    places = [(word.start(), n) for n, (asks, _) in enumerate(forms) if (word := asks.search(asked))]
    return forms[min(places)[1]][1] if places else None


def _first(names: Sequence[str], places: dict[str, int]) -> str:
    """The one that the question names first; the first one where it names none."""
    return min((name for name in names if name in places), key=places.__getitem__, default=names[0])


def place_of(column: str, asked: str) -> int:
    """Where a question names a column; -1 where it does not."""
    words = [word for word in plain(column.replace("_", " ")).split() if len(word) > 2 or not word.isascii()]
    translated = [chinese for word in words if word.isascii() and not asked.isascii() for chinese in in_chinese(word)]
    places = [asked.find(word) for word in (*translated, *words) if not word.isascii()]
    places += [
        token.start()
        for token in tokens(asked)
        if token[0].isascii() and any(is_form(token[0], word) for word in words)
    ]
    return min((place for place in places if place >= 0), default=-1)


def _is_name(text: str) -> bool:
    return not AMOUNT.fullmatch(text) and not MOMENT.fullmatch(text)
