"""What the SQL guard costs and what it holds: `python benchmarks/guard.py --out guard.json`.

Measures, in one run and on one temporary database of 20,000 rows: the time per query of a plain sqlite3 connection (the
baseline), of the guard without its process, and of the whole Database; the start of a worker; how far a query that
never ends overruns its limit; how long a lookup waits behind 64 of them; the peak memory of a worker under bombs.
Wall-clock times: run it on an idle machine.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.support.measure import per_call_s
from foundation.files import write_json
from sql_agent.config import DatabaseConfig
from sql_agent.environment.database import Database
from sql_agent.environment.sql_worker import Guard, Settings

LOOKUP = "SELECT med_name, indication FROM drugs_info WHERE id = 77"
SCAN = "SELECT id FROM drugs_info WHERE indication LIKE '%失眠%'"
TIMEOUT_S = 0.5
LONG = "WITH RECURSIVE s(x) AS (SELECT 'a' UNION ALL SELECT x || x FROM s WHERE length(x) < 500000)"
ENDLESS = {
    "recursive CTE": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
    "cross join": "SELECT count(*) FROM drugs_info a, drugs_info b, drugs_info c",
    "one function call": f"{LONG} SELECT instr(max(x), substr(max(x), 1, 262144) || 'b') FROM s",
}
BOMBS = {
    "sort": "SELECT a.indication FROM drugs_info a, drugs_info b ORDER BY random()",
    "window": "SELECT row_number() OVER (ORDER BY a.indication || b.id) FROM drugs_info a, drugs_info b",
    "distinct": "SELECT DISTINCT a.indication || b.id FROM drugs_info a, drugs_info b LIMIT 1 OFFSET 99999999",
    "wide row": f"{LONG} SELECT " + ", ".join(f"(SELECT max(x) FROM s) || {n}" for n in range(150)),
    "mixed text": f"{LONG}, m AS (SELECT substr(max(x), 1, 200000) || '😀' AS y FROM s) SELECT y{', y' * 199} FROM m",
    "group_concat": f"SELECT {', '.join(['group_concat(id % 10)'] * 150)} FROM drugs_info",
}


def build(path: Path) -> None:
    """A database of the documented tables with 20,000 drugs."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE drugs_info (id INTEGER PRIMARY KEY, med_name TEXT, indication TEXT)")
        db.execute("CREATE TABLE disease (id INTEGER PRIMARY KEY, disease_name TEXT)")
        rows = [(n, f"药品{n}", "用于高血压、头痛、发热的治疗。" * 8) for n in range(20_000)]
        db.executemany("INSERT INTO drugs_info VALUES (?, ?, ?)", rows)


def per_call_ms(call: Callable[[], Any], n: int) -> float:
    """Median time of one call, in ms."""
    return round(per_call_s(call, n) * 1000, 4)


def cost_ms(path: Path, settings: Settings, database: Database) -> dict[str, dict[str, float]]:
    """ms per query of a point lookup and of a full scan, three ways."""

    def plain(sql: str) -> None:
        db.execute(sql).fetchmany(51)

    table: dict[str, dict[str, float]] = {}
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        for name, sql, n in (("lookup", LOOKUP, 1000), ("scan", SCAN, 10)):
            table[name] = {"plain": per_call_ms(lambda sql=sql: plain(sql), n)}
    for name, sql, n in (("lookup", LOOKUP, 1000), ("scan", SCAN, 10)):
        table[name]["database"] = per_call_ms(lambda sql=sql: database.query_sync(sql), n)
    guard = Guard(settings)  # after the others: its heap limit is for the whole process
    for name, sql, n in (("lookup", LOOKUP, 1000), ("scan", SCAN, 10)):
        table[name]["guard"] = per_call_ms(lambda sql=sql: guard.run(sql, timeout_s=TIMEOUT_S), n)
    return table


def parallel_ms(database: Database) -> float:
    """ms per lookup with 50 of them in flight."""

    async def run() -> None:
        await asyncio.gather(*(database.query(LOOKUP) for _ in range(50)))

    return round(per_call_ms(lambda: asyncio.run(run()), 10) / 50, 4)


def start_ms(config: DatabaseConfig, path: Path) -> float:
    """ms from a fresh Database to its first answer and its end."""

    def once() -> None:
        with Database(config, path) as fresh:
            fresh.query_sync("SELECT 1")

    return per_call_ms(once, 3)


def overruns(database: Database) -> dict[str, float]:
    """Time of each endless query as a multiple of its limit."""
    ratios = {}
    for name, sql in ENDLESS.items():
        database.query_sync("SELECT 1")
        started_s = time.perf_counter()
        assert "stopped after" in (database.query_sync(sql).error or ""), name
        ratios[name] = round((time.perf_counter() - started_s) / TIMEOUT_S, 3)
    return ratios


def wait_behind_64(database: Database) -> float:
    """How long a lookup takes while 64 endless queries are on, as a multiple of their limit."""

    async def run() -> float:
        slow = [asyncio.create_task(database.query(ENDLESS["recursive CTE"])) for _ in range(64)]
        await asyncio.sleep(0)
        started_s = time.perf_counter()
        await database.query(LOOKUP)
        waited_s = time.perf_counter() - started_s
        await asyncio.gather(*slow)
        return round(waited_s / TIMEOUT_S, 2)

    return asyncio.run(run())


def peak_mib(database: Database, sql: str) -> float:
    """Peak resident memory of the workers while `sql` runs, sampled every ms."""

    async def run() -> float:
        peak = 0
        task = asyncio.create_task(database.query(sql))
        while not task.done():
            for child in psutil.Process().children():
                try:
                    peak = max(peak, child.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue
            await asyncio.sleep(0.001)
        return round(peak / 2**20, 1)

    return asyncio.run(run())


def measure(path: Path) -> dict[str, Any]:
    """All figures of one run."""
    build(path)
    config = DatabaseConfig.model_validate({"path": str(path), "timeout_s": TIMEOUT_S})
    with Database(config, path) as database:
        figures: dict[str, Any] = {
            "sqlite": sqlite3.sqlite_version,
            "start_ms": start_ms(config, path),
            "parallel_lookup_ms": parallel_ms(database),
            "overrun": overruns(database),
            "wait_behind_64": wait_behind_64(database),
            "peak_mib": {name: peak_mib(database, sql) for name, sql in BOMBS.items()},
            "max_memory_mib": config.max_memory_mib,
        }
        figures["cost_ms"] = cost_ms(path, database._settings, database)
    figures["ratio"] = {name: round(row["database"] / row["plain"], 2) for name, row in figures["cost_ms"].items()}
    return figures


def main(
    out: Annotated[Path | None, typer.Option(help="write the figures there as JSON")] = None,
) -> None:
    """Measure the SQL guard against a plain sqlite3 connection; about half a minute."""
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder) / "bench.db")
    if out:
        write_json(out, figures)
    lookup, scan = figures["cost_ms"]["lookup"], figures["cost_ms"]["scan"]
    typer.echo(
        f"lookup {lookup['database']:.3f} ms (plain {lookup['plain']:.3f}, guard alone {lookup['guard']:.3f}); "
        f"scan x{figures['ratio']['scan']:.2f} ({scan['plain']:.1f} ms plain); start {figures['start_ms']:.0f} ms; "
        f"endless queries end at x{max(figures['overrun'].values()):.2f} of the limit, "
        f"a lookup behind 64 of them waits x{figures['wait_behind_64']:.1f}; "
        f"worker peak {max(figures['peak_mib'].values()):.0f} MiB at a limit of {figures['max_memory_mib']} MiB"
    )


if __name__ == "__main__":
    typer.run(main)
