"""One form for all ways to write a query: aliases, quotes, case, blanks, comments and the order of terms say nothing.

Guarantees: a pure function; names that a query gives itself (aliases of tables and columns) say nothing, the
order of what is joined by AND, OR, = or stands in IN says nothing, numbers and texts say all. What cannot be parsed, or
is longer than MOST_TOKENS, is compared as text. Not covered: queries that return the same by another way (a join for a
subquery).
"""

from __future__ import annotations

import functools
from contextlib import suppress

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.simplify import simplify

MOST_TOKENS = 300  # simplify takes the square of a condition's terms: a = a = a ... of so many 1 s, OR 0.1 s


@functools.lru_cache(maxsize=100_000)
def query_form(sql: str) -> str:
    """The form of one query."""
    with suppress(SqlglotError, RecursionError, ArithmeticError):  # 1e999999999 * 10
        if len(sqlglot.tokenize(sql, read="sqlite")) <= MOST_TOKENS:
            tree = sqlglot.parse_one(sql, read="sqlite")
            for name in tree.find_all(exp.Identifier):
                name.replace(exp.to_identifier(name.name.lower(), quoted=False))
            _drop_own_names(tree)
            return _in_one_order(tree).sql(dialect="sqlite", comments=False)
    return " ".join(sql.split()).rstrip("; ")


def _drop_own_names(tree: exp.Expr) -> None:
    """Tables stand under their own names (the second of one name is NAME_2), columns of an only table without it."""
    new_names: dict[str, str] = {}
    tables = list(tree.find_all(exp.Table, exp.Subquery, bfs=False))  # in the order of the text
    seen: dict[str, int] = {}
    for table in tables:
        real = table.name if isinstance(table, exp.Table) else "subquery"
        seen[real] = seen.get(real, 0) + 1
        new_names.setdefault(table.alias or real, real if seen[real] == 1 else f"{real}_{seen[real]}")
        table.set("alias", None)
    for column in list(tree.find_all(exp.Column)):
        table = new_names.get(column.table, column.table)
        column.set("table", exp.to_identifier(table) if table and len(tables) > 1 else None)
    if not isinstance(tree, exp.Select):
        return
    aliased = {term.alias: term.this for term in tree.expressions if isinstance(term, exp.Alias)}
    for column in list(tree.find_all(exp.Column)):
        if not column.table and column.name in aliased and column.find_ancestor(exp.Order, exp.Group, exp.Having):
            column.replace(aliased[column.name].copy())
    for term in list(tree.expressions):
        if isinstance(term, exp.Alias):
            term.replace(term.this)


def _in_one_order(tree: exp.Expr) -> exp.Expr:
    """Terms that have no order of their own, sorted; sqlglot does so with all but the list of IN."""
    for node in list(tree.find_all(exp.In)):
        node.set("expressions", sorted(node.expressions, key=lambda item: item.sql()))
    for node in [node for node in tree.find_all(exp.And) if isinstance(node.parent, exp.Or)]:
        node.replace(exp.paren(node.copy()))
    return simplify(tree)
