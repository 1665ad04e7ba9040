"""Many small requests, few forward passes: a queue of items in front of one model thread.

Guarantees: every accepted item gets a score or an error, also while the server shuts down; items of one request may
share a batch with others, and one that fails does not take its neighbours along; items whose request was cancelled are
not scored; at most `max_queued` items wait, more are refused at once with Overloaded.
Not covered: priorities.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from foundation.errors import AgentGRPOError
from reward_model.scoring import Item, NotFinite, Scored

logger = logging.getLogger(__name__)

ScoreBatch = Callable[[Sequence[Item]], list[Scored]]
OnBatch = Callable[[int, float], None]


class Overloaded(AgentGRPOError):
    """The queue is full, or nobody works at it; the caller should come back later."""


class ModelFailed(AgentGRPOError):
    """The model raised something else than a verdict on the item: no memory, for example."""


@dataclass
class _Waiting:
    item: Item
    done: asyncio.Future[Scored] = field(repr=False)


class MicroBatcher:
    """Scores items in batches of at most `batch_size`, waiting up to `wait_s` for company.

    `on_batch` hears of the size and the seconds of every forward pass. Use it inside `async with`.
    """

    def __init__(
        self, score: ScoreBatch, *, batch_size: int, wait_s: float, max_queued: int, on_batch: OnBatch | None = None
    ) -> None:
        self._score = score
        self._batch_size = batch_size
        self._wait_s = wait_s
        self._max_queued = max_queued
        self._on_batch = on_batch or (lambda size, seconds: None)
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        # One thread: the model is not thread-safe, and torch uses all cores by itself.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reward-model")
        self._loop: asyncio.Task[None] | None = None

    async def __aenter__(self) -> MicroBatcher:
        self._loop = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Score what was accepted, then stop."""
        await self._queue.join()
        if self._loop:
            self._loop.cancel()
            with suppress(asyncio.CancelledError):
                await self._loop
        self._thread.shutdown()

    @property
    def n_queued(self) -> int:
        """Items that wait for the model."""
        return self._queue.qsize()

    @property
    def is_running(self) -> bool:
        """False before the start, after the end, and when the loop has died."""
        return self._loop is not None and not self._loop.done()

    @property
    def is_full(self) -> bool:
        """True when not a single item would be taken."""
        return self.n_queued >= self._max_queued

    async def submit(self, items: Sequence[Item]) -> list[Scored]:
        """The scores of the items, in order. Raises Overloaded, ModelFailed, or NotFinite for one of them."""
        if not self.is_running:
            raise Overloaded("the model does not run")
        if self.n_queued + len(items) > self._max_queued:
            raise Overloaded(f"{self.n_queued} items wait already")
        future = asyncio.get_running_loop().create_future
        waiting = [_Waiting(item, future()) for item in items]
        # Neighbours in the queue share a batch: of like length they waste little padding.
        for one in sorted(waiting, key=lambda w: len(w.item.prompt) + len(w.item.reference) + len(w.item.response)):
            self._queue.put_nowait(one)
        results = await asyncio.gather(*(one.done for one in waiting), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if isinstance(result, Scored)]

    async def _run(self) -> None:
        while True:
            batch = [await self._queue.get()]
            if self._wait_s and self._queue.qsize() + 1 < self._batch_size:
                await asyncio.sleep(self._wait_s)
            while len(batch) < self._batch_size and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            await self._score_batch(batch)
            for _ in batch:
                self._queue.task_done()

    async def _score_batch(self, batch: list[_Waiting]) -> None:
        batch = [one for one in batch if not one.done.done()]
        if not batch:
            return
        loop = asyncio.get_running_loop()
        started = time.perf_counter()
        try:
            scores = await loop.run_in_executor(self._thread, self._scores, [one.item for one in batch])
        except Exception as exc:  # the boundary to the model: whatever it raises belongs to the items
            if len(batch) == 1:
                logger.warning("an item could not be scored: %s: %s", type(exc).__name__, exc)
                _finish(batch[0], exc if isinstance(exc, NotFinite) else ModelFailed(type(exc).__name__))
                return
            # Halve until the culprit is alone; the others get their scores.
            middle = len(batch) // 2
            await self._score_batch(batch[:middle])
            await self._score_batch(batch[middle:])
            return
        self._on_batch(len(batch), time.perf_counter() - started)
        for one, score in zip(batch, scores, strict=True):
            _finish(one, score)

    def _scores(self, items: Sequence[Item]) -> list[Scored]:
        scores = self._score(items)
        if len(scores) != len(items):
            raise ValueError(f"{len(scores)} scores of {len(items)} items")
        return scores


def _finish(one: _Waiting, result: Scored | Exception) -> None:
    if one.done.done():  # its request was cancelled
        return
    if isinstance(result, Exception):
        one.done.set_exception(result)
    else:
        one.done.set_result(result)
