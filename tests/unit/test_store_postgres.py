"""Several stores over one PostgreSQL database, and what becomes of a connection that is lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter

import psycopg
import pytest
from agentlightning.types import EnqueueRolloutRequest, Span
from psycopg.sql import SQL, Identifier

from agl_plugin.store.__main__ import address_in, open_database
from agl_plugin.store.postgres import PostgresDatabase
from agl_plugin.store.sqlite import LastingStore
from foundation.errors import RunError, UserError
from sql_agent.config import ROOT
from tests.postgres import new_database

# A process that dies in its turn, after it took a rollout out of the queue.
DIES = """
import asyncio, os, signal, sys
from agl_plugin.store.postgres import PostgresDatabase

async def main():
    database = PostgresDatabase(sys.argv[1])
    async with database.turn():
        assert database.write("DELETE FROM rollout_queue").rowcount == 1
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


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
    async def work() -> None:
        store = LastingStore(PostgresDatabase(address))
        queued = await store.enqueue_rollout(input="q")
        died = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", DIES, address], cwd=ROOT, timeout=120)
        assert died.returncode == -9
        got = await store.dequeue_rollout(worker_id="alive")
        assert got and got.rollout_id == queued.rollout_id and got.attempt.sequence_id == 1
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
