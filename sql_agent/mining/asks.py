"""What can be asked of a schema: kinds of questions, each with its SQL, its slots and what would make it trivial.

Guarantees: an Ask is decided by schema, generator and the values that `pick` gives, so that real values make questions
and made-up ones make demonstrations, in the same SQL. It is written for SQLite and said in the schema's dialect.
Nothing is run here.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import sqlglot
from sqlglot import exp

from foundation.errors import AgentGRPOError
from sql_agent.mining.schema import Column, Link, Role, Schema, Table, Value, literal, without_id

# Shares of questions; a kind that a schema has no place for leaves its share to the others.
KINDS = {
    "lookup": 16,
    "lookup_two": 8,
    "compare": 6,
    "listed": 8,
    "counted": 8,
    "beyond": 6,
    "amount": 10,
    "parent": 12,
    "children": 8,
    "children_count": 8,
    "year": 5,
    "since": 5,
    "top": 8,
    "most": 3,
    "without": 3,
    "both": 4,
}
TOLD: tuple[Role, ...] = ("category", "number", "year", "code", "date", "text")
AMOUNTS = {
    "average": "ROUND(AVG({}), 2)",
    "total": "SUM({})",
    "highest": "MAX({})",
    "lowest": "MIN({})",
}
NO_TOTAL = re.compile(  # what does not add up: nobody asks for the total age
    r"\b(?:age|average|avg|floor|gpa|grade|latitude|level|longitude|month|percent|percentage|pct|rank|rate|rating|ratio"
    r"|score|temp|temperature)\b|年龄|身高|体重|楼层|等级|评分|温度|率$|比例$"
)
DANGLING = re.compile(r"[ _](?:by|to|of|for|from|in|at|with|von)$", re.I)  # referred by
COMPUTED = "value"  # what a computed column is called where the dialect is not SQLite
MOST_ROWS = 8  # of an answer; longer lists are no answers for people
Head = tuple[str, Column | None]  # a key of the result's records, and the column of its values; None: a count
Pick = Callable[[Column], Value | None]


@dataclass(frozen=True)
class Query:
    """SQL and the heads of its result."""

    sql: str
    heads: tuple[Head, ...]


@dataclass(frozen=True)
class Ask:
    """One question before its words. `values` are those that it names. `slip` is what a careless reader would query,
    `flat` the query without its condition, `ranked` the figures that must differ for one answer to be right.
    """

    kind: str
    slots: dict[str, str]
    query: Query
    tables: frozenset[str]
    values: tuple[Value, ...] = ()
    slip: Query | None = None
    flat: str = ""
    ranked: str = ""
    n_ranked: int = 0
    n_rows: int = 1


class _NoPlace(AgentGRPOError):
    """The schema, or what was drawn of it, has no place for an ask."""


class Maker:
    def __init__(self, schema: Schema, rng: random.Random, pick: Pick) -> None:
        self._rng, self._pick, self._schema = rng, pick, schema
        self._named = [table for table in schema.tables if table.ident and table.n_rows > 2]
        self._links = [(link, schema.table(link.table), schema.table(link.parent)) for link in schema.links]

    def draw(self) -> Ask | None:
        """One of any kind, by their shares."""
        return self.ask(self._rng.choices(list(KINDS), list(KINDS.values()))[0])

    def ask(self, kind: str) -> Ask | None:
        """One of this kind; None where the schema, or what was drawn of it, has no place for it."""
        try:
            return said_in(self._schema.dialect, getattr(self, f"_{kind}")())
        except _NoPlace:
            return None

    def _choice[Thing](self, things: Sequence[Thing]) -> Thing:
        if not things:
            raise _NoPlace
        return self._rng.choice(things)

    def _columns(self, *roles: Role, n: int = 1) -> tuple[Table, list[Column]]:
        """A table with a name, and `n` other columns of these roles."""
        table = self._choice([table for table in self._named if len(table.having(*roles)) >= n])
        return table, self._rng.sample(table.having(*roles), n)

    def _link(self, *, child: bool = False, parent: bool = False) -> tuple[Link, Table, Table]:
        """A link, its table and its parent, with names where they are asked for."""
        return self._choice(
            [sides for sides in self._links if (sides[1].ident or not child) and (sides[2].ident or not parent)]
        )

    def _plain_link(self) -> tuple[Link, Table, Table]:
        """A link that the name of its parent tells from others."""
        link, table, parent = self._link(parent=True)
        if self._called(link, parent) != parent.label:
            raise _NoPlace
        return link, table, parent

    def _value(self, column: Column) -> Value:
        value = self._pick(column)
        if value is None:
            raise _NoPlace
        return value

    def _two_values(self, column: Column) -> tuple[Value, Value]:
        values = self._value(column), self._value(column)
        if values[0] == values[1]:
            raise _NoPlace
        return values

    def _called(self, link: Link, parent: Table) -> str:
        """What a sentence calls the parent: by the column too, where several links join the two tables."""
        own, ends = link.table == link.parent, {link.table, link.parent}
        role = self._schema.table(link.table).column(link.columns[-1]).label
        role = without_id(role) or role
        joining = [other for other in self._schema.links if {other.table, other.parent} == ends]
        alone = sum(other.table == link.table for other in joining) == 1
        plain = link.columns == link.parent_columns or is_short_for(role.casefold(), parent.label.casefold())
        if not own and (len(joining) == 1 or (alone and plain)):
            return parent.label
        says_it = parent.label in role or (own and not DANGLING.search(role))
        return role if says_it else f"{role} {parent.label}"

    def _lookup(self, n: int = 1) -> Ask:
        table, columns = self._columns(*TOLD, n=n)
        name = self._value(table.name_column)
        source = f"{table.sql} WHERE {_equals(table.name_column, name)}"
        first = table.having(*TOLD)[0]
        slip = _select([*columns[:-1], first], source) if first not in columns else None
        slots = _slots(table, name=name, column=columns[0], other=columns[-1])
        return Ask("lookup" if n == 1 else "lookup_two", slots, _select(columns, source), _names(table), (name,), slip)

    def _lookup_two(self) -> Ask:
        return self._lookup(2)

    def _compare(self) -> Ask:
        table, (column,) = self._columns(*TOLD)
        ident = table.name_column
        names = self._two_values(ident)
        source = f"{table.sql} WHERE {ident.sql} IN ({literal(names[0])}, {literal(names[1])})"
        first = table.having(*TOLD)[0]
        slip = _select([ident, first], source) if first != column else None
        slots = _slots(table, name=names[0], second=names[1], column=column)
        return Ask("compare", slots, _select([ident, column], source), _names(table), names, slip, n_rows=2)

    def _listed(self) -> Ask:
        table, (column,) = self._columns("category", "year")
        value = self._value(column)
        query = _select([table.name_column], f"{table.sql} WHERE {_equals(column, value)}")
        slots = _slots(table, column=column, value=value)
        return Ask("listed", slots, query, _names(table), (value,), flat=_all(query), n_rows=MOST_ROWS)

    def _counted(self) -> Ask:
        table = self._choice([table for table in self._schema.tables if table.having("category", "year")])
        column = self._choice(table.having("category", "year"))
        value = self._value(column)
        query = _count(f"{table.sql} WHERE {_equals(column, value)}")
        slots = _slots(table, column=column, value=value)
        return Ask("counted", slots, query, _names(table), (value,), flat=_all(query))

    def _beyond(self) -> Ask:
        table, (column,) = self._columns("number")
        value = self._value(column)
        over = self._rng.random() < 0.5
        above, below = (_count(f"{table.sql} WHERE {column.sql} {sign} {literal(value)}") for sign in "><")
        query, slip = (above, None) if over else (below, above)
        slots = _slots(table, column=column, value=value, how="over" if over else "under")
        return Ask("beyond", slots, query, _names(table), (value,), slip, flat=_all(query))

    def _amount(self) -> Ask:
        table, (column,) = self._columns("number")
        how = self._rng.choice(list(AMOUNTS))
        if how in column.label.split() or f"{how} {column.label}" in (other.label for other in table.columns):
            raise _NoPlace  # the total of total hours, or of hours beside them
        if how == "total" and NO_TOTAL.search(column.label):
            raise _NoPlace
        figure = AMOUNTS[how].format(column.sql)
        if how == "total" and any(isinstance(value, float) for value in column.samples):
            figure = f"ROUND({figure}, 2)"
        groups = table.having("category")
        in_group = groups and self._rng.random() < 0.7
        if in_group:
            group = self._rng.choice(groups)
            value = self._value(group)
            source = f"{table.sql} WHERE {_equals(group, value)}"
            slots, values = _slots(table, column=column, how=how, of=group, value=value), (value,)
        else:
            source, slots, values = table.sql, _slots(table, column=column, how=how), ()
        query = Query(f"SELECT {figure} FROM {source}", ((figure, column),))
        flat = _all(query) if in_group else ""
        kind = "amount" if in_group else "amount_all"
        return Ask(kind, slots, query, _names(table), values, _count(source), flat=flat)

    def _parent(self) -> Ask:
        link, table, parent = self._link(child=True)
        name = self._value(table.name_column)
        called = self._called(link, parent)
        columns = [
            column
            for column in [*([parent.name_column] if parent.ident else []), *parent.having(*TOLD)]
            if column.name not in link.parent_columns  # what the row itself holds
            and (column.role != "key" or column.name == parent.ident)
            and column.label != called  # the group of the group
        ]
        column = self._choice(columns)
        source = f"{joined(link, table, parent)} WHERE T1.{_equals(table.name_column, name)}"
        slots = _slots(table, parent=called, name=name, column=column)
        slip = _select([columns[0]], source, "T2.") if column != columns[0] else None
        return Ask("parent", slots, _select([column], source, "T2."), _names(table, parent), (name,), slip)

    def _children(self, *, count: bool = False) -> Ask:
        link, table, parent = self._link(child=not count, parent=True)
        name = self._value(parent.name_column)
        if len(link.columns) == 1 and table.column(link.columns[0]).unique:
            raise _NoPlace  # it has one at most
        source = f"{joined(link, table, parent)} WHERE T2.{_equals(parent.name_column, name)}"
        slots = _slots(table, parent=self._called(link, parent), name=name)
        if count:
            return Ask("children_count", slots, _count(source), _names(table, parent), (name,))
        query = _select([table.name_column], source, "T1.")
        return Ask("children", slots, query, _names(table, parent), (name,), n_rows=MOST_ROWS)

    def _children_count(self) -> Ask:
        return self._children(count=True)

    def _year(self) -> Ask:
        table, (column,) = self._columns("date")
        year = str(self._value(column))[:4]
        is_year = f"strftime('%Y', {column.sql}) = '{year}'"
        if self._schema.dialect != "sqlite":
            is_year = f"EXTRACT(YEAR FROM {column.sql}) = {year}"
        query = _count(f"{table.sql} WHERE {is_year}")
        return Ask("year", _slots(table, column=column, value=year), query, _names(table), (year,), flat=_all(query))

    def _since(self) -> Ask:
        table, (column,) = self._columns("date")
        value = self._value(column)
        after = self._rng.random() < 0.5
        later, earlier = (
            _select([table.name_column], f"{table.sql} WHERE {column.sql} {sign} {literal(value)}") for sign in "><"
        )
        query, slip = (later, None) if after else (earlier, later)
        slots = _slots(table, column=column, value=value, how="after" if after else "before")
        return Ask("since", slots, query, _names(table), (value,), slip, flat=_all(query), n_rows=MOST_ROWS)

    def _top(self) -> Ask:
        table, (column,) = self._columns("number", "date")
        if not column.complete:
            raise _NoPlace
        n, high = self._rng.choice((1, 1, 2, 3)), self._rng.random() < 0.5
        ordered = f"{table.sql} ORDER BY {column.sql}"
        first, last = (_select([table.name_column], f"{ordered}{way} LIMIT {n}") for way in (" DESC", ""))
        query, slip = (first, None) if high else (last, first)
        most, least = ("highest", "lowest") if column.role == "number" else ("latest", "earliest")
        slots = _slots(table, column=column, n=n, how=most if high else least)
        ranked = f"SELECT {column.sql} FROM {ordered}{' DESC' if high else ''} LIMIT {n + 1}"
        kind = "top" if n > 1 else "top_one"
        return Ask(kind, slots, query, _names(table), (), slip, ranked=ranked, n_ranked=n + 1, n_rows=n)

    def _most(self) -> Ask:
        link, table, parent = self._link(parent=True)
        name = parent.name_column
        keys = [parent.column(column) for column in link.parent_columns]
        if self._schema.dialect != "sqlite" and name not in keys:
            keys.append(name)  # others want what they show in it
        each = ", ".join(f"T2.{column.sql}" for column in keys)
        source = f"{joined(link, table, parent)} GROUP BY {each} ORDER BY COUNT(*) DESC LIMIT "
        query = _select([name], f"{source}1", "T2.")
        slots = _slots(table, parent=self._called(link, parent))
        ranked = f"SELECT COUNT(*) FROM {source}2"
        return Ask("most", slots, query, _names(table, parent), ranked=ranked, n_ranked=2)

    def _without(self) -> Ask:
        link, table, parent = self._plain_link()
        own = [table.column(column).sql for column in link.columns]
        filled = " AND ".join(f"{column} IS NOT NULL" for column in own)
        inner = f"SELECT {', '.join(own)} FROM {table.sql} WHERE {filled}"
        key = ", ".join(parent.column(column).sql for column in link.parent_columns)
        key = f"({key})" if len(link.columns) > 1 else key
        query = _select([parent.name_column], f"{parent.sql} WHERE {key} NOT IN ({inner})")
        slots = _slots(table, parents=parent.labels)
        return Ask("without", slots, query, _names(table, parent), flat=_all(query), n_rows=MOST_ROWS)

    def _both(self) -> Ask:
        link, table, parent = self._plain_link()
        column = self._choice(table.having("category"))
        values = self._two_values(column)
        source = f"{joined(link, table, parent)} WHERE T1."
        first, second = (_select([parent.name_column], f"{source}{_equals(column, value)}", "T2.") for value in values)
        query = Query(f"{first.sql} INTERSECT {second.sql}", first.heads)
        slots = _slots(table, parents=parent.labels, column=column, value=values[0], second=values[1])
        return Ask("both", slots, query, _names(table, parent), values, first, flat=first.sql, n_rows=MOST_ROWS)


def is_short_for(short: str, text: str) -> bool:
    """Whether a text is another, or that with letters left out: dept, department."""
    letters = iter(text)
    return short[:1] == text[:1] and all(letter in letters for letter in short)


def said_in(dialect: str, ask: Ask) -> Ask:
    if dialect == "sqlite":
        return ask
    queries = {name: _query_in(dialect, query) for name, query in (("query", ask.query), ("slip", ask.slip)) if query}
    return replace(ask, **queries, flat=_sql_in(dialect, ask.flat)[0], ranked=_sql_in(dialect, ask.ranked)[0])


def _query_in(dialect: str, query: Query) -> Query:
    sql, names = _sql_in(dialect, query.sql)
    heads = zip(names, query.heads, strict=True)
    return Query(sql, tuple((name, column) for name, (_, column) in heads))


@cache
def _sql_in(dialect: str, sql: str) -> tuple[str, list[str]]:
    """The SQL, and what its result calls its columns: a dialect names computed ones as it likes, so they get a name."""
    if not sql:
        return "", []
    tree = sqlglot.parse_one(sql, read="sqlite")
    assert isinstance(tree, exp.Query)
    for rounded in tree.find_all(exp.Round) if dialect == "postgres" else ():
        rounded.set("this", exp.cast(rounded.this, "DECIMAL"))  # its ROUND(x, n) takes no other number
    for column in tree.selects:
        if not isinstance(column, exp.Column):
            column.replace(exp.alias_(column.copy(), COMPUTED))
    return tree.sql(dialect=dialect), [column.alias_or_name for column in tree.selects]


def _slots(table: Table, **parts: Column | Value) -> dict[str, str]:
    """What fills the placeholders of a wording: what rows of the table are called, and the names and values given."""
    texts = {name: part.label if isinstance(part, Column) else str(part) for name, part in parts.items()}
    return {"table": table.label, "tables": table.labels} | texts


def _equals(column: Column, value: Value) -> str:
    return f"{column.sql} = {literal(value)}"


def _names(*tables: Table) -> frozenset[str]:
    return frozenset(table.name for table in tables)


def _select(columns: list[Column], source: str, prefix: str = "") -> Query:
    what = ", ".join(f"{prefix}{column.sql}" for column in columns)
    return Query(f"SELECT {what} FROM {source}", tuple((column.name, column) for column in columns))


def _count(source: str) -> Query:
    return Query(f"SELECT COUNT(*) FROM {source}", (("COUNT(*)", None),))


def _all(query: Query) -> str:
    """The query without its condition."""
    return query.sql.partition(" WHERE ")[0]


def joined(link: Link, table: Table, parent: Table) -> str:
    """What follows FROM where a link is followed: its table is T1, the parent T2."""
    return f"{table.sql} AS T1 JOIN {parent.sql} AS T2 ON {link.on('T1', 'T2')}"
