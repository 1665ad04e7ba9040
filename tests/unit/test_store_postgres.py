"""Several stores over one PostgreSQL database, and what becomes of a connection that is lost."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections import Counter
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
from agentlightning.types import AttemptedRollout, EnqueueRolloutRequest, Span
from psycopg.errors import DeadlockDetected
from psycopg.sql import SQL, Identifier

from agl_plugin.store.__main__ import address_in, open_database
from agl_plugin.store.postgres import PostgresDatabase
from agl_plugin.store.sqlite import LastingStore
from foundation.errors import RunError, UserError
from tests.postgres import new_database


def dies_in_its_turn(address: str) -> None:
    """A process that has taken a rollout out of the queue."""

    async def take() -> None:
        database = PostgresDatabase(address)
        async with database.turn():
            assert len(await database.write("DELETE FROM rollout_queue RETURNING id")) == 1
            os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(take())


@pytest.fixture
def address(postgres: str) -> str:
    return new_database(postgres)


def test_each_rollout_is_handed_out_once_whichever_store_is_asked(address: str) -> None:
    taken: list[str] = []

    async def enqueue() -> list[str]:
        store = LastingStore(PostgresDatabase(address))
        queued = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(40)])
        await store.close()
        return [one.rollout_id for one in queued]

    async def work(name: str) -> None:
        store = LastingStore(PostgresDatabase(address))
        while got := await store.dequeue_many_rollouts(limit=3, worker_id=name):
            for one in got:
                taken.append(one.rollout_id)
                rollout, attempt = one.rollout_id, one.attempt.attempt_id
                n = await store.get_next_span_sequence_id(rollout, attempt)
                await store.add_span(
                    Span.from_attributes(attributes={}, rollout_id=rollout, attempt_id=attempt, sequence_id=n)
                )
                await store.update_attempt(rollout, attempt, status="succeeded")
        await store.close()

    queued = asyncio.run(enqueue())
    threads = [threading.Thread(target=asyncio.run, args=(work(f"w{n}"),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert Counter(taken) == Counter(queued)

    async def ended() -> tuple[int, int]:
        store = LastingStore(PostgresDatabase(address))
        done = await store.query_rollouts(status_in=["succeeded"], limit=-1)
        n_spans = await store.collections.spans.size()
        await store.close()
        return len(done), n_spans

    assert asyncio.run(ended()) == (40, 40)


def test_a_store_that_is_killed_in_its_turn_holds_nothing(address: str) -> None:
    async def queued() -> str:
        store = LastingStore(PostgresDatabase(address))
        rollout = await store.enqueue_rollout(input="q")
        await store.close()
        return rollout.rollout_id

    async def taken() -> AttemptedRollout:
        store = LastingStore(PostgresDatabase(address))
        async with asyncio.timeout(60):  # until the server knows that the other is gone
            while not (got := await store.dequeue_rollout(worker_id="alive")):
                await asyncio.sleep(0.05)
        await store.close()
        return got

    rollout_id = asyncio.run(queued())
    process = multiprocessing.get_context("fork").Process(target=dies_in_its_turn, args=(address,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    got = asyncio.run(taken())
    assert got.rollout_id == rollout_id and got.attempt.sequence_id == 1


def test_what_is_about_the_same_rollout_waits_and_all_else_goes_on(address: str) -> None:
    async def work() -> None:
        store, other = (LastingStore(PostgresDatabase(address)) for _ in range(2))
        one, two = [await store.start_rollout(input=n) for n in range(2)]
        async with store.database.turn(one.rollout_id):
            waiting = asyncio.create_task(other.update_rollout(one.rollout_id, status="cancelled"))
            assert (await other.update_rollout(two.rollout_id, status="cancelled")).status == "cancelled"
            assert (await other.dequeue_rollout()) is None
            assert [one.status for one in await other.query_rollouts()] == ["preparing", "cancelled"]
            assert not waiting.done()
        assert (await waiting).status == "cancelled"
        await store.close()
        await other.close()

    asyncio.run(work())


def test_operations_that_wait_for_each_other_are_done_one_after_the_other(address: str) -> None:
    async def work() -> None:
        store, other = (LastingStore(PostgresDatabase(address)) for _ in range(2))
        rollout = await store.start_rollout(input="q")
        met = asyncio.Barrier(2)

        async def crossing(database: Any, first: str, then: str) -> bool:
            try:
                async with database.turn(first):
                    await met.wait()
                    await database.hold([then])
            except database.AGAIN:
                return True
            return False

        gave_way = await asyncio.gather(crossing(store.database, "a", "b"), crossing(other.database, "b", "a"))
        assert sorted(gave_way) == [False, True]
        tries = iter([DeadlockDetected("a test's"), None])

        async def taken_back(*_: Any) -> None:
            if exc := next(tries):
                raise exc

        with patch.object(store, "_post_update_rollout", taken_back):
            assert (await store.update_rollout(rollout.rollout_id, metadata={"n": 1})).metadata == {"n": 1}
        await store.close()
        await other.close()

    asyncio.run(work())


def test_many_spans_go_in_at_once_and_one_that_is_there_keeps_none_of_the_others_out(address: str) -> None:
    async def work() -> None:
        store = LastingStore(PostgresDatabase(address))
        rollout = await store.start_rollout(input="q")
        ids: dict[str, Any] = {"rollout_id": rollout.rollout_id, "attempt_id": rollout.attempt.attempt_id}
        odd = {"text": "\\N\t\n\\.\0\ud800甲", "n": float("inf")}
        spans = [Span.from_attributes(attributes={**odd, "i": n}, sequence_id=n, **ids) for n in range(30)]
        with patch.object(psycopg.AsyncCursor, "copy", autospec=True, side_effect=psycopg.AsyncCursor.copy) as copy:
            assert await store.add_many_spans(spans[:20]) == spans[:20]
            assert await store.add_many_spans(spans[10:]) == spans[20:]
            assert copy.call_count == 2
        assert list(await store.query_spans(rollout.rollout_id)) == spans
        await store.close()

    asyncio.run(work())


def closed_by_the_server(address: str, name: str) -> None:
    with psycopg.connect(address, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))


def test_a_lost_connection_fails_the_turn_that_it_is_lost_in_and_no_other(address: str, postgres: str) -> None:
    name = address.rpartition("=")[2]

    async def work() -> None:
        store = LastingStore(PostgresDatabase(address))
        await store.enqueue_rollout(input="q")
        with pytest.raises(psycopg.OperationalError):
            async with store.database.turn():
                await store.enqueue_rollout(input="lost")
                closed_by_the_server(postgres, name)
                await store.enqueue_rollout(input="lost too")
        closed_by_the_server(postgres, name)
        await store.enqueue_rollout(input="kept")
        assert [one.input for one in await store.query_rollouts()] == ["q", "kept"]
        await store.close()

    asyncio.run(work())


def test_a_turn_waits_for_a_server_that_comes_back_and_not_for_ever(address: str, postgres: str) -> None:
    name = address.rpartition("=")[2]

    def let_in(anyone: bool) -> None:
        with psycopg.connect(postgres, autocommit=True) as other:
            other.execute(SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format(Identifier(name), anyone))

    async def work() -> None:
        store, hasty = (LastingStore(PostgresDatabase(address, patience_s=wait_s)) for wait_s in (60, 0))
        let_in(False)
        closed_by_the_server(postgres, name)
        waiting = [asyncio.create_task(store.enqueue_rollout(input=n)) for n in range(2)]
        with pytest.raises(psycopg.OperationalError):
            await hasty.enqueue_rollout(input="lost")
        assert not any(task.done() for task in waiting)
        let_in(True)
        await asyncio.wait_for(asyncio.gather(*waiting), 60)
        await hasty.enqueue_rollout(input="kept")
        assert {one.input for one in await store.query_rollouts()} == {0, 1, "kept"}
        await store.close()
        await hasty.close()

    asyncio.run(work())


def test_what_cannot_be_reached_is_said_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match="does not let the store in: .*Is it up") as told:
        open_database("postgresql://me:very-secret@127.0.0.1:9/db")
    assert "very-secret" not in str(told.value)
    monkeypatch.delenv("STORE_DATABASE", raising=False)
    with pytest.raises(UserError, match="STORE_DATABASE: no such environment variable.*export STORE_DATABASE="):
        address_in("STORE_DATABASE")
    monkeypatch.setenv("STORE_DATABASE", "postgresql://x")
    assert address_in("STORE_DATABASE") == "postgresql://x"
