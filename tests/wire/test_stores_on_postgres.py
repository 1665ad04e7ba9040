"""Four stores as processes over one PostgreSQL server: they are killed and the server crashes, and nothing is lost."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from agl_plugin.store.client import StoreClient
from tests.postgres import server_that_crashes
from tests.store_kills import Checker, Store

pytestmark = pytest.mark.filterwarnings("default")  # of a fork beside threads: a store starts while the others serve
N_STORES = 4


@pytest.mark.long
@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_stores_that_die_and_a_server_that_crashes_lose_nothing_and_do_nothing_twice(
    tmp_path: Path, rounds: int
) -> None:
    with server_that_crashes() as (address, crash), ExitStack() as running:
        stores = [running.enter_context(Store(address, tmp_path / f"{n}.log")) for n in range(N_STORES)]
        checker = Checker(*stores, client=lambda url: StoreClient(url, patience_s=120.0))

        def restart(store: Store) -> None:
            store.kill()
            store.start()

        for number in range(rounds):
            checker.load_over(lambda: restart(stores[number % N_STORES]), seed=number)  # noqa: B023
            checker.load_over(crash, seed=number)
        running.close()
        with psycopg.connect(address) as database:
            counts = checker.check(lambda sql: database.execute(sql).fetchall())  # pyright: ignore[reportCallIssue, reportArgumentType]
    print(f"{rounds} kills, {rounds} crashes: {counts}")
    # Each client asked until it was answered, so each question is there once, and all that was taken has ended.
    assert counts["rollouts"] == checker.asked_to_queue == len(checker.queued)
    assert counts["attempts"] == len(checker.taken) == len(checker.ended) > 0
    assert counts["spans"] == len(checker.spans)
