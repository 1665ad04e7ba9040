"""Does a query's result come from the data, or does the query say it itself?

The rule: a column of the result comes from the data when its expression gives other values for other values of what it
reads, which are columns of tables and numbers of rows, through subqueries and WITH. A constant does not, nor its
maximum, nor what cancels out in arithmetic (`513 + 0 * COUNT(*)`). What a condition on the data chooses does, where the
values to choose from differ. A result comes from the data when one of its columns does.
Guarantees: nothing runs; each part is looked at once. SQL that sqlglot cannot read, or that is too
deep, counts as reading.
Not covered: a guess in a condition (`WHERE id = 513`, `CASE WHEN COUNT(*) >= 0 THEN 513 END`, LIMIT), sums of
constants, functions that give one value for all (`ABS(SIGN(id))`), and a WITH RECURSIVE that reads any table.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Container, Hashable, Sequence
from contextlib import suppress

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, build_scope

# Of a constant they still tell how many rows there are.
OF_ROWS = (
    *(exp.Count, exp.CountIf, exp.Sum),
    *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile),
)
ARITHMETIC: dict[type[exp.Expr], Callable[[float, float], float]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: operator.truediv,
}
ROW_IDS = {"rowid", "oid", "_rowid_"}


def parsed(sql: str, dialect: str) -> exp.Expr | None:
    """The syntax tree, or None for what sqlglot cannot read."""
    try:
        return sqlglot.parse_one(sql, read=dialect)
    except (SqlglotError, RecursionError):
        return None


def reads_data(sql: str, dialect: str = "sqlite", names: Container[str] | None = None) -> bool:
    """Whether the result comes from the data.

    `names` holds those of all tables and columns in small letters, where they are known: SQLite takes other names in
    double quotes for texts.
    """
    query = parsed(sql, dialect)
    if not isinstance(query, exp.Query):
        return query is None
    try:
        scope = build_scope(query)
        return scope is None or _Origin(names if dialect == "sqlite" else None).of_result(scope)
    except (SqlglotError, RecursionError):
        return True


class _Origin:
    """What of one query comes from the data. Each answer is kept, so that no nesting makes it long."""

    def __init__(self, names: Container[str] | None) -> None:
        self._names = names
        self._known: dict[Hashable, bool] = {}

    def of_result(self, scope: Scope, at: int | None = None) -> bool:
        """Whether column `at` of a query comes from the data; without a place, whether any does."""
        return self._once((id(scope), at), lambda: self._of_result(scope, at))

    def has_rows(self, scope: Scope) -> bool:
        """Whether the rows of a query are those of a table."""
        return self._once((id(scope), "rows"), lambda: self._has_rows(scope))

    def _once(self, key: Hashable, find: Callable[[], bool]) -> bool:
        if key not in self._known:
            self._known[key] = find()
        return self._known[key]

    def _of_result(self, scope: Scope, at: int | None) -> bool:
        query = scope.expression
        if scope.set_operation_scopes:
            with_ = query.parent.parent if isinstance(query.parent, exp.CTE) else None
            if isinstance(with_, exp.With) and with_.recursive:
                return self.has_rows(scope)
            sides = (self.of_result(side, at) for side in scope.set_operation_scopes)
            if isinstance(query, exp.Except):
                return next(sides)
            return any(sides) if isinstance(query, exp.Intersect) else all(sides)
        if not isinstance(query, exp.Select):  # VALUES, a function that gives a table
            return any(self._varies(part, scope) for part in query.iter_expressions())
        selects = query.selects if at is None or query.is_star else query.selects[at : at + 1]
        return any(self._varies(part, scope) for part in selects)

    def _has_rows(self, scope: Scope) -> bool:
        if scope.set_operation_scopes:
            return any(map(self.has_rows, scope.set_operation_scopes))
        return any(
            self.has_rows(source) if isinstance(source, Scope) else self._is_table(source, scope)
            for _, source in scope.selected_sources.values()
        )

    def _is_table(self, table: exp.Table, scope: Scope) -> bool:
        """Whether it is none that a function makes of constants; FTS5 searches its table by `name('words')`."""
        is_named = isinstance(table.this, exp.Identifier) or self._is_known(table.this.name.lower())
        return is_named or self._varies(table.this, scope)

    def _varies(self, node: exp.Expr, scope: Scope) -> bool:
        """Whether an expression gives another value for other data."""
        return self._value(node, scope, 1) != self._value(node, scope, 2)

    def _value(self, node: exp.Expr, scope: Scope, data: int) -> Hashable:
        """What arithmetic gives where the parts that come from the data are numbers; those of `data` 2 are others."""
        if isinstance(node, exp.Alias | exp.Paren | exp.Neg):
            inner = self._value(node.this, scope, data)
            return -inner if isinstance(node, exp.Neg) and isinstance(inner, int | float) else inner
        if isinstance(node, exp.Binary) and type(node) in ARITHMETIC:
            left, right = self._value(node.left, scope, data), self._value(node.right, scope, data)
            if isinstance(left, int | float) and isinstance(right, int | float):
                with suppress(ArithmeticError):
                    return ARITHMETIC[type(node)](left, right)
            return type(node), left, right
        if self._once(id(node), lambda: self._is_data(node, scope)):
            return float(zlib.crc32(f"{data} {node.sql()}".encode()))
        return float(node.name) if isinstance(node, exp.Literal) and node.is_number else node.sql()

    def _is_data(self, node: exp.Expr, scope: Scope) -> bool:
        if isinstance(node, exp.Column):
            return self._is_data_column(node, scope)
        if isinstance(node, exp.Star):
            return any(self._of_source(source, scope, "*") for _, source in scope.selected_sources.values())
        if isinstance(node, exp.Query | exp.Exists):
            inner = node.this if isinstance(node, exp.Exists) else node
            inner_scope = next((sub for sub in scope.subquery_scopes if sub.expression is inner.unnest()), None)
            ask = self.has_rows if isinstance(node, exp.Exists) else self.of_result
            return inner_scope is None or ask(inner_scope)
        if isinstance(node, OF_ROWS):
            return self.has_rows(scope)
        if isinstance(node, exp.Case | exp.If):
            return self._is_choice(node, scope)
        parts = [node.this] if isinstance(node, exp.Coalesce | exp.Window) else node.iter_expressions()
        return any(self._varies(part, scope) for part in parts)

    def _is_choice(self, node: exp.Case | exp.If, scope: Scope) -> bool:
        """Whether the data decides between values that differ, or one of them comes from it."""
        branches = node.args["ifs"] if isinstance(node, exp.Case) else [node]
        otherwise = node.args.get("default" if isinstance(node, exp.Case) else "false") or exp.null()
        values = [*(branch.args["true"] for branch in branches), otherwise]
        conditions = [part for part in (node.this, *(branch.this for branch in branches)) if part]
        differ = len({self._value(value, scope, 1) for value in values}) > 1
        decided = differ and any(self._varies(part, scope) for part in conditions)
        return decided or any(self._varies(value, scope) for value in values)

    def _is_data_column(self, column: exp.Column, scope: Scope) -> bool:
        name, table = column.name.lower(), column.table.lower()
        is_text = isinstance(column.this, exp.Identifier) and column.this.quoted and not self._is_known(name)
        here: Scope | None = scope
        while here is not None:
            sources = [
                source for alias, (_, source) in here.selected_sources.items() if not table or alias.lower() == table
            ]
            derived = [source for source in sources if isinstance(source, Scope) and {name, "*"} & {*_names(source)}]
            if derived or isinstance(column.this, exp.Star):
                return any(self._of_source(source, here, name) for source in derived or sources)
            if not is_text and any(isinstance(source, exp.Table) for source in sources):
                return any(self._of_source(source, here, name) for source in sources)
            here = here.parent
        return False

    def _is_known(self, name: str) -> bool:
        return self._names is None or name in self._names or name in ROW_IDS

    def _of_source(self, source: Scope | exp.Table, scope: Scope, name: str) -> bool:
        """Whether a column of what stands behind FROM comes from the data."""
        if not isinstance(source, Scope):
            return self._is_table(source, scope)
        names = _names(source)
        return self.of_result(source, names.index(name) if name in names else None)


def _names(scope: Scope) -> Sequence[str]:
    query = scope.expression
    named = scope.outer_columns or (query.named_selects if isinstance(query, exp.Query) else query.alias_column_names)
    return [name.lower() for name in named]
