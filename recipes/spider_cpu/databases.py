"""Eight small databases with made-up rows and questions about each: `python -m recipes.spider_cpu.databases`.

It writes databases/ID/ID.sqlite, in Spider's layout, and the questions with a `db_id` each, by the maker of
`agentgrpo mine`: train.jsonl, val.jsonl and test_entities.jsonl about six databases, whose values are on one side each,
and test.jsonl about two that no training question touches. The same files come out each time.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from foundation.files import write_lines
from sql_agent.data.dataset import COLUMNS
from sql_agent.mining.questions import mine_questions
from sql_agent.mining.schema import Schema, quoted, read_schema
from sql_agent.records import Question

HERE = Path(__file__).resolve().parent
SEED = 1
HELD_OUT = ("ferries", "orchards")
SIZES = {"train": 100, "val": 10, "test": 30}
SYLLABLES = (
    "ba be bi bo da de di do fa ga ge ka ko la le li lo ma me mi mo na ne no pa re ri ro sa se so ta te ti tu va"
)
# Database -> table -> columns. A name is a text of its own; a/b/c are categories; >table is a foreign key.
DATABASES: dict[str, dict[str, dict[str, str]]] = {
    "bakery": {
        "oven": {"oven": "name", "fuel": "gas/wood/current", "trays": "4..40"},
        "loaf": {"loaf": "name", "flour": "rye/spelt/wheat", "grams": "200..1900", "oven": ">oven"},
        "sale": {"sale_id": "id", "loaf": ">loaf", "sold": "date", "pieces": "1..90"},
    },
    "choir": {
        "conductor": {"conductor": "name", "school": "Norra/Sudra/Vestra", "born": "year"},
        "singer": {"singer": "name", "voice": "alto/bass/tenor", "joined": "date", "conductor": ">conductor"},
        "concert": {"concert": "name", "held": "date", "visitors": "20..900", "conductor": ">conductor"},
    },
    "quarry": {
        "pit": {"pit": "name", "stone": "basalt/granite/slate", "depth": "5..180"},
        "digger": {"digger": "name", "maker": "Hulder/Korva/Tormo", "built": "year", "pit": ">pit"},
        "blast": {"blast_id": "id", "pit": ">pit", "fired": "date", "tons": "10..990"},
    },
    "skating": {
        "rink": {"rink": "name", "roof": "dome/none/tent", "length": "30..120"},
        "skater": {"skater": "name", "country": "Elland/Omria/Tavia", "height": "140..199", "rink": ">rink"},
        "score": {"score_id": "id", "skater": ">skater", "danced": "date", "points": "10..250"},
    },
    "apiary": {
        "keeper": {"keeper": "name", "village": "Astal/Brunn/Cimba", "since": "year"},
        "hive": {"hive": "name", "wood": "larch/pine/poplar", "frames": "6..24", "keeper": ">keeper"},
        "harvest": {"harvest_id": "id", "hive": ">hive", "taken": "date", "kilos": "1..40"},
    },
    "observatory": {
        "dome": {"dome": "name", "mirror": "glass/steel/zerodur", "altitude": "300..4900"},
        "astronomer": {"astronomer": "name", "field": "comets/pulsars/quasars", "hired": "date", "dome": ">dome"},
        "comet": {"comet": "name", "seen": "date", "period": "3..900", "astronomer": ">astronomer"},
    },
    "ferries": {
        "harbour": {"harbour": "name", "island": "Lomo/Reka/Sila", "berths": "1..30"},
        "ferry": {"ferry": "name", "engine": "diesel/electric/steam", "seats": "30..800", "harbour": ">harbour"},
        "trip": {"trip_id": "id", "ferry": ">ferry", "sailed": "date", "guests": "1..800"},
    },
    "orchards": {
        "farmer": {"farmer": "name", "valley": "Inner/Lower/Upper", "founded": "year"},
        "tree": {"tree": "name", "fruit": "apple/pear/quince", "planted": "date", "farmer": ">farmer"},
        "picking": {"picking_id": "id", "tree": ">tree", "picked": "date", "crates": "1..60"},
    },
}


def write_database(name: str, folder: Path) -> Path:
    """ID/ID.sqlite of one of them, made anew."""
    path = folder / name / f"{name}.sqlite"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    rng = random.Random(f"{SEED} {name}")
    names = dict[str, list[str]]()
    with closing(sqlite3.connect(path)) as db, db:
        for table, columns in DATABASES[name].items():
            declared = ", ".join(_declared(column, kind) for column, kind in columns.items())
            db.execute(f"CREATE TABLE {table} ({declared})")
            n_rows = 60 if "id" not in columns.values() else 300
            filled = [_cells(kind, n_rows, rng, names) for kind in columns.values()]
            names[table] = [str(cell) for cell in filled[0]]
            db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", zip(*filled, strict=True))
    return path


def _declared(column: str, kind: str) -> str:
    types = {"name": "TEXT PRIMARY KEY", "id": "INTEGER PRIMARY KEY", "year": "INTEGER", "date": "DATE"}
    if kind.startswith(">"):
        return f"{quoted(column)} TEXT REFERENCES {kind[1:]} ({kind[1:]})"
    return f"{quoted(column)} {types.get(kind, 'INTEGER' if '..' in kind else 'TEXT')}"


def _cells(kind: str, n: int, rng: random.Random, names: dict[str, list[str]]) -> list[str | int]:
    if kind == "name":
        syllables = SYLLABLES.split()
        full_names = {" ".join("".join(rng.choices(syllables, k=k)).capitalize() for k in (2, 3)) for _ in range(2 * n)}
        return list(rng.sample(sorted(full_names), n))
    if kind == "id":
        return list(range(1, n + 1))
    if kind == "date":
        days = [(rng.randint(2015, 2024), rng.randint(1, 12), rng.randint(1, 28)) for _ in range(n)]
        return [f"{year}-{month:02d}-{day:02d}" for year, month, day in days]
    low, _, high = ("1950..2015" if kind == "year" else kind).partition("..")
    choices = names[kind[1:]] if kind.startswith(">") else kind.split("/")
    return [rng.randint(int(low), int(high)) if high else rng.choice(choices) for _ in range(n)]


def schemas(folder: Path) -> Iterator[tuple[str, Path, Schema]]:
    """Each database, written into the folder and read again."""
    for name in DATABASES:
        path = write_database(name, folder)
        yield name, path, read_schema(str(path))


def write(folder: Path) -> dict[str, list[Question]]:
    """The databases and the questions of each split, in this folder."""
    splits: dict[str, list[Question]] = {"train": [], "val": [], "test_entities": [], "test": []}
    for name, path, schema in schemas(folder / "databases"):
        for split, questions in mine_questions(schema, str(path), language="en", seed=SEED, sizes=SIZES).splits.items():
            rows = [row.model_copy(update={"db_id": name, "id": f"{name}-{row.id}"}) for row in questions]
            if name in HELD_OUT:
                splits["test"] += rows if split == "test" else []
            else:
                splits["test_entities" if split == "test" else split] += rows
    for split, questions in splits.items():
        rows = [question.model_dump(exclude_defaults=True) for question in questions]
        write_lines(folder / f"{split}.jsonl", [{key: row[key] for key in COLUMNS if key in row} for row in rows])
    return splits


if __name__ == "__main__":
    for name, questions in write(HERE).items():
        print(f"{name}.jsonl: {len(questions)} questions, {len({question.db_id for question in questions})} databases")
