"""What an answer earns: 1 or 0 for one value, F1 for several. Guarantees: pure functions, linear in the answer."""

from __future__ import annotations

import re

from sql_agent.offline_judge.foreign import is_foreign
from sql_agent.offline_judge.slots import is_other_kind
from sql_agent.offline_judge.typed.asides import cut_asides, is_of_other_things, without_process
from sql_agent.offline_judge.typed.names import NO_NAMES, capitalised, has_strange_name, has_uncased_name
from sql_agent.offline_judge.typed.reading import ONLY, Reading
from sql_agent.offline_judge.typed.rivals import is_one_of_many, is_told_of_another
from sql_agent.offline_judge.typed.sentences import clauses_of
from sql_agent.offline_judge.typed.sought import Sought, sought
from sql_agent.offline_judge.typed.truths import Truth
from sql_agent.offline_judge.typed.wordings import in_asked_form, prepared, says_nothing_is
from sql_agent.offline_judge.typed.yes_no import polarity, verdict
from sql_agent.offline_judge.values import NUMBER, plain

NOTHING = {"none", "nothing", "no", "nobody", "无", "没有"}  # as a truth: the query found no row
SENTENCE = re.compile(r"(?<=[^\W\d])(?<!\b[A-Z])[.!]\s+|[。！\n]")
FLAG = r"(?:(?P<yes>1|yes|true|t|是)|0|no|false|f|否)(?! rows?\b)(?!\w)"
FLAG_AGAIN = r"(?:[ 、(]{1,2}(?(yes)(?:1|true|yes)|(?:0|false|no))(?!\w))?"  # true (1)
RESULTS = ("query", "query result", "result", "查询", "查询结果", "结果")
ASKS_NAME = re.compile(r"\b(?:who(?:m|se)?|which)\b|[哪谁]")


def typed_value(truth: Truth, *, question: str, answer: str, is_quoted: bool = False) -> float:
    """What the answer earns: 1 or 0, of a list or a set F1 of what it names. Where the truth may be one that
    `is_quoted` as a text, nothing more may be told beside it. (Raw texts.)"""
    asked = plain(question)
    whole = prepared(answer, truth, question)
    if is_foreign(whole, " ".join([question, *truth.known])):
        return 0.0
    value = sought(truth, asked, plain(whole))
    answer = whole if truth.kind == "yes_no" or is_quoted else cut_asides(whole, value)
    if truth.kind == "yes_no":
        return float(_says_yes_or_no(truth, asked, _without_other_things(answer, asked, value)))
    is_bound = truth.n_values > 1 or not capitalised(question) - NO_NAMES <= capitalised(answer)
    if has_strange_name(answer, asked, truth.known, is_bound=is_bound):
        return 0.0
    if truth.is_named and has_uncased_name(answer, asked, truth):
        return 0.0
    if truth.n_values == 1 and truth.values[0] in NOTHING:
        return float(_says_nothing(asked, plain(answer)))
    reading = Reading(truth, question, answer, whole, value)
    if truth.n_values == 1:
        said = in_asked_form(without_process(whole, value), truth, asked)
        if is_told_of_another(said, reading.marked(said), value, capitalised(whole)):
            return 0.0
        if truth.kind == "number" and is_one_of_many(reading.marked(in_asked_form(whole, truth, asked)), value):
            return 0.0
    if not reading.order or not reading.is_clean or reading.has_other_amount(whole):
        return 0.0
    return _share_of_values(truth, asked, reading)


def _says_yes_or_no(truth: Truth, question: str, answer: str) -> bool:
    said = _with_verdicts(plain(_without_row_numbers(answer, truth)), truth.columns, question)
    return polarity(said, question) is (truth.values[0] == "yes") and not is_other_kind(question, said)


def _without_other_things(answer: str, question: str, value: Sought) -> str:
    """An answer that begins with a clear sentence, without those behind it that speak of other things."""
    first, *others = SENTENCE.split(answer.strip())
    if polarity(plain(first), question) is None:
        return answer
    return "\n".join([first, *(one for one in others if not is_of_other_things(one, value))])


def _without_row_numbers(answer: str, truth: Truth) -> str:
    """An answer without the numbers of the row that stand in brackets: more dogs (12) than cats (9)."""
    known = {value for row in truth.rows for value in row}
    return re.sub(r" ?[(（]([\d.,]{1,15})[)）]", lambda inner: " " if plain(inner[1]) in known else inner[0], answer)


def _with_verdicts(said: str, columns: tuple[str, ...], question: str) -> str:
    """A text with a yes or a no for the value of a column or of the query ("survived = 1", "the query returned true"),
    of what the question asks about."""
    names = "|".join(re.escape(column).replace(r"\ ", "[_ ]") for column in (*RESULTS, *columns) if column)
    of, is_named = r"(?P<of>[^\s,;:。、的]{1,24}的)?", rf"(?<![a-z0-9_])(?:{names})(?:字段|列)?"
    shown = rf"{of}{is_named}(?: ?[=:]| is| was| returned| returns|返回了?|[是为]) ?{FLAG}{FLAG_AGAIN}"

    def verdict_of(value: re.Match[str]) -> str:
        of = value["of"] or ""
        return ("" if of.removesuffix("的") in question else of) + ("\nyes\n" if value["yes"] else "\nno\n")

    return re.sub(shown, verdict_of, said)


def _says_nothing(question: str, said: str) -> bool:
    """Whether the answer says that there is none of what is asked for."""
    clauses = ["never" if says_nothing_is(clause, question) else clause for clause in clauses_of(said)]
    return "never" in clauses and verdict(clauses, question) is False and not is_other_kind(question, said)


def _share_of_values(truth: Truth, question: str, reading: Reading) -> float:
    """F1 of the values told; 0 where they are in another order, or said to be all and are not."""
    wanted = list(dict.fromkeys(truth.values))
    n_told = len({*reading.listed})
    missing = {*wanted} - {*reading.order}
    if reading.has_exchanged_rows:
        return 0.0
    is_only = ONLY.search(reading.said) or (ASKS_NAME.search(question) and all(map(NUMBER.match, reading.order)))
    if n_told < len(wanted) and is_only:
        return 0.0
    if reading.spare_numbers and any(map(NUMBER.match, missing)):
        return 0.0
    if truth.is_ordered and not _is_in_order([wanted.index(value) for value in reading.listed]):
        return 0.0
    return 2 * n_told / (n_told + len(wanted))


def _is_in_order(places: list[int]) -> bool:
    """Whether each run of values begins with the first one told: a list may be told twice."""
    before = [len(places), *places]
    return all(place == min(places) for place, last in zip(places, before, strict=False) if place <= last)
