"""agent-lightning's store over a database: an SQLite file, or PostgreSQL (postgres.py).

Guarantees: a public operation that changes something is one turn (database.py): after a kill it is there as a whole or
not at all, and it is there when it was answered. Semantics are agent-lightning's (CollectionBasedLightningStore).
"""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast, get_type_hints

from agentlightning.store.base import LightningStoreCapabilities, LightningStoreStatistics
from agentlightning.store.collection.base import AtomicLabels, AtomicMode, LightningCollections
from agentlightning.store.collection_based import CollectionBasedLightningStore, healthcheck_before
from agentlightning.store.utils import scan_unhealthy_rollouts
from agentlightning.types import (
    Attempt,
    AttemptedRollout,
    FilterOptions,
    NamedResources,
    ResourcesUpdate,
    Rollout,
    Span,
    Worker,
)
from pydantic import TypeAdapter

from agl_plugin.store.database import Database
from agl_plugin.store.queues import Counters, TableQueue
from agl_plugin.store.request_key import Answers, key_of_request
from agl_plugin.store.rows import encodable
from agl_plugin.store.tables import Table, Turns

logger = logging.getLogger(__name__)

KEEP_SPANS = 4  # the step under way and its validation, and those before, for who looks at what went wrong
# The operations that do more when they are done twice.
DONE_ONCE = (
    *("start_rollout", "enqueue_rollout", "enqueue_many_rollouts", "dequeue_rollout", "dequeue_many_rollouts"),
    "start_attempt",
)
Names = Callable[..., Iterable[str]]


def _rollout(rollout_id: str, *_: Any, **__: Any) -> tuple[str]:
    return (rollout_id,)


# All that change something, and what of their arguments nobody else may have at the same time. What is new or taken out
# of the queue has nobody; a worker's row is changed last of all.
WRITES: dict[str, Names] = {
    **dict.fromkeys((*DONE_ONCE, "update_worker"), lambda *_, **__: ()),
    **dict.fromkeys(("start_attempt", "update_rollout", "update_attempt", "add_otel_span"), _rollout),
    **dict.fromkeys(("add_resources", "update_resources"), lambda *_, **__: ("resources",)),
    "get_next_span_sequence_id": _rollout,
    "get_many_span_sequence_ids": lambda rollout_attempt_ids: {rollout_id for rollout_id, _ in rollout_attempt_ids},
    "add_span": lambda span: (span.rollout_id,),
    "add_many_spans": lambda spans: {span.rollout_id for span in spans},
}
# Those before which agent-lightning looks for rollouts that take too long.
WATCHED = (*DONE_ONCE, "update_resources", "update_rollout", "update_attempt")
AT_ONCE = 1000  # rollouts that one such look gives up: PostgreSQL has room for some thousand locks
# The attempt that spans are of, where the rollout's status is its own and it is the latest or runs already.
ADDED_TO = (
    "SELECT attempts.data, rollouts.status FROM attempts JOIN rollouts USING (rollout_id) "
    "WHERE rollout_id = ? AND attempt_id = ? AND rollouts.status = attempts.status AND (rollouts.status = 'running' "
    "OR rollouts.status = 'preparing' AND NOT EXISTS (SELECT 1 FROM attempts AS later "
    "WHERE later.rollout_id = attempts.rollout_id AND later.sequence_id > attempts.sequence_id))"
)
FINISHED = "('succeeded', 'failed', 'cancelled')"


class TableCollections(LightningCollections):
    """The tables of a store. A turn of the database stands for the locks of labels."""

    # Upstream has properties of these names.
    rollouts: Any = None
    attempts: Any = None
    spans: Any = None
    resources: Any = None
    workers: Any = None
    rollout_queue: Any = None
    span_sequence_ids: Any = None

    def __init__(self, database: Turns) -> None:
        super().__init__()
        self.database = database
        looked_for = ["status", "resources_id"]
        self.rollouts = Table(database, "rollouts", Rollout, ["rollout_id"], indexes=looked_for, ordered=["start_time"])
        self.attempts = Table(database, "attempts", Attempt, ["rollout_id", "attempt_id"])
        self.spans = Table(database, "spans", Span, ["rollout_id", "attempt_id", "span_id"])
        self.resources = Table(database, "resources", ResourcesUpdate, ["resources_id"], ordered=["update_time"])
        self.workers = Table(database, "workers", Worker, ["worker_id"])
        self.rollout_queue = TableQueue(database, "rollout_queue")
        self.span_sequence_ids = Counters(database, "span_sequence_ids")

    @asynccontextmanager
    async def atomic(
        self, *, mode: AtomicMode = "rw", labels: Sequence[AtomicLabels] | None = None, **_kwargs: Any
    ) -> AsyncIterator[TableCollections]:
        """The tables, for this block alone of those that write with one of its labels; within an operation, a part of
        it. What it wrote is taken back when it raises."""
        async with self.database.turn(*(labels or ()), read_only=mode == "r"):
            yield self


class LastingStore(CollectionBasedLightningStore[TableCollections]):
    """A store in a database.

    Spans are deleted once `keep_spans` newer resources were added since those of their rollout, which has ended; 0
    keeps them all. A trainer adds resources once per step and once per validation, and may say another number as
    `keep_spans` of its heartbeat.
    """

    def __init__(self, database: Turns, *, keep_spans: int = KEEP_SPANS, scan_debounce_seconds: float = 10.0) -> None:
        self.database, self._keep_spans, self._pruned_to = database, keep_spans, 0
        self.answers = Answers(database)
        super().__init__(TableCollections(database), scan_debounce_seconds=scan_debounce_seconds)

    @property
    def capabilities(self) -> LightningStoreCapabilities:
        return LightningStoreCapabilities(thread_safe=True, async_safe=True, zero_copy=False, otlp_traces=False)

    async def statistics(self) -> LightningStoreStatistics:
        async with self.database.turn(read_only=True):
            return await super().statistics()

    async def close(self) -> None:
        self.database.close()

    async def add_resources(self, resources: NamedResources) -> ResourcesUpdate:
        """As agent-lightning's; then spans that nobody reads any more are deleted."""
        added = await super().add_resources(resources)
        keep = await self._spans_to_keep()
        if keep > 0:
            await self._prune(keep)
        return added

    async def _spans_to_keep(self) -> int:
        workers = await self.collections.workers.query(sort={"name": "last_heartbeat_time", "order": "desc"})
        wishes = [(worker.heartbeat_stats or {}).get("keep_spans") for worker in workers if worker.last_heartbeat_time]
        return next((wish for wish in wishes if isinstance(wish, int)), self._keep_spans)

    async def _prune(self, keep: int) -> None:
        oldest = "SELECT id FROM resources ORDER BY id DESC LIMIT 1 OFFSET ?"
        rows = await self.database.read(oldest, (keep,))
        if not rows or rows[0][0] <= self._pruned_to:
            return
        used = (
            "SELECT rollout_id FROM resources JOIN rollouts USING (resources_id) "
            f"WHERE resources.id > ? AND resources.id <= ? AND rollouts.status IN {FINISHED}"
        )
        await self.database.write(f"DELETE FROM spans WHERE rollout_id IN ({used})", (self._pruned_to, rows[0][0]))
        self._pruned_to = rows[0][0]

    @healthcheck_before
    async def _watch(self) -> None:
        """The look for rollouts that take too long, in a turn of its own: who is refused afterwards takes none back."""

    async def _scan_for_unhealthy_rollouts(self) -> None:
        """As agent-lightning's, all or nothing; between two looks without a turn."""
        if time.time() - self._last_scan_entrance_time >= self._scan_debounce_seconds:
            with suppress(*self.database.AGAIN):  # the next look finds what this one leaves
                async with self.database.turn():
                    await super()._scan_for_unhealthy_rollouts()

    async def _unlocked_get_running_rollouts(self, collections: TableCollections) -> list[AttemptedRollout]:
        """Those that take too long, once nobody else changes them: agent-lightning looks for no others among them."""
        running = await super()._unlocked_get_running_rollouts(collections)
        late = [rollout_id for rollout_id, _ in await scan_unhealthy_rollouts(running)][:AT_ONCE]
        if not late:
            return []
        await self.database.hold(late)
        these = {"status": {"within": ["preparing", "running"]}, "rollout_id": {"within": late}}
        running_now = await collections.rollouts.query(cast(FilterOptions, these))
        rollouts = await self._unlocked_many_rollouts_to_attempted_rollouts(collections, running_now.items)
        return [rollout for rollout in rollouts if isinstance(rollout, AttemptedRollout)]

    async def _post_dequeue_rollouts(
        self, rollout_ids: Sequence[str], worker_id: str | None
    ) -> Sequence[tuple[AttemptedRollout, Sequence[str]]]:
        """As agent-lightning's, once nobody else changes them."""
        await self.database.hold(rollout_ids)
        return await super()._post_dequeue_rollouts(rollout_ids, worker_id)  # pyright: ignore[reportCallIssue]

    async def _add_many_spans_helper(self, rollout_id: str, attempt_id: str, spans: Sequence[Span]) -> Sequence[Span]:
        """As agent-lightning's, with one look where attempt and rollout run, or prepare to: then they run now."""
        added_to = await self.database.read(ADDED_TO, (encodable(rollout_id), encodable(attempt_id)))
        if not added_to:
            return await super()._add_many_spans_helper(rollout_id, attempt_id, spans)
        added = await self._insert_spans_with_fallback(spans)
        if added:
            ((text, was),) = added_to
            attempt = Attempt.model_validate(json.loads(text))
            attempt.last_heartbeat_time, attempt.status = time.time(), "running"
            await self.collections.attempts.update([attempt])
            if was != "running":
                await self._unlocked_update_rollout_only(self.collections, rollout_id, status="running")
        return added

    async def _unlocked_many_rollouts_to_attempted_rollouts(
        self, collections: TableCollections, rollouts: Sequence[Rollout]
    ) -> list[Rollout | AttemptedRollout]:
        """With their latest attempts, in one query."""
        attempts = await collections.attempts.query(
            {"rollout_id": {"within": [rollout.rollout_id for rollout in rollouts]}},
            {"name": "sequence_id", "order": "asc"},
        )
        latest = {attempt.rollout_id: attempt for attempt in attempts}
        return [
            AttemptedRollout(**rollout.model_dump(), attempt=latest[rollout.rollout_id])
            if rollout.rollout_id in latest
            else rollout
            for rollout in rollouts
        ]


def _as_one_turn(method: Callable[..., Any], names: Names, *, keyed: bool, watched: bool) -> Callable[..., Any]:
    """The method as one turn; of a request that came before, with the answer that it had."""
    result = TypeAdapter[Any](get_type_hints(method)["return"]) if keyed else None

    async def once(self: LastingStore, *args: Any, **kwargs: Any) -> Any:
        key = key_of_request.get() if result else ""
        async with self.database.turn(*names(*args, **kwargs), *([f"key {key}"] if key else ())):
            if not key or result is None:
                return await method(self, *args, **kwargs)
            if (before := await self.answers.find(key)) is not None:
                return result.validate_python(before)
            answer = await method(self, *args, **kwargs)
            if answer:  # of a queue that is empty one may ask again
                await self.answers.keep(key, result.dump_python(answer))
            return answer

    @functools.wraps(method)
    async def in_one_turn(self: LastingStore, *args: Any, **kwargs: Any) -> Any:
        if watched:
            await self._watch()
        while True:
            try:
                return await once(self, *args, **kwargs)
            except self.database.AGAIN as exc:
                logger.info("%s is done again: %s", method.__name__, exc)

    return in_one_turn


for _name, _names in WRITES.items():
    _whole = _as_one_turn(getattr(LastingStore, _name), _names, keyed=_name in DONE_ONCE, watched=_name in WATCHED)
    setattr(LastingStore, _name, _whole)


class SqliteLightningStore(LastingStore):
    """A store in the file at `path`, which it holds until `close`. Raises RunError when another process holds it."""

    def __init__(self, path: str | Path, **how: Any) -> None:
        super().__init__(Database(Path(path)), **how)
