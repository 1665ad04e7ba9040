"""agent-lightning's client-server execution, whose runner processes are started again when they are killed.

Guarantees: a runner that a signal ended (out of memory, kill -9) is followed by another one, at most RESTARTS times;
what it had taken runs once more (see runner.py). A runner that ends by itself, or with an exception, is not started
again; it ends also where an agent swallows its cancelling, and none is left when the trainer is killed. Each runner has
a parent of its own that does nothing but watch: forking from the trainer's process later would copy locks that its
threads hold.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.context import BaseContext
from typing import Any

from agentlightning.execution.client_server import ClientServerExecutionStrategy
from agentlightning.execution.events import ExecutionEvent, MultiprocessingEvent
from agentlightning.store.base import LightningStore

from agl_plugin.store.client import store_at
from agl_plugin.store.server import StoreServer
from agl_plugin.store.sqlite import SqliteLightningStore
from foundation.background import ENDING_S
from foundation.processes import die_with_parent

logger = logging.getLogger(__name__)

RESTARTS = 3
RUNNER = "runner-"


class SupervisedExecution(ClientServerExecutionStrategy):
    """Spawns one watching process per runner, in the role of a runner too."""

    def execute(self, algorithm: Any, runner: Any, store: LightningStore) -> None:
        """Run what the role says. Raises RuntimeError when a runner ended with an exception."""
        if self.role != "runner":
            return super().execute(algorithm, runner, store)
        ctx = multiprocessing.get_context()
        stop_evt = MultiprocessingEvent(ctx=ctx)
        processes = self._spawn_runners(runner, store, stop_evt, ctx=ctx)
        try:
            for process in processes:
                process.join()
        except KeyboardInterrupt:
            logger.warning("interrupted; the runners end")
        finally:
            self._shutdown_processes(processes, stop_evt)
        self._check_process_exitcodes(processes)

    async def _execute_algorithm(self, algorithm: Any, store: LightningStore, stop_evt: ExecutionEvent) -> None:
        """As upstream; a managed store is served with the token, and to the runners' last requests."""
        if not self.managed_store:
            return await super()._execute_algorithm(algorithm, store, stop_evt)
        server = StoreServer(store, host=self.server_host or "localhost", port=self.server_port or 4747)
        await server.start()
        try:
            with self._unmanaged():
                await super()._execute_algorithm(algorithm, server, stop_evt)
        finally:
            stop_evt.set()
            children: Any = multiprocessing.active_children()
            runners = [child for child in children if child.name.startswith(RUNNER)]
            await asyncio.to_thread(self._join_until_deadline, runners, self.graceful_timeout)
            await server.stop()
            if isinstance(store, SqliteLightningStore):
                await store.close()

    async def _execute_runner(
        self, runner: Any, worker_id: int, store: LightningStore, stop_evt: ExecutionEvent
    ) -> None:
        """As upstream; a managed store is asked with the token."""
        if not self.managed_store:
            return await super()._execute_runner(runner, worker_id, store, stop_evt)
        async with store_at(f"http://{self.server_host}:{self.server_port}") as client:
            with self._unmanaged():
                await super()._execute_runner(runner, worker_id, client, stop_evt)

    @contextmanager
    def _unmanaged(self) -> Iterator[None]:
        """Upstream makes no server and no client of its own."""
        self.managed_store = False
        try:
            yield
        finally:
            self.managed_store = True

    def _spawn_runners(
        self, runner: Any, store: LightningStore, stop_evt: ExecutionEvent, *, ctx: BaseContext
    ) -> list[multiprocessing.Process]:
        processes: list[Any] = []
        for i in range(self.n_runners):
            args = (runner, i, store, stop_evt, ctx)
            processes.append(ctx.Process(target=self._supervise, args=args, name=f"{RUNNER}{i}"))  # pyright: ignore[reportAttributeAccessIssue]
            processes[-1].start()
        return processes

    def _supervise(
        self, runner: Any, worker_id: int, store: LightningStore, stop_evt: ExecutionEvent, ctx: BaseContext
    ) -> None:
        die_with_parent()
        code = 0
        for start in range(RESTARTS + 1):
            args = (runner, worker_id, store, stop_evt)
            child: Any = ctx.Process(target=self._run_runner, args=args, name=f"{RUNNER}{worker_id}.{start}")  # pyright: ignore[reportAttributeAccessIssue]
            child.start()
            code = self._watch(child)
            if code >= 0 or stop_evt.is_set():
                break
            logger.warning("runner %d was ended by signal %d; %d restarts left", worker_id, -code, RESTARTS - start)
        sys.exit(code if code >= 0 else 128 - code)

    @staticmethod
    def _watch(child: Any) -> int:
        while child.is_alive():
            with suppress(KeyboardInterrupt):  # the child got it too, or is told by the stop event
                child.join()
        return child.exitcode or 0

    def _run_runner(self, runner: Any, worker_id: int, store: LightningStore, stop_evt: ExecutionEvent) -> None:
        die_with_parent()
        try:
            asyncio.run(_to_the_end(self._execute_runner(runner, worker_id, store, stop_evt)))
        except KeyboardInterrupt:
            logger.warning("runner %d: interrupted", worker_id)


async def _to_the_end(work: Awaitable[None]) -> None:
    """Do the work and cancel what is left, of which asyncio.run would wait for what swallows that: the process ends."""
    await work
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others and (await asyncio.wait(others, timeout=ENDING_S))[1]:
        logger.warning("an agent swallowed its end, and goes with its runner")
        logging.shutdown()
        os._exit(0)
