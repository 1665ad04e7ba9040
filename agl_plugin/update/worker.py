"""verl's worker and FSDP engine, with planned optimizer steps, logits of trained tokens alone, and proof of updates.

Subclasses that verl finds through its own registries: nothing of verl is replaced. Guarantees: the optimizer steps are
those of the Plan in the batch, which the trainer made; log-probabilities and entropies are float32, rows x response,
and of the trained tokens alone, elsewhere 0; micro batches are as wide as their longest row, and the last may be short.
What each update tells is agl_plugin.update.telling's.
Not covered: models that see images, fused kernels.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict
from torch.distributed import HashStore, get_rank  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from verl.single_controller.base.decorator import (
    Dispatch,
    collect_all_to_all,
    dispatch_lazy_compute_data_proto,
    register,
)
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_id, get_device_name, get_torch_device
from verl.utils.fsdp_utils import load_fsdp_model_to_gpu, offload_fsdp_model_to_cpu
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.engine.utils import postprocess_batch_func
from verl.workers.engine_workers import ActorRolloutRefWorker

from agl_plugin.update.policy_loss import step_loss
from agl_plugin.update.resuming import own_settings
from agl_plugin.update.rules import CUTS, PLAN, Plan, parts
from agl_plugin.update.telling import Telling
from agl_plugin.update.token_scores import response_scores
from foundation.environment import CPU_PLATFORM

# In the names of parameters, not in those of a saved adapter.
OF_WRAPPERS = ("_fsdp_wrapped_module", "default")
Engine: Any = FSDPEngineWithLMHead
setting: Any = tu.get_non_tensor_data
Worker: Any = ActorRolloutRefWorker


@EngineRegistry.register(
    model_type="language_model", backend=["fsdp", "fsdp2"], device=["cuda", "cpu"], vendor=["nvidia", CPU_PLATFORM]
)
class PlannedEngine(Engine):
    """See the module. `telling` is of the update under way."""

    telling: Telling

    def forward_backward_batch(self, data: TensorDict, loss_function: Any, forward_only: bool = False) -> Any:
        """As verl's, with the Plan's micro batches, or with batches of equal size, the last of which may be smaller.

        It does not count tokens: the Plan holds their number.
        """
        outputs = list[Any]()
        sizes = setting(data, CUTS, default=None) or [data["micro_batch_size_per_gpu"]] * len(data)
        for rows in filter(None, parts(range(len(data)), sizes)):
            micro_batch = tu.index_select_tensor_dict(data, rows)
            with (
                torch.set_grad_enabled(not forward_only),
                self._gradient_sync_context(is_last_micro_batch=rows[-1] == len(data) - 1),
            ):
                loss, output = self.forward_step(micro_batch, loss_function, forward_only)
                if not forward_only:
                    scaled_loss = loss if self.scaler is None else self.scaler.scale(loss)
                    scaled_loss.backward()
                    with_output = setting(data, "return_model_output", default=False)
                    tensors = output["model_output"] if with_output else {}
                    output["model_output"] = {name: tensor.detach() for name, tensor in tensors.items()}
            outputs.append(output)
        return postprocess_batch_func(output_lst=outputs, indices=None, data=data)

    def forward_step(self, micro_batch: TensorDict, loss_function: Any, forward_only: bool) -> Any:
        """The loss with its gradient, and what verl passes on of a micro batch."""
        micro_batch = micro_batch.to(get_device_id())
        scores = self._scores(micro_batch)
        loss = torch.tensor(0.0)
        metrics = {}
        if loss_function is not None:
            loss, metrics = loss_function(model_output=scores, data=micro_batch)
        scores = {name: values.detach() for name, values in scores.items()}
        return loss, {"model_output": scores, "loss": loss.item(), "metrics": metrics}

    def _scores(self, rows: TensorDict) -> dict[str, torch.Tensor]:
        inputs, args = self.prepare_model_inputs(rows)
        shared: Any = {}
        if self.use_ulysses_sp:
            size = len(args["input_ids_rmpad_rolled"])
            rank = get_rank(self.ulysses_parallel_group)
            shared["part"] = slice(size * rank, size * (rank + 1))
            shared["whole"] = partial(self._gather_and_unpad_packed, pad_size=args["pad_size"])
        return response_scores(
            self.module,
            inputs,
            rows,
            temperature=float(setting(rows, "temperature", None)),
            with_entropy=setting(rows, "calculate_entropy", False),
            dtype=self._autocast_dtype,
            **shared,
        )

    def get_per_tensor_param(self, layered_summon: bool = False, base_sync_done: bool = False, **kwargs: Any) -> Any:
        """What vLLM gets. Of an adapter in FSDP1 each part by itself, under PEFT's names: verl's own way finds none."""
        policy = getattr(self.module, "_fsdp_wrapped_module", self.module)
        is_adapter = hasattr(policy, "peft_config") and not self.model_config.lora.get("merge", False)
        if not (is_adapter and base_sync_done and isinstance(self.module, FSDP)):
            return super().get_per_tensor_param(layered_summon, base_sync_done, **kwargs)
        load_fsdp_model_to_gpu(self.module)
        weights: dict[str, torch.Tensor] = {}
        for path, unit in self.module.named_modules():
            if isinstance(unit, FSDP) and "lora_" in path:
                with FSDP.summon_full_params(unit, writeback=False):
                    for name, weight in unit.named_parameters():
                        parts = [part for part in f"{path}.{name}".split(".") if part not in OF_WRAPPERS]
                        weights[".".join(parts)] = weight.detach().cpu().clone()
        assert weights, "the adapter has no weights"
        if self._is_offload_param:
            offload_fsdp_model_to_cpu(self.module)
        return weights.items(), policy.peft_config["default"].to_dict()

    def load_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """verl's, with this run's learning rate and other settings of the optimizer."""
        with own_settings(self.optimizer, self.lr_scheduler):
            super().load_checkpoint(*args, **kwargs)

    def optimizer_step(self) -> float:
        """verl's step, of which `telling` takes note."""
        return self.telling.stepped(super().optimizer_step)


class GrpoWorker(Worker):
    """verl's worker, which makes the optimizer steps of a Plan."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if get_device_name() == "cpu":
            meet_by_gloo()
        super().__init__(*args, **kwargs)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # pyright: ignore[reportAttributeAccessIssue] verl adds it
    def init_model(self) -> None:
        """verl's models, with this project's loss."""
        super().init_model()
        if self.actor is not None:
            self.actor.set_loss_fn(partial(step_loss, self.loss_fn.keywords["config"]))

    @register(
        dispatch_mode={
            "dispatch_fn": partial(dispatch_lazy_compute_data_proto, "actor"),
            "collect_fn": collect_all_to_all,
        }
    )
    def update_actor(self, data: TensorDict) -> dict[str, list[Any]]:
        """The optimizer steps of the Plan in this rank's rows."""
        assert self.actor is not None
        engine: Any = self.actor.engine
        with engine.train_mode():
            engine.telling = telling = Telling(engine.module, engine.optimizer, clip=engine.optimizer_config.clip_grad)
            self._steps(engine, data)
            engine.lr_scheduler_step()
            return telling.metrics(setting(data, PLAN, None), epochs=setting(data, "epochs", 1)) | gpu_memory()

    def _steps(self, engine: Any, data: TensorDict) -> None:
        plan: Plan = setting(data, PLAN, None)
        config = engine.engine_config
        names = ("use_remove_padding", "use_dynamic_bsz", "max_token_len_per_gpu", "micro_batch_size_per_gpu")
        tu.assign_non_tensor(data, **{name: getattr(config, name) for name in names})
        for rows, cuts in plan.steps * setting(data, "epochs", 1):
            step = tu.index_select_tensor_dict(data, rows)
            tu.assign_non_tensor(step, **{CUTS: cuts})
            output = engine.train_batch(step, self.actor.loss_fn)
            output["metrics"].pop("grad_norm", None)
            engine.telling.passed(output["metrics"])
            if plan.only_pass:
                width = data["responses"].shape[1]
                scores = (output["model_output"][name].values().reshape(-1, width) for name in ("log_probs", "entropy"))
                engine.telling.scored(*scores)


def gpu_memory() -> dict[str, list[Any]]:
    """The most that torch had of this rank's GPU until now, in GiB, under verl's names; nothing without a GPU."""
    if get_device_name() == "cpu":
        return {}
    device = get_torch_device()
    peaks = {"allocated": device.max_memory_allocated(), "reserved": device.max_memory_reserved()}
    return {f"perf/max_memory_{name}_gb": [n_bytes / 2**30] for name, n_bytes in peaks.items()}


def meet_by_gloo() -> None:
    """The group of the ranks on a machine without a GPU, where verl would ask torch for two backends of one device.

    A rank that is alone keeps what ranks tell each other in its memory: torch's own store for it listens on all
    addresses of the machine, without a password. Several on this machine meet in a file, and then on the loopback.
    """
    if torch.distributed.is_initialized():
        return
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world_size == 1:
        torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group("gloo", init_method=f"file://{_meeting()}", rank=rank, world_size=world_size)


def _meeting() -> str:
    """A file of this group of ranks alone: below Ray's own folder of the run, named by the port that verl drew."""
    from ray._private import worker

    node: Any = worker._global_node
    return os.path.join(node.get_session_dir_path(), f"ranks-{os.environ['MASTER_PORT']}")
