"""The served agent over real HTTP: the openai client in front, a scripted model server behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from foundation.http_gate import Traffic
from foundation.http_server import HttpServer
from foundation.net import bind, free_port
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import build_config, load_recipe
from sql_agent.serving.agent_api import AgentApi, Limits
from sql_agent.testing.server import HANG, Reply, error_reply, openai_server, stream_reply
from tests.typed import status_of

TOOLS = '''
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b
'''
TOKEN = "a" * 24


def model(request: dict[str, Any]) -> Reply:
    """Calls add(N, 1) for the question N, then says what the tool gave."""
    last = request["messages"][-1]
    if last["role"] == "tool":
        return stream_reply({"role": "assistant", "content": ""}, {"content": "It is "}, {"content": last["content"]})
    call = {"name": "add", "arguments": json.dumps({"a": int(last["content"]), "b": 1})}
    return stream_reply(
        {"role": "assistant", "tool_calls": [{"index": 0, "id": "c", "type": "function", "function": call}]}
    )


def recipe(folder: Path) -> str:
    (folder / "tools.py").write_text(TOOLS, encoding="utf-8")
    text = '[agent]\nsystem_prompt = "tools"\ntools = ["tools.py"]\nllm_timeout_s = 5.0\n'
    (folder / "config.toml").write_text(text, encoding="utf-8")
    return str(folder)


@contextmanager
def served(folder: Path, handler: Any = model, *, address: str = "", **limits: Any) -> Iterator[str]:
    import uvicorn

    listener, traffic = bind("127.0.0.1", 0), Traffic()
    config = build_config(load_recipe(recipe(folder)))
    with openai_server(handler) as behind, EpisodeRunner(config) as runner:
        llm = LLMEndpoint(base_url=address or behind.base_url, model="fake-model", max_tokens=64)
        app = AgentApi(runner, llm, name="agent", limits=Limits(**limits)).app(traffic, token=TOKEN)
        server = HttpServer(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1), traffic)
        thread = threading.Thread(target=lambda: server.run(sockets=[listener]))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def client(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=0, timeout=60)


def test_64_conversations_at_once_get_each_their_own_answer(tmp_path: Path) -> None:
    async def one(of: openai.AsyncOpenAI, number: int) -> str:
        said: Any = [{"role": "user", "content": str(number)}]
        if number % 2:
            reply = await of.chat.completions.create(model="agent", messages=said, extra_body={"tool_calls": True})
            assert json.loads(reply.model_extra["tool_calls"][0]["arguments"])["a"] == number  # type: ignore[index]
            return reply.choices[0].message.content or ""
        stream = await of.chat.completions.create(model="agent", messages=said, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def all_(url: str) -> list[str]:
        async with client(url) as of:
            return await asyncio.gather(*(one(of, number) for number in range(64)))

    with served(tmp_path) as url:
        assert asyncio.run(all_(url)) == [f"It is {number + 1}.0" for number in range(64)]


def test_an_answer_without_a_tool_is_an_answer_too(tmp_path: Path) -> None:
    said = stream_reply({"role": "assistant", "content": "Hello."})
    body = {"model": "agent", "messages": [{"role": "user", "content": "1"}], "tool_calls": True}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with served(tmp_path, lambda _: said) as url:
        path = f"{url}/v1/chat/completions"
        reply = httpx.post(path, json=body, headers=headers, timeout=30).json()
        assert reply["choices"][0]["message"]["content"] == "Hello." and reply["tool_calls"] == []
        assert reply["choices"][0]["finish_reason"] == "stop"
        streamed = httpx.post(path, json={**body, "stream": True}, headers=headers, timeout=30).text
        assert "Hello." in streamed and streamed.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(("handler", "status"), [(lambda _: error_reply(500, "boom"), 503), (lambda _: HANG, 504)])
def test_a_fault_is_an_error_and_no_answer(tmp_path: Path, handler: Any, status: int) -> None:
    with served(tmp_path, handler, time_s=1.0 if status == 504 else 60.0) as url:
        body = {"model": "agent", "messages": [{"role": "user", "content": "1"}]}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        reply = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30)
        assert reply.status_code == status and reply.json()["error"]["message"]
        streamed = httpx.post(f"{url}/v1/chat/completions", json={**body, "stream": True}, headers=headers, timeout=30)
        assert '"error"' in streamed.text and "[DONE]" not in streamed.text


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        (b"[" * 100_000, 400, ""),
        (b'{"model": "agent", "messages": "x"}', 400, "messages"),
        (b'{"model": "\xff"}', 400, ""),
        (b'{"model": "agent", "messages": [{"role": "user", "content": "1"}], "top_k": 1}', 400, "top_k"),
        (b'{"model": "agent", "messages": [{"role": "user", "content": "1"}], "n": 2}', 400, "n: "),
        (b'{"model": "agent", "messages": [{"role": "user", "content": "1"}], "top_p": NaN}', 400, "top_p"),
        (b'{"model": "agent", "messages": [{"role": "system", "content": "1"}]}', 400, "messages.0.role"),
        (b"x" * 2_000_000, 413, "larger"),
    ],
)
def test_hostile_bodies_are_refused(tmp_path: Path, body: bytes, status: int, named: str) -> None:
    with served(tmp_path) as url:
        path = f"{url}/v1/chat/completions"
        assert httpx.post(path, content=body).status_code == 401
        reply = httpx.post(path, content=body, headers={"Authorization": f"Bearer {TOKEN}"})
        assert reply.status_code == status and named in reply.text


def test_more_conversations_than_allowed_are_refused_and_those_that_end_make_room(tmp_path: Path) -> None:
    async def statuses(url: str) -> list[int]:
        body = {"model": "agent", "messages": [{"role": "user", "content": "1"}], "stream": True}
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as of:
            asked = [of.post(f"{url}/v1/chat/completions", json=body) for _ in range(6)]
            replies = await asyncio.gather(*asked)
            assert all(r.headers["retry-after"] for r in replies if r.status_code == 429)
            again = await of.post(f"{url}/v1/chat/completions", json=body)
            return [*sorted(r.status_code for r in replies), again.status_code]

    with served(tmp_path, lambda _: HANG, max_open=2, time_s=3.0) as url:
        assert asyncio.run(statuses(url)) == [200, 200, 429, 429, 429, 429, 200]


SAMPLED = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["END"], "max_tokens": 20, "presence_penalty": 0.25}


def test_the_command_serves_an_agent_around_an_address_and_ends_in_order(tmp_path: Path) -> None:
    port = free_port()
    agentgrpo = Path(sys.executable).with_name("agentgrpo")
    with openai_server(model) as behind, (tmp_path / "log").open("w+") as log:
        command = [agentgrpo, "serve", "--model", f"fake-model@{behind.base_url}", "--as-agent", "--port", str(port)]
        command += ["--recipe", recipe(tmp_path)]
        environment = {**os.environ, "AGENT_API_TOKEN": TOKEN}
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        ) as server:
            try:
                line = server.stdout.readline() if server.stdout else ""
                url = f"http://127.0.0.1:{port}/v1"
                assert f"{url}, token needed" in line, (tmp_path / "log").read_text()
                with openai.OpenAI(base_url=url, api_key=TOKEN, max_retries=0, timeout=60) as of:
                    said: Any = [{"role": "user", "content": "41"}]
                    (offered,) = of.models.list()
                    plain = of.chat.completions.create(model=offered.id, messages=said, **SAMPLED)  # type: ignore[arg-type]
                    assert plain.choices[0].message.content == "It is 42.0"
                    stream = of.chat.completions.create(model=offered.id, messages=said, stream=True)
                    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "It is 42.0"
                    first, *_, last = behind.requests
                    assert SAMPLED.items() <= first.json.items()
                    assert not {"seed", "stop", "presence_penalty"} & last.json.keys()
                    with pytest.raises(openai.AuthenticationError):
                        of.with_options(api_key="b" * 24).models.list()
            finally:
                server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 130
    assert "3 requests accepted, 3 answered" in (tmp_path / "log").read_text()


def test_a_model_that_went_away_is_503_and_options_of_the_agent_need_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with openai_server(model) as behind:
        address = behind.base_url
    asked = {"model": "agent", "messages": [{"role": "user", "content": "1"}]}
    with served(tmp_path, address=address) as url:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        reply = httpx.post(f"{url}/v1/chat/completions", json=asked, headers=headers, timeout=60)
        assert reply.status_code == 503 and reply.headers["retry-after"], reply.text
    assert status_of("serve", "--model", "x", "--host", "0.0.0.0", "--db-id", "d") == 2
    assert "--host, --db-id: only for a served agent" in capsys.readouterr().err
