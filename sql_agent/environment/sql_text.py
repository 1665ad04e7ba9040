"""Text around the SQL guard: cleaning what the model wrote, and wording what went wrong so that the model can mend it.

Pure functions. Cleaning never changes the inside of a literal, a quoted name or a comment. Nothing here is a security
boundary: that is `sql_worker.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from rapidfuzz import fuzz, process

from foundation.errors import AgentGRPOError
from sql_agent.environment.sql_worker import FUNCTIONS, MAX_SQL_CHARS, Reply, quoted

MAX_MESSAGE_CHARS = 200
MAX_COLUMNS_CHARS = 300
QUOTES = '"`'
FULL_WIDTH = str.maketrans("；，（）＝＜＞＊＋－／％．！｜　\u00a0", ";,()=<>*+-/%.!|  ")
Schema = dict[str, list[str]]

# The word after a fence names the language, unless the query begins there.
_FENCE_TAG = re.compile(r"[ \t]*(?:(?!(?:select|with)\b)[A-Za-z0-9_+-]+[ \t]*\r?\n|sql(?:ite3?)?\b)?", re.IGNORECASE)
# SQLite ends a `--` comment at \n only. An alternative always matches, so there is nothing to backtrack into.
_PIECES = re.compile(
    r"""'(?:[^']|'')*'? | "(?:[^"]|"")*"? | `(?:[^`]|``)*`? | \[[^\]]*\]? | --[^\n]* | /\*.*?(?:\*/|\Z) | .""",
    re.DOTALL | re.VERBOSE,
)
_LEADING = re.compile(r"(?:\s|;|--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z))*", re.DOTALL)
_QUERY = re.compile(r"(?:SELECT|WITH)(?![A-Za-z])", re.IGNORECASE)
# https://www.sqlite.org/lang_keywords.html
KEYWORD_LIST = """
    ABORT ACTION ADD AFTER ALL ALTER ALWAYS ANALYZE AND AS ASC ATTACH AUTOINCREMENT BEFORE BEGIN BETWEEN BY CASCADE
    CASE CAST CHECK COLLATE COLUMN COMMIT CONFLICT CONSTRAINT CREATE CROSS CURRENT CURRENT_DATE CURRENT_TIME
    CURRENT_TIMESTAMP DATABASE DEFAULT DEFERRABLE DEFERRED DELETE DESC DETACH DISTINCT DO DROP EACH ELSE END ESCAPE
    EXCEPT EXCLUDE EXCLUSIVE EXISTS EXPLAIN FAIL FILTER FIRST FOLLOWING FOR FOREIGN FROM FULL GENERATED GLOB GROUP
    GROUPS HAVING IF IGNORE IMMEDIATE IN INDEX INDEXED INITIALLY INNER INSERT INSTEAD INTERSECT INTO IS ISNULL JOIN KEY
    LAST LEFT LIKE LIMIT MATCH MATERIALIZED NATURAL NO NOT NOTHING NOTNULL NULL NULLS OF OFFSET ON OR ORDER OTHERS OUTER
    OVER PARTITION PLAN PRAGMA PRECEDING PRIMARY QUERY RAISE RANGE RECURSIVE REFERENCES REGEXP REINDEX RELEASE RENAME
    REPLACE RESTRICT RETURNING RIGHT ROLLBACK ROW ROWS SAVEPOINT SELECT SET TABLE TEMP TEMPORARY THEN TIES TO
    TRANSACTION TRIGGER UNBOUNDED UNION UNIQUE UPDATE USING VACUUM VALUES VIEW VIRTUAL WHEN WHERE WINDOW WITH WITHOUT
    TRUE FALSE
"""
KEYWORDS = frozenset(KEYWORD_LIST.split())
_PLAIN = re.compile(r"[^\W\d]\w*")
_NEAR = re.compile(r'near "(\w+)": syntax error')
# What other databases know and SQLite does not: searched for in a statement that failed, and in the error.
_HINTS = {
    r"\bilike\b": "SQLite has no ILIKE: LIKE ignores the case of ASCII letters",
    r"\bselect\s+(?:distinct\s+)?top\b|\bfetch\s+(?:first|next)\b": "SQLite has no TOP and FETCH: end with LIMIT n",
    r"\bconcat(?:_ws)?\s*\(": "SQLite has no CONCAT: join texts with a || b",
    r"\b(?:now|getdate|curdate|sysdate)\s*\(": "SQLite has no NOW(): use datetime('now') or date('now')",
    r"\b(?:year|month|day|date_format|to_char)\s*\(": "SQLite formats dates with strftime('%Y-%m-%d', x)",
    r"\b(?:charindex|locate|position)\s*\(": "SQLite finds y in x with instr(x, y)",
    r"\b(?:left|right)\s*\(": "SQLite has no LEFT() and RIGHT(): use substr(x, 1, n) or substr(x, -n)",
    r"\bregexp\b|\brlike\b|\bsimilar\s+to\b": "SQLite has no regular expressions here: use LIKE or GLOB",
    r"\bjson_group_(?:array|object)\s*\(": "use group_concat(x, ',')",
    r"::": "SQLite casts with CAST(x AS TEXT)",
    r"[“”‘’]": "write straight quotes, 'text' and \"name\", instead of curly ones",
    r"expression tree is too large": "write x IN (a, b, ...) instead of a chain of OR",
}


class UnusableSQL(AgentGRPOError, ValueError):
    """The argument cannot be a query; the text is for the model."""


def clean_sql(sql: object) -> str:
    """The statement without code fence, outer blanks and semicolons, leading comments; full-width marks made ASCII.

    Raises UnusableSQL for anything that is not a text of 1 to 20,000 characters without NUL and lone surrogates.
    """
    if not isinstance(sql, str):
        raise UnusableSQL(f"sql must be a string, not {type(sql).__name__}")
    if len(sql) > MAX_SQL_CHARS:
        raise UnusableSQL(f"sql has {len(sql):,} characters, at most {MAX_SQL_CHARS:,} are allowed")
    if "\0" in sql:
        raise UnusableSQL("sql contains a NUL character")
    if not sql.isascii() and any("\ud800" <= c <= "\udfff" for c in sql):
        raise UnusableSQL("sql contains a broken character (a lone surrogate)")
    cleaned = _half_width(_strip_fence(sql.strip())).strip(" \t\r\n\f\v;\ufeff")
    if not cleaned:
        raise UnusableSQL("sql is empty")
    return _LEADING.sub("", cleaned, count=1)


def _strip_fence(sql: str) -> str:
    if not sql.startswith("```"):
        return sql
    inside = sql[3:].removesuffix("```")
    return _FENCE_TAG.sub("", inside, count=1)


def _half_width(sql: str) -> str:
    if sql.isascii():
        return sql
    return _PIECES.sub(lambda m: m[0].translate(FULL_WIDTH) if len(m[0]) == 1 else m[0], sql)


def is_query(sql: str) -> bool:
    """True when the first word of a cleaned statement is SELECT or WITH."""
    return _QUERY.match(sql) is not None


def refusal(schema_tables: list[str]) -> str:
    """What the model hears for anything but a query."""
    return f"only a single SELECT over {', '.join(schema_tables)} is allowed"


def explain_reply(reply: Reply, *, sql: str, schema: Schema, timeout_s: float, dialect: str = "sqlite") -> str:
    """The error text for the model: short, with the nearest names and the columns it may use."""
    message = reply.get("message", "")
    match reply["kind"]:
        case "timeout":
            return f"the query was stopped after {timeout_s:g} s; make it simpler or add conditions"
        case "memory":
            return "the query needs too much memory; select fewer rows or columns, or add conditions"
        case "crash":
            return "the query ended the database process; make it simpler"
    hints: list[str] = []
    if dialect == "sqlite":
        outside_quotes = _PIECES.sub(lambda m: m[0] if len(m[0]) == 1 else "''", sql)
        text = f"{message}\n{outside_quotes}"
        hints = [hint for pattern, hint in _HINTS.items() if re.search(pattern, text, re.IGNORECASE)][:2]
        names = {name.lower() for table, columns in schema.items() for name in (table, *columns)}
        if (near := _NEAR.match(message)) and near[1].lower() in names and near[1].upper() in KEYWORDS:
            hints.append(f'{near[1]} is a word of SQL: write the name as "{near[1]}", in double quotes')
    schema = as_written(schema, dialect)
    if reply["kind"] == "refused":
        return "; ".join([_explain_refusal(message, schema), *hints])
    kind, _, name = message.partition(": ")
    if kind == "no such table":
        message = _explain_table(name, schema)
    elif kind == "no such column":
        message = _explain_column(name, sql=sql, schema=schema)
    elif kind == "no such function" and not hints:
        message = f"{_cut(message)}{_did_you_mean(_nearest(name, sorted(FUNCTIONS)))}"
    else:
        message = _cut(message)
    return "; ".join([message, *hints])


def _did_you_mean(names: list[str]) -> str:
    return f"; did you mean {' or '.join(names)}?" if names else ""


def _explain_refusal(message: str, schema: Schema) -> str:
    if "use function" in message:
        return f"the function {_cut(message.rpartition(': ')[2])} is not available"
    if "prohibited" in message or "vtable" in message:
        return f"{refusal(list(schema))}{_columns_of(list(schema), schema)}"
    return refusal(list(schema))


def _explain_table(name: str, schema: Schema) -> str:
    near = _nearest(name.rpartition(".")[2], list(schema))
    hint = _did_you_mean(near[:1]) or f"; tables: {', '.join(schema)}"
    return f"no such table: {_cut(name)}{hint}{_columns_of(near[:1] or list(schema), schema)}"


def _explain_column(name: str, *, sql: str, schema: Schema) -> str:
    bare = {table: re.escape(table.strip(QUOTES)) for table in schema}
    used = [table for table in schema if re.search(rf"(?<!\w){bare[table]}(?!\w)", sql, re.IGNORECASE)]
    tables = used or list(schema)
    near = _nearest(name.rpartition(".")[2], [column for table in tables for column in schema[table]])
    return f"no such column: {_cut(name)}{_did_you_mean(near)}{_columns_of(tables, schema)}"


def _nearest(name: str, names: list[str]) -> list[str]:
    """Up to two names like `name`, the likest first, never one twice."""
    matches = process.extract(name.lower(), list(dict.fromkeys(names)), scorer=fuzz.ratio, limit=2, score_cutoff=55)
    return [match[0] for match in matches]


def _columns_of(tables: list[str], schema: Schema) -> str:
    text = "; ".join(f"columns of {table}: {', '.join(schema[table])}" for table in tables)
    return f"; {text}" if len(text) <= MAX_COLUMNS_CHARS * len(tables) else ""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE_CHARS else text[:MAX_MESSAGE_CHARS] + "…"


def as_name(name: str, dialect: str = "sqlite") -> str:
    """A name as SQL reads it as a name, whatever it holds; quoted only where it must be."""
    folds = dialect == "postgres" and name != name.lower()
    plain = _PLAIN.fullmatch(name) and not folds and name.upper() not in _reserved(dialect)
    return name if plain else quoted(name, dialect)


def as_written(schema: Schema, dialect: str) -> Schema:
    """The schema with its names as a query has them: what the model is shown it copies."""
    return {as_name(table, dialect): [as_name(name, dialect) for name in names] for table, names in schema.items()}


@cache
def _reserved(dialect: str) -> frozenset[str]:
    """What is no name without quotes, in upper case: for a database, or for who reads its SQL before it."""
    if dialect == "sqlite":
        return KEYWORDS
    import sqlglot

    keywords = (sqlglot.Dialect.get_or_raise(name).tokenizer_class.KEYWORDS for name in ("sqlite", dialect))
    return KEYWORDS.union(*keywords, map(str.upper, _words_of(dialect)))


def _words_of(dialect: str) -> Iterable[str]:
    """The reserved words of a dialect; of mysql those of MySQL and MariaDB."""
    if dialect == "duckdb":
        import duckdb

        words = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
        with duckdb.connect() as connection:
            return [name for (name,) in connection.execute(words).fetchall()]
    from sqlalchemy.dialects.mysql.reserved_words import RESERVED_WORDS_MARIADB, RESERVED_WORDS_MYSQL
    from sqlalchemy.dialects.postgresql.base import RESERVED_WORDS

    return RESERVED_WORDS_MYSQL | RESERVED_WORDS_MARIADB if dialect == "mysql" else RESERVED_WORDS
