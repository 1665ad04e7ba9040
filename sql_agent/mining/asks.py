"""What can be asked of a schema: kinds of questions, each with its SQL, its slots and what would make it trivial.

Guarantees: an Ask is decided by schema, generator and the values that `pick` gives, so that real values make questions
and made-up ones make demonstrations, in the same SQL. It is written for SQLite and said in the schema's dialect.
Nothing is run here.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import sqlglot
from sqlglot import exp

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


class Maker:
    """Asks of one schema."""

    def __init__(self, schema: Schema, rng: random.Random, pick: Pick) -> None:
        self._rng, self._pick, self._schema = rng, pick, schema
        self._named = [table for table in schema.tables if table.name_column and table.n_rows > 2]
        self._links = [(link, schema.table(link.table), schema.table(link.parent)) for link in schema.links]

    def ask(self, kind: str) -> Ask | None:
        """One of this kind; None where the schema, or what was drawn of it, has no place for it."""
        made = getattr(self, f"_{kind}")()
        return made and said_in(self._schema.dialect, made)

    def _of(self, *roles: Role, n: int = 1) -> tuple[Table, Column, list[Column]] | None:
        """A table with a name, that column, and n others of these roles."""
        found = [table for table in self._named if len(table.having(*roles)) >= n]
        if not found:
            return None
        table = self._rng.choice(found)
        assert table.name_column
        return table, table.name_column, self._rng.sample(table.having(*roles), n)

    def _link(self, *, child: bool, parent: bool) -> tuple[Link, Table, Table] | None:
        """A link whose sides have names."""
        fits = [sides for sides in self._links if (not child or sides[1].ident) and (not parent or sides[2].ident)]
        return self._rng.choice(fits) if fits else None

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

    def _condition(self, table: Table, column: Column, *, prefix: str = "") -> tuple[str, Value] | None:
        value = self._pick(column)
        return None if value is None else (f"{prefix}{column.sql} = {literal(value)}", value)

    def _lookup(self, n: int = 1) -> Ask | None:
        drawn = self._of(*TOLD, n=n)
        if not drawn or not (where := self._condition(drawn[0], drawn[1])):
            return None
        table, _, columns = drawn
        first = table.having(*TOLD)[0]
        wrong = [*columns[:-1], first] if first not in columns else columns
        slots = {"table": table.label, "name": str(where[1]), "column": columns[0].label, "other": columns[-1].label}
        slip = _select(wrong, f"{table.sql} WHERE {where[0]}") if wrong != columns else None
        query = _select(columns, f"{table.sql} WHERE {where[0]}")
        return Ask("lookup" if n == 1 else "lookup_two", slots, query, _names(table), (where[1],), slip)

    def _lookup_two(self) -> Ask | None:
        return self._lookup(2)

    def _compare(self) -> Ask | None:
        drawn = self._of(*TOLD)
        values = [self._pick(drawn[1]), self._pick(drawn[1])] if drawn else []
        names = [value for value in values if value is not None]
        if not drawn or len(set(names)) < 2:
            return None
        table, ident, (column,) = drawn
        source = f"{table.sql} WHERE {ident.sql} IN ({literal(names[0])}, {literal(names[1])})"
        slots = {"tables": table.labels, "name": str(names[0]), "second": str(names[1]), "column": column.label}
        first = table.having(*TOLD)[0]
        slip = _select([ident, first], source) if first != column else None
        return Ask("compare", slots, _select([ident, column], source), _names(table), tuple(names), slip, n_rows=2)

    def _listed(self) -> Ask | None:
        drawn = self._of("category", "year")
        if not drawn or not (where := self._condition(drawn[0], drawn[2][0])):
            return None
        table, ident, (column,) = drawn
        slots = {"tables": table.labels, "column": column.label, "value": str(where[1])}
        query = _select([ident], f"{table.sql} WHERE {where[0]}")
        return Ask("listed", slots, query, _names(table), (where[1],), flat=_all(query), n_rows=MOST_ROWS)

    def _counted(self) -> Ask | None:
        tables = [table for table in self._schema.tables if table.having("category", "year")]
        table = self._rng.choice(tables) if tables else None
        column = self._rng.choice(table.having("category", "year")) if table else None
        if not table or not column or not (where := self._condition(table, column)):
            return None
        slots = {"tables": table.labels, "column": column.label, "value": str(where[1])}
        query = _count(f"{table.sql} WHERE {where[0]}")
        return Ask("counted", slots, query, _names(table), (where[1],), flat=_all(query))

    def _beyond(self) -> Ask | None:
        drawn = self._of("number")
        value = self._pick(drawn[2][0]) if drawn else None
        if not drawn or value is None:
            return None
        table, _, (column,) = drawn
        over = self._rng.random() < 0.5
        slots = {"tables": table.labels, "column": column.label, "value": str(value)}
        slots["how"] = "over" if over else "under"
        above, below = (_count(f"{table.sql} WHERE {column.sql} {sign} {literal(value)}") for sign in "><")
        query, slip = (above, None) if over else (below, above)
        return Ask("beyond", slots, query, _names(table), (value,), slip, flat=_all(query))

    def _amount(self) -> Ask | None:
        drawn = self._of("number")
        if not drawn:
            return None
        table, _, (column,) = drawn
        how = self._rng.choice(list(AMOUNTS))
        if how in column.label.split() or f"{how} {column.label}" in (other.label for other in table.columns):
            return None  # the total of total hours, or of hours beside them
        if how == "total" and NO_TOTAL.search(column.label):
            return None
        groups = table.having("category")
        group = self._rng.choice(groups) if groups and self._rng.random() < 0.7 else None
        where = self._condition(table, group) if group else None
        source = f"{table.sql} WHERE {where[0]}" if where else table.sql
        inside = AMOUNTS[how].format(column.sql)
        if how == "total" and any(isinstance(value, float) for value in column.samples):
            inside = f"ROUND({inside}, 2)"
        query = Query(f"SELECT {inside} FROM {source}", ((inside, column),))
        slots = {"tables": table.labels, "column": column.label, "how": how, "value": str(where[1]) if where else ""}
        slots["of"] = group.label if group else ""
        kind = "amount" if where else "amount_all"
        values = (where[1],) if where else ()
        slip = Query(f"SELECT COUNT(*) FROM {source}", (("COUNT(*)", None),))
        return Ask(kind, slots, query, _names(table), values, slip, flat=_all(query) if where else "")

    def _parent(self) -> Ask | None:
        linked = self._link(child=True, parent=False)
        name = linked[1].name_column if linked else None
        if not linked or not name or not (where := self._condition(linked[1], name, prefix="T1.")):
            return None
        link, table, parent = linked
        columns = [*filter(None, [parent.name_column]), *parent.having(*TOLD)]
        columns = [column for column in columns if column.name not in link.parent_columns]  # what the row itself holds
        columns = [column for column in columns if column.role != "key" or column.name == parent.ident]
        called = self._called(link, parent)
        columns = [column for column in columns if column.label != called]  # the group of the group
        if not columns:
            return None
        column = self._rng.choice(columns)
        source = f"{joined(link, table, parent)} WHERE {where[0]}"
        slots = {
            "table": table.label,
            "parent": called,
            "name": str(where[1]),
            "column": column.label,
        }
        slip = _select([columns[0]], source, "T2.") if column != columns[0] else None
        return Ask("parent", slots, _select([column], source, "T2."), _names(table, parent), (where[1],), slip)

    def _children(self, *, count: bool = False) -> Ask | None:
        linked = self._link(child=not count, parent=True)
        name = linked[2].name_column if linked else None
        if not linked or not name or not (where := self._condition(linked[2], name, prefix="T2.")):
            return None
        link, table, parent = linked
        if len(link.columns) == 1 and table.column(link.columns[0]).unique:
            return None  # it has one at most
        source = f"{joined(link, table, parent)} WHERE {where[0]}"
        slots = {"tables": table.labels, "parent": self._called(link, parent), "name": str(where[1])}
        about = (slots, _count(source), _names(table, parent), (where[1],))
        if count:
            return Ask("children_count", *about)
        assert table.name_column
        return Ask("children", slots, _select([table.name_column], source, "T1."), *about[2:], n_rows=MOST_ROWS)

    def _children_count(self) -> Ask | None:
        return self._children(count=True)

    def _year(self) -> Ask | None:
        drawn = self._of("date")
        value = self._pick(drawn[2][0]) if drawn else None
        if not drawn or value is None:
            return None
        table, _, (column,) = drawn
        year = str(value)[:4]
        is_year = f"strftime('%Y', {column.sql}) = '{year}'"
        if self._schema.dialect != "sqlite":
            is_year = f"EXTRACT(YEAR FROM {column.sql}) = {year}"
        query = _count(f"{table.sql} WHERE {is_year}")
        slots = {"tables": table.labels, "column": column.label, "value": year}
        return Ask("year", slots, query, _names(table), (year,), flat=_all(query))

    def _since(self) -> Ask | None:
        drawn = self._of("date")
        value = self._pick(drawn[2][0]) if drawn else None
        if not drawn or value is None:
            return None
        table, ident, (column,) = drawn
        after = self._rng.random() < 0.5
        later, earlier = (_select([ident], f"{table.sql} WHERE {column.sql} {sign} {literal(value)}") for sign in "><")
        query, slip = (later, None) if after else (earlier, later)
        slots = {
            "tables": table.labels,
            "column": column.label,
            "value": str(value),
            "how": "after" if after else "before",
        }
        return Ask("since", slots, query, _names(table), (value,), slip, flat=_all(query), n_rows=MOST_ROWS)

    def _top(self) -> Ask | None:
        drawn = self._of("number", "date")
        if not drawn or not drawn[2][0].complete:
            return None
        table, ident, (column,) = drawn
        n, high = self._rng.choice((1, 1, 2, 3)), self._rng.random() < 0.5
        first, last = (_select([ident], f"{table.sql} ORDER BY {column.sql}{way} LIMIT {n}") for way in (" DESC", ""))
        query, slip = (first, None) if high else (last, first)
        how = ("highest", "lowest") if column.role == "number" else ("latest", "earliest")
        slots = {"table": table.label, "tables": table.labels, "column": column.label, "n": str(n)}
        slots["how"] = how[0] if high else how[1]
        order = " DESC" if high else ""
        ranked = f"SELECT {column.sql} FROM {table.sql} ORDER BY {column.sql}{order} LIMIT {n + 1}"
        kind = "top" if n > 1 else "top_one"
        return Ask(kind, slots, query, _names(table), (), slip, ranked=ranked, n_ranked=n + 1, n_rows=n)

    def _most(self) -> Ask | None:
        linked = self._link(child=False, parent=True)
        name = linked[2].name_column if linked else None
        if not linked or not name:
            return None
        link, table, parent = linked
        keys = [parent.column(column) for column in link.parent_columns]
        keys += [] if self._schema.dialect == "sqlite" or name in keys else [name]  # others want what they show in it
        each = ", ".join(f"T2.{column.sql}" for column in keys)
        source = f"{joined(link, table, parent)} GROUP BY {each} ORDER BY COUNT(*) DESC LIMIT "
        slots = {"tables": table.labels, "parent": self._called(link, parent)}
        ranked = f"SELECT COUNT(*) FROM {source}2"
        return Ask(
            "most", slots, _select([name], f"{source}1", "T2."), _names(table, parent), ranked=ranked, n_ranked=2
        )

    def _without(self) -> Ask | None:
        linked = self._link(child=False, parent=True)
        name = linked[2].name_column if linked else None
        if not linked or not name:
            return None
        link, table, parent = linked
        if self._called(link, parent) != parent.label:
            return None  # which of the links is not said
        own = [table.column(column).sql for column in link.columns]
        filled = " AND ".join(f"{column} IS NOT NULL" for column in own)
        inner = f"SELECT {', '.join(own)} FROM {table.sql} WHERE {filled}"
        key = ", ".join(parent.column(column).sql for column in link.parent_columns)
        key = f"({key})" if len(link.columns) > 1 else key
        query = _select([name], f"{parent.sql} WHERE {key} NOT IN ({inner})")
        slots = {"tables": table.labels, "parents": parent.labels}
        return Ask("without", slots, query, _names(table, parent), flat=_all(query), n_rows=MOST_ROWS)

    def _both(self) -> Ask | None:
        linked = self._link(child=False, parent=True)
        columns = linked[1].having("category") if linked else []
        name = linked[2].name_column if linked else None
        if not linked or not columns or not name:
            return None
        link, table, parent = linked
        if self._called(link, parent) != parent.label:
            return None
        column = self._rng.choice(columns)
        values = [self._pick(column), self._pick(column)]
        if None in values or values[0] == values[1]:
            return None
        source = f"{joined(link, table, parent)} WHERE T1.{column.sql} = "
        sides = [_select([name], f"{source}{literal(value)}", "T2.") for value in values if value is not None]
        query = Query(" INTERSECT ".join(side.sql for side in sides), sides[0].heads)
        slots = {"tables": table.labels, "parents": parent.labels, "column": column.label}
        slots |= {"value": str(values[0]), "second": str(values[1])}
        drawn = tuple(value for value in values if value is not None)
        return Ask("both", slots, query, _names(table, parent), drawn, sides[0], flat=sides[0].sql, n_rows=MOST_ROWS)


def is_short_for(short: str, text: str) -> bool:
    """Whether a text is another, or that with letters left out: dept, department."""
    rest = iter(text)
    return short[:1] == text[:1] and all(letter in rest for letter in short)


def said_in(dialect: str, ask: Ask) -> Ask:
    """The same in another dialect."""
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
