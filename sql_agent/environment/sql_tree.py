"""What a statement may be where the database itself takes no rules: an allow list of its syntax tree.

Guarantees: what runs is not the text that was given but the tree of it, written again: one SELECT of known nodes,
functions, types and columns, over tables that are named with their schema, with a LIMIT and without comments and hints.
What is written again is read again and must keep the rules. A table of a WITH gets a name that nothing else has, so no
such name reaches another table. What a list does not name is refused, whatever the database makes of it.
Not covered: what a readable view reads, and time and memory, which server and process bound.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from foundation.errors import AgentGRPOError

# Names of sqlglot's classes: parts of a query first, then functions that read nothing but their arguments and whose
# results are no longer than those (so no repeat, lpad, space, generate_series).
NODE_NAMES = """
Select From Where Group Having Order Ordered Limit Offset Join Distinct Union Intersect Except Subquery With CTE
TableAlias Table Column Identifier Literal Boolean Null Star Alias Paren Tuple Values And Or Not EQ NEQ GT GTE LT LTE Is
In Between Like ILike RegexpLike RegexpILike SimilarTo Escape Exists Any All NullSafeEQ NullSafeNEQ Add Sub Mul Div
IntDiv Mod Neg DPipe SafeDPipe Case If Cast TryCast DataType DataTypeParam Interval Var Window WindowSpec Filter
WithinGroup Rollup Cube GroupingSets AtTimeZone Xor BitwiseAnd BitwiseOr IgnoreNulls RespectNulls

Abs AnyValue Ascii Avg ApproxDistinct ArgMax ArgMin Ceil CharLength Coalesce Concat ConcatWs Corr Count CountIf
CovarPop CovarSamp CumeDist CurrentDate CurrentTime CurrentTimestamp Date DateAdd DateDiff DateStrToDate DateSub
DateTrunc Datetime DatetimeDiff DatetimeTrunc Day DayOfMonth DayOfWeek DayOfYear Dayname Degrees DenseRank Exp
Extract First FirstValue Floor Greatest GroupConcat Hour Initcap Lag Last LastDay LastValue Lead Least Left Length
Ln Localtime Localtimestamp Log LogicalAnd LogicalOr Lower Max Median Min Minute Mode Month Monthname MD5 NthValue Ntile
Nullif PercentRank PercentileCont PercentileDisc Pi Pow Quantile Quarter Radians Rand Rank RegexpCount RegexpInstr
RegexpExtract RegexpReplace Replace Reverse Right Round RowNumber Second Sign Split SplitPart Sqrt Stddev StddevPop
StddevSamp StrPosition StrToDate StrToTime Substring Sum TimeStrToDate TimeStrToTime TimeToStr TimestampDiff
TimestampAdd TimestampSub TimestampTrunc TimeToUnix ToChar ToNumber Trim Trunc TsOrDsAdd TsOrDsDiff TsOrDsToDate
TsOrDsToTime TsOrDsToTimestamp Upper Variance VariancePop Week WeekOfYear Year Sin Cos Tan Asin Acos Atan Atan2 Cbrt
StartsWith EndsWith Contains Unicode Chr UnixToTime
"""
# Functions that sqlglot has no class for, or not in every dialect.
FUNCTION_NAMES = """
age btrim ceiling char_length character_length date_part dayofmonth dayofweek dayofyear every instr isfinite locate
lower ltrim make_date microsecond millisecond month_name now octet_length position rtrim strftime timediff to_date
to_days to_timestamp trunc truncate weekday yearweek isnull
"""
TYPE_NAMES = """
BIGINT INT SMALLINT TINYINT UBIGINT UINT USMALLINT UTINYINT INT128 MEDIUMINT DECIMAL UDECIMAL BIGDECIMAL DOUBLE UDOUBLE
FLOAT TEXT VARCHAR NVARCHAR CHAR NCHAR BPCHAR BOOLEAN DATE TIME TIMETZ TIMESTAMP TIMESTAMPTZ TIMESTAMPLTZ TIMESTAMPNTZ
DATETIME INTERVAL UUID YEAR
"""
NODES, FUNCTIONS, TYPES = (frozenset(text.split()) for text in (NODE_NAMES, FUNCTION_NAMES, TYPE_NAMES))
OF_A_TABLE = {"this", "db", "catalog", "alias", "joins"}
ONE = "one statement at a time"
MOST_BRACKETS = 20  # no node of theirs is allowed, and a[1][1]... takes sqlglot the square of their number


class Forbidden(AgentGRPOError):
    """A statement that is not run; `kind` and text as a worker's reply has them."""

    def __init__(self, message: str, kind: str = "error") -> None:
        super().__init__(message)
        self.kind = kind


class Rules:
    """The rules of one database: its dialect (a name of sqlglot), its readable tables, where they stand, most rows."""

    def __init__(self, dialect: str, schema: dict[str, list[str]], *, home: tuple[str, ...], max_rows: int) -> None:
        self.dialect, self._home, self._max_rows = dialect, home, max_rows
        self._tables = {name.lower(): name for name in schema} | {name: name for name in schema}
        self._columns = {name: {column.lower() for column in columns} for name, columns in schema.items()}
        self.mark = f"{secrets.token_hex(4)} "  # before names of a WITH

    def statement(self, sql: str) -> str:
        """The statement to run in place of `sql`. Raises Forbidden."""
        try:
            tree = self._parsed(sql)
            self._place(tree)
            self._limit(tree)
            written = tree.sql(dialect=self.dialect, comments=False)
            if _places(self._parsed(written)) != _places(tree):
                raise Forbidden(f"not authorized: {written}", "refused")
        except SqlglotError as exc:
            raise Forbidden(str(exc).split("\n", 1)[0].replace("\x1b[4m", "").replace("\x1b[0m", "")) from None
        except AttributeError:  # sqlglot's own, over a call of MySQL that has no end
            raise Forbidden("cannot be read; mend the syntax") from None
        except RecursionError:
            raise Forbidden("too many brackets or operators in one another; make it simpler") from None
        return written

    def _parsed(self, sql: str) -> exp.Query:
        tokens = sqlglot.tokenize(sql, read=self.dialect)
        if sum(token.token_type is TokenType.L_BRACKET for token in tokens) > MOST_BRACKETS:
            raise Forbidden("not authorized: Bracket", "refused")
        trees = sqlglot.parse(sql, read=self.dialect)
        if len(trees) != 1:
            raise Forbidden(ONE, "refused")
        tree = trees[0]
        if not isinstance(tree, exp.Select | exp.SetOperation):
            raise Forbidden(f"not authorized: {type(tree).__name__}", "refused")
        for node in tree.walk():
            _check(node)
        return tree

    def _place(self, tree: exp.Query) -> None:
        """Name each table with its schema, or by its WITH. Raises Forbidden for others, and for unknown columns."""
        names = {node.alias.lower() for node in tree.find_all(exp.Alias)}
        names |= {column.name.lower() for node in tree.find_all(exp.TableAlias) for column in node.columns}
        with_names = {id(table): name for table in tree.find_all(exp.Table) if (name := self._of_with(table))}
        for table in list(tree.find_all(exp.Table)):
            name = with_names.get(id(table)) or self._readable(table)
            names |= set() if id(table) in with_names else self._columns[name]
            if not table.alias:
                table.set("alias", exp.TableAlias(this=table.this.copy()))
            table.set("this", exp.to_identifier(name, quoted=True))
            for key, part in zip(("db", "catalog"), reversed(self._home), strict=False):
                table.set(key, None if id(table) in with_names else exp.to_identifier(part, quoted=True))
        for cte in tree.find_all(exp.CTE):
            cte.args["alias"].set("this", exp.to_identifier(self.mark + cte.alias.lower(), quoted=True))
        for column in tree.find_all(exp.Column):
            if not isinstance(column.this, exp.Star) and column.name.lower() not in names:
                raise Forbidden(f"no such column: {'.'.join(part.name for part in column.parts)}")
            if (column.args.get("db") or column.args.get("catalog")) and not self._is_home(column):
                raise Forbidden(f"no such column: {column.sql()}")
            column.set("db", None)
            column.set("catalog", None)

    def _of_with(self, table: exp.Table) -> str:
        """The new name of a table of a WITH that can be seen from here, or ""."""
        if table.args.get("db"):
            return ""
        return self.mark + table.name.lower() if table.name.lower() in {*_visible(table)} else ""

    def _readable(self, table: exp.Table) -> str:
        """The name of a readable table as the database spells it. Raises Forbidden."""
        extras = {key for key, value in table.args.items() if value} - OF_A_TABLE
        if extras or not isinstance(table.this, exp.Identifier):
            raise Forbidden("not authorized: what is no table", "refused")
        name = self._tables.get(table.name) or self._tables.get(table.name.lower())
        if name is None or (table.args.get("db") and not self._is_home(table)):
            raise Forbidden(f"no such table: {'.'.join(part.name for part in table.parts)}")
        return name

    def _is_home(self, node: exp.Table | exp.Column) -> bool:
        catalog, schema = ("", *self._home)[-2:]
        named = (node.text("catalog"), catalog), (node.text("db"), schema)
        return all(part.lower() in ("", home.lower()) for part, home in named)

    def _limit(self, tree: exp.Query) -> None:
        """One row more than are kept, so that it shows when there are more."""
        limit, most = tree.args.get("limit"), self._max_rows + 1
        value = limit.expression if isinstance(limit, exp.Limit) else None
        if limit and not (isinstance(value, exp.Literal) and value.name.isdecimal()):
            raise Forbidden("LIMIT takes a number: end with LIMIT n")
        if not value or float(value.name) > most:  # int() takes 4,300 digits
            tree.set("limit", exp.Limit(expression=exp.Literal.number(most)))


def _check(node: exp.Expr) -> None:
    """Raise Forbidden for a node that no list names."""
    kind = type(node).__name__
    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        if node.name.lower() not in FUNCTIONS:
            raise Forbidden(f"not authorized to use function: {node.name.lower()}", "refused")
    elif kind not in NODES:
        shown = f" to use function: {node.sql_name().lower()}" if isinstance(node, exp.Func) else f": {kind}"
        raise Forbidden(f"not authorized{shown}", "refused")
    if isinstance(node, exp.DataType):
        name = getattr(node.this, "name", "INTERVAL" if isinstance(node.this, exp.Interval) else "")
        if name not in TYPES:
            raise Forbidden(f"not authorized to use function: CAST to {node.sql()}", "refused")


def _visible(table: exp.Table) -> Iterator[str]:
    """Names of the WITH tables that a table's name can mean: in a query all of its own, in a WITH those before."""
    child, parent = table, table.parent
    while parent:
        with_ = next((part for part in parent.args.values() if isinstance(part, exp.With)), None)
        ctes: list[exp.Expr] = with_.expressions if with_ and with_ is not child else []
        if isinstance(parent, exp.With):
            with suppress(ValueError):
                at = [id(cte) for cte in parent.expressions].index(id(child))
                ctes = parent.expressions[: None if parent.args.get("recursive") else at]
        yield from (cte.alias.lower() for cte in ctes)
        child, parent = parent, parent.parent


def _places(tree: exp.Query) -> set[tuple[str, ...]]:
    return {tuple(part.name for part in table.parts) for table in tree.find_all(exp.Table)}
