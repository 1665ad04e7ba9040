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
from dotenv import load_dotenv

from agl_plugin.patches.install import install_at_start
from foundation.command import shown_errors
from foundation.errors import RunError
from foundation.store_token import check_host

DEFAULT_PATH = Path("runs/store.db")


def main(
    port: Annotated[int, typer.Option(min=1, max=65535, help="port to listen on")] = 9999,
    host: Annotated[str, typer.Option(help="interface to listen on")] = "127.0.0.1",
    path: Annotated[Path, typer.Option(help="SQLite file of the rollouts and spans")] = DEFAULT_PATH,
    keep_spans: Annotated[int, typer.Option(min=0, help="delete spans this many steps after theirs; 0: never")] = 4,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR")] = "INFO",
) -> None:
    """Serve a store until SIGINT or SIGTERM. With AGL_STORE_TOKEN set, requests without it are refused."""
    load_dotenv(Path(__file__).resolve().parents[2] / ".env")
    with shown_errors(RunError):
        check_host(host, "--host")
        asyncio.run(serve(path, host=host, port=port, keep_spans=keep_spans, log_level=log_level))


async def serve(path: Path, *, host: str, port: int, keep_spans: int = 4, log_level: str = "INFO") -> None:
    """Serve the store at `path`. Raises RunError when it cannot be opened."""
    install_at_start()
    from agentlightning import setup_logging

    from agl_plugin.store.server import StoreServer
    from agl_plugin.store.sqlite import SqliteLightningStore

    setup_logging(log_level)
    store = SqliteLightningStore(path, keep_spans=keep_spans)
    try:
        await StoreServer(store, host=host, port=port, launch_mode="asyncio").run_forever()
    except RuntimeError as exc:  # of the launcher: the port is taken, say
        logging.getLogger(__name__).debug("the server did not start", exc_info=True)
        raise RunError(f"the store could not listen on {host}:{port} ({exc}). Give another --port") from exc
    finally:
        await store.close()


if __name__ == "__main__":
    typer.run(main)
