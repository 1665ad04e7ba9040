"""A store that lasts, as a server: `agl store` with its rollouts in an SQLite file, or in PostgreSQL.

  agentgrpo store --port 9999 --path runs/store.db
  agentgrpo store --port 9999 --postgres STORE_DATABASE    the variable that holds postgresql://...

The protocol, the routes and the dashboard are those of `agl store`. A store that was killed goes on with the same
--path where it was.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agl_plugin.patches.install import install_at_start
from agl_plugin.store.database import Database
from foundation.command import alias
from foundation.errors import RunError, UserError
from foundation.net import bind
from foundation.store_token import check_host

if TYPE_CHECKING:
    from agl_plugin.store.tables import Turns

LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
DEFAULT_PATH = Path("runs/store.db")


def main(
    port: Annotated[int, typer.Option(min=1, max=65535, help="port to listen on")] = 9999,
    host: Annotated[str, typer.Option(help="interface to listen on")] = "127.0.0.1",
    path: Annotated[
        Path | None, typer.Option(help="SQLite file of the rollouts and spans", show_default=str(DEFAULT_PATH))
    ] = None,
    postgres: Annotated[
        str, typer.Option(help="in place of the file: the environment variable with PostgreSQL's address")
    ] = "",
    keep_spans: Annotated[int, typer.Option(min=0, help="delete spans this many steps after theirs; 0: never")] = 4,
    log_level: Annotated[LogLevel, typer.Option(help="of what is logged")] = "INFO",
) -> None:
    """Serve a store until SIGINT or SIGTERM. With AGL_STORE_TOKEN set, requests without it are refused."""
    check_host(host, "--host")
    if path and postgres:
        raise UserError(f"--path {path} and --postgres {postgres}: a store has one place; give one")
    where = address_in(postgres) if postgres else path or DEFAULT_PATH
    bind(host, port).close()  # the server would tell of a taken port in a hundred lines
    try:
        asyncio.run(serve(where, host=host, port=port, keep_spans=keep_spans, log_level=log_level))
    except RunError as exc:  # what was named cannot be a store
        raise UserError(str(exc)) from exc


def address_in(variable: str) -> str:
    """The address that the variable holds; it may hold a password, so it is no argument. Raises UserError."""
    variables = dict(os.environ)  # the name is the user's own
    if address := variables.get(variable):
        return address
    raise UserError(
        f"--postgres {variable}: no such environment variable, or it is empty. Set it to the database's address, "
        f"export {variable}=postgresql://USER:PASSWORD@HOST:5432/DATABASE for example, or write it into .env"
    )


def open_database(where: Path | str) -> Turns:
    """An SQLite file, or the PostgreSQL database at an address. Raises RunError."""
    if isinstance(where, Path):
        return Database(where)
    try:
        from agl_plugin.store.postgres import PostgresDatabase
    except ImportError as exc:
        raise RunError(f"--postgres needs the extra `postgres` ({exc}): pip install 'agentgrpo[postgres]'") from exc
    return PostgresDatabase(where)


async def serve(where: Path | str, *, host: str, port: int, keep_spans: int = 4, log_level: str = "INFO") -> None:
    """Serve the store at `where`. Raises RunError when it cannot be opened."""
    install_at_start()
    from agentlightning import setup_logging

    from agl_plugin.store.server import StoreServer
    from agl_plugin.store.sqlite import LastingStore

    setup_logging(log_level)
    store = LastingStore(open_database(where), keep_spans=keep_spans)
    try:
        await StoreServer(store, host=host, port=port, launch_mode="asyncio").run_forever()
    except RuntimeError as exc:  # of the launcher
        logging.getLogger(__name__).debug("the server did not start", exc_info=True)
        raise RunError(f"the store could not listen on {host}:{port} ({exc}). Give another --port") from exc
    finally:
        await store.close()


if __name__ == "__main__":
    alias(main)
