"""A model folder served by vLLM on 127.0.0.1, for as long as a block lasts.

Guarantees: the server has the settings of training (tool parser, float32 on a CPU); no process of it outlives the
block, nor this process, however either ends; what it prints goes to a log, which stays only when something failed.
Not covered: several servers on one GPU, LoRA adapters.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from agl_plugin.patches.install import wrong_versions
from foundation.chat_template import read_template, with_defaults
from foundation.environment import COMMON_ENV, CPU_ENV, FIXED_ENV
from foundation.errors import UserError
from foundation.gpus import on_cpu
from foundation.marks import model_marks
from foundation.net import free_port
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.config import RolloutConfig, TrainConfig
from sql_agent.errors import LLMFault
from sql_agent.serving.models import language_model

LOOK_EVERY_S = 0.2
START_TIMEOUT_S = 900.0
GRACE_S = 15.0  # vLLM's engine takes a few seconds to free a GPU
# The kernel ends the server (SIGTERM) when this process, argument 1, dies, even by SIGKILL; vLLM then ends its engine.
LAUNCH = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGTERM); "
    "os.getppid() == int(sys.argv[1]) or sys.exit('its parent is gone'); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
)
# -P: modules in the working directory (sql_agent/agent/tool.py, say) must not shadow packages.
PYTHON = [sys.executable, "-P"]
SECRET = re.compile(r"(_KEY|_TOKEN|_SECRET|PASSWORD)$")
ERROR_LINE = re.compile(r"\b\w*(Error|Exception|Exit)\b\s*:\s*\S|\berror: |Value error, ")
# Colours, and what vLLM puts in front of a line: "(EngineCore_DP0 pid=7) ERROR 11-21 07:00:00 [core.py:7] ".
COLOUR = re.compile(r"\x1b\[[\d;]*m")
PREFIX = re.compile(r"^(\(\w+ pid=\d+\)\s*)?(\w+ [\d-]+ [\d:]+ \[[^\]]*\]\s*)?")
# What vLLM's parent process says about the error of its child, which stands further up.
SECOND_HAND = ("See root cause above", "Engine core initialization failed")


def context_tokens(folder: Path, rollout: RolloutConfig) -> int:
    """Tokens of one conversation, in training and in serving: what the configuration asks for, if the model can."""
    try:
        limit = language_model(folder).get("max_position_embeddings")
    except UserError:
        return rollout.context_tokens
    return min(limit, rollout.context_tokens) if isinstance(limit, int) else rollout.context_tokens


def server_command(folder: Path, config: TrainConfig, *, name: str, port: int, cpu: bool) -> list[str]:
    """The command line of vLLM's OpenAI server."""
    rollout = config.rollout
    settings = {
        "model": folder,
        "served-model-name": name,
        "host": "127.0.0.1",
        "port": port,
        "max-model-len": context_tokens(folder, rollout),
        # As verl's server in training: what a request leaves open is off, whatever generation_config.json recommends (a
        # repetition_penalty, say), and a call without max_tokens gets so many, or what is left of the context.
        "generation-config": "vllm",
        "override-generation-config": json.dumps({"max_new_tokens": rollout.max_response_tokens}),
        "max-num-seqs": rollout.max_num_seqs,
        "tool-call-parser": rollout.tool_parser,
        "seed": config.trainer.seed,
    }
    if (kwargs := config.agent.chat_template_kwargs) and (template := read_template(folder)):
        settings["chat-template"] = with_defaults(template, kwargs)  # for whoever asks without them
    settings |= {"dtype": "float32"} if cpu else {"gpu-memory-utilization": rollout.gpu_memory_utilization}
    flags = ["--enable-auto-tool-choice", *(["--enforce-eager"] if cpu else [])]
    flags += ["--trust-remote-code"] if config.model.allow_remote_code else []
    pairs = [part for key, value in settings.items() for part in (f"--{key}", str(value))]
    return [*PYTHON, "-c", LAUNCH, str(os.getpid()), "-P", "-m", "vllm.entrypoints.openai.api_server", *pairs, *flags]


def server_environment(*, cpu: bool) -> dict[str, str]:
    """The environment of the server: ours, the stack's defaults, no secrets (one of them would lock the server)."""
    mine = {name: value for name, value in os.environ.items() if not SECRET.search(name)}
    return {**COMMON_ENV, **(CPU_ENV if cpu else {}), "HF_HUB_OFFLINE": "1", **mine, **FIXED_ENV}


@dataclass(frozen=True)
class Server:
    """A running server: its address with /v1, the model's folder and name there, its log."""

    base_url: str
    folder: Path
    model: str
    log: Path
    process: subprocess.Popen[bytes]

    def endpoint(self, *, max_tokens: int | None = None) -> LLMEndpoint:
        """Where an episode asks it."""
        return LLMEndpoint(self.base_url, self.model, max_tokens=max_tokens, marks=model_marks(self.folder))

    def why_it_died(self) -> str:
        """Empty while it runs; else its status, last error and log, for people."""
        if self.process.poll() is None:
            return ""
        return f"vLLM ended with status {self.process.returncode}: {last_error(self.log)}\nlog: {self.log}"


@contextmanager
def serve_model(
    folder: Path, config: TrainConfig, *, on_wait: Callable[[float], None] = lambda _: None, port: int = 0
) -> Iterator[Server]:
    """Serve `folder` and yield when it answers. Call it in the main thread.

    It runs where `trainer.device` says. `port` 0 is a free one; `on_wait` gets the seconds waited so far, a few times a
    second. Raises LLMFault when the server does not start, with the last error line and the path of the log.
    """
    if wrong := wrong_versions("vllm"):
        raise LLMFault(wrong)
    port = port or free_port()
    name = folder.name
    cpu = on_cpu(config.trainer.device)
    command = server_command(folder, config, name=name, port=port, cpu=cpu)
    server = Server(f"http://127.0.0.1:{port}/v1", folder, name, *_start(command, server_environment(cpu=cpu)))
    keep_log = True
    try:
        _wait_until_ready(server, port=port, on_wait=on_wait)
        yield server
        keep_log = server.process.poll() is not None
    except KeyboardInterrupt:
        keep_log = False
        raise
    finally:
        stop(server.process)
        if not keep_log:
            server.log.unlink(missing_ok=True)


def _start(command: list[str], environment: dict[str, str]) -> tuple[Path, subprocess.Popen[bytes]]:
    handle, log = tempfile.mkstemp(prefix="vllm-", suffix=".log")
    with os.fdopen(handle, "wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for this process, which ends the server in order
        )
    return Path(log), process


def _wait_until_ready(server: Server, *, port: int, on_wait: Callable[[float], None]) -> None:
    started = time.monotonic()
    with httpx.Client(trust_env=False, timeout=5.0) as client:
        while True:
            with suppress(httpx.HTTPError):
                if client.get(f"http://127.0.0.1:{port}/health").is_success:
                    return
            waited_s = time.monotonic() - started
            if why := server.why_it_died():
                raise LLMFault(why)
            if waited_s > START_TIMEOUT_S:
                raise LLMFault(
                    f"vLLM was not ready after {waited_s:.0f} s: {last_error(server.log)}\nlog: {server.log}"
                )
            on_wait(waited_s)
            time.sleep(LOOK_EVERY_S)


def last_error(log: Path) -> str:
    """The last line of a vLLM log that names an error itself; else the last line."""
    text = COLOUR.sub("", log.read_text(encoding="utf-8", errors="replace"))
    lines = [line for raw in text.splitlines() if (line := PREFIX.sub("", raw.strip()).strip())]
    errors = [line for line in lines if ERROR_LINE.search(line) and not any(mark in line for mark in SECOND_HAND)]
    return (errors or lines or ["it printed nothing"])[-1][:500]


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and all processes of its group: first politely, then by force."""
    try:
        process.terminate()
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        # Also after a second Ctrl-C in the wait above; vLLM's engine is a child in the same group.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
