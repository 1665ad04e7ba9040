"""MCP servers as tools, against real ones over stdio and HTTP: what is told, called, bounded, lost and opened again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from foundation.errors import UserError
from foundation.marks import FAMILIES, Marks
from foundation.net import free_port
from sql_agent.agent import mcp_session
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.sql_tool import QUERY, sql_tool
from sql_agent.agent.tool import EpisodeContext
from sql_agent.agent.toolset import Toolset
from sql_agent.config import build_config, database_path, load_recipe
from sql_agent.environment.database import Database
from sql_agent.errors import ToolFault
from sql_agent.records import Question
from tests.toolsets import call

SERVER = Path(__file__).with_name("mcp_server.py")
QUESTION = Question(id="q", question="2 + 3?")
STDIO = {"command": "python", "args": [str(SERVER)]}
LISTED = ["add", "fails", "hangs", "blocks", "megabyte", "forges", "paints", "dies", "pid", "variables"]
MARKS = ["<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>", "</tool_response>", "[INST]", "<｜tool▁sep｜>"]
MakeTools = Callable[..., Toolset]


@pytest.fixture
def make() -> Iterator[MakeTools]:
    made: list[Toolset] = []

    def toolset(server: dict[str, Any] = STDIO, *, timeout_s: float = 10.0, **more: Any) -> Toolset:
        agent = {"tools": [], "mcp": {"test": {**server, **more}}, "tool_timeout_s": timeout_s}
        made.append(Toolset(build_config({"agent": agent})))
        return made[-1]

    yield toolset
    for one in made:
        one.close()


@contextmanager
def http_server(port: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, str(SERVER), str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(600):
                assert process.poll() is None
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def address() -> Iterator[dict[str, Any]]:
    port = free_port()
    with http_server(port):
        yield {"url": f"http://127.0.0.1:{port}/mcp"}


def call_when_up(toolset: Toolset, *calls: tuple[str, Any]) -> tuple[EpisodeContext, list[str]]:
    """The same, again while the server is waited for."""
    for _ in range(300):
        try:
            return call(toolset, *calls)
        except ToolFault as fault:
            assert "is down" in str(fault)
            time.sleep(0.1)
    raise AssertionError("the server did not come up within 30 s")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["stdio", "http"])
def test_the_server_s_tools_are_told_and_called(
    make: MakeTools, address: dict[str, Any], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    toolset = make(STDIO if kind == "stdio" else address)
    toolset.check()
    assert [tool.name for tool in toolset.offered] == LISTED
    assert "'no name!' is left out: a name holds letters" in caplog.text
    add = toolset.offered[0]
    assert add.parameters["required"] == ["a"] and add.parameters["properties"]["b"]["type"] == "number"
    context, said = call(toolset, ("add", {"a": 2, "b": 3}), ("paints", ""), ("pid", "{}"), ("pid", {}))
    assert said[:2] == ["5.0", "a picture:\n(image, image/png, 40 characters of base64)"]
    assert said[2] == said[3] and int(said[2]) != os.getpid()  # one process for all calls
    assert [c.outcome for c in context.tool_calls] == ["ok"] * 4


@pytest.mark.long
@pytest.mark.parametrize("kind", ["stdio", "http"])
def test_failures_are_told_to_the_model(make: MakeTools, address: dict[str, Any], kind: str) -> None:
    toolset = make(STDIO if kind == "stdio" else address, timeout_s=3.0)
    deep = '{"a": ' + "[" * 200 + "]" * 200 + "}"
    calls = [("fails", {}), ("add", {"a": "x"}), ("add", "{"), ("add", deep), ("add", '{"a": "\\ud800"}')]
    context, said = call(toolset, *calls, ("hangs", {}), ("megabyte", {}), ("add", {"a": 1}))
    assert said[0].startswith("error: Error executing tool fails: nothing </tool_response>")
    assert said[3] == "error: the arguments are nested more than 32 deep" and said[5].endswith("no answer within 3 s")
    assert len(said[6]) == 2000 and said[6].endswith("characters, cut)") and said[7] == "2.0"
    outcomes = ["error", "error", "bad_arguments", "bad_arguments", "error", "timeout", "cut", "ok"]
    assert [c.outcome for c in context.tool_calls] == outcomes and context.n_bad_tool_calls == 2


def test_nothing_forges_what_the_template_writes(make: MakeTools) -> None:
    toolset = make()
    _, said = call(toolset, ("forges", {}), ("fails", {}))
    llm = LLMEndpoint("http://127.0.0.1:1/v1", "m", marks=Marks())
    messages = [{"role": "tool", "tool_call_id": "c", "content": text} for text in said]
    asked = llm.request({"model": "m", "messages": messages, "tools": [tool.spec for tool in toolset.offered]})
    told = json.dumps(asked, ensure_ascii=False)
    assert not [token for token in [*MARKS, *FAMILIES] if token in told]
    assert told.count("＜|im_start|>") >= 3 and "<|im_start|>" in said[0]


@pytest.mark.long
def test_the_allow_list_chooses(make: MakeTools) -> None:
    assert [tool.name for tool in make(tools=["pid", "add"]).offered] == ["add", "pid"]
    with pytest.raises(UserError, match=r"agent\.mcp\.test\.tools: the server has no tool 'ad'; did you mean add"):
        make(tools=["ad"]).check()
    with pytest.raises(UserError, match="'no name!' cannot be used"):
        make(tools=["no name!"]).check()


def test_a_program_sees_no_secret(make: MakeTools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("MY_TOKEN", "abc")
    _, (said,) = call(make(env={"MODE": "fast", "TOKEN": "$MY_TOKEN"}), ("variables", {}))
    assert "sk-secret" not in said and "MODE=fast" in said and "TOKEN=abc" in said and "MY_TOKEN" not in said
    with pytest.raises(UserError, match=r"agent\.mcp\.test\.env names the environment variable 'NOT_SET'"):
        make(env={"TOKEN": "$NOT_SET"}).check()


@pytest.mark.long
def test_a_server_that_dies_is_a_fault_and_comes_back(make: MakeTools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_session, "FIRST_WAIT_S", 3.0)
    toolset = make()
    _, (first,) = call(toolset, ("pid", {}))
    with pytest.raises(ToolFault, match="MCP server 'test' is gone .*the disk is full"):
        call(toolset, ("dies", {}))
    with pytest.raises(ToolFault, match=r"is down .* started again in [0-3]\.\d s"):
        call(toolset, ("pid", {}))
    _, (second,) = call_when_up(toolset, ("pid", {}))
    assert second != first and not psutil.pid_exists(int(first))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["stdio", "http"])
def test_calls_in_flight_fall_with_the_server(kind: str, make: MakeTools) -> None:
    port = free_port()
    with nullcontext() if kind == "stdio" else http_server(port):
        server = STDIO if kind == "stdio" else {"url": f"http://127.0.0.1:{port}/mcp"}
        calls_fall_with_it(make(server, timeout_s=30.0))


def calls_fall_with_it(toolset: Toolset) -> None:
    _, (pid,) = call(toolset, ("pid", {}))
    contexts = [EpisodeContext(timeout_s=30.0) for _ in range(8)]

    async def run() -> list[Any]:
        async with toolset.for_episode(QUESTION) as offered:
            hangs = next(tool for tool in offered.tools if tool.name == "hangs")
            calls = [asyncio.create_task(hangs.invoke(context, "{}")) for context in contexts]
            await asyncio.sleep(0.5)
            os.kill(int(pid), signal.SIGKILL)
            return await asyncio.gather(*calls, return_exceptions=True)

    started = time.monotonic()
    answers = asyncio.run(run())
    assert all(isinstance(said, ToolFault) for said in answers) and time.monotonic() - started < 10, answers
    assert all(isinstance(context.fault, ToolFault) for context in contexts)


@pytest.mark.long
def test_a_server_that_answers_nothing_is_a_fault(make: MakeTools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_session, "PING_S", 0.5)
    toolset = make(timeout_s=1.0)
    toolset.check()
    with pytest.raises(ToolFault, match="it answers nothing, not even a ping"):
        call(toolset, ("blocks", {}))


@pytest.mark.long
def test_a_server_behind_an_address_may_start_again(make: MakeTools) -> None:
    port = free_port()
    toolset = make({"url": f"http://127.0.0.1:{port}/mcp"}, timeout_s=2.0)
    with http_server(port):
        assert call(toolset, ("add", {"a": 1}))[1] == ["2.0"]
    with pytest.raises(ToolFault, match="MCP server 'test' is gone"):
        call(toolset, ("add", {"a": 1}))
    with http_server(port):
        assert call_when_up(toolset, ("add", {"a": 1}))[1] == ["2.0"]


@pytest.mark.parametrize("noise", ["'x' * 10_000", "'x\\n'", "'{}\\n'"])
def test_a_server_that_floods_its_output_is_ended_and_told_as_that(make: MakeTools, noise: str) -> None:
    started = time.monotonic()
    with pytest.raises(UserError, match="that are no message of MCP; let it log elsewhere"):
        make({"command": "python", "args": ["-c", f"import sys\nwhile True: sys.stdout.write({noise})"]}).check()
    assert time.monotonic() - started < 15  # START_S is twice that


def test_a_server_may_say_a_little_beside_its_messages(make: MakeTools) -> None:
    noisy = f"print('starting', flush=True); import runpy; runpy.run_path({str(SERVER)!r}, run_name='__main__')"
    assert call(make({"command": "python", "args": ["-c", noisy]}), ("add", {"a": 1}))[1] == ["2.0"]


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({"command": "no-such-program"}, "no such program; install it"),
        ({"command": "python", "args": ["-c", "raise SystemExit('no licence')"]}, "it said: no licence"),
        ({"command": "python", "args": ["-c", "print('hello')"]}, "gives no list of tools"),
        ({"url": "http://127.0.0.1:9/mcp"}, "ConnectError"),
        ({"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "NOT_SET"}}, "'NOT_SET', which is not set"),
    ],
)
def test_a_server_that_does_not_start_is_told_before_the_run(make: MakeTools, server: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        make(server).check()


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ({}, r"agent\.mcp\.x: command = '', url = ''.*exactly one of the two"),
        ({"command": "a", "url": "http://b"}, "exactly one of the two"),
        ({"command": "a", "headers": {"X": "Y"}}, "headers belongs to url, which is not set"),
        ({"url": "http://me:secret@b"}, "without a password"),
        ({"url": "http://b", "headers": {"Authorization": "Bearer secret"}}, "must be the name of an environment"),
        ({"comand": "a"}, r"agent\.mcp\.x\.comand = 'a': unknown key; did you mean command"),
    ],
)
def test_what_does_not_go_together_is_a_configuration_error(server: Any, said: str) -> None:
    with pytest.raises(UserError, match=said) as raised:
        build_config({"agent": {"mcp": {"x": server}}})
    assert "secret" not in str(raised.value).replace("what is secret", "")


def test_a_server_named_among_the_tools_is_told_where_it_belongs() -> None:
    """`time` would be Python's own module."""
    with pytest.raises(UserError, match="agent.tools names 'time', an MCP server"):
        build_config({"agent": {"tools": ["sql", "time"], "mcp": {"time": {"command": "mcp-server-time"}}}})


def test_a_server_s_file_stands_beside_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("")
    (tmp_path / "config.toml").write_text('[agent.mcp.x]\ncommand = "python"\nargs = ["server.py", "-v"]\n')
    config = build_config(load_recipe(str(tmp_path)))
    assert config.agent.mcp["x"].args == [str(tmp_path / "server.py"), "-v"]


ENDS = """
import os, sys
from sql_agent.agent.toolset import Toolset
from sql_agent.config import build_config
toolset = Toolset(build_config({"agent": {"tools": [], "mcp": {"x": {"command": "python", "args": sys.argv[1:]}}}}))
toolset.check()
import psutil
print(*[child.pid for child in psutil.Process().children()], flush=True)
os.kill(os.getpid(), 9) if os.environ.get("KILLED") else None
"""
DEAF = "import sys, runpy, signal; signal.signal(15, 1); sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], {}, '__main__'); import time; time.sleep(600)"  # noqa: E501


@pytest.mark.long
@pytest.mark.parametrize("killed", [False, True])
def test_no_server_is_left_behind(killed: bool) -> None:
    """Not even one that does not end with its input, of a process that is killed or forgets to close."""
    environment = {**os.environ, "KILLED": "1"} if killed else {**os.environ}
    command = [sys.executable, "-c", ENDS, "-c", DEAF, str(SERVER)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    pids = [int(pid) for pid in done.stdout.split()]
    assert pids, done.stderr
    until_s = time.monotonic() + 20  # a killed process is a zombie until init looks
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < until_s:
        time.sleep(0.1)
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


@pytest.mark.long
def test_64_calls_in_flight(make: MakeTools) -> None:
    toolset = make(tools=["add"])

    async def bare() -> list[float]:
        parameters = StdioServerParameters(command=sys.executable, args=[str(SERVER)])
        async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            await session.list_tools()
            return await timed(lambda i: session.call_tool("add", {"a": i}))

    async def timed(ask: Callable[[int], Any]) -> list[float]:
        async def one(i: int) -> float:
            started = time.perf_counter()
            await ask(i)
            return time.perf_counter() - started

        await asyncio.gather(*(one(i) for i in range(64)))
        return [t for _ in range(3) for t in await asyncio.gather(*(one(i) for i in range(64)))]

    async def ours() -> list[float]:
        async with toolset.for_episode(QUESTION) as offered:
            (add,) = offered.tools
            contexts = [EpisodeContext(timeout_s=60.0) for _ in range(64)]
            times = await timed(lambda i: add.invoke(contexts[i], json.dumps({"a": i})))
            assert [c.tool_calls[-1].result for c in contexts] == [str(i + 1.0) for i in range(64)]
            return times

    here, there = statistics.median(asyncio.run(ours())), statistics.median(asyncio.run(bare()))
    print(f"64 calls in flight: {here * 1000:.1f} ms a call, bare session {there * 1000:.1f} ms")


OWN = ["-m", "sql_agent", "mcp"]


async def test_the_sql_tool_is_served_as_it_is() -> None:
    config = build_config()
    sql = "SELECT med_name FROM drugs_info LIMIT 2"
    with Database(config.database, database_path(config.database)) as database:
        tool = sql_tool(database, description=config.agent.tool_description, max_chars=config.database.max_chars)
        expected = [await tool.invoke(EpisodeContext(), json.dumps(a)) for a in ({"sql": sql}, {"sql": "DROP x"}, {})]
    async with (
        stdio_client(StdioServerParameters(command=sys.executable, args=OWN)) as (read, write),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        (listed,) = (await session.list_tools()).tools
        assert (listed.name, listed.description, listed.input_schema) == (QUERY, tool.description, tool.parameters)
        answers = [await session.call_tool(QUERY, a) for a in ({"sql": sql}, {"sql": "DROP x"}, {})]
    assert [answer.content[0].model_dump()["text"] for answer in answers] == expected
    assert json.loads(expected[0])["count"] == 2


def test_a_database_that_breaks_behind_the_server_is_a_fault(make: MakeTools, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    config = build_config()
    copy.write_bytes(database_path(config.database).read_bytes())
    toolset = make({"command": "python", "args": [*OWN, "--database", str(copy)]})
    ask = (QUERY, {"sql": "SELECT count(*) AS n FROM disease"})
    context, (said,) = call(toolset, ask)
    assert json.loads(said)["status"] == "success" and context.sql_calls == []
    copy.unlink()
    with pytest.raises(ToolFault, match=r"MCP server 'test': database .*copy\.db"):
        call(toolset, ask)
