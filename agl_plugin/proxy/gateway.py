"""The gateway: an LLM proxy for vLLM servers, with the interface of agent-lightning's LLMProxy and none of LiteLLM.

Addresses, resources and spans are those of agent-lightning's proxy, so that agents, store and adapter see no
difference. It serves chat completions alone, and passes on what vLLM says, errors included. What holds for a call says
calls.py, for its span span_writer.py. `stop` takes no further calls, waits `drain_s` for those in flight, unless it is
cancelled, and sends the spans that wait. A gateway in a process of its own takes a new model list with `restart`, as
upstream's does.
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
from agentlightning.types import LLM, ProxyLLM
from agentlightning.utils.server_launcher import LaunchMode, PythonServerLauncherArgs

from agl_plugin.launcher import Launcher
from agl_plugin.proxy.calls import Address, Calls
from agl_plugin.proxy.gate import ALIVE_PATH, Gate
from foundation.processes import collect_rarely, die_with_parent, open_many_files
from foundation.store_token import Guarded, token

START_LIMIT_S, LOOK_S = 60.0, 0.05
# What the launch modes of agent-lightning's launcher need of a store.
NEEDS = {"mp": "zero_copy", "thread": "thread_safe", "asyncio": "async_safe"}
# What agent-lightning's proxy takes for LiteLLM, and the values that say nothing.
OF_LITELLM = {"litellm_config": {}, "num_retries": 0, "num_workers": 1, "middlewares": None, "callbacks": None}


class Gateway:
    """`model_list` is agent-lightning's: names, and in `litellm_params` the `model` and `api_base` of each server.

    Where it serves say port, host and launch_mode, or launcher_args, as for agent-lightning's; both are a ValueError,
    and so is what `of_litellm` cannot mean here: retries, workers, callbacks. Without `plain_spans` token ids are
    packed (tokens.py), which this project's readers take, and agent-lightning's do not. Model servers at the address
    `machine` come before others.
    """

    def __init__(
        self,
        port: int | None = None,
        model_list: Sequence[Any] | None = None,
        store: LightningStore | None = None,
        host: str | None = None,
        *,
        launch_mode: LaunchMode = "mp",
        launcher_args: PythonServerLauncherArgs | None = None,
        gate: Gate | None = None,
        log_probs: bool = False,
        drain_s: float = 60.0,
        calls_per_engine: int = 0,
        plain_spans: bool = True,
        machine: str = "",
        **of_litellm: Any,
    ) -> None:
        refuse_litellm(of_litellm)
        if launcher_args and (port, host, launch_mode) != (None, None, "mp"):
            raise ValueError("the gateway got launcher_args beside port, host or launch_mode: give one or the other")
        launcher_args = launcher_args or PythonServerLauncherArgs(
            port=port,
            host=host or "127.0.0.1",
            launch_mode=launch_mode,
            healthcheck_url=None if token() else ALIVE_PATH,  # the look would come without the token
            startup_timeout=START_LIMIT_S,
        )
        self.store, self.server_launcher_args, self._drain_s, self.machine = store, launcher_args, drain_s, machine
        self._calls: Any = Calls(
            gate=gate or Gate(), log_probs=log_probs, per_engine=calls_per_engine, packs=not plain_spans
        )
        guarded: Any = Guarded(self._calls)
        self.server_launcher = Launcher(guarded, launcher_args)
        self.update_model_list(model_list or ())

    def get_store(self) -> LightningStore | None:
        return self.store

    def set_store(self, store: LightningStore) -> None:
        """Another store, from the next start on."""
        self.store = store

    def update_model_list(self, model_list: Sequence[Any]) -> None:
        """Other model servers; entries without `api_base` are listed and not served."""
        self.model_list = list(model_list)
        addresses: dict[str, list[Address]] = {}
        for entry in self.model_list:
            params = entry["litellm_params"]
            if base := params.get("api_base"):
                headers = {"Content-Type": "application/json"}
                if key := params.get("api_key"):
                    headers["Authorization"] = f"Bearer {key}"
                model = params["model"].removeprefix("hosted_vllm/")
                is_far = urlsplit(base).hostname != self.machine
                address = Address(f"{base.rstrip('/')}/chat/completions", model, headers, is_far)
                addresses.setdefault(entry["model_name"], []).append(address)
        self._calls.route(addresses)

    @asynccontextmanager
    async def _serving(self, store: LightningStore) -> AsyncIterator[None]:
        die_with_parent()
        if self.server_launcher_args.launch_mode == "mp":
            collect_rarely()
            open_many_files()
        async with self._calls.serving(store):
            yield

    async def start(self) -> None:
        """Start to serve. Raises ValueError without a store, RuntimeError for one that does not fit the launch mode."""
        if self.store is None:
            raise ValueError("the gateway has no store: set_store() before start()")
        mode = self.server_launcher_args.launch_mode
        if not self.store.capabilities.get(NEEDS[mode], False):
            raise RuntimeError(f"the store is not {NEEDS[mode]}, as launch mode {mode} needs: choose another of either")
        self.server_launcher.serve_context = self._serving(self.store)
        with uvloops(forked=mode == "mp"):
            await self.server_launcher.start()

    async def stop(self) -> None:
        """Let calls in flight end, send the spans that wait, and end."""
        if self.server_launcher.is_running():  # of a process that died too
            if self.is_running():
                await self._drained()
            await self.server_launcher.stop()
            if self.server_launcher_args.launch_mode == "mp":
                self._calls.gate.forget()

    async def _drained(self) -> None:
        """Wait until no call is in flight, for `drain_s` at most; further ones are refused meanwhile."""
        gate, deadline = self._calls.gate, time.monotonic() + self._drain_s
        with gate.shut():
            while gate.in_flight and self.is_running() and time.monotonic() < deadline:
                await asyncio.sleep(LOOK_S)

    async def restart(self) -> None:
        """Stop, if it runs, and start."""
        await self.stop()
        await self.start()

    def is_running(self) -> bool:
        """Whether it was started and not stopped, and its process lives, where it has one."""
        return self.server_launcher.is_running() and self.exit_code is None

    def forget_if_ended(self) -> None:
        """Where its process has ended, no call is in flight."""
        if not self.is_running():
            self._calls.gate.forget()

    @property
    def exit_code(self) -> int | None:
        """How its process ended, where it ended by itself."""
        process = self.server_launcher._proc
        return process.exitcode if process and self.server_launcher.is_running() else None

    def as_resource(
        self,
        rollout_id: str | None = None,
        attempt_id: str | None = None,
        model: str | None = None,
        sampling_parameters: dict[str, Any] | None = None,
    ) -> LLM:
        """The resource of agents: with the address of one attempt, or one that is completed by each (ProxyLLM)."""
        if model is None:
            names = sorted({entry["model_name"] for entry in self.model_list})
            if len(names) != 1:
                raise ValueError(f"the gateway has the models {names}, not one: name it with `model`")
            model = str(names[0])
        if (rollout_id is None) != (attempt_id is None):
            raise ValueError("give both rollout_id and attempt_id, or neither")
        place = self.server_launcher.access_endpoint
        sampling = dict(sampling_parameters or {})
        if rollout_id is None:
            return ProxyLLM(endpoint=place, model=model, sampling_parameters=sampling)
        place = f"{place}/rollout/{rollout_id}/attempt/{attempt_id}"
        return LLM(endpoint=place, model=model, sampling_parameters=sampling)


def refuse_litellm(keywords: dict[str, Any]) -> None:
    """Raise TypeError for a keyword that agent-lightning's proxy has not, ValueError for one that asks for LiteLLM."""
    for name, value in keywords.items():
        if name not in OF_LITELLM:
            raise TypeError(f"the gateway has no {name!r}, nor has agent-lightning's proxy")
        if value not in (None, OF_LITELLM[name]):
            raise ValueError(
                f"{name}={value!r}: the gateway is one process, sends no call twice and calls nobody back: leave it "
                "out, or take agent-lightning's LLMProxy"
            )


@contextmanager
def uvloops(*, forked: bool) -> Iterator[None]:
    """A process that is forked meanwhile runs its event loop on uvloop: a third of the CPU of a call less."""
    before = asyncio.get_event_loop_policy()
    if forked:
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    try:
        yield
    finally:
        asyncio.set_event_loop_policy(before)
