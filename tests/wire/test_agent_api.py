"""The served agent over real HTTP: the openai client in front, a scripted model server behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from foundation import http_connection
from foundation.files import read_lines
from foundation.http_connection import config_of
from foundation.http_gate import Traffic
from foundation.http_server import HttpServer
from foundation.net import bind, free_port
from sql_agent.agent.conversation import Conversation
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import build_config, load_recipe
from sql_agent.data.dataset import load_questions
from sql_agent.serving.agent_answer import Answerer
from sql_agent.serving.agent_api import AgentApi, Limits
from sql_agent.serving.kept import Keeper
from sql_agent.testing.server import HANG, Reply, error_reply, in_turn, openai_server, stream_reply
from sql_agent.tuning.sources import read_source
from tests.typed import status_of

TOOLS = '''
import os, signal


def add(a: float, b: float) -> float:
    """Add two numbers."""
    if a and (a % 64 == 0 or a % 95 == 0):
        os.kill(os.getpid(), signal.SIGKILL)
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
def served(
    folder: Path,
    handler: Any = model,
    *,
    address: str = "",
    vote: int = 0,
    config: Any = None,
    keep: Path | None = None,
    **limits: Any,
) -> Iterator[str]:
    listener, traffic = bind("127.0.0.1", 0), Traffic()
    config = config or build_config(load_recipe(recipe(folder)))
    with openai_server(handler) as behind, EpisodeRunner(config) as runner, ExitStack() as kept:
        llm = LLMEndpoint(base_url=address or behind.base_url, model="fake-model", max_tokens=64, temperature=1.0)
        keeper = kept.enter_context(Keeper(keep)) if keep else None
        api = AgentApi(Answerer(runner, llm, vote=vote), name="agent", limits=Limits(**limits), keeper=keeper)
        app = api.app(traffic, token=TOKEN)
        server = HttpServer(config_of(app, timeout_graceful_shutdown=1), traffic)
        thread = threading.Thread(target=lambda: server.run(sockets=[listener]))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def client(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=0, timeout=60)


@pytest.mark.long
def test_256_conversations_at_once_get_each_their_own_answer_though_tools_are_killed(tmp_path: Path) -> None:
    """A tool's process that dies in a call is an error reply; the next call has another process."""

    async def one(of: openai.AsyncOpenAI, number: int) -> str:
        said: Any = [{"role": "user", "content": str(number)}]
        if number % 2:
            reply = await of.chat.completions.create(model="agent", messages=said, extra_body={"tool_calls": True})
            assert json.loads(reply.model_extra["tool_calls"][0]["arguments"])["a"] == number  # type: ignore[index]
            return reply.choices[0].message.content or ""
        stream = await of.chat.completions.create(model="agent", messages=said, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def tried(of: openai.AsyncOpenAI, number: int) -> str:
        try:
            return await one(of, number)
        except openai.APIError as exc:  # a stream's error has no status
            return f"fault: {exc.message}"

    async def all_(url: str) -> list[str]:
        async with client(url) as of:
            return await asyncio.gather(*(tried(of, number) for number in range(1, 257)))

    with served(tmp_path) as url:
        told = asyncio.run(all_(url))
    faults = {number for number, text in enumerate(told, start=1) if text.startswith("fault: ")}
    assert faults == {64, 128, 192, 256} | {95, 190}, faults
    assert all("add" in told[number - 1] for number in faults)
    rest = set(range(1, 257)) - faults
    assert {number: told[number - 1] for number in rest} == {number: f"It is {number + 1}.0" for number in rest}


@pytest.mark.long
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


def test_what_nobody_expected_is_an_error_reply_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: Any) -> None:
        raise AttributeError("a library's secret")

    monkeypatch.setattr(Conversation, "say", fails)
    body = {"model": "agent", "messages": [{"role": "user", "content": "1"}]}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with served(tmp_path) as url:
        reply = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30)
        assert reply.status_code == 500 and reply.json()["error"]["type"] == "internal_error"
        streamed = httpx.post(f"{url}/v1/chat/completions", json={**body, "stream": True}, headers=headers, timeout=30)
        assert '"internal_error"' in streamed.text and "secret" not in streamed.text + reply.text


@pytest.mark.long
@pytest.mark.parametrize(
    ("handler", "status"),
    [
        (lambda _: error_reply(500, "boom"), 503),
        (lambda _: HANG, 504),
        (lambda _: error_reply(400, "maximum context length is 10"), 400),  # which clients do not ask again
    ],
)
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
        (b'{"model": "agent", "messages": [{"role": "system", "content": "1"}]}', 400, "messages.0.role: 'system'"),
        (b'{"model": "agent", "messages": [{"role": "developer", "content": "1"}]}', 400, "'developer': prompt"),
        (b'{"model": "agent", "messages": [{"role": "user", "content": [{"type": "file"}]}]}', 400, "content.0.type: "),
        (b'{"model": "agent", "messages": [{"role": "user", "content": " "}]}', 400, "messages.0.content: is empty"),
        (
            b'{"model": "agent", "messages": [{"role": "user", "content": "1"}], "stream_options": {}}',
            400,
            "stream = true",
        ),
        (b"x" * 2_000_000, 413, "larger"),
    ],
)
def test_hostile_bodies_are_refused(tmp_path: Path, body: bytes, status: int, named: str) -> None:
    with served(tmp_path) as url:
        path = f"{url}/v1/chat/completions"
        unknown = httpx.post(path, content=body)
        assert unknown.status_code == unknown.json()["error"]["code"] == 401
        reply = httpx.post(path, content=body, headers={"Authorization": f"Bearer {TOKEN}"})
        assert reply.status_code == reply.json()["error"]["code"] == status and named in reply.text


def test_what_is_not_there_is_told_in_the_form_of_errors_with_what_is(tmp_path: Path) -> None:
    with served(tmp_path) as url:
        for method, path, status in [("GET", "/v1/chat/completions", 405), ("POST", "/v1/completions", 404)]:
            reply = httpx.request(method, url + path, headers={"Authorization": f"Bearer {TOKEN}"})
            error = reply.json()["error"]
            assert reply.status_code == error["code"] == status and "/v1/responses" in error["message"]


@pytest.mark.long
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


@pytest.mark.long
def test_a_body_that_comes_byte_by_byte_is_ended_at_the_limit_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    body = json.dumps({"model": "agent", "messages": [{"role": "user", "content": "1"}]}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"

    async def slow(port: int, pause_s: float) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.encode())

        async def send() -> None:
            for byte in body:
                writer.write(bytes([byte]))
                await asyncio.sleep(pause_s)

        sending = asyncio.ensure_future(send())
        line = await reader.readline()
        sending.cancel()
        writer.close()
        return line

    async def all_(url: str) -> list[Any]:
        port = int(url.rpartition(":")[2])
        async with client(url) as of:
            quick = of.chat.completions.create(model="agent", messages=[{"role": "user", "content": "1"}])
            return await asyncio.gather(quick, slow(port, 0.005), *(slow(port, 60.0) for _ in range(20)))

    with served(tmp_path, body_timeout_s=5.0) as url:
        quick, patient, *late = asyncio.run(all_(url))
    assert quick.choices[0].message.content == "It is 2.0"
    assert b" 200 " in patient and all(b" 408 " in line for line in late)


@pytest.mark.long
def test_heads_that_never_end_are_cut_and_keep_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a first request or a later one, before the token was looked at."""
    monkeypatch.setattr(http_connection, "HEAD_S", 2.0)
    health, begun = b"GET /health HTTP/1.1\r\nHost: a\r\n", b"GET /health HTTP/1.1\r\nx-a: "

    async def slow(port: int, first: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionError):
            writer.write(first)
            for _ in range(40):
                await asyncio.sleep(0.5)
                writer.write(b"a")
                await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            return await asyncio.wait_for(reader.read(), 5)
        return b""

    async def all_(url: str) -> list[Any]:
        port = int(url.rpartition(":")[2])
        async with client(url) as of:
            many = [slow(port, first) for first in (b"", begun, health + b"\r\n" + begun) for _ in range(20)]
            said: Any = [{"role": "user", "content": "1"}]
            quick = of.chat.completions.create(model="agent", messages=said)
            return await asyncio.wait_for(asyncio.gather(quick, slow(port, begun + b"a" * 1_000_000), *many), 60)

    with served(tmp_path) as url:
        quick, _large, *late = asyncio.run(all_(url))
    assert quick.choices[0].message.content == "It is 2.0"
    assert all(told.count(b"HTTP/1.1 200 ") <= 1 for told in late)


@pytest.mark.long
def test_langchain_talks_to_it_streamed_and_whole_with_what_was_said_before(tmp_path: Path) -> None:
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    with served(tmp_path) as url:
        asked = ChatOpenAI(
            model="agent", base_url=f"{url}/v1", api_key=SecretStr(TOKEN), max_retries=0, stream_usage=True, n=1
        )
        parts: Any = [("user", "1"), ("assistant", "It is 2.0"), ("user", [{"type": "text", "text": "41"}])]
        reply = asked.invoke(parts)
        assert reply.content == "It is 42.0" and (usage := reply.usage_metadata) and usage["output_tokens"] == 8
        chunks = list(asked.stream(parts))
        assert "".join(str(chunk.content) for chunk in chunks) == "It is 42.0"
        assert sum(chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata) == 8
        # What a client made of a reply comes back with null in all that was not set.
        message = {"role": "assistant", "content": "It is 2.0", "refusal": None, "tool_calls": None, "audio": None}
        said = [{"role": "user", "content": "1"}, message, {"role": "user", "content": "41"}]
        body = {"model": "agent", "messages": said, "stop": None, "tools": None, "stream_options": None}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        whole = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30)
        assert whole.json()["choices"][0]["message"]["content"] == "It is 42.0", whole.text


def voting(answers: list[tuple[str, float]]) -> Any:
    """A model that says its queries in turn, each call with this log-probability, then what came of it."""
    rest, lock = list(answers), threading.Lock()

    def reply(logprob: float, **delta: Any) -> Reply:
        token = {"token": "x", "logprob": logprob, "bytes": [120], "top_logprobs": []}
        choice = {"index": 0, "delta": {"role": "assistant", **delta}, "logprobs": {"content": [token]}}
        body = f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n"
        return Reply(body=body, content_type="text/event-stream")

    def handler(request: dict[str, Any]) -> Reply:
        assert request["logprobs"] is True
        last = request["messages"][-1]
        if last["role"] == "tool":
            return reply(0.0, content=f"It is {last['content']}")
        with lock:
            sql, logprob = rest.pop(0)
        function = {"name": "query_database_by_sql", "arguments": json.dumps({"sql": sql})}
        return reply(logprob, tool_calls=[{"index": 0, "id": "c", "type": "function", "function": function}])

    return handler


@pytest.mark.parametrize(
    ("answers", "chosen"),
    [
        ([("SELECT 3", -1.0), ("SELECT 1 + 1", -9.0), ("SELECT 2", -8.0)], "SELECT 2"),  # most ballots, then likelier
        ([("SELECT 3", -2.0), ("SELECT 4", -1.0), ("SELECT x", -0.1)], "SELECT 4"),  # a query that failed has no ballot
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_the_answer_is_the_one_that_most_vote_for(
    tmp_path: Path, answers: list[tuple[str, float]], chosen: str, stream: bool
) -> None:
    body = {"model": "agent", "messages": [{"role": "user", "content": "?"}], "tool_calls": True, "stream": stream}
    with closing(sqlite3.connect(tmp_path / "own.db")) as database, database:
        database.execute("CREATE TABLE numbers (n)")
    database = {"path": str(tmp_path / "own.db"), "tables": []}
    config = build_config({"agent": {"system_prompt": "generic_en", "max_turns": 3}, "database": database})
    with served(tmp_path, voting(answers), vote=3, config=config) as url:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        reply = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)
        assert reply.text.count("It is ") == 1, reply.text
        text = reply.text if not stream else next(line for line in reply.text.splitlines() if '"sql_calls"' in line)
        assert [call["sql"] for call in json.loads(text.removeprefix("data: "))["sql_calls"]] == [chosen]
        greedy = httpx.post(f"{url}/v1/chat/completions", json={**body, "temperature": 0}, headers=headers, timeout=60)
        assert greedy.status_code == 400 and "3 answers vote" in greedy.text


def test_nothing_is_kept_unless_it_is_asked_for(tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with served(tmp_path) as url:
        body = {"model": "agent", "messages": [{"role": "user", "content": "1"}], "store": True}
        asked = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30)
        assert asked.status_code == 400 and "store: nothing is kept" in asked.text
        given = httpx.post(f"{url}/v1/feedback", json={"id": f"chatcmpl-{'0' * 32}", "score": 1}, headers=headers)
        assert given.status_code == 404 and "serve.keep" in given.text


@pytest.mark.long
def test_what_is_kept_becomes_questions_conversations_and_pairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, out = tmp_path / "kept" / "kept.jsonl", tmp_path / "out"
    says = in_turn(*(stream_reply({"role": "assistant", "content": text}) for text in ("Seven.", "Six.", "Seven.")))
    headers = {"Authorization": f"Bearer {TOKEN}"}

    with served(tmp_path, says, keep=kept) as url, httpx.Client(headers=headers, timeout=30) as http:

        def talk(*messages: str, stream: bool = False, **more: Any) -> str:
            roles = [("user", "assistant")[n % 2] for n in range(len(messages))]
            given = [{"role": role, "content": text} for role, text in zip(roles, messages, strict=True)]
            body = {"model": "agent", "messages": given, "stream": stream, **more}
            reply = http.post(f"{url}/v1/chat/completions", json=body).raise_for_status()
            return (json.loads(reply.text[6:].split("\n")[0]) if stream else reply.json())["id"]

        def judge(name: str, **said: Any) -> httpx.Response:
            return http.post(f"{url}/v1/feedback", json={"id": name, **said})

        good, bad = talk("How many days has a week?"), talk("How many days has a week?", stream=True)
        wrong = talk("How many months has a year?")
        talk("How many weeks has a year?")
        talk("How many weeks has a month?", store=False)
        talk("My phone is +49 30 901820, how many hours has a day?")
        later = talk("How many days has June?", "Thirty.", "And how many has July, please?")
        for name, score in ((good, -1), (good, 1), (bad, -1), (later, 1)):
            assert judge(name, score=score).json() == {"id": name, "score": score}
        judge(wrong, score=-1, answer="Twelve.").raise_for_status()
        told = judge(bad, score=-1, answer="Ask me at a.person@example.org").json()
        assert told["answer"] == "holds a mail address"
        for refused in ({"score": 2}, {"score": 1, "why": "x"}, {"score": 1, "id": "../x"}):
            assert judge(good, **refused).status_code == 400
    text = kept.read_text(encoding="utf-8")
    assert "901820" not in text and "example.org" not in text and "weeks has a month" not in text
    assert kept.stat().st_mode & 0o777 == 0o600

    assert status_of("curate", "traffic", str(kept), str(out)) == 0
    assert "5 conversations, 4 with feedback" in capsys.readouterr().out
    found = {question.question: question for question in load_questions(out / "questions.jsonl")}
    assert {name: one.answer for name, one in found.items()} == {
        "How many days has a week?": "Seven.",
        "How many months has a year?": "Twelve.",
        "How many weeks has a year?": "",
    }
    assert found["How many days has a week?"].meta["origin"]["id"] == good
    (dropped, *_) = [row for row in read_lines(out / "dropped.jsonl") if row["id"] == later]
    assert dropped["why"] == "a later turn"
    tree = {"agent": {"tools": [str(tmp_path / "tools.py")], "system_prompt": "tools"}}
    chats = build_config(tree, {"sft": {"dataset": str(out / "conversations.jsonl")}})
    pairs = build_config(tree, {"method": "dpo", "dpo": {"dataset": str(out / "pairs.jsonl")}})
    source = read_source(chats.sft, chats.data, chats)
    roles = [[message["role"] for message in chat.messages] for chat in source.chats]
    assert roles == [["system", "user", "assistant"], ["system", "user", "assistant", "user", "assistant"]]
    assert len(read_source(pairs.dpo, pairs.data, pairs).pairs) == 1 and not source.left_out


SAMPLED = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "stop": ["END"], "max_tokens": 20, "presence_penalty": 0.25}


@pytest.mark.long
def test_the_command_serves_an_agent_around_an_address_and_ends_in_order(tmp_path: Path) -> None:
    port = free_port()
    agentgrpo = Path(sys.executable).with_name("agentgrpo")
    with openai_server(model) as behind, (tmp_path / "log").open("w+") as log:
        command = [agentgrpo, "serve", f"fake-model@{behind.base_url}", "--as-agent", "--port", str(port)]
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


@pytest.mark.long
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
    assert status_of("serve", "--model", "x", "--host", "0.0.0.0", "--db-id", "d", "--vote", "3") == 2
    assert "--host, --db-id, --vote: only for a served agent" in capsys.readouterr().err
    assert status_of("serve", "x", "--model", "y") == 2
    assert "x and --model y: two models" in capsys.readouterr().err
