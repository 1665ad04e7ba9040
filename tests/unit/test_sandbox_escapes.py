"""Code that wants out of the sandbox: through the tool's own way in, and with the rules of syntax taken away.

The first list must be stopped before or while it runs. The second assumes that the rules had a hole, and runs with all
of Python's builtins: then the kernel must stop it. Each of those prints ESCAPED where it gets through, and does so
without the confinement, which is tried too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sql_agent.config import ROOT, PythonConfig
from sql_agent.environment.sandbox.pool import Sandbox

MODULES = """
os sys ctypes socket subprocess builtins importlib os.path math.os time _strptime signal gc inspect pickle
multiprocessing threading sql_agent
"""
WALKS = """
().__class__.__base__.__subclasses__() [].__class__.__mro__[-1].__subclasses__() ''.__class__.mro() (1).__class__
print.__self__ len.__self__.open print.__globals__ ().__reduce_ex__(2) int.__subclasshook__ __builtins__
__builtins__['open'] __import__('os') __loader__ __build_class__ dict(__class__=1)
"""
NOT_GIVEN = """
eval('1') exec('1') open('/etc/passwd') input() vars() globals() locals() dir() type(()) object() super()
memoryview(b'') breakpoint() help() exit() quit() id(1) classmethod(1) BaseException()
"""
ATTEMPTS = [
    # dunder walks
    *WALKS.split(),
    "x = 1\nx.__init__.__globals__",
    "(lambda: 0).__globals__",
    "(lambda: 0).__code__",
    "(lambda: 0).__closure__",
    "def f(): pass\nf.__builtins__",
    "def f(): pass\nf.__code__ = (lambda: 1).__code__",
    "import math\nmath.__loader__",
    "import math\nmath.__spec__.loader.load_module('os')",
    "import itertools\nitertools.__dict__",
    "from functools import reduce\nreduce.__self__",
    "from functools import lru_cache\nlru_cache(lambda: 0).__wrapped__",
    "from functools import partial\npartial(print).func.__self__",
    "0 .__doc__",
    "x.＿＿class＿＿",  # full-width underscores, which Python reads as plain ones
    "().__𝒄𝒍𝒂𝒔𝒔__",
    "def __f(): pass",
    "x = lambda __a: __a",
    "try:\n    1/0\nexcept Exception as __e:\n    pass",
    "for __x in [1]: pass",
    "import math as __math",
    "global __builtins__\n__builtins__ = {}",
    # names that are not given
    *NOT_GIVEN.split(),
    "compile('1', '', 'eval')",
    "getattr((), '__class__')",
    "setattr(print, 'a', 1)",
    "property(lambda s: s)",
    # imports
    *(f"import {name}" for name in MODULES.split()),
    "from os import system",
    "from . import x",
    "from .. import os",
    "from math import __loader__",
    "from statistics import sys",
    "from datetime import sys",
    "from collections import namedtuple",
    "from functools import WRAPPER_ASSIGNMENTS",
    "from operator import attrgetter",
    "from operator import methodcaller",
    "from random import SystemRandom",
    "from random import _os",
    "import statistics\nstatistics.sys.modules",
    "import datetime\ndatetime.sys",
    "import random\nrandom._os.system('id')",
    "import heapq\nheapq._heappop_max",
    "import sys\nsys.modules['os']",
    # frames, tracebacks, generators
    "(x for x in [1]).gi_frame",
    "(x for x in [1]).gi_frame.f_back.f_globals",
    "def g():\n    yield 1\ng().gi_code",
    "def g():\n    yield 1\ng().throw(ValueError)",
    "try:\n    1/0\nexcept Exception as e:\n    e.__traceback__.tb_frame.f_globals",
    "try:\n    1/0\nexcept Exception as e:\n    e.with_traceback(None)",
    "try:\n    1/0\nexcept Exception as e:\n    e.tb_frame",
    "try:\n    ().a\nexcept AttributeError as e:\n    e.obj",
    "try:\n    raise ValueError\nexcept ValueError as e:\n    e.__context__",
    "try:\n    raise ValueError\nexcept ValueError as e:\n    e.__reduce__()",
    "def f():\n    f.func_globals\nf()",
    "def f():\n    return 1\nf.f_locals",
    "async def f():\n    pass\nf().cr_frame",
    # texts that walk attributes
    "'{0.__class__}'.format(())",
    "'{0.__class__.__base__}'.format_map({'0': ()})",
    "str.format('{0.__class__}', 1)",
    "f = str.format\nf('{0.__class__}', 1)",
    "list(map(str.format, ['{0.__class__}'], [1]))",
    "f'{().__class__}'",
    "f'{print.__self__!r:>{9}}'",
    "'a'.encode('rot13')",
    # syntax that reaches attributes by other ways
    "class A:\n    pass",
    "class A(Exception):\n    __getattr__ = print",
    "match 1:\n    case int(real=r):\n        print(r)",
    "match ():\n    case object(__class__=c):\n        print(c)",
    "with print as p:\n    pass",
    "del print.__self__",
    "print.__self__ = 1",
    "@(lambda f: f.__globals__)\ndef f(): pass",
    "[].append.__self__",
    "def f(a=().__class__): pass",
    "def f(a: ().__class__): pass",
    "x: ().__class__ = 1",
    "assert ().__class__",
    "(y := ().__class__)",
    "[*().__class__.__mro__]",
    "{**print.__dict__}",
    "{k: v for k, v in print.__dict__.items()}",
    "lambda: (yield).__class__",
    "try:\n    pass\nexcept* ValueError:\n    pass",
    "import decimal\ndecimal.Context",
    "from decimal import getcontext\ngetcontext().traps",
    "from decimal import getcontext\ngetcontext().flags",
    "from collections import defaultdict\ndefaultdict(int).default_factory.__base__",
    # time and memory
    "while True: pass",
    "9**9**9",
    "int('9' * 5000)",
    "10**5000",
    "(10**4000)**100",
    "import math\nmath.factorial(10**8)",
    "sum(range(10**12))",
    "list(range(10**10))",
    "'a' * 10**10",
    "[0] * 10**10",
    "(1,) * 10**10",
    "1 << 10**11",
    "x = []\nwhile True: x.append('a' * 10**6)",
    "x = [1]\nwhile True: x = x + x",
    "s = 'ab'\nwhile True: s += s",
    "x = {}\nfor i in range(10**9): x[i] = i",
    "f'{1:{10**10}}'",
    "'%*d' % (10**9, 1)",
    "' '.rjust(10**10)",
    "'a'.replace('a', 'b' * 10**5) .replace('b', 'c' * 10**5)",
    "import itertools\nlist(itertools.product(range(10**4), repeat=10**4))",
    "import itertools\nfor x in itertools.count(): pass",
    "def f(): return f()\nf()",
    "f = lambda n: [f(n), f(n)]\nf(1)",
    "from functools import lru_cache\n@lru_cache(None)\ndef f(n): return f(n + 1)\nf(0)",
    "x = []\nx.append(x)\nfor i in range(10**6): x = [x]\nprint(x)",
    "(" * 5000 + ")" * 5000,
    "-" * 9000 + "1",
    "lambda: " * 1200 + "1",
    "[" * 90 + "]" * 90 + "\n" + "x" * 20_000,
    "while True:\n    try:\n        'a' * 10**10\n    except MemoryError:\n        pass",
    "while True:\n    try:\n        while True: pass\n    except:\n        pass\n    finally:\n        continue",
    # floods
    "print('x' * 10**6)",
    "while True: print('x' * 1000)",
    "try:\n    print('x' * 10**6)\nexcept Exception:\n    pass",
    "for i in range(10**9): print(i)",
    "print(*range(10**5))",
    "print('x' * 30000, end='')",
    "raise ValueError('x' * 10**8)",
    "print(list(range(10**5)))",
]

KERNEL = {
    "read a file": "print(open('/etc/passwd').read() and 'ESCAPED')",
    "read its environment's file": "print(open('/proc/self/environ').read() is not None and 'ESCAPED')",
    "read what it is": "print(open('/proc/self/status').read() and 'ESCAPED')",
    "list a folder": "import os; print(os.listdir('/') and 'ESCAPED')",
    "look at a file": "import os; print(os.stat('/etc/passwd') and 'ESCAPED')",
    "its environment": "import os; print(os.environ['SECRET'] and 'ESCAPED')",
    "the folder it is in": "import os; print(os.getcwd() and 'ESCAPED')",
    "change folders": "import os; os.chdir('/tmp'); print('ESCAPED')",
    "a socket": "import socket; socket.socket(); print('ESCAPED')",
    "a pair of sockets": "import socket; socket.socketpair(); print('ESCAPED')",
    "fork": "import os\nif os.fork() == 0:\n    os._exit(0)\nprint('ESCAPED')",
    "a program": "import subprocess; subprocess.run(['true']); print('ESCAPED')",
    "a program by a shell": "import os; print('ESCAPED' if os.system('exit 3') == 768 else '')",
    "become a program": "import os; os.execv('/bin/echo', ['echo', 'ESCAPED'])",
    "a thread": "import threading; t = threading.Thread(target=print); t.start(); print('ESCAPED')",
    "a signal to its parent": "import os; os.kill(os.getppid(), 0); print('ESCAPED')",
    "a signal to itself": "import os; os.kill(os.getpid(), 0); print('ESCAPED')",
    "take the timer off": "import signal; signal.setitimer(signal.ITIMER_PROF, 0); print('ESCAPED')",
    "a handler": "import signal; signal.signal(signal.SIGTERM, print); print('ESCAPED')",
    "block a signal": "import signal; signal.pthread_sigmask(0, [27]); print('ESCAPED')",
    "sleep": "import time; time.sleep(0.01); print('ESCAPED')",
    "a limit": "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); print('ESCAPED')",
    "its limits": "import resource; print(resource.getrlimit(resource.RLIMIT_CORE) and 'ESCAPED')",
    "memory that runs": "import mmap; mmap.mmap(-1, 4096, prot=7); print('ESCAPED')",
    "make memory run": "import ctypes, mmap\nm = mmap.mmap(-1, 4096)\n"
    "a = ctypes.addressof(ctypes.c_char.from_buffer(m))\n"
    "print('' if ctypes.CDLL(None).mprotect(ctypes.c_void_p(a), 4096, 7) else 'ESCAPED')",
    "a C function": "import ctypes; print('ESCAPED' if ctypes.CDLL(None).system(b'exit 3') == 768 else '')",
    "a call of the system": "import ctypes; print('ESCAPED' if ctypes.CDLL(None).syscall(39) > 0 else '')",
    "the other descriptors": "import os; os.write(2, b''); print('ESCAPED')",
    "a copy of its descriptor": "import os; os.dup(1); print('ESCAPED')",
    "a pipe": "import os; os.pipe(); print('ESCAPED')",
    "a file in memory": "import os; os.memfd_create('a'); print('ESCAPED')",
    "read its parent's line": "import os; os.fstat(0); print('ESCAPED')",
    "a folder": "import os\ntry: os.rmdir('/tmp/no_such_folder_here')\nexcept FileNotFoundError: print('ESCAPED')",
    "take rights": "import ctypes; print('ESCAPED' if ctypes.CDLL(None).prctl(3) >= 0 else '')",
    "a name space": "import ctypes; print('ESCAPED' if ctypes.CDLL(None).unshare(0) == 0 else '')",
    "its priority": "import os; os.nice(0); print('ESCAPED')",
    "other cores": "import os; os.sched_setaffinity(0, os.sched_getaffinity(0)); print('ESCAPED')",
    "who it is": "import os; print('ESCAPED' if os.getuid() >= 0 else '')",
    "its user": "import os; os.setuid(os.getuid()); print('ESCAPED')",
    "a module from disk": "import sqlite3; print('ESCAPED')",
}
HARNESS = """
import ast, builtins, ctypes, json, mmap, os, resource, signal, socket, subprocess, sys, threading
sys.path.append(sys.argv[1])
from sql_agent.environment.sandbox import rules, worker

class Lax(rules.Rules):
    def parse(self, code):
        return ast.parse(code)

    def namespace(self, output):
        return {"__builtins__": {**vars(builtins), "print": output.print}}

if sys.argv[2] == "free":
    worker.confine = lambda **_: None
settings = {"cpu_s": 1.0, "wall_s": 60.0, "memory_bytes": 2**26}
print(json.dumps([worker.run_apart(code, Lax([]), settings)["text"] for code in json.loads(sys.argv[3])]))
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox(PythonConfig(cpu_s=0.15, max_memory_mib=64))
    yield made
    made.close()


@pytest.mark.parametrize("code", ATTEMPTS, ids=range(len(ATTEMPTS)))
def test_no_attempt_gets_through_the_tool(sandbox: Sandbox, code: str) -> None:
    outcome = sandbox.run_sync(code)
    assert not outcome.ok, outcome
    assert len(outcome.text) < 25_000
    assert sandbox.run_sync("6 * 7").text == "42\n"


def played(*, free: bool, codes: list[str]) -> list[str]:
    arguments = [str(ROOT), "free" if free else "confined", json.dumps(codes)]
    command = [sys.executable, "-I", "-S", "-c", HARNESS, *arguments]
    done = subprocess.run(command, env={**os.environ, "SECRET": "s"}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_where_the_rules_have_a_hole_the_kernel_lets_nothing_through() -> None:
    texts = played(free=False, codes=list(KERNEL.values()))
    assert {name: text for name, text in zip(KERNEL, texts, strict=True) if "ESCAPED" in text} == {}


def test_unconfined_all_of_that_gets_through() -> None:
    # What replaces the process writes to the pipe itself, without the line that says how it ended.
    codes = {name: code for name, code in KERNEL.items() if name not in ("become a program",)}
    texts = played(free=True, codes=list(codes.values()))
    assert {name: text for name, text in zip(codes, texts, strict=True) if "ESCAPED" not in text} == {}
