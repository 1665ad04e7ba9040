"""Episodes of one's own against a real local server: functions, foreign programs, their failures, who is trained."""

from __future__ import annotations

import asyncio
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from foundation.errors import UserError
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.own_program import checked_command
from sql_agent.config import ROOT, build_config
from sql_agent.errors import EpisodeFault, Fault, LLMFault, ToolFault
from sql_agent.records import Episode, Question
from sql_agent.testing.server import (
    HANG,
    FakeServer,
    Handler,
    Reply,
    chat_reply,
    error_reply,
    in_turn,
    openai_server,
    tool_call_reply,
)

pytestmark = pytest.mark.usefixtures("nursery")
QUESTION = Question(id="q1", question="2 + 3?", answer="5", meta={"level": 1})
Play = Callable[..., tuple[Episode, FakeServer]]

LOOP = '''
    """An agent loop of one's own, with nothing but openai."""
    import json
    import openai

    async def play(question, endpoint, tools):
        async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key, max_retries=0) as client:
            return await talk(client, question, endpoint, tools)

    async def talk(client, question, endpoint, tools):
        by_name = {tool.name: tool for tool in tools}
        messages = [{"role": "user", "content": question.question}]
        while True:
            reply = await client.chat.completions.create(
                model=endpoint.model, messages=messages, tools=[tool.spec for tool in tools], temperature=0.123
            )
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return message.content
            for call in message.tool_calls:
                result = await by_name[call.function.name].invoke(call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
'''
TOOLS = '''
    def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b
'''
CALL = tool_call_reply(("add", {"a": 2, "b": 3}))


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    def run(handler: Handler, text: str, *, agent: dict[str, Any] | None = None, **llm: Any) -> Any:
        (tmp_path / "own.py").write_text(textwrap.dedent(text), encoding="utf-8")
        (tmp_path / "tools.py").write_text(textwrap.dedent(TOOLS), encoding="utf-8")
        settings = {"tools": [str(tmp_path / "tools.py")], "system_prompt": "tools", "llm_timeout_s": 2.0}
        settings |= {"episode": f"{tmp_path / 'own.py'}:play", **(agent or {})}
        if "command" in settings:
            del settings["episode"]
            settings["command"] = settings["command"].format(python=sys.executable, file=tmp_path / "own.py")
        with openai_server(handler) as server, EpisodeRunner(build_config({"agent": settings})) as runner:
            runner.check()
            endpoint = LLMEndpoint(server.base_url, "fake-model", api_key="key", **llm)
            return asyncio.run(runner.run(QUESTION, endpoint)), server

    yield run


@pytest.mark.long
def test_a_plain_loop_is_played_counted_and_written_down(play: Play) -> None:
    episode, server = play(in_turn(CALL, chat_reply("5")), LOOP, temperature=1.0, top_p=0.9, top_k=7)
    assert (episode.final_answer, episode.stop_reason, episode.n_turns) == ("5", "answered", 2)
    assert [(c.name, c.arguments, c.result) for c in episode.tool_calls] == [("add", '{"a": 2, "b": 3}', "5.0")]
    assert [m["role"] for m in episode.messages] == ["assistant", "tool", "assistant"]
    assert (episode.prompt_tokens, episode.completion_tokens) == (14, 10)
    for request in server.requests:
        assert request.headers["authorization"] == "Bearer key"
        # As the run samples, not as the program asks.
        assert (request.json["temperature"], request.json["top_p"], request.json["top_k"]) == (1.0, 0.9, 7)


def test_the_template_and_the_sampling_are_the_runs(play: Play) -> None:
    """The program's own keys decide nothing that the trainer does not know of; its stop texts do count."""
    text = """
        import openai
        async def play(question, endpoint, tools):
            async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key="x", max_retries=0) as client:
                said = [{"role": "assistant", "content": "a"}, {"role": "user", "content": question.question}]
                keys = {"top_k": 3, "chat_template_kwargs": {"enable_thinking": True, "own": 1}}
                reply = await client.chat.completions.create(
                    model="m", messages=said, presence_penalty=1.5, stop="Observation:", logit_bias={"5": 9},
                    extra_body=keys,
                )
                return reply.choices[0].message.content
    """
    agent = {"chat_template_kwargs": {"enable_thinking": False}}
    _, server = play(in_turn(chat_reply("5")), text, agent=agent, frequency_penalty=0.5, stop=("END",))
    sent = server.requests[0].json
    assert sent["chat_template_kwargs"] == {"enable_thinking": False, "own": 1}
    assert sent["frequency_penalty"] == 0.5 and sent["stop"] == ["END", "Observation:"]
    assert not {"top_k", "presence_penalty", "logit_bias"} & sent.keys()
    assert [one.get("reasoning_content") for one in sent["messages"]] == ["\n", None]


def test_an_episode_may_be_returned_whole(play: Play) -> None:
    text = """
        from sql_agent.records import Episode
        async def play(question, endpoint, tools):
            said = await tools[0](a=1, b=1)
            return Episode(question=question, final_answer=said, stop_reason="answered")
    """
    episode, _ = play(in_turn(chat_reply("unused")), text)
    assert (episode.final_answer, episode.n_turns, len(episode.tool_calls)) == ("2.0", 0, 1)


def test_more_calls_than_max_turns_are_refused(play: Play) -> None:
    episode, server = play(in_turn(CALL), LOOP, agent={"max_turns": 3})
    assert (episode.final_answer, episode.stop_reason, episode.n_turns) == ("", "max_turns", 3)
    assert len(server.requests) == 3


def test_a_conversation_that_is_too_long_is_the_policys_end(play: Play) -> None:
    refusal = error_reply(400, "This model's maximum context length is 10 tokens")
    episode, _ = play(in_turn(CALL, refusal), LOOP)
    assert (episode.stop_reason, episode.n_turns) == ("context_overflow", 1)


SWALLOWS = """
    import openai
    async def play(question, endpoint, tools):
        async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key="x", max_retries=0) as client:
            try:
                await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "q"}])
            except openai.OpenAIError:
                pass
        return "5"
"""


@pytest.mark.parametrize(
    "broken",
    [error_reply(500, "boom"), error_reply(429, "busy"), HANG, Reply(body="<html>"), Reply(status=-1)],
    ids=str,
)
def test_an_outage_is_a_fault_even_where_the_function_swallows_it(play: Play, broken: Reply) -> None:
    with pytest.raises(LLMFault):
        play(in_turn(broken), SWALLOWS)


SWALLOWS_ITS_END = """
    import asyncio
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return "5"
"""


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        ("raise ValueError('a bug')", EpisodeFault, "raised ValueError: a bug"),
        ("raise SystemExit(3)", EpisodeFault, r"SystemExit\(3\)"),
        ("import asyncio; raise asyncio.CancelledError", EpisodeFault, "CancelledError"),
        ("import asyncio; await asyncio.sleep(60)", EpisodeFault, "more than agent.episode_timeout_s = 1 s"),
        (SWALLOWS_ITS_END, EpisodeFault, "more than agent.episode_timeout_s = 1 s; it was ended"),
        ("from sql_agent.errors import ToolFault; raise ToolFault('no index')", ToolFault, "no index"),
    ],
)
def test_a_function_that_fails_is_a_fault(play: Play, body: str, kind: type[Fault], said: str) -> None:
    text = f"async def play(question, endpoint, tools):\n    {body}\n"
    with pytest.raises(kind, match=said):
        play(in_turn(chat_reply("x")), text, agent={"episode_timeout_s": 1.0})


def test_an_answer_may_be_missing(play: Play) -> None:
    episode, _ = play(in_turn(chat_reply("x")), "async def play(question, endpoint, tools):\n    return None\n")
    assert (episode.final_answer, episode.stop_reason) == ("", "empty_answer")


PROGRAM = """
    import json, os, sys, urllib.request
    question = json.loads(sys.stdin.readline())
    assert "answer" not in question and not any(name.startswith("TEACHER_") for name in os.environ)
    body = {"model": os.environ["OPENAI_MODEL"], "messages": [{"role": "user", "content": question["question"]}]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    reply = json.load(urllib.request.urlopen(request))
    print("thinking about", question["meta"])
    print("a warning", file=sys.stderr)
    print(reply["choices"][0]["message"]["content"])
"""
COMMAND = {"command": "{python} {file}"}


def test_a_foreign_program_plays_an_episode(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEACHER_API_KEY", "secret")
    episode, server = play(in_turn(chat_reply("5")), PROGRAM, agent=COMMAND, temperature=1.0)
    assert (episode.final_answer, episode.n_turns, episode.stop_reason) == ("5", 1, "answered")
    assert "thinking about {'level': 1}" in episode.output and "a warning" in episode.output
    assert server.requests[0].json["temperature"] == 1.0 and server.requests[0].json["model"] == "fake-model"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import sys; print('5'); sys.exit('broken pipe')", "ended with status 1: broken pipe"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended with status -11"),
        ("import time; time.sleep(60)", "more than agent.episode_timeout_s = 2 s"),
    ],
)
def test_a_program_that_fails_is_a_fault(play: Play, text: str, said: str) -> None:
    with pytest.raises(EpisodeFault, match=said):
        play(in_turn(chat_reply("x")), text, agent={**COMMAND, "episode_timeout_s": 2.0})


def test_a_program_is_killed_with_its_children(play: Play, tmp_path: Path) -> None:
    text = f"""
        import pathlib, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(child.pid))
        print("x" * 100_000)
        print("done")
    """
    started = time.monotonic()
    episode, _ = play(in_turn(chat_reply("x")), text, agent=COMMAND)
    assert episode.final_answer == "done" and "bytes left out" in episode.output and len(episode.output) < 25_000
    assert time.monotonic() - started < 30
    pid = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


DETACHED = """
import os, subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(300)"]
children = [subprocess.Popen(sleep, start_new_session=True).pid]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        children.append(os.getpid())
        open("{pids}2", "w").write(str(os.getpid()))
        time.sleep(300)
    os._exit(0)
while not os.path.exists("{pids}2") or not open("{pids}2").read():
    time.sleep(0.01)
open("{pids}1", "w").write(str(children[0]))
print("5")
sys.stdout.flush()
{end}
"""


@pytest.mark.long
@pytest.mark.parametrize("ends", [True, False])
def test_what_a_program_detached_neither_delays_nor_outlives_it(play: Play, tmp_path: Path, ends: bool) -> None:
    pids = tmp_path / "pid"
    text = DETACHED.replace("{pids}", str(pids)).replace("{end}", "" if ends else "time.sleep(300)")
    limit_s = 60.0 if ends else 5.0
    began_s = time.monotonic()
    if ends:
        assert (
            play(lambda _: chat_reply("5"), text, agent={**COMMAND, "episode_timeout_s": limit_s})[0].final_answer
            == "5"
        )
        assert time.monotonic() - began_s < limit_s / 2
    else:
        with pytest.raises(EpisodeFault, match="took more than"):
            play(lambda _: chat_reply("5"), text, agent={**COMMAND, "episode_timeout_s": limit_s})
    for n in (1, 2):
        assert not psutil.pid_exists(int(Path(f"{pids}{n}").read_text()))


def test_a_program_sees_no_variable_that_was_not_named(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ("ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "HF_TOKEN", "TEACHER_API_KEY", "MY_OWN")
    for name in secrets:
        monkeypatch.setenv(name, "secret")
    shown = "import os; print(sorted(name for name, value in os.environ.items() if value == 'secret') or 'none')"
    assert play(lambda _: chat_reply("5"), shown, agent=COMMAND)[0].final_answer == "none"
    named = play(lambda _: chat_reply("5"), shown, agent={**COMMAND, "command_env": ["MY_OWN", "NOT_SET"]})[0]
    assert named.final_answer == "['MY_OWN']"


def test_a_program_that_swallows_an_outage_earns_no_number(play: Play) -> None:
    asks = "reply = json.load(urllib.request.urlopen(request))"
    swallows = f"""try:
        {asks}
    except Exception:
        reply = {{"choices": [{{"message": {{"content": "5"}}}}]}}"""
    assert asks in PROGRAM
    with pytest.raises(LLMFault, match="Error code: 500"):
        play(in_turn(error_reply(500, "boom")), PROGRAM.replace(asks, swallows), agent=COMMAND)


TWO_AGENTS = """
    import openai

    async def ask(address, model, text):
        async with openai.AsyncOpenAI(base_url=address, api_key="x", max_retries=0) as client:
            reply = await client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}])
        return reply.choices[0].message.content

    async def play(question, endpoint, tools):
        draft = await ask(endpoint.for_agent("writer"), endpoint.model, question.question)
        await ask(endpoint.for_agent("critic"), endpoint.model, draft)
        return await ask(endpoint.for_agent("writer"), endpoint.model, draft)
"""


def test_of_two_agents_one_is_trained(play: Play) -> None:
    with openai_server(in_turn(chat_reply("untrained"))) as beside:
        answers = in_turn(chat_reply("draft"), chat_reply("final"))
        episode, server = play(answers, TWO_AGENTS, agent={"match": "writer"}, untrained_url=beside.base_url)
    assert (episode.final_answer, episode.n_turns, episode.n_untrained_calls) == ("final", 3, 1)
    assert [r.json["messages"][0]["content"] for r in beside.requests] == ["draft"]
    assert len(server.requests) == 2


def test_an_agent_that_is_not_trained_and_overflows_leaves_the_count_as_it_is(play: Play) -> None:
    refused = in_turn(error_reply(400, "maximum context length"))
    with openai_server(refused) as beside:
        answers, agent = in_turn(chat_reply("draft")), {"match": "writer"}
        episode, _ = play(answers, TWO_AGENTS, agent=agent, untrained_url=beside.base_url)
    assert (episode.stop_reason, episode.n_turns, episode.n_untrained_calls) == ("context_overflow", 1, 0)


def test_calls_at_once_are_counted_as_they_begin(play: Play) -> None:
    text = """
        import asyncio, openai
        async def play(question, endpoint, tools):
            async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key="x", max_retries=0) as client:
                messages = [{"role": "user", "content": "q"}]
                asked = [client.chat.completions.create(model="m", messages=messages) for _ in range(5)]
                await asyncio.gather(*asked, return_exceptions=True)
            return "done"
    """
    episode, server = play(in_turn(Reply(body=chat_reply("x"), pause_s=0.3)), text, agent={"max_turns": 3})
    assert len(server.requests) == 3 and episode.n_turns == 3 and episode.final_answer == "done"


def test_a_proxy_variable_does_not_capture_this_machine(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    text = """
        import openai, httpx
        async def play(question, endpoint, tools):
            http = httpx.AsyncClient(trust_env=False)
            async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key="x", http_client=http) as client:
                messages = [{"role": "user", "content": "q"}]
                reply = await client.chat.completions.create(model="m", messages=messages)
                return reply.choices[0].message.content
    """
    assert play(in_turn(chat_reply("5")), text)[0].final_answer == "5"


def test_who_asks_for_a_stream_gets_the_whole_answer_as_one(play: Play) -> None:
    text = """
        import openai
        async def play(question, endpoint, tools):
            messages = [{"role": "user", "content": "q"}]
            async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key="x", max_retries=0) as client:
                stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
                parts = [event.choices[0].delta.content or "" async for event in stream if event.choices]
            return "".join(parts)
    """
    episode, server = play(in_turn(tool_call_reply(("add", {"a": 1}), content="42")), text)
    assert episode.final_answer == "42" and "stream" not in server.requests[0].json
    calls = [{"id": "call_0", "name": "add", "arguments": '{"a": 1}'}]
    assert episode.messages == [{"role": "assistant", "content": "42", "tool_calls": calls}]
    assert (episode.prompt_tokens, episode.completion_tokens) == (7, 5)


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ({"episode": "nowhere:play"}, "cannot be imported"),
        ({"episode": "no_colon"}, "write MODULE:FUNCTION"),
        ({"episode": "json:dumps"}, "has no async function 'dumps'"),
        ({"command": "no-such-program --fast"}, "no such program 'no-such-program'; install it"),
        ({"command": "python 'unclosed"}, "quote it as in a shell"),
    ],
)
def test_what_cannot_be_an_episode_is_said_before_the_run(agent: dict[str, Any], said: str) -> None:
    with (
        EpisodeRunner(build_config({"agent": {"tools": [], "system_prompt": "tools", **agent}})) as runner,
        pytest.raises(UserError, match=said),
    ):
        runner.check()


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ({"episode": "a:b", "command": "c"}, "leave one of them out"),
        ({"match": "writer"}, "set agent.episode or agent.command or agent.agl_class, or leave it out"),
        ({"episode": "a:b", "match": "("}, "is no regular expression"),
    ],
)
def test_keys_that_do_not_fit_are_refused(agent: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        build_config({"agent": agent})


@pytest.mark.long
def test_the_files_of_the_docs_work_as_they_stand(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "50-extending.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for name, mark in {
        "tools.py": "def shout",
        "environment.py": "class Counter",
        "my_agent.py": "Ask until",
        "my_graph.py": "StateGraph",
    }.items():
        (text,) = [block for block in blocks if mark in block]
        (tmp_path / name).write_text(text, encoding="utf-8")
    counter = f"{tmp_path / 'environment.py'}:Counter"
    settings = {
        "tools": [str(tmp_path / "tools.py")],
        "system_prompt": "tools",
        "episode": f"{tmp_path / 'my_agent.py'}:play",
    }
    question = Question(id="q", question="2 + 3?", meta={"goal": 5})
    shout = tool_call_reply(("shout", {"text": "hi"}))
    count = tool_call_reply(("add", {"n": 2}), ("add", {"n": 3}))
    graph = {**settings, "episode": f"{tmp_path / 'my_graph.py'}:play"}
    answers = (CALL, shout, chat_reply("5"), count, chat_reply("done"), CALL, chat_reply("5"))
    with openai_server(in_turn(*answers)) as server:
        llm = LLMEndpoint(server.base_url, "fake-model")
        with EpisodeRunner(build_config({"agent": settings})) as runner:
            own = asyncio.run(runner.run(question, llm))
        with EpisodeRunner(build_config({"agent": {"tools": [counter], "system_prompt": "tools"}})) as runner:
            environment = asyncio.run(runner.run(question, llm))
        with EpisodeRunner(build_config({"agent": graph})) as runner:
            by_graph = asyncio.run(runner.run(question, llm))
    assert [call.result for call in own.tool_calls] == ["5.0", '{"said": "HI"}'] and own.final_answer == "5"
    assert (by_graph.final_answer, [call.result for call in by_graph.tool_calls]) == ("5", ["5.0"])
    assert (environment.environment_reward, environment.final_answer) == (1.0, "done")
    assert server.requests[3].json["messages"][1]["content"] == "2 + 3?\nThe goal is 5."


def test_python_is_the_one_that_runs_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run's packages are there for the program too, whatever PATH names first."""
    monkeypatch.setenv("PATH", "")
    assert checked_command("python agent.py --fast") == [sys.executable, "agent.py", "--fast"]
