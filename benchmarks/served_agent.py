"""What the served agent costs beside the bare loop, and whether it loses or crosses answers while its parts are killed.

  .venv/bin/python -m benchmarks.served_agent overhead [--turns 2000] [--in-flight 64]
  .venv/bin/python -m benchmarks.served_agent soak [--turns 10000] [--in-flight 256]

`overhead`: CPU of a turn (one message, one streamed answer of 52 tokens, no call of a tool) of `agentgrpo serve
--as-agent`, whole and streamed, and of the same conversations in a process without HTTP before them; both before
support/model_server.py, after a warm-up. `soak`: each turn asks for N + 1 through a tool; every few seconds the model
server, or a process of the tools, is killed. An answer to another question is crossed; a turn without a reply and
without an error is lost; turns that got an error are asked again until they have an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import psutil
import typer

from benchmarks.support.processor import cpu_s
from foundation.net import free_port
from sql_agent.agent.conversation import Conversation
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import build_config, load_recipe
from sql_agent.testing.server import Reply, openai_server, stream_reply

TOOLS = 'def add(a: float, b: float) -> float:\n    """Add two numbers."""\n    return a + b\n'
RECIPE = '[agent]\nsystem_prompt = "tools"\ntools = ["tools.py"]\n'
MODEL, KILL_EVERY_S = "fake-model", 5.0
app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False)


@contextmanager
def recipe() -> Iterator[Path]:
    """A folder with an agent of one tool."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "tools.py").write_text(TOOLS, encoding="utf-8")
        (Path(name) / "config.toml").write_text(RECIPE, encoding="utf-8")
        yield Path(name)


@contextmanager
def served(folder: Path, model_url: str, *, max_open: int) -> Iterator[tuple[str, int]]:
    """The agent's address and its process."""
    port = free_port()
    command = [sys.executable, "-m", "sql_agent", "serve", f"{MODEL}@{model_url}", "--as-agent", "--port", str(port)]
    command += ["--recipe", str(folder), "--max-open", str(max_open)]
    environment = {**os.environ, "AGENT_API_TOKEN": ""}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        try:
            if not (process.stdout and process.stdout.readline()):
                raise RuntimeError("the agent did not start")
            yield f"http://127.0.0.1:{port}/v1/chat/completions", process.pid
        finally:
            process.send_signal(signal.SIGTERM)


async def at_once(turn: Callable[[int], Awaitable[None]], n_turns: int, in_flight: int) -> None:
    """So many turns, so many of them in flight."""
    numbers = iter(range(1, n_turns + 1))

    async def work() -> None:
        for number in numbers:
            await turn(number)

    await asyncio.gather(*(work() for _ in range(in_flight)))


@app.command(hidden=True)
def loop(folder: Path, model_url: str, turns: int, in_flight: int) -> None:
    """The bare loop in this process: prints its CPU in ms a turn."""
    with EpisodeRunner(build_config(load_recipe(str(folder)))) as runner:
        llm = LLMEndpoint(base_url=model_url, model=MODEL, temperature=1.0)

        async def turn(_: int) -> None:
            talk = Conversation(runner, llm)
            await talk.say("1", lambda *_: None)
            await talk.reset()

        async def measured() -> float:
            await at_once(turn, 2 * in_flight, in_flight)
            before = cpu_s(os.getpid())
            await at_once(turn, turns, in_flight)
            return 1000 * (cpu_s(os.getpid()) - before) / turns

        print(asyncio.run(measured()))


async def asked(address: str, pid: int, *, stream: bool, turns: int, in_flight: int) -> float:
    """CPU of the served agent in ms a turn. Raises RuntimeError for a turn without an answer."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "1"}], "stream": stream}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def turn(_: int) -> None:
            async with http.post(address, json=body) as reply:
                if "xxx" not in (text := await reply.text()) and text.count('"content": "x"') < 50:
                    raise RuntimeError(text[:300])

        await at_once(turn, 2 * in_flight, in_flight)
        before = cpu_s(pid)
        await at_once(turn, turns, in_flight)
        return 1000 * (cpu_s(pid) - before) / turns


@app.command()
def overhead(
    turns: Annotated[int, typer.Option(min=10)] = 2000, in_flight: Annotated[int, typer.Option(min=1)] = 64
) -> None:
    """CPU of a turn, served and bare."""
    from benchmarks.support.model_server import model_server  # loads the proxy, for which no model process should wait

    with recipe() as folder, model_server() as model:
        url = f"{model}/0/v1"
        command = [
            sys.executable,
            "-m",
            "benchmarks.served_agent",
            "loop",
            str(folder),
            url,
            str(turns),
            str(in_flight),
        ]
        bare = float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        print(f"bare loop        {bare:7.2f} ms a turn, {in_flight} in flight, load {os.getloadavg()[0]:.1f}")
        with served(folder, url, max_open=in_flight) as (address, pid):
            for name, stream in (("served, whole", False), ("served, streamed", True)):
                cost = asyncio.run(asked(address, pid, stream=stream, turns=turns, in_flight=in_flight))
                print(f"{name:17}{cost:7.2f} ms a turn, {cost - bare:+.2f}")


def adds(request: dict[str, Any]) -> Reply:
    """A model that calls add(N, 1) for the question N, then says what came."""
    last = request["messages"][-1]
    if last["role"] == "tool":
        return stream_reply({"role": "assistant", "content": f"It is {last['content']}"})
    call = {"name": "add", "arguments": json.dumps({"a": int(last["content"]), "b": 1})}
    return stream_reply({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": call}]})


@app.command(hidden=True)
def model(port: int) -> None:
    """That model on a port, until it is killed."""
    with openai_server(adds, port=port):
        signal.pause()


class Killer:
    """The model server in a process, killed in turn with a process of the agent's tools."""

    def __init__(self) -> None:
        self.port, self.killed = free_port(), Counter[str]()
        self._model = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-m", "benchmarks.served_agent", "model", str(self.port)])

    async def up(self) -> None:
        """Wait for the model server."""
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                return writer.close()
            await asyncio.sleep(0.1)

    async def run(self, pid: int) -> None:
        """Until it is cancelled."""
        for number in itertools.count():
            await asyncio.sleep(KILL_EVERY_S)
            if number % 2:
                self._model.kill()
                self._model.wait()
                self.killed["model"] += 1
                self._model = self._started()
            elif leaves := [one for one in psutil.Process(pid).children(recursive=True) if not one.children()]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    random.choice(leaves).kill()
                    self.killed["tool"] += 1

    def end(self) -> None:
        """Kill the model server for the last time."""
        self._model.kill()
        self._model.wait()


async def asked_until_answered(address: str, pid: int, killer: Killer, *, turns: int, in_flight: int) -> Counter[str]:
    """What became of all requests."""
    found, timeout = Counter[str](), aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http:

        async def turn(number: int) -> None:
            body = {"model": MODEL, "messages": [{"role": "user", "content": str(number)}]}
            while True:
                try:
                    async with http.post(address, json=body) as reply:
                        told = await reply.json()
                except (aiohttp.ClientError, TimeoutError) as exc:
                    found["lost"] += 1
                    found[type(exc).__name__] += 1
                    return
                if reply.status == 200:
                    text = told["choices"][0]["message"]["content"]
                    found["right" if text == f"It is {number + 1}.0" else "crossed"] += 1
                    return
                found[f"error {reply.status}"] += 1
                await asyncio.sleep(0.5)

        killing = asyncio.ensure_future(killer.run(pid))
        try:
            await at_once(turn, turns, in_flight)
        finally:
            killing.cancel()
    return found


@app.command()
def soak(
    turns: Annotated[int, typer.Option(min=1)] = 10_000, in_flight: Annotated[int, typer.Option(min=1)] = 256
) -> None:
    """Turns while parts are killed: what became of them. Status 1: some were lost or crossed."""
    killer = Killer()
    try:
        asyncio.run(killer.up())
        with (
            recipe() as folder,
            served(folder, f"http://127.0.0.1:{killer.port}/v1", max_open=in_flight) as (address, pid),
        ):
            started = time.monotonic()
            found = asyncio.run(asked_until_answered(address, pid, killer, turns=turns, in_flight=in_flight))
            took_s = time.monotonic() - started
            print(f"{turns} turns, {in_flight} in flight, {took_s:.0f} s; killed {dict(killer.killed)}")
            print(f"lost {found['lost']}, crossed {found['crossed']}, {dict(found)}")
    finally:
        killer.end()
    raise typer.Exit(int(found["lost"] + found["crossed"] > 0))


if __name__ == "__main__":
    app()
