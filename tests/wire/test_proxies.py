"""What holds for both LLM proxies of a run: addresses, spans, what the agent sees, and the gate."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from agl_plugin.proxy.gate import ALIVE_PATH, GONE, REFUSAL
from agl_plugin.proxy.spans import CALL_SPAN
from agl_plugin.update.adapter import read_calls
from foundation.store_token import VARIABLE, token_headers
from sql_agent.testing.server import Answer, FakeServer, error_reply, openai_server
from tests.proxies import IDS, LOG_PROBS, MESSAGES, MODEL, PROMPT_IDS, Running, serving, vllm_reply
from tests.spans import call_of

# The proxies are forked from this process: an error for a warning there would be a failed request.
pytestmark = pytest.mark.filterwarnings("default")
OVERFLOW = "This model's maximum context length is 64 tokens. However, your request has 99 input tokens."


def policy(request: dict[str, object]) -> Answer:
    """A call of a tool where there are tools; errors for who asks for them."""
    said = str(request["messages"])
    if "overflow" in said:
        return error_reply(400, OVERFLOW)
    if "broken" in said:
        return error_reply(500, "the model server broke")
    function = {"name": "look", "arguments": json.dumps({"at": "甲"})}
    calls = [{"id": "call_0", "type": "function", "function": function}]
    return vllm_reply(request, **({"tool_calls": calls} if request.get("tools") else {}))


@pytest.fixture(scope="module")
def server() -> Iterator[FakeServer]:
    with openai_server(policy) as server:
        yield server


@pytest.fixture(params=["gateway", "litellm"])
async def running(request: pytest.FixtureRequest, server: FakeServer) -> AsyncIterator[Running]:
    plain: dict[str, Any] = {"plain_spans": True} if request.param == "gateway" else {}
    async with serving(server.base_url, kind=request.param, **plain) as running:
        yield running


@pytest.mark.long
async def test_a_call_leaves_one_span_with_ids_and_log_probabilities(running: Running) -> None:
    rollout, url = await running.attempt()
    first, second = await running.call(url), await running.call(url)
    spans = sorted(await running.spans(rollout, n=2), key=lambda span: span.sequence_id)
    assert [span.name for span in spans] == [CALL_SPAN] * 2 and spans[0].sequence_id < spans[1].sequence_id
    calls = read_calls(spans)[0]
    assert [call.facts["response_id"] for call in calls] == [first.json()["id"], second.json()["id"]]
    assert calls[0].prompt == PROMPT_IDS and calls[0].finish_reason == "stop"
    assert (calls[0].sampled, calls[0].log_probs) == (IDS, LOG_PROBS)
    assert spans[0].attributes["llm.hosted_vllm.messages"] == str(MESSAGES)
    assert spans[0].end_time and spans[0].start_time and spans[0].end_time > spans[0].start_time > 1e9


@pytest.mark.long
async def test_the_agent_gets_the_answer_without_log_probabilities(running: Running) -> None:
    _, url = await running.attempt()
    reply = (await running.call(url)).json()
    choice = reply["choices"][0]
    assert choice["message"]["content"] == "well" and choice["finish_reason"] == "stop"
    assert not choice.get("logprobs") and reply["usage"]["completion_tokens"] == len(IDS)


@pytest.mark.long
async def test_the_model_server_is_asked_as_the_agent_asked(running: Running, server: FakeServer) -> None:
    _, url = await running.attempt()
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    sampling = {"top_p": 0.9, "top_k": 20, "seed": 5, "max_tokens": 9, "tools": tools}
    sampling |= {"presence_penalty": 0.5, "stop": ["END"], "chat_template_kwargs": {"enable_thinking": False}}
    called = (await running.call(url, **sampling)).json()["choices"][0]["message"]["tool_calls"][0]
    assert json.loads(called["function"]["arguments"]) == {"at": "甲"} and called["id"] == "call_0"
    sent = server.requests[-1].json
    assert {**sent, **sampling, "model": MODEL, "messages": MESSAGES, "temperature": 1.0} == sent
    assert sent["return_token_ids"] and sent["logprobs"] and sent["top_logprobs"] == 0


@pytest.mark.long
async def test_a_greedy_call_asks_for_no_log_probabilities(running: Running, server: FakeServer) -> None:
    rollout, url = await running.attempt()
    await running.call(url, temperature=0.0)
    (span,) = await running.spans(rollout)
    call = call_of(span)
    assert not server.requests[-1].json.get("logprobs") and call and not call.log_probs


@pytest.mark.long
@pytest.mark.parametrize(("word", "status", "said"), [("overflow", 400, OVERFLOW), ("broken", 500, "server broke")])
async def test_errors_of_the_model_server_reach_the_agent(running: Running, word: str, status: int, said: str) -> None:
    rollout, url = await running.attempt()
    refused = await running.call(url, messages=[{"role": "user", "content": word}])
    assert refused.status_code == status and said in refused.json()["error"]["message"]
    await running.call(url)
    spans = await running.spans(rollout)
    assert len(read_calls(spans)[0]) == 1


@pytest.mark.long
async def test_a_stream_with_tools_has_all_token_ids(running: Running) -> None:
    rollout, url = await running.attempt()
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    reply = await running.call(url, stream=True, tools=tools)
    assert reply.headers["content-type"].startswith("text/event-stream") and reply.text.endswith("data: [DONE]\n\n")
    events = [json.loads(line.removeprefix("data: ")) for line in reply.text.split("\n\n")[:-2]]
    deltas = [event["choices"][0]["delta"] for event in events]
    called = [call for delta in deltas for call in delta.get("tool_calls") or []]
    assert called[0]["function"]["name"] == "look" and called[0]["index"] == 0
    assert json.loads("".join(call["function"].get("arguments", "") for call in called)) == {"at": "甲"}
    assert events[-1]["choices"][0]["finish_reason"]
    (span,) = await running.spans(rollout)
    call = call_of(span)
    assert call and call.sampled == IDS


@pytest.mark.long
async def test_the_gate_refuses_late_calls_and_no_look_at_life(running: Running, server: FakeServer) -> None:
    _, url = await running.attempt()
    running.gate.close()
    n_asked = len(server.requests)
    late = await running.call(url)
    assert late.status_code == GONE and late.json()["error"]["message"] == REFUSAL
    assert await running.at_rest() and (running.gate.refused, len(server.requests)) == (1, n_asked)
    assert (await running.http.get(f"{running.proxy.as_resource().endpoint}{ALIVE_PATH}")).status_code == 200
    running.gate.open()
    assert (await running.call(url)).status_code == 200 and await running.at_rest()


@pytest.mark.long
async def test_an_unknown_model_is_named(running: Running) -> None:
    _, url = await running.attempt()
    reply = await running.call(url, model="other")
    assert reply.status_code == 400 and "other" in reply.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["gateway", pytest.param("litellm", marks=pytest.mark.slow)])
async def test_with_a_token_calls_without_it_are_refused(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv(VARIABLE, "s3cret")
    async with serving(server.base_url, kind=kind) as running:
        rollout, url = await running.attempt()
        assert (await running.call(url)).status_code == 401
        running.http.headers.update(token_headers())
        assert (await running.call(url)).status_code == 200
        assert len(await running.spans(rollout)) == 1
