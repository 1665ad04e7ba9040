"""An event loop in a thread of its own, and single calls in threads: for code that may hang and hold up others.

Guarantees: whoever waits gets an answer or TimeoutError in the time given, whether or not the work ever ends; neither a
loop nor a call that hangs keeps the process from ending. Nothing that work raises ends a loop or looks to its waiter as
the waiter's own end: SystemExit, KeyboardInterrupt, GeneratorExit, CancelledError and StopIteration arrive as Exited;
an end of the process itself (Interrupted) is nobody's work and goes through.
Nothing that work gives after its limit reaches its waiter.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from foundation.errors import AgentGRPOError, Interrupted

logger = logging.getLogger(__name__)
ENDING_S = 0.5  # for work to end once it is cancelled


class Exited(AgentGRPOError):
    """Work raised what is no Exception, or what means something else to a waiter. The text has its name and words."""


class Overdue(AgentGRPOError):
    """Work took longer than its limit. `goes_on`: it swallows its cancelling, and nobody waits for it any more."""

    def __init__(self, *, goes_on: bool) -> None:
        super().__init__("it goes on, to no effect" if goes_on else "it was ended")
        self.goes_on = goes_on


async def within[T](work: Awaitable[T], *, limit_s: float | None, ending_s: float = ENDING_S) -> T:
    """What `work` gives, if it comes in time; else it is cancelled, and has `ending_s` to close what it opened.

    Raises Overdue, and what `work` raises. Work that blocks the loop is late by the time at which it ended.
    """
    limit_at_s = time.monotonic() + (math.inf if limit_s is None else limit_s)
    ended_s = 0.0

    async def timed() -> T:
        nonlocal ended_s
        try:
            return await work
        finally:
            ended_s = time.monotonic()

    task = asyncio.create_task(timed())
    try:
        done, _ = await asyncio.wait({task}, timeout=limit_s)
        if done and (ended_s <= limit_at_s or task.cancelled()):
            return task.result()
    finally:
        if task.cancel():
            await asyncio.wait({task}, timeout=ending_s)
    raise Overdue(goes_on=not task.done())


def ordinary(exc: BaseException) -> Exception:
    """The exception as a waiter can be given it: itself with its own cause, or an Exited that it caused."""
    special = (StopIteration, StopAsyncIteration, concurrent.futures.CancelledError)
    if isinstance(exc, Exception) and not isinstance(exc, special):
        return exc
    exited = Exited(named(exc))
    exited.__cause__ = exc
    return exited


def named(value: Any) -> str:
    """An exception, or anything else, in one line, also where its own words cannot be had."""
    try:
        return repr(value)[:500]
    except BaseException:  # what it holds may be anything
        return type(value).__name__


def contained_call[T](function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """What a call gives. Raises an Exception only, and Interrupted, which is not of its making."""
    try:
        return function(*args, **kwargs)
    except Interrupted:
        raise
    except BaseException as exc:
        raise ordinary(exc)  # noqa: B904 - it has its own cause


async def contained[T](work: Awaitable[T]) -> T:
    """What `work` gives. Raises an Exception only, CancelledError where this task is cancelled, and Interrupted."""
    try:
        return await work
    except asyncio.CancelledError as exc:
        task = asyncio.current_task()
        if task and task.cancelling():
            raise
        raise ordinary(exc)  # noqa: B904 - it has its own cause
    except Interrupted:
        raise
    except BaseException as exc:
        raise ordinary(exc)  # noqa: B904 - it has its own cause


class LoopThread:
    """A running event loop. It belongs to the process that made it: make it after a fork."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._closing:
            try:
                self.loop.run_forever()  # until it is closed; what runs in it may stop it too
            except BaseException as exc:  # of a task or callback that the work itself made; the others go on
                logger.warning("a task in the loop %r raised %s", self._thread.name, named(exc))

    def submit(self, work: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Begin `work` there."""
        return asyncio.run_coroutine_threadsafe(contained(work), self.loop)

    async def call(self, work: Coroutine[Any, Any, Any], *, timeout_s: float) -> Any:
        """What `work` gives, awaited from another loop. Raises TimeoutError after `timeout_s`, by which the work is
        cancelled, and what `work` raises."""
        wrapped = asyncio.wrap_future(self.submit(work))
        done, _ = await asyncio.wait({wrapped}, timeout=timeout_s)
        if not done:
            wrapped.cancel()
            raise TimeoutError
        if wrapped.cancelled():  # by itself, or with its loop
            raise Exited("CancelledError()")
        return wrapped.result()

    def close(self, *, limit_s: float = 2.0) -> None:
        """Cancel what runs there and end the loop; one that hangs is left to its daemon thread."""
        if self.loop.is_closed():
            return
        try:
            self.submit(_cancel_all()).result(limit_s)
        except (TimeoutError, concurrent.futures.CancelledError):
            return
        self._closing = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(limit_s)
        if not self._thread.is_alive():
            self.loop.close()


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


def in_thread(function: Callable[[], Any]) -> concurrent.futures.Future[Any]:
    """Begin `function` in a daemon thread."""
    future: concurrent.futures.Future[Any] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def work() -> None:
        try:
            future.set_result(contained_call(function))
        except Exception as exc:
            future.set_exception(exc)

    threading.Thread(target=work, daemon=True).start()
    return future
