"""What can be known before the first step is checked before the first step.

Each check raises UserError with value, rule and remedy. Nothing here loads torch; the model is only looked at as files.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import httpx

from reward_client.errors import JudgeFault
from sql_agent.config import ROOT, TrainConfig, database_path, resolve_path
from sql_agent.database import Database
from sql_agent.errors import UserError
from sql_agent.scorers import build_context

GPU_MODEL = "Qwen/Qwen3-0.6B"
COMPARED_ON_RESUME = ("agent", "database", "data", "reward", "model", "rollout", "optim")
# Packages that verl's trackers import; swanlab needs the second one where it writes to this machine only.
TRACKER_PACKAGES = {"wandb": ["wandb"], "swanlab": ["swanlab", "swanboard"], "tensorboard": ["tensorboard"]}
FALSY = {"0", "false", "no", "off"}
BYTES_PER_LORA_CHECKPOINT_BYTE = 2.2  # fp32 weights, frozen ones too; moments of the adapters only
BYTES_PER_CHECKPOINT_BYTE = 7  # bf16 weights on disk -> fp32 weights and two Adam moments, with some slack


def gpu_count() -> int:
    """How many NVIDIA GPUs a driver answers for; 0 without one."""
    if not shutil.which("nvidia-smi"):
        return 0
    try:
        answer = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in answer.stdout.splitlines())


def check_store_flags(config: TrainConfig, *, role: str) -> None:
    """The store address and AGL_MANAGED_STORE must tell the same story."""
    managed = os.environ.get("AGL_MANAGED_STORE", "1").strip().lower() not in FALSY
    address = config.store.external_address
    if address and managed:
        raise UserError(
            f"--external-store-address {address}: agent-lightning would start a store of its own beside it. "
            "Set AGL_MANAGED_STORE=0 in front of the command"
        )
    if not managed and not address:
        raise UserError(
            "AGL_MANAGED_STORE=0: no store is managed, and none is named. Start one with "
            "`agl store --host 127.0.0.1 --port 9999` and add --external-store-address http://localhost:9999, "
            "or unset AGL_MANAGED_STORE"
        )
    if address and config.store.mongo_uri:
        raise UserError(
            "--mongo-uri and --external-store-address exclude each other: give MongoDB to `agl store` instead"
        )
    if role not in ("both", "algorithm", "runner"):
        raise UserError(f"AGL_CURRENT_ROLE={role}: must be algorithm, runner or both")


def check_store(address: str) -> None:
    """An external store must answer its health route within 5 seconds."""
    url = f"{address.rstrip('/')}/v1/agl/health"
    try:
        answer = httpx.get(url, timeout=5.0, trust_env=False)
        answer.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise UserError(
            f"--external-store-address {address}: no agent-lightning store answers at {url} ({type(exc).__name__}). "
            "Start one with `agl store --host 127.0.0.1 --port 9999`, or correct the address"
        ) from exc


def model_folder(config: TrainConfig, *, tiny: bool) -> Path:
    """The absolute folder of the policy, built (tiny policy) or downloaded (hub name) where needed.

    verl takes a relative or missing path for a hub name and dies in a worker, so only absolute folders go further.
    """
    if tiny:
        from sql_agent.tiny_policy.build import ensure_tiny_policy

        return ensure_tiny_policy(config.trainer.seed)
    text = config.model.path or GPU_MODEL
    path = resolve_path(text, ROOT / "sql_agent", ROOT)
    if not path.exists():
        path = _download(text)
    check_model_folder(path, allow_remote_code=config.model.allow_remote_code)
    return path


def _download(name: str) -> Path:
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise UserError(
            f"--model {name}: no such folder, and not a hub name like Qwen/Qwen3-0.6B. Give the folder that holds "
            "config.json"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError, ValueError) as exc:
        raise UserError(
            f"--model {name}: neither a local folder nor to be had from the hub ({type(exc).__name__}). Check the "
            "spelling and the network, or download it elsewhere and give the folder"
        ) from exc


def check_model_folder(path: Path, *, allow_remote_code: bool) -> None:
    """A folder with config.json, weights, a tokenizer and a chat template; no code of its own unless allowed."""
    config = _read_json(path / "config.json", path)
    if "auto_map" in config and not allow_remote_code:
        raise UserError(
            f"--model {path}: config.json has auto_map, so loading it would run code from that folder. If you trust "
            "it: --set model.allow_remote_code=true"
        )
    if not any(path.glob("*.safetensors")) and not allow_remote_code:
        raise UserError(
            f"--model {path}: no *.safetensors there (pickled weights can run code). Convert the model first"
        )
    tokenizer = _read_json(path / "tokenizer_config.json", path)
    if "chat_template" not in tokenizer and not (path / "chat_template.jinja").is_file():
        raise UserError(f"--model {path}: the tokenizer has no chat template; use an instruct model")


def _read_json(file: Path, folder: Path) -> dict[str, object]:
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        raise UserError(f"--model {folder}: {file.name} is missing; give the folder of a Hugging Face model") from exc
    except (OSError, ValueError) as exc:
        raise UserError(f"--model {folder}: {file.name} cannot be read ({exc})") from exc
    if not isinstance(tree, dict):
        raise UserError(f"--model {folder}: {file.name} must hold a JSON object")
    return tree


def check_disk(runs_dir: Path, model: Path, *, keep: int, saves: bool, lora: bool = False) -> None:
    """The run folder can be written, and the checkpoints to keep fit on its disk."""
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
        probe = runs_dir / ".write-test"
        probe.write_text("", encoding="utf-8")
        probe.unlink()
    except OSError as exc:
        raise UserError(f"trainer.runs_dir = {runs_dir}: cannot be written ({exc}). Choose another folder") from exc
    weights = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    factor = BYTES_PER_LORA_CHECKPOINT_BYTE if lora else BYTES_PER_CHECKPOINT_BYTE
    need = int(weights * factor * (keep + 1)) if saves else 0
    free = shutil.disk_usage(runs_dir).free
    if free < need:
        raise UserError(
            f"trainer.runs_dir = {runs_dir}: {free / 2**30:.0f} GiB free, but {keep} checkpoints and one in the making "
            f"need about {need / 2**30:.0f} GiB. Free space, or choose another runs_dir"
        )


def check_database(config: TrainConfig) -> None:
    """The database answers, with the configured tables."""
    with Database(config.database, database_path(config.database)) as database:
        database.check()


def check_judge(config: TrainConfig) -> str:
    """The judge's name for people; an LLM judge and a reward model are asked once, so that what is wrong shows now."""
    context = build_context(config.reward, config.database)
    if context.llm is not None:
        try:
            asyncio.run(context.llm.preflight())
        except JudgeFault as exc:
            raise UserError(f"judge: {exc}") from exc
    if context.reward_model is not None:
        try:
            # During a run a server that starts again is waited for; one that is not there before it is an error now.
            client = dataclasses.replace(context.reward_model, waits_for_server=False)
            asyncio.run(client.score(prompt="1 + 1 = ?", response="2", reference="2"))
        except JudgeFault as exc:
            raise UserError(f"reward model (unset REWARD_MODEL_URL to go without): {exc}") from exc
    return context.judge_name


def check_trackers(trackers: Iterable[str]) -> None:
    """The packages of the chosen trackers are installed: verl imports them in a worker, minutes later."""
    for tracker in trackers:
        for package in TRACKER_PACKAGES.get(tracker, []):
            if importlib.util.find_spec(package) is None:
                raise UserError(
                    f"logging.trackers has {tracker!r}, but its package {package} is not installed. Run `make setup`, "
                    "or choose others: --set 'logging.trackers=[\"console\"]'"
                )


def check_devices(config: TrainConfig) -> None:
    """The configured GPUs exist and divide."""
    trainer, rollout = config.trainer, config.rollout
    if trainer.device == "cpu" and trainer.n_gpus > 1:
        raise UserError(f"--n-gpus {trainer.n_gpus}: on a CPU there is one pretended GPU; leave it at 1")
    if trainer.device == "cuda" and gpu_count() < trainer.n_gpus and not os.environ.get("RAY_ADDRESS"):
        raise UserError(
            f"--n-gpus {trainer.n_gpus}: the driver shows {gpu_count()} GPU(s). Lower --n-gpus, use --set "
            "trainer.device=cpu, or name a Ray cluster in RAY_ADDRESS"
        )
    if trainer.n_gpus % rollout.tensor_parallel:
        raise UserError(f"rollout.tensor_parallel = {rollout.tensor_parallel} must divide --n-gpus {trainer.n_gpus}")


def find_checkpoint(config: TrainConfig, runs_dir: Path) -> Path:
    """The complete global_step_N folder that `trainer.resume` means. Raises UserError.

    Checkpoints are loaded with pickle, so only folders of this project's runs count; and a checkpoint that was cut off
    while being saved does not (verl notes the last complete one in latest_checkpointed_iteration.txt).
    """
    resume = config.trainer.resume
    path = runs_dir if resume == "latest" else resolve_path(resume, runs_dir)
    return own_checkpoint(path, asked=f"--resume_checkpoint {resume}")


def own_checkpoint(path: Path, *, asked: str) -> Path:
    """The newest complete checkpoint at or below `path`, of a run of this project. Raises UserError naming `asked`."""
    steps = [path] if path.name.startswith("global_step_") else list(path.glob("**/global_step_*"))
    complete = [step for step in steps if (step / "actor").is_dir() and _is_complete(step)]
    if not complete:
        raise UserError(
            f"{asked}: no complete global_step_N folder below {path}. Name a run that saved one (trainer.save_every)"
        )
    own = [step for step in complete if (step.parent.parent / "config.json").is_file()]
    if not own:
        raise UserError(
            f"{asked}: {complete[-1].parent.parent} is no run folder of this project (config.json "
            "is missing). Checkpoints are loaded with pickle, so only own runs are resumed"
        )
    return max(own, key=lambda step: (_note(step).stat().st_mtime, _step_number(step))).resolve()


def _note(step: Path) -> Path:
    return step.parent / "latest_checkpointed_iteration.txt"


def _step_number(step: Path) -> int:
    text = step.name.rpartition("_")[2]
    return int(text) if text.isdigit() else -1


def _is_complete(step: Path) -> bool:
    """True for a numbered step that is not newer than the last one that verl finished."""
    last = _note(step).read_text(encoding="utf-8").strip() if _note(step).is_file() else ""
    return 0 <= _step_number(step) <= (int(last) if last.isdigit() else -1)


def check_resume(config: TrainConfig, checkpoint: Path, *, steps: int) -> None:
    """The old run must fit the new one: same settings where they matter, and steps left to do. Raises UserError."""
    done = _step_number(checkpoint)
    if done >= steps:
        raise UserError(
            f"--resume_checkpoint {checkpoint}: step {done} is done, and the run has {steps}. Raise "
            "trainer.max_steps or trainer.epochs"
        )
    old = json.loads((checkpoint.parent.parent / "config.json").read_text(encoding="utf-8"))
    new = config.model_dump(mode="json")
    changed = [
        f"  {section}.{key}: {old.get(section, {}).get(key)!r} -> {value!r}"
        for section in COMPARED_ON_RESUME
        for key, value in new[section].items()
        if old.get(section, {}).get(key) != value
    ]
    if changed and not config.trainer.resume_changed:
        raise UserError(
            f"--resume_checkpoint {checkpoint}: this run differs from the one it continues:\n"
            + "\n".join(changed)
            + "\nGive the old settings, or add --set trainer.resume_changed=true"
        )


def check_adapter(config: TrainConfig) -> None:
    """A LoRA adapter to continue from is a folder with adapter_config.json, and comes with a rank. Raises UserError."""
    text = config.model.lora_adapter_path
    if not text:
        return
    if not (Path(text).expanduser() / "adapter_config.json").is_file():
        raise UserError(f"--lora-adapter-path {text}: no adapter_config.json there; give the folder of a PEFT adapter")
    if not config.model.lora_rank:
        raise UserError("model.lora_adapter_path needs model.lora_rank > 0: add --lora")
