"""A process group of one rank on a CPU: it works, and nobody outside the machine can reach it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sql_agent.config import ROOT

# As the worker makes it; in a process of its own, because a group is the process's.
CODE = """
import psutil, torch, torch.distributed as dist
from agl_plugin.update.worker import meet_by_gloo
meet_by_gloo()
numbers = torch.ones(2)
dist.all_reduce(numbers, group=dist.new_group([0]))
found = [None]
dist.all_gather_object(found, numbers.tolist())
print(found, {c.laddr.ip for c in psutil.Process().net_connections("tcp") if c.status == "LISTEN"} & {"::", "0.0.0.0"})
dist.destroy_process_group()
"""


@pytest.mark.long
def test_one_rank_needs_no_listener_beyond_the_machine() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip().endswith("[[1.0, 1.0]] set()"), done.stderr[-2000:]
