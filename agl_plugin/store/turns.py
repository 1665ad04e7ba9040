"""What tables need of a database: turns, and the words in which databases differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Protocol

Row = tuple[Any, ...]


class Turns(Protocol):
    """A database (database.py, postgres.py). Statements have `?` for values; nothing but a turn reads or writes."""

    ROW_ID: ClassVar[str]  # the column that numbers rows in the order of their insertion
    TYPES: ClassVar[dict[type, str]]  # of the columns of str, int and float
    LOCKED: ClassVar[str]  # ends a SELECT of rows that the turn will change
    UNCLAIMED: ClassVar[str]  # ends a SELECT of rows that the turn takes, without those that another one is taking
    N_ANSWERS: ClassVar[int]  # kept of requests that may be sent again
    AGAIN: ClassVar[tuple[type[Exception], ...]]  # raised by a turn that was taken back, and can be had again

    def make(self, statement: str) -> None:
        """Make a table or an index, before the first turn."""
        ...

    def turn(self, *names: str, read_only: bool = False) -> AbstractAsyncContextManager[None]:
        """What this block writes, all or nothing, committed before it ends, and with nobody else who gave one of these
        names. One that is `read_only` sees the database as it was at one moment."""
        ...

    async def hold(self, names: Iterable[str], /) -> None:
        """Within a turn: these names too, until it ends."""
        ...

    def part(self) -> AbstractAsyncContextManager[None]:
        """Within a turn: writes that are taken back together when the block raises."""
        ...

    async def read(self, sql: str, values: Sequence[Any] = (), /) -> list[Row]:
        """Within a turn: the rows of a query."""
        ...

    async def write(self, sql: str, values: Sequence[Any] = (), /) -> list[Row]:
        """Within a turn: a statement that changes something, and the rows that it is RETURNING."""
        ...

    async def copied(self, table: str, columns: str, rows: Sequence[Sequence[Any]], /) -> bool:
        """Within a turn: insert all these rows at once; False, and nothing done, where that does not pay or one of
        them has a key that is taken."""
        ...

    def close(self) -> None:
        """Commit, and let go of the database."""
        ...
