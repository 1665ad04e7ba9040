"""Questions with reference SQL and answers, made of a schema and its values, in splits that share nothing.

Guarantees: every reference ran through the SQL guard and found something that its condition decides: no empty result,
no NULL, no tie at the end of a ranking, no list that a person would not read, no answer that the question names. An
answer is the rows' values with their type, and the offline judge pays it. Held out are values (in `val`,
`test`), wordings (`test_wordings`) and tables (`test_tables`); what the leak check of curation finds in `train` is
left out. The same file, seed and language give the same questions. Not covered: a value that two columns share under
two spellings.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import batched, islice
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from sql_agent.config import database_place
from sql_agent.curation.leaks import find_leaks
from sql_agent.curation.rows import Row
from sql_agent.environment.database import N_FULL, Database
from sql_agent.mining.asks import MOST_ROWS, Ask, Maker
from sql_agent.mining.schema import Column, Schema, Value, config_of, is_long_number
from sql_agent.offline_judge import judge
from sql_agent.offline_judge.typed import is_value
from sql_agent.records import QueryResult, Question
from sql_agent.scoring.scorers import cells_of, value_kind

WORDINGS = Path(__file__).with_name("wordings.yaml")
HELD_WORDINGS = 2
SIZES = {"train": 800, "val": 64, "test": 120, "test_wordings": 120, "test_tables": 120}
SHARES = {"train": 0.6, "val": 0.1, "test": 0.3}  # of the values
TRIES = 40  # per question that is wanted; a small database has fewer
TABLES_PER_HELD = 6
PAID = 0.95  # by the offline judge: what the reference itself earns at least
LEAST_TABLES = 4  # with names, before one of them is held out
Run = Callable[[str], QueryResult]


class Try(NamedTuple):
    """What may become a question: its words, and which wording of its kind these are."""

    ask: Ask
    text: str
    wording: str


@dataclass(frozen=True)
class Mined:
    """The questions of each split, why others were dropped, and the tables that training questions do not touch.
    `phrased` says how many are in a language model's words, "" where none was asked; `slowest_s` is how long the
    slowest of their references ran.
    """

    splits: dict[str, list[Question]]
    dropped: Counter[str]
    held_tables: list[str]
    phrased: str = ""
    slowest_s: float = field(default=0.0, compare=False)


@cache
def wordings(language: str) -> dict[str, Any]:
    """Kind -> wordings, and under "how" the words of a language for directions and amounts."""
    return yaml.safe_load(WORDINGS.read_text(encoding="utf-8"))[language]


def shown_wordings(language: str, kind: str, *, held: bool = False) -> list[str]:
    """The wordings of a kind that training knows, or those held out."""
    every = wordings(language)[kind]
    return every[-HELD_WORDINGS:] if held else every[:-HELD_WORDINGS]


def worded(ask: Ask, wording: str, language: str) -> str:
    how = wordings(language)["how"]
    text = wording.format_map(ask.slots | {"how": how.get(ask.slots.get("how"), "")})
    return text[0].upper() + text[1:] if language == "en" else text


@lru_cache(maxsize=1 << 16, typed=True)  # 1 and 1.0 are two texts
def side_of(value: Value, seed: int) -> str:
    """The split that a value, or the query of a question without one, belongs to."""
    digest = hashlib.sha256(f"{seed} {str(value).strip().casefold()}".encode()).digest()
    share = int.from_bytes(digest[:4], "big") / 2**32
    for name, part in SHARES.items():
        if share < part:
            return name
        share -= part
    return "test"


def held_tables(schema: Schema, seed: int) -> list[str]:
    """Tables for `test_tables` alone: about one of six, those with the fewest links first."""
    named = [t for t in schema.tables if t.ident and len(t.having("category", "number", "year", "date", "text")) > 1]
    if len(named) < LEAST_TABLES:
        return []
    n_links = Counter(name for link in schema.links for name in (link.table, link.parent))
    digests = {table.name: hashlib.sha256(f"{seed} {table.name}".encode()).hexdigest() for table in named}
    named.sort(key=lambda table: (n_links[table.name], digests[table.name]))
    return sorted(table.name for table in named[: max(1, len(schema.tables) // TABLES_PER_HELD)])


def database_of(schema: Schema, database: str) -> Database:
    """The file or URL, its tables of the schema alone."""
    config = config_of(database, tables=[table.name for table in schema.tables], timeout_s=30)
    return Database(config, database_place(config))


def mine_questions(
    schema: Schema, database: str, *, language: str, seed: int, sizes: Mapping[str, int] = SIZES
) -> Mined:
    """Questions about a file or URL, in the splits of `sizes`. Raises DatabaseFault where it fails."""
    held_out = held_tables(schema, seed)
    dropped = Counter[str]()
    taken = set[str]()
    splits: dict[str, list[Question]] = {}
    slowest_s = 0.0
    with database_of(schema, database) as opened:
        run = cache(opened.query_sync)  # splits and conditions ask for the same again and again
        for split, size in sizes.items():
            tries = islice(_tries(schema, split, held_out=held_out, seed=seed, language=language), TRIES * size)
            chosen: list[Question] = []
            for tried, result, why in checked(filter(None, tries), run) if size else ():
                dropped[why] += bool(why)
                key = tried.ask.query.sql + (tried.wording if split == "train" else "")
                if not why and key not in taken:
                    taken.add(key)
                    slowest_s = max(slowest_s, result.elapsed_s)
                    chosen.append(_question(tried, result, split, number=len(chosen) + 1))
                if len(chosen) == size:
                    break
            splits[split] = chosen
    return Mined(without_leaks(splits, dropped), dropped, held_out, slowest_s=slowest_s)


def without_leaks(splits: dict[str, list[Question]], dropped: Counter[str]) -> dict[str, list[Question]]:
    """The splits, without what of `train` gives a held-out question away; `dropped` counts it."""
    held_out = [question for name, questions in splits.items() if name != "train" for question in questions]
    leaks = find_leaks(_rows(splits["train"]), _rows(held_out))
    guilty = {leak.train.question.id for leak in leaks}
    dropped["gives a held-out question away"] += len(guilty)
    return {**splits, "train": [question for question in splits["train"] if question.id not in guilty]}


def _rows(questions: list[Question]) -> list[Row]:
    return [Row(number, question, {}) for number, question in enumerate(questions, start=1)]


def _tries(schema: Schema, split: str, *, held_out: list[str], seed: int, language: str) -> Iterator[Try | None]:
    """Without end: what may be a question of a split, once each, and None for what may not."""
    rng = random.Random(f"{seed} {split}")
    side = split if split in SHARES else "test"
    tried = set[tuple[str, str]]()

    def pick(column: Column) -> Value | None:
        mine = [value for value in column.samples if side_of(value, seed) == side]
        return rng.choice(mine) if mine else None

    maker = Maker(schema, rng, pick)
    while True:
        ask = maker.draw()
        fits = ask and bool(ask.tables & {*held_out}) == (split == "test_tables")
        if not ask or not fits or any(side_of(value, seed) != side for value in ask.values or [ask.query.sql]):
            yield None
            continue
        shown = shown_wordings(language, ask.kind, held=split == "test_wordings")
        number = rng.randrange(len(shown))
        text = worded(ask, shown[number], language)
        yield None if (ask.query.sql, text) in tried else Try(ask, text, f"{ask.kind}/{number}")
        tried.add((ask.query.sql, text))


def checked(tries: Iterable[Try], run: Run) -> Iterator[tuple[Try, QueryResult, str]]:
    """Each with its result and why it is no question, or "", in their order; some run ahead at once."""

    def check(tried: Try) -> tuple[QueryResult, str]:
        result = run(tried.ask.query.sql)
        return result, trivial(tried.ask, result, run)

    with ThreadPoolExecutor(N_FULL) as pool:
        for batch in batched(tries, 2 * N_FULL):
            for tried, (result, why) in zip(batch, pool.map(check, batch), strict=True):
                yield tried, result, why or unfit(tried.text, result)


def trivial(ask: Ask, result: QueryResult, run: Run) -> str:
    """Why the result of an ask is no answer, or ""."""
    if not result.ok:
        return "a query that fails"
    cells = [cell for row in result.rows for cell in row]
    if not cells or None in cells or (ask.query.heads[0][1] is None and cells == [0]):
        return "an empty result"
    if len(result.rows) > min(ask.n_rows, MOST_ROWS) or result.truncated:
        return "too many rows"
    if any(map(is_long_number, cells)):
        return "a number of too many digits"
    if ask.kind == "compare" and len(result.rows) < 2:
        return "an empty result"
    if ask.flat and run(ask.flat).rows == result.rows:
        return "a condition that changes nothing"
    if ask.ranked:
        figures = [row[0] for row in run(ask.ranked).rows]
        if len(figures) < ask.n_ranked or len({*figures}) < len(figures):
            return "a tie in a ranking"
    return ""


def unfit(question: str, result: QueryResult) -> str:
    """Why an answer cannot be graded, or ""."""
    answer = answer_of(result)
    cells = cells_of([result])
    if len({*map(str, result.rows)}) < len(result.rows):
        return "the same row twice"
    if not is_value(question=question, reference=answer, evidence=[cell.text for cell in cells]):
        known = any(cell.text.casefold() in question.casefold() for cell in cells)
        return "an answer that the question names" if known or question.isascii() else ""
    kind = value_kind(Question(id="", question=question, answer=answer), cells) or "text"  # as in training
    verdict = judge.grade(question=question, reference=answer, answer=answer, evidence=cells, kind=kind)
    return "" if verdict and verdict.value >= PAID else "an answer that the judge does not pay"


def answer_of(result: QueryResult) -> str:
    """The values of the rows: those of one column, or of one row, in a list; else each row's name before its value."""
    if len(result.rows) == 1 or len(result.columns) == 1:
        return ", ".join(str(cell) for row in result.rows for cell in row)
    return ", ".join(f"{name} = {value}" for name, value in result.rows)


def _question(tried: Try, result: QueryResult, split: str, *, number: int) -> Question:
    ask = tried.ask
    column = ask.query.heads[0][1]
    if len(result.rows) > 1 or len(result.columns) > 1:
        kind = "list"
    elif not isinstance(result.rows[0][0], str):
        kind = "number"
    else:
        kind = "date" if column and column.role == "date" else "text"
    about = {"type": kind, "tables": sorted(ask.tables), "values": list(ask.values), "split": split}
    return Question(
        id=f"{split}-{number}",
        question=tried.text,
        answer=answer_of(result),
        task_type=ask.kind,
        sql=[ask.query.sql],
        meta={"wording": tried.wording, **about},
    )
