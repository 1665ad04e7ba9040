"""`/v1/responses` of the served agent, with the clients that ask it: openai's, LangChain's, curl."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import SecretStr, TypeAdapter

from foundation.files import read_lines
from sql_agent.testing.server import HANG, Reply, error_reply, stream_reply
from tests.wire.test_agent_api import TOKEN, client, model, served

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def talks(request: dict[str, Any]) -> Reply:
    """As `model`, with a word before the call."""
    last = request["messages"][-1]
    if last["role"] == "tool":
        return model(request)
    call = {"name": "add", "arguments": json.dumps({"a": int(last["content"]), "b": 1})}
    calls = [{"index": 0, "id": "c", "type": "function", "function": call}]
    return stream_reply({"role": "assistant", "content": "Let me "}, {"content": "add."}, {"tool_calls": calls})


def events(text: str) -> list[dict[str, Any]]:
    """Of a stream, each with its name."""
    found = [part.split("\n") for part in text.removesuffix("\n\n").split("\n\n")]
    rows = [json.loads(data.removeprefix("data: ")) for _, data in found]
    assert [name.removeprefix("event: ") for name, _ in found] == [row["type"] for row in rows]
    assert [row["sequence_number"] for row in rows] == [*range(len(rows))]
    return rows


@pytest.mark.long
def test_the_openai_client_gets_an_answer_whole_and_streamed_and_goes_on_from_it(tmp_path: Path) -> None:
    async def talk(url: str) -> None:
        async with client(url) as of:
            first = await of.responses.create(model="agent", input="1", extra_body={"tool_calls": True})
            assert (
                first.output_text == "It is 2.0"
                and first.status == "completed"
                and first.model_dump()["store"] is False
            )
            assert first.usage and first.usage.output_tokens == 8 and first.usage.total_tokens > 8
            assert json.loads(first.model_extra["tool_calls"][0]["arguments"]) == {"a": 1, "b": 1}  # type: ignore[index]
            later: Any = [{"role": "user", "content": "1"}, *first.output, {"role": "user", "content": "41"}]
            assert (await of.responses.create(model="agent", input=later)).output_text == "It is 42.0"
            async with of.responses.stream(model="agent", input=later) as stream:
                deltas = "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])
                final = await stream.get_final_response()
        assert deltas == "Let me add.It is 42.0" and final.output[-1].content[0].text == "It is 42.0"  # type: ignore[union-attr]
        assert [one.phase for one in final.output] == ["commentary", "final_answer"]  # type: ignore[union-attr]

    with served(tmp_path, talks) as url:
        asyncio.run(talk(url))


@pytest.mark.long
def test_what_is_sent_has_the_form_that_openai_types(tmp_path: Path) -> None:
    body = {"model": "agent", "input": [{"role": "user", "content": "41"}], "max_output_tokens": 4}
    with served(tmp_path, talks) as url, httpx.Client(base_url=url, headers=HEADERS, timeout=30) as http:
        whole = http.post("/v1/responses", json=body).json()
        streamed = events(http.post("/v1/responses", json={**body, "stream": True}).text)
    for event in streamed:
        EVENT.validate_python(event)
    places = [(event["type"].removeprefix("response."), event.get("output_index")) for event in streamed]
    message = (
        *("output_item.added", "content_part.added", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done"),
    )
    assert [place for place, _ in itertools.groupby(places)] == [
        *(("created", None), ("in_progress", None)),
        *((name, number) for number in (0, 1) for name in message),
        ("incomplete", None),
    ]
    for response in (whole, streamed[-1]["response"]):
        Response.model_validate(response, strict=True)
        assert response["status"] == "incomplete" and response["incomplete_details"] == {"reason": "max_output_tokens"}
        assert response["output"][-1]["content"][0]["text"] == "It is 42.0" and response["max_output_tokens"] == 4


@pytest.mark.long
def test_langchain_talks_to_it_whole_and_streamed(tmp_path: Path) -> None:
    from langchain_openai import ChatOpenAI

    with served(tmp_path) as url:
        asked = ChatOpenAI(
            model="agent", base_url=f"{url}/v1", api_key=SecretStr(TOKEN), max_retries=0, use_responses_api=True
        )
        first = asked.invoke("1")
        assert first.text == "It is 2.0" and (usage := first.usage_metadata) and usage["output_tokens"] == 8
        said: Any = [("user", "1"), first, ("user", "41")]
        assert asked.invoke(said).text == "It is 42.0"
        assert "".join(chunk.text for chunk in asked.stream(said)) == "It is 42.0"


@pytest.mark.long
def test_curl_gets_an_answer(tmp_path: Path) -> None:
    with served(tmp_path) as url:
        command = ["curl", "-sS", f"{url}/v1/responses", "-H", f"Authorization: Bearer {TOKEN}"]
        done = subprocess.run([*command, "-d", '{"model": "agent", "input": "41"}'], capture_output=True, check=True)
        streamed = [*command, "-N", "-d", '{"model": "agent", "input": "41", "stream": true}']
        stream = subprocess.run(streamed, capture_output=True, check=True, text=True).stdout
    assert json.loads(done.stdout)["output"][0]["content"][0]["text"] == "It is 42.0"
    assert events(stream)[-1]["type"] == "response.completed"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"previous_response_id": "resp_1"}, "previous_response_id: the server keeps no response"),
    ({"store": True}, "store: the server keeps no response"),
    ({"conversation": "c"}, "conversation: the server keeps no response"),
    ({"instructions": "Be nice."}, "instructions: the prompt is the agent's"),
    ({"tools": []}, "tools: "),
    ({"input": []}, "input: "),
    ({"input": " "}, "input.0.content: is empty"),
    ({"input": [{"role": "developer", "content": "1"}]}, "input.0.role: 'developer'"),
    ({"input": [{"role": "assistant", "content": "1"}]}, "the last message must be the user's"),
    ({"input": [{"type": "function_call", "role": "user", "content": "1"}]}, "input.0.type: "),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content.0.type: "),
    ({"messages": []}, "messages: "),
]


def test_what_would_not_be_obeyed_is_refused_by_name(tmp_path: Path) -> None:
    with served(tmp_path) as url, httpx.Client(base_url=url, headers=HEADERS, timeout=30) as http:
        assert httpx.post(f"{url}/v1/responses", json={"model": "agent", "input": "1"}).status_code == 401
        for keys, named in REFUSED:
            reply = http.post("/v1/responses", json={"model": "agent", "input": "1", **keys})
            assert reply.status_code == 400 and named in reply.json()["error"]["message"], (keys, reply.text)


@pytest.mark.long
@pytest.mark.parametrize(("handler", "status"), [(lambda _: error_reply(500, "boom"), 503), (lambda _: HANG, 504)])
def test_a_fault_is_an_error_to_each_client(tmp_path: Path, handler: Any, status: int) -> None:
    async def fails(url: str) -> None:
        async with client(url) as of:
            with pytest.raises(openai.APIStatusError) as whole:
                await of.responses.create(model="agent", input="1")
            assert whole.value.status_code == status
            with pytest.raises(openai.APIError, match="boom|no answer within"):
                async for _ in await of.responses.create(model="agent", input="1", stream=True):
                    pass

    with served(tmp_path, handler, time_s=1.0 if status == 504 else 60.0) as url:
        asyncio.run(fails(url))
        body = {"model": "agent", "input": "1", "stream": True}
        *_, last = events(httpx.post(f"{url}/v1/responses", json=body, headers=HEADERS, timeout=30).text)
        assert EVENT.validate_python(last).type == "error"


@pytest.mark.long
def test_both_addresses_share_the_limit_and_what_is_kept(tmp_path: Path) -> None:
    async def statuses(url: str) -> list[int]:
        async with httpx.AsyncClient(base_url=url, headers=HEADERS, timeout=30) as of:
            chat = {"model": "agent", "messages": [{"role": "user", "content": "1"}]}
            other = {"model": "agent", "input": "1"}
            asked = [of.post("/v1/chat/completions", json=chat), of.post("/v1/responses", json=other)]
            return sorted(reply.status_code for reply in await asyncio.gather(*asked))

    with served(tmp_path, lambda _: HANG, max_open=1, time_s=1.0) as url:
        assert asyncio.run(statuses(url)) == [429, 504]
    kept = tmp_path / "kept.jsonl"
    with served(tmp_path, keep=kept) as url, httpx.Client(base_url=url, headers=HEADERS, timeout=30) as http:
        names = [
            http.post("/v1/responses", json={"model": "agent", "input": text, **keys}).json()["id"]
            for text, keys in (("1", {}), ("2", {"store": False}), ("3", {"stream": False}))
        ]
        assert http.post("/v1/feedback", json={"id": names[0], "score": 1}).status_code == 200
    rows = list(read_lines(kept))
    assert [row["id"] for row in rows] == [names[0], names[2], names[0]]
    assert rows[0]["said"] == [{"role": "user", "content": "1"}] and rows[0]["answer"] == "It is 2.0"
