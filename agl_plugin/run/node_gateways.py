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
from operator import attrgetter
from typing import Any

import ray
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
        self.gateway = Gateway(free_port(), store=store, host=machine, machine=machine, gate=Gate(), **options)

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

    async def ask(self, path: str, *args: Any, **kwargs: Any) -> Any:
        """As `asked`, and what comes of it where that is awaited."""
        answer = asked(self.gateway, path, *args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer


def asked(gateway: Gateway, path: str, *args: Any, **kwargs: Any) -> Any:
    """What an attribute of the gateway ("gate.weights") says, or its call."""
    value = attrgetter(path)(gateway)
    return value(*args, **kwargs) if callable(value) else value


class NodeGateways:
    """The gateway here, `gateway`, and one on each other machine, as the trainer asks one and its gate
    (agl_plugin.proxy.gateway, agl_plugin.proxy.gate). `options` are those that all gateways have.
    """

    def __init__(self, gateway: Gateway, options: dict[str, Any]) -> None:
        nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        gateway.machine = nodes.pop(ray.get_runtime_context().get_node_id())
        make: Any = ray.remote(num_cpus=0)(GatewayHost)
        self._here = gateway
        self._hosts = {
            machine: make.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
                machine, gateway.store, options
            )
            for node, machine in nodes.items()
        }
        ray.get([host.reach.remote() for host in self._hosts.values()])
        self._due = [True] * (1 + len(nodes))  # to be started, for the servers that they have by now

    def _ask_all(self, path: str, *args: Any, **kwargs: Any) -> list[Any]:
        """What each gateway says or does, that here first."""
        here = asked(self._here, path, *args, **kwargs)
        return [here, *ray.get([host.ask.remote(path, *args, **kwargs) for host in self._hosts.values()])]

    def update_model_list(self, model_list: Sequence[Any]) -> None:
        self._ask_all("update_model_list", model_list)
        self._due = [True] * len(self._due)

    async def restart(self) -> None:
        """Start those again that have other servers to serve, or have ended."""
        running = self._ask_all("is_running")
        here, *others = [is_due or not runs for is_due, runs in zip(self._due, running, strict=True)]
        starts = [self._here.restart()] if here else []
        starts += [host.ask.remote("restart") for host, due in zip(self._hosts.values(), others, strict=True) if due]
        await asyncio.gather(*starts)
        self._due = [False] * len(self._due)

    def is_running(self) -> bool:
        return all(self._ask_all("is_running"))

    @property
    def exit_code(self) -> int | None:
        return next((code for code in self._ask_all("exit_code") if code is not None), None)

    def as_resources(self, sampling_parameters: dict[str, Any]) -> dict[str, Any]:
        """The resource of each, by the names that `resources_of` knows."""
        names = [MAIN_LLM, *(f"{OTHER_LLM}{machine}" for machine in self._hosts)]
        resources = self._ask_all("as_resource", sampling_parameters=sampling_parameters)
        return dict(zip(names, resources, strict=True))

    @property
    def in_flight(self) -> int:
        return sum(self._ask_all("gate.in_flight"))

    @property
    def refused(self) -> int:
        return sum(self._ask_all("gate.refused"))

    @property
    def weights(self) -> int:
        return asked(self._here, "gate.weights")

    def open(self, *, weights: int = 0) -> None:
        self._ask_all("gate.open", weights=weights)

    def close(self) -> None:
        self._ask_all("gate.close")

    def hold(self) -> None:
        self._ask_all("gate.hold")

    def forget(self) -> None:
        self._ask_all("forget_if_ended")
