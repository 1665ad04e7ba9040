"""sql_agent/serving/server.py without vLLM's minutes: the command, the environment, the log's last error, the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foundation.chat_template import rendered
from sql_agent.config import TrainConfig, build_config
from sql_agent.errors import LLMFault
from sql_agent.serving import server as serving

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", CHILD])
print(child.pid, flush=True)
time.sleep(600)
"""


def ended(pid: int) -> bool:
    """True when the process is gone, or waits as a zombie for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except FileNotFoundError:
        return True


def wait_until_ended(pid: int, limit_s: float = 15.0) -> None:
    deadline_s = time.monotonic() + limit_s
    while not ended(pid):
        assert time.monotonic() < deadline_s, f"process {pid} is still there"
        time.sleep(0.02)


def test_the_server_renders_as_the_run_where_a_request_does_not_say(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("{{ enable_thinking }}", encoding="utf-8")
    config = build_config({"agent": {"chat_template_kwargs": {"enable_thinking": False}}})
    line = serving.server_command(tmp_path, config, name="policy", port=1, cpu=True)
    template = line[line.index("--chat-template") + 1]
    assert [rendered(template, [], [], given) for given in ({}, {"enable_thinking": True})] == ["False", "True"]
    assert "--chat-template" not in serving.server_command(tmp_path, TrainConfig(), name="p", port=1, cpu=True)


def test_command_has_the_settings_of_training(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 1024}))
    config = build_config({"rollout": {"tool_parser": "qwen3_xml"}})
    line = " ".join(serving.server_command(tmp_path, config, name="policy", port=1, cpu=True))
    for part in (
        "--host 127.0.0.1",
        "--dtype float32",
        "--enforce-eager",
        "--max-model-len 1024",
        "qwen3_xml",
        '{"max_new_tokens": 768}',
    ):
        assert part in line
    assert "--trust-remote-code" not in line
    gpu = " ".join(serving.server_command(tmp_path, config, name="policy", port=1, cpu=False))
    assert "--gpu-memory-utilization 0.6" in gpu and "float32" not in gpu


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"max_position_embeddings": "x"}', '{"max_position_embeddings": 99999}']
)
def test_model_length_is_bounded_whatever_the_file_says(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    rollout = build_config().rollout
    assert serving.context_tokens(tmp_path, rollout) == rollout.context_tokens == 2048 + 4096
    assert serving.context_tokens(tmp_path / "none", rollout) == rollout.context_tokens


def test_secrets_stay_here_and_own_settings_win(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "VLLM_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    environment = serving.server_environment(cpu=True)
    assert "secret" not in environment.values()
    assert environment["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert environment["VLLM_CPU_KVCACHE_SPACE"]
    assert "VLLM_CPU_KVCACHE_SPACE" not in serving.server_environment(cpu=False)


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", "it printed nothing"),
        ("INFO one\nINFO two\n\n", "INFO two"),
        (
            "\x1b[1;36m(EngineCore_DP0 pid=7)\x1b[0;0m ERROR 11-21 07:00:00 [core.py:708] ValueError: No KV cache\n"
            "(APIServer pid=6) RuntimeError: Engine core initialization failed. See root cause above.\n",
            "ValueError: No KV cache",
        ),
        (
            "ValidationError: 1 validation error for ModelConfig\n  Value error, unknown model type\n",
            "Value error, unknown",
        ),
        ("api_server.py: error: argument --max-model-len: invalid\n", "argument --max-model-len"),
    ],
)
def test_last_error(tmp_path: Path, log: str, line: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xff\n" * bool(log) + log.encode())
    assert line in serving.last_error(path)


def test_what_ignores_politeness_ends_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "GRACE_S", 0.3)
    process = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    serving.stop(process)
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL
    wait_until_ended(child)
    serving.stop(process)  # a second time is no error


@pytest.mark.parametrize("wait_s", [0.0, 0.02, 1.0])  # before, while and after the launcher asks for the signal
def test_server_ends_when_its_parent_is_killed(wait_s: float) -> None:
    start = (
        "import os, subprocess, sys, time; launch = [sys.executable, '-c', sys.argv[1], str(os.getpid())]; "
        "p = subprocess.Popen([*launch, '-c', 'import time; time.sleep(600)']); print(p.pid, flush=True); p.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", start, serving.LAUNCH], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        time.sleep(wait_s)
        os.kill(parent.pid, signal.SIGKILL)
    wait_until_ended(server)


@pytest.mark.slow  # vLLM's import alone takes 12 s on two idle cores
def test_a_server_that_does_not_start_is_explained(tmp_path: Path) -> None:
    before = time.monotonic()
    waited: list[float] = []
    with (
        pytest.raises(LLMFault, match=r"(?s)vLLM ended with status \d+: .+\nlog: (\S+)") as raised,
        serving.serve_model(tmp_path, TrainConfig(), on_wait=waited.append),
    ):
        pytest.fail("an empty folder is no model")
    log = Path(str(raised.value).rpartition("log: ")[2])
    assert log.read_text(encoding="utf-8")
    log.unlink()
    assert waited == sorted(waited) and waited[-1] <= time.monotonic() - before
