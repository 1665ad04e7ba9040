"""A gateway that is killed (kill -9) while a step's rollouts have calls in flight: the daemon, the gateway's process, a
store with an address and a model server are real; the runner here plays two calls a rollout and retries none."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import agentlightning as agl
import httpx
import openai
import pytest
from agentlightning.store.client_server import LightningStoreServer
from agentlightning.types import AttemptedRollout

from agl_plugin.daemon import GrpoDaemon
from agl_plugin.options import DaemonOptions
from agl_plugin.update.rows import Limits
from foundation.background import Exited, contained_call
from foundation.errors import RunError
from foundation.net import free_port
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.policy_client import PolicyClient
from sql_agent.agent.relay import Relay, Session
from sql_agent.agent.tool import EpisodeContext
from sql_agent.testing.server import FakeServer, Reply, openai_server
from tests.proxies import MESSAGES, MODEL, vllm_reply
from tests.spans import fault_span, reward_span

pytestmark = pytest.mark.filterwarnings("default")
N_QUESTIONS, N_EACH = 4, 4


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with openai_server(lambda request: Reply(body=vllm_reply(request), pause_s=0.3)) as server:
        yield server


def daemon_of(store: LightningStoreServer, folder: Path) -> GrpoDaemon:
    return GrpoDaemon(
        model=MODEL,
        group_size=N_EACH,
        temperature=1.0,
        pad_token_id=0,
        merge=False,
        store=store,
        run_dir=folder,
        options=DaemonOptions(poll_interval_s=0.02, rollout_timeout_s=60.0, stall_s=30.0),
    )


async def play(daemon: GrpoDaemon, rollout: AttemptedRollout, http: httpx.AsyncClient, n: int) -> None:
    """One rollout, as a runner plays it: a call that fails is a fault."""
    ids = {"rollout": rollout.rollout_id, "attempt": rollout.attempt.attempt_id}
    endpoint = daemon.llm_proxy.as_resource().get_base_url(ids["rollout"], ids["attempt"])
    try:
        for _ in range(2):
            body = {"model": MODEL, "messages": MESSAGES, "temperature": 1.0}
            (await http.post(f"{endpoint}/v1/chat/completions", json=body)).raise_for_status()
        end = reward_span(float(n % 2), seq=10**6, n_calls=2, record="{}", **ids)
    except httpx.HTTPError:
        end = fault_span("llm_fault", seq=10**6, record="{}", **ids)
    await daemon.store.add_span(end)
    await daemon.store.update_attempt(ids["rollout"], ids["attempt"], status="succeeded")


async def runner(daemon: GrpoDaemon, *, at_once: int = 64) -> None:
    """Takes rollouts until it is cancelled."""
    playing = set[asyncio.Task[None]]()
    async with httpx.AsyncClient(trust_env=False, timeout=30.0) as http:
        for n in range(10**9):
            while len(playing) >= at_once or (rollout := await daemon.store.dequeue_rollout()) is None:
                await asyncio.sleep(0.01)
            playing.add(task := asyncio.create_task(play(daemon, rollout, http, n)))
            task.add_done_callback(playing.discard)


async def step(daemon: GrpoDaemon, server: FakeServer, *, kills: int) -> None:
    """Queue a step, kill its gateway so often while calls are in flight, and wait for the step's end."""
    questions: list[dict[str, Any]] = [{"id": n, "question": "?"} for n in range(N_QUESTIONS)]
    address = server.base_url.removeprefix("http://").removesuffix("/v1")
    playing = asyncio.create_task(runner(daemon))
    try:
        ending = asyncio.create_task(asyncio.to_thread(daemon.collect, questions, [address], is_train=True))
        killed = set[Any]()
        while len(killed) < kills and not ending.done():
            process = daemon.llm_proxy.server_launcher._proc  # None while another starts
            if process and process not in killed and daemon.gate.in_flight >= N_QUESTIONS * N_EACH // 2:
                process.kill()
                killed.add(process)
            await asyncio.sleep(0.01)
        await ending
    finally:
        playing.cancel()
        with suppress(asyncio.CancelledError):
            await playing
        await asyncio.to_thread(lambda: daemon._wait(daemon.llm_proxy.stop()))
        daemon.close()


async def killed(folder: Path, server: FakeServer, *, kills: int) -> GrpoDaemon:
    store = LightningStoreServer(agl.InMemoryLightningStore(thread_safe=True), "127.0.0.1", free_port())
    await store.start()
    try:
        daemon = daemon_of(store, folder)
        await step(daemon, server, kills=kills)
    finally:
        await store.stop()
    return daemon


@pytest.mark.long
@pytest.mark.parametrize("kills", [1, 4])
async def test_a_step_goes_on_over_a_gateway_that_is_killed_in_its_middle(
    tmp_path: Path, server: FakeServer, caplog: pytest.LogCaptureFixture, kills: int
) -> None:
    daemon = await killed(tmp_path, server, kills=kills)
    rows = daemon.rollouts.rows
    assert len({row["rollout_id"] for row in rows}) == len(rows) == N_QUESTIONS * N_EACH
    assert Counter(row["unscored"] for row in rows) == {"": N_QUESTIONS * N_EACH}  # none was lost
    assert all(len(row["response_tokens"]) == 2 for row in rows)
    _, metrics = daemon.batch(Limits(64, 64))
    assert metrics["training/reward"] == pytest.approx(0.5, abs=0.4)
    assert daemon.stats["gateway_deaths"] == kills
    assert kills * N_QUESTIONS * N_EACH // 2 <= daemon.stats["requeued"] <= kills * N_QUESTIONS * N_EACH
    told = [one.getMessage() for one in caplog.records if "the LLM proxy died" in one.getMessage()]
    assert len(told) == kills and all("started again" in one for one in told)


async def test_a_gateway_that_dies_again_and_again_ends_the_run_with_its_name(
    tmp_path: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agl_plugin.run.gateway_watch.MOST_DEATHS", 1)
    with pytest.raises(RunError, match=r"the LLM proxy died 2 times in one step .*exit code -9") as caught:
        await killed(tmp_path, server, kills=2)
    assert "token ids" not in str(caught.value) and "judge" not in str(caught.value)


async def test_whoever_waits_for_a_step_hears_that_its_daemon_is_closed(tmp_path: Path, server: FakeServer) -> None:
    store = LightningStoreServer(agl.InMemoryLightningStore(thread_safe=True), "127.0.0.1", free_port())
    await store.start()
    daemon = daemon_of(store, tmp_path)
    address = server.base_url.removeprefix("http://").removesuffix("/v1")
    questions = [{"id": 0, "question": "?"}]
    collect = asyncio.to_thread(contained_call, daemon.collect, questions, [address], is_train=True)
    step = asyncio.create_task(collect)
    while not daemon.llm_proxy.is_running():
        await asyncio.sleep(0.01)
    await asyncio.to_thread(lambda: daemon._wait(daemon.llm_proxy.stop()))
    await asyncio.to_thread(daemon.close)
    with pytest.raises(Exited):
        await asyncio.wait_for(step, 10.0)
    await store.stop()


@pytest.mark.parametrize("own", [False, True], ids=["client", "relay"])
async def test_a_call_waits_for_a_gateway_that_is_being_started(own: bool) -> None:
    """Of the built-in agent, and of a program of one's own; it is sent once."""
    port = free_port()
    llm = LLMEndpoint(f"http://127.0.0.1:{port}/v1", MODEL)
    session = Session(llm, EpisodeContext(), max_turns=1, timeout_s=20.0)
    relay = Relay()
    by_relay = openai.AsyncOpenAI(base_url=relay.open(session), api_key="x", max_retries=0)
    async with by_relay if own else PolicyClient(llm, timeout_s=20.0) as client:
        messages: Any = MESSAGES
        call = asyncio.create_task(client.chat.completions.create(model=MODEL, messages=messages))
        await asyncio.sleep(0.3)
        with openai_server(vllm_reply, port=port) as server:
            assert (await call).choices[0].message.content == "well" and len(server.requests) == 1
    relay.close()
