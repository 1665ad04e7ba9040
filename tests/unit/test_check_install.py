"""utils/check_install.py: a finding is a row, whatever is missing, broken or in the way."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

from foundation.modules import import_module

SCRIPT = Path(__file__).resolve().parents[2] / "utils" / "check_install.py"


check = import_module(str(SCRIPT))


def run_script(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def by_component(text: str) -> dict[str, dict[str, str]]:
    return {row["component"]: row for row in json.loads(text)["rows"]}


def test_bare_interpreter_prints_a_plain_table_and_finds_problems() -> None:
    done = run_script(sys.executable, "-I", "-S", str(SCRIPT))
    assert done.returncode == 1
    assert done.stderr == ""
    torch = next(line for line in done.stdout.splitlines() if line.startswith("torch"))
    assert "problem" in torch and "utils/setup.sh" in torch


def test_empty_venv_does_not_crash(tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=False, symlinks=True)
    done = run_script(str(tmp_path / "empty" / "bin" / "python"), str(SCRIPT), "--json")
    assert (done.returncode, done.stderr) == (1, "")
    rows = by_component(done.stdout)
    assert rows["verl"]["state"] == check.PROBLEM
    assert rows["trl"]["state"] == check.MISSING
    assert rows["RAM"]["version"].endswith("GiB")


def test_this_environment_matches_the_lock() -> None:
    done = run_script(sys.executable, str(SCRIPT), "--json", "--no-imports")
    rows = by_component(done.stdout)
    assert rows["uv.lock"]["state"] == check.OK, rows["uv.lock"]["note"]
    assert rows["omegaconf"]["state"] == rows["antlr4-python3-runtime"]["state"] == check.OK
    assert done.returncode == (1 if any(row["state"] == check.PROBLEM for row in rows.values()) else 0)


@pytest.mark.long
def test_what_a_run_loads_can_be_loaded_here() -> None:
    done = run_script(sys.executable, str(SCRIPT), "--json")
    rows = by_component(done.stdout)
    names = ["torch", "verl", "agentlightning", *(name for name in rows if name.startswith("vllm"))]
    assert len(names) == 4 and not {name: rows[name]["note"] for name in names if rows[name]["state"] != check.OK}


def test_the_table_shows_every_component() -> None:
    done = run_script(sys.executable, str(SCRIPT), "--no-imports")
    assert all(name in done.stdout for name in ("torch", "flash-attn", "openai-agents", "/dev/shm", "port 9999"))


@pytest.mark.parametrize("text", ["", "not toml [", "package = 3", "version = 1", "\x00"])
def test_broken_lock_is_a_row(tmp_path: Path, text: str) -> None:
    lock = tmp_path / "uv.lock"
    lock.write_text(text)
    versions, direct, error = check.read_lock(lock)
    [row] = check.guarded(check.check_lock, check.Machine(versions, direct, error))
    assert row.state == check.PROBLEM and "uv.lock" in row.note


def test_another_version_than_the_locked_one_is_named() -> None:
    machine = check.Machine(lock={"rich": ["0.0.1", "0.0.2"]}, direct={"": ["rich", "no-such-package"]})
    row = check.package(machine, "rich")
    assert row.state == check.PROBLEM and "0.0.1" in row.note
    [lock] = check.check_lock(machine)
    assert "locked 0.0.1 or 0.0.2" in lock.note and "no-such-package" in lock.note


def test_crash_is_named() -> None:
    outcome = check.probe("import os; os.abort(); f = {}", 30)
    assert "SIGABRT" in outcome.failure


def test_hang_ends_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    child = "import subprocess; p = subprocess.Popen(['sleep', '600'])"
    code = f"{child}; open({str(pid_file)!r}, 'w').write(str(p.pid)); p.wait(); f = {{}}"
    started = time.monotonic()
    outcome = check.probe(code, 1)
    assert "did not end within 1 s" in outcome.failure
    assert time.monotonic() - started < 10
    pid = int(pid_file.read_text())
    while os.path.exists(f"/proc/{pid}") and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() - started < 10
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("ImportError: vllm/_C.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEab", "another version of torch"),
        ("ImportError: libcuda.so.1: cannot open shared object file", "driver's library is not there"),
        ("ImportError: libcudart.so.12: cannot open shared object file", "CUDA library is missing"),
        ("ImportError: /lib/libc.so.6: version `GLIBC_2.34' not found", "too old for the wheel"),
        ("ModuleNotFoundError: No module named 'xformers'", "utils/setup.sh"),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 11040)", "update the driver"),
    ],
)
def test_import_errors_are_explained(error: str, remedy: str) -> None:
    kind, _, text = error.partition(": ")
    outcome = check.probe(f"raise {kind}({text!r})", 30)
    assert remedy in outcome.failure and text.split()[0] in outcome.failure


def test_what_an_import_prints_does_not_disturb() -> None:
    outcome = check.probe("print('loading'); print('{}'); f = dict(a=1); print('done', end='\\n')", 30)
    assert (outcome.facts, outcome.failure) == ({"a": 1}, "")


def fake_smi(folder: Path, *, status: int = 0, error: str = "") -> None:
    """An nvidia-smi that answers as the real one does."""
    lines = [
        "#!/bin/sh",
        f"[ {status} -ne 0 ] && echo {error!r} && exit {status}",
        '[ "$#" -gt 0 ] && echo "0, NVIDIA H200, 143771, 1024, 570.86.15, 9.0" && exit 0',
        'echo "| NVIDIA-SMI 570.86.15   Driver Version: 570.86.15   CUDA Version: 12.8 |"',
    ]
    (folder / "nvidia-smi").write_text("\n".join(lines) + "\n")
    (folder / "nvidia-smi").chmod(0o755)


def gpu_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> check.Machine:  # pyright: ignore[reportInvalidTypeForm]
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    machine = check.Machine()
    check.look_for_gpus(machine)
    return machine


def test_gpus_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi(tmp_path)
    driver, gpu = check.check_gpu(gpu_machine(tmp_path, monkeypatch))
    assert (driver.version, driver.state) == ("570.86.15", check.OK) and "12.8" in driver.note
    assert gpu.component == "GPU 0" and "NVIDIA H200, 143771 MiB, 1024 MiB in use" in gpu.note


def test_broken_driver_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_smi(tmp_path, status=18, error="Failed to initialize NVML: Driver/library version mismatch")
    [row] = check.check_gpu(gpu_machine(tmp_path, monkeypatch))
    assert "version mismatch" in row.note


@pytest.mark.parametrize(
    ("cuda", "driver_cuda", "visible", "text"),
    [
        (None, "12.8", None, "without CUDA"),
        ("12.8", "11.4", None, "knows CUDA 11.4, torch is built for 12.8: update"),
        ("12.8", "12.4", "", "CUDA_VISIBLE_DEVICES='' hides"),
        ("12.8", "12.4", None, "CUDA error 999"),
    ],
)
def test_why_torch_sees_no_gpu(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, driver_cuda: str, visible: str | None, text: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    machine = check.Machine(gpus=[["0", "H200", "1", "1", "570", "9.0"]], driver_cuda=driver_cuda)
    machine.probes["torch"] = check.Outcome({"cuda": cuda, "available": False, "gpus": 0}, last_line="CUDA error 999")
    [row] = check.check_torch(machine)
    assert row.state == check.PROBLEM and text in row.note


def test_a_taken_port_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert "in use" in check.check_port(check.Machine(), port)[0].note
    assert "free" in check.check_port(check.Machine(), port)[0].note


def test_a_failing_check_is_a_row() -> None:
    def check_nothing(_: object) -> list[object]:
        raise ZeroDivisionError("by design")

    [row] = check.guarded(check_nothing, check.Machine())
    assert row.component == "nothing" and "ZeroDivisionError: by design" in row.note


def test_the_judge_that_the_environment_gives_is_told_and_no_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(check, "ROOT", tmp_path)
    for name in ("TEACHER_API_KEY", "JUDGE_ENDPOINTS", "REWARD_MODEL_URL"):
        monkeypatch.delenv(name, raising=False)
    offline, words = check.check_judge(check.Machine())
    assert offline.version == "offline" and "sql_result" in offline.note and "is not set" in words.note
    (tmp_path / ".env").write_text("TEACHER_API_KEY=sk-secret\n")
    (llm,) = check.check_judge(check.Machine())
    assert llm.version == "LLM" and "sk-secret" not in str(llm)
