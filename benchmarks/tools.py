"""What a call of an own tool costs in a process of its own, beside one in the runner's process.

`python -m benchmarks.tools`: processor time of all processes, of the same calls both ways, in turn; the difference per
call, with the processes' start within, and once they are there. The limit is 2 ms. Linux.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import typer

from benchmarks.support.processor import cpu_s
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


async def episode(toolset: Toolset, n_calls: int) -> None:
    """One episode of calls, sync and async in turn."""
    context = EpisodeContext()
    async with toolset.for_episode(Question(id="q", question="?")) as offered:
        tools = {tool.name: tool for tool in offered.tools}
        for n in range(n_calls):
            said = await tools[("price", "stock")[n % 2]].invoke(context, '{"item": "pencil"}')
            assert "6" in said, said


def costs(toolsets: list[Toolset], *, episodes: int, calls: int, rounds: int) -> Iterator[list[float]]:
    """Milliseconds of processor a call with each toolset, round by round."""
    for _ in range(rounds):
        per_call_ms = []
        for toolset in toolsets:
            before_s = cpu_s(os.getpid())
            for _ in range(episodes):
                asyncio.run(episode(toolset, calls))
            per_call_ms.append(1000 * (cpu_s(os.getpid()) - before_s) / (episodes * calls))
        yield per_call_ms


def main(episodes: int = 40, calls: int = 5, rounds: int = 7) -> None:
    """Print the difference; status 1 where it is above the limit."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tools.py"
        file.write_text(TOOLS, encoding="utf-8")
        configs = [{"agent": {"tools": [str(file)], "tools_in_process": here}} for here in (True, False)]
        with closing(Toolset(build_config(configs[0]))) as here, closing(Toolset(build_config(configs[1]))) as apart:
            for toolset in (here, apart):
                toolset.check()
            first = next(costs([here, apart], episodes=1, calls=calls, rounds=1))
            both = list(costs([here, apart], episodes=episodes, calls=calls, rounds=rounds))
    differences = [there - own for own, there in both]
    in_process, remote = (statistics.median(column) for column in zip(*both, strict=True))
    extra = statistics.median(differences)
    print(f"{rounds} rounds of {episodes} episodes of {calls} calls, {os.cpu_count()} cores")
    print(f"in the runner's process {in_process:.2f} ms a call, in processes of their own {remote:.2f} ms")
    print(
        f"difference {extra:.2f} ms (rounds: {min(differences):.2f} to {max(differences):.2f}), limit {LIMIT_MS:g} ms"
    )
    print(f"the first episode, processes begun within: {first[1] - first[0]:.2f} ms a call")
    raise typer.Exit(int(extra > LIMIT_MS))


if __name__ == "__main__":
    typer.run(main)
