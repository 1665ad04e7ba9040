"""agent-lightning's runner with many rollouts in flight in one process.

Guarantees: at most `concurrency` rollouts at once, none for longer than its limit; one that raises is marked failed and
takes nothing down with it; the process ends when the one that started it is gone (a forked runner would otherwise poll
the store for ever); what a killed runner had taken, its successor gives back to the store, where it runs once more. Why
not more processes: each costs seconds of imports and hundreds of MiB, while an episode mostly waits for the model.
The agent's rollout method must be async, and must return its spans: the tracer, which knows one rollout at a time,
records nothing here.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import socket
import time
from collections.abc import Awaitable
from typing import Any, cast

from agentlightning import LitAgentRunner, Tracer, emit_annotation
from agentlightning.execution.events import ExecutionEvent
from agentlightning.store.base import LightningStore
from agentlightning.types import AttemptedRollout, NamedResources, RolloutRawResult, Span, SpanCoreFields

from foundation.background import Overdue, within
from foundation.processes import collect_rarely
from foundation.rollout_keys import TIMED_OUT, UNSCORED_KEY, resources_of

logger = logging.getLogger(__name__)

# The model server works on the first while the next are taken and begun.
TAKE_AT_ONCE = 8
# Of rollout.rollout_timeout_s, so that the runner ends a rollout before the store gives it up.
LIMIT_SHARE = 0.95


def in_order(result: RolloutRawResult, rollout: AttemptedRollout) -> RolloutRawResult:
    """The spans that a rollout returned, with their place among those of the attempt; other results as they are.

    Places are microseconds since 1970: above all earlier ones, and exact in JSON readers that know only floats.
    """
    if not isinstance(result, list) or not all(isinstance(span, SpanCoreFields) for span in result):
        return result
    rollout_id, attempt_id = rollout.rollout_id, rollout.attempt.attempt_id
    return [
        Span.from_core_fields(fields, rollout_id=rollout_id, attempt_id=attempt_id, sequence_id=time.time_ns() // 1000)
        for fields in cast(list[SpanCoreFields], result)
    ]


async def in_time(work: Awaitable[RolloutRawResult], rollout: AttemptedRollout) -> RolloutRawResult:
    """What `work` returns; after LIMIT_SHARE of the store's limit it is cancelled, and the rollout is a fault.

    Otherwise its next calls would come while the trainer puts the model server to sleep, or after the next weights.
    Cancelling closes the agent's call to the LLM proxy; a request that the proxy has passed on is not followed.
    """
    given_s = rollout.config.timeout_seconds
    limit_s = given_s * LIMIT_SHARE if given_s else None
    try:
        return await within(work, limit_s=limit_s)
    except Overdue as exc:
        logger.warning("rollout %s took more than %.0f s: %s", rollout.rollout_id, limit_s, exc)
    return [emit_annotation({UNSCORED_KEY: TIMED_OUT}, propagate=False)]


class ConcurrentRunner(LitAgentRunner[Any]):
    """Takes rollouts from the store as long as there is room, and looks for more every `poll_interval_s`."""

    def __init__(self, *, tracer: Tracer, concurrency: int, poll_interval_s: float) -> None:
        super().__init__(tracer=tracer, poll_interval=poll_interval_s)
        self._concurrency = concurrency
        self._poll_interval_s = poll_interval_s
        self._resources: tuple[str, NamedResources] = ("", {})

    async def iter(self, *, event: ExecutionEvent | None = None) -> None:
        """Work until `event` is set or the parent process is gone; unfinished rollouts are then cancelled."""
        collect_rarely()
        store = self.get_store()
        await self._give_back_lost(store)
        stop_heartbeat = self._start_heartbeat_loop(store)
        running: set[asyncio.Task[str]] = set()
        parent = multiprocessing.parent_process()
        try:
            while not (event and event.is_set()) and (parent is None or parent.is_alive()):
                room = self._concurrency - len(running)
                take = min(room, TAKE_AT_ONCE)
                fresh = await store.dequeue_many_rollouts(limit=take, worker_id=self.get_worker_id()) if room else []
                running |= {asyncio.create_task(self._step_impl(rollout)) for rollout in fresh}
                if running and not fresh:
                    until = asyncio.ALL_COMPLETED if room else asyncio.FIRST_COMPLETED
                    await asyncio.wait(running, timeout=self._poll_interval_s, return_when=until)
                elif not fresh:
                    await asyncio.sleep(self._poll_interval_s)
                running = {task for task in running if not task.done()}
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            if stop_heartbeat:
                await stop_heartbeat()

    def get_worker_id(self) -> str:
        """A name that the successor of this runner shares, and no other runner: host, parent process, number."""
        return f"{socket.gethostname()}-{os.getppid()}-{self.worker_id}"

    async def _give_back_lost(self, store: LightningStore) -> None:
        """Mark what a runner of this name left open as unresponsive; the store queues it again (RolloutConfig)."""
        for rollout in await store.query_rollouts(status_in=["preparing", "running"]):
            attempt = await store.get_latest_attempt(rollout.rollout_id)
            if attempt and attempt.worker_id == self.get_worker_id() and attempt.status in ("preparing", "running"):
                logger.warning("rollout %s: its runner was killed; it runs once more", rollout.rollout_id)
                await store.update_attempt(rollout.rollout_id, attempt.attempt_id, status="unresponsive")

    async def _step_impl(self, next_rollout: AttemptedRollout, raise_on_exception: bool = False) -> str:
        """One rollout: run the agent, store its spans, mark the attempt."""
        agent, store = self.get_agent(), self.get_store()
        status = "failed"
        try:
            train = next_rollout.mode == "train"
            method = agent.training_rollout_async if train else agent.validation_rollout_async
            resources = await self._resources_of(next_rollout)
            work = method(next_rollout.input, resources=resources, rollout=next_rollout)
            result = in_order(await in_time(work, next_rollout), next_rollout)
            await self._post_process_rollout_result(next_rollout, result)
            status = "succeeded"
        except Exception:
            if raise_on_exception:
                raise
            logger.exception("rollout %s failed", next_rollout.rollout_id)
        finally:
            await store.update_attempt(next_rollout.rollout_id, next_rollout.attempt.attempt_id, status=status)
        return next_rollout.rollout_id

    async def _resources_of(self, rollout: AttemptedRollout) -> NamedResources:
        """The resources of a rollout; those of one step share an id and are fetched once."""
        name = rollout.resources_id
        if not name or name != self._resources[0]:
            store = self.get_store()
            update = await (store.get_resources_by_id(name) if name else store.get_latest_resources())
            if not update:
                raise RuntimeError(f"the store has no resources {name or '(latest)'}")
            self._resources = (update.resources_id, update.resources)
        return resources_of(rollout.rollout_id, self._resources[1])
