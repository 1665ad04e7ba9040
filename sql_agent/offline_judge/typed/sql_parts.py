"""Parts of SQL that an answer quotes: AVG(x), breed = 'Beagle', LEFT JOIN, ORDER BY n DESC LIMIT 1. They claim nothing.

What stands behind a column of the result ("n = 47") is the value, and stays. Guarantees: pure functions, linear in the
text. Not covered: keywords in small letters.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from sql_agent.offline_judge.typed.truths import Truth
from sql_agent.offline_judge.values import plain

NAME = r"[A-Za-z_][\w.]{0,60}"
LITERAL = r"(?:'[^'\n]{0,60}'|\"[^\"\n]{0,60}\"|-?\d[\d.:-]{0,30})"
MAX_CALL = 300  # characters
CALL = re.compile(
    r"\b(?:[A-Z][A-Z_]+|(?i:avg|sum|count|min|max|round|julianday|strftime|date|coalesce|length|abs))\("
    r"|\((?=(?:SELECT|CASE)\b)"
)
CLAUSES = re.compile(
    rf"\bSELECT\b[^.:;\n]{{1,200}}?\bFROM {NAME}|\b(?:(?:LEFT|RIGHT|INNER|OUTER|FULL|CROSS) )*JOIN\b(?: {NAME} ON\b)?"
    rf"|\b(?:GROUP|ORDER) BY\b(?: {NAME})?|\bLIMIT \d+|\b(?:DESC|ASC|DISTINCT|WHERE|HAVING|UNION|COALESCE)\b"
    rf"|\b{NAME} IS (?:NOT )?NULL\b"
)
CONDITION = re.compile(
    r"(?P<column>(?<![\w.<])(?<!\d )[a-z_][\w.]{0,60})"
    rf"(?: ?==? ?(?P<value>{LITERAL})| (?:<=?|>=?|!=|<>|LIKE) {LITERAL}"
    rf"| (?:BETWEEN|between) {LITERAL} (?:AND|and) {LITERAL})"
)
IDENTIFIER = re.compile(r"(?<![\w@./-])[A-Za-z][A-Za-z\d]*(?:(?:_[A-Za-z\d]+)+(?:\.\w+)?|\.[a-z]{3,})(?![\w@/-])")


def without_sql(answer: str, truth: Truth) -> str:
    """A raw answer without its parts of SQL; of a yes or a no, what is said of the result's columns stays."""
    columns = {*truth.columns}
    answer = CLAUSES.sub(" ", _without_calls(answer))
    answer = CONDITION.sub(lambda condition: _value_of(condition, truth, columns), answer)
    values = {value for row in truth.rows for value in row}
    is_kept = truth.kind == "yes_no"
    return IDENTIFIER.sub(lambda name: name[0] if is_kept or _is_among(name[0], values) else " ", answer)


def _value_of(condition: re.Match[str], truth: Truth, columns: Collection[str]) -> str:
    """What stays of a condition: all of it for a yes or a no; else a number, and a text that is the value."""
    value = condition["value"] or ""
    if _is_among(condition["column"], columns):
        return condition[0] if truth.kind == "yes_no" else f" {value or condition[0]}"
    return f" {value}" if value[:1].isdigit() or plain(value) in truth.values else " "


def _is_among(name: str, names: Collection[str]) -> bool:
    return plain(name) in names or plain(name.replace("_", " ")) in names


def _without_calls(text: str) -> str:
    """A text without the calls of functions, up to the bracket that ends each."""
    kept, at = list[str](), 0
    for call in CALL.finditer(text):
        if call.start() < at:
            continue
        depth, end = 1, call.end()
        while depth and end < min(len(text), call.end() + MAX_CALL):
            depth += (text[end] == "(") - (text[end] == ")")
            end += 1
        if not depth:
            kept.append(f"{text[at : call.start()]} ")
            at = end
    return "".join([*kept, text[at:]])
