"""A MariaDB server of one's own for tests: where its programs are installed (Debian: the package mariadb-server)."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.servers import running

SETTINGS = ("--skip-networking", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M")
CHARSET = "--character-set-server=utf8mb4"


def program(name: str) -> str | None:
    """Where it is."""
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/bin")


@contextmanager
def server() -> Iterator[Path]:
    """The socket of a running server, whose root has no password. Skips the test where none can be had."""
    daemon, install = program("mariadbd"), program("mariadb-install-db")
    if not daemon or not install:
        pytest.skip("no MariaDB server is installed (apt-get install mariadb-server)")
    user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    with tempfile.TemporaryDirectory(prefix="maria-", dir="/tmp") as name:
        folder = Path(name)
        if os.geteuid() == 0:
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        run: dict[str, Any] = {"cwd": folder, "user": user, "env": {"PATH": os.environ["PATH"], "HOME": name}}
        made = [install, "--no-defaults", f"--datadir={folder / 'data'}", "--auth-root-authentication-method=normal"]
        subprocess.run([*made, "--skip-test-db"], check=True, capture_output=True, timeout=120, **run)
        socket = folder / "socket"
        places = [f"--datadir={folder / 'data'}", f"--socket={socket}", f"--pid-file={folder / 'pid'}"]
        command = [daemon, "--no-defaults", *places, *SETTINGS, CHARSET]
        with running(command, folder / "log", answers=lambda: _answers(socket), **run):
            yield socket


def _answers(socket: Path) -> bool:
    if not socket.exists():  # a connection that fails leaves a descriptor behind
        return False
    try:
        pymysql.connect(unix_socket=str(socket), user="root").close()
    except pymysql.err.OperationalError:
        return False
    return True
