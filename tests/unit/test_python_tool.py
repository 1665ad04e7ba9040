"""The tool `python`: what code can do, how it is told what went wrong, and what is a fault."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import closing

import pytest

from foundation.errors import UserError
from sql_agent.agent.python_tool import NO_OUTPUT, python_tool
from sql_agent.agent.tool import EpisodeContext
from sql_agent.agent.toolset import Toolset
from sql_agent.config import PythonConfig, build_config
from sql_agent.environment.sandbox import kernel, pool, worker
from sql_agent.environment.sandbox.pool import Sandbox
from sql_agent.environment.sandbox.rules import Rules
from sql_agent.errors import ToolFault

WORKS = {
    "1 + 1": "2",
    "x = 3\nprint(x, x * 2, sep='-')": "3-6",
    "total = 0\nfor i in range(1, 11):\n    if i % 2: continue\n    total += i\ntotal": "30",
    "def price(n, *, each=1.5):\n    return n * each\nprint(f'{price(4):.2f}')": "6.00",
    "from fractions import Fraction as F\nF(1, 3) + F(1, 6)": "Fraction(1, 2)",
    "import math\nmath.comb(5, 2), round(math.pi, 3)": "(10, 3.142)",
    "from math import *\nsqrt(16)": "4.0",
    "from decimal import Decimal, getcontext\ngetcontext().prec = 10\nDecimal(2).sqrt()": "Decimal('1.414213562')",
    "from statistics import mean\nmean([1, 2, 6])": "3",
    "from datetime import date, datetime\n(date(2024, 3, 1) - date(2024, 2, 1)).days, f'{date(2024, 3, 1):%d.%m.}'": (
        "(29, '01.03.')"
    ),
    "from datetime import datetime\ndatetime.strptime('2024-03-01', '%Y-%m-%d').weekday()": "4",
    "from collections import Counter\nCounter('aab').most_common(1)": "[('a', 2)]",
    "from functools import lru_cache\n@lru_cache(None)\ndef f(n): return n if n < 2 else f(n - 1) + f(n - 2)\nf(80)": (
        "23416728348467685"
    ),
    "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    print('no:', e)": "no: division by zero",
    "def pairs(n):\n    for i in range(n):\n        yield i, i * i\ndict(pairs(3))": "{0: 0, 1: 1, 2: 4}",
    "sorted({'b': 2, 'a': 1}.items(), key=lambda kv: kv[1])": "[('a', 1), ('b', 2)]",
    "while (n := 5) < 3: pass\nn": "5",
    "x = 1": NO_OUTPUT,
    "print('价格', 3)": "价格 3",
}
TOLD = {
    "print(1)\n1 / 0": ("error", "error: 1\nZeroDivisionError: division by zero (line 2)"),
    "1 +": ("error", "error: SyntaxError: invalid syntax (code, line 1)"),
    "import os": ("error", "error: the module 'os' is not available (line 1); there are: math"),
    "'{}'.format(1)": ("error", "error: the attribute 'format' is not available (line 1); use an f-string"),
    "while True: pass": ("timeout", "error: the code takes more than 0.2 s; make it simpler"),
    "'a' * 10**10": ("error", "error: the code needs more than 64 MiB of memory; make it simpler"),
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with closing(Sandbox(PythonConfig(cpu_s=0.2, max_memory_mib=64))) as made:
        yield made


def call(sandbox: Sandbox, raw: str) -> EpisodeContext:
    context = EpisodeContext()
    asyncio.run(python_tool(sandbox).invoke(context, raw))
    return context


@pytest.mark.parametrize("code", WORKS)
def test_code_computes(sandbox: Sandbox, code: str) -> None:
    (made,) = call(sandbox, json.dumps({"code": code})).tool_calls
    assert (made.name, made.outcome, made.result) == ("python", "ok", WORKS[code])


@pytest.mark.parametrize("code", TOLD)
def test_the_model_is_told_what_is_wrong(sandbox: Sandbox, code: str) -> None:
    (made,) = call(sandbox, json.dumps({"code": code})).tool_calls
    outcome, text = TOLD[code]
    assert made.outcome == outcome
    assert made.result.startswith(text)


@pytest.mark.parametrize("raw", ["{}", '{"code": 1}', '{"code": " "}', "[]", "{"])
def test_bad_arguments_are_counted(sandbox: Sandbox, raw: str) -> None:
    context = call(sandbox, raw)
    assert context.n_bad_tool_calls == 1
    assert [made.outcome for made in context.tool_calls] == ["bad_arguments"]


def test_each_run_begins_anew(sandbox: Sandbox) -> None:
    assert sandbox.run_sync("x = 1\nimport math\nmath.pi = 3").ok
    assert "NameError" in sandbox.run_sync("x").text
    assert sandbox.run_sync("import math\nmath.pi").text.startswith("3.14")
    first = sandbox.run_sync("import random\nrandom.random()").text
    assert sandbox.run_sync("import random\nrandom.random()").text == first


def test_a_code_without_end_holds_up_no_other(sandbox: Sandbox) -> None:
    async def play() -> list[str]:
        codes = ["while True: pass", "1", "9**9**9", "2", "3", "while True: pass", "4"]
        return [outcome.text for outcome in await asyncio.gather(*map(sandbox.run, codes))]

    endless = "the code takes more than 0.2 s; make it simpler"
    assert asyncio.run(play()) == [endless, "1\n", endless, "2\n", "3\n", endless, "4\n"]


def test_only_listed_modules_are_there() -> None:
    with closing(Sandbox(PythonConfig(modules=["fractions"]))) as sandbox:
        assert sandbox.run_sync("import fractions").ok
        assert (
            sandbox.run_sync("import math").text == "the module 'math' is not available (line 1); there are: fractions"
        )
    with pytest.raises(UserError, match="python.modules: 'os' is none of math, "):
        build_config({"python": {"modules": ["math", "os"]}})


def test_a_sandbox_of_before_a_fork_serves_its_child(sandbox: Sandbox) -> None:
    assert sandbox.run_sync("1").ok
    ours, theirs = os.pipe()
    if (child := os.fork()) == 0:
        os.write(theirs, sandbox.run_sync("6 * 7").text.encode())
        sandbox.close()
        os._exit(0)
    os.close(theirs)
    assert os.read(ours, 100) == b"42\n"
    os.waitpid(child, 0)
    os.close(ours)
    assert sandbox.run_sync("2").text == "2\n"


def test_where_the_kernel_cannot_confine_the_tool_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = "; from sql_agent.environment.sandbox import kernel; kernel.CALLS = {}; main()"
    given = [part.replace("; main()", elsewhere) for part in pool.arguments(pool.WORKER)]
    monkeypatch.setattr(pool, "arguments", lambda _module, settings: [*given, settings])
    refused = pytest.raises(UserError, match="cannot be confined on this machine: .*needs Linux.* leave python out")
    with closing(Toolset(build_config({"agent": {"tools": ["python"]}}))) as toolset, refused:
        toolset.check()


def test_a_worker_that_is_gone_is_a_fault_and_the_next_call_has_another() -> None:
    with closing(Sandbox(PythonConfig())) as sandbox:
        assert sandbox.run_sync("1").ok
        worker = sandbox._idle[0]
        ask = worker.ask

        def dies(request: object, *, timeout_s: float) -> object:
            worker.kill()
            return ask(request, timeout_s=timeout_s)

        worker.ask = dies  # type: ignore[method-assign]
        with pytest.raises(ToolFault, match="is gone"):
            sandbox.run_sync("1")
        assert sandbox.run_sync("2").text == "2\n"


def test_the_filter_ends_in_a_refusal_and_jumps_inside_itself() -> None:
    for calls in kernel.CALLS.values():
        steps = kernel.filter_steps(calls)
        assert steps[-1] == (kernel.RETURN, 0, 0, kernel.EPERM)
        assert all(at + 1 + max(yes, no) < len(steps) for at, (_, yes, no, _) in enumerate(steps[:-1]))


def _no_room(*_: object) -> None:
    raise MemoryError


@pytest.mark.parametrize(("broken", "kind"), [("_explain", "memory"), ("_write", "crash")])
def test_code_that_leaves_no_memory_to_tell_how_it_ended_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, broken: str, kind: str
) -> None:
    """What confined code left is where these would run out of memory: how much that is depends on the allocator."""
    monkeypatch.setattr(worker, broken, _no_room)
    settings: worker.Settings = {"modules": [], "cpu_s": 2.0, "wall_s": 20.0, "memory_bytes": 1 << 27}
    assert worker.run_apart("1 / 0", Rules([]), settings)["kind"] == kind
