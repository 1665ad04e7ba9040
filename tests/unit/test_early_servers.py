"""The servers that load early: how many, and processes that are forked with the environment of their start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from agl_plugin.run.early_servers import PASSED_ON, EarlyServer, n_servers
from sql_agent.config import ROOT

# In a process of its own: the forkserver that a process has is there for its whole life.
FORKED = """
import os, sys
from multiprocessing import forkserver
from agl_plugin.run.early_servers import engine_context

def look(maker):
    print(os.environ.get("LATE"), os.environ.get("GONE"), "xml.dom.minidom" in sys.modules, os.getppid() != maker)

if __name__ == "__main__":
    os.environ["GONE"] = "there when the forkserver starts"
    context = engine_context()
    context.set_forkserver_preload(["xml.dom.minidom"])
    forkserver.ensure_running()
    del os.environ["GONE"]
    os.environ["LATE"] = "set afterwards"
    process = context.Process(target=look, args=(os.getpid(),))
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


def overrides(**keys: Any) -> dict[str, Any]:
    return {"trainer": {"n_gpus_per_node": 8}, "actor_rollout_ref": {"rollout": keys}}


def test_an_engine_is_forked_with_the_modules_that_were_loaded_and_the_environment_of_its_start(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(FORKED, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=environment, timeout=300)
    assert done.stdout.strip() == "set afterwards None True True", done.stderr


@pytest.mark.parametrize(
    ("keys", "n"),
    [
        ({"tensor_model_parallel_size": 1}, 8),
        ({"tensor_model_parallel_size": 2}, 4),
        ({"tensor_model_parallel_size": 2, "data_parallel_size": 2}, 2),
    ],
)
def test_there_are_as_many_servers_as_verl_asks_for(keys: dict[str, int], n: int) -> None:
    assert n_servers(overrides(**keys)) == n


def test_a_server_has_what_verl_calls() -> None:
    """By verl's own source."""
    (verl,) = find_spec("verl").submodule_search_locations or []  # pyright: ignore[reportOptionalMemberAccess]
    files = ["workers/rollout/replica.py", "workers/rollout/vllm_rollout/vllm_rollout.py"]
    source = "".join(Path(verl, file).read_text(encoding="utf-8") for file in files)
    called = set(re.findall(r"server(?:_handle)?\.(\w+)\.remote\(", source))
    assert len(called) > 4 and called <= {*PASSED_ON}
    server = Path(verl, "workers/rollout/vllm_rollout/vllm_async_server.py").read_text(encoding="utf-8")
    assert all(f"def {name}(" in server and hasattr(EarlyServer, name) for name in PASSED_ON)
