"""What the served agent costs beside the bare loop.

  .venv/bin/python -m benchmarks.served_agent overhead [--turns 2000] [--in-flight 64]

CPU of a turn (one message, one streamed answer of 52 tokens, no call of a tool) of `agentgrpo serve --as-agent`, whole
and streamed, and of the same conversations in a process without HTTP before them; both before support/model_server.py,
after a warm-up.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import aiohttp
import psutil
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from foundation.net import free_port
from sql_agent.agent.conversation import Conversation
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import build_config, load_recipe

TOOLS = 'def add(a: float, b: float) -> float:\n    """Add two numbers."""\n    return a + b\n'
RECIPE = '[agent]\nsystem_prompt = "tools"\ntools = ["tools.py"]\n'
MODEL = "fake-model"
app = typer.Typer(add_completion=False, help=__doc__, pretty_exceptions_enable=False)


def cpu_s(pid: int) -> float:
    """CPU time of a process and those that it started, in seconds."""
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


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


if __name__ == "__main__":
    app()
