"""What the processes of a run with verl and vLLM import, for foundation.preloaded: once, on a machine without a GPU.

CUDA would not survive the fork where an import asks for its devices.
"""

from __future__ import annotations

import importlib
import os

from agl_plugin.patches.install import install

install("start")
for _name in (
    *("agl_plugin.audit.log", "agl_plugin.daemon", "agl_plugin.run.workers", "agl_plugin.trainer"),
    *("agl_plugin.update.worker", "verl.utils.tokenizer", "verl.workers.rollout.vllm_rollout.vllm_async_server"),
    *("vllm.v1.engine.core", "vllm.v1.worker.cpu_worker"),
):
    importlib.import_module(_name)


def begin() -> None:
    """What Ray and torch take from the environment as they are loaded, of the environment of now."""
    import torch
    from ray._raylet import Config  # pyright: ignore[reportAttributeAccessIssue]

    Config.initialize("")
    if (n_threads := os.environ.get("OMP_NUM_THREADS", "")).isdigit():
        torch.set_num_threads(int(n_threads))
