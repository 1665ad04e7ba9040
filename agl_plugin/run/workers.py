"""verl's workers and model servers of one run, as the loop asks them: passes, update, weights, checkpoints.

Guarantees: rows come and go padded, as agl_plugin.update.batch makes them, whatever their number and the number of
ranks; a server answers with the weights of the last `send_weights` alone, and its prefix cache holds none of others'.
Not covered: critics, reward models of verl, and rollouts on other machines than the workers.
"""

from __future__ import annotations

import asyncio
from typing import Any

import ray
import torch
from ray.exceptions import RayTaskError
from tensordict import TensorDict
from verl import DataProto
from verl.protocol import pad_dataproto_to_divisor
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from verl.trainer.ppo.utils import need_reference_policy
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_name
from verl.workers.rollout.replica import get_rollout_replica_class

from agl_plugin.update.rules import PLAN
from agl_plugin.update.worker import GrpoWorker
from foundation.errors import RunError

# What the workers read of a batch's tensors, besides `input_ids` and `position_ids`.
READ = (
    *("prompts", "responses", "attention_mask", "response_mask"),
    *("old_log_probs", "advantages", "ref_log_prob", "rollout_is_weights"),
)


def unpadded(batch: DataProto, **settings: Any) -> TensorDict:
    """The batch as verl's engines take it: tokens without padding, a row after the other; the rest as it is."""
    tensors: Any = batch.batch
    mask = tensors["attention_mask"].bool()
    offsets = torch.nn.functional.pad(mask.sum(dim=1).cumsum(dim=0), (1, 0))
    rows = {
        name: torch.nested.nested_tensor_from_jagged(tensors[name][mask], offsets)
        for name in ("input_ids", "position_ids")
    }
    rows |= {name: tensors[name] for name in READ if name in tensors}
    rows["loss_mask"] = tensors["response_mask"]
    return tu.get_tensordict(rows, {**settings, PLAN: batch.meta_info.get(PLAN)})


class Passes:
    """Log-probabilities and updates of a group of workers, or of the only one, in this process. `config` is verl's."""

    def __init__(self, group: Any, config: Any, *, n_ranks: int = 1) -> None:
        self._group, self._config, self.n_ranks = group, config.actor_rollout_ref, n_ranks
        self.has_reference, self.has_adapter = need_reference_policy(config), has_adapter(config)

    def log_probs(self, batch: DataProto) -> DataProto:
        """`old_log_probs` and `entropys`, rows x response."""
        found = self._scored(batch, self._group.compute_log_prob, calculate_entropy=True)
        return DataProto.from_single_dict({"old_log_probs": found["log_probs"], "entropys": found["entropy"]})

    def reference_log_probs(self, batch: DataProto) -> DataProto:
        """`ref_log_prob`, of the start model, rows x response: with LoRA the actor without its adapter."""
        work = self._group.compute_log_prob if self.has_adapter else self._group.compute_ref_log_prob
        found = self._scored(batch, work, calculate_entropy=False, no_lora_adapter=self.has_adapter)
        return DataProto.from_single_dict({"ref_log_prob": found["log_probs"]})

    def _scored(self, batch: DataProto, work: Any, **settings: Any) -> dict[str, torch.Tensor]:
        whole, n_added = pad_dataproto_to_divisor(batch, self.n_ranks)
        told = work(self._told(whole, compute_loss=False, **settings))
        width = whole.batch["responses"].shape[1]  # pyright: ignore[reportOptionalSubscript]
        names = [name for name in ("log_probs", "entropy") if name in told]
        n_rows = len(whole) - n_added
        return {name: told[name].values().reshape(-1, width)[:n_rows] for name in names}

    def update(self, batch: DataProto) -> list[dict[str, Any]]:
        """What each worker tells of its optimizer steps, which the Plan in the batch makes."""
        actor = self._config.actor
        told = self._told(batch, calculate_entropy=actor.entropy_coeff != 0, epochs=actor.ppo_epochs)
        found = self._group.update_actor(told)
        return found if isinstance(found, list) else [found]

    def _told(self, batch: DataProto, **settings: Any) -> TensorDict:
        return unpadded(batch, temperature=float(self._config.rollout.temperature), **settings)


def has_adapter(config: Any) -> bool:
    """Whether the policy is a LoRA adapter, without which the actor is the reference."""
    model = config.actor_rollout_ref.model
    return model.get("lora_rank", 0) > 0 or model.get("lora_adapter_path") is not None


class Workers(Passes):
    """The processes of a run."""

    def __init__(self, config: Any) -> None:
        separate = need_reference_policy(config) and not has_adapter(config)
        pool = RayResourcePool([config.trainer.n_gpus_per_node] * config.trainer.nnodes, use_gpu=True)
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
        self._replicas = self._start_servers()

    def _start_servers(self) -> list[Any]:
        rollout = self._config.rollout
        make = get_rollout_replica_class(rollout.name)
        of_one = rollout.tensor_model_parallel_size * rollout.data_parallel_size * rollout.pipeline_model_parallel_size
        replicas = [
            make(rank, rollout, self._config.model, gpus_per_node=rollout.n_gpus_per_node)
            for rank in range(self._group.world_size // of_one)
        ]

        async def start() -> None:
            await asyncio.gather(*(replica.init_hybrid(self._group) for replica in replicas))

        asyncio.run(start())
        return replicas

    @property
    def addresses(self) -> list[str]:
        """host:port of each model server."""
        return [replica.server_address for replica in self._replicas]

    def send_weights(self, *, step: int) -> None:
        """The servers get the workers' weights, and take calls."""
        ray.get(self._group.update_weights(global_steps=step, mode="naive"))
        self._ask("resume_generation")

    def abort(self) -> int:
        """End every request, drop what the engines cached, and take none before the next weights; how many these
        were."""
        return sum(told["aborted_count"] for told in self._ask("abort_all_requests"))

    def sleep(self) -> None:
        """The servers give their GPU memory to the workers. Raises RunError where one does not."""
        try:
            self._ask("sleep")
        except RayTaskError as exc:
            raise RunError(
                f"the model server did not go to sleep: {exc.cause}. The step is lost; continue with "
                "--resume_checkpoint latest"
            ) from exc

    def _ask(self, what: str) -> list[Any]:
        async def ask() -> list[Any]:
            return list(await asyncio.gather(*(getattr(replica, what)() for replica in self._replicas)))

        return asyncio.run(ask())

    def save(self, folder: str, *, step: int, keep: int | None) -> None:
        """Weights, optimizer and schedule below `folder`; of older checkpoints `keep` stay."""
        self._group.save_checkpoint(folder, None, step, max_ckpt_to_keep=keep)

    def load(self, folder: str) -> None:
        """What `save` wrote."""
        self._group.load_checkpoint(folder)
