"""A store that lasts, as a server: `agl store` with its rollouts in an SQLite file.

  python -m agl_plugin.store --port 9999 --path runs/store.db

The protocol, the routes and the dashboard are those of `agl store`. A store that was killed goes on with the same
--path where it was.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Annotated

import typer

from agl_plugin.patches.install import install_at_start
from foundation.command import shown_errors
from foundation.errors import RunError

DEFAULT_PATH = Path("runs/store.db")


def main(
    port: Annotated[int, typer.Option(min=1, max=65535, help="port to listen on")] = 9999,
    host: Annotated[str, typer.Option(help="interface to listen on")] = "127.0.0.1",
    path: Annotated[Path, typer.Option(help="SQLite file of the rollouts and spans")] = DEFAULT_PATH,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR")] = "INFO",
) -> None:
    """Serve a store until SIGINT or SIGTERM."""
    with shown_errors(RunError):
        asyncio.run(serve(path, host=host, port=port, log_level=log_level))


async def serve(path: Path, *, host: str, port: int, log_level: str) -> None:
    """Serve the store at `path`. Raises RunError when it cannot be opened."""
    install_at_start()
    from agentlightning import setup_logging

    from agl_plugin.store.server import make_server
    from agl_plugin.store.sqlite import SqliteLightningStore

    setup_logging(log_level)
    store = SqliteLightningStore(path)
    try:
        await make_server(store, host=host, port=port).run_forever()
    except RuntimeError as exc:  # of the launcher: the port is taken, say
        logging.getLogger(__name__).debug("the server did not start", exc_info=True)
        raise RunError(f"the store could not listen on {host}:{port} ({exc}). Give another --port") from exc
    finally:
        await store.close()


if __name__ == "__main__":
    typer.run(main)
