"""What partial credit pays to queries that game it: `python benchmarks/partial_credit.py mined/shop mined/library`.

The folders are those of `agentgrpo mine`; their held-out questions (`test.jsonl`) have reference queries. Each strategy
turns a reference into what a policy could send that read the question only as far as the line says; all run through
the guard. Figures are means over the questions: `sql_result`, `sql_partial`, and what each key alone would pay
(columns, precision and recall of rows), whose product `sql_partial` is. Near misses stand below, for contrast: what
partial credit is there to pay. Queries that fail, or that the question has no place for, are left out; `sql_result` is
the share of lucky ones, which both scorers pay in full.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Annotated

import sqlglot
import typer
from sqlglot import exp

from sql_agent.config import build_config, database_place, load_recipe
from sql_agent.data.dataset import load_questions
from sql_agent.environment.database import Database
from sql_agent.scoring.result_match import agreement, is_ordered, nearness, same_results

Rows = list[tuple[object, ...]]
KEYS = ("sql_result", "sql_partial", "columns", "precision", "recall")


def tables(query: exp.Query) -> str:
    parts = [query.args.get("from_"), *query.args.get("joins", [])]
    return " ".join(part.sql("sqlite") for part in parts if part)


def one_table(query: exp.Query) -> str:
    table = query.find(exp.Table)
    return f"FROM {table.sql('sqlite')}" if table else ""


def bare(query: exp.Query) -> str:
    """The columns that it reads, without what is computed of them."""
    columns = dict.fromkeys(c.sql("sqlite") for s in query.selects for c in s.find_all(exp.Column))
    return ", ".join(columns) or "*"


def flipped(query: exp.Query) -> str:
    """With the condition turned round; "" where there is none."""
    where = query.args.get("where")
    return query.copy().where(exp.not_(where.this), append=False).sql("sqlite") if where else ""


STRATEGIES: dict[str, Callable[[exp.Query], str]] = {
    "SELECT * of the table": lambda q: f"SELECT * {one_table(q)}",
    "the columns, no condition": lambda q: f"SELECT {bare(q)} {tables(q)}",
    "the columns, distinct": lambda q: f"SELECT DISTINCT {bare(q)} {tables(q)}",
    "the columns, first row": lambda q: f"SELECT {bare(q)} {tables(q)} LIMIT 1",
    "the columns, three rows": lambda q: f"SELECT {bare(q)} {tables(q)} LIMIT 3",
    "each row twice": lambda q: f"SELECT {bare(q)} {tables(q)} UNION ALL SELECT {bare(q)} {tables(q)}",
    "COUNT(*)": lambda q: f"SELECT COUNT(*) {tables(q)}",
    "numbers from 1 to 100": lambda q: (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT i FROM n, "
        f"(SELECT COUNT(*) {one_table(q)})"
    ),
    "the smallest value": lambda q: f"SELECT MIN({bare(q).partition(', ')[0]}) {tables(q)}",
    "the condition turned round": flipped,
    # Near misses.
    "one column too many": lambda q: q.copy().select("rowid AS more", dialect="sqlite").sql("sqlite"),
    "the last column missing": lambda q: (
        q.copy().select(*q.selects[:-1], append=False).sql("sqlite") if len(q.selects) > 1 else ""
    ),
}


def earned(database: Database, sql: str, wanted: Rows, *, ordered: bool) -> tuple[float, ...] | None:
    """What a query earns by each of KEYS; None where it fails."""
    result = database.query_sync(sql)
    if not result.ok:
        return None
    is_same = same_results(wanted, result.rows, ordered=ordered)
    near = nearness(wanted, result.rows, ordered=ordered)
    return float(is_same), near, *agreement(wanted, result.rows, ordered=ordered)


def measure(folder: Path, paid: dict[str, list[tuple[float, ...]]]) -> int:
    """Add what each strategy earns at a folder's questions to `paid`; the number of questions."""
    config = build_config(load_recipe(str(folder / "config.toml")))
    n_questions = 0
    with Database(config.database, database_place(config.database)) as database:
        for question in load_questions(folder / "test.jsonl"):
            reference = question.sql[0]
            tree = sqlglot.parse_one(reference, read="sqlite")
            if not isinstance(tree, exp.Select):
                continue
            n_questions += 1
            wanted = list(map(tuple, database.query_sync(reference).rows))
            for name, make in STRATEGIES.items():
                sql = make(tree)
                if sql and (values := earned(database, sql, wanted, ordered=is_ordered(reference))):
                    paid[name].append(values)
    return n_questions


def main(folders: Annotated[list[Path], typer.Argument(help="folders of agentgrpo mine")]) -> None:
    """Print what each strategy earns."""
    paid: dict[str, list[tuple[float, ...]]] = {name: [] for name in STRATEGIES}
    print(f"{sum(measure(folder, paid) for folder in folders)} questions")
    print(f"| strategy | queries | {' | '.join(KEYS)} |\n|---|{'---|' * (len(KEYS) + 1)}")
    for name, values in paid.items():
        means = [f"{fmean(column):.3f}" for column in zip(*values, strict=True)] or ["-"] * len(KEYS)
        print(f"| {name} | {len(values)} | {' | '.join(means)} |")


if __name__ == "__main__":
    typer.run(main)
