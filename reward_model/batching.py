"""Many small requests, few forward passes: what came while the model was busy is scored together.

Guarantees: every accepted item gets a score or an error; items of one request may share a batch with others, and one
that fails does not take its neighbours along; items whose request was cancelled are not scored; at most `max_queued`
items wait, more are refused at once with Overloaded.
Not covered: priorities.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from foundation.errors import AgentGRPOError
from reward_model.pairs import Item
from reward_model.scoring import NotFinite, Scored

logger = logging.getLogger(__name__)

ScoreBatch = Callable[[Sequence[Item]], list[Scored]]
OnBatch = Callable[[int, float], None]
Waiting = tuple[Item, asyncio.Future[Scored]]


class Overloaded(AgentGRPOError):
    """The queue is full; the caller should come back later."""


class ModelFailed(AgentGRPOError):
    """The model raised something else than a verdict on the item: no memory, for example."""


class MicroBatcher:
    """Scores items in batches of at most `batch_size`; `on_batch` hears of the size and the seconds of each."""

    def __init__(self, score: ScoreBatch, *, batch_size: int, max_queued: int, on_batch: OnBatch) -> None:
        self._score, self._on_batch = score, on_batch
        self._batch_size, self._max_queued = batch_size, max_queued
        self._queue: list[Waiting] = []
        self._turn = asyncio.Lock()
        # One thread: the model is not thread-safe, and torch uses all cores by itself.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reward-model")

    @property
    def n_queued(self) -> int:
        """Items that wait for the model."""
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        """True when not a single item would be taken."""
        return self.n_queued >= self._max_queued

    async def at_rest(self) -> None:
        """Wait for the model; who waits for an item that will not be scored any more is answered meanwhile."""
        async with self._turn:
            pass

    async def submit(self, items: Sequence[Item]) -> list[Scored]:
        """The scores of the items, in order. Raises Overloaded, ModelFailed, or NotFinite for one of them."""
        if self.n_queued + len(items) > self._max_queued:
            raise Overloaded(f"{self.n_queued} items wait already")
        waiting = [(item, asyncio.get_running_loop().create_future()) for item in items]
        # Neighbours in the queue share a batch: of like length they waste little padding.
        self._queue += sorted(waiting, key=lambda w: len(w[0].prompt) + len(w[0].reference) + len(w[0].response))
        try:
            while not all(result.done() for _, result in waiting):
                await asyncio.shield(self._score_next())  # others' items too, whose requests go on
            return [result.result() for _, result in waiting]
        finally:
            for _, result in waiting:
                result.cancel()

    async def _score_next(self) -> None:
        """Score the first of the items that wait, when the model is free."""
        async with self._turn:
            self._queue = [(item, result) for item, result in self._queue if not result.done()]
            batch = self._queue[: self._batch_size]
            self._queue = self._queue[self._batch_size :]
            if batch:
                await self._score_batch(batch)

    async def _score_batch(self, batch: list[Waiting]) -> None:
        started = time.perf_counter()
        try:
            items = [item for item, _ in batch]
            scores = await asyncio.get_running_loop().run_in_executor(self._thread, self._score, items)
            scored = list(zip(batch, scores, strict=True))
        except Exception as exc:  # the boundary to the model: whatever it raises belongs to the items
            if len(batch) > 1:  # halve until the culprit is alone; the others get their scores
                middle = len(batch) // 2
                await self._score_batch(batch[:middle])
                return await self._score_batch(batch[middle:])
            logger.warning("an item could not be scored: %s: %s", type(exc).__name__, exc)
            ((_, result),) = batch
            if not result.done():
                result.set_exception(exc if isinstance(exc, NotFinite) else ModelFailed(type(exc).__name__))
            return
        self._on_batch(len(batch), time.perf_counter() - started)
        for (_, result), score in scored:
            if not result.done():  # else its request was cancelled
                result.set_result(score)
