"""A PostgreSQL server of one's own for tests: where its programs are installed (Debian: the package postgresql)."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.servers import running

NUMBERS = count()
# Nothing survives these tests, and a commit need not reach the disk.
SETTINGS = ("fsync=off", "full_page_writes=off", "listen_addresses=", "shared_buffers=16MB", "max_connections=100")


def programs() -> Path | None:
    """The folder of initdb and postgres."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("initdb")
    return Path(found).parent if found else next((place for place in places if (place / "initdb").exists()), None)


@contextmanager
def server() -> Iterator[str]:
    """The libpq keywords of a running server. Skips the test where none can be had."""
    with server_that_crashes() as (address, _):
        yield address


@contextmanager
def server_that_crashes() -> Iterator[tuple[str, Callable[[], None]]]:
    """The same, and what ends the server without a checkpoint and starts it again."""
    bin, user = programs(), "postgres" if os.geteuid() == 0 else None
    if not bin:
        pytest.skip("no PostgreSQL server is installed (apt-get install postgresql)")
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as name, ExitStack() as starts:
        folder = Path(name)
        if user:  # PostgreSQL refuses to be run by root
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        run: dict[str, Any] = {"user": user, "cwd": folder, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}}
        made = [bin / "initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"]
        subprocess.run(made, check=True, capture_output=True, timeout=120, **run)
        flags = [flag for setting in SETTINGS for flag in ("-c", setting)]
        command = [bin / "postgres", "-D", folder / "data", "-k", folder, *flags]
        address = f"host={folder} user=postgres dbname=postgres"
        lock = folder / "data" / "postmaster.pid"

        def start() -> None:
            starts.enter_context(running(command, folder / "log", answers=lambda: _answers(address), **run))

        def crash() -> None:
            os.kill(int(lock.read_text().split()[0]), signal.SIGQUIT)
            while lock.exists():
                time.sleep(0.05)
            start()

        start()
        yield address, crash


def _answers(address: str) -> bool:
    try:
        psycopg.connect(address).close()
    except psycopg.OperationalError:
        return False
    return True


def new_database(address: str) -> str:
    """The address of a new empty database."""
    name = f"store{next(NUMBERS)}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # pyright: ignore[reportCallIssue, reportArgumentType]
    return address.replace("dbname=postgres", f"dbname={name}")
