"""A gateway on each machine of a Ray, asked as if there were one.

Guarantees: a rollout's calls all go through one gateway, which its id says (foundation/rollout_keys.py); a gateway asks
the engines of its own machine before the others'; the gates open, close and hold together, and count together; a
process that ends is started again at its address, alone (gateway_watch.py). A gateway that does not reach the store is
a RunError before anything is played. A machine that is lost ends the run, as it does with its workers.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

import ray
from agentlightning.types import LLM
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from agl_plugin.proxy.gate import Gate
from agl_plugin.proxy.gateway import Gateway
from foundation.errors import RunError
from foundation.net import free_port
from foundation.rollout_keys import MAIN_LLM, OTHER_LLM
from foundation.store_token import check_host


class GatewayHost:
    """The actor: a gateway and its gate on one machine."""

    def __init__(self, machine: str, store: Any, options: dict[str, Any]) -> None:
        check_host(machine, "the gateway of a node, at")
        self.gate = Gate()
        self.gateway = Gateway(free_port(), store=store, host=machine, machine=machine, gate=self.gate, **options)

    async def reach(self) -> None:
        """Raise RunError where the store does not answer here."""
        store: Any = self.gateway.store
        try:
            await store.statistics()
        except Exception as exc:
            raise RunError(
                f"the gateway at {self.gateway.machine} does not reach the store at {store.server_address_root} "
                f"({type(exc).__name__}). Start the store where all machines reach it (agentgrpo store --host), name "
                "it with --store, and set one AGL_STORE_TOKEN wherever Ray and the store start; or leave "
                "rollout.gateways at one"
            ) from exc

    async def ask(self, part: str, name: str, *args: Any, **kwargs: Any) -> Any:
        """What an attribute of one of the two says, or its call."""
        value = getattr(getattr(self, part), name)
        value = value(*args, **kwargs) if callable(value) else value
        return await value if inspect.isawaitable(value) else value


class _All:
    """The same part of the gateway here, and of those on the other machines."""

    def __init__(self, part: str, here: Any, hosts: Sequence[Any]) -> None:
        self._part, self._here, self._hosts = part, here, hosts

    def _asked(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """What each says or does, this one's first."""
        value = getattr(self._here, name)
        return [value(*args, **kwargs) if callable(value) else value, *self._told(name, *args, **kwargs)]

    def _told(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        return ray.get([host.ask.remote(self._part, name, *args, **kwargs) for host in self._hosts])


class Gates(_All):
    """The gates of all machines, as the trainer asks one (agl_plugin.proxy.gate)."""

    @property
    def in_flight(self) -> int:
        """Calls that are not answered yet, at any of them."""
        return sum(self._asked("in_flight"))

    @property
    def refused(self) -> int:
        """Calls that came while they were closed."""
        return sum(self._asked("refused"))

    @property
    def weights(self) -> int:
        """With which weights they were opened."""
        return self._here.weights

    def open(self, *, weights: int = 0) -> None:
        """Let calls pass."""
        self._asked("open", weights=weights)

    def close(self) -> None:
        """Refuse calls from now on."""
        self._asked("close")

    def hold(self) -> None:
        """Let calls wait from now on."""
        self._asked("hold")

    def forget(self) -> None:
        """Nothing: a gateway whose process ended forgets as it is started again."""


class NodeGateways(_All):
    """The gateway here and one on each other machine, as the trainer asks one (agl_plugin.proxy.gateway).

    `options` are those of the gateways that no machine has for itself.
    """

    def __init__(self, here: Gateway, gate: Gate, options: dict[str, Any]) -> None:
        store: Any = here.store
        nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        here.machine = nodes.pop(ray.get_runtime_context().get_node_id())
        make: Any = ray.remote(num_cpus=0)(GatewayHost)
        self._machines = list(nodes.values())
        hosts = [
            make.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
                machine, store, options
            )
            for node, machine in nodes.items()
        ]
        ray.get([host.reach.remote() for host in hosts])
        super().__init__("gateway", here, hosts)
        self.gate = Gates("gate", gate, hosts)
        self._to_start = [True] * (1 + len(hosts))

    def update_model_list(self, model_list: Sequence[Any]) -> None:
        """Other model servers, from the next start on."""
        self._asked("update_model_list", model_list)
        self._to_start = [True] * len(self._to_start)

    async def restart(self) -> None:
        """Start those again that have other servers to serve, or have ended."""
        ended = [not lives for lives in self._asked("is_running")]
        (here, *hosts) = [a or b for a, b in zip(ended, self._to_start, strict=True)]
        waiting = [host.ask.remote("gateway", "restart") for host, due in zip(self._hosts, hosts, strict=True) if due]
        await asyncio.gather(*waiting, *([self._here.restart()] if here else []))
        self._to_start = [False] * len(self._to_start)

    async def stop(self) -> None:
        """Let calls in flight end, send the spans that wait, and end."""
        await asyncio.gather(self._here.stop(), *(host.ask.remote("gateway", "stop") for host in self._hosts))

    def is_running(self) -> bool:
        """Whether all serve."""
        return all(self._asked("is_running"))

    @property
    def exit_code(self) -> int | None:
        """How the process of one ended, where one did."""
        return next((code for code in self._asked("exit_code") if code is not None), None)

    def as_resources(self, sampling_parameters: dict[str, Any]) -> dict[str, LLM]:
        """The resource of each, by the names that `resources_of` knows."""
        names = [MAIN_LLM, *(f"{OTHER_LLM}{machine}" for machine in self._machines)]
        return dict(zip(names, self._asked("as_resource", sampling_parameters=sampling_parameters), strict=True))
