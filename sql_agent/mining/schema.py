"""The schema of a database as questions need it: tables, views, keys, links, and what each column is good for.

Guarantees: everything is read through the SQL guard alone. A column's role follows from its values. Links are declared
foreign keys, of several columns and to the same table too, and what is named and filled like one. Names are
data: they are quoted wherever they could be anything else. Not covered: virtual tables; names that cannot be printed.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from foundation.errors import UserError
from sql_agent.config import DatabaseConfig, database_place
from sql_agent.environment import sql_worker
from sql_agent.environment.database import Database
from sql_agent.environment.sql_text import as_name
from sql_agent.errors import DatabaseFault
from sql_agent.words.meanings import is_english_word, is_headword

logger = logging.getLogger(__name__)
Value = str | int | float
# key: of rows; flag: two values; code: a number that counts nothing; long: what is no short value.
Role = Literal["key", "category", "number", "year", "code", "date", "text", "flag", "long"]
SAMPLES = 400  # distinct values of a column that are looked at
CATEGORIES = 30  # most values of a category
MAX_VALUE_CHARS = 40
MAX_NUMBER_CHARS = 12  # longer ones are named by four digits, and are no answers
DATE = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]00(?::?00)?)?)?"
)
UNIT = re.compile(r" (kg|lb|km|cm|mm|kwh?|mb|gb|ms|usd|eur|gbp|cents)$")
DATED = re.compile(r"(?<!up)date|day|time|year")
BLOB = re.compile(r"x'[0-9a-f]*['…]")  # as workers write bytes
NAMING = re.compile(r"(?:^| )(?:name|title|label|nombre|título|nom|nome|titel|bezeichnung)$|名称?$", re.I)
CODES = re.compile(
    r"^id |(?:^| )(?:id|code|zip|plz|postcode|phone|status|number|no|nr|n[uú]mero|numéro|c[oó]digo)$|nummer$"
    r"|(?:编号|编码|代码|号码|邮编|电话)$",
    re.I,
)
CODE_DIGITS = 7  # before the point, of numbers that all have as many: days, instants, phones, barcodes
STRUCTURE = re.compile(r"\{.*\}|\[.*\]|<\w.*>", re.DOTALL)  # JSON, lists, markup
LEFT_OUT = "table %r is left out: %s"
MARKS = re.compile(r"<\||\|>|</?(?:tool_|think)")
YEARS = range(1000, 2200)
TYPES = {int: "integer", float: "real", str: "text"}


class Part(BaseModel):
    """Base of what a schema is made of. `dialect`, a name of sqlglot, decides how names are quoted; `said` is what a
    sentence calls it, "" where that is the English of its name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dialect: str = "sqlite"
    said: str = ""


class Column(Part):
    """A column. `samples` are distinct short values that are not NULL; `complete`: no cell is NULL."""

    table: str
    name: str
    role: Role
    samples: tuple[Value, ...] = ()
    unique: bool = False
    complete: bool = True

    @property
    def sql(self) -> str:
        return quoted(self.name, self.dialect)

    @property
    def label(self) -> str:
        """The name in a sentence: "joined" of days is the joined date, "starts" the start date, "founded" of years the
        founded year, "pages" that are counted the number of pages, "is alive" the alive flag, "weight kg" that in kg.
        """
        text = self.said or words(self.name)
        if self.said or not text.isascii():
            return text
        if self.role in ("date", "year") and not DATED.search(text):
            return f"{re.sub(r' (?:on|at|in)$|(?<=[^s ])s$', '', text)} {self.role}"
        counts = self.role == "number" and all(isinstance(value, int) for value in self.samples)
        if counts and " " not in text and one_and_several(text)[0] != text:
            return f"number of {text}"
        return UNIT.sub(r" in \1", re.sub(r"^(?:is|has|was) (.+)", r"\1 flag", text))


class Table(Part):
    """A table or view; `ident` names the column by which people tell its rows apart, "" where there is none."""

    name: str
    is_view: bool = False
    n_rows: int
    columns: tuple[Column, ...]
    ident: str = ""

    @property
    def sql(self) -> str:
        return quoted(self.name, self.dialect)

    @property
    def label(self) -> str:
        """One of its rows in a sentence."""
        return self.said or one_and_several(self.name)[0]

    @property
    def labels(self) -> str:
        """Its rows in a sentence."""
        return self.said or one_and_several(self.name)[1]

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    @property
    def name_column(self) -> Column:
        """The column that `ident` names; only of a table that has one."""
        return self.column(self.ident)

    def having(self, *roles: Role) -> list[Column]:
        """The columns of these roles that are not the name."""
        return [column for column in self.columns if column.role in roles and column.name != self.ident]


class Link(Part):
    """A foreign key: `columns` of `table` hold `parent_columns` of `parent`, one for one."""

    table: str
    columns: tuple[str, ...]
    parent: str
    parent_columns: tuple[str, ...]

    @property
    def own_ends(self) -> set[tuple[str, str]]:
        """Table and column of what refers."""
        return {(self.table, column) for column in self.columns}

    @property
    def parent_ends(self) -> set[tuple[str, str]]:
        """Table and column of what is referred to."""
        return {(self.parent, column) for column in self.parent_columns}

    def on(self, table: str, parent: str) -> str:
        """The condition of a join, its sides as SQL calls them."""
        return " AND ".join(
            f"{table}.{quoted(own, self.dialect)} = {parent}.{quoted(theirs, self.dialect)}"
            for own, theirs in zip(self.columns, self.parent_columns, strict=True)
        )


class Schema(Part):
    """Everything that questions are made of."""

    tables: tuple[Table, ...]
    links: tuple[Link, ...] = ()

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)


def quoted(name: str, dialect: str = "sqlite") -> str:
    """A name as SQL reads it as a name, whatever it holds; quoted where it must be, and beyond ASCII."""
    return as_name(name, dialect) if name.isascii() else sql_worker.quoted(name, dialect)


def literal(value: Value) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def words(name: str) -> str:
    """birthDate, birth_date -> birth date; VATNumber -> vat number; power_kW -> power kw. A name without letters stays
    as it is."""
    parted = re.sub(r"(?<=[a-z0-9]{2})(?=[A-Z])|(?<=[A-Z]{2})(?=[A-Z][a-z]{2})", " ", name)
    return " ".join(re.sub(r"[_\W]+", " ", parted).split()).lower() or name.strip()


@cache
def one_and_several(name: str) -> tuple[str, str]:
    """What a row and rows of this table are called, where the name is English; another language has one form."""
    import inflect  # takes seconds

    text = words(name)
    if not text.isascii() or not text[-1].isalpha():
        return text, text
    english = inflect.engine()
    singular = str(english.singular_noun(text) or text)
    known, known_one = (is_headword(noun.rpartition(" ")[2]) for noun in (text, singular))
    turns_back = english.singular_noun(english.plural_noun(text)) == text
    if f"{singular}s" == text and known >= known_one and (known > known_one or turns_back):
        singular = text  # "bus" and "analysis" are no plurals
    return singular, str(english.plural_noun(singular))


def read_schema(database: str, *, tables: Sequence[str] = (), language: str = "en") -> Schema:
    """The schema of a SQLite file or of a URL as `database.url` has it, of `tables` alone where some are named, for
    sentences in `language`.

    Raises UserError.
    """
    config = config_of(database, tables=list(tables), max_rows=SAMPLES, timeout_s=20)
    try:
        with Database(config, database_place(config)) as opened:
            readable, links = _read(opened)
    except DatabaseFault as exc:
        if (told := str(exc).removesuffix(". database.tables names those to read")) != str(exc):
            raise UserError(f"{told}; name one of them with --table") from exc
        if "not a SQLite" not in str(exc):
            raise UserError(str(exc)) from exc
        of_csv = "of a CSV make one: sqlite3 NEW.db '.import --csv FILE.csv TABLE'"
        place = f"a SQLite file ({of_csv}), or a URL such as duckdb:///FILE"
        raise UserError(f"{exc}; here DATABASE is {place}") from exc
    if not readable:
        virtual = "copy a virtual one (FTS5 and others): CREATE TABLE NEW AS SELECT * FROM OLD"
        raise UserError(
            f"database {database}: no table with rows can be read; fill one, name it (--table), or {virtual}"
        )
    known = {(table.name, column.name) for table in readable for column in table.columns}
    known_links = [link for link in links if link.own_ends <= known and link.parent_ends <= known]
    return Schema(tables=tuple(_said(readable, language)), links=tuple(known_links), dialect=config.dialect)


def _read(database: Database) -> tuple[list[Table], list[Link]]:
    """The tables that have rows, and all links between tables, also to those that have none."""
    details = dict(sorted(database.details().items()))
    for name, about in [*details.items()]:
        if about["kind"] == "virtual" or not is_sayable(name):
            logger.warning(LEFT_OUT, name, "it is virtual" if is_sayable(name) else "its name cannot be printed")
            del details[name]
    links = [
        Link(table=name, columns=tuple(own), parent=parent, parent_columns=tuple(theirs), dialect=database.dialect)
        for name, about in details.items()
        for own, parent, theirs in sorted(about["foreign_keys"])
    ]
    keys = {(name, column) for name, about in details.items() for column, _, is_key in about["columns"] if is_key}
    keys.update(*(link.own_ends for link in links))
    readable = [_table(database, name, about["kind"] == "view", keys) for name, about in details.items()]
    tables = [table for table in readable if table]
    implied = list(_implied(database, tables, links))
    return [_with_keys(table, implied) for table in tables], links + implied


def config_of(database: str, **keys: Any) -> DatabaseConfig:
    """The section `database` of a file or URL. Raises UserError."""
    try:
        return DatabaseConfig.model_validate({"url" if "://" in database else "path": database, **keys})
    except ValidationError as exc:
        raise UserError("; ".join(str(error["msg"]).removeprefix("Value error, ") for error in exc.errors())) from exc


def _implied(database: Database, tables: Sequence[Table], links: Sequence[Link]) -> Iterator[Link]:
    """Links that nobody declared: customer_id, where all of its values are keys of customers."""
    known = {end for link in links for end in link.own_ends}
    keys = {table.label: (table, key) for table in tables for key in table.columns if key.role == "key" and key.unique}
    for table in tables:
        for column in table.columns:
            parent, key = keys.get(without_id(column.label), (table, column))
            if parent is table or (table.name, column.name) in known or without_id(column.label) == column.label:
                continue
            if table.is_view and column.unique:
                continue  # its rows are those of the parent, shown otherwise
            stray = f"{column.sql} IS NOT NULL AND {column.sql} NOT IN (SELECT {key.sql} FROM {parent.sql})"
            if database.query_sync(f"SELECT COUNT(*) FROM {table.sql} WHERE {stray}").rows == [[0]]:
                yield Link(
                    dialect=table.dialect,
                    table=table.name,
                    columns=(column.name,),
                    parent=parent.name,
                    parent_columns=(key.name,),
                )


def without_id(label: str) -> str:
    """customer id, id cliente, Abteilung_ID -> customer, cliente, Abteilung."""
    return re.sub(r"(?:^|[ _])id(?![^ _])", "", label, flags=re.I).strip(" _")


def _with_keys(table: Table, links: Sequence[Link]) -> Table:
    """The table, its columns of these links as keys."""
    keys = {end for link in links for end in link.own_ends}
    columns = tuple(
        column.model_copy(update={"role": "key"}) if (table.name, column.name) in keys else column
        for column in table.columns
    )
    return table.model_copy(update={"columns": columns})


def _said(tables: list[Table], language: str) -> list[Table]:
    """The tables, with names said as they stand where sentences or most names are not English, or where two would be
    called alike.
    """
    plain = language == "en" and is_english(tables)

    def labelled[Named: (Table, Column)](parts: Sequence[Named]) -> list[Named]:
        alike = Counter(part.label for part in parts)
        is_clear = {label: plain and n == 1 for label, n in alike.items()}
        return [part if is_clear[part.label] else part.model_copy(update={"said": part.name}) for part in parts]

    return [table.model_copy(update={"columns": tuple(labelled(table.columns))}) for table in labelled(tables)]


def is_english(tables: Sequence[Table]) -> bool:
    """Whether at least half of the words in the names of tables and columns are English, by WordNet."""
    names = [name for table in tables for name in (table.name, *(column.name for column in table.columns))]
    parts = {part for name in names for part in words(name).split() if len(part) > 2 and part.isalpha()}
    return 2 * sum(map(is_english_word, parts)) >= len(parts)


def is_sayable(text: str) -> bool:
    """Whether a text can stand in a prompt: no control characters, no marks of a chat template."""
    return text.isprintable() and bool(text.strip()) and not MARKS.search(text)


def _table(database: Database, name: str, is_view: bool, keys: set[tuple[str, str]]) -> Table | None:
    """One table; None where it has no rows, or cannot be read by itself."""
    source, dialect = quoted(name, database.dialect), database.dialect
    counted = database.query_sync(f"SELECT COUNT(*) FROM {source}")
    first = database.query_sync(f"SELECT * FROM {source} LIMIT 1")
    if not counted.ok or not first.rows:
        logger.warning(LEFT_OUT, name, counted.error or first.error or "it has no rows")
        return None
    n_rows = counted.rows[0][0]
    readable = [_column(database, name, column, n_rows, (name, column) in keys) for column in database.schema()[name]]
    columns = tuple(column for column in readable if column)
    return Table(name=name, dialect=dialect, is_view=is_view, n_rows=n_rows, columns=columns, ident=_ident(columns))


def _column(database: Database, table: str, name: str, n_rows: int, is_key: bool) -> Column | None:
    dialect = database.dialect
    column, source = quoted(name, dialect), f"FROM {quoted(table, dialect)}"
    counts = database.query_sync(f"SELECT COUNT({column}), COUNT(DISTINCT {column}) {source}")
    some = f"SELECT DISTINCT {column} {source} WHERE {column} IS NOT NULL"
    some += "" if dialect == "sqlite" else " ORDER BY 1"  # servers find rows in any order
    sampled = database.query_sync(f"{some} LIMIT {SAMPLES}")
    if not (counts.ok and sampled.ok):
        logger.warning("column %s of %s is left out: %s", name, table, counts.error or sampled.error)
        return None
    if not is_sayable(name):
        return None
    n_filled, n_distinct = counts.rows[0]
    values = [row[0] for row in sampled.rows]
    types = _types(database, column, source, values)
    short = [value for value in values if _is_short(value)]
    few = n_distinct <= CATEGORIES and n_distinct <= n_filled / 2
    role = _role(name, types, values, short, few=few, is_key=is_key)
    if role == "date":  # a word among many days is the first or the last of them: no day is after "unknown"
        ends = database.query_sync(f"SELECT MIN({column}), MAX({column}) {source}")
        role = "date" if ends.ok and all(DATE.fullmatch(str(end)) for end in ends.rows[0]) else "text"
    about = {"unique": n_filled == n_distinct and n_filled > 1, "complete": n_filled == n_rows}
    alike = Counter(str(value).strip().casefold() for value in values)  # "open" beside "Open": a reader means both
    alone = [value for value in short if alike[str(value).casefold()] == 1]
    samples = tuple(dict.fromkeys(float(f"{value:.4g}") if is_long_number(value) else value for value in alone))
    return Column(table=table, name=name, dialect=dialect, role=role, samples=samples, **about)


def _types(database: Database, column: str, source: str, values: Sequence[Value]) -> set[str]:
    """What the cells hold. SQLite's differ from cell to cell; elsewhere all have that of the column."""
    if database.dialect != "sqlite":
        return {"blob" if BLOB.fullmatch(str(value)) else TYPES[type(value)] for value in values}
    kinds = database.query_sync(f"SELECT DISTINCT typeof({column}) {source}")
    return {row[0] for row in kinds.rows} - {"null"} if kinds.ok else {"blob"}


def is_long_number(value: object) -> bool:
    """Whether a number has more digits than a person says."""
    return isinstance(value, float) and len(repr(value)) > MAX_NUMBER_CHARS


def _is_short(value: Value) -> bool:
    """Whether a value fits into a sentence."""
    if not isinstance(value, str):
        return abs(value) < 1e12
    if not 0 < len(value) <= MAX_VALUE_CHARS or value != value.strip() or "…" in value:
        return False
    return is_sayable(value) and not STRUCTURE.fullmatch(value)


def _role(name: str, types: set[str], values: list[Value], short: list[Value], *, few: bool, is_key: bool) -> Role:
    if is_key:
        return "key"
    if not short or len(short) < 0.9 * len(values) or "blob" in types or len(types - {"integer", "real"}) > 1:
        return "long"
    if len(short) < 2:
        return "flag"
    if types <= {"integer", "real"}:
        return _number_role(words(name), [value for value in short if not isinstance(value, str)], types)
    texts = [str(value) for value in short]
    alike = len({text[10:11] for text in texts}) == 1  # 2020-01-01T10:00 and 2020-01-01 10:00 sort by their form
    if alike and sum(bool(DATE.fullmatch(text)) for text in texts) >= 0.95 * len(texts):
        return "date"
    return "category" if few else "text"


def _number_role(label: str, values: list[int | float], types: set[str]) -> Role:
    whole = types == {"integer"}
    if len(values) <= 2:
        return "flag"
    years = YEARS if "year" in label else range(1800, 2100)
    if whole and all(value in years for value in values):
        return "year"
    lengths = {len(str(int(value))) for value in values}
    alike = len(lengths) == 1 and min(lengths) >= CODE_DIGITS
    return "code" if alike or (whole and CODES.search(label)) else "number"


def _ident(columns: Sequence[Column]) -> str:
    """A unique column: a text that is called a name, or reads as one; else a key or a code."""
    roles = ("text", "category", "key", "code")
    unique = [column for column in columns if column.unique and column.complete and column.role in roles]
    texts = [column for column in unique if column.samples and all(isinstance(v, str) for v in column.samples)]
    named = [column for column in texts if NAMING.search(column.label)]
    like_names = [column for column in texts if all(map(reads_as_name, column.samples))]
    best = [*named, *like_names, *unique]
    return best[0].name if best else ""


def reads_as_name(value: Value) -> bool:
    """Whether a value is a text with as many letters as digits: no zip code, no price."""
    return isinstance(value, str) and sum(map(str.isalpha, value)) >= max(1, sum(map(str.isdigit, value)))
