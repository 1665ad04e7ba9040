"""Tables, queue and counters against agent-lightning's memory collections, and what a database promises."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from agentlightning.store.collection.base import Collection, DuplicatedPrimaryKeyError, KeyValue, Queue
from agentlightning.store.collection.memory import DequeBasedQueue, DictBasedKeyValue, ListBasedCollection
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from agl_plugin.store.database import Database
from agl_plugin.store.postgres import PostgresDatabase
from agl_plugin.store.queues import Counters, TableQueue
from agl_plugin.store.sqlite import SqliteLightningStore
from agl_plugin.store.tables import Table, Turns
from foundation.errors import RunError
from tests.postgres import new_database

NUMBERS = itertools.count()


class Item(BaseModel):
    key: str
    number: int = 0
    kind: Literal["a", "b"] | None = None
    score: float | None = None
    end_time: float | None = None
    words: list[str] = Field(default_factory=list)
    note: str | None = None


class Other(BaseModel):
    key: str


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(tmp_path / "store.db")
    yield database
    database.close()


@pytest.fixture(params=["sqlite", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Turns]:
    if request.param == "sqlite":
        database: Turns = Database(tmp_path / "kept.db")
    else:
        database = PostgresDatabase(new_database(request.getfixturevalue("postgres")))
    yield database
    database.close()


@pytest.fixture(params=[False, True], ids=["memory", "kept"])
def is_kept(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def table(is_kept: bool, kept: Turns) -> Collection[Item]:
    return Table(kept, "items", Item, ["key"]) if is_kept else ListBasedCollection([], Item, ["key"])


texts = st.text(st.sampled_from("ab甲\\%_'\"\0 \ud800"), max_size=3)
scores = st.none() | st.floats(allow_nan=False) | st.sampled_from([0.0, 1.0, 0.1 + 0.2])
items = st.builds(
    Item,
    key=st.text(st.sampled_from("ab甲%_'\" "), max_size=3),
    number=st.integers(-3, 3),
    kind=st.sampled_from([None, "a", "b"]),
    score=scores,
    end_time=scores,
    words=st.lists(texts, max_size=2),
    note=st.none() | texts,
)
fields = st.sampled_from(["key", "number", "kind", "score", "end_time", "words", "note", "none"])
values = st.one_of(st.none(), texts, st.integers(-3, 3), st.booleans(), scores, st.just("a"))
ways = st.fixed_dictionaries(
    {}, optional={"exact": values, "within": st.lists(values, max_size=3) | st.sets(texts) | values, "contains": values}
)
filters = st.dictionaries(fields, ways, max_size=3)
wholes = st.builds(
    lambda some, must, logic: {**some, "_aggregate": logic, **({"_must": must} if must else {})},
    *(filters, filters, st.sampled_from(["and", "or"])),
)
sorts = st.none() | st.fixed_dictionaries({"name": fields, "order": st.sampled_from(["asc", "desc"])})


async def outcome(collection: Collection[Item], *query: Any) -> Any:
    try:
        found = await collection.query(*query)
        first = await collection.get(*query[:2])
    except (ValueError, TypeError) as exc:
        return type(exc)
    return list(found.items), found.total, found.limit, found.offset, first


@pytest.mark.long
@example(
    [Item(key=key, note=note) for key, note in zip("abcdef", ("%", "\0", "\ud800", "甲", "\1", "\ue000"), strict=True)],
    *({"_aggregate": "and"}, {"name": "note", "order": "asc"}, -1, 0),
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(items, max_size=6, unique_by=lambda item: item.key), wholes, sorts, st.integers(-1, 4), st.integers(0, 3)
)
def test_any_query_is_answered_as_by_the_memory_collection(
    kept: Turns, some: list[Item], filter: Any, sort: Any, limit: int, offset: int
) -> None:
    async def work() -> None:
        table = Table(kept, f"items{next(NUMBERS)}", Item, ["key"])
        await table.insert(some)
        query = (filter, sort, limit, offset)
        assert await outcome(table, *query) == await outcome(ListBasedCollection(some, Item, ["key"]), *query)

    asyncio.run(work())


async def test_items_are_inserted_and_changed_by_their_key(table: Collection[Item]) -> None:
    await table.insert((Item(key="a", number=1), Item(key="b", number=2)))
    assert await table.size() == 2
    more = [Item(key="c"), Item(key="c")]
    for items, told in (
        ([Item(key="a")], "Item already exists"),
        (more, "Insert payload contains duplicated primary key"),
    ):
        with pytest.raises(DuplicatedPrimaryKeyError, match=told):
            await table.insert(items)
    assert await table.get({"key": {"exact": "c"}}) is None
    whole, part = Item(key="a", number=7, note="x"), Item(key="b", number=9, note="y")
    assert await table.update([whole]) == [whole]
    assert await table.update([part], update_fields=["note"]) == [Item(key="b", number=2, note="y")]
    assert await table.upsert([Item(key="b", number=3), Item(key="c")], update_fields=["number"]) == [
        *(Item(key="b", number=3, note="y"), Item(key="c"))
    ]
    assert await table.upsert([Item(key="c", number=5)], update_fields=[]) == [Item(key="c")]
    assert await table.upsert([Item(key="c", number=5)]) == [Item(key="c", number=5)]
    assert list(await table.query()) == [whole, Item(key="b", number=3, note="y"), Item(key="c", number=5)]
    with pytest.raises(ValueError, match=r"Item does not exist with primary key\(s\): key='z'"):
        await table.update([Item(key="z")])
    with pytest.raises(TypeError):
        await table.insert([Other(key="z")])  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_items_that_compare_equal_come_in_the_order_of_the_memory_collection(
    is_kept: bool, kept: Turns, order: Literal["asc", "desc"]
) -> None:
    keys = ["kind", "key"]
    pairs: Collection[Item] = Table(kept, "pairs", Item, keys) if is_kept else ListBasedCollection([], Item, keys)
    await pairs.insert([Item(kind="a", key="1"), Item(kind="b", key="2"), Item(kind="a", key="3")])
    for field in ("score", "end_time", "number"):
        of_all = await pairs.query({"key": {"within": ["1", "2"]}}, {"name": field, "order": order})
        assert [item.key for item in of_all] == ["2", "1"]
    filters: list[Any] = [{"kind": {"exact": "a"}}, {"_must": {"kind": {"exact": "a"}}}]
    for filter in filters:
        of_one = await pairs.query(filter, {"name": "score", "order": order})
        assert [item.key for item in of_one] == ["1", "3"]


async def test_unknown_operators_are_refused(table: Collection[Item]) -> None:
    await table.insert([Item(key="a")])
    unknown: list[Any] = [{"number": {"above": 1}}, {"number": {"exact": 1}, "_aggregate": "xor"}, {"_must": 3}]
    for filter in unknown:
        with pytest.raises((ValueError, TypeError)):
            await table.query(filter)


@pytest.fixture
def queue(is_kept: bool, kept: Turns) -> Queue[str]:
    return TableQueue(kept, "queue") if is_kept else DequeBasedQueue(str)


async def test_a_queue_is_first_in_first_out(queue: Queue[str]) -> None:
    some = ["a", "b", "c"]
    assert await queue.enqueue(some) == some
    assert await queue.has("b") and not await queue.has("z")
    assert list(await queue.dequeue()) == ["a"]
    await queue.enqueue(["a"])
    assert list(await queue.dequeue(0)) == [] == list(await queue.dequeue(-1))
    assert list(await queue.dequeue(9)) == ["b", "c", "a"] and list(await queue.dequeue(9)) == []


@pytest.fixture
def counters(is_kept: bool, kept: Turns) -> KeyValue[str, int]:
    return Counters(kept, "counters") if is_kept else DictBasedKeyValue()


async def test_counters_count(counters: KeyValue[str, int]) -> None:
    assert await counters.inc("a", 2) == 2 and await counters.inc("a", 3) == 5
    assert await counters.chmax("a", 4) == 5 and await counters.chmax("a", 8) == 8 and await counters.chmax("c", 1) == 1
    assert await counters.inc("a", 1) == 9 and await counters.inc("c", 1) == 2


# What the database promises


async def test_a_turn_that_fails_leaves_nothing_and_takes_no_other_with_it(kept: Turns) -> None:
    table = Table(kept, "items", Item, ["key"])

    async def fails() -> None:
        async with kept.turn():
            await table.insert([Item(key="bad")])
            raise KeyError

    results = await asyncio.gather(
        table.insert([Item(key="a")]), fails(), table.insert([Item(key="b")]), return_exceptions=True
    )
    assert [type(one) for one in results] == [type(None), KeyError, type(None)]
    with pytest.raises(DuplicatedPrimaryKeyError):
        await table.insert([Item(key="c"), Item(key="a")])
    assert {item.key for item in await table.query()} == {"a", "b"}  # of those that came together either may be first


async def test_what_was_told_is_in_the_file(database: Database) -> None:
    table = Table(database, "items", Item, ["key"])
    reader = sqlite3.connect(database.path)
    for key in "abc":
        await table.insert([Item(key=key)])
        assert reader.execute("SELECT count(*) FROM items WHERE key = ?", (key,)).fetchone() == (1,)
    reader.close()


async def test_a_reader_is_told_nothing_that_could_be_lost(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(database, "items", Item, ["key"])
    monkeypatch.setattr("agl_plugin.store.database.LINGER_S", 0.2)
    reader = sqlite3.connect(database.path)
    writing = asyncio.create_task(table.insert([Item(key="a")]))
    await asyncio.sleep(0)
    assert await table.get({"key": {"exact": "a"}}) == Item(key="a")
    assert reader.execute("SELECT count(*) FROM items").fetchone() == (1,)
    await writing
    reader.close()


async def test_one_who_no_longer_waits_takes_the_commit_from_nobody(database: Database) -> None:
    table = Table(database, "items", Item, ["key"])
    left = asyncio.create_task(table.insert([Item(key="a")]))
    stays = asyncio.create_task(table.insert([Item(key="b")]))
    await asyncio.sleep(0)
    left.cancel()
    await stays
    assert await table.size() == 2


async def test_a_disk_that_is_full_is_told_and_the_store_goes_on(database: Database) -> None:
    table = Table(database, "items", Item, ["key"])
    await table.insert([Item(key="a")])
    ((pages,),) = await database.read("PRAGMA page_count")
    await database.read(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        await table.insert([Item(key="big", note="x" * 200_000)])
    await database.read("PRAGMA max_page_count = 1000000")
    await table.insert([Item(key="b")])
    assert [item.key for item in await table.query()] == ["a", "b"]


async def test_a_store_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "store.db"
    store = SqliteLightningStore(path)
    queued = [await store.enqueue_rollout(input=n) for n in range(3)]
    taken = await store.dequeue_rollout(worker_id="w")
    with pytest.raises(RunError, match="another store has this file open"):
        SqliteLightningStore(path)
    await store.close()
    store = SqliteLightningStore(path)
    open_ones = await store.query_rollouts(status_in=["preparing"])
    assert taken and [one.rollout_id for one in open_ones] == [taken.rollout_id]
    await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")
    got = [await store.dequeue_rollout() for _ in range(3)]
    assert [one.rollout_id for one in got if one] == [one.rollout_id for one in queued[1:]]
    await store.close()
    await store.close()


def test_files_that_are_no_store_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database " * 100)
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE drugs (id)")
    other.close()
    (tmp_path / "dir.db").mkdir()
    for name, why in (
        ("text.db", "not a database"),
        ("other.db", "tables are of version 0"),
        ("dir.db", "Is a directory"),
    ):
        with pytest.raises(RunError, match=why):
            Database(tmp_path / name)
