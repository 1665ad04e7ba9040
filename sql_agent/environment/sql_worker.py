"""The child process that runs the model's SQL; `database.py` starts it.

Layers: kernel limits (memory, no file may grow), a read-only connection, an allow-list authorizer, SQLite's own limits,
a deadline. Texts are cut before Python decodes them, so that a wide result costs no memory. Before a statement runs it
is compiled against a mirror, an in-memory database with nothing but the allowed tables: the authorizer alone lets
`SELECT count(*) FROM hidden` pass, its messages tell a hidden table from a missing one, and it must let FTS5 read its
inner tables. Speaks one JSON line per request and per reply; imports the standard library only, to start in 50 ms. It
does not stop a single long function call: the parent kills the process for that.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import signal
import sqlite3
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import count, groupby, islice
from typing import Any, Literal, Required, TypedDict

from sql_agent.environment.child_side import answer, bound, requests

MAX_SQL_CHARS = 20_000
MAX_NAME_CHARS = 100
MAX_CONCAT_CHARS = 100_000
PRINTF_DIGITS = 3  # of a width or precision
SQLITE_SHARE = 0.75  # of the memory limit; the rest is for the result in Python and as JSON
STEPS_PER_CHECK = 500  # VDBE steps between two looks at the clock: under 2 % of a full scan

# Left out on purpose: what makes big values (zeroblob, randomblob), what grows outside SQLite's limits
# (json_group_array stops at the heap limit only), what tells of
# the process or the schema. `_define_functions` makes ours.
FUNCTION_NAMES = """
abs acos acosh asin asinh atan atan2 atanh avg bm25 ceil ceiling char coalesce cos cosh count cume_dist current_date
current_time current_timestamp date datetime degrees dense_rank exp first_value floor format glob group_concat hex
highlight ifnull iif instr json json_array json_array_length json_extract json_insert json_object json_patch json_quote
json_remove json_replace json_set json_type json_valid julianday lag last_value lead length like likelihood likely ln
log log10 log2 lower ltrim match max min mod nth_value ntile nullif percent_rank pi pow power printf quote
radians random rank replace round row_number rtrim sign sin sinh snippet soundex sqrt strftime string_agg substr
substring sum tan tanh time timediff total trim trunc typeof unhex unicode unixepoch unlikely upper -> ->>
"""
FUNCTIONS = frozenset(FUNCTION_NAMES.split())
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 1_000_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 4 * MAX_SQL_CHARS + 100,  # bytes, where the rule for the model is in characters
    sqlite3.SQLITE_LIMIT_COLUMN: 1000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 1000,  # terms of an AND/OR chain; brackets end at SQLite's parser, 100 deep
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 25_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 100,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 600,  # bytes: 200 Chinese characters
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 16,  # FTS5 itself binds some
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
DATABASE_FAULTS = {
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR),
    *(sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_PERM, sqlite3.SQLITE_PROTOCOL),
    sqlite3.SQLITE_READONLY,
}
# Of printf: what stands between % and the character that ends a field, and that character, which may be % itself
# (%5% is a percent sign, and the next field begins behind it).
FIELD = re.compile(r"%([-+ #0!,.l\d*]*).?", re.DOTALL)
WIDE = re.compile(rf"\*|[1-9]\d{{{PRINTF_DIGITS},}}")
LOCKS = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
LOCKED = "locked by another process; let that finish or stop it, then start again"
REMEDY = "name a file of SQLite (`agentgrpo data` makes the bundled one)"
MALFORMED = "take a copy from before, or save what can be read: sqlite3 FILE .recover | sqlite3 NEW_FILE"
REFUSALS = ("not authorized", "one statement at a time", "vtable constructor failed")
Kind = Literal["ready", "rows", "error", "refused", "timeout", "memory", "crash", "fault"]


class Settings(TypedDict):
    """What the parent hands over on the command line. Sizes in characters, bytes and rows."""

    dialect: str  # sqlite, or a name of sqlglot
    path: str
    uri: str
    tables: list[str]  # none: all that can be read
    timeout_s: float
    max_rows: int
    max_cell_chars: int
    max_result_chars: int
    max_memory_bytes: int


class TableDetails(TypedDict):
    """A table beyond its columns' names: [column, declared type, whether of the primary key], and for each foreign key
    [columns, parent table, the parent's columns]. `kind` is table, view or virtual.
    """

    kind: str
    columns: list[tuple[str, str, bool]]
    foreign_keys: list[tuple[list[str], str, list[str]]]


class Reply(TypedDict, total=False):
    """One line back. `kind` says which of the other keys are there."""

    kind: Required[Kind]
    message: str
    schema: dict[str, list[str]]
    details: dict[str, TableDetails]
    columns: list[str]
    rows: list[list[Any]]
    truncated: bool


def plain_value(value: Any, max_chars: int) -> Any:
    """A database value as JSON can carry it: blobs as x'hex', non-finite floats as text, long text cut with "…"."""
    if isinstance(value, bytes):
        value = f"x'{value[: max_chars // 2 + 1].hex()}'"
    elif isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str) and len(value) > max_chars:
        return value[:max_chars] + "…"
    return value


def rows_reply(names: list[str], rows: Iterable[Sequence[Any]], limits: Settings, *, cell_chars: int) -> Reply:
    """The rows that the limits let through, each cell of at most `cell_chars`."""
    cells: list[list[Any]] = []
    truncated = False
    n_chars = 0
    cell_chars = min(cell_chars, limits["max_cell_chars"])
    for row in rows:
        if len(cells) == limits["max_rows"] or n_chars > limits["max_result_chars"]:
            truncated = True
            break
        cells.append([plain_value(value, cell_chars) for value in row])
        n_chars += sum(len(value) for value in cells[-1] if isinstance(value, str))
    columns = distinct([str(plain_value(name, MAX_NAME_CHARS)) for name in names])
    return {"kind": "rows", "columns": columns, "rows": cells, "truncated": truncated}


def distinct(names: list[str]) -> list[str]:
    """Column names made distinct, so that no value of `SELECT a.id, b.id` is lost in a record: id, id_2."""
    taken = set(names)
    result = []
    numbers: dict[str, Iterator[int]] = {}
    for name in names:
        unique = name
        if name in numbers:
            unique = next(new for new in (f"{name}_{n}" for n in numbers[name]) if new not in taken)
        numbers.setdefault(name, count(2))
        taken.add(unique)
        result.append(unique)
    return result


class GroupConcat:
    """group_concat that stops at MAX_CONCAT_CHARS; SQLite's own scans all rows before it reports the length."""

    def __init__(self) -> None:
        self._parts: deque[str] = deque()
        self._n_chars = 0

    def step(self, value: Any, separator: Any = ",") -> None:
        """Add a row; NULL adds nothing."""
        if value is None:
            return
        self._parts.append(_text(separator))
        self._parts.append(_text(value))
        self._n_chars += len(self._parts[-1]) + len(self._parts[-2])
        if self._n_chars > MAX_CONCAT_CHARS:
            raise OverflowError  # to SQLite: a text that is too big

    def inverse(self, value: Any, _separator: Any = ",") -> None:
        """Drop the oldest row when a window moves on."""
        if value is not None:
            self._n_chars -= len(self._parts.popleft()) + len(self._parts.popleft())

    def value(self) -> str | None:
        """The text so far, without the first separator."""
        return "".join(islice(self._parts, 1, None)) if self._parts else None

    finalize = value


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float):
        return _converter().execute("SELECT CAST(? AS TEXT)", (value,)).fetchone()[0]
    return "" if value is None else str(value)


def printf(template: Any = None, *values: Any) -> str | None:
    """SQLite's own, but for wide fields: printf('%.2000000000c', 'x') takes 8 s at a length limit of 1 MB."""
    if any(map(WIDE.search, FIELD.findall(_text(template)))):
        raise OverflowError  # to SQLite: a text that is too big
    places = ", ".join("?" * (1 + len(values)))
    return _converter().execute(f"SELECT printf({places})", (template, *values)).fetchone()[0]


@cache
def _converter() -> sqlite3.Connection:
    """A connection for what only SQLite knows: how it writes a number."""
    return sqlite3.connect(":memory:")


def authorizer(readable: Iterable[str], hidden: Iterable[str], *, internal: bool) -> Callable[..., int]:
    """An allow-list for set_authorizer: SELECT, READ of `readable`, FUNCTIONS, recursion.

    A READ without a database is a CTE, or a table of which no column is used, as in SELECT count(*) FROM t. The mirror
    has no other tables than the readable and the `hidden` ones, so there the rest are CTEs.
    `internal` also allows the pragma by which FTS5 notices changes.
    """
    readable = {_fold(name) for name in readable}
    hidden = {_fold(name) for name in hidden}
    plain = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE}

    def allowed(action: int, arg1: str | None, arg2: str | None, database: str | None) -> bool:
        if action == sqlite3.SQLITE_READ:
            name = _fold(arg1 or "")
            if name in readable:
                return database in ("main", None)
            return database is None and name not in hidden and not name.startswith(("sqlite_", "pragma_"))
        if action == sqlite3.SQLITE_FUNCTION:
            return (arg2 or "").lower() in FUNCTIONS
        if action == sqlite3.SQLITE_PRAGMA:
            return internal and arg1 == "data_version" and arg2 is None
        return action in plain

    def decide(action: int, arg1: str | None, arg2: str | None, database: str | None, _source: str | None) -> int:
        return sqlite3.SQLITE_OK if allowed(action, arg1, arg2, database) else sqlite3.SQLITE_DENY

    return decide


def _fold(name: str) -> str:
    """SQLite compares names without case in ASCII only."""
    return "".join(c.lower() if c.isascii() else c for c in name)


def _connect(uri: str, busy_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=busy_s, cached_statements=0)
    for pragma in ("trusted_schema = OFF", "temp_store = MEMORY"):
        connection.execute(f"PRAGMA {pragma}").close()
    return connection


def _define_functions(connection: sqlite3.Connection) -> None:
    """Ours in place of SQLite's; a SQLite before 3.44 has no string_agg."""
    for name, n_arguments in (("group_concat", 1), ("group_concat", 2), ("string_agg", 2)):
        connection.create_window_function(name, n_arguments, GroupConcat)  # pyright: ignore
    for name in ("printf", "format"):
        connection.create_function(name, -1, printf, deterministic=True)


def quoted(name: str, dialect: str = "sqlite") -> str:
    """A name as SQL reads it as a name, whatever it holds."""
    mark = "`" if dialect == "mysql" else '"'
    return mark + name.replace(mark, mark * 2) + mark


def _names(connection: sqlite3.Connection, sql: str, *values: str) -> list[str]:
    return [str(row[0]) for row in connection.execute(sql, values)]


class Unusable(Exception):
    """The database cannot be used; the text says why and what to do."""


def check_header(path: str) -> None:
    """Look at the first bytes of the file. Raises Unusable.

    Done here and not in the parent: closing a file drops all POSIX locks that its process holds on it, so a look from
    the parent would break the lock of a SQLite connection that the parent has open elsewhere.
    """
    try:
        with open(path, "rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        raise Unusable(f"no such file; {REMEDY}") from None
    except OSError as exc:
        raise Unusable(f"cannot be read ({exc.strerror}); check the path and its permissions") from None
    if not header.startswith(b"SQLite format 3\0") or len(header) < 100:
        raise Unusable(f"{'not a SQLite database' if header else 'empty, 0 bytes'}; {REMEDY}")
    if 2 in header[18:20]:
        shell = f"sqlite3 {shlex.quote(path)}"
        remedy = f"run once: {shell} 'PRAGMA journal_mode=DELETE'"
        remedy += f"; while others hold it name a copy: {shell} \"VACUUM INTO 'COPY.db'\""
        raise Unusable(f"in WAL mode, in which even readers write files beside it; {remedy}")


class Guard:
    """Both connections and the rules. Raises sqlite3.Error or Unusable when the database cannot be used."""

    def __init__(self, settings: Settings) -> None:
        check_header(settings["path"])
        self.settings = settings
        self._deadline_s, self._cell_chars = math.inf, sys.maxsize
        self._real = _connect(settings["uri"], min(0.5, settings["timeout_s"] / 2))
        self._mirror = _connect(":memory:", 0)
        self._real.execute(f"PRAGMA hard_heap_limit = {int(SQLITE_SHARE * settings['max_memory_bytes'])}").close()
        self._real.text_factory = self._text
        self.schema = self._build_mirror()
        self.details = self._details()
        self._lock_down()
        for connection in (self._real, self._mirror):
            _define_functions(connection)

    def _build_mirror(self) -> dict[str, list[str]]:
        """Create the allowed tables, empty, in the mirror. Returns their columns. Also warms up virtual tables."""
        tables = "SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'view')"  # a trigger may share a name
        tables_by_name = {_fold(name): (name, sql) for name, sql in self._real.execute(tables)}
        schema: dict[str, list[str]] = {}
        for wanted in self.settings["tables"] or self._table_names():
            if _fold(wanted) not in tables_by_name:
                there = ", ".join(self._table_names()) or "none"
                raise Unusable(f"no table {wanted}; there are: {there}. database.tables names those to read")
            name, sql = tables_by_name[_fold(wanted)]
            try:
                cursor = self._real.execute(f"SELECT * FROM {quoted(name)} LIMIT 1")
                columns = [str(column[0]) for column in cursor.description]
                cursor.fetchall()
                self._mirror.execute(sql)
            except sqlite3.OperationalError as exc:  # a view of a table that is gone, an index of an unknown module
                if self.settings["tables"] or (exc.sqlite_errorcode & 0xFF) in DATABASE_FAULTS:
                    raise
                continue
            schema[name] = columns
        if not schema:
            raise Unusable("no table in it can be read; fill it, or name another file")
        return schema

    def _details(self) -> dict[str, TableDetails]:
        """Types and keys of the readable tables; a foreign key to a table that is not readable is left out."""
        kinds = dict(self._real.execute("SELECT name, type FROM pragma_table_list WHERE schema = 'main'"))
        details: dict[str, TableDetails] = {}
        for table in self.schema:
            columns = self._real.execute("SELECT name, type, pk FROM pragma_table_info(?)", (table,))
            details[table] = {
                "kind": str(kinds.get(table, "table")),
                "columns": [(str(name), str(kind), bool(key)) for name, kind, key in columns],
                "foreign_keys": list(self._foreign_keys(table)),
            }
        return details

    def _foreign_keys(self, table: str) -> Iterator[tuple[list[str], str, list[str]]]:
        """SQLite folds names, and leaves the parent's columns out where they are its primary key."""
        folded = {_fold(name): name for name in self.schema}
        keys = 'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq'
        rows = self._real.execute(keys, (table,)).fetchall()
        for (_, named), group in groupby(rows, key=lambda row: row[:2]):
            parent, pairs = folded.get(_fold(named), ""), [row[2:] for row in group]
            if not parent:
                continue
            primary = _names(self._real, "SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk", parent)
            targets = [to for _, to in pairs if to] or primary
            columns = self._spelled(table, [column for column, _ in pairs])
            parent_columns = self._spelled(parent, targets)
            if len(columns) == len(parent_columns) == len(pairs):
                yield columns, parent, parent_columns

    def _spelled(self, table: str, columns: list[str]) -> list[str]:
        """These columns as the table spells them, without those that it lacks."""
        spelling = {_fold(name): name for name in self.schema[table]}
        return [spelling[_fold(column)] for column in columns if _fold(column) in spelling]

    def _table_names(self) -> list[str]:
        types = "type IN ('table', 'view', 'virtual') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        return _names(self._real, f"SELECT name FROM pragma_table_list WHERE schema = 'main' AND {types} ORDER BY name")

    def _lock_down(self) -> None:
        modules = _names(self._real, "SELECT name FROM pragma_module_list")
        hidden = modules + _names(self._mirror, "SELECT name FROM sqlite_master")
        shadows = [
            shadow
            for shadow in _names(self._real, "SELECT name FROM pragma_table_list WHERE type = 'shadow'")
            if any(shadow.startswith(f"{table}_") for table in self.schema)
        ]
        self._mirror.set_authorizer(authorizer(self.schema, hidden, internal=False))
        self._real.set_authorizer(authorizer([*self.schema, *shadows], hidden, internal=bool(shadows)))
        for connection in (self._real, self._mirror):
            for category, limit in LIMITS.items():
                connection.setlimit(category, limit)
            connection.set_progress_handler(lambda: time.monotonic() > self._deadline_s, STEPS_PER_CHECK)

    def _text(self, raw: bytes) -> str:
        """A text of the database, cut before it is decoded: a row may hold 200 of 1 MB."""
        most = self._cell_chars + 1
        return raw[: 4 * most].decode("utf-8", "replace")[:most]

    def run(self, sql: str, *, timeout_s: float) -> Reply:
        """Compile against the mirror, then run. Raises MemoryError, and nothing else for what a statement can do."""
        self._deadline_s = time.monotonic() + timeout_s
        try:
            self._mirror.execute(f"EXPLAIN {sql}").close()
            return self._fetch(self._real.execute(sql))
        except UnicodeDecodeError:
            return {
                "kind": "error",
                "message": "group_concat: a text is not valid UTF-8; try group_concat(CAST(x AS BLOB))",
            }
        except (sqlite3.Error, sqlite3.Warning) as exc:
            return explain(exc)

    def _fetch(self, cursor: sqlite3.Cursor) -> Reply:
        limits, names = self.settings, [column[0] for column in cursor.description]
        self._cell_chars = min(limits["max_cell_chars"], limits["max_result_chars"] // len(names))
        try:
            return rows_reply(names, cursor, limits, cell_chars=self._cell_chars)
        finally:
            cursor.close()


def explain(exc: sqlite3.Error | sqlite3.Warning) -> Reply:
    """Sort an error: the database's fault, or the statement's (timeout, memory, refused, any other error)."""
    code, message = getattr(exc, "sqlite_errorcode", 0), str(exc)
    if code == sqlite3.SQLITE_INTERRUPT:
        return {"kind": "timeout"}
    if code in (sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_NOMEM):
        return {"kind": "memory"}
    if code & 0xFF in DATABASE_FAULTS:
        remedy = MALFORMED if code & 0xFF == sqlite3.SQLITE_CORRUPT else REMEDY
        return {"kind": "fault", "message": LOCKED if code & 0xFF in LOCKS else f"{message}; {remedy}"}
    if code == sqlite3.SQLITE_TOOBIG:
        message += (
            f"; group_concat makes at most {MAX_CONCAT_CHARS:,} characters, printf fields of {10**PRINTF_DIGITS - 1}"
        )
    if code == sqlite3.SQLITE_AUTH or any(mark in message for mark in REFUSALS):
        return {"kind": "refused", "message": message}
    return {"kind": "error", "message": message}


def serve(make: Callable[[Settings], Any]) -> None:
    """Open the database of the command line and serve requests until the parent goes away."""
    try:
        guard = make(json.loads(sys.argv[1]))
    except (Unusable, MemoryError) as exc:
        answer({"kind": "fault", "message": str(exc) or "needs more than database.max_memory_mib to open"})
        return
    answer({"kind": "ready", "schema": guard.schema, "details": guard.details})
    for sql, timeout_s in requests():
        # Only for the case that the parent died and cannot kill: SIGALRM's default action ends the process.
        signal.setitimer(signal.ITIMER_REAL, 2 * timeout_s + 1)
        try:
            answer(guard.run(sql, timeout_s=timeout_s))
        except MemoryError:
            answer({"kind": "memory"})
        signal.setitimer(signal.ITIMER_REAL, 0)


def opened(settings: Settings) -> Guard:
    """The guard, in a process that is confined from now on. Raises Unusable."""
    bound(settings["max_memory_bytes"], NOFILE=32)
    try:
        return Guard(settings)
    except sqlite3.Error as exc:
        raise Unusable(explain(exc).get("message", str(exc))) from exc


def main() -> None:
    serve(opened)
