"""The gateway: an LLM proxy for vLLM servers in a process of its own, without LiteLLM.

Addresses, resources and spans are those of agent-lightning's proxy, so that agents, store and adapter see no
difference. It serves chat completions alone, and passes on what vLLM says, errors included. What holds for a call says
calls.py, for its span span_writer.py. `stop` takes no further calls, waits `drain_s` for those in flight, unless it is
cancelled, and sends the spans that wait. A new model list is served from the next `restart` on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import uvloop
from agentlightning.store.base import LightningStore
from agentlightning.types import ProxyLLM
from agentlightning.utils.server_launcher import PythonServerLauncherArgs

from agl_plugin.launcher import Launcher
from agl_plugin.proxy.calls import Address, Calls
from agl_plugin.proxy.gate import ALIVE_PATH, Gate
from foundation.processes import collect_rarely, die_with_parent, open_many_files
from foundation.store_token import Guarded

LOOK_S = 0.05


class Gateway:
    """Sends spans to `store`, which must be one that other processes reach.

    Without `plain_spans` token ids are packed (tokens.py), which this project's readers take, and agent-lightning's do
    not. Model servers at the address `machine` come before others.
    """

    def __init__(
        self,
        port: int,
        *,
        store: LightningStore,
        host: str = "127.0.0.1",
        gate: Gate | None = None,
        log_probs: bool = False,
        drain_s: float = 60.0,
        calls_per_engine: int = 0,
        plain_spans: bool = True,
        machine: str = "",
    ) -> None:
        place = PythonServerLauncherArgs(port=port, host=host, launch_mode="mp", healthcheck_url=ALIVE_PATH)
        self.store, self._drain_s, self.machine = store, drain_s, machine
        self.gate = gate or Gate()
        self._calls: Any = Calls(
            gate=self.gate, log_probs=log_probs, per_engine=calls_per_engine, packs=not plain_spans
        )
        guarded: Any = Guarded(self._calls)
        self.server_launcher = Launcher(guarded, place)

    def update_model_list(self, model_list: Sequence[Any]) -> None:
        """Other model servers: agent-lightning's list, of a single name, with the `api_base` of each."""
        (model,) = {entry["model_name"] for entry in model_list}
        places = [entry["litellm_params"]["api_base"].rstrip("/") for entry in model_list]
        self._calls.route(
            model, [Address(f"{place}/chat/completions", urlsplit(place).hostname != self.machine) for place in places]
        )

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        die_with_parent()
        collect_rarely()
        open_many_files()
        async with self._calls.serving(self.store):
            yield

    async def start(self) -> None:
        self.server_launcher.serve_context = self._serving()
        with uvloops():
            await self.server_launcher.start()

    async def stop(self) -> None:
        """Let calls in flight end, send the spans that wait, and end."""
        if self.server_launcher.is_running():  # of a process that died too
            if self.is_running():
                await self._drained()
            await self.server_launcher.stop()
            self.gate.forget()

    async def _drained(self) -> None:
        """Wait until no call is in flight, for `drain_s` at most; further ones are refused meanwhile."""
        deadline = time.monotonic() + self._drain_s
        with self.gate.shut():
            while self.gate.in_flight and self.is_running() and time.monotonic() < deadline:
                await asyncio.sleep(LOOK_S)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def is_running(self) -> bool:
        """Whether it was started and not stopped, and its process lives."""
        return self.server_launcher.is_running() and self.exit_code is None

    def forget_if_ended(self) -> None:
        """Where its process has ended, no call is in flight."""
        if not self.is_running():
            self.gate.forget()

    @property
    def exit_code(self) -> int | None:
        """How its process ended, where it ended by itself."""
        process = self.server_launcher._proc
        return process.exitcode if process and self.server_launcher.is_running() else None

    def as_resource(self, *, sampling_parameters: dict[str, Any] | None = None) -> ProxyLLM:
        """The resource of agents, whose address is completed by each attempt."""
        sampling = dict(sampling_parameters or {})
        place = self.server_launcher.access_endpoint
        return ProxyLLM(endpoint=place, model=self._calls.model, sampling_parameters=sampling)


@contextmanager
def uvloops() -> Iterator[None]:
    """A process that is forked meanwhile runs its event loop on uvloop: a third of the CPU of a call less."""
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    try:
        yield
    finally:
        asyncio.set_event_loop_policy(before)
