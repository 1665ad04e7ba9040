"""An event loop in a thread of its own, and single calls in threads: for code that may hang and hold up others.

Guarantees: whoever waits gets an answer or TimeoutError in the time given, whether or not the work ever ends; neither a
loop nor a hanging call keeps the process from ending. What has begun in a thread cannot be stopped: it runs on.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any


class LoopThread:
    """A running event loop. It belongs to the process that made it: make it after a fork."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def submit(self, work: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Begin `work` there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def call(self, work: Coroutine[Any, Any, Any], *, timeout_s: float) -> Any:
        """What `work` gives, awaited from another loop. Raises TimeoutError, and what `work` raises."""
        return await answer(self.submit(work), timeout_s=timeout_s)

    def close(self, *, limit_s: float = 2.0) -> None:
        """Cancel what runs there and end the loop; one that hangs is left to its daemon thread."""
        if self.loop.is_closed():
            return
        try:
            self.submit(_cancel_all()).result(limit_s)
        except (TimeoutError, concurrent.futures.CancelledError):
            return
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

    def work() -> None:
        future.set_running_or_notify_cancel()
        try:
            found = function()
        except BaseException as exc:  # SystemExit too: it belongs to whoever waits
            future.set_exception(exc)
        else:
            future.set_result(found)

    threading.Thread(target=work, daemon=True).start()
    return future


async def answer(future: concurrent.futures.Future[Any], *, timeout_s: float) -> Any:
    """The result of `future`, awaited. Raises TimeoutError after `timeout_s`; a task on a loop is then cancelled."""
    wrapped = asyncio.wrap_future(future)
    done, _ = await asyncio.wait({wrapped}, timeout=timeout_s)
    if not done:
        wrapped.cancel()
        raise TimeoutError
    return wrapped.result()
