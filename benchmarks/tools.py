"""What a call of an own tool costs in a process of its own, beside one in the runner's process; and an own episode.

`python -m benchmarks.tools`: processor time of all processes, of the same calls both ways, in turn; the difference per
call, with the processes' start within, and once they are there. The limit is 2 ms. Then the same calls from a function
of agent.episode, whose calls go to the runner by HTTP either way. Linux.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import typer

from benchmarks.support.load import cpu_s
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.tool import EpisodeContext
from sql_agent.agent.toolset import Toolset
from sql_agent.config import build_config
from sql_agent.records import Question

LIMIT_MS = 2.0
TOOLS = '''
def price(item: str, pieces: int = 1) -> dict[str, float]:
    """What an item costs."""
    return {"price": len(item) * pieces}


async def stock(item: str) -> str:
    """How many there are."""
    return f"{len(item)} of {item}"
'''
EPISODE = """
async def play(question, endpoint, tools):
    for n in range(int(question.question)):
        result = await tools[n % 2].invoke('{"item": "pencil"}')
    return result
"""
Play = Callable[[int], Coroutine[Any, Any, None]]  # an episode of so many calls


def with_tools(toolset: Toolset) -> Play:
    """Episodes that call the tools here, sync and async in turn."""

    async def play(n_calls: int) -> None:
        context = EpisodeContext()
        async with toolset.for_episode(Question(id="q", question="?")) as offered:
            tools = {tool.name: tool for tool in offered.tools}
            for n in range(n_calls):
                tool = tools["stock" if n % 2 else "price"]
                result = await tool.invoke(context, '{"item": "pencil"}')
                assert "6" in result, result

    return play


def with_function(runner: EpisodeRunner) -> Play:
    """Episodes of agent.episode with such calls, and none of a model."""
    nowhere = LLMEndpoint(base_url="http://127.0.0.1:9/v1", model="none")

    async def play(n_calls: int) -> None:
        played = await runner.run(Question(id="q", question=str(n_calls)), nowhere)
        assert "6" in played.final_answer and len(played.tool_calls) == n_calls, played

    return play


def cost(play: Play, loop: asyncio.Runner, *, episodes: int, calls: int) -> float:
    """Milliseconds of processor a call."""
    before_s = cpu_s(os.getpid())
    for _ in range(episodes):
        loop.run(play(calls))
    return 1000 * (cpu_s(os.getpid()) - before_s) / (episodes * calls)


def compared(name: str, plays: Sequence[Play], *, episodes: int, calls: int, rounds: int) -> float:
    """Print what a call costs in the runner's process and apart; the difference in ms, the median of the rounds'."""
    with asyncio.Runner() as loop:
        first = [cost(play, loop, episodes=1, calls=calls) for play in plays]
        both = [[cost(play, loop, episodes=episodes, calls=calls) for play in plays] for _ in range(rounds)]
    in_process, remote = (statistics.median(column) for column in zip(*both, strict=True))
    differences = [apart - within for within, apart in both]
    extra = statistics.median(differences)
    print(f"{name}: in the runner's process {in_process:.2f} ms a call, in processes of their own {remote:.2f} ms")
    print(f"  difference {extra:.2f} ms ({min(differences):.2f} to {max(differences):.2f}), limit {LIMIT_MS:g} ms")
    print(f"  the first episode, processes begun within: {first[1] - first[0]:.2f} ms a call")
    return extra


def main(episodes: int = 40, calls: int = 5, rounds: int = 7) -> None:
    """Print the differences; status 1 where one is above the limit."""
    print(f"{rounds} rounds of {episodes} episodes of {calls} calls, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        file = Path(folder) / "tools.py"
        file.write_text(TOOLS, encoding="utf-8")
        episode = Path(folder) / "episode.py"
        episode.write_text(EPISODE, encoding="utf-8")
        agents = [{"tools": [str(file)], "tools_in_process": here} for here in (True, False)]
        own = {"episode": f"{episode}:play", "max_turns": calls}
        toolsets = [stack.enter_context(closing(Toolset(build_config({"agent": agent})))) for agent in agents]
        for toolset in toolsets:
            toolset.check()
        runners = [stack.enter_context(EpisodeRunner(build_config({"agent": agent | own}))) for agent in agents]
        rounds_of = {"episodes": episodes, "calls": calls, "rounds": rounds}
        extra = [
            compared("tools", [with_tools(toolset) for toolset in toolsets], **rounds_of),
            compared("agent.episode", [with_function(runner) for runner in runners], **rounds_of),
        ]
    raise typer.Exit(int(max(extra) > LIMIT_MS))


if __name__ == "__main__":
    typer.run(main)
