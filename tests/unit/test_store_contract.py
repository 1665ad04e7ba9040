"""What a store must do, asked of agent-lightning's memory store and of the store that lasts alike."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
from agentlightning.store.collection_based import CollectionBasedLightningStore
from agentlightning.store.memory import InMemoryLightningStore
from agentlightning.types import LLM, AttemptedRollout, EnqueueRolloutRequest, Rollout, RolloutConfig, Span

from agl_plugin.store.postgres import PostgresDatabase
from agl_plugin.store.sqlite import LastingStore, SqliteLightningStore
from tests.postgres import new_database

Store = CollectionBasedLightningStore[Any]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield InMemoryLightningStore(thread_safe=True, scan_debounce_seconds=0)
        return
    if request.param == "sqlite":
        store = SqliteLightningStore(tmp_path / "store.db", scan_debounce_seconds=0)
    else:
        address = new_database(request.getfixturevalue("postgres"))
        store = LastingStore(PostgresDatabase(address), scan_debounce_seconds=0)
    yield store
    await store.close()


def span_of(rollout: AttemptedRollout, number: int, **fields: Any) -> Span:
    ids = {"rollout_id": rollout.rollout_id, "attempt_id": rollout.attempt.attempt_id, "sequence_id": number}
    return Span.from_attributes(
        **{"name": f"call {number}", "attributes": {"n": number}, "span_id": f"{number:016x}", **ids, **fields}
    )


def llm(model: str) -> dict[str, Any]:
    return {"main_llm": LLM(endpoint="http://127.0.0.1:1", model=model, sampling_parameters={"top_p": 0.5})}


async def taken(store: Store, **config: Any) -> AttemptedRollout:
    await store.enqueue_rollout(input={"question": "甲"}, config=RolloutConfig(**config))
    rollout = await store.dequeue_rollout(worker_id="w")
    assert rollout
    return rollout


# Queue


async def test_rollouts_are_taken_in_the_order_of_the_queue_and_once(store: Store) -> None:
    first = await store.enqueue_rollout(input={"n": 0}, mode="train", resources_id="rs", metadata={"data_id": "d"})
    more = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input={"n": n}) for n in (1, 2, 3)])
    assert (first.status, first.mode, first.resources_id, first.metadata) == (
        "queuing",
        "train",
        "rs",
        {"data_id": "d"},
    )
    got = [await store.dequeue_rollout(), *await store.dequeue_many_rollouts(limit=2, worker_id="w")]
    assert [one.rollout_id for one in got if one] == [first.rollout_id, more[0].rollout_id, more[1].rollout_id]
    assert [one.input["n"] for one in got if one] == [0, 1, 2]
    assert {one.status for one in got if one} == {"preparing"}
    assert [one.attempt.worker_id for one in got if one] == [None, "w", "w"]
    assert len(await store.dequeue_many_rollouts(limit=5)) == 1
    assert await store.dequeue_rollout() is None and await store.dequeue_many_rollouts(limit=5) == []


async def test_the_queue_passes_over_what_is_no_longer_queuing(store: Store) -> None:
    rollouts = [await store.enqueue_rollout(input=n) for n in range(3)]
    await store.update_rollout(rollouts[0].rollout_id, status="cancelled")
    await store.update_rollout(rollouts[1].rollout_id, status="succeeded")
    got = await store.dequeue_rollout()
    assert got and got.rollout_id == rollouts[2].rollout_id
    assert await store.dequeue_rollout() is None


async def test_a_rollout_that_is_queued_again_is_taken_again_with_a_new_attempt(store: Store) -> None:
    rollout = await taken(store)
    for _ in range(2):  # the second does not queue it twice
        await store.update_rollout(rollout.rollout_id, status="requeuing")
    again = await store.dequeue_rollout()
    assert again and (again.rollout_id, again.attempt.sequence_id) == (rollout.rollout_id, 2)
    assert again.attempt.attempt_id != rollout.attempt.attempt_id
    assert await store.dequeue_rollout() is None


# Queries


async def test_rollouts_are_found_by_status_and_id(store: Store) -> None:
    rollouts = [await store.enqueue_rollout(input=n) for n in range(4)]
    ids = [rollout.rollout_id for rollout in rollouts]
    await store.update_rollout(ids[1], status="failed")
    await store.update_rollout(ids[3], status="succeeded")

    async def found(**query: Any) -> list[str]:
        return [one.rollout_id for one in await store.query_rollouts(**query)]

    assert await found() == ids
    assert await found(status_in=["failed", "succeeded"]) == [ids[1], ids[3]]
    assert await found(status_in=[]) == []
    assert await found(rollout_id_in=[ids[2], ids[0], "none"]) == [ids[0], ids[2]]
    assert await found(rollout_id_contains=ids[2][4:]) == [ids[2]]
    assert await found(status_in=["failed"], rollout_id_in=[ids[0]]) == []
    assert await found(status_in=["failed"], rollout_id_in=[ids[0]], filter_logic="or") == [ids[0], ids[1]]
    assert await found(filter_logic="or") == ids
    assert await found(rollout_id_contains="RO-") == []


async def test_rollouts_are_sorted_and_come_in_pages(store: Store) -> None:
    ids = [(await store.enqueue_rollout(input=n)).rollout_id for n in range(5)]
    await store.update_rollout(ids[0], status="succeeded")  # the one with an end
    page = await store.query_rollouts(sort_by="start_time", sort_order="desc", limit=2, offset=1)
    assert [one.rollout_id for one in page] == [ids[3], ids[2]]
    assert (page.limit, page.offset, page.total) == (2, 1, 5)
    assert [one.rollout_id for one in await store.query_rollouts(sort_by="rollout_id")] == sorted(ids)
    assert [one.rollout_id for one in await store.query_rollouts(sort_by="end_time")][0] == ids[0]
    assert [one.rollout_id for one in await store.query_rollouts(sort_by="end_time", sort_order="desc")][-1] == ids[0]
    assert [one.rollout_id for one in await store.query_rollouts(sort_by="mode")] == ids  # none has one: as they came
    nothing = await store.query_rollouts(limit=0)
    assert (list(nothing), nothing.total) == ([], 5)
    beyond = await store.query_rollouts(offset=9)
    assert (list(beyond), beyond.total) == ([], 5)
    with pytest.raises(ValueError):
        await store.query_rollouts(sort_by="no_such_field")
    with pytest.raises(ValueError):
        await store.query_rollouts(sort_by="status", sort_order="up")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("limit", "offset", "expected"), [(2**70, 1, [1, 2]), (1, 2**70, []), (-2, 0, []), (0, 0, []), (-1, 2, [2])]
)
async def test_pages_may_begin_and_end_anywhere(store: Store, limit: int, offset: int, expected: list[int]) -> None:
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=number) for number in range(3)])
    found = await store.query_rollouts(limit=limit, offset=offset)
    assert ([one.input for one in found], found.total) == (expected, 3)


async def test_a_rollout_comes_with_its_latest_attempt(store: Store) -> None:
    queued = await store.enqueue_rollout(input="q")
    assert type(await store.get_rollout_by_id(queued.rollout_id)) is Rollout
    started = await store.start_rollout(input="q", worker_id="w")
    again = await store.start_attempt(started.rollout_id)
    for one in [await store.get_rollout_by_id(started.rollout_id), (await store.query_rollouts())[1]]:
        assert isinstance(one, AttemptedRollout) and one.attempt == again.attempt
    assert await store.get_rollout_by_id("none") is None


async def test_what_was_put_in_comes_out(store: Store) -> None:
    question = {
        "题": "甲药\u2028",
        "half": "\ud800",
        "n": 2**70,
        "x": 1e-320,
        "nan": float("nan"),
        "deep": [[{}]],
        "no": None,
    }
    config = RolloutConfig(timeout_seconds=0.1 + 0.2, max_attempts=3, retry_condition=["timeout"])
    rollout = await store.enqueue_rollout(input=question, config=config, metadata={"a": [1, True]})
    found = await store.get_rollout_by_id(rollout.rollout_id)
    assert found and found.input.pop("nan") != found.input and {**question, "nan": 0} == {**found.input, "nan": 0}
    assert (found.config, found.metadata, found.start_time) == (config, {"a": [1, True]}, rollout.start_time)


async def test_a_change_names_its_fields_and_leaves_the_others(store: Store) -> None:
    rollout = await store.enqueue_rollout(input={"a": 1}, mode="val", metadata={"m": 1})
    config = RolloutConfig(max_attempts=7)
    await store.update_rollout(rollout.rollout_id, config=config, metadata=None)
    done = await store.update_rollout(rollout.rollout_id, status="succeeded", mode="train", input={"b": 2})
    assert (done.config, done.metadata, done.mode, done.input) == (config, None, "train", {"b": 2})
    assert done.end_time and done.end_time >= done.start_time == rollout.start_time
    assert await store.get_rollout_by_id(rollout.rollout_id) == done
    with pytest.raises(ValueError, match=r"Item does not exist .*rollout_id='none'"):
        await store.update_rollout("none", status="failed")


# Attempts


async def test_attempts_count_up_and_are_sorted(store: Store) -> None:
    rollout = await store.start_rollout(input="q")
    for _ in range(2):
        await store.start_attempt(rollout.rollout_id)
    page = await store.query_attempts(rollout.rollout_id, sort_order="desc", limit=2)
    assert ([one.sequence_id for one in page], page.total) == ([3, 2], 3)
    latest = await store.get_latest_attempt(rollout.rollout_id)
    assert latest and latest.sequence_id == 3
    assert await store.get_latest_attempt("none") is None and list(await store.query_attempts("none")) == []
    with pytest.raises(ValueError, match="Rollout none not found"):
        await store.start_attempt("none")


async def test_the_latest_attempt_alone_decides_about_its_rollout(store: Store) -> None:
    rollout = await store.start_rollout(input="q")
    second = await store.start_attempt(rollout.rollout_id)
    await store.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, status="succeeded")
    assert await status(store, rollout) == "preparing"
    done = await store.update_attempt(rollout.rollout_id, "latest", status="succeeded", metadata={"k": 1})
    assert (done.attempt_id, done.metadata) == (second.attempt.attempt_id, {"k": 1}) and done.end_time
    assert await status(store, rollout) == "succeeded"
    with pytest.raises(ValueError, match="Attempt none not found"):
        await store.update_attempt(rollout.rollout_id, "none", status="failed")
    with pytest.raises(ValueError, match="Rollout none not found"):
        await store.update_attempt("none", "latest", status="failed")


async def status(store: Store, rollout: Rollout) -> str:
    found = await store.get_rollout_by_id(rollout.rollout_id)
    assert found
    return found.status


@pytest.mark.parametrize(
    ("ended", "limits", "then"),
    [
        ("failed", {}, "failed"),
        ("failed", {"max_attempts": 2, "retry_condition": ["failed"]}, "requeuing"),
        ("unresponsive", {"max_attempts": 2, "retry_condition": ["failed"]}, "failed"),
        ("timeout", {"max_attempts": 2, "retry_condition": ["timeout"]}, "requeuing"),
        ("succeeded", {"max_attempts": 2, "retry_condition": ["timeout"]}, "succeeded"),
    ],
)
async def test_an_attempt_that_ended_is_tried_again_as_the_rollout_says(
    store: Store, ended: Any, limits: dict[str, Any], then: str
) -> None:
    rollout = await taken(store, **limits)
    await store.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, status=ended)
    assert await status(store, rollout) == then
    again = await store.dequeue_rollout()
    assert (again is not None) == (then == "requeuing")
    if again:
        await store.update_attempt(again.rollout_id, again.attempt.attempt_id, status=ended)
        assert await status(store, rollout) == "failed"  # two attempts were allowed


# Watchdog


@pytest.mark.parametrize(
    ("limits", "seen", "then"),
    [
        ({"timeout_seconds": 50.0}, "timeout", "failed"),
        ({"unresponsive_seconds": 50.0}, "unresponsive", "failed"),
        ({"timeout_seconds": 50.0, "max_attempts": 2, "retry_condition": ["timeout"]}, "timeout", "requeuing"),
        ({"timeout_seconds": 500.0, "unresponsive_seconds": 500.0}, "preparing", "preparing"),
        ({}, "preparing", "preparing"),
    ],
)
async def test_the_watchdog_gives_up_attempts_that_take_too_long(
    store: Store, monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any], seen: str, then: str
) -> None:
    rollout = await taken(store, **limits)
    now = rollout.attempt.start_time
    monkeypatch.setattr("agentlightning.store.utils.time.time", lambda: now + 100.0)
    attempts = await store.query_attempts(rollout.rollout_id)
    assert ([one.status for one in attempts], await status(store, rollout)) == ([seen], then)
    worker = await store.get_worker_by_id("w")
    assert worker and worker.status == ("busy" if seen == "preparing" else "unknown")
    assert (await store.dequeue_rollout() is not None) == (then == "requeuing")


async def test_what_the_watchdog_found_stays_when_the_request_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = await taken(store, timeout_seconds=50.0)
    now = rollout.attempt.start_time
    monkeypatch.setattr("agentlightning.store.utils.time.time", lambda: now + 100.0)
    with pytest.raises(ValueError, match="none"):
        await store.update_rollout("none", status="failed")
    monkeypatch.setattr(store, "_scan_debounce_seconds", 1000.0)
    monkeypatch.setattr(store, "_last_scan_entrance_time", now + 100.0)
    assert await status(store, rollout) == "failed"


async def test_a_span_is_a_heartbeat(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rollout = await taken(store, unresponsive_seconds=50.0, max_attempts=2, retry_condition=["unresponsive"])
    start = rollout.attempt.start_time
    monkeypatch.setattr("agentlightning.store.utils.time.time", lambda: start + 40.0)
    await store.add_span(span_of(rollout, 1))
    attempt = await store.get_latest_attempt(rollout.rollout_id)
    assert attempt and (attempt.status, attempt.last_heartbeat_time) == ("running", start + 40.0)
    assert await status(store, rollout) == "running"
    monkeypatch.setattr("agentlightning.store.utils.time.time", lambda: start + 80.0)
    assert await status(store, rollout) == "running"
    monkeypatch.setattr("agentlightning.store.utils.time.time", lambda: start + 100.0)
    assert await status(store, rollout) == "requeuing"
    await store.add_span(span_of(rollout, 2))  # it lives after all, before somebody took it
    assert await status(store, rollout) == "running" and await store.dequeue_rollout() is None


# Spans


async def test_spans_are_found_by_attempt_and_field(store: Store) -> None:
    rollout = await taken(store)
    spans = [span_of(rollout, n, parent_id="p" if n > 1 else None) for n in (1, 2, 3)]
    assert await store.add_many_spans(spans) == spans
    again = await store.start_attempt(rollout.rollout_id)
    await store.add_span(span_of(again, 4, name="reward"))

    async def found(attempt: str | None = None, **query: Any) -> list[int]:
        return [one.sequence_id for one in await store.query_spans(rollout.rollout_id, attempt, **query)]

    assert await found() == [1, 2, 3, 4] and await found("latest") == [4] and await found("none") == []
    assert await found(rollout.attempt.attempt_id, sort_order="desc", limit=2) == [3, 2]
    assert await found(name="call 2") == [2] and await found(name_contains="call") == [1, 2, 3]
    assert await found(parent_id_contains="p") == [2, 3] and await found(name="call 3", parent_id="p") == [3]
    assert await found(name="reward", span_id=spans[0].span_id, filter_logic="or") == [1, 4]
    assert await found("latest", span_id=spans[0].span_id, name="none", filter_logic="or") == []
    assert await found(filter_logic="or") == []  # any of no conditions
    assert list(await store.query_spans("none")) == [] and list(await store.query_spans("none", "latest")) == []
    kept = (await store.query_spans(rollout.rollout_id, name="call 2"))[0]
    assert kept == spans[1]


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_spans_that_compare_equal_come_as_they_were_added(store: Store, order: Literal["asc", "desc"]) -> None:
    rollout = await store.start_rollout(input="q")
    for number in range(3):
        await store.add_span(span_of(rollout, number, name="call"))
    found = await store.query_spans(rollout.rollout_id, sort_by="name", sort_order=order)
    assert [span.sequence_id for span in found] == [0, 1, 2]


async def test_a_span_is_kept_once_and_one_of_no_attempt_not_at_all(store: Store) -> None:
    rollout = await taken(store)
    span = span_of(rollout, 1)
    assert await store.add_span(span) is span and await store.add_span(span) is None
    assert await store.add_many_spans([span_of(rollout, 2), span, span_of(rollout, 3)]) != []
    assert [one.sequence_id for one in await store.query_spans(rollout.rollout_id)] == [1, 2, 3]
    with pytest.raises(ValueError, match=r"Attempt at-none not found"):
        await store.add_span(span_of(rollout, 4, attempt_id="at-none"))
    with pytest.raises(ValueError, match="Rollout none not found"):
        await store.add_span(span_of(rollout, 4, rollout_id="none"))
    assert (await store.statistics())["total_spans"] == 3  # pyright: ignore[reportTypedDictNotRequiredAccess]


async def test_sequence_ids_go_up_with_what_was_given_and_what_came(store: Store) -> None:
    rollout, other = await taken(store), await taken(store)
    ids = [(one.rollout_id, one.attempt.attempt_id) for one in (rollout, other)]
    assert await store.get_many_span_sequence_ids([ids[0], ids[1], ids[0], ids[0]]) == [1, 1, 2, 3]
    await store.add_span(span_of(rollout, 100))
    await store.add_span(span_of(rollout, 50))
    assert await store.get_next_span_sequence_id(*ids[0]) == 101
    assert await store.get_next_span_sequence_id(*ids[1]) == 2
    assert await store.get_many_span_sequence_ids([]) == []


# Resources and workers


async def test_resources_have_versions_and_the_latest_is_given_to_rollouts(store: Store) -> None:
    assert await store.get_latest_resources() is None and await store.get_resources_by_id("none") is None
    first = await store.add_resources(llm("one"))
    assert (await store.enqueue_rollout(input="q")).resources_id == first.resources_id
    second = await store.update_resources("mine", llm("two"))
    third = await store.update_resources("mine", llm("three"))
    assert (second.version, third.version, third.create_time) == (1, 2, second.create_time)
    assert await store.get_latest_resources() == third == await store.get_resources_by_id("mine")
    assert (await store.enqueue_rollout(input="q")).resources_id == "mine"
    assert (await store.enqueue_rollout(input="q", resources_id="rs")).resources_id == "rs"
    assert [one.resources_id for one in await store.query_resources()] == [first.resources_id, "mine"]
    assert [one.version for one in await store.query_resources(resources_id="mine")] == [2]
    page = await store.query_resources(resources_id_contains="i", sort_by="update_time", limit=1)
    assert ([one.resources_id for one in page], page.total) == (["mine"], 1)


async def test_workers_say_what_they_do(store: Store) -> None:
    seen = await store.update_worker("w", heartbeat_stats={"cpu": 0.5})
    assert (seen.status, seen.heartbeat_stats) == ("unknown", {"cpu": 0.5}) and seen.last_heartbeat_time
    rollout = await taken(store)
    busy = await store.get_worker_by_id("w")
    assert busy and (busy.status, busy.current_rollout_id, busy.heartbeat_stats) == (
        *("busy", rollout.rollout_id),
        {"cpu": 0.5},
    )
    await store.update_attempt(rollout.rollout_id, "latest", status="succeeded")
    idle = await store.get_worker_by_id("w")
    assert idle and (idle.status, idle.current_rollout_id) == ("idle", None) and idle.last_idle_time
    await store.dequeue_rollout(worker_id="other")
    await store.update_worker("third")
    assert [one.worker_id for one in await store.query_workers(status_in=["idle"])] == ["w", "other"]
    assert [one.worker_id for one in await store.query_workers(worker_id_contains="t", sort_by="worker_id")] == [
        *("other", "third")
    ]
    both = await store.query_workers(status_in=["unknown"], worker_id_contains="w", filter_logic="or")
    assert [one.worker_id for one in both] == ["w", "third"]
    assert await store.get_worker_by_id("none") is None


# Waiting, counting, and many at once


async def test_waiting_ends_with_the_rollout_or_the_time(store: Store) -> None:
    one, other = [await store.enqueue_rollout(input=n) for n in range(2)]
    await store.update_rollout(one.rollout_id, status="succeeded")
    ids = [other.rollout_id, one.rollout_id, "none"]
    assert [r.rollout_id for r in await store.wait_for_rollouts(rollout_ids=ids, timeout=0)] == [one.rollout_id]
    assert [r.rollout_id for r in await store.wait_for_rollouts(rollout_ids=ids, timeout=0.05)] == [one.rollout_id]
    waiting = asyncio.create_task(store.wait_for_rollouts(rollout_ids=ids[:2], timeout=1.0))
    await asyncio.sleep(0)
    await store.update_rollout(other.rollout_id, status="failed")
    assert [r.rollout_id for r in await waiting] == ids[:2]


async def test_statistics_count(store: Store) -> None:
    rollout = await taken(store)
    await store.add_span(span_of(rollout, 1))
    await store.add_resources(llm("one"))
    counts = {key: value for key, value in (await store.statistics()).items() if key in COUNTS}
    assert counts == dict.fromkeys(COUNTS, 1) | {"name": type(store).__name__}


COUNTS = ("name", "total_rollouts", "total_attempts", "total_spans", "total_resources", "total_workers")


async def test_many_at_once_take_each_rollout_once_and_get_their_own_numbers(store: Store) -> None:
    enqueued = await asyncio.gather(*(store.enqueue_rollout(input=n) for n in range(40)))
    got = [one for one in await asyncio.gather(*(store.dequeue_rollout() for _ in range(60))) if one]
    assert sorted(one.rollout_id for one in got) == sorted(one.rollout_id for one in enqueued)
    rollout = got[0]
    ids = (rollout.rollout_id, rollout.attempt.attempt_id)
    numbers = await asyncio.gather(*(store.get_next_span_sequence_id(*ids) for _ in range(40)))
    assert sorted(numbers) == list(range(1, 41))
    await asyncio.gather(*(store.add_span(span_of(rollout, n)) for n in numbers))
    await asyncio.gather(*(store.update_resources("rs", llm(str(n))) for n in range(20)))
    latest = await store.get_latest_resources()
    assert latest and latest.version == 20
    assert (await store.query_spans(rollout.rollout_id)).total == 40


async def test_threads_with_loops_of_their_own_share_it(store: Store) -> None:
    rollout = await taken(store)
    ids = (rollout.rollout_id, rollout.attempt.attempt_id)
    numbers: list[int] = []

    async def work() -> None:
        for _ in range(20):
            numbers.append(await store.get_next_span_sequence_id(*ids))

    threads = [threading.Thread(target=asyncio.run, args=(work(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        await store.query_rollouts()
    assert sorted(numbers) == list(range(1, 61))


async def test_an_atomic_block_is_nobody_elses(store: Store) -> None:
    await store.update_resources("rs", llm("0"))

    async def count_up() -> None:
        async with store.collections.atomic(mode="rw", labels=["resources"]) as collections:
            found = await collections.resources.get({"resources_id": {"exact": "rs"}})
            await asyncio.sleep(0.001)
            await collections.resources.update([found.model_copy(update={"version": found.version + 1})])

    await asyncio.gather(*(count_up() for _ in range(10)))
    found = await store.get_resources_by_id("rs")
    assert found and found.version == 11
