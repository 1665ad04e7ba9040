"""What a mined folder holds, and how far it came: state.json, written as a whole after each stage.

Guarantees: a stage that state.json names is complete; what was asked for stands in it, so that going on with other
settings, or with a database that changed, is a UserError and never a mixture.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from foundation.errors import UserError
from foundation.files import write_json
from sql_agent.records import Record

STATE, SCHEMA, PROMPT, SHORT_PROMPT = "state.json", "schema.json", "prompt.txt", "prompt_short.txt"
RUNS, PHRASED = "runs", "phrased.jsonl"
DUCKDB = "duckdb:///"
AMOUNTS = {"steps": 0, "test_questions": 120, "samples": 1}


class Settled(Record):
    """What a folder is made of. `size` (bytes) and `changed_ns` are those of the database file, 0 of a server."""

    database: str
    size: int
    changed_ns: int
    language: str
    seed: int
    questions: int
    tables: tuple[str, ...] = ()
    model: str = ""
    phrase: bool = False

    @field_validator("database", "model")
    @classmethod
    def _one_spelling(cls, text: str) -> str:
        """A file or folder by its real path, however it was called; a URL or a hub name as it is."""
        scheme = DUCKDB if text.startswith(DUCKDB) else ""
        path = Path(text.removeprefix(scheme)).expanduser()
        return f"{scheme}{path.resolve()}" if text and path.exists() else text

    @property
    def name(self) -> str:
        return name_of(self.database)


def name_of(database: str) -> str:
    """What people call a file or URL."""
    return Path(urlsplit(database).path if "://" in database else database).stem or "database"


class State(BaseModel):
    """How far a folder came; `run` is the folder of the finished training. `amounts`: steps (0: the recipe's), test
    questions of a split and samples, as training and measuring were begun with."""

    model_config = ConfigDict(extra="forbid")

    settled: Settled
    amounts: dict[str, int] = {}
    questions: bool = False
    run: str = ""
    evaluated: bool = False


def read_state(folder: Path) -> State | None:
    """The state of a folder; None where nothing was begun. Raises UserError."""
    try:
        return State.model_validate_json((folder / STATE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as exc:
        raise UserError(f"{folder / STATE}: cannot be read ({exc}); name another --out") from exc


def read_settled(folder: Path) -> Settled:
    """What a folder was made of. Raises UserError where it is none of `agentgrpo mine`."""
    state = read_state(folder)
    if state is None:
        raise UserError(f"{folder}: no {STATE}; `agentgrpo mine DATABASE` makes such a folder")
    return state.settled


def begin(folder: Path, settled: Settled) -> State:
    """The state to go on from. Raises UserError where the folder holds something else."""
    state = read_state(folder)
    if state is None:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(f"--out {folder}: is not empty, and nothing is written over; name another")
        state = State(settled=settled)
        save(folder, state)
    if [path.name for path in folder.iterdir()] == [STATE] and not state.questions:
        state.settled = settled  # nothing was made of what was asked for before
        save(folder, state)
    old, new = state.settled.model_dump(), settled.model_dump()
    if differing := [name for name in new if old[name] != new[name]]:
        other = [name for name in differing if name not in ("size", "changed_ns")]
        changes = ", ".join(f"{name} {old[name]!r} is now {new[name]!r}" for name in other) or "the file changed since"
        raise UserError(f"--out {folder}: was begun otherwise ({changes}); name another folder, or remove this one")
    return state


def forget(folder: Path) -> None:
    """Remove a folder in which nothing was made."""
    if [path.name for path in folder.iterdir()] == [STATE]:
        (folder / STATE).unlink()
        folder.rmdir()


def begin_training(folder: Path, state: State, amounts: Mapping[str, int | None]) -> None:
    """Settle the amounts: given ones, else those of before, else AMOUNTS. Raises UserError where they differ."""
    for name, value in amounts.items():
        begun = state.amounts.get(name)
        if None not in (value, begun) and value != begun:
            flag = f"--{name.replace('_', '-')} {value}"
            raise UserError(f"{flag}: {folder} was begun with {begun}; leave it out, or name another --out")
    state.amounts = AMOUNTS | state.amounts | {name: n for name, n in amounts.items() if n is not None}
    save(folder, state)


def save(folder: Path, state: State) -> None:
    write_json(folder / STATE, json.loads(state.model_dump_json()))
