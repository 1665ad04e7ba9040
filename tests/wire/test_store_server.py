"""`python -m agl_plugin.store` as a process: agent-lightning's client sees no difference, and a kill loses nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import agentlightning as agl
import pytest
from typer.testing import CliRunner

from foundation.net import free_port
from foundation.store_token import VARIABLE
from tests.store_kills import Checker, Store
from tests.typed import app_of


@pytest.mark.long
@pytest.mark.parametrize("kills", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_a_store_that_is_killed_under_load_loses_nothing_and_counts_nothing_twice(tmp_path: Path, kills: int) -> None:
    path = tmp_path / "store.db"
    with Store(path, tmp_path / "store.log") as store:
        checker = Checker(store, client=lambda address: agl.LightningStoreClient(address, retry_delays=()))
        for number in range(kills):
            checker.load_until_killed(seed=number)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        counts = checker.check(lambda sql: database.execute(sql).fetchall())
    print(f"{kills} kills: {counts}")
    assert counts["acknowledged"] > 20 * kills


def test_errors_of_the_command_line_say_what_helps(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database" * 99)
    app = app_of("store")
    done = CliRunner().invoke(app, ["--path", str(tmp_path / "text.db"), "--port", str(free_port())])
    assert done.exit_code == 2 and "not a database" in done.stderr and "empty store" in done.stderr
    done = CliRunner(env={VARIABLE: ""}).invoke(app, ["--path", str(tmp_path / "new.db"), "--host", "0.0.0.0"])
    assert done.exit_code == 2 and VARIABLE in done.stderr and not (tmp_path / "new.db").exists()
