"""Tools that misbehave, in processes of their own: each ends one call, by name and reason, and no other."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from foundation import supervise
from foundation.errors import UserError
from sql_agent.agent.tool import EpisodeContext
from sql_agent.agent.toolset import Toolset
from sql_agent.config import ROOT, build_config
from sql_agent.errors import DatabaseFault, LLMFault, ToolFault
from sql_agent.records import Question

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="what a child left is found on Linux"),
    pytest.mark.usefixtures("nursery"),
]
MARK = f"agentgrpo-stray-{os.getpid()}"  # another checkout may run these tests too
MakeTools = Callable[..., Toolset]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeTools]:
    made: list[Toolset] = []

    def toolset(text: str, **agent: Any) -> Toolset:
        file = tmp_path / "own.py"
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        made.append(Toolset(build_config({"agent": {"tools": [str(file)], "tool_timeout_s": 5.0, **agent}})))
        return made[-1]

    yield toolset
    for one in made:
        one.close()


HOSTILE = f'''
    import asyncio, builtins, collections, ctypes, decimal, itertools, json, locale, os, resource, signal, subprocess
    import sys, threading, time, warnings
    from sql_agent.errors import LLMFault

    def good(n: int) -> int:
        print("so far so good")
        return n + 1

    def pid() -> int:
        return os.getpid()

    def slow() -> str:
        time.sleep(2)
        return "slept"

    def kills_others() -> str:
        program = subprocess.Popen(["sleep", "600"])
        program.kill()
        assert program.wait() == -signal.SIGKILL
        said = set()
        for above, number in ((os.getppid(), signal.SIGKILL), (os.getsid(os.getppid()), 0), ({os.getpid()}, 0)):
            try:
                os.kill(above, number)
                said.add("allowed")
            except PermissionError:
                said.add("refused")
        return ",".join(said)

    def state() -> list[str]:
        stat = signal.getsignal(signal.SIGINT)
        return [os.getcwd(), os.environ.get("MINE", ""), str(stat is signal.default_int_handler)]

    def changes() -> str:
        os.chdir("/")
        os.environ["MINE"] = "x"
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.umask(0)
        return "done"

    def exits() -> str:
        sys.exit("no index")

    async def exits_too() -> str:
        await asyncio.sleep(0)
        raise SystemExit(3)

    def interrupts() -> str:
        raise KeyboardInterrupt

    def leaves() -> str:
        os._exit(7)

    def dies() -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    def crashes() -> str:
        return ctypes.string_at(8)

    def leaks() -> str:
        kept = []
        while True:
            kept.append(bytearray(1 << 24))

    def floods() -> str:
        while True:
            print("x" * 1000)

    def floods_below() -> str:
        while True:
            os.write(1, b"x" * 100000)

    def bombs() -> str:
        for _ in range(60):
            subprocess.Popen(["sleep", "60", "{MARK}"[:0] or "61"])
        time.sleep(60)
        return ""

    def strays() -> str:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "{MARK}"], start_new_session=True)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", "{MARK}"])
            os._exit(0)
        return "left"

    def garbage() -> str:
        for n in range(3, 50):
            try:
                os.write(n, b"\\x00\\x00\\x00\\x04junkjunk")
            except OSError:
                pass
        return "wrote"

    def endless() -> str:
        for n in range(3, 50):
            try:
                os.write(n, b"\\x7f\\xff\\xff\\xff")
            except OSError:
                pass
        time.sleep(60)
        return ""

    def closes() -> str:
        os.closerange(0, 100)
        return ""

    def hangs() -> str:
        time.sleep(60)
        return ""

    async def blocks() -> str:
        time.sleep(60)
        return ""

    async def clings() -> str:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass

    def swallows() -> str:
        while True:
            try:
                time.sleep(60)
            except BaseException:
                pass

    def holds_the_lock() -> str:
        return str(collections.deque(itertools.repeat(None, 10**12), maxlen=0))

    def ignores_alarms() -> str:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        time.sleep(60)
        return ""

    def stops() -> str:
        raise StopIteration("no more")

    def cancels() -> str:
        raise asyncio.CancelledError("mine")

    def coroutine() -> str:
        async def later() -> str:
            return "awaited"
        return later()

    def generator() -> list[int]:
        return (n for n in range(3))

    def huge() -> str:
        return "x" * 3_000_000

    def a_fault() -> str:
        raise LLMFault("the other model is down")

    def nameless() -> str:
        class Nasty(Exception):
            def __str__(self):
                raise SystemExit(5)
        raise Nasty

    def leaves_a_thread() -> str:
        threading.Thread(target=lambda: (time.sleep(0.5), os._exit(3)), daemon=True).start()
        return "done"

    async def leaves_a_task() -> str:
        async def later():
            await asyncio.sleep(0.5)
            sys.exit("late")
        asyncio.get_running_loop().kept = asyncio.create_task(later())
        return "done"

    async def calls_later() -> str:
        asyncio.get_running_loop().call_later(0.5, os._exit, 4)
        return "done"

    async def uses_a_pool() -> str:
        return await asyncio.to_thread(lambda: "done")

    def closes_output() -> str:
        os.close(1)
        sys.stderr.close()
        return "done"

    def opens_many() -> str:
        for _ in range(resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2):
            os.open("/dev/null", os.O_RDONLY)
        return "done"

    def patches() -> str:
        builtins.min = None
        return "done"

    def speaks_otherwise() -> str:
        locale.setlocale(locale.LC_ALL, "POSIX" if "UTF" in locale.setlocale(locale.LC_ALL) else "C.UTF-8")
        return "done"

    def lends() -> str:
        json.loads = lambda *_, **__: {{}}
        return "done"

    def masks() -> str:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        return "done"

    def rings_later() -> str:
        signal.setitimer(signal.ITIMER_PROF, 0.05)
        return "done"

    def yields() -> str:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        return "done"

    def rounds() -> str:
        decimal.getcontext().prec = 2
        return "done"

    def warns() -> str:
        warnings.simplefilter("error")
        return "done"

    def traces() -> str:
        sys.settrace(lambda *_: None)
        return "done"

    def imports() -> str:
        import decimal, json.tool, wave
        warnings.filterwarnings("ignore", module="wave")
        return "done"

    def empties() -> str:
        sys.modules.pop("json")
        return "done"

    def renames() -> str:
        name, value = vars(json).popitem()
        setattr(json, name + "_", value)
        return "done"

    def renames_within() -> str:
        names = vars(json)
        items = list(names.items())
        names.clear()
        names.update((name + "_" if name == "detect_encoding" else name, value) for name, value in items)
        return "done"

    def spins() -> str:
        def spin():
            while True:
                pass
        threading.Thread(target=spin).start()
        return "done"

    def told_badly() -> object:
        class Nasty:
            def __str__(self):
                raise SystemExit(5)
        return Nasty()

    def told_at_length() -> list[str]:
        return ["x" * 100_000_000]

    def runs_a_loop() -> str:
        async def inner() -> str:
            return "ran"
        return asyncio.run(inner())
'''


def invoke(toolset: Toolset, *names: str, **context: Any) -> tuple[EpisodeContext, list[Any]]:
    """Call tools at the same time; what each told, or raised."""
    shared = EpisodeContext(timeout_s=toolset._config.agent.tool_timeout_s, **context)

    async def run() -> list[Any]:
        async with toolset.for_episode(Question(id="q", question="?")) as offered:
            tools = {tool.name: tool for tool in offered.tools}
            calls = [tools[name].invoke(shared, '{"n": 1}' if name == "good" else "{}") for name in names]
            return await asyncio.gather(*calls, return_exceptions=True)

    return shared, asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "reason", "said"),
    [
        ("exits", "exit", "exits: raised SystemExit('no index')"),
        ("exits_too", "exit", "exits_too: raised SystemExit(3)"),
        ("interrupts", "exit", "interrupts: raised KeyboardInterrupt()"),
        ("cancels", "exit", "cancels: raised CancelledError('mine')"),
        ("leaves", "exit", "leaves: ended its process with status 7"),
        ("dies", "signal", "dies: was ended by SIGKILL"),
        ("crashes", "signal", "crashes: was ended by SIGSEGV"),
        ("leaks", "memory", "leaks: needed more memory than agent.tool_memory_mib"),
        ("floods", "output", "floods: printed more than 64 KiB"),
        ("floods_below", "output", "floods_below: printed more than 64 KiB"),
        ("bombs", "processes", "bombs: it ran more than 32 processes"),
        ("garbage", "garbage", "garbage: gave an answer that cannot be read"),
        ("endless", "garbage", "endless: gave an answer that cannot be read"),
        ("closes", "exit", "closes: ended"),
        ("told_badly", "exit", "told_badly: raised SystemExit(5)"),
        ("told_at_length", "memory", "told_at_length: needed more memory than agent.tool_memory_mib"),
        ("generator", "fault", "generator: returned a generator, which is no result; return a list or text"),
    ],
)
def test_what_ends_a_process_is_a_fault_by_name_and_reason_and_no_neighbours(
    make: MakeTools, name: str, reason: str, said: str
) -> None:
    limits = {"tool_memory_mib": 128, "tool_max_processes": 32, "tool_max_output_kib": 64}
    toolset = make(HOSTILE, tool_timeout_s=60, **limits)
    began_s = time.monotonic()
    context, (before, fault, after) = invoke(toolset, "good", name, "good")
    assert (before, after) == ("2", "2") and invoke(toolset, "good")[1] == ["2"]
    assert isinstance(fault, ToolFault) and str(fault).startswith(said), fault
    assert (fault.tool, fault.reason) == (name, reason) and context.fault is fault
    assert time.monotonic() - began_s < 40  # none waits for its limit of 60


@pytest.mark.long
@pytest.mark.parametrize("name", ["hangs", "blocks", "clings", "swallows", "holds_the_lock", "ignores_alarms"])
def test_what_hangs_is_told_and_no_neighbours(make: MakeTools, name: str) -> None:
    toolset = make(HOSTILE, tool_timeout_s=0.5)
    began_s = time.monotonic()
    context, (before, told, after) = invoke(toolset, "good", name, "good")
    assert told == f"error: {name} gave no answer within 0.5 s" and (before, after) == ("2", "2")
    assert sorted(call.outcome for call in context.tool_calls) == ["ok", "ok", "timeout"]
    assert invoke(toolset, "good")[1] == ["2"] and time.monotonic() - began_s < 40


def test_other_odd_results_are_told(make: MakeTools) -> None:
    toolset = make(HOSTILE)
    context, told = invoke(toolset, "stops", "coroutine", "huge", "nameless", "runs_a_loop")
    assert told[0] == "error: StopIteration('no more')" and told[1] == "awaited" and told[4] == "ran"
    assert len(told[2]) == 1000 and told[2].endswith("… (3000000 characters, cut)")
    assert told[3] == "error: Nasty"
    assert {call.name: call.outcome for call in context.tool_calls}["stops"] == "error"
    assert isinstance(invoke(toolset, "a_fault")[1][0], LLMFault) and not issubclass(LLMFault, DatabaseFault)


def test_a_process_that_a_call_changed_serves_no_other(make: MakeTools) -> None:
    toolset = make(HOSTILE)
    clean = invoke(toolset, "state")[1]
    first, again = invoke(toolset, "pid")[1], invoke(toolset, "pid")[1]
    assert first == again and int(first[0]) != os.getpid()
    assert invoke(toolset, "changes")[1] == ["done"]
    assert invoke(toolset, "pid")[1] != first and invoke(toolset, "state")[1] == clean
    as_here = str(signal.getsignal(signal.SIGINT) is signal.default_int_handler)  # not so in a shell's background
    assert json.loads(clean[0]) == [os.getcwd(), "", as_here]


LEAVE = ("leaves_a_thread", "leaves_a_task", "calls_later", "spins", "closes_output", "opens_many", "patches")
LEAVE += ("speaks_otherwise", "empties", "lends", "masks", "rings_later", "yields", "rounds", "warns")
LEAVE += ("traces", "renames", "renames_within")


@pytest.mark.parametrize("name", LEAVE)
def test_what_a_call_leaves_at_work_or_changed_meets_no_other_call(make: MakeTools, name: str) -> None:
    toolset = make(HOSTILE)
    first = invoke(toolset, "pid")[1]
    assert invoke(toolset, name)[1] == ["done"]
    (after,) = invoke(toolset, "pid")[1]
    assert str(after).isdigit() and [after] != first


def test_what_a_call_imports_late_keeps_its_process(make: MakeTools) -> None:
    toolset = make(HOSTILE)
    first = invoke(toolset, "pid")[1]
    assert invoke(toolset, "imports")[1] == ["done"] and invoke(toolset, "pid")[1] == first


def test_a_pool_of_threads_that_wait_is_kept(make: MakeTools) -> None:
    toolset = make(HOSTILE)

    def is_kept() -> bool:
        before = invoke(toolset, "pid")[1]
        return invoke(toolset, "uses_a_pool")[1] == ["done"] and invoke(toolset, "pid")[1] == before

    assert wait_for(is_kept)  # on a busy machine a thread of it may not have come to wait yet


def strays() -> list[int]:
    return [p.pid for p in psutil.process_iter(["cmdline"]) if MARK in (p.info["cmdline"] or []) and p.is_running()]


def wait_for(condition: Callable[[], bool], *, limit_s: float = 40.0) -> bool:
    deadline_s = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return condition()


def test_what_a_call_leaves_behind_ends_with_it(make: MakeTools) -> None:
    toolset = make(HOSTILE)
    assert invoke(toolset, "strays")[1] == ["left"]
    assert wait_for(lambda: not strays())
    assert invoke(toolset, "good")[1] == ["2"]


def test_nothing_is_left_when_a_toolset_closes(make: MakeTools) -> None:
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    toolset = make(HOSTILE)
    invoke(toolset, "good", "good", "good")
    nursery = psutil.Process().children(recursive=True)
    toolset.close()
    left = {p.pid for p in psutil.Process().children(recursive=True)}
    assert len(nursery) >= 6 and len(left - before) <= 2  # what is shared: the nursery, and who looks after it


RUNNER = """
import asyncio, sys, time
from sql_agent.agent.tool import EpisodeContext
from sql_agent.agent.toolset import Toolset
from sql_agent.config import build_config
from sql_agent.records import Question
toolset = Toolset(build_config({"agent": {"tools": [sys.argv[1]], "tool_timeout_s": 100}}))
async def play():
    async with toolset.for_episode(Question(id="q", question="?")) as offered:
        tools = {tool.name: tool for tool in offered.tools}
        print(await tools["strays"].invoke(EpisodeContext(), "{}"), flush=True)
        print(await tools["stays"].invoke(EpisodeContext(timeout_s=100), "{}"), flush=True)
asyncio.run(play())
"""


@pytest.mark.long
def test_all_of_it_ends_when_the_runner_is_killed(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    stays = f"""
    def stays() -> str:
        program = subprocess.Popen(["sleep", "600"], start_new_session=True)
        with open({str(note)!r} + ".new", "w") as file:
            file.write(str(program.pid))
        os.rename(file.name, {str(note)!r})
        return str(program.wait())
    """
    file = tmp_path / "own.py"
    file.write_text(textwrap.dedent(HOSTILE) + textwrap.dedent(stays), encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(file)], cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
    ) as runner:
        try:
            assert runner.stdout and runner.stdout.readline() == b"left\n"
            begun = wait_for(lambda: note.exists() or runner.poll() is not None) and note.exists()
            below = psutil.Process(runner.pid).children(recursive=True)
        finally:
            runner.kill()
        assert begun, f"{[process.cmdline() for process in below]}; the call said {runner.stdout.read()}"
    assert int(note.read_text(encoding="utf-8")) in [process.pid for process in below]
    gone, alive = psutil.wait_procs(below, timeout=15)
    assert len(gone) >= 4 and not alive and wait_for(lambda: not strays())


def signals_can_be_scoped() -> bool:
    """Whether this kernel has Landlock for signals."""
    return ctypes.CDLL(None).syscall(supervise.LANDLOCK_CREATE_RULESET, None, 0, 1) >= 6


@pytest.mark.skipif(not signals_can_be_scoped(), reason="this kernel has no Landlock for signals")
def test_a_tool_that_kills_what_is_above_it_costs_nobody_a_call(make: MakeTools) -> None:
    """Not the process that forks for its agent, not that of all agents, not this one; its own processes it can kill."""
    toolset = make(HOSTILE)
    context, results = invoke(toolset, "slow", "kills_others", "slow")
    assert results == ["slept", "refused", "slept"]
    assert {call.outcome for call in context.tool_calls} == {"ok"}


def test_a_host_that_is_killed_is_started_again(make: MakeTools) -> None:
    toolset = make(HOSTILE)
    pid = int(invoke(toolset, "pid")[1][0])
    host = psutil.Process(pid).parent()
    assert host
    host.send_signal(signal.SIGKILL)
    host.wait(10)
    assert wait_for(lambda: not psutil.pid_exists(pid))
    assert wait_for(lambda: invoke(toolset, "good")[1] == ["2"])


ENVIRONMENT = """
    import collections, itertools, os, time

    class World:
        def reset(self, question) -> str:
            self.seen = []
            os.environ["WORLD"] = question.id
            return "x" * int(question.meta.get("size", 10))

        def look(self, word: str) -> str:
            self.seen.append(word)
            return " ".join(self.seen) + " " + os.environ["WORLD"]

        def naps(self) -> str:
            time.sleep(60)
            return ""

        async def awaits(self) -> str:
            self.seen.append("begun")
            time.sleep(60)
            return ""

        def locks(self) -> str:
            return str(collections.deque(itertools.repeat(None, 10**12), maxlen=0))

        def dies(self) -> str:
            os._exit(9)

        def reward(self) -> float:
            return len(self.seen) / 10
"""


async def played(toolset: Toolset, id: str, *calls: tuple[str, dict[str, str]], **meta: Any) -> tuple[Any, ...]:
    context = EpisodeContext(timeout_s=toolset._config.agent.tool_timeout_s)
    async with toolset.for_episode(Question(id=id, question="?", meta=meta)) as offered:
        tools = {tool.name: tool for tool in offered.tools}
        told = [await tools[name].invoke(context, json.dumps(arguments)) for name, arguments in calls]
        return offered.observations[0], told, await offered.reward()


def test_an_environment_has_a_process_to_itself_for_its_episode(make: MakeTools) -> None:
    toolset = make(ENVIRONMENT)

    async def run() -> list[tuple[Any, ...]]:
        looks = [("look", {"word": "a"}), ("look", {"word": "b"})]
        return await asyncio.gather(*(played(toolset, f"q{n}", *looks) for n in range(4)))

    assert asyncio.run(run()) == [("x" * 10, [f"a q{n}", f"a b q{n}"], 0.2) for n in range(4)]


def test_what_an_environment_says_first_is_cut(make: MakeTools) -> None:
    told, _, _ = asyncio.run(played(make(ENVIRONMENT, tool_max_chars=100), "q", size=3_000_000))
    assert len(told) == 100 and told.endswith("… (3000000 characters, cut)")


def test_an_environment_outlives_a_call_that_can_be_ended(make: MakeTools) -> None:
    toolset = make(ENVIRONMENT, tool_timeout_s=0.4)
    calls = [("look", {"word": "a"}), ("naps", {}), ("awaits", {}), ("look", {"word": "b"})]
    _, told, reward = asyncio.run(played(toolset, "q", *calls))
    assert told[1].endswith("naps gave no answer within 0.4 s") and told[2].endswith("within 0.4 s")
    assert told[3] == "a begun b q" and reward == 0.3


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "reason", "said"),
    [("dies", "exit", "dies: ended its process with status 9"), ("locks", "timeout", "its process is gone")],
)
def test_an_environment_that_is_gone_is_a_fault(make: MakeTools, name: str, reason: str, said: str) -> None:
    toolset = make(ENVIRONMENT, tool_timeout_s=0.4)
    with pytest.raises(ToolFault, match=said) as caught:
        asyncio.run(played(toolset, "q", (name, {})))
    assert caught.value.reason == reason
    assert asyncio.run(played(toolset, "q", ("look", {"word": "a"})))[1] == ["a q"]


def test_an_episode_that_is_cancelled_lets_its_process_go(make: MakeTools) -> None:
    toolset = make(HOSTILE, tool_timeout_s=60)
    began_s = time.monotonic()

    async def run() -> None:
        async with toolset.for_episode(Question(id="q", question="?")) as offered:
            tools = {tool.name: tool for tool in offered.tools}
            async with asyncio.timeout(0.5):
                await tools["hangs"].invoke(EpisodeContext(timeout_s=60), "{}")

    with pytest.raises(TimeoutError):
        asyncio.run(run())
    assert invoke(toolset, "good")[1] == ["2"]
    toolset.close()
    assert time.monotonic() - began_s < 10


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys\nsys.exit(4)", r"cannot be imported \(.*SystemExit\(4\)"),
        ("import os\nprint('no licence', flush=True)\nos._exit(5)", "ended its process with status 5; .*no licence"),
        ("while True:\n    print('x' * 100)", "printed more than 64 KiB"),
        ("def f() -> str:\n    yield 'x'", "f is a generator, which gives no result"),
    ],
)
def test_a_source_that_cannot_be_imported_is_said_before_the_run(make: MakeTools, text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        make(text, tool_max_output_kib=64).check()
