"""Python that a model wrote: text in, Outcome out.

Guarantees: no code can hang, bloat or crash this process, or do anything but compute (rules.py, kernel.py); each run
begins anew. Whatever the code does wrong is an Outcome; ToolFault is raised where no run was possible: a kernel without
filters, no process to be had, a machine so busy that a run got no processor time. A Sandbox that came through a fork
opens workers of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from foundation.child import Child, Gone
from foundation.errors import UserError
from sql_agent.config import PythonConfig
from sql_agent.environment.child_side import arguments
from sql_agent.environment.sandbox.rules import MAX_OUTPUT_CHARS
from sql_agent.environment.sandbox.worker import Kind, Reply, Settings
from sql_agent.errors import ToolFault

WORKER = "sql_agent.environment.sandbox.worker"
N_WORKERS = 4
START_TIMEOUT_S = 30.0  # 0.1 s on an idle machine
WALL_SHARE, WALL_LEAST_S = 10.0, 10.0  # the processor's time must come within this: confined code cannot wait
LONGEST_WAIT_S = 120.0


@dataclass(frozen=True)
class Outcome:
    """What one run came to: `text` is for the model."""

    kind: Kind
    text: str

    @property
    def ok(self) -> bool:
        """True when the code ran to its end."""
        return self.kind == "ok"


class Sandbox:
    """N_WORKERS runs at once, further ones wait. Usable from any thread and any event loop."""

    def __init__(self, config: PythonConfig) -> None:
        self.config = config
        self._settings: Settings = {
            "modules": list(config.modules),
            "cpu_s": config.cpu_s,
            "wall_s": WALL_SHARE * config.cpu_s + WALL_LEAST_S,
            "memory_bytes": config.max_memory_mib << 20,
        }
        self._open()

    def _open(self) -> None:
        self._pid = os.getpid()
        self._idle: deque[Child] = deque()
        self._pool = ThreadPoolExecutor(N_WORKERS, thread_name_prefix="python")

    async def run(self, code: str) -> Outcome:
        """Run the code. Raises ToolFault where no run was possible."""
        return await asyncio.wrap_future(self._submit(code))

    def run_sync(self, code: str) -> Outcome:
        """`run` for code without an event loop."""
        return self._submit(code).result()

    def _submit(self, code: str) -> Future[Outcome]:
        if self._pid != os.getpid():
            self._open()
        return self._pool.submit(self._run, code, time.monotonic())

    def _run(self, code: str, asked_s: float) -> Outcome:
        """In a thread of the pool: there are as many threads as workers, so each finds or starts one."""
        if time.monotonic() - asked_s > LONGEST_WAIT_S:
            raise ToolFault(f"python: {LONGEST_WAIT_S:g} s passed before a worker was free; lower python.cpu_s")
        worker = self._take()
        try:
            reply: Reply = worker.ask({"code": code}, timeout_s=self._settings["wall_s"] + START_TIMEOUT_S)
        except Gone as gone:
            raise ToolFault(f"python: the process that runs code is gone ({gone})") from gone
        self._idle.append(worker)
        return self._outcome(reply)

    def _take(self) -> Child:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            worker.kill()
        try:
            worker = Child(arguments(WORKER, json.dumps(self._settings)), start_s=START_TIMEOUT_S)
        except Gone as gone:
            raise ToolFault(f"python: the process that runs code did not start ({gone})") from gone
        if worker.hello != {"kind": "ok", "text": "1\n"}:
            worker.kill()
            raise ToolFault(f"python: code cannot be confined on this machine: {worker.hello['text']}")
        return worker

    def _outcome(self, reply: Reply) -> Outcome:
        """Raises ToolFault for what is not the code's doing."""
        kind, text = reply["kind"], reply["text"]
        if kind == "fault":
            raise ToolFault(f"python: {text}")
        if kind == "busy":
            raise ToolFault(
                f"python: {self._settings['wall_s']:g} s gave a run no {self.config.cpu_s:g} s of processor"
            )
        texts = {
            "timeout": f"the code takes more than {self.config.cpu_s:g} s; make it simpler",
            "memory": f"the code needs more than {self.config.max_memory_mib} MiB of memory; make it simpler",
            "crash": "the process of the code died; make it simpler",
            "flood": f"{text}\nthe output is longer than {MAX_OUTPUT_CHARS:,} characters; print less",
        }
        return Outcome(kind, texts.get(kind, text))

    def check(self) -> None:
        """Raise UserError where code cannot be run here."""
        try:
            self.run_sync("1")
        except ToolFault as exc:
            raise UserError(f"agent.tools: {exc}; leave python out of them") from exc

    def close(self) -> None:
        """End the workers, after what each of them runs."""
        if self._pid == os.getpid():
            self._pool.shutdown(wait=True, cancel_futures=True)
        while self._idle:
            self._idle.pop().kill()
