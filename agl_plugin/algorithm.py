"""GRPO as an agent-lightning algorithm: Ray's start, and in a task of it the trainer's loop on verl's workers.

Runs on GPUs as verl does, and on a CPU as agl_plugin.cpu.platform. verl is not imported in the starting process. On a
CPU, where what four processes import is half of the time to the first rollout, Ray's workers and vLLM's engine are
forked from one process that has imported it. For several machines Ray runs on them first (restart_ray.sh), and is found
by RAY_ADDRESS; loop, gateway and store stay on the machine that starts the run.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agentlightning as agl
import psutil
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from agl_plugin.options import DaemonOptions, TrainerOptions
from agl_plugin.update.composed import verl_config
from foundation.ends_with import ends_with_this
from foundation.environment import COMMON_ENV, CPU_ENV, FIXED_ENV, PATCH_ENV, TRACKER_ENV
from foundation.errors import RunError
from foundation.versions import versions

LOST_WITHIN_S = 20.0
PASSED_ON = (*COMMON_ENV, *FIXED_ENV, *CPU_ENV, *PATCH_ENV, *TRACKER_ENV, "HF_HUB_OFFLINE", "NO_PROXY")


def start_ray(*, cpu: bool, n_nodes: int, n_gpus: int, without_litellm: bool, python: Path | None) -> None:
    """Ray for a run, which leaves nothing behind where the run is killed. Raises RunError: see `_start`."""
    this = psutil.Process()
    before = set(this.children(recursive=True))
    _start(cpu=cpu, n_gpus=n_gpus, without_litellm=without_litellm, python=python)
    ends_with_this(process.pid for process in this.children(recursive=True) if process not in before)
    check_nodes(ray.nodes(), n_nodes=n_nodes, n_gpus=n_gpus)


def check_nodes(nodes: list[dict[str, Any]], *, n_nodes: int, n_gpus: int) -> None:
    """So many of Ray's machines have so many GPUs. Raises RunError, which says what each has."""
    alive = [node for node in nodes if node["Alive"]]
    gpus_at = {node["NodeManagerAddress"]: int(node["Resources"].get("GPU", 0)) for node in alive}
    if sum(n >= n_gpus for n in gpus_at.values()) < n_nodes:
        present = ", ".join(f"{n} GPU(s) at {address}" for address, n in gpus_at.items())
        raise RunError(
            f"trainer.n_nodes = {n_nodes}, trainer.n_gpus = {n_gpus}: Ray has {present}. Lower these keys, or start "
            "Ray on the other machines (`bash restart_ray.sh`) after checking `nvidia-smi` and CUDA_VISIBLE_DEVICES "
            "there"
        )


def lost_nodes(*, within_s: float) -> list[str]:
    """Addresses of Ray's machines that are gone. Other ranks may fail seconds before Ray knows why."""
    deadline = time.monotonic() + within_s
    while True:
        nodes = ray.nodes()
        alive = {node["NodeManagerAddress"] for node in nodes if node["Alive"]}
        lost = {node["NodeManagerAddress"] for node in nodes} - alive
        if lost or time.monotonic() > deadline:
            return sorted(lost)
        time.sleep(0.5)


def _start(*, cpu: bool, n_gpus: int, without_litellm: bool, python: Path | None) -> None:
    """Connect to the running Ray (at RAY_ADDRESS, or on GPUs this machine's), or start one on the loopback interface
    with a pretended GPU (CPU).

    `without_litellm` spares its workers the import of LiteLLM (agl_plugin.patches.replacements); `python` runs them.
    """
    # Ray would run its workers, which are the training, at the lowest priority but four.
    os.environ.setdefault("RAY_worker_niceness", "0")
    passed_on = {k: os.environ[k] for k in PASSED_ON if k in os.environ}
    runtime_env: dict[str, Any] = {"env_vars": passed_on}
    if python:
        runtime_env["py_executable"] = str(python)
    if without_litellm:
        runtime_env["worker_process_setup_hook"] = "agl_plugin.patches.install.install_at_start"
    if not cpu or os.environ.get("RAY_ADDRESS"):
        ray.init(runtime_env=runtime_env, include_dashboard=False)
        return
    # Ray would start 16 idle worker processes, 1 s of CPU each, for the 16 CPUs that verl's actors reserve.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    os.environ.setdefault("RAY_enable_worker_prestart", "0")
    ray.init(
        address="local",
        runtime_env=runtime_env,
        num_gpus=n_gpus,
        num_cpus=16,
        _node_ip_address="127.0.0.1",
        object_store_memory=512 * 2**20,
        include_dashboard=False,
    )


@dataclass(frozen=True)
class Job:
    """What is trained, and how. `verl` are the overrides of verl's configuration; no key is checked here. With `audit`
    the run keeps an audit.db."""

    verl: dict[str, Any]
    run_dir: Path
    daemon: DaemonOptions
    trainer: TrainerOptions
    audit: bool


def train(job: Job, *, store: Any, questions: list[Any], held_out: list[Any]) -> None:
    from omegaconf import OmegaConf

    from agl_plugin.audit.log import AuditLog
    from agl_plugin.run.workers import AGAIN, Workers
    from agl_plugin.trainer import GrpoTrainer

    config = verl_config(job.verl)
    OmegaConf.resolve(config)
    settings = {"verl": job.verl, "versions": versions()} | job.trainer.audit_settings
    if job.daemon.async_groups:
        settings["max_staleness"] = job.daemon.max_staleness
    with AuditLog(job.run_dir, settings=settings) if job.audit else nullcontext() as log:
        run = GrpoTrainer(
            config,
            workers=Workers(config, teacher=job.trainer.update.teacher),
            daemon=daemon_of(job, config, store=store, log=log),
            train=questions,
            val=held_out,
            run_dir=job.run_dir,
            options=job.trainer,
            audit=log,
        )
        try:
            run.fit()
        except RayError as exc:
            gone = lost_nodes(within_s=LOST_WITHIN_S if config.trainer.nnodes > 1 else 0.0)
            if not gone and not isinstance(exc, RayActorError):
                raise
            what = f"Ray has lost {', '.join(gone)}" if gone else "all machines are there; look for a lack of memory"
            raise RunError(f"a process of the update or a model server is gone: {what}. {AGAIN}") from exc


def daemon_of(job: Job, config: Any, *, store: Any, log: Any) -> Any:
    """The daemon of a run; `config` is verl's, resolved."""
    from verl.utils.tokenizer import hf_tokenizer

    from agl_plugin.daemon import GrpoDaemon

    rollout, model = config.actor_rollout_ref.rollout, config.actor_rollout_ref.model
    return GrpoDaemon(
        store=store,
        model=model.path,
        group_size=rollout.n,
        temperature=rollout.temperature,
        pad_token_id=hf_tokenizer(model.path, trust_remote_code=model.trust_remote_code).pad_token_id,
        merge=config.agentlightning.trace_aggregator.level == "trajectory",
        run_dir=job.run_dir,
        options=job.daemon,
        audit=log,
    )


def what_broke(error: RayError) -> Exception:
    """The RunError that a worker raised, else what it raised first, without Ray's tracebacks around it."""
    if not isinstance(error, RayTaskError):
        what = f"a process of Ray itself, or the run's own, is gone ({type(error).__name__})"
        return RunError(f"{what}: look for a lack of memory. The step is lost; continue with --resume")
    links: list[Any] = [error]
    while link := getattr(links[-1], "cause", None) or getattr(links[-1], "__cause__", None):
        links.append(link)
    raised = [link for link in links if isinstance(link, Exception) and not isinstance(link, RayTaskError)]
    to_tell = [link for link in raised if isinstance(link, RunError)]
    return (to_tell or raised or [error])[0]


class Grpo(agl.Algorithm):
    """GRPO through verl.

    `python` runs Ray's workers. `run` raises RunError where the text alone tells the user what to do.
    """

    def __init__(self, job: Job, *, cpu: bool, python: Path | None = None) -> None:
        super().__init__()
        self.job, self.cpu, self.python = job, cpu, python

    def run(self, train_dataset: Any = None, val_dataset: Any = None) -> None:
        on_sigterm = signal.getsignal(signal.SIGTERM)
        start_ray(
            cpu=self.cpu,
            n_nodes=self.job.verl["trainer"]["nnodes"],
            n_gpus=self.job.verl["trainer"]["n_gpus_per_node"],
            without_litellm=self.job.daemon.proxy == "gateway",
            python=self.python,
        )
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_sigterm)  # Ray's own handler would end the process without a summary
        try:
            here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
            task: Any = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy=here)(train)  # pyright: ignore
            store = self.get_store()
            ray.get(task.remote(self.job, store=store, questions=train_dataset, held_out=val_dataset))
        except RayError as exc:
            raise what_broke(exc) from exc
        finally:
            ray.shutdown()
