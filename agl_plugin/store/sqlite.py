"""agent-lightning's store over a database: an SQLite file, or PostgreSQL (postgres.py).

Guarantees: a public operation that changes something is one turn (database.py): after a kill it is there as a whole or
not at all, and it is there when it was answered. Semantics are agent-lightning's (CollectionBasedLightningStore).
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast, get_type_hints

from agentlightning.store.base import LightningStoreCapabilities, LightningStoreStatistics
from agentlightning.store.collection.base import AtomicLabels, AtomicMode, LightningCollections
from agentlightning.store.collection_based import CollectionBasedLightningStore, healthcheck_before, tracked
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
from agentlightning.utils.metrics import MetricsBackend
from pydantic import TypeAdapter

from agl_plugin.store.answers import Answers
from agl_plugin.store.database import Database
from agl_plugin.store.queues import TableKeyValue, TableQueue
from agl_plugin.store.request_key import key_of_request
from agl_plugin.store.rows import encodable
from agl_plugin.store.tables import Table
from agl_plugin.store.turns import Turns

KEEP_SPANS = 4  # the step under way and its validation, and those before, for who looks at what went wrong
# The operations that do more when they are done twice.
DONE_ONCE = (
    *("start_rollout", "enqueue_rollout", "enqueue_many_rollouts", "dequeue_rollout", "dequeue_many_rollouts"),
    "start_attempt",
)
# All that change something.
WRITES = (
    *(*DONE_ONCE, "update_rollout", "update_attempt", "update_worker", "add_resources", "update_resources"),
    *("add_span", "add_many_spans", "add_otel_span", "get_next_span_sequence_id", "get_many_span_sequence_ids"),
    "_scan_for_unhealthy_rollouts",
)
# Those before which agent-lightning looks for rollouts that take too long.
WATCHED = (*DONE_ONCE, "update_resources", "update_rollout", "update_attempt")
FINISHED = "('succeeded', 'failed', 'cancelled')"


class TableCollections(LightningCollections):
    """The tables of a store. A turn of the database stands for the locks of all labels."""

    def __init__(self, database: Turns, *, tracker: MetricsBackend | None = None) -> None:
        super().__init__(tracker=tracker)
        self.database = database
        table = functools.partial(Table, database, tracker=tracker)
        looked_for = ["status", "resources_id"]
        self._rollouts = table("rollouts", Rollout, ["rollout_id"], indexes=looked_for, ordered=["start_time"])
        self._attempts = table("attempts", Attempt, ["rollout_id", "attempt_id"])
        self._spans = table("spans", Span, ["rollout_id", "attempt_id", "span_id"])
        self._resources = table("resources", ResourcesUpdate, ["resources_id"], ordered=["update_time"])
        self._workers = table("workers", Worker, ["worker_id"])
        self._rollout_queue = TableQueue(database, "rollout_queue", str, tracker=tracker)
        self._span_sequence_ids = TableKeyValue[str, int](database, "span_sequence_ids", tracker=tracker)

    @property
    def collection_name(self) -> str:
        return "router"

    @property
    def rollouts(self) -> Table[Rollout]:
        return self._rollouts

    @property
    def attempts(self) -> Table[Attempt]:
        return self._attempts

    @property
    def spans(self) -> Table[Span]:
        return self._spans

    @property
    def resources(self) -> Table[ResourcesUpdate]:
        return self._resources

    @property
    def workers(self) -> Table[Worker]:
        return self._workers

    @property
    def rollout_queue(self) -> TableQueue[str]:
        return self._rollout_queue

    @property
    def span_sequence_ids(self) -> TableKeyValue[str, int]:
        return self._span_sequence_ids

    @asynccontextmanager
    async def atomic(
        self,
        *,
        mode: AtomicMode = "rw",
        snapshot: bool = False,
        commit: bool = False,
        labels: Sequence[AtomicLabels] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[TableCollections]:
        """The tables for this block alone, whatever mode and labels say; what it wrote is taken back when it raises."""
        async with self.tracking_context("atomic", self.collection_name), self.database.turn():
            yield self


class LastingStore(CollectionBasedLightningStore[TableCollections]):
    """A store in a database.

    Spans are deleted once `keep_spans` newer resources were added since those of their rollout, which has ended; 0
    keeps them all. A trainer adds resources once per step and once per validation, and may say another number as
    `keep_spans` of its heartbeat.
    """

    def __init__(
        self,
        database: Turns,
        *,
        keep_spans: int = KEEP_SPANS,
        tracker: MetricsBackend | None = None,
        scan_debounce_seconds: float = 10.0,
    ) -> None:
        self.database, self._keep_spans, self._pruned_to = database, keep_spans, 0
        self.answers = Answers(self.database)
        collections = TableCollections(self.database, tracker=tracker)
        super().__init__(collections, tracker=tracker, scan_debounce_seconds=scan_debounce_seconds)

    @property
    def capabilities(self) -> LightningStoreCapabilities:
        return LightningStoreCapabilities(thread_safe=True, async_safe=True, zero_copy=False, otlp_traces=False)

    async def statistics(self) -> LightningStoreStatistics:
        async with self.database.turn():
            return await super().statistics()

    async def close(self) -> None:
        """Commit, and let go of the database."""
        self.database.close()

    @tracked("add_resources_sqlite")
    async def add_resources(self, resources: NamedResources) -> ResourcesUpdate:
        """As agent-lightning's; then spans that nobody reads any more are deleted."""
        added = await super().add_resources(resources)
        keep = await self._spans_to_keep()
        if keep > 0:
            self._prune(keep)
        return added

    async def _spans_to_keep(self) -> int:
        workers = await self.collections.workers.query(sort={"name": "last_heartbeat_time", "order": "desc"})
        wishes = [(worker.heartbeat_stats or {}).get("keep_spans") for worker in workers if worker.last_heartbeat_time]
        return next((wish for wish in wishes if isinstance(wish, int)), self._keep_spans)

    def _prune(self, keep: int) -> None:
        oldest = "SELECT id FROM resources ORDER BY id DESC LIMIT 1 OFFSET ?"
        row = self.database.read(oldest, (keep,)).fetchone()
        if not row or row[0] <= self._pruned_to:
            return
        used = (
            "SELECT rollout_id FROM resources JOIN rollouts USING (resources_id) "
            f"WHERE resources.id > ? AND resources.id <= ? AND rollouts.status IN {FINISHED}"
        )
        self.database.write(f"DELETE FROM spans WHERE rollout_id IN ({used})", (self._pruned_to, row[0]))
        self._pruned_to = row[0]

    @healthcheck_before
    async def _watch(self) -> None:
        """The look for rollouts that take too long, in a turn of its own: who is refused afterwards takes none back."""

    def _statuses(self, rollout_id: str, attempt_id: str) -> tuple[str, str] | None:
        """Of an attempt and its rollout, where both are there."""
        query = (
            "SELECT attempts.status, rollouts.status FROM attempts JOIN rollouts USING (rollout_id) "
            "WHERE rollout_id = ? AND attempt_id = ?"
        )
        return self.database.read(query, (encodable(rollout_id), encodable(attempt_id))).fetchone()

    async def _add_many_spans_helper(self, rollout_id: str, attempt_id: str, spans: Sequence[Span]) -> Sequence[Span]:
        """As agent-lightning's, which reads the whole rollout and attempt to see that they are there."""
        if self._statuses(rollout_id, attempt_id) is None:
            return await super()._add_many_spans_helper(rollout_id, attempt_id, spans)
        added = await self._insert_spans_with_fallback(spans)
        if added:
            await self._post_add_spans(added, rollout_id, attempt_id)
        return added

    async def _on_attempt_heartbeat(self, rollout_id: str, attempt_id: str) -> tuple[Rollout, Sequence[str]] | None:
        """As agent-lightning's; where both run already nothing but the time changes."""
        if self._statuses(rollout_id, attempt_id) != ("running", "running"):
            return await super()._on_attempt_heartbeat(rollout_id, attempt_id)  # pyright: ignore[reportCallIssue]
        this = {"rollout_id": {"exact": rollout_id}, "attempt_id": {"exact": attempt_id}}
        attempt = await self.collections.attempts.get(cast(FilterOptions, this))
        if attempt:
            attempt.last_heartbeat_time = time.time()
            await self.collections.attempts.update([attempt])
        return None

    @tracked("_unlocked_many_rollouts_to_attempted_rollouts")
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


def _as_one_turn(method: Callable[..., Any], *, keyed: bool, watched: bool) -> Callable[..., Any]:
    """The method as one turn; of a request that came before, with the answer that it had."""
    result = TypeAdapter[Any](get_type_hints(method)["return"]) if keyed else None

    @functools.wraps(method)
    async def whole(self: LastingStore, *args: Any, **kwargs: Any) -> Any:
        key = key_of_request.get()
        if watched:
            await self._watch()
        async with self.database.turn():
            if not key or result is None:
                return await method(self, *args, **kwargs)
            if (before := self.answers.found(key)) is not None:
                return result.validate_python(before)
            answer = await method(self, *args, **kwargs)
            if answer:  # of a queue that is empty one may ask again
                self.answers.keep(key, result.dump_python(answer))
            return answer

    return whole


for _name in WRITES:
    _whole = _as_one_turn(getattr(LastingStore, _name), keyed=_name in DONE_ONCE, watched=_name in WATCHED)
    setattr(LastingStore, _name, _whole)


class SqliteLightningStore(LastingStore):
    """A store in the file at `path`, which it holds until `close`. Raises RunError when another process holds it."""

    def __init__(self, path: str | Path, **how: Any) -> None:
        super().__init__(Database(Path(path)), **how)
