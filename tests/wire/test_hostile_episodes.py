"""Functions of agent.episode that misbehave: each ends its own episode by name, and holds up no other of its runner."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import build_config
from sql_agent.errors import EpisodeFault
from sql_agent.records import Episode, Question
from sql_agent.testing.server import FakeServer, chat_reply, openai_server

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="what a child left is found on Linux"),
    pytest.mark.usefixtures("nursery"),
]
Outcome = tuple[Episode | BaseException, float]  # and after how many seconds it came
Together = Callable[..., list[Outcome]]

EPISODES = """
    import asyncio, collections, ctypes, itertools, os, signal, subprocess, sys, threading, time
    import openai

    async def ask(question, endpoint):
        async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key, max_retries=0) as client:
            said = [{"role": "user", "content": question.question}]
            reply = await client.chat.completions.create(model=endpoint.model, messages=said)
        return reply.choices[0].message.content

    def others_play(until_s):
        if time.monotonic() > until_s:
            raise RuntimeError("the others are held up")
        return not os.path.exists(os.path.join(os.path.dirname(__file__), "others_ended"))

    async def blocks():
        until_s = time.monotonic() + 100
        while others_play(until_s):
            time.sleep(0.05)

    async def spins():
        until_s = time.monotonic() + 100
        while others_play(until_s):
            pass

    async def hangs():
        await asyncio.sleep(600)

    async def sleeps():
        time.sleep(600)

    async def clings():
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                pass

    async def swallows():
        while True:
            try:
                time.sleep(600)
            except BaseException:
                pass

    async def holds_the_lock():
        collections.deque(itertools.repeat(None, 10**12), maxlen=0)

    async def answers_late():
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            return

    async def exits():
        sys.exit("no index")

    async def exits_in_a_task():
        async def later():
            raise SystemExit(3)
        await asyncio.gather(later(), asyncio.sleep(60))

    async def interrupts():
        raise KeyboardInterrupt

    async def cancels():
        raise asyncio.CancelledError("mine")

    async def leaves():
        os._exit(7)

    async def dies():
        os.kill(os.getpid(), signal.SIGKILL)

    async def crashes():
        ctypes.string_at(8)

    async def leaks():
        kept = []
        while True:
            kept.append(bytearray(1 << 24))

    async def floods():
        while True:
            print("x" * 1000)

    async def bombs():
        for _ in range(60):
            subprocess.Popen(["sleep", "61"])
        await asyncio.sleep(60)

    async def garbage():
        for n in range(3, 50):
            try:
                os.write(n, b"\\x00\\x00\\x00\\x04junkjunk")
            except OSError:
                pass

    async def leaves_a_thread():
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()

    async def asks():
        pass

    async def play(question, endpoint, tools):
        os.environ["SEEN"] = os.environ.get("SEEN", "") + question.id
        await globals()[question.meta["do"]]()
        return f"{os.environ['SEEN']} {os.getpid()} {await ask(question, endpoint)}"
"""


@pytest.fixture
def together(tmp_path: Path) -> Iterator[Together]:
    file = tmp_path / "own.py"
    file.write_text(textwrap.dedent(EPISODES), encoding="utf-8")

    def run(*kinds: str, **agent: Any) -> list[Outcome]:
        """Play episodes of these kinds at once, in one runner."""
        settings = {"tools": [], "episode": f"{file}:play", "episode_timeout_s": 60.0, **agent}
        with (
            openai_server(lambda _: chat_reply("5")) as server,
            EpisodeRunner(build_config({"agent": settings})) as own,
        ):
            own.check()
            return asyncio.run(all_of(own, server, kinds, tmp_path / "others_ended"))

    yield run


async def all_of(runner: EpisodeRunner, server: FakeServer, kinds: tuple[str, ...], ended: Path) -> list[Outcome]:
    llm = LLMEndpoint(server.base_url, "fake-model")

    async def one(n: int, kind: str) -> Outcome:
        began_s = time.monotonic()
        try:
            came: Episode | BaseException = await runner.run(
                Question(id=f"q{n}", question="2 + 3?", meta={"do": kind}), llm
            )
        except Exception as exc:
            came = exc
        return came, time.monotonic() - began_s

    first = asyncio.create_task(one(0, kinds[0]))  # the one that misbehaves
    await asyncio.sleep(0.2)
    others = await asyncio.gather(*(one(n, kind) for n, kind in enumerate(kinds[1:], 1)))
    ended.touch()
    return [await first, *others]


def whole(outcome: Outcome) -> bool:
    return isinstance(outcome[0], Episode) and outcome[0].final_answer.endswith(" 5")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["blocks", "spins"])
def test_an_episode_that_blocks_holds_up_only_itself(together: Together, kind: str) -> None:
    outcomes = together(kind, "asks", "asks", episode_timeout_s=200.0)  # it blocks until the others have ended
    assert all(map(whole, outcomes)), outcomes


@pytest.mark.long
@pytest.mark.parametrize("kind", ["hangs", "sleeps", "clings", "swallows", "holds_the_lock", "answers_late"])
def test_an_episode_that_never_ends_is_ended_at_its_limit(together: Together, kind: str) -> None:
    late, *others = together(kind, "asks", "asks", episode_timeout_s=6.0)
    assert isinstance(late[0], EpisodeFault) and late[1] < 20
    assert str(late[0]) == "the episode took more than agent.episode_timeout_s = 6 s; it was ended"
    assert all(map(whole, others)) and max(came_s for _, came_s in others) < 6


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("exits", "raised SystemExit('no index')"),
        ("exits_in_a_task", "raised SystemExit(3)"),
        ("interrupts", "raised KeyboardInterrupt()"),
        ("cancels", "raised CancelledError('mine')"),
        ("leaves", "ended its process with status 7"),
        ("dies", "was ended by SIGKILL"),
        ("crashes", "was ended by SIGSEGV"),
        ("leaks", "needed more memory than agent.tool_memory_mib allows"),
        ("floods", "printed more than 64 KiB"),
        ("bombs", "it ran more than 32 processes"),
        ("garbage", "gave an answer that cannot be read"),
    ],
)
def test_what_ends_a_process_is_a_fault_of_its_episode_alone(together: Together, kind: str, said: str) -> None:
    limits = {"tool_memory_mib": 128, "tool_max_processes": 32, "tool_max_output_kib": 64}
    fault, *others = together(kind, "asks", "asks", **limits)
    assert isinstance(fault[0], EpisodeFault) and str(fault[0]).startswith(f"agent.episode {said}"), fault
    assert fault[1] < 40 and all(map(whole, others))


def test_an_episode_meets_nothing_that_another_changed(together: Together) -> None:
    outcomes = together("leaves_a_thread", "asks", "asks", "asks")
    answers = [outcome[0].final_answer.split() for outcome in outcomes if isinstance(outcome[0], Episode)]
    assert [seen for seen, _, _ in answers] == ["q0", "q1", "q2", "q3"]
    assert len({pid for _, pid, _ in answers}) == 4 and str(os.getpid()) not in {pid for _, pid, _ in answers}


def test_one_loop_speaks_with_an_episode_and_runs_its_relay(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("async def play(question, endpoint, tools):\n    return '5'\n", encoding="utf-8")
    nowhere = LLMEndpoint("http://127.0.0.1:9/v1", "none")
    with EpisodeRunner(build_config({"agent": {"tools": [], "episode": f"{file}:play"}})) as runner:
        assert asyncio.run(runner.run(Question(id="q", question="2 + 3?"), nowhere)).final_answer == "5"
        names = {thread.name for thread in threading.enumerate()}
    assert "tools" in names and "relay" not in names
