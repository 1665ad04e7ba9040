"""Try an import in a process of its own, so that a crash or a hang is a finding and not the end of the diagnosis.

Guarantees: a probe ends within its time limit together with all processes that it started; what its error text means
is said in words. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

IN_CHECKOUT = Path(__file__).with_name("setup.sh").is_file()
SETUP = "run `bash utils/setup.sh`" if IN_CHECKOUT else "install the release's requirements-cpu.txt or -gpu.txt again"
MARK = "@@facts "  # what is imported may print; the line with this mark is ours

# What each probe imports, in a process of its own. A probe is run when its distribution is installed.
PROBES = {
    "torch": (
        "import torch; c = torch.cuda; f = dict(cuda=torch.version.cuda, available=c.is_available(), "
        "gpus=c.device_count(), cpu=torch.backends.cpu.get_cpu_capability())"
    ),
    # Its compiled part has another name in the build for GPUs; of those for CPUs vLLM takes the one for this CPU.
    "vllm": "import torch, vllm; from importlib import import_module, util; gpu = 'vllm._C_stable_libtorch'; "
    "from vllm.platforms import current_platform as here; "
    "import_module(gpu) if util.find_spec(gpu) else here.import_kernels() or torch.ops._C.silu_and_mul; "
    "f = dict(version=vllm.__version__)",
    # As a run loads it: verl asks for the distribution `vllm`, and that of CPUs has another name.
    "verl": "from agl_plugin.patches.install import install; install('cpu', 'worker'); "
    "import verl.workers.rollout.vllm_rollout; f = {}",
    "flash-attn": "import flash_attn, flash_attn_2_cuda; f = {}",
    "agentlightning": "import agentlightning, agents; f = {}",
    "omegaconf": "from omegaconf import OmegaConf as O; f = dict(two=O.create({'a': 2, 'b': '${a}'}).b)",
}
# Signs in an import's error, and what they mean. The first match counts.
SIGNS = [
    (r"undefined symbol", f"compiled for another version of torch than the one installed: {SETUP}"),
    (r"libcuda\.so", f"the NVIDIA driver's library is not there: install the driver; for a CPU machine {SETUP}"),
    (
        r"lib(cu[a-z]+|nccl|nvrtc|nvJitLink)[\w.-]*\.so",
        f"a CUDA library is missing: unset LD_LIBRARY_PATH, then {SETUP}",
    ),
    (r"GLIBC(XX)?_[\d.]+' not found", "this Linux is too old for the wheel: use a newer system or container image"),
    (r"driver .*(too old|insufficient)", "the NVIDIA driver is too old for torch's CUDA: update the driver"),
    (r"numpy\.(dtype|ndarray) size changed|compiled using NumPy 1", f"compiled for another numpy: {SETUP}"),
    (r"No module named '?([\w.]+)", f"an import is missing: {SETUP}"),
]


@dataclass(frozen=True)
class Outcome:
    """What a probe found: facts, or why the import failed. `last_line` is the end of stderr in both cases."""

    facts: dict[str, Any] = field(default_factory=dict)
    failure: str = ""
    last_line: str = ""


def run(command: list[str], limit_s: float) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command; the status is -999 past `limit_s` seconds.

    Its whole process group ends with it. Raises OSError where the command cannot be started.
    """
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        encoding="utf-8",
        errors="replace",
    )
    try:
        out, err = child.communicate(timeout=limit_s)
        return child.returncode, out, err
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
        return -999, out, err


def probe(code: str, limit_s: float) -> Outcome:
    """Run an import in a process of its own and say how it went."""
    script = f"{code}; import json; print({MARK!r} + json.dumps(f))"
    status, out, err = run([sys.executable, "-c", script], limit_s)
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    last = lines[-1][:300] if lines else ""
    for line in out.splitlines():
        if status == 0 and line.startswith(MARK):
            return Outcome(json.loads(line[len(MARK) :]), last_line=last)
    if status == -999:
        return Outcome(failure=f"the import did not end within {limit_s:.0f} s: try it by hand: {code}", last_line=last)
    if status < 0:
        name = signal.Signals(-status).name
        why = "this CPU lacks an instruction that the wheel uses" if name == "SIGILL" else f"broken wheel: {SETUP}"
        return Outcome(failure=f"the import crashed with {name}: {why}", last_line=last)
    return Outcome(failure=f"{meaning(err)} ({last})", last_line=last)


def meaning(error: str) -> str:
    """What an import's error text means and what helps."""
    return next((text for sign, text in SIGNS if re.search(sign, error)), f"the import failed: {SETUP}")
