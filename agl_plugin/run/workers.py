"""verl's workers and model servers of one run, as the loop asks them: passes, update, weights, checkpoints.

Each server is on the machine of its workers. Guarantees: a server answers with the weights of the last `send_weights`
alone; its prefix cache has none of others'. Not covered: critics and reward models of verl.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import ray
from ray.exceptions import RayTaskError
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.trainer.ppo.utils import need_reference_policy
from verl.utils.device import get_device_name
from verl.workers.rollout.replica import get_rollout_replica_class

from agl_plugin.update.passes import Passes, has_adapter
from agl_plugin.update.worker import GrpoWorker
from foundation.errors import RunError

LOOK_S, MOST_S = 5.0, 1800.0  # of a hand-over of weights, which takes seconds to minutes
AGAIN = "The step is lost; continue with --resume"


def is_well(address: str) -> bool:
    """Whether a model server (host:port) lives, and its engine too."""
    try:
        return httpx.get(f"http://{address}/health", timeout=60, trust_env=False).is_success
    except httpx.TransportError:
        return False


class Workers(Passes):
    """The processes of a run."""

    def __init__(self, config: Any, *, teacher: str = "") -> None:
        separate = need_reference_policy(config) and not has_adapter(config) and not teacher
        # One process for a GPU, which is all its own; by verl's default each GPU would claim ten CPUs of its machine.
        pool = RayResourcePool([config.trainer.n_gpus_per_node] * config.trainer.nnodes, max_colocate_count=1)
        role = "actor_rollout_ref" if separate else "actor_rollout"
        worker = RayClassWithInitArgs(cls=ray.remote(GrpoWorker), config=config.actor_rollout_ref, role=role)
        wait_s = config.trainer.ray_wait_register_center_timeout
        group: Any = RayWorkerGroup(
            resource_pool=pool,
            ray_cls_with_init=worker,
            device_name=get_device_name(),
            ray_wait_register_center_timeout=wait_s,
        )
        group.init_model()
        super().__init__(group, config, n_ranks=max(group._query_dispatch_info("actor")) + 1)
        rollout = self._config.rollout
        make: Any = get_rollout_replica_class(rollout.name)
        of_one = rollout.tensor_model_parallel_size * rollout.data_parallel_size * rollout.pipeline_model_parallel_size
        self._replicas = [
            make(rank, rollout, self._config.model, gpus_per_node=rollout.n_gpus_per_node)
            for rank in range(group.world_size // of_one)
        ]
        self._ask("init_hybrid", group)

    @property
    def addresses(self) -> list[str]:
        """host:port of each model server."""
        return [replica.server_address for replica in self._replicas]

    def send_weights(self, *, step: int) -> None:
        """The servers get the workers' weights, and take calls. Raises RunError where one is gone, or takes none."""
        deadline_s = time.monotonic() + MOST_S
        pending = self._group.update_weights(global_steps=step, mode="naive")
        while pending:
            done, pending = ray.wait(pending, num_returns=len(pending), timeout=LOOK_S)
            ray.get(done)
            if pending and time.monotonic() > deadline_s:
                raise RunError(
                    f"the model servers live and did not take the weights after {step} updates within {MOST_S:g} s: "
                    f"their error stands in the run's log. {AGAIN}"
                )
            if pending and (gone := [address for address in self.addresses if not is_well(address)]):
                # Its worker would wait for it for ever.
                raise RunError(
                    f"the model server {gone[0]} is gone: it did not take the weights after {step} updates. {AGAIN}"
                )
        self._tell("resume_generation")

    def abort(self) -> int:
        """End every request, drop what the engines cached, and take none before the next weights; how many these
        were."""
        return sum(reply["aborted_count"] for reply in self._tell("abort_all_requests"))

    def sleep(self) -> None:
        """The servers give their GPU memory to the workers."""
        self._tell("sleep")

    def _tell(self, what: str) -> list[Any]:
        """Ask servers that serve. Raises RunError where one is gone, or does not do it."""
        try:
            return self._ask(what)
        except RayTaskError as exc:
            gone = [address for address in self.addresses if not is_well(address)]
            why = f"the model server {gone[0]} is gone: look for a lack of memory" if gone else ""
            raise RunError(f"{why or f'the model server did not {what}: {exc.cause}'}. {AGAIN}") from exc

    def _ask(self, what: str, *args: Any) -> list[Any]:
        async def ask() -> list[Any]:
            return list(await asyncio.gather(*(getattr(replica, what)(*args) for replica in self._replicas)))

        return asyncio.run(ask())

    def save(self, folder: str, *, step: int) -> None:
        """Weights, optimizer and schedule below `folder`; older checkpoints stay."""
        self._group.save_checkpoint(folder, None, step, max_ckpt_to_keep=None)

    def load(self, folder: str) -> None:
        self._group.load_checkpoint(folder)
