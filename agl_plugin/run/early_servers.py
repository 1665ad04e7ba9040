"""vLLM's servers and their engines load what they need while the trainer and its workers do.

verl starts trainer, worker, server and engine one after the other, and each imports torch with verl or vLLM for itself.
Here the servers' processes start with the run: they import, and so does a process of each (multiprocessing's
forkserver) from which its engine is forked later, before it has threads or a GPU. verl then takes the servers for
its own. On one node alone: with several, verl says where each server belongs, and starts it there as it always does.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

import ray

SERVER = "verl.workers.rollout.vllm_rollout.vllm_async_server"
ENGINE = "vllm.v1.engine.core"
# What verl's workers and this project's loop ask a server.
PASSED_ON = (
    *("get_server_address", "launch_server", "collective_rpc", "set_global_steps", "wait_for_requests_to_drain"),
    *("wake_up", "sleep", "clear_kv_cache", "release_kv_cache", "resume_kv_cache"),
    *("abort_all_requests", "resume_generation", "start_profile", "stop_profile"),
)
# verl's workers find the server of their weights by this name.
NAME = "vllm_server_{rank}_0"


class EngineProcess(ForkServerProcess):
    """A process with the environment of its start: what forks it has the one of its own start."""

    _environment: dict[str, str]

    def start(self) -> None:
        """Start the process. `os.environ` is taken here."""
        self._environment = dict(os.environ)
        super().start()

    def run(self) -> None:
        """In the new process. What is the same stays where it is: setproctitle finds its place behind it."""
        before = dict(os.environ)
        for name in before.keys() - self._environment.keys():
            del os.environ[name]
        os.environ.update({k: v for k, v in self._environment.items() if before.get(k) != v})
        super().run()


class EngineContext(ForkServerContext):
    """What vLLM asks for its engine's process."""

    Process = EngineProcess  # pyright: ignore[reportAssignmentType]


def engine_context() -> EngineContext:
    """`vllm.v1.engine.utils.get_mp_context`, which would spawn within Ray: engines are forked from what has loaded."""
    return EngineContext()


class EarlyServer:
    """An actor's instance: verl's server of vLLM, which gets its settings (`begin`) after it has loaded."""

    server: Any = None

    def __init__(self) -> None:
        from agl_plugin.patches.install import install

        install("server")
        self._class = importlib.import_module(SERVER).vLLMHttpServer
        # Not before: a third process that imports would hold up the trainer, for which the worker waits.
        engine_context().set_forkserver_preload([SERVER, ENGINE])
        forkserver.ensure_running()

    async def begin(self, **settings: Any) -> None:
        """Be a server with verl's settings."""
        self.server = self._class(**settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.server, name)


def _passed_on(name: str) -> Any:
    async def method(self: EarlyServer, *args: Any, **kwargs: Any) -> Any:
        answer = getattr(self.server, name)(*args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer

    method.__name__ = name
    return method


for _name in PASSED_ON:
    setattr(EarlyServer, _name, _passed_on(_name))


def n_servers(verl: dict[str, Any]) -> int:
    """How many servers verl asks for on one node with these overrides."""
    rollout = verl["actor_rollout_ref"]["rollout"]
    sizes = ("tensor_model_parallel_size", "data_parallel_size", "pipeline_model_parallel_size")
    return int(verl["trainer"]["n_gpus_per_node"]) // math.prod(int(rollout.get(size, 1)) for size in sizes)


def start_servers(verl: dict[str, Any]) -> list[Any]:
    """Actors that load, as many as verl will ask for; none on several nodes. Ray must run."""
    n = n_servers(verl) if len(ray.nodes()) == 1 else 0
    remote: Any = ray.remote
    actor = remote(num_cpus=1, max_concurrency=1000)(EarlyServer)
    return [actor.options(name=NAME.format(rank=rank)).remote() for rank in range(n)]


def use_servers(servers: list[Any]) -> None:
    """Let verl take these servers; where there are none it starts its own. In the trainer's process."""
    from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

    Replica: Any = RolloutReplica

    class EarlyReplica(Replica):
        """verl's replica of vLLM on one node, with a server that has loaded. Of verl's own the trainer would need vLLM
        as well: 2 s of CPU.
        """

        async def launch_servers(self) -> None:
            """Begin, with the weights of the workers; verl has set these before."""
            assert servers, "verl asks for more servers than n_servers counts"
            server: Any = servers.pop(0)
            await server.begin.remote(
                config=self.config,
                model_config=self.model_config,
                rollout_mode=self.rollout_mode,
                workers=self.workers,
                replica_rank=self.replica_rank,
                node_rank=0,
                gpus_per_node=self.world_size,
                nnodes=1,
                cuda_visible_devices=self._devices(),
            )
            await server.launch_server.remote()
            address, port = await server.get_server_address.remote()
            self._server_address = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
            self._server_handle, self.servers = server, [server]

        def _devices(self) -> str:
            """Those of its workers, which Ray gave them in this order."""
            first = self.replica_rank * self.world_size
            return ",".join(str(device) for device in range(first, first + self.world_size))

        async def abort_all_requests(self, reject_request: bool = False) -> Any:
            """See verl's server."""
            return await self.servers[0].abort_all_requests.remote(reject_request=reject_request)

        async def sleep(self) -> None:
            """Once no request runs."""
            await self.servers[0].wait_for_requests_to_drain.remote()
            await super().sleep()

    if servers:
        RolloutReplicaRegistry.register("vllm", lambda: EarlyReplica)
