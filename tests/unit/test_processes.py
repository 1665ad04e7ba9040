"""ProcessTree against real processes: what a run leaves behind is ended, polite or not, and nobody else is."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import resource_tracker

import psutil
import pytest

from benchmarks.support.load import cpu_s
from foundation.processes import ProcessTree, tracker_pid
from sql_agent.config import ROOT

SLEEP = "import time; time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); {SLEEP}"
# Starts a child in a session of its own and ends: the child is then nobody's descendant.
PARENT = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], stdout=subprocess.DEVNULL, start_new_session=True)
print(child.pid, flush=True)
sys.stdin.read()
"""


def alone(scenario: Callable[[], None]) -> Callable[[], None]:
    """Run a test in a Python process of its own, because ProcessTree ends the children of the process it is in."""

    @functools.wraps(scenario)
    def test() -> None:
        code = f"import tests.unit.test_processes as t; t.{scenario.__name__}.__wrapped__()"
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=50)
        assert done.returncode == 0, done.stderr

    return test


FILES = """
import resource
from foundation.processes import open_many_files
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
open_many_files()
files = [open("/dev/null") for _ in range(1000)]
"""


def test_a_process_may_open_more_files_than_the_shell_gave_it() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FILES], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def start(code: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@alone
def test_a_child_is_ended() -> None:
    with ProcessTree() as tree:
        process = start(SLEEP)
        tree.sample()
    assert not runs(process.pid)


@alone
def test_an_orphan_is_ended_though_its_parent_is_gone() -> None:
    with ProcessTree() as tree:
        parent = start(PARENT)
        orphan = int(first_line(parent))
        tree.sample()
        parent.communicate("", timeout=10)
        assert runs(orphan) and psutil.Process(orphan).ppid() != parent.pid
    assert not runs(orphan)


@pytest.mark.long
@alone
def test_the_tree_looks_by_itself() -> None:
    """Nobody calls sample() in a run; the thread does."""
    import foundation.processes

    foundation.processes.SAMPLE_EVERY_S = 0.05
    with ProcessTree():
        parent = start(PARENT)
        orphan = int(first_line(parent))
        time.sleep(1.0)
        parent.communicate("", timeout=10)
    assert not runs(orphan)


@alone
def test_a_process_that_ignores_the_request_is_killed() -> None:
    tree = ProcessTree()
    process = start(STUBBORN)
    assert first_line(process) == "ready"
    tree.sample()
    begin = time.monotonic()
    assert tree.end_orphans(grace_s=0.3) == 1
    assert not runs(process.pid) and time.monotonic() - begin < 10


@alone
def test_processes_that_ended_by_themselves_are_no_orphans() -> None:
    tree = ProcessTree()
    process = start("input()")
    tree.sample()
    process.communicate("\n")
    assert tree.end_orphans() == 0


@alone
def test_strangers_are_left_alone() -> None:
    stranger = subprocess.run(["sh", "-c", "sleep 60 >/dev/null & echo $!"], stdout=subprocess.PIPE, check=True)
    pid = int(stranger.stdout)
    try:
        with ProcessTree() as tree:
            tree.sample()
        assert runs(pid)
    finally:
        psutil.Process(pid).kill()


@alone
def test_what_the_caller_had_before_is_left_alone() -> None:
    helper = start(SLEEP)
    try:
        with ProcessTree() as tree:
            tree.sample()
        assert runs(helper.pid)
    finally:
        helper.kill()


@alone
def test_pythons_resource_tracker_is_left_alone() -> None:
    with ProcessTree() as tree:
        resource_tracker.ensure_running()
        tree.sample()
    pid = tracker_pid()
    assert pid is not None and runs(pid)


@alone
def test_the_peak_counts_this_process_and_its_children() -> None:
    tree = ProcessTree()
    tree.sample()
    before = tree.peak_gib
    process = start("data = bytearray(b'x' * (300 * 2**20)); print('ready', flush=True); input()")
    assert before > 0 and first_line(process) == "ready"
    tree.sample()
    peak = tree.peak_gib
    assert 0.25 < peak - before < 0.8
    process.communicate("\n")
    tree.sample()
    assert tree.peak_gib == peak


BINDING = """
import multiprocessing, os, time
from foundation.processes import die_with_parent

def child(bound):
    if bound:
        die_with_parent()
    os.write(1, b"%d\\n" % os.getpid())  # one write: an unbuffered print makes two, and both children's would mix
    time.sleep(60)

if __name__ == "__main__":
    for bound in (True, False):
        multiprocessing.get_context("fork").Process(target=child, args=(bound,)).start()
    time.sleep(60)
"""


def test_a_bound_child_dies_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", BINDING], stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        assert parent.stdout is not None
        children = [psutil.Process(int(parent.stdout.readline())) for _ in range(2)]
        parent.kill()
    left = psutil.wait_procs(children, timeout=2)[1]
    for process in left:
        process.kill()
    assert len(left) == 1  # the one that was not bound


def test_a_process_of_its_own_is_not_bound() -> None:
    code = "from foundation.processes import die_with_parent; die_with_parent(); print('lives')"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT) == "lives\n"


@pytest.mark.long
@pytest.mark.parametrize("mib", [8, 64])
def test_freed_memory_is_kept(mib: int) -> None:
    code = (
        "import resource, torch\n"
        "from foundation.processes import keep_freed_memory\n"
        "def faults():\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "    for _ in range(20):\n"
        f"        torch.ones({mib} * 2**18)\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before\n"
        "faults()\n"
        "keep_freed_memory()\n"
        "faults()\n"
        "print(faults())"
    )
    # 20 tensors of 8 MiB are 40,960 pages when each is fetched anew.
    assert int(subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT)) < 4000


def test_what_exists_is_not_collected_again() -> None:
    code = (
        "import gc\n"
        "from foundation.processes import GC_THRESHOLDS, collect_rarely\n"
        "ring = []\n"
        "ring.append(ring)\n"
        "collect_rarely()\n"
        "print(gc.get_freeze_count() > 1000, len(gc.get_objects()) < 1000, gc.get_threshold() == GC_THRESHOLDS)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT) == "True True True\n"


def test_processor_time_is_read_although_a_child_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen([sys.executable, "-c", "sum(range(3 * 10**6))"])
    ended, before_s = psutil.Process(child.pid), sum(psutil.Process().cpu_times()[:4])
    child.wait()
    listed = iter([[ended], []])  # as it was a moment ago, and as it is
    monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: next(listed))
    assert cpu_s(psutil.Process().pid) > before_s
    assert cpu_s(0) == 0
