"""What the store that lasts adds to a request: it is done once, old spans go, and a token is asked for."""

from __future__ import annotations

import asyncio
import gzip
import json
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from agentlightning.store.memory import InMemoryLightningStore
from agentlightning.types import EnqueueRolloutRequest, Span
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from agl_plugin.store.client import StoreClient
from agl_plugin.store.request_key import key_of_request
from agl_plugin.store.server import StoreServer
from agl_plugin.store.sqlite import SqliteLightningStore
from foundation.errors import UserError
from foundation.net import free_port
from foundation.store_token import VARIABLE, Guarded, check_host


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteLightningStore]:
    store = SqliteLightningStore(tmp_path / "store.db", keep_spans=2)
    yield store
    await store.close()


@contextmanager
def keyed(key: str) -> Iterator[None]:
    token = key_of_request.set(key)
    yield
    key_of_request.reset(token)


ONCE: list[Callable[[SqliteLightningStore, str], Awaitable[Any]]] = [
    lambda store, _: store.enqueue_rollout(input="q"),
    lambda store, _: store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(2)]),
    lambda store, _: store.dequeue_rollout(worker_id="w"),
    lambda store, _: store.dequeue_many_rollouts(limit=2, worker_id="w"),
    lambda store, _: store.start_rollout(input="q"),
    lambda store, rollout: store.start_attempt(rollout),
]


@pytest.mark.parametrize("ask", ONCE)
async def test_a_request_that_is_sent_again_is_done_once(store: SqliteLightningStore, tmp_path: Path, ask: Any) -> None:
    first = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input={"n": n}) for n in range(4)])

    async def counts() -> list[Any]:
        return [await store.collections.rollout_queue.size(), *(await store.statistics()).values()][:-1]

    with keyed("a"):
        answer = await ask(store, first[0].rollout_id)
        done = await counts()
        again = await ask(store, first[0].rollout_id)
    assert again == answer and type(again) is type(answer) and await counts() == done
    with keyed("b"):
        assert await ask(store, first[1].rollout_id) != answer


async def test_an_answer_outlives_the_store(store: SqliteLightningStore, tmp_path: Path) -> None:
    with keyed("a"):
        answer = await store.enqueue_rollout(input="q")
        await store.close()
        after = SqliteLightningStore(tmp_path / "store.db")
        assert await after.enqueue_rollout(input="q") == answer
    await after.close()


async def test_of_an_empty_queue_one_asks_again(store: SqliteLightningStore) -> None:
    with keyed("a"):
        assert await store.dequeue_rollout() is None
        await store.enqueue_rollout(input="q")
    with keyed("c"):
        assert await store.dequeue_rollout() is not None


async def step(store: SqliteLightningStore, *, ends: bool = True) -> str:
    """One step's rollout, with a span."""
    await store.add_resources({})
    rollout = await store.start_rollout(input="q")
    ids: dict[str, Any] = {"rollout_id": rollout.rollout_id, "attempt_id": rollout.attempt.attempt_id}
    await store.add_span(Span.from_attributes(attributes={"n": 1}, sequence_id=1, **ids))
    if ends:
        await store.update_attempt(rollout.rollout_id, "latest", status="succeeded")
    return rollout.rollout_id


async def spans(store: SqliteLightningStore, rollouts: list[str]) -> list[int]:
    return [len(await store.query_spans(rollout)) for rollout in rollouts]


async def test_spans_of_ended_rollouts_go_with_the_steps(store: SqliteLightningStore, tmp_path: Path) -> None:
    rollouts = [await step(store, ends=number != 1) for number in range(5)]
    assert await spans(store, rollouts) == [0, 1, 0, 1, 1]  # the second has not ended
    assert len(await store.query_rollouts()) == 5
    await store.update_rollout(rollouts[1], status="cancelled")
    await store.close()
    after = SqliteLightningStore(tmp_path / "store.db", keep_spans=2)
    await after.add_resources({})
    assert await spans(after, rollouts) == [0, 0, 0, 0, 1]
    await after.close()


async def test_the_trainer_says_how_long_spans_are_kept(store: SqliteLightningStore) -> None:
    await store.update_worker("trainer-old", heartbeat_stats={"keep_spans": 1})
    await store.update_worker("trainer-new", heartbeat_stats={"keep_spans": 0})
    await store.update_worker("runner", heartbeat_stats={"cpu": 1})
    assert await spans(store, [await step(store) for _ in range(5)]) == [1] * 5
    await store.update_worker("trainer-new", heartbeat_stats={"keep_spans": 3})
    await step(store)
    assert (await store.statistics())["total_spans"] == 3  # pyright: ignore[reportTypedDictNotRequiredAccess]


# The token

APP = Starlette(routes=[Route("/", lambda _request: PlainTextResponse("in"))])


@pytest.mark.parametrize(
    ("wanted", "header", "status"),
    [
        ("", "", 200),
        ("", "Bearer x", 200),
        ("s3cret", "Bearer s3cret", 200),
        ("s3cret", "", 401),
        ("s3cret", "Bearer s3cre", 401),
        ("s3cret", "bearer s3cret", 401),
        ("s3cret", "s3cret", 401),
        ("密", "Bearer 密", 200),
    ],
)
def test_the_token_is_asked_for(monkeypatch: pytest.MonkeyPatch, wanted: str, header: str, status: int) -> None:
    monkeypatch.setenv(VARIABLE, wanted)
    headers: Any = {"Authorization": header.encode()} if header else {}
    answer = TestClient(Guarded(APP)).get("/", headers=headers)
    assert answer.status_code == status
    assert status == 200 or (VARIABLE in answer.text and "s3cret" not in answer.text)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "::0", "0", "", "10.0.0.1", "example.org", "[::]"])
def test_only_this_machine_is_served_without_a_token(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    for own in ("127.0.0.1", "localhost", "::1", "127.0.0.2"):
        check_host(own, "--host")
    with pytest.raises(UserError, match=VARIABLE):
        check_host(host, "--host")
    monkeypatch.setenv(VARIABLE, "s3cret")
    check_host(host, "--host")


async def test_a_client_with_the_token_is_served_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "s3cret")
    server = StoreServer(InMemoryLightningStore(thread_safe=True), host="127.0.0.1", port=free_port())
    await server.start()
    client = StoreClient(server.endpoint)
    assert b"s3cret" not in pickle.dumps(client)
    try:
        rollout = await client.enqueue_rollout(input="q")
        assert [one.rollout_id for one in await client.dequeue_many_rollouts(limit=2)] == [rollout.rollout_id]
        await client.close()
        monkeypatch.delenv(VARIABLE)
        with pytest.raises(Exception, match="401"):
            await client.query_rollouts()
        assert await client.dequeue_many_rollouts(limit=2) == []
    finally:
        await client.close()
        await server.stop()


async def test_a_client_waits_for_a_store_that_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agl_plugin.store.client.PAUSE_S", 0.05)
    store = SqliteLightningStore(tmp_path / "store.db")
    server = StoreServer(store, host="127.0.0.1", port=free_port())
    client, hasty = StoreClient(server.endpoint, patience_s=60.0), StoreClient(server.endpoint, patience_s=0.0)
    waiting = asyncio.create_task(client.enqueue_rollout(input="q"))
    with pytest.raises(OSError):
        await hasty.query_rollouts()
    await server.start()
    try:
        rollout = await waiting
        assert [one.rollout_id for one in await client.query_rollouts()] == [rollout.rollout_id]
    finally:
        await client.close()
        await hasty.close()
        await server.stop()
        await store.close()


SPAN = {"rollout_id": "x" * 30_000, "attempt_id": "a", "sequence_id": 1, "name": "n", "start_time": 1, "end_time": 2}
SPAN |= {"trace_id": "t", "span_id": "s", "parent_id": None, "status": {"status_code": "OK"}, "attributes": {}}
SPAN |= {"events": [], "links": [], "context": None, "parent": None, "resource": {"attributes": {}, "schema_url": ""}}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("rollouts", '{"input": "\\ud800"}', 400),
        ("rollouts", f'{{"input": {"[" * 300 + "]" * 300}}}', 400),
        ("rollouts", "[" * 100_000, 400),
        ("rollouts", '{"input": 1, "mode": NaN}', 422),
        ("rollouts", '{"input": 1, "mode": Infinity, "\\u0000": 1}', 422),
        ("rollouts", f'{{"input": {"9" * 5_000}}}', 400),
        ("spans", json.dumps(SPAN), 400),
        ("rollouts", '{"input": NaN, "mode": "train"}', 201),
        ("queues/rollouts/dequeue", f'{{"limit": {10**30}}}', 400),
    ],
)
async def test_no_body_breaks_the_store_or_its_readers(
    store: SqliteLightningStore, path: str, body: str, status: int
) -> None:
    app: Any = StoreServer(store, host="127.0.0.1", port=free_port()).app
    way = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=way, base_url="http://store/v1/agl") as client:
        answer = await client.post(f"/{path}", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == status and len(answer.content) < 1_000, answer.text[:999]
        assert (await client.get("/rollouts")).status_code == 200
        assert (await client.get("/rollouts/none")).status_code == 400


TRACES = {"Content-Type": "application/x-protobuf"}
PACKED = {**TRACES, "Content-Encoding": "gzip"}


@pytest.mark.parametrize(
    ("path", "headers", "body", "status"),
    [
        ("agl/rollouts", {"Content-Type": "application/json"}, b'{"input": "%s"}' % (b"x" * 2000), 413),
        ("agl/rollouts", {"Content-Type": "application/json"}, b'{"input": "%s"}' % (b"x" * 20_000), 413),
        ("traces", TRACES, b"x" * 2000, 413),
        ("traces", PACKED, gzip.compress(b" " * 100_000, mtime=0), 413),
        ("traces", PACKED, b"x", 400),
        ("traces", PACKED, gzip.compress(b"", mtime=0)[:-1], 400),
        ("traces", PACKED, gzip.compress(b"", mtime=0), 200),
    ],
)
async def test_a_body_has_a_limit_and_is_told_it(
    store: SqliteLightningStore,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    headers: dict[str, str],
    body: bytes,
    status: int,
) -> None:
    """Packed or not, over a real socket; its neighbours are answered."""
    monkeypatch.setattr("agl_plugin.store.server.MOST_BODY_BYTES", 1000)
    server = StoreServer(store, host="127.0.0.1", port=free_port())
    await server.start()
    try:
        async with httpx.AsyncClient(base_url=f"{server.endpoint}/v1") as client:
            answer = await client.post(path, content=body, headers=headers)
            assert answer.status_code == status, answer.text
            if status != 200:
                told = answer.json()["detail"]
                assert status == 400 or ("1000 bytes" in told and "send less" in told)
            assert (await client.get("agl/rollouts")).status_code == 200
    finally:
        await server.stop()


async def test_a_body_that_does_not_come_is_408(store: SqliteLightningStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agl_plugin.store.server.BODY_S", 0.2)
    server = StoreServer(store, host="127.0.0.1", port=free_port())
    await server.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.endpoint.rpartition(":")[2]))
        writer.write(b"POST /v1/agl/rollouts HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
        async with asyncio.timeout(10):
            assert b" 408 " in await reader.readline()
        writer.close()
    finally:
        await server.stop()
