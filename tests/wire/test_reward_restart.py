"""64 clients while the scoring API is ended, killed and started again on its port.

What was accepted is answered, and rightly; everything else is an error that a client can tell: a refused or reset
connection, or 503 with Retry-After. Never a 500, never a body that is wrong or cut.
"""

from __future__ import annotations

import asyncio
import random
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from foundation.net import free_port
from reward_client.errors import JudgeUnreachable
from reward_client.reward_model import RewardModelClient
from reward_client.scale_map import ScaleMap
from tests.reward_api import Api, serve

N_CLIENTS = 64
PATIENCE_S = 120.0
REFUSED = {"ConnectError"}
RESET = {"ReadError", "RemoteProtocolError", "WriteError"}
Case = tuple[str, dict[str, Any]]


def make_cases() -> list[Case]:
    """Requests of all three kinds, short and long."""
    item = {"prompt": "甲药的禁忌是什么？", "response": "对本品过敏者禁用"}
    pair = {"prompt": "问", "chosen": "答" * 90, "rejected": "错误的回答"}
    items = [{"prompt": f"问{n}", "response": "答" * n} for n in (1, 50, 100)]
    return [("/score", item), ("/score-pair", pair), ("/score-batch", {"items": items})]


CASES = make_cases()


def same(found: Any, expected: Any) -> bool:
    """Equal, numbers to 1e-4."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return found == pytest.approx(expected, abs=1e-4) if isinstance(expected, float) else found == expected


class Load:
    """Clients that send one request after the other. `seen` counts what they saw, `scored` who got a score."""

    def __init__(self, url: str, expected: list[Any]) -> None:
        self.url = url
        self.expected = expected
        self.seen: Counter[str] = Counter()
        self.scored: set[int] = set()
        self.is_over = False

    async def client(self, number: int) -> None:
        rng = random.Random(number)
        # Every other client opens a new connection for each request.
        headers = {"connection": "close"} if number % 2 else {}
        async with httpx.AsyncClient(
            base_url=self.url, trust_env=False, verify=False, timeout=60, headers=headers
        ) as http:
            while not self.is_over:
                case, expected = rng.choice(list(zip(CASES, self.expected, strict=True)))
                outcome = await self._ask(http, case, expected)
                self.seen[outcome] += 1
                if outcome == "200":
                    self.scored.add(number)
                else:
                    await asyncio.sleep(0.2)

    async def _ask(self, http: httpx.AsyncClient, case: Case, expected: Any) -> str:
        try:
            answer = await http.post(case[0], json=case[1])
        except httpx.TransportError as exc:
            return type(exc).__name__
        if answer.status_code == 200:
            return "200" if same(answer.json(), expected) else f"wrong: {answer.text}"
        told = answer.status_code == 503 and answer.headers.get("retry-after", "").isdecimal()
        return "503" if told and answer.json()["detail"] else f"{answer.status_code}: {answer.text}"

    async def all_scored(self) -> None:
        """Wait until every client has got a score from now on."""
        self.scored.clear()
        await until(lambda: len(self.scored) == N_CLIENTS)


async def until(done: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline_s, "nothing came of it"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def loaded(api: Api) -> AsyncIterator[Load]:
    """All clients at work until the block ends."""
    load = Load(api.url, [api.post(*case).json() for case in CASES])
    clients = [asyncio.create_task(load.client(number)) for number in range(N_CLIENTS)]
    try:
        yield load
    finally:
        load.is_over = True
        await asyncio.gather(*clients)


@asynccontextmanager
async def serving(model: Path, port: int, *flags: str) -> AsyncIterator[Api]:
    """A server; the clients go on while it starts and ends."""
    manager = serve(model, *flags, port=port)
    api = await asyncio.to_thread(manager.__enter__)
    try:
        yield api
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


@pytest.mark.long
async def test_64_clients_over_an_end_a_kill_and_two_starts(reward_model_folder: Path) -> None:
    port = free_port()
    async with serving(reward_model_folder, port) as first, loaded(first) as load:
        await load.all_scored()
        first.signal(signal.SIGTERM)
        said = await asyncio.to_thread(first.ended)
        accepted, answered = (int(n) for n in re.findall(r"(\d+) (?:requests accepted|answered)", said))
        assert accepted == answered >= load.seen["200"] >= N_CLIENTS and " 0 not answered" in said, said
        assert "Traceback" not in said
        await until(lambda: load.seen["ConnectError"] > 0)
        assert load.seen.keys() <= {"200", "503"} | REFUSED, load.seen
        async with serving(reward_model_folder, port) as second:
            await load.all_scored()
            assert load.seen.keys() <= {"200", "503"} | REFUSED, load.seen
            second.signal(signal.SIGKILL)
            await until(lambda: not second.process.is_alive())
        async with serving(reward_model_folder, port):
            await load.all_scored()
        assert load.seen.keys() <= {"200", "503"} | REFUSED | RESET, load.seen


@pytest.mark.slow
async def test_what_outlasts_the_longest_drain_is_told_so(reward_model_folder: Path) -> None:
    """Also the next server can start meanwhile: the port is free from the first moment on."""
    port, items = free_port(), [{"prompt": "问" * 300, "response": "答" * 300}] * 256
    async with (
        serving(reward_model_folder, port, "--drain-s", "1", "--batch-size", "256") as first,
        httpx.AsyncClient(base_url=first.url, trust_env=False, verify=False, timeout=60) as http,
    ):
        quick = [asyncio.create_task(http.post("/score-batch", json={"items": items[:2]})) for _ in range(4)]
        slow = [asyncio.create_task(http.post("/score-batch", json={"items": items})) for _ in range(6)]
        await asyncio.gather(*quick)
        first.signal(signal.SIGTERM)
        answers = await asyncio.gather(*slow)
        said = await asyncio.to_thread(first.ended)
    codes = {answer.status_code for answer in answers}
    assert codes <= {200, 503} and 503 in codes, codes
    assert all(len(answer.json()["results"]) == 256 for answer in answers if answer.status_code == 200)
    told = [answer for answer in answers if answer.status_code == 503]
    assert all(answer.headers["retry-after"] == "1" for answer in told) and f"{len(told)} not answered" in said, said


@pytest.mark.long
async def test_the_training_client_sees_typed_faults_and_recovers(reward_model_folder: Path) -> None:
    port, scale = free_port(), ScaleMap(logits=(-50.0, 50.0), rewards=(0.0, 1.0))
    patient = RewardModelClient(f"http://127.0.0.1:{port}", scale, timeout_s=PATIENCE_S)
    hasty = replace(patient, waits_for_server=False, attempts=2)

    async def ask(client: RewardModelClient) -> float:
        return (await client.score(prompt="问", response="答")).reward

    async with serving(reward_model_folder, port) as first:
        expected = await ask(patient)
        first.signal(signal.SIGKILL)
        await until(lambda: not first.process.is_alive())
    started_s = time.monotonic()
    with pytest.raises(JudgeUnreachable, match="no connection"):
        await ask(hasty)
    assert time.monotonic() - started_s < 10
    waiting = [asyncio.create_task(ask(patient)) for _ in range(8)]
    async with serving(reward_model_folder, port) as second:
        assert await asyncio.gather(*waiting) == pytest.approx([expected] * 8)
        tasks = [asyncio.create_task(ask(hasty)) for _ in range(200)]
        await until(lambda: any(task.done() for task in tasks))
        second.signal(signal.SIGKILL)
        found = await asyncio.gather(*tasks, return_exceptions=True)
    faults = [one for one in found if isinstance(one, BaseException)]
    assert all(isinstance(fault, JudgeUnreachable) for fault in faults), faults
    assert [one for one in found if isinstance(one, float)] == pytest.approx([expected] * (200 - len(faults)))
