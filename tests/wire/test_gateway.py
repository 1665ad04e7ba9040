"""The gateway alone: streams, slow and broken model servers, many calls, hostile bodies, a store that comes late."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any

import agentlightning as agl
import httpx
import pytest
from agentlightning.store.client_server import LightningStoreServer

from agl_plugin.daemon import _make_proxy
from agl_plugin.options import DaemonOptions
from agl_plugin.proxy.calls import MAX_BODY_BYTES
from agl_plugin.proxy.gate import Gate
from agl_plugin.proxy.spans import WEIGHTS
from agl_plugin.proxy.tokens import AFTER
from agl_plugin.update.adapter import read_calls
from foundation.net import free_port
from sql_agent.testing.server import RESET, Answer, FakeServer, Reply, in_turn, openai_server
from tests.proxies import (
    IDS,
    LOG_PROBS,
    MESSAGES,
    MODEL,
    PROMPT_IDS,
    Running,
    serving,
    vllm,
    vllm_reply,
    vllm_stream,
)
from tests.spans import call_of

pytestmark = pytest.mark.filterwarnings("default")
SLOW_S = 0.5
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


def slow(request: dict[str, Any]) -> Answer:
    return Reply(body=vllm_reply(request), pause_s=SLOW_S)


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with openai_server(vllm) as server:
        yield server


@pytest.fixture
async def running(server: FakeServer) -> AsyncIterator[Running]:
    async with serving(server.base_url) as running:
        yield running


def events_of(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def test_no_websocket_is_taken(running: Running) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": KEY}
    _, url = await running.attempt()
    assert (await running.http.get(url, headers=upgrade)).status_code == 404
    body = {"model": MODEL, "messages": MESSAGES}
    assert (await running.http.post(url, json=body, headers=upgrade)).status_code == 200


async def test_a_stream_is_passed_on_without_ids_which_the_span_has(running: Running, server: FakeServer) -> None:
    rollout, url = await running.attempt()
    events = events_of((await running.call(url, stream=True)).text)
    assert server.requests[-1].json["stream"] is True
    assert "".join(event["choices"][0]["delta"]["content"] for event in events) == "well"
    assert not any("prompt_token_ids" in e or "usage" in e or "token_ids" in e["choices"][0] for e in events)
    assert not any(event["choices"][0]["logprobs"] for event in events)
    (span,) = await running.spans(rollout)
    call = call_of(span)
    assert call and call.prompt == PROMPT_IDS and call.facts["response_id"] == events[0]["id"]
    assert (call.sampled, call.log_probs, call.finish_reason) == (IDS, LOG_PROBS, "stop")
    assert "'content': 'well'" in str(span.attributes["llm.hosted_vllm.choices"])


async def test_the_usage_of_a_stream_is_there_for_who_asks(running: Running) -> None:
    rollout, url = await running.attempt()
    events = events_of((await running.call(url, stream=True, stream_options={"include_usage": True})).text)
    assert events[-1]["usage"]["completion_tokens"] == len(IDS) and "prompt_token_ids" not in events[0]
    assert len(read_calls(await running.spans(rollout))[0]) == 1


async def test_a_stream_arrives_while_it_is_made() -> None:
    def dripping(request: dict[str, Any]) -> Answer:
        return Reply(body=vllm_stream(request), content_type="text/event-stream", chunk_pause_s=0.1)

    with openai_server(dripping) as server:
        async with serving(server.base_url) as running:
            _, url = await running.attempt()
            body, arrived_s = {"model": MODEL, "messages": MESSAGES, "stream": True}, []
            async with running.http.stream("POST", url, json=body) as reply:
                async for _ in reply.aiter_bytes():
                    arrived_s.append(time.monotonic())
    assert arrived_s[-1] - arrived_s[0] > 0.2


async def test_an_agent_that_reads_nothing_of_a_stream_holds_no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agl_plugin.proxy.calls.UNREAD_S", 0.3)
    long = b"".join(b"data: %s\n\n" % json.dumps({"choices": [], "id": "x" * 2**16}).encode() for _ in range(256))
    with openai_server(lambda _: Reply(body=long, content_type="text/event-stream")) as server:
        async with serving(server.base_url) as running:
            _, url = await running.attempt()
            body = {"model": MODEL, "messages": MESSAGES, "stream": True}
            async with running.http.stream("POST", url, json=body) as reply:
                assert reply.status_code == 200 and running.gate.in_flight == 1
                assert await running.at_rest(within_s=30)


async def test_a_stream_that_lost_tokens_gives_no_ids() -> None:
    def losing(request: dict[str, Any]) -> Answer:
        return Reply(body=vllm_stream(request, lost=1), content_type="text/event-stream")

    with openai_server(losing) as server:
        async with serving(server.base_url) as running:
            rollout, url = await running.attempt()
            events_of((await running.call(url, stream=True)).text)
            (span,) = await running.spans(rollout)
            assert call_of(span) is None and "token_ids" not in str(span.attributes["llm.hosted_vllm.choices"])
            assert "gateway_incomplete_streams_total 1.0" in await running.metrics()


@pytest.mark.long
async def test_256_calls_are_in_flight_at_once() -> None:
    all_there = threading.Barrier(256)

    def together(request: dict[str, Any]) -> Answer:
        all_there.wait(60.0)  # breaks, and answers none of them, where fewer come
        return vllm_reply(request)

    with openai_server(together) as server:
        async with serving(server.base_url) as running:
            rollout, url = await running.attempt()
            replies = await asyncio.gather(*(running.call(url) for _ in range(256)))
            assert {reply.status_code for reply in replies} == {200} and server.most_open == 256
            assert len(read_calls(await running.spans(rollout, n=256))[0]) == 256


async def test_an_engine_has_as_many_calls_as_it_is_said_to_take() -> None:
    """Also where all of them belong to rollouts that are at home there: the other engine takes what is too many."""

    def slower(request: dict[str, Any]) -> Answer:
        return Reply(body=vllm_reply(request), pause_s=SLOW_S if "max_tokens" in request else 0.0)

    with openai_server(slower) as one, openai_server(slower) as other:
        async with serving(one.base_url, other.base_url, calls_per_engine=3) as running:
            urls = [(await running.attempt())[1] for _ in range(18)]
            for url in urls:  # a home for each, in turn
                assert (await running.call(url)).is_success
            replies = await asyncio.gather(*(running.call(url, max_tokens=9) for url in urls[::2]))
            assert {reply.status_code for reply in replies} == {200}
            assert (one.most_open, other.most_open) == (3, 3)


async def test_an_engine_of_the_gateways_machine_comes_before_one_elsewhere_until_it_is_full() -> None:
    with openai_server(slow) as near, openai_server(slow) as far:
        elsewhere = far.base_url.replace("127.0.0.1", "localhost")
        async with serving(elsewhere, near.base_url, calls_per_engine=3, machine="127.0.0.1") as running:
            urls = [(await running.attempt())[1] for _ in range(5)]
            await asyncio.gather(*(running.call(url) for url in urls[:3]))
            assert (near.most_open, far.most_open) == (3, 0)
            await asyncio.gather(*(running.call(url) for url in urls))
            assert (near.most_open, far.most_open) == (3, 2)


@pytest.mark.long
async def test_calls_go_where_the_fewest_are() -> None:
    def slower(request: dict[str, Any]) -> Answer:
        return Reply(body=vllm_reply(request), pause_s=4 * SLOW_S)

    with openai_server(slow) as fast, openai_server(slower) as busy:
        async with serving(fast.base_url, busy.base_url) as running:
            urls = iter([(await running.attempt())[1] for _ in range(32)])  # of a rollout each
            await asyncio.gather(*(running.call(next(urls)) for _ in range(20)))
            assert (fast.most_open, busy.most_open) == (10, 10)
            laggards = [asyncio.create_task(running.call(next(urls))) for _ in range(8)]
            await asyncio.sleep(2 * SLOW_S)  # four of them are left, at the slower one
            before = len(fast.requests), len(busy.requests)
            await asyncio.gather(*(running.call(next(urls)) for _ in range(4)))
            assert (len(fast.requests) - before[0], len(busy.requests) - before[1]) == (4, 0)
            await asyncio.gather(*laggards)


async def test_a_connection_that_is_dropped_before_an_answer_is_a_fault_and_not_asked_again() -> None:
    with openai_server(lambda _: RESET) as server:
        async with serving(server.base_url) as running:
            rollout, url = await running.attempt()
            reply = await running.call(url)
            assert reply.status_code == 502 and "broke the call off" in reply.json()["error"]["message"]
            assert len(server.requests) == 1 and await running.spans(rollout, within_s=0.3) == []


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_breaks_off_is_no_answer(stream: bool) -> None:
    def breaking(request: dict[str, Any]) -> Answer:
        body = vllm_stream(request)[:-20] if stream else json.dumps(vllm_reply(request))
        kind = "text/event-stream" if stream else "application/json"
        return Reply(body=body, content_type=kind, missing_bytes=20)

    with openai_server(breaking) as server:
        async with serving(server.base_url) as running:
            rollout, url = await running.attempt()
            if stream:
                with pytest.raises(httpx.RemoteProtocolError):
                    await running.call(url, stream=True)
            else:
                assert (await running.call(url)).status_code == 502
            assert len(server.requests) == 1 and await running.spans(rollout, within_s=0.3) == []
            assert await running.at_rest()


ODD: list[Any] = [{"message": "?", "logprobs": "?"}, 1]


async def test_what_is_no_completion_is_a_fault() -> None:
    bodies = ["<html>", "[1]", {"error": {"message": "overloaded"}}, {"choices": {}}, *({"choices": [o]} for o in ODD)]
    with openai_server(in_turn(*(Reply(body=body) for body in bodies))) as server:
        async with serving(server.base_url) as running:
            _, url = await running.attempt()
            assert [(await running.call(url)).status_code for _ in bodies] == [502] * len(bodies)


async def test_calls_of_a_rollout_stay_at_one_address_and_rollouts_are_shared_out() -> None:
    with ExitStack() as servers:
        there = [servers.enter_context(openai_server(vllm)) for _ in range(3)]
        async with serving(*(one.base_url for one in there)) as running:
            urls = [(await running.attempt())[1] for _ in range(9)]
            for _ in range(3):
                for n in random.sample(range(9), 9):
                    assert (await running.call(urls[n], messages=[{"role": "user", "content": str(n)}])).is_success
            asked = [{one.json["messages"][0]["content"] for one in server.requests} for server in there]
            assert [len(rollouts) for rollouts in asked] == [3, 3, 3] and set.union(*asked) == set("012345678")
            assert [len(server.requests) for server in there] == [9, 9, 9]


async def test_a_rollout_whose_address_is_gone_moves_and_stays_where_it_is() -> None:
    with ExitStack() as servers:
        there = [servers.enter_context(openai_server(vllm)) for _ in range(2)]
        gone, port = ExitStack(), free_port()
        async with serving(f"http://127.0.0.1:{port}/v1", *(one.base_url for one in there)) as running:
            lost = gone.enter_context(openai_server(vllm, port=port))  # after the fork, which would hold its socket
            _, url = await running.attempt()
            assert (await running.call(url)).is_success and len(lost.requests) == 1
            gone.close()
            assert [(await running.call(url)).status_code for _ in range(4)] == [200] * 4
            assert sorted(len(server.requests) for server in there) == [0, 4]


@pytest.mark.long
async def test_an_address_without_a_server_is_passed_over_and_one_that_comes_late_is_waited_for() -> None:
    port = free_port()
    with ExitStack() as servers:
        there = servers.enter_context(openai_server(vllm))
        async with serving(f"http://127.0.0.1:{port}/v1", there.base_url) as running:
            _, url = await running.attempt()
            assert {(await running.call(url)).status_code for _ in range(4)} == {200} and len(there.requests) == 4
            with openai_server(vllm, port=port) as back:
                deadline = time.monotonic() + 30
                while not back.requests and time.monotonic() < deadline:
                    _, url = await running.attempt()
                    assert (await running.call(url)).status_code == 200
                assert back.requests
        async with serving(f"http://127.0.0.1:{port}/v1") as running:
            _, url = await running.attempt()
            waiting = asyncio.create_task(running.call(url))
            await asyncio.sleep(0.5)
            servers.enter_context(openai_server(vllm, port=port))
            assert (await waiting).status_code == 200


async def test_an_address_that_takes_no_connections_is_tried_once_and_rests(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agl_plugin.proxy.calls.TRY_S", 0.2)
    monkeypatch.setattr("agl_plugin.proxy.calls.REST_S", 600.0)
    with ExitStack() as sockets:
        full, *waiting = [sockets.enter_context(socket.socket()) for _ in range(4)]
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for one in waiting:  # as many as fit; to more the kernel says nothing
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        nobody = [f"http://127.0.0.1:{port}/v1" for port in (full.getsockname()[1], free_port())]
        async with serving(*nobody, server.base_url) as running:
            _, url = await running.attempt()
            assert {(await running.call(url)).status_code for _ in range(4)} == {200}
            assert "gateway_connection_retries_total 2.0" in await running.metrics()


async def test_a_process_that_was_killed_is_noticed_and_started_again() -> None:
    with openai_server(slow) as server:
        async with serving(server.base_url) as running:
            _, url = await running.attempt()
            call = asyncio.create_task(running.call(url))
            while not running.gate.in_flight:
                await asyncio.sleep(0.01)
            process = running.proxy.server_launcher._proc
            process.kill()
            process.join()
            with pytest.raises(httpx.TransportError):
                await call
            assert not running.proxy.is_running() and running.gate.in_flight == 1
            await running.proxy.restart()
            assert running.proxy.is_running() and running.gate.in_flight == 0
            assert (await running.call(url)).status_code == 200


async def test_a_stop_lets_calls_end_and_sends_their_spans() -> None:
    with openai_server(slow) as server:
        async with serving(server.base_url) as running:
            rollout, url = await running.attempt()
            calls = [asyncio.create_task(running.call(url)) for _ in range(8)]
            while running.gate.in_flight < 8:
                await asyncio.sleep(0.01)
            await running.proxy.stop()
            assert {(await call).status_code for call in calls} == {200}
            assert len(await running.spans(rollout, n=8, within_s=1.0)) == 8
            with pytest.raises(httpx.ConnectError):
                await running.call(url)


async def test_the_gate_counts_a_call_that_nobody_waits_for() -> None:
    with openai_server(slow) as server:
        async with serving(server.base_url) as running:
            _, url = await running.attempt()
            with pytest.raises(httpx.ReadTimeout):
                await running.http.post(url, json={"model": MODEL, "messages": MESSAGES}, timeout=0.1)
            assert running.gate.in_flight == 1
            while running.gate.in_flight:
                await asyncio.sleep(0.02)
            assert len(server.requests) == 1


@pytest.mark.parametrize("body", [b"{", b"[1]", b'{"a": ' + b"[" * 100_000, b"\xff", b""])
async def test_a_body_that_is_no_json_object_is_refused(running: Running, server: FakeServer, body: bytes) -> None:
    _, url = await running.attempt()
    n_asked = len(server.requests)
    reply = await running.http.post(url, content=body)
    assert reply.status_code == 400 and "JSON" in reply.json()["error"]["message"] and len(server.requests) == n_asked
    assert (await running.call(url)).status_code == 200


async def test_a_body_above_the_limit_is_refused_and_a_long_one_below_it_is_not(
    running: Running, server: FakeServer
) -> None:
    _, url = await running.attempt()
    n_asked = len(server.requests)
    reply = await running.http.post(url, content=spaces(MAX_BODY_BYTES + 1))
    assert reply.status_code == 413 and str(MAX_BODY_BYTES) in reply.json()["error"]["message"]
    assert len(server.requests) == n_asked
    long = await running.call(url, messages=[{"role": "user", "content": "药" * 2**20}])
    assert long.status_code == 200 and len(server.requests[-1].json["messages"][0]["content"]) == 2**20


async def spaces(n_bytes: int) -> AsyncIterator[bytes]:
    """So many bytes, in parts of unknown number."""
    for start in range(0, n_bytes, 2**16):
        yield b" " * min(2**16, n_bytes - start)


async def test_spans_of_an_unknown_rollout_take_no_others_with_them(running: Running) -> None:
    rollout, url = await running.attempt()
    place = url.partition("/rollout/")[0]
    strangers = [f"{place}/rollout/ro-{n}/attempt/at-1/v1/chat/completions" for n in range(2)]
    strangers.append(f"{place}/rollout/{rollout}/attempt/at-1/v1/chat/completions")
    replies = await asyncio.gather(*(running.call(one) for one in [strangers[0], url, *strangers[1:], url]))
    assert {reply.status_code for reply in replies} == {200}
    assert len(read_calls(await running.spans(rollout, n=2))[0]) == 2
    while 'gateway_spans_total{outcome="refused"} 3.0' not in (said := await running.metrics()):
        await asyncio.sleep(0.05)
    assert 'gateway_spans_total{outcome="stored"} 2.0' in said and "lost" not in said


async def test_the_address_of_agent_lightning_1_is_answered_and_traced(running: Running) -> None:
    rollout, url = await running.attempt()
    place, _, attempt = url.removesuffix("/v1/chat/completions").rpartition("/rollout/")
    told = f"{place}/proxy/rollout/{attempt}/mode/train/openai/v1"
    assert (await running.call(f"{told}/chat/completions")).status_code == 200
    assert (await running.call(f"{told}/completions")).status_code == 404
    assert len(read_calls(await running.spans(rollout, n=1))[0]) == 1


async def with_a_store_that_is_away(running: Running) -> tuple[Any, LightningStoreServer, str, str]:
    """What the store keeps, the server that is to be started, a rollout, and the address of its calls."""
    kept = agl.InMemoryLightningStore(thread_safe=True)
    away = LightningStoreServer(kept, "127.0.0.1", free_port())
    await running.proxy.stop()
    running.proxy.store = away
    await running.proxy.start()
    rollout = await kept.start_rollout(None)
    place = running.proxy.as_resource().get_base_url(rollout.rollout_id, rollout.attempt.attempt_id)
    return kept, away, rollout.rollout_id, f"{place}/v1/chat/completions"


@pytest.mark.long
async def test_spans_wait_for_a_store_that_does_not_answer(running: Running) -> None:
    kept, away, rollout, url = await with_a_store_that_is_away(running)
    assert (await running.call(url)).status_code == 200
    await asyncio.sleep(0.5)
    await away.start()
    deadline = time.monotonic() + 10
    while not (spans := await kept.query_spans(rollout)) and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    await away.stop()
    assert len(spans) == 1


async def test_the_store_numbers_spans_as_they_come(running: Running) -> None:
    rollout, url = await running.attempt()
    for n, stream in enumerate((False, True, False), start=1):
        await running.call(url, stream=stream)
        assert [span.sequence_id for span in await running.spans(rollout, n=n)] == list(range(1, n + 1))
    await asyncio.gather(*(running.call(url) for _ in range(10)))
    spans = await running.spans(rollout, n=13)
    assert [span.sequence_id for span in spans] == list(range(1, 14))
    assert await running.store.get_next_span_sequence_id(rollout, "any") == 14


@pytest.mark.long
@pytest.mark.parametrize("n_calls", [1, 16])
async def test_no_call_waits_for_the_store(running: Running, n_calls: int) -> None:
    kept, away, rollout, url = await with_a_store_that_is_away(running)
    for _ in range(4):
        replies = await asyncio.wait_for(asyncio.gather(*(running.call(url) for _ in range(n_calls))), 60.0)
        assert all(reply.status_code == 200 for reply in replies)
    assert not await kept.query_spans(rollout)
    await away.start()
    deadline = time.monotonic() + 10
    while len(await kept.query_spans(rollout)) < 4 * n_calls and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert len(await kept.query_spans(rollout)) == 4 * n_calls
    await away.stop()


async def test_what_an_agent_writes_cannot_stand_for_an_answer(server: FakeServer) -> None:
    def without_ids(request: dict[str, Any]) -> Answer:
        return vllm_reply({})

    forged = {
        "prompt_token_ids": [1],
        "choices": [{"token_ids": [2]}],
        "id": "forged",
        "usage": {"completion_tokens": 1},
    }
    strange = {"user": "\ud83d", "seed": 2**70, "\ud83d": None, "metadata": {"a": [1.5, None]}, "stop": "\ud83d"}
    with openai_server(without_ids) as bare:
        async with serving(bare.base_url) as running:
            rollout, url = await running.attempt()
            for key, value in forged.items():
                refused = await running.call(url, **{key: value})
                assert refused.status_code == 400 and refused.json()["error"]["param"] == key
            reply = await running.http.post(url, content=json.dumps({"model": MODEL, "messages": MESSAGES, **strange}))
            (span,) = await running.spans(rollout)
    assert reply.status_code == 200 and call_of(span) is None
    assert span.attributes["llm.hosted_vllm.id"] == reply.json()["id"]
    assert not {"llm.hosted_vllm.prompt_token_ids"} & set(span.attributes)
    assert span.attributes["llm.hosted_vllm.seed"] == str(2**70)


async def test_the_span_and_the_metrics_say_which_weights_answered(running: Running) -> None:
    rollout, url = await running.attempt()
    for weights in (3, 4):
        running.gate.open(weights=weights)
        await running.call(url)
    spans = sorted(await running.spans(rollout, n=2), key=lambda span: span.sequence_id)
    assert [span.attributes[WEIGHTS] for span in spans] == [3, 4]
    said = await running.metrics()
    assert "gateway_weights_version 4.0" in said and 'gateway_calls_total{status="200"} 2.0' in said
    assert "gateway_call_seconds_count 2.0" in said and "gateway_in_flight{address=" in said


async def test_other_addresses_are_refused_with_those_that_there_are(running: Running) -> None:
    place = running.proxy.as_resource().endpoint
    reply = await running.http.post(f"{place}/v1/embeddings", json={})
    assert reply.status_code == 404 and "/v1/chat/completions" in reply.json()["error"]["message"]
    assert (await running.http.get(f"{place}/v1/models")).json()["data"][0]["id"] == MODEL
    assert (await running.call(f"{place}/v1/chat/completions")).status_code == 200  # of no rollout, and without a span


async def test_half_sent_bodies_hold_up_nobody_and_have_a_limit(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agl_plugin.proxy.calls.MOST_CALLS", 8)
    monkeypatch.setattr("agl_plugin.proxy.calls.BODY_S", 1.0)
    async with serving(server.base_url) as running:
        _, url = await running.attempt()
        place = httpx.URL(url)
        head = f"POST {place.path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
        halves = [await asyncio.open_connection(place.host, place.port) for _ in range(64)]
        for _, writer in halves:
            writer.write(head.encode() + b'{"messages": ')
            await writer.drain()
        async with asyncio.timeout(0.9):  # less than any of them has
            assert (await running.call(url)).status_code == 200
        for reader, writer in halves:
            assert b" 408 " in await reader.readline()
            writer.close()
        assert (await running.call(url)).status_code == 200


async def test_a_stop_waits_for_calls_as_long_as_a_rollout_may_take() -> None:
    options = DaemonOptions(poll_interval_s=1.0, rollout_timeout_s=0.5, stall_s=1.0)
    store = LightningStoreServer(agl.InMemoryLightningStore(), "127.0.0.1", free_port())
    await store.start()
    gate = Gate()
    proxy = _make_proxy(options, store, gate)
    try:
        await proxy.start()
        async with gate.call():
            async with asyncio.timeout(4.0):  # no limit of its own
                await proxy._drained()
            await asyncio.wait_for(proxy.stop(), 30.0)
        assert not proxy.is_running()
    finally:
        await store.stop()


@pytest.mark.long
async def test_a_stop_waits_for_long_answers_and_a_cancelled_one_does_not() -> None:
    with openai_server(lambda request: Reply(body=vllm_reply(request), pause_s=6.5)) as server:
        async with serving(server.base_url) as running:
            _, url = await running.attempt()
            call = asyncio.create_task(running.call(url))
            while not running.gate.in_flight:
                await asyncio.sleep(0.01)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(running.proxy.stop(), 0.2)
            assert running.proxy.is_running() and not call.done()
            await running.proxy.stop()
            assert (await call).status_code == 200


def remembering(request: dict[str, Any]) -> Answer:
    """A model server whose prompts grow with the messages; what was not said before stands last."""
    reply = vllm_reply(request)
    said = "/".join(message["content"] for message in request["messages"])
    reply["prompt_token_ids"] = [ord(letter) for letter in said]
    reply["choices"][0]["token_ids"] = [ord("/"), *(ord(letter) for letter in reply["id"])]
    return Reply(body=reply, pause_s=0.02 * (len(said) % 3))


@pytest.mark.long
@pytest.mark.parametrize("plain_spans", [False, True])
async def test_calls_in_a_row_and_at_once_are_read_as_the_model_server_saw_them(plain_spans: bool) -> None:
    """With a gateway that is started again in the middle: it begins with a whole prompt."""
    with openai_server(remembering) as server:
        async with serving(server.base_url, plain_spans=plain_spans) as running:
            rollout, url = await running.attempt()
            wanted: dict[str, list[int]] = {}

            async def call(*said: str) -> None:
                messages = [{"role": "user", "content": one} for one in said]
                name = (await running.call(url, messages=messages)).json()["id"]
                wanted[name] = [ord(letter) for letter in "/".join(said)]

            for said in (["question"], ["question", "tool"], ["other"], ["question", "tool", "more"]):
                await call(*said)
            await asyncio.gather(*(call("question", "tool", "x" * n) for n in range(8)))
            await running.proxy.restart()
            await call("question", "tool", "more", "last")
            spans = await running.spans(rollout, n=13)
            calls = read_calls(spans)[0]
    assert {call.facts["response_id"]: list(call.prompt) for call in calls} == wanted
    assert all(("messages" in str(span.attributes)) == plain_spans for span in spans)
    whole = [span for span in spans if AFTER not in span.attributes]
    assert len(whole) == (
        13 if plain_spans else 4
    )  # the first, one with other words, one after it, one after the start
