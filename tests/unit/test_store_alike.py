"""Any sequence of operations on the store that lasts, against the same one on agent-lightning's memory store.

After each operation both must have answered alike: results with all fields, types, orders and totals, or the error and
its words. Ids and the clock are the test's. Spans that are refused end a sequence: the memory store keeps the half that
came before the error, and counts the number; here nothing of it is left.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from agentlightning.store.memory import InMemoryLightningStore
from agentlightning.types import EnqueueRolloutRequest, PaginatedResult, PromptTemplate, RolloutConfig, Span
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agl_plugin.store.sqlite import SqliteLightningStore

Operation = tuple[str, tuple[Any, ...], dict[str, Any]]
ROLLOUTS, ATTEMPTS, WORKERS = ("ro-0", "ro-1", "ro-2", "none"), ("at-0", "at-1", "at-2", "latest", "none"), ("w", "v")

rollouts, attempts = st.sampled_from(ROLLOUTS), st.sampled_from(ATTEMPTS)
workers = st.none() | st.sampled_from(WORKERS)
configs = st.builds(
    RolloutConfig,
    timeout_seconds=st.sampled_from([None, 3.0]),
    unresponsive_seconds=st.sampled_from([None, 2.0]),
    max_attempts=st.integers(1, 3),
    retry_condition=st.lists(st.sampled_from(["failed", "timeout", "unresponsive"]), unique=True),
)
statuses = st.sampled_from(["queuing", "preparing", "running", "succeeded", "failed", "cancelled", "requeuing"])
ends = st.sampled_from(["preparing", "running", "failed", "succeeded", "unresponsive", "timeout"])
requests = st.builds(EnqueueRolloutRequest, input=st.integers(0, 9), config=st.none() | configs)
prompts = st.builds(lambda text: {"p": PromptTemplate(template=text, engine="f-string")}, st.sampled_from("ab"))
pages = {
    "sort_order": st.sampled_from(["asc", "desc", "up"]),
    "limit": st.integers(-1, 3),
    "offset": st.integers(0, 3),
}
logic = {"filter_logic": st.sampled_from(["and", "or"])}


def some(**optional: Any) -> Any:
    return st.fixed_dictionaries({}, optional=optional)


def span(rollout_id: str, attempt_id: str, number: int, name: str) -> Span:
    ids = {"rollout_id": rollout_id, "attempt_id": attempt_id, "sequence_id": number}
    return Span.from_attributes(
        name=name,
        attributes={"n": number},
        span_id=f"{name}{number}",
        trace_id=name,
        start_time=1.0,
        end_time=2.0,
        **ids,
    )


spans = st.builds(span, rollouts, st.sampled_from(ATTEMPTS[:3]), st.integers(1, 9), st.sampled_from("ab"))
new = some(
    mode=st.sampled_from(["train", "val"]),
    resources_id=st.sampled_from(["rs-0", "mine"]),
    config=configs,
    metadata=st.just({"k": 1}),
)
changes = some(
    status=statuses, mode=st.none() | st.just("val"), config=configs, metadata=st.none() | st.just({}), input=st.just(1)
)
turns = some(status=ends, worker_id=st.sampled_from(WORKERS), metadata=st.just({"a": None}))
found_rollouts = some(
    status_in=st.lists(statuses, max_size=2),
    rollout_id_in=st.lists(rollouts, max_size=2),
    rollout_id_contains=st.sampled_from(["-0", "ro", ""]),
    sort_by=st.sampled_from(["rollout_id", "status", "start_time", "end_time", "mode", "none"]),
    **pages,
    **logic,
)
found_spans = some(
    name=st.sampled_from("ab"),
    name_contains=st.sampled_from("ab"),
    span_id_contains=st.sampled_from(["1", "a"]),
    parent_id=st.just("p"),
    sort_by=st.sampled_from(["span_id", "none"]),
    **pages,
    **logic,
)


def call(name: str, *args: Any, kwargs: Any = None) -> Any:
    return st.tuples(st.just(name), st.tuples(*args), st.just({}) if kwargs is None else kwargs)


operations: Any = st.one_of(
    call("enqueue_rollout", st.integers(0, 9), kwargs=new),
    call("enqueue_many_rollouts", st.lists(requests, max_size=3)),
    call("start_rollout", st.integers(0, 9), kwargs=new.map(lambda given: {**given, "worker_id": "w"})),
    call("dequeue_rollout", workers),
    call("dequeue_many_rollouts", kwargs=st.fixed_dictionaries({"limit": st.integers(0, 3), "worker_id": workers})),
    call("start_attempt", rollouts, workers),
    call("update_rollout", rollouts, kwargs=changes),
    call("update_attempt", rollouts, attempts, kwargs=turns),
    call("add_span", spans),
    call("add_many_spans", st.lists(spans, max_size=4)),
    call("get_next_span_sequence_id", rollouts, attempts),
    call("get_many_span_sequence_ids", st.lists(st.tuples(rollouts, attempts), max_size=3)),
    call("update_worker", st.sampled_from(WORKERS), kwargs=some(heartbeat_stats=st.just({"cpu": 0.5}))),
    call("add_resources", prompts),
    call("update_resources", st.sampled_from(["rs-0", "mine"]), prompts),
    call("query_rollouts", kwargs=found_rollouts),
    call("query_attempts", rollouts, kwargs=some(sort_by=st.sampled_from(["status", "start_time", "none"]), **pages)),
    call("query_spans", rollouts, st.none() | attempts, kwargs=found_spans),
    call("query_workers", kwargs=some(status_in=st.just(["busy"]), worker_id_contains=st.just("w"), **pages, **logic)),
    call("query_resources", kwargs=some(resources_id_contains=st.just("rs"), **pages)),
    call("get_rollout_by_id", rollouts),
    call("get_latest_attempt", rollouts),
    call("get_worker_by_id", st.sampled_from(WORKERS)),
    call("get_resources_by_id", st.sampled_from(["rs-0", "mine", "none"])),
    call("get_latest_resources"),
    call(
        "wait_for_rollouts", kwargs=st.fixed_dictionaries({"rollout_ids": st.lists(rollouts), "timeout": st.just(0.0)})
    ),
)


def plain(found: Any) -> Any:
    """What can be compared: types with their fields."""
    if isinstance(found, PaginatedResult):
        return plain(found.items), found.limit, found.offset, found.total
    if isinstance(found, BaseModel):
        return type(found), found.model_dump()
    return [plain(one) for one in found] if isinstance(found, list | tuple) else found


class World:
    """Ids that count up, and a clock."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.now = 1e9

    def fresh(self, prefix: str) -> str:
        """The next id."""
        self.counts[prefix] += 1
        return f"{prefix}-{self.counts[prefix] - 1}"

    @contextmanager
    def instead(self) -> Iterator[None]:
        """For agent-lightning's."""
        with ExitStack() as patches:
            for prefix, name in (("ro", "rollout"), ("at", "attempt"), ("rs", "resources")):
                place = f"agentlightning.store.collection_based._generate_{name}_id"
                patches.enter_context(patch(place, functools.partial(self.fresh, prefix)))
            patches.enter_context(patch("time.time", lambda: self.now))
            yield


async def outcome(store: Any, operation: Operation) -> Any:
    """What an operation answers."""
    name, args, kwargs = copy.deepcopy(operation)
    try:
        return plain(await getattr(store, name)(*args, **kwargs))
    except (ValueError, TypeError, KeyError, RuntimeError) as exc:
        return type(exc), str(exc)


async def compare(given_ones: Sequence[tuple[Operation, float]]) -> None:
    """Do all of them on both stores, and look at everything at the end."""
    world = World()
    with TemporaryDirectory() as folder, world.instead():
        stores = (
            InMemoryLightningStore(scan_debounce_seconds=0),
            SqliteLightningStore(Path(folder) / "store.db", scan_debounce_seconds=0),
        )
        try:
            for operation, passed_s in (*given_ones, *((one, 1.0) for one in EVERYTHING)):
                world.now += passed_s
                before, answers = world.counts.copy(), []
                for store in stores:
                    world.counts = before.copy()
                    answers.append(await outcome(store, operation))
                assert answers[0] == answers[1], operation
                if operation[0].startswith("add_") and isinstance(answers[0], tuple) and answers[0][0] is ValueError:
                    return
        finally:
            await stores[1].close()


EVERYTHING: list[Operation] = [
    ("query_rollouts", (), {}),
    *(("query_attempts", (one,), {}) for one in ROLLOUTS),
    *(("query_spans", (one, attempt), {}) for one in ROLLOUTS for attempt in ATTEMPTS),
    *(("query_workers", (), {}), ("query_resources", (), {}), ("dequeue_many_rollouts", (), {"limit": 9})),
    ("get_many_span_sequence_ids", ([(one, "any") for one in ROLLOUTS],), {}),
]


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(operations, st.sampled_from([0.5, 1.0, 2.5])), max_size=20))
def test_any_operations_are_answered_as_by_the_memory_store(given_ones: list[tuple[Operation, float]]) -> None:
    asyncio.run(compare(given_ones))


def test_a_resource_whose_id_is_taken_is_refused_in_the_same_words() -> None:
    prompts = {"p": PromptTemplate(template="a", engine="f-string")}
    asyncio.run(compare([(("update_resources", ("rs-0", prompts), {}), 0.5), (("add_resources", (prompts,), {}), 0.5)]))
