"""What tables need of a database: turns, and the words in which databases differ."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import ContextVar
from typing import Any, ClassVar, Protocol

CURRENT_TURN: ContextVar[object] = ContextVar("turn", default=None)  # the database whose turn this is


class Result(Protocol):
    """What a statement gave."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...


class Turns(Protocol):
    """A database (database.py, postgres.py). Statements have `?` for values; nothing but a turn reads or writes."""

    ROW_ID: ClassVar[str]  # the column that numbers rows in the order of their insertion
    TYPES: ClassVar[dict[type, str]]  # of the columns of str, int and float
    DUPLICATE: ClassVar[type[Exception]]  # raised by a row whose key is taken

    def make(self, statement: str) -> None:
        """Make a table or an index, before the first turn."""
        ...

    def turn(self) -> AbstractAsyncContextManager[None]:
        """The database for this block alone, all or nothing, committed before it ends."""
        ...

    def part(self) -> AbstractContextManager[None]:
        """Within a turn: writes that are taken back together when the block raises."""
        ...

    def read(self, sql: str, values: Sequence[Any] = (), /) -> Result:
        """Within a turn: a query."""
        ...

    def write(self, sql: str, values: Sequence[Any] = (), /) -> Result:
        """Within a turn: a statement that changes something."""
        ...

    def close(self) -> None:
        """Commit, and let go of the database."""
        ...
