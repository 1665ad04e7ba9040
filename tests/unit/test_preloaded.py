"""A python that has loaded a module: its programs are as those of a plain one, but for what is loaded."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing import resource_tracker, spawn
from pathlib import Path
from typing import Any

import psutil
import pytest

from foundation.preloaded import Preloaded

MODULE = """
import os, xml.dom.minidom
SEEN = os.environ.get("WHICH")
def begin():
    global SEEN
    SEEN = os.environ.get("WHICH")
"""
TELL = """
import json, os, sys
seen = sys.modules["loaded_for_a_test"].SEEN if "loaded_for_a_test" in sys.modules else None
text = sys.stdin.read()
print(json.dumps([sys.argv, seen, os.environ.get("GONE"), os.getcwd(), "xml.dom.minidom" in sys.modules, text]))
print("a word", file=sys.stderr)
os.write(int(sys.argv[1]), b"into the file")
import atexit
atexit.register(print, "at the end")
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "loaded_for_a_test.py").write_text(MODULE, encoding="utf-8")
    loaded = Preloaded("loaded_for_a_test", PYTHONPATH=str(folder), WHICH="first", GONE="there")
    yield str(loaded.executable)
    loaded.close()
    assert not loaded.executable.exists()


def test_a_program_has_arguments_environment_folder_files_and_status(python: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TELL, encoding="utf-8")
    with (tmp_path / "file").open("wb") as file:
        done = subprocess.run(
            [python, "-B", str(tmp_path / "program.py"), str(file.fileno()), "3"],
            **{"input": "typed", "text": True, "capture_output": True, "pass_fds": [file.fileno()]},
            env={**os.environ, "WHICH": "second"},
            cwd=tmp_path,
        )
        argv = [str(tmp_path / "program.py"), str(file.fileno()), "3"]
    told, end = done.stdout.splitlines()
    assert json.loads(told) == [argv, "second", None, str(tmp_path), True, "typed"] and end == "at the end"
    assert (done.returncode, done.stderr) == (3, "a word\n")
    assert (tmp_path / "file").read_bytes() == b"into the file"


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("pass", 0, ""),
        ("raise SystemExit('no')", 1, "no"),
        ("1 / 0", 1, "ZeroDivisionError"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import os; os._exit(7)", 7, ""),
        ("import threading, time; threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()", 0, ""),
    ],
)
def test_a_program_ends_as_that_of_a_plain_python(python: str, code: str, status: int, said: str) -> None:
    ends: list[Any] = [
        subprocess.run([one, "-c", code], capture_output=True, text=True) for one in (sys.executable, python)
    ]
    assert ends[0].returncode == ends[1].returncode == status and ends[0].stdout == ends[1].stdout
    assert said in ends[0].stderr and said in ends[1].stderr


def test_processes_of_multiprocessing_are_forked_too(python: str) -> None:
    before = spawn.get_executable()
    resource_tracker.ensure_running()  # this process's own, which outlives this test
    multiprocessing.set_executable(python)
    try:
        context = multiprocessing.get_context("spawn")
        queue = context.SimpleQueue()
        process = context.Process(target=queue.put, args=("seen",))
        process.start()
        assert queue.get() == "seen"
        process.join()
        assert process.exitcode == 0
    finally:
        multiprocessing.set_executable(os.fsdecode(before))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_ends_with_its_starter(python: str, how: signal.Signals) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with subprocess.Popen([python, "-c", code], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout
        program = psutil.Process(int(starter.stdout.readline()))
        starter.send_signal(how)
        program.wait(10)
    assert starter.returncode == -how


def test_it_ends_with_whoever_made_it_and_a_plain_python_takes_its_place(tmp_path: Path) -> None:
    code = f"""
import os, subprocess, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from foundation.preloaded import Preloaded
python = str(Preloaded("json").executable)
child = subprocess.Popen([python, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"])
print(python, flush=True)
os.read(0, 1)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as maker:
        assert maker.stdout
        first, second = maker.stdout.readline().strip(), maker.stdout.readline().strip()
        place, pid = (first, second) if first.startswith("/") else (second, first)
        program = psutil.Process(int(pid))
        maker.kill()
        program.wait(15)
    deadline_s = time.monotonic() + 15
    while (done := subprocess.run([place, "-c", "print(1)"], capture_output=True, text=True)).stdout != "1\n":
        assert time.monotonic() < deadline_s, done
