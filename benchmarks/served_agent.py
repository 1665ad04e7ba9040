"""What the served agent costs beside the bare loop, and whether it loses or crosses answers while its parts are killed.

  .venv/bin/python -m benchmarks.served_agent overhead [--turns 200] [--in-flight 64] [--rounds 10]
  .venv/bin/python -m benchmarks.served_agent soak [--turns 10000] [--in-flight 256] [--kill-every 50]

`overhead`: CPU of a turn (one message, one streamed answer of 52 tokens, no call of a tool) of `agentgrpo serve
--as-agent`, whole and streamed, and of the same conversations in a process without HTTP before them; all before
support/model_server.py, in turn, as the CPU time of the same work doubles and halves with what else the machine does.
`soak`: each turn asks for N + 1 through a tool, as a chat or response, whole or streamed; after some answers, on
average `--kill-every`, the model server or a process of the tools is killed. An answer to another question is crossed;
a turn whose reply is cut or never comes is lost; turns that got an error are asked again until they have an answer. The
server's memory is told five times.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import psutil
import typer

from benchmarks.support.load import cpu_s, server, work_on
from foundation.net import free_port
from foundation.processes import end_with_parent
from foundation.stats import estimate
from sql_agent.agent.conversation import Conversation
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import build_config, load_recipe

TOOLS = 'def add(a: float, b: float) -> float:\n    """Add two numbers."""\n    return a + b\n'
RECIPE = '[agent]\nsystem_prompt = "tools"\ntools = ["tools.py"]\n'
MODEL = "fake-model"
app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False)


@contextmanager
def recipe() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "tools.py").write_text(TOOLS, encoding="utf-8")
        (Path(name) / "config.toml").write_text(RECIPE, encoding="utf-8")
        yield Path(name)


@contextmanager
def served(folder: Path, model_url: str, *, max_open: int) -> Iterator[tuple[str, int]]:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "sql_agent", "serve", f"{MODEL}@{model_url}", "--as-agent", "--port", str(port)]
    command += ["--recipe", str(folder), "--max-open", str(max_open)]
    with server(command, f"{address}/health", AGENT_API_TOKEN="") as pid:
        yield f"{address}/v1", pid


@app.command(hidden=True)
def loop(folder: Path, model_url: str, in_flight: int) -> None:
    """The bare loop in this process: for each number of turns that is read, prints its CPU in ms a turn."""
    with EpisodeRunner(build_config(load_recipe(str(folder)))) as runner, asyncio.Runner() as events:
        llm = LLMEndpoint(base_url=model_url, model=MODEL, temperature=1.0)

        async def turn(_: int) -> None:
            talk = Conversation(runner, llm)
            await talk.say("1", lambda *_: None)
            await talk.reset()

        for turns in map(int, sys.stdin):
            before = cpu_s(os.getpid())
            events.run(work_on(turn, range(turns), in_flight))
            print(1000 * (cpu_s(os.getpid()) - before) / turns, flush=True)


async def cpu_ms_per_turn(address: str, pid: int, *, stream: bool, turns: int, in_flight: int) -> float:
    """CPU of the served agent in ms a turn. Raises RuntimeError for a turn without an answer."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "1"}], "stream": stream}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def turn(_: int) -> None:
            async with http.post(f"{address}/chat/completions", json=body) as reply:
                text = await reply.text()
                if reply_text(text, stream=stream).count("x") < 50:
                    raise RuntimeError(text[:300])

        before = cpu_s(pid)
        await work_on(turn, range(turns), in_flight)
        return 1000 * (cpu_s(pid) - before) / turns


@contextmanager
def bare_loop(folder: Path, model_url: str, in_flight: int) -> Iterator[Callable[[int], float]]:
    """The loop without a server, in a process of its own: a function of the number of turns to their CPU in ms each."""
    command = [sys.executable, "-m", "benchmarks.served_agent", "loop", str(folder), model_url, str(in_flight)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, preexec_fn=end_with_parent) as process:
        assert process.stdin and process.stdout
        asking, answering = process.stdin, process.stdout

        def measured(turns: int) -> float:
            print(turns, file=asking, flush=True)
            return float(answering.readline())

        yield measured
        asking.close()


@app.command()
def overhead(
    turns: Annotated[int, typer.Option(min=10)] = 200,
    in_flight: Annotated[int, typer.Option(min=1)] = 64,
    rounds: Annotated[int, typer.Option(min=2)] = 10,
) -> None:
    """CPU of a turn, served and bare, in so many rounds of turns after one that warms up."""
    from benchmarks.support.model_server import model_server  # loads the proxy, for which no model process should wait

    costs: list[tuple[float, float, float]] = []
    with (
        recipe() as folder,
        model_server() as model,
        served(folder, f"{model}/0/v1", max_open=in_flight) as (url, pid),
        bare_loop(folder, f"{model}/0/v1", in_flight) as bare,
    ):
        for _ in range(rounds + 1):
            cost = bare(turns)
            whole = asyncio.run(cpu_ms_per_turn(url, pid, stream=False, turns=turns, in_flight=in_flight))
            streamed = asyncio.run(cpu_ms_per_turn(url, pid, stream=True, turns=turns, in_flight=in_flight))
            print(f"{cost:7.2f} {whole:7.2f} {streamed:7.2f} ms a turn, load {os.getloadavg()[0]:.1f}", flush=True)
            costs.append((cost, whole, streamed))
    for column, name in enumerate(("bare loop", "served, whole", "served, streamed")):
        cost = statistics.mean(row[column] for row in costs[1:])
        print(f"{name:17}{cost:7.2f} ms a turn, above the loop: {estimate(row[column] - row[0] for row in costs[1:])}")


class Killer:
    """The model server in a process, killed in turn with a process of the agent's tools."""

    def __init__(self, every: int) -> None:
        self.port = free_port()
        self.every = every
        self.killed = Counter[str]()
        self._model = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "benchmarks.support.adding_model", str(self.port)]
        return subprocess.Popen(command, preexec_fn=end_with_parent)

    async def up(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                return writer.close()
            await asyncio.sleep(0.1)

    async def run(self, pid: int, counts: Counter[str]) -> None:
        """Until it is cancelled, each time some right answers after the last."""
        for number in itertools.count():
            then = counts["right"] + random.randrange(2 * self.every)
            while counts["right"] < then:
                await asyncio.sleep(0.05)
            if number % 2:
                self.end()
                self.killed["model"] += 1
                self._model = self._started()
                await self.up()
            elif leaves := [child for child in psutil.Process(pid).children(recursive=True) if not child.children()]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    random.choice(leaves).kill()
                    self.killed["tool"] += 1

    def end(self) -> None:
        self._model.kill()
        self._model.wait()


def request(address: str, number: int) -> tuple[str, dict[str, Any]]:
    body: dict[str, Any] = {"model": MODEL, "stream": number % 4 > 1}
    if number % 2:
        return f"{address}/chat/completions", body | {"messages": [{"role": "user", "content": str(number)}]}
    return f"{address}/responses", body | {"input": str(number)}


def reply_text(body: str, *, stream: bool) -> str:
    """What a reply says; "" for a fault that ended a stream. Raises ValueError for a stream without an end."""
    if not stream:
        reply = json.loads(body)
        return reply["choices"][0]["message"]["content"] if "choices" in reply else text_of(reply)
    lines = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: ")]
    *rows, last = [{} if line == "[DONE]" else json.loads(line) for line in lines]
    if "error" in last:
        return ""
    if last:
        return text_of(last["response"])
    if lines[-1] != "[DONE]":
        raise ValueError("cut")
    return "".join(row["choices"][0]["delta"].get("content", "") for row in rows)


def text_of(response: dict[str, Any]) -> str:
    """The text of a response. Raises ValueError where it is not complete."""
    if response["status"] != "completed":
        raise ValueError(response["status"])
    return response["output"][-1]["content"][0]["text"]


async def ask_until_answered(
    address: str, pid: int, killer: Killer, counts: Counter[str], *, turns: int, in_flight: int
) -> None:
    """`counts` gets what became of all requests."""
    timeout = aiohttp.ClientTimeout(total=300)
    server, every = psutil.Process(pid), max(1, turns // 5)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http:

        async def turn(number: int) -> None:
            path, body = request(address, number)
            if number % every == 0:
                print(f"{number:6} turns begun: {server.memory_info().rss / 2**20:.0f} MiB, {dict(counts)}", flush=True)
            while True:
                try:
                    async with http.post(path, json=body) as reply:
                        text = reply_text(await reply.text(), stream=body["stream"]) if reply.status == 200 else ""
                except (aiohttp.ClientError, TimeoutError, ValueError) as exc:
                    counts["lost"] += 1
                    counts[type(exc).__name__] += 1
                    return
                if text:
                    counts["right" if text == f"It is {number + 1}.0" else "crossed"] += 1
                    return
                counts[f"error {reply.status}"] += 1
                await asyncio.sleep(1.0)

        killing = asyncio.ensure_future(killer.run(pid, counts))
        try:
            await work_on(turn, range(1, turns + 1), in_flight)
        finally:
            killing.cancel()


@app.command()
def soak(
    turns: Annotated[int, typer.Option(min=1)] = 10_000,
    in_flight: Annotated[int, typer.Option(min=1)] = 256,
    kill_every: Annotated[int, typer.Option(min=1, help="right answers between two kills, on average")] = 50,
) -> None:
    """Turns while parts are killed: what became of them, also where Ctrl-C ends them. Status 1: some were not right."""
    killer, counts = Killer(kill_every), Counter[str]()
    try:
        asyncio.run(killer.up())
        with (
            recipe() as folder,
            served(folder, f"http://127.0.0.1:{killer.port}/v1", max_open=in_flight) as (address, pid),
        ):
            started = time.monotonic()
            with contextlib.suppress(KeyboardInterrupt):
                asyncio.run(ask_until_answered(address, pid, killer, counts, turns=turns, in_flight=in_flight))
            took_s = time.monotonic() - started
            print(f"{turns} turns, {in_flight} in flight, {took_s:.0f} s; killed {dict(killer.killed)}")
            print(f"lost {counts['lost']}, crossed {counts['crossed']}, {dict(counts)}")
    finally:
        killer.end()
    raise typer.Exit(int(counts["right"] < turns))


if __name__ == "__main__":
    app()
