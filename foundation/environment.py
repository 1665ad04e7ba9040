"""What the stack reads from the environment, set before it is imported.

A value that the user set stays. Light to import: none of the stack is loaded here.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

# Where runs, caches and .env are: the checkout; of an installed package, the folder that a program runs in.
_CHECKOUT = Path(__file__).resolve().parents[1]
HOME = _CHECKOUT if (_CHECKOUT / "pyproject.toml").is_file() else Path.cwd()

# Environment variables that verl, vLLM and Ray read in their own processes; all are passed on to Ray's workers.
COMMON_ENV = {
    "VLLM_NO_USAGE_STATS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    # Ray asks for a token by itself only where it starts, or finds, a cluster of this machine: not at RAY_ADDRESS.
    "RAY_AUTH_MODE": "token",
    # Ray would turn 127.0.0.1 into the machine's address and listen on all of them; without clusters it stays there.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    # LiteLLM would keep idle connections for 120 s; vLLM's server closes them after 5 s, and a call on a closed one
    # fails.
    "AIOHTTP_KEEPALIVE_TIMEOUT": "2",
    # uvloop's io_uring makes a kernel thread that polls: a quarter of the CPU of LiteLLM's proxy.
    "UV_USE_IO_URING": "0",
    "NCCL_DEBUG": "WARN",
    "VLLM_LOGGING_LEVEL": "WARN",
    "HYDRA_FULL_ERROR": "1",
}
# What no value of the user's may change. vLLM would hold the tool calls of strict tools to a grammar: tokens that the
# policy did not choose, with probabilities that are not its own, in training and where it is measured.
FIXED_ENV = {"VLLM_ENFORCE_STRICT_TOOL_CALLING": "0"}
# The name of agl_plugin.cpu.platform among verl's platforms.
CPU_PLATFORM = "agentgrpo_cpu"
CPU_ENV = {
    "AGENTGRPO_CPU": "1",
    "VERL_PLATFORM": CPU_PLATFORM,
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": str(max(1, min(8, os.cpu_count() or 1))),
    # Else torch's threads spin while they wait for each other, and take the cores from those they wait for.
    "OMP_WAIT_POLICY": "PASSIVE",
    # Else verl's thread gets a part of the heap of its own, from which large blocks go back to the system at once.
    "MALLOC_ARENA_MAX": "1",
    # vLLM would compile one small function of its sampler, for seconds, at the first step.
    "TORCH_COMPILE_DISABLE": "1",
}

# verl loads this module in each of its processes.
VERL_HOOK = "agl_plugin.patches.verl_hook"
# What says which patches are made there; passed on to Ray's workers.
PATCH_ENV = ("VERL_USE_EXTERNAL_MODULES", "AGENTGRPO_LORA")

# Where the trackers write, below the run folder.
TRACKER_FOLDERS = {"WANDB_DIR": ".", "SWANLAB_LOG_DIR": "swanlog", "TENSORBOARD_DIR": "tensorboard"}
# What the trackers read; passed on to Ray's workers. Keys are not: they would show in Ray's own metadata.
TRACKER_ENV = ("WANDB_MODE", "SWANLAB_MODE", *TRACKER_FOLDERS)


def prepare_environment(*, cpu: bool, offline: bool, lora: bool = False) -> None:
    """Set what the stack reads from the environment; a value that the user set stays.

    Call it before agentlightning, verl, vllm, litellm or ray is imported. `offline` forbids hub look-ups (a local model
    folder); `lora` makes vLLM sample with the adapter. This project's changes of verl (VERL_HOOK) are always loaded.
    """
    for name, value in {**COMMON_ENV, **(CPU_ENV if cpu else {})}.items():
        os.environ.setdefault(name, value)
    os.environ.update(FIXED_ENV)
    # agentlightning imports its own deprecated module.
    warnings.filterwarnings("ignore", "agentlightning.reward is deprecated", UserWarning)
    modules = [m for m in os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",") if m]
    os.environ["VERL_USE_EXTERNAL_MODULES"] = ",".join(dict.fromkeys([*modules, VERL_HOOK]))
    os.environ["AGENTGRPO_LORA"] = str(int(lora))
    if not os.environ.get("WANDB_API_KEY"):
        # Without a key wandb would ask for one on the console of a worker, and wait.
        os.environ.setdefault("WANDB_MODE", "offline")
    if not os.environ.get("SWANLAB_API_KEY"):
        os.environ.setdefault("SWANLAB_MODE", "local")
    if offline:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        # Empty is not unset: Ray then hides the pretended GPU from its workers.
        del os.environ["CUDA_VISIBLE_DEVICES"]
    local = {"127.0.0.1", "localhost"}
    for name in ("NO_PROXY", "no_proxy"):
        hosts = {h.strip() for h in os.environ.get(name, "").split(",") if h.strip()}
        os.environ[name] = ",".join(sorted(hosts | local))


def prepare_trackers(run_dir: Path) -> None:
    """Let wandb, swanlab and TensorBoard write below the run folder; a place that the user set stays."""
    for name, folder in TRACKER_FOLDERS.items():
        os.environ.setdefault(name, str((run_dir / folder).resolve()))


def end_trackers() -> None:
    """Let wandb write its end while its service lives; left to the exit of the process it finds that ended."""
    if wandb := sys.modules.get("wandb"):
        wandb.teardown()
