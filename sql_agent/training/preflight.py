"""What can be known before the first step is checked before the first step.

Each check raises UserError with value, rule and remedy. Nothing here loads torch; the model is only looked at as files.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agl_plugin.patches.install import wrong_versions
from foundation import run_folder
from foundation.errors import UserError
from foundation.files import size_text
from foundation.gpus import gpu_count
from foundation.net import bind, free_port
from foundation.store_token import check_host
from foundation.weights import damage_in
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import (
    ROOT,
    AgentTree,
    ModelConfig,
    RolloutConfig,
    StoreConfig,
    TrainConfig,
    TrainerConfig,
    flatten,
)
from sql_agent.config.losses import is_own
from sql_agent.serving.checkpoints import find_checkpoint, run_config
from sql_agent.serving.models import AGAIN, language_model
from sql_agent.training.verl_config import loss_name

COMPARED_ON_RESUME = (
    *("agent", "agents", "database", "data", "reward", "model", "rollout", "optim", "verl"),
    "trainer.seed",
)
# Packages that verl's trackers import; swanlab needs the second one where it writes to this machine only.
TRACKER_PACKAGES = {"wandb": ["wandb"], "swanlab": ["swanlab", "swanboard"], "tensorboard": ["tensorboard"]}
BYTES_PER_LORA_CHECKPOINT_BYTE = 2.2  # fp32 weights, frozen ones too; moments of the adapters only
BYTES_PER_CHECKPOINT_BYTE = 7  # bf16 weights on disk -> fp32 weights and two Adam moments, with some slack
LOSS_LIMIT_S = 300.0  # importing torch takes seconds, minutes beside busy processes


def check_role(role: str) -> None:
    if role not in ("both", "algorithm", "runner"):
        raise UserError(f"AGL_CURRENT_ROLE={role}: must be algorithm, runner or both")


def check_installed(packages: Iterable[str], *, extra: str) -> None:
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        raise UserError(
            f"{', '.join(missing)}: not installed, and this command trains with them. In a checkout run `make setup`; "
            f"an installed package needs agentgrpo[{extra}], as docs/55-python-api.md says"
        )


def check_disk(trainer: TrainerConfig, model: Path, *, lora: bool) -> None:
    """The run folder can be written, and the checkpoints to keep fit on its disk."""
    runs_dir = trainer.runs
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
        probe = runs_dir / ".write-test"
        probe.write_text("", encoding="utf-8")
        probe.unlink()
    except OSError as exc:
        raise UserError(f"trainer.runs_dir = {runs_dir}: cannot be written ({exc}). Choose another folder") from exc
    weights = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    need = int(checkpoint_bytes(trainer, weights, lora=lora))
    free = shutil.disk_usage(runs_dir).free
    if free < need:
        raise UserError(
            f"trainer.runs_dir = {runs_dir}: {size_text(free)} free, but {trainer.keep_checkpoints} checkpoints, the "
            f"best and another need about {size_text(need)}. Free space, or choose another runs_dir"
        )


def checkpoint_bytes(trainer: TrainerConfig, weights: float, *, lora: bool) -> float:
    """What the checkpoints to keep, the best and another take, by the bytes of the model's weights."""
    factor = BYTES_PER_LORA_CHECKPOINT_BYTE if lora else BYTES_PER_CHECKPOINT_BYTE
    return weights * factor * (trainer.keep_checkpoints + 2) if trainer.save_every > 0 else 0


def check_store_port(store: StoreConfig, *, role: str) -> None:
    """The store that this run is to serve can listen: what starts it would name neither host, port nor remedy."""
    chosen = store.port_in(role)
    port = os.environ.get("AGL_SERVER_PORT", "")
    if store.external_address or role == "runner":
        return
    host = os.environ.get("AGL_SERVER_HOST", "localhost")
    check_host(host, "AGL_SERVER_HOST")
    place = "127.0.0.1" if host == "localhost" else host
    try:
        bind(place, 0).close()
    except UserError:
        raise UserError(f"AGL_SERVER_HOST = {host}: no address of this machine; leave it out, or give one") from None
    if not (port or chosen):
        return
    set_by, port = ("AGL_SERVER_PORT", port) if port else ("store.port", str(chosen))
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(f"{set_by} = {port!r}: not a port; give a number from 1 to 65535")
    try:
        bind(place, int(port)).close()
    except UserError:
        raise UserError(
            f"{set_by} = {port}: the run's own store cannot listen on {host}:{port}. "
            f"Stop what uses the port, or choose another: {set_by}={free_port()} is free"
        ) from None


def check_agent(config: AgentTree) -> None:
    """The tools can be used, the database answers with the configured tables, and the system prompt is there."""
    with EpisodeRunner(config) as runner:
        runner.check()


def check_packages() -> None:
    """The packages that this project changes parts of have the versions that the changes were written for."""
    if wrong := wrong_versions():
        raise UserError(wrong)


def check_trackers(trackers: Iterable[str]) -> None:
    """The packages of the chosen trackers are installed: verl imports them in a worker, minutes later."""
    for tracker in trackers:
        for package in TRACKER_PACKAGES.get(tracker, []):
            if importlib.util.find_spec(package) is None:
                raise UserError(
                    f"logging.trackers has {tracker!r}, but its package {package} is not installed. Run `make setup`, "
                    "or choose others: --set 'logging.trackers=[\"console\"]'"
                )


def check_devices(trainer: TrainerConfig, rollout: RolloutConfig) -> None:
    if trainer.device == "cpu" and trainer.n_gpus > 1:
        raise UserError(f"--n-gpus {trainer.n_gpus}: on a CPU there is one pretended GPU; leave it at 1")
    if trainer.n_nodes > 1 and not os.environ.get("RAY_ADDRESS"):
        raise UserError(
            f"trainer.n_nodes = {trainer.n_nodes}: RAY_ADDRESS names no Ray. Start one on these machines with "
            "`bash restart_ray.sh` (docs/70-scale.md), or leave it at 1"
        )
    if trainer.device == "cuda" and gpu_count() < trainer.n_gpus and not os.environ.get("RAY_ADDRESS"):
        raise UserError(
            f"--n-gpus {trainer.n_gpus}: the driver shows {gpu_count()} GPU(s). "
            f"{'Lower --n-gpus, use' if gpu_count() else 'There is no GPU to train on: use'} --set "
            "trainer.device=cpu with a CPU recipe (smoke_cpu), or name a Ray cluster in RAY_ADDRESS"
        )
    check_parallel(trainer, rollout)


def check_parallel(trainer: TrainerConfig, rollout: RolloutConfig, folder: Path | None = None) -> None:
    """Engines, and groups of GPUs that share rows, divide the GPUs, and the heads of a model that is in `folder`."""
    n_gpus = trainer.n_gpus
    n_heads = language_model(folder).get("num_attention_heads", 0) if folder else 0
    sizes = {
        "rollout.tensor_parallel": rollout.tensor_parallel,
        "trainer.sequence_parallel": trainer.sequence_parallel,
    }
    for key, size in sizes.items():
        if n_gpus % size:
            raise UserError(f"{key} = {size} must divide --n-gpus {n_gpus}")
        if n_heads % size:
            raise UserError(f"{key} = {size} must divide the {n_heads} attention heads of {folder}")


def _compared(tree: dict[str, Any], sections: Iterable[str], free: Iterable[str]) -> dict[str, Any]:
    """The dotted keys that a resumed run must share."""
    starts = tuple(f"{section}." for section in sections)
    flat = flatten(tree).items()
    return {key: value for key, value in flat if f"{key}.".startswith(starts) and value != {} and key not in free}


def resumed(config: TrainConfig, *, steps: int) -> TrainConfig:
    """The configuration with the checkpoint that a run goes on from; as it is for a new run. Raises UserError."""
    if not config.trainer.resume:
        return config
    checkpoint = find_checkpoint(config.trainer, method=config.method)
    check_resume(config, checkpoint, steps=steps)
    return config.but(trainer={"resume": str(checkpoint)})


def check_resume(
    config: TrainConfig,
    checkpoint: Path,
    *,
    steps: int,
    compared: Iterable[str] = COMPARED_ON_RESUME,
    free: Iterable[str] = (),
) -> None:
    """The old run must fit the new one: same settings where they matter, and steps left to do. Raises UserError.

    `compared` are the sections and keys that matter, and `free` the keys in them that do not.
    """
    done = run_folder.step_number(checkpoint)
    if done >= steps:
        raise UserError(
            f"--resume {checkpoint}: step {done} is done, and the run has {steps}. Raise "
            "trainer.max_steps or trainer.epochs"
        )
    trees = (run_config(checkpoint), config.model_dump(mode="json"))
    old, new = (_compared(tree, compared, free) for tree in trees)
    # A key of verl may also have been taken back; the others are always there.
    keys = [*new, *(key for key in old if key.startswith("verl.") and key not in new)]
    changed = [f"  {key}: {old.get(key)!r} -> {new.get(key)!r}" for key in keys if old.get(key) != new.get(key)]
    if changed and not config.trainer.resume_changed:
        raise UserError(
            f"--resume {checkpoint}: this run differs from the one it continues:\n"
            + "\n".join(changed)
            + "\nGive the old settings, or add --set trainer.resume_changed=true"
        )


def check_loss(loss: str) -> None:
    """A loss of the user gives what a loss must, tried out in a process of its own (it needs torch). UserError."""
    if not is_own(loss):
        return
    command = [sys.executable, "-m", "agl_plugin.update.losses", loss_name(loss)]
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), *sys.path]))}
    env = {**os.environ, **paths}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LOSS_LIMIT_S)
    except subprocess.TimeoutExpired as exc:
        raise UserError(
            f"optim.loss = {loss!r}: did not end within {LOSS_LIMIT_S:g} s on two rows of numbers. Its module must not "
            "wait for anything when it is imported, nor the function when it is called"
        ) from exc
    _, is_answered, problem = done.stdout.rpartition("problem of the loss:")
    problem = problem.strip() if is_answered else f"ends the process that tries it: {done.stderr[-500:]}"
    if problem:
        raise UserError(f"optim.loss = {loss!r}: {problem}. docs/15-training.md has an example")


def check_adapter(model: ModelConfig) -> None:
    """A LoRA adapter to continue from is a folder with adapter_config.json, and comes with a rank. Raises UserError."""
    text = model.lora_adapter_path
    if not text:
        return
    folder = Path(text).expanduser()
    if not (folder / "adapter_config.json").is_file():
        raise UserError(f"--lora-adapter-path {text}: no adapter_config.json there; give the folder of a PEFT adapter")
    if why := damage_in(folder):
        raise UserError(f"--lora-adapter-path {text}: {why}. {AGAIN}")
    if not model.lora_rank:
        raise UserError("model.lora_adapter_path needs model.lora_rank > 0: add --lora")
