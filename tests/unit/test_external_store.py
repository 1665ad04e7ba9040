"""A store of the user's own: its usual address, and waiting for it."""

from __future__ import annotations

import socket
import threading
import time
from http.server import HTTPServer
from pathlib import Path

import pytest

from foundation.errors import UserError
from sql_agent.config import StoreConfig
from sql_agent.training import external_store
from sql_agent.training.external_store import USUAL_ADDRESS, look_for_store, store_address, wait_for_store
from tests.servers import HealthyStore
from tests.typed import status_of


def fail(text: str) -> None:
    raise AssertionError(text)


def test_a_store_that_answers_passes_also_behind_a_proxy_variable(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    wait_for_store(store, say=fail)
    wait_for_store(f"{store}/", say=fail)


WRONG = "http://127.0.0.1:1 127.0.0.1:9999 http://127.0.0.1:99999 http:// localhost ftp://h http://[::1"


@pytest.mark.parametrize("address", WRONG.split())
def test_a_wrong_store_address_is_named(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_store, "START_LIMIT_S", 0.0)
    with pytest.raises(UserError, match="no agent-lightning store answers there .*--port 9999"):
        wait_for_store(address, say=fail)


def test_a_store_that_is_still_starting_is_waited_for() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    said: list[str] = []

    def start() -> None:
        time.sleep(1.2)
        with HTTPServer(("127.0.0.1", port), HealthyStore) as server:
            server.handle_request()

    thread = threading.Thread(target=start)
    thread.start()
    wait_for_store(f"http://127.0.0.1:{port}", say=said.append)
    thread.join(10)
    assert len(said) == 1 and f"http://127.0.0.1:{port}" in said[0]


def test_another_server_is_no_store_and_not_waited_for(store: str) -> None:
    started = time.monotonic()
    with pytest.raises(UserError, match="HTTPStatusError"):
        wait_for_store(f"{store}/elsewhere", say=fail)
    assert time.monotonic() - started < 5


def test_a_dry_run_looks_for_a_store_that_may_still_come(store: str) -> None:
    assert look_for_store(store) == f"store {store}: it answers"
    assert "http://127.0.0.1:1: nothing answers there yet; a run waits" in look_for_store("http://127.0.0.1:1")
    for wrong in (f"{store}/elsewhere", "localhost:9999"):
        with pytest.raises(UserError, match="no agent-lightning store answers there"):
            look_for_store(wrong)


@pytest.mark.parametrize("value", ["0", "false", "OFF"])
def test_a_store_of_ones_own_is_on_this_machine_unless_named(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGL_MANAGED_STORE", value)
    assert store_address(StoreConfig()) == USUAL_ADDRESS == "http://localhost:9999"
    named = StoreConfig(external_address="http://10.0.0.1:9998")
    assert store_address(named) == "http://10.0.0.1:9998"


def test_a_managed_store_has_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGL_MANAGED_STORE", raising=False)
    assert store_address(StoreConfig()) == ""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--path x.db --postgres VARIABLE", "error: --path x.db and --postgres VARIABLE: a store has one place"),
        ("--log-level loud", "'loud' is not one of 'DEBUG', 'INFO', 'WARNING', 'ERROR'"),
    ],
)
def test_what_a_store_cannot_obey_is_told(line: str, told: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert status_of("store", *line.split()) == 2
    assert told in " ".join(capfd.readouterr().err.split())


def test_a_port_in_use_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert status_of("store", "--port", port, "--path", str(tmp_path / "store.db")) == 2
    assert not list(tmp_path.iterdir())
    (line,) = capfd.readouterr().err.splitlines()
    assert "cannot be taken (Address already in use)" in line and "another one with --port" in line
