"""The limits that the kernel keeps for a SQL worker, looked at from inside one such process."""

from __future__ import annotations

import json
import subprocess
import sys

from sql_agent.config import ROOT

MIB = 2**20
CONFINED = f"""
import json, resource
from sql_agent.environment.child_side import bound

with open("/proc/self/statm") as statm:
    before = int(statm.read().split()[0]) * resource.getpagesize()
bound({64 * MIB})

def fits(n_bytes):
    try:
        return bool(bytearray(int(n_bytes)))
    except MemoryError:
        return False

limits = {{name: resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in ("AS", "FSIZE", "CORE")}}
limits["AS"] = [limit - before for limit in limits["AS"]]
print(json.dumps({{**limits, "fits": [fits(n * {64 * MIB}) for n in (0.5, 0.9, 1.1)]}}))
"""


def test_a_worker_may_grow_by_its_limit_and_no_further() -> None:
    done = subprocess.run([sys.executable, "-c", CONFINED], cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["fits"] == [True, True, False]
    assert found["FSIZE"] == found["CORE"] == [0, 0]
    # What the process takes between the two readings is not counted.
    assert all(abs(limit - 64 * MIB) < 8 * MIB for limit in found["AS"])
