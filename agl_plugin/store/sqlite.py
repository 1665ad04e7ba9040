"""agent-lightning's store over an SQLite file.

Guarantees: a public operation that changes something is one turn (database.py): after a kill it is there as a whole or
not at all, and it is there when it was answered. Semantics are agent-lightning's (CollectionBasedLightningStore).
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agentlightning.store.base import LightningStoreCapabilities, LightningStoreStatistics, is_finished
from agentlightning.store.collection.base import AtomicLabels, AtomicMode, LightningCollections
from agentlightning.store.collection_based import CollectionBasedLightningStore, healthcheck_before, tracked
from agentlightning.types import Attempt, AttemptedRollout, ResourcesUpdate, Rollout, Span, Worker
from agentlightning.utils.metrics import MetricsBackend

from agl_plugin.store.database import Database
from agl_plugin.store.queues import TableKeyValue, TableQueue
from agl_plugin.store.tables import Table

# The operations that change something.
WRITES = (
    *("start_rollout", "enqueue_rollout", "enqueue_many_rollouts", "dequeue_rollout", "dequeue_many_rollouts"),
    *("start_attempt", "update_rollout", "update_attempt", "update_worker", "add_resources", "update_resources"),
    *("add_span", "add_many_spans", "add_otel_span", "get_next_span_sequence_id", "get_many_span_sequence_ids"),
    "_scan_for_unhealthy_rollouts",
)


class SqliteCollections(LightningCollections):
    """The tables of a store. A turn of the database stands for the locks of all labels."""

    def __init__(self, database: Database, *, tracker: MetricsBackend | None = None) -> None:
        super().__init__(tracker=tracker)
        self.database = database
        table = functools.partial(Table, database, tracker=tracker)
        self._rollouts = table("rollouts", Rollout, ["rollout_id"], indexes=["status", "resources_id"])
        self._attempts = table("attempts", Attempt, ["rollout_id", "attempt_id"])
        self._spans = table("spans", Span, ["rollout_id", "attempt_id", "span_id"])
        self._resources = table("resources", ResourcesUpdate, ["resources_id"], indexes=["update_time"])
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
    ) -> AsyncIterator[SqliteCollections]:
        """The tables for this block alone, whatever mode and labels say; what it wrote is taken back when it raises."""
        async with self.tracking_context("atomic", self.collection_name), self.database.turn():
            yield self


class SqliteLightningStore(CollectionBasedLightningStore[SqliteCollections]):
    """A store in the file at `path`, which it holds until `close`. Raises RunError when another process holds it."""

    def __init__(
        self, path: str | Path, *, tracker: MetricsBackend | None = None, scan_debounce_seconds: float = 10.0
    ) -> None:
        self.database = Database(Path(path))
        collections = SqliteCollections(self.database, tracker=tracker)
        super().__init__(collections, tracker=tracker, scan_debounce_seconds=scan_debounce_seconds)

    @property
    def capabilities(self) -> LightningStoreCapabilities:
        return LightningStoreCapabilities(thread_safe=True, async_safe=True, zero_copy=False, otlp_traces=False)

    async def statistics(self) -> LightningStoreStatistics:
        async with self.database.turn():
            return await super().statistics()

    async def close(self) -> None:
        """Commit, and let go of the file."""
        self.database.close()

    @tracked("wait_for_rollouts")
    @healthcheck_before
    async def wait_for_rollouts(self, *, rollout_ids: list[str], timeout: float | None = None) -> list[Rollout]:
        """As agent-lightning's; without a wait, which is what its client asks for, in one query."""
        if timeout is None or timeout > 0:
            return await super().wait_for_rollouts(rollout_ids=rollout_ids, timeout=timeout)
        found = await self.collections.rollouts.query({"rollout_id": {"within": rollout_ids}})
        finished = {rollout.rollout_id: rollout for rollout in found if is_finished(rollout)}
        return [finished[one] for one in rollout_ids if one in finished]

    @tracked("_unlocked_many_rollouts_to_attempted_rollouts")
    async def _unlocked_many_rollouts_to_attempted_rollouts(
        self, collections: SqliteCollections, rollouts: Sequence[Rollout]
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


def _as_one_turn(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def whole(self: SqliteLightningStore, *args: Any, **kwargs: Any) -> Any:
        async with self.database.turn():
            return await method(self, *args, **kwargs)

    return whole


for _name in WRITES:
    setattr(SqliteLightningStore, _name, _as_one_turn(getattr(SqliteLightningStore, _name)))
