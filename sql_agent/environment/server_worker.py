"""The child process for DuckDB, PostgreSQL, MySQL and MariaDB; `database.py` starts it as sql_worker.py's.

Layers: the tree of the statement (sql_tree.py); a connection that only reads (DuckDB: the file opened read-only,
nothing outside it, its settings locked; servers: read-only transactions, no role that reads or writes the server's
files, no schema to find names in); the server's own time limit; kernel limits on this process. One connection, which is
made again when it was lost; a statement that was under way then is a fault of the database.
Not covered: what one statement takes of the server's memory and disk within its time; that is the server's to limit.
"""

from __future__ import annotations

import datetime
import decimal
import json
import os
import re
import sys
import threading
from itertools import groupby
from typing import Any, ClassVar

from sql_agent.environment.child_side import bound
from sql_agent.environment.sql_tree import Forbidden, Rules
from sql_agent.environment.sql_worker import Reply, Settings, TableDetails, Unusable, quoted, rows_reply, serve

Rows = tuple[list[str], list[tuple[Any, ...]]]
PASSWORD = "DATABASE_PASSWORD"
# Errors that say nothing of the statement: no resources, locks, shutdown, system, internal. SQLSTATE; MySQL's numbers.
FAULTS = re.compile(r"08|53|55P03|57P|58|XX")
MYSQL_FAULTS = {1021, 1030, 1037, 1038, 1040, 1041, 1053, 1105, 1129, 1130, 1194, 1195, 1203, 1205, 1226, 1317, 1927}
MYSQL_MODE = (
    "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"  # texts in ' and ", names in `, \ escapes: as sqlglot reads them
)
ROLES = "('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program')"
POWERFUL = f"""SELECT rolname FROM pg_catalog.pg_roles WHERE pg_has_role(current_user, oid, 'member')
    AND (rolsuper OR rolname IN {ROLES}) LIMIT 1"""
READER = "make a role that has SELECT on these tables and nothing more, and name it in the URL"
CONNECT_S = 10
LOOK = "is the server up, and are address, user and password (DATABASE_PASSWORD) right?"


class Duck:
    """A DuckDB file; the connection of this process to it, and what is particular about it."""

    SETTINGS: ClassVar[dict[str, Any]] = {
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "python_enable_replacements": "false",
        "max_temp_directory_size": "0GB",
        "temp_directory": "",
        "threads": "1",
    }

    def __init__(self, settings: Settings) -> None:
        import duckdb

        self.errors, self._duckdb = duckdb.Error, duckdb
        try:
            self._connection = duckdb.connect(settings["path"], read_only=True, config=self.SETTINGS)
        except duckdb.Error as exc:
            raise Unusable(f"{str(exc).splitlines()[0]}; database.url = duckdb:///FILE names a DuckDB file") from exc
        self._connection.execute(f"SET memory_limit = '{settings['max_memory_bytes'] // 2 >> 20}MiB'")
        self._connection.execute("SET lock_configuration = true")
        self.home = (self._rows("SELECT current_database()")[0][0], "main")

    def _rows(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()

    def tables(self) -> dict[str, TableDetails]:
        condition = "WHERE database_name = ? AND schema_name = 'main'"
        query = f"SELECT table_name, column_name, data_type FROM duckdb_columns() {condition} ORDER BY 1, column_index"
        fields = "table_name, constraint_type, constraint_column_names, referenced_table, referenced_column_names"
        constraints = self._rows(f"SELECT {fields} FROM duckdb_constraints() {condition}", self.home[0])
        keys = {(table, name) for table, kind, names, *_ in constraints if kind == "PRIMARY KEY" for name in names}
        views = {name for (name,) in self._rows(f"SELECT view_name FROM duckdb_views() {condition}", self.home[0])}
        by_name: dict[str, TableDetails] = {}
        for table, name, kind in self._rows(query, self.home[0]):
            table_kind = "view" if table in views else "table"
            details = by_name.setdefault(table, {"kind": table_kind, "columns": [], "foreign_keys": []})
            details["columns"].append((name, kind, (table, name) in keys))
        for table, kind, names, parent, theirs in constraints:
            if kind == "FOREIGN KEY":
                by_name[table]["foreign_keys"].append((list(names), parent, list(theirs)))
        return by_name

    def close(self) -> None:
        self._connection.close()

    def run(self, sql: str, timeout_s: float) -> Rows:
        clock = threading.Timer(timeout_s, self._connection.interrupt)
        clock.start()
        try:
            cursor = self._connection.execute(sql)
            return [str(column[0]) for column in cursor.description or ()], cursor.fetchall()
        finally:
            clock.cancel()

    def explain(self, exc: Exception) -> Reply:
        if isinstance(exc, self._duckdb.InterruptException):
            return {"kind": "timeout"}
        if isinstance(exc, self._duckdb.OutOfMemoryException):
            return {"kind": "memory"}
        broken = self._duckdb.IOException, self._duckdb.FatalException, self._duckdb.InternalException
        return {"kind": "fault" if isinstance(exc, broken) else "error", "message": str(exc).split("\n", 1)[0]}


class Served:
    """A schema of PostgreSQL, or a database of MySQL or MariaDB. Raises Unusable for a role that may do too much."""

    def __init__(self, settings: Settings) -> None:
        import sqlalchemy
        from sqlalchemy import event, exc

        url = sqlalchemy.make_url(settings["uri"])
        self._is_postgres = settings["dialect"] == "postgres"
        driver = "postgresql+psycopg"
        reading = {}
        password = os.environ.get(PASSWORD)
        if not self._is_postgres:
            from pymysql.constants import FIELD_TYPE
            from pymysql.converters import conversions

            # What the driver makes of values: its own, and of BIT the number that SQL compares it as.
            driver = "mysql+pymysql"
            reading = {"conv": {**conversions, FIELD_TYPE.BIT: int.from_bytes}}
        self.errors = exc.DBAPIError
        self._secret = password or ""
        self._lock_s = min(1.0, settings["timeout_s"] / 2)
        self._limits = ""
        self._engine = sqlalchemy.create_engine(
            url.set(drivername=driver, password=password or None),
            isolation_level="AUTOCOMMIT",
            pool_size=1,
            max_overflow=0,
            pool_pre_ping=True,
            connect_args={"connect_timeout": CONNECT_S, **reading},
        )
        try:
            with self._engine.connect() as connection:
                self._check_role(connection)
                named = "SELECT current_schema()" if self._is_postgres else "SELECT DATABASE()"
                name = connection.exec_driver_sql(named).scalar()
                if not name:
                    raise Unusable("no schema to read: end the URL with /NAME of the database")
                self.home = (str(name),)
                self._is_mariadb = bool(getattr(connection.dialect, "is_mariadb", False))
                self._tables = self._inspected(connection) if self._is_postgres else self._of_mysql(connection)
        except exc.DBAPIError as why:
            raise Unusable(f"{self._text(why)}; {LOOK}") from why
        self._engine.dispose()
        event.listen(self._engine, "connect", self._settle)

    def _check_role(self, connection: Any) -> None:
        if self._is_postgres:
            powers = connection.exec_driver_sql(POWERFUL).scalar()
        else:
            grants = [str(row[0]) for row in connection.exec_driver_sql("SHOW GRANTS")]
            everywhere = [grant for grant in grants if " ON *.* " in grant]
            power = re.search(r"\b(?:FILE|SUPER|ALL PRIVILEGES)\b", " ".join(everywhere))
            powers = power[0] if power else ""
        if powers:
            raise Unusable(f"its user may read or write files of the server ({powers}); {READER}")

    def _settle(self, connection: Any, _record: Any) -> None:
        """What holds for every statement of a new connection."""
        if self._is_postgres:
            wait = f"SET lock_timeout = {round(1000 * self._lock_s)}"
            settings = ["SET default_transaction_read_only = on", "SET search_path = pg_catalog", wait]
            settings += ["SET standard_conforming_strings = on"]
        else:
            settings = ["SET SESSION TRANSACTION READ ONLY", f"SET SESSION sql_mode = '{MYSQL_MODE}'"]
            settings += ["SET SESSION lock_wait_timeout = 1"]
        with connection.cursor() as cursor:
            for line in settings:
                cursor.execute(line)
        self._limits = ""

    def tables(self) -> dict[str, TableDetails]:
        return self._tables

    def _of_mysql(self, connection: Any) -> dict[str, TableDetails]:
        """By what SELECT alone may see: SHOW CREATE, which SQLAlchemy asks, wants more for a view."""
        condition = "table_schema = DATABASE()"
        kinds = f"SELECT table_name, table_type FROM information_schema.tables WHERE {condition} ORDER BY 1"
        columns = "SELECT table_name, column_name, column_type, column_key = 'PRI' FROM information_schema.columns"
        keys = "SELECT table_name, constraint_name, referenced_table_name, column_name, referenced_column_name"
        keys += f" FROM information_schema.key_column_usage WHERE {condition} AND referenced_table_schema = DATABASE()"
        by_name: dict[str, TableDetails] = {
            str(name): {"kind": "view" if "VIEW" in kind else "table", "columns": [], "foreign_keys": []}
            for name, kind in connection.exec_driver_sql(kinds)
        }
        for table, name, kind, is_key in connection.exec_driver_sql(
            f"{columns} WHERE {condition} ORDER BY 1, ordinal_position"
        ):
            if table in by_name:  # one that was made since is none of this schema
                type_name = kind.decode() if isinstance(kind, bytes) else str(kind)
                by_name[table]["columns"].append((str(name), type_name, bool(is_key)))
        rows = connection.exec_driver_sql(f"{keys} ORDER BY 1, 2, ordinal_position").fetchall()
        for (table, _, parent), group in groupby(rows, key=lambda row: tuple(row)[:3]):
            child_columns, parent_columns = zip(*((row[3], row[4]) for row in group), strict=True)
            if table in by_name:
                by_name[table]["foreign_keys"].append((list(child_columns), parent, list(parent_columns)))
        return by_name

    def _inspected(self, connection: Any) -> dict[str, TableDetails]:
        import sqlalchemy
        from sqlalchemy.engine.reflection import ObjectKind

        inspector = sqlalchemy.inspect(connection)
        (home,), any_kind = self.home, {"kind": ObjectKind.ANY}
        primary = inspector.get_multi_pk_constraint(schema=home, **any_kind)
        foreign = inspector.get_multi_foreign_keys(schema=home, **any_kind)
        views = {*inspector.get_view_names(schema=home), *inspector.get_materialized_view_names(schema=home)}
        by_name: dict[str, TableDetails] = {}
        for place, columns in inspector.get_multi_columns(schema=home, **any_kind).items():
            keys = set((primary.get(place) or {}).get("constrained_columns") or ())
            links = [key for key in foreign.get(place, []) if key["referred_schema"] in (home, None)]
            by_name[place[1]] = {
                "kind": "view" if place[1] in views else "table",
                "columns": [(column["name"], str(column["type"]), column["name"] in keys) for column in columns],
                "foreign_keys": [
                    (key["constrained_columns"], key["referred_table"], key["referred_columns"]) for key in links
                ],
            }
        return dict(sorted(by_name.items()))

    def close(self) -> None:
        self._engine.dispose()

    def run(self, sql: str, timeout_s: float) -> Rows:
        with self._engine.connect() as connection:
            if self._limits != (limits := self._time_limit(timeout_s)):
                connection.exec_driver_sql(limits)
                self._limits = limits
            result = connection.exec_driver_sql(sql.replace("%", "%%"))
            return list(result.keys()), [tuple(row) for row in result.fetchall()]

    def _time_limit(self, timeout_s: float) -> str:
        if self._is_mariadb:
            return f"SET SESSION max_statement_time = {timeout_s:.3f}"
        setting = "statement_timeout" if self._is_postgres else "SESSION max_execution_time"
        return f"SET {setting} = {max(1, round(1000 * timeout_s))}"

    def _text(self, exc: Exception) -> str:
        cause: Any = getattr(exc, "orig", None) or exc
        message = str(cause.args[-1] if cause.args else cause).split("\n", 1)[0]
        return message.replace(self._secret, "***") if self._secret else message

    def explain(self, exc: Exception) -> Reply:
        """What a client is told of an error, by PostgreSQL's SQLSTATE or MySQL's number."""
        cause: Any = getattr(exc, "orig", None) or exc
        message = self._text(exc)
        if self._is_postgres:
            state = getattr(cause, "sqlstate", None) or ""
        else:
            state = cause.args[0] if cause.args else 0
        if state in ("57014", 1969, 3024):
            return {"kind": "timeout"}
        if state in ("53200", "53400"):
            return {"kind": "memory"}
        if self._is_postgres:
            is_fault = not state or bool(FAULTS.match(state))
        else:
            is_fault = not state or state in MYSQL_FAULTS or state >= 2000
        if is_fault or getattr(exc, "connection_invalidated", False):
            return {"kind": "fault", "message": f"{message}; {LOOK}"}
        return {"kind": "refused" if state in ("42501", "25006", 1142, 1143, 1792) else "error", "message": message}


class Guard:
    """A session and its rules. Raises Unusable."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session = Duck(settings) if settings["dialect"] == "duckdb" else Served(settings)
        self.schema: dict[str, list[str]] = {}
        self.details: dict[str, TableDetails] = {}
        self._read_tables()
        self._rules = Rules(settings["dialect"], self.schema, home=self._session.home, max_rows=settings["max_rows"])

    def _read_tables(self) -> None:
        session, there = self._session, self._session.tables()
        spelled = {name.lower(): name for name in there}
        for wanted in self._settings["tables"] or there:
            name = wanted if wanted in there else spelled.get(wanted.lower())
            if name is None:
                names = ", ".join(there) or "none"
                raise Unusable(f"no table {wanted}; there are: {names}. database.tables names those to read")
            probe = Rules(self._settings["dialect"], {name: []}, home=session.home, max_rows=1)
            try:
                sql = f"SELECT * FROM {quoted(name, self._settings['dialect'])} LIMIT 0"
                columns, _ = session.run(probe.statement(sql), CONNECT_S)
            except session.errors as exc:
                reply = session.explain(exc)
                if self._settings["tables"] or reply["kind"] == "fault":
                    raise Unusable(f"table {name}: {reply.get('message', '')}") from exc
                continue
            self.schema[name], self.details[name] = columns, there[name]
        if not self.schema:
            raise Unusable("no table in it can be read; fill it, or let its user read some")
        for details in self.details.values():
            details["foreign_keys"] = [link for link in details["foreign_keys"] if link[1] in self.schema]

    def run(self, sql: str, *, timeout_s: float) -> Reply:
        """Raises MemoryError, and nothing else for what a statement can do."""
        try:
            names, rows = self._session.run(self._rules.statement(sql), timeout_s)
        except Forbidden as exc:
            return {"kind": "refused" if exc.kind == "refused" else "error", "message": str(exc)}
        except self._session.errors as exc:
            reply = self._session.explain(exc)
            return {**reply, "message": reply.get("message", "").replace(self._rules.mark, "")}
        limits = self._settings
        plain_rows = ([plain(value) for value in row] for row in rows)
        return rows_reply(names, plain_rows, limits, cell_chars=limits["max_result_chars"] // max(1, len(names)))


def plain(value: Any) -> Any:
    """A cell as SQLite would hold it: numbers, texts, bytes, NULL. Dates are written as ISO 8601 has them, spans of
    time and MySQL's times of the day as [-]HH:MM:SS, which all servers read.
    """
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, decimal.Decimal):
        is_whole = value.is_finite() and value == value.to_integral_value()
        return int(value) if is_whole and value.adjusted() <= sys.float_info.max_10_exp else float(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    if isinstance(value, datetime.timedelta):
        return _clock(value)
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if value is None or isinstance(value, int | float | str | bytes):
        return value
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else str(value)


def _clock(span: datetime.timedelta) -> str:
    minutes, seconds = divmod(abs(span), datetime.timedelta(minutes=1))
    fraction = f".{seconds.microseconds:06d}".rstrip("0") if seconds.microseconds else ""
    sign = "-" if span.days < 0 else ""
    return f"{sign}{minutes // 60:02d}:{minutes % 60:02d}:{seconds.seconds:02d}{fraction}"


def opened(settings: Settings) -> Guard:
    """The guard; what a statement takes of this process is bounded from then on. Raises Unusable."""
    try:
        guard = Guard(settings)
    except ImportError as exc:
        raise Unusable(f"needs a package more ({exc}): pip install 'agentgrpo[{settings['dialect']}]'") from exc
    threading.stack_size(1 << 18)
    bound(settings["max_memory_bytes"], NOFILE=32)
    return guard


if __name__ == "__main__":
    serve(opened)
