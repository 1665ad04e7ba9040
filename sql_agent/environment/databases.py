"""The databases of a run: one file or server, or one for each question, chosen by its `db_id`.

`database.folder` holds them as Spider and BIRD do: FOLDER/ID/ID.sqlite. Guarantees: a db_id is data of strangers: it
names a file right there or nothing, so no id reaches another file; each worker process has one file open and never
another, and a few processes serve all databases. Not covered: what a query may do in its file (database.py).
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path

from foundation.errors import UserError, did_you_mean
from sql_agent.config import DatabaseConfig, database_path, database_place
from sql_agent.environment.database import Database, Workers
from sql_agent.errors import DatabaseFault

DB_ID = re.compile(r"\w[\w.+-]{0,127}")
SUFFIX = ".sqlite"


class Databases(AbstractContextManager["Databases"]):
    """Opened on first use, in the process that uses them. A context manager."""

    def __init__(self, config: DatabaseConfig) -> None:
        self.config = config
        self.workers = Workers()
        self._made: dict[str, Database] = {}

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.workers.close()

    def of(self, db_id: str) -> Database:
        """The database of a question. Raises DatabaseFault where `problem` has something to say."""
        if db_id not in self._made:
            if problem := self.problem(db_id):
                raise DatabaseFault(problem)
            place = self._path(db_id) if self.config.folder else database_place(self.config)
            self._made[db_id] = Database(self.config, place, self.workers)
        return self._made[db_id]

    @cached_property
    def any_id(self) -> str:
        """The id of one of them, for what holds of all; "" where there is one database, or none."""
        return next(iter(self.ids()), "")

    def ids(self) -> list[str]:
        """The databases of `database.folder`, in alphabetical order; none without one."""
        if not self.config.folder:
            return []
        files = database_path(self.config).glob(f"*/*{SUFFIX}")
        return sorted(file.stem for file in files if not self.problem(file.stem))

    def problem(self, db_id: str) -> str:
        """Why no database has this id, or ""."""
        if not self.config.folder:
            problem = (
                f"db_id {db_id!r:.150} chooses a database of its own, and database.folder is not set: set it to the "
                f"folder that holds ID/ID{SUFFIX}, or leave the column out"
            )
            return problem if db_id else ""
        folder = database_path(self.config)
        if not db_id:
            return f"no db_id, and database.folder = {folder} has a database for each question: name it in the column"
        if not DB_ID.fullmatch(db_id):
            return f"db_id {db_id!r:.150}: an id is of letters, digits and _ . + - and begins with no mark; rename it"
        path = self._path(db_id)
        if not path.is_file():
            names = sorted(file.parent.name for file in folder.glob(f"*/*{SUFFIX}"))
            return f"db_id {db_id!r:.150}: no such file {path}{did_you_mean(db_id, names)}"
        if not path.resolve().is_relative_to(folder.resolve()):
            return f"db_id {db_id!r:.150}: {path} is a link out of database.folder; put the file itself there"
        return ""

    def _path(self, db_id: str) -> Path:
        return database_path(self.config) / db_id / f"{db_id}{SUFFIX}"

    def check(self) -> None:
        """Make sure that the one database can serve, or any of the folder. Raises UserError with the remedy."""
        if self.config.folder and not self.ids():
            raise UserError(
                f"database.folder = {self.config.folder!r}: no database there; it must hold ID/ID{SUFFIX}, as Spider "
                "and BIRD do"
            )
        self.of(self.any_id).check()
