"""sqlagent_test.py --chat in a real terminal (a pty), against a real local server that streams."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sql_agent.config import ROOT
from sql_agent.testing.server import HANG, FakeServer, Reply, error_reply, in_turn, openai_server, stream_reply

TOOLS = '''
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


def hostile() -> str:
    """Say what moves a cursor."""
    return "\\x1b[2J\\x1b]0;owned\\x07" + "x" * 900
'''


def calling(name: str, **arguments: Any) -> Reply:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return stream_reply({"role": "assistant", "content": None, "tool_calls": [call]})


def saying(*pieces: str) -> Reply:
    return stream_reply({"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces))


class Terminal:
    """A program in a pseudo-terminal."""

    def __init__(self, command: list[str]) -> None:
        self._fd, end = pty.openpty()
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "TEACHER_"))}
        self.process = subprocess.Popen(
            command, cwd=ROOT / "sql_agent", stdin=end, stdout=end, stderr=end, start_new_session=True,
            env={**keep, "TERM": "xterm", "PYTHONPATH": str(ROOT)}, preexec_fn=lambda: _own_terminal(end),
        )  # fmt: skip
        os.close(end)
        self.shown = ""

    def wait_for(self, text: str, *, timeout_s: float = 60.0) -> str:
        """What was shown since the last wait, up to and with the text."""
        end_s, new = time.monotonic() + timeout_s, ""
        while text not in new:
            assert time.monotonic() < end_s, f"{text!r} was not shown: {new!r}"
            if select.select([self._fd], [], [], 0.2)[0]:
                try:
                    new += os.read(self._fd, 65536).decode("utf-8", "replace")
                except OSError:  # the program ended
                    assert text in new, f"{text!r} was not shown: {new!r}"
        self.shown += new
        return new

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def ask(self, text: str, *, until: str = "you> ") -> str:
        """Type a line; what is shown until the next prompt, the echo of the line first."""
        self.type(text + "\r")
        return self.wait_for(until)

    def ended(self) -> int:
        return self.process.wait(30)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._fd)


def _own_terminal(fd: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what a shell starts in the background ignores it


COUNTER = '''
class Counter:
    def reset(self, question):
        self.n = 0
        return "The number is 0."

    def count(self, by: int) -> int:
        """Add to the number."""
        self.n += by
        return self.n
'''
MCP_SERVER = Path(__file__).with_name("mcp_server.py")
PLAIN = ['tools = ["tools.py"]']


@contextmanager
def chatting(
    folder: Path, *answers: Any, tools: str = TOOLS, agent: Sequence[str] = PLAIN
) -> Iterator[tuple[Terminal, FakeServer]]:
    (folder / "tools.py").write_text(tools, encoding="utf-8")
    lines = ["[agent]", 'system_prompt = "tools"', "llm_timeout_s = 5.0"]
    lines += ["chat_template_kwargs = { enable_thinking = false }", *agent]
    (folder / "config.toml").write_text("\n".join(lines), encoding="utf-8")
    with openai_server(in_turn(*answers)) as server:
        flags = ["--chat", "--recipe", str(folder), "--base-url", server.base_url, "--model", "fake-model"]
        terminal = Terminal([sys.executable, "sqlagent_test.py", *flags])
        try:
            terminal.wait_for("you> ")
            yield terminal, server
        finally:
            terminal.close()


def slow(*pieces: str) -> Reply:
    """An answer that takes half a second a piece."""
    answer = saying(*pieces)
    return Reply(body=answer.body, content_type=answer.content_type, chunk_pause_s=0.5)


def plain(shown: str) -> str:
    return re.sub(r"\x1b\[\d*m", "", shown)


def messages(server: FakeServer, number: int = -1) -> list[tuple[str, Any]]:
    return [(m["role"], m.get("content")) for m in server.requests[number].json["messages"]][1:]


@pytest.mark.long
def test_calls_and_answers_are_shown_and_the_history_is_kept(tmp_path: Path) -> None:
    answers = (calling("add", a=2, b=3), saying("It is ", "five."), saying("Yes."), saying("Hello."))
    with chatting(tmp_path, *answers) as (terminal, server):
        shown = terminal.ask("2 + 3?")
        assert re.search(r'→ add {"a": 2, "b": 3}\s+← 5.0\s+It is five.', plain(shown))
        assert server.requests[0].json["stream"] is True
        assert all(r.json["chat_template_kwargs"] == {"enable_thinking": False} for r in server.requests)
        assert "Yes." in terminal.ask("sure?")
        assert messages(server)[0] == ("user", "2 + 3?") and messages(server)[2:] == [
            *(("tool", "5.0"), ("assistant", "It is five."), ("user", "sure?"))
        ]
        assert re.search(r'turn 1  add {"a": 2, "b": 3}  \(ok, .* s\)\s+5.0', plain(terminal.ask("/sql")))
        assert "a new conversation" in terminal.ask("/reset")
        assert "Hello." in terminal.ask("hi") and messages(server) == [("user", "hi")]
        assert "/reset" in terminal.ask("/help") and "'/what' is no command" in terminal.ask("/what now")
        terminal.type("/quit\r")
        assert terminal.ended() == 0


@pytest.mark.long
def test_a_refusal_is_an_answer_and_stays_in_the_history(tmp_path: Path) -> None:
    refusal = stream_reply({"role": "assistant", "content": None, "refusal": "I cannot help."})
    with chatting(tmp_path, refusal, saying("Here.")) as (terminal, server):
        shown = terminal.ask("first")
        assert "I cannot help." in shown and "stopped" not in shown
        assert "Here." in terminal.ask("second")
        assert [role for role, _ in messages(server)] == ["user", "assistant", "user"]


def test_an_environment_lives_until_the_reset(tmp_path: Path) -> None:
    answers = [turn for by in (2, 3, 5) for turn in (calling("count", by=by), saying("Done."))]
    with chatting(tmp_path, *answers, tools=COUNTER) as (terminal, server):
        assert re.search(r"← 2\s+Done", plain(terminal.ask("two")))
        assert messages(server, 0) == [("user", "two\nThe number is 0.")]
        assert re.search(r"← 5\s+Done", plain(terminal.ask("three more"))) and messages(server)[-1][0] == "tool"
        terminal.ask("/reset")
        assert re.search(r"← 5\s+Done", plain(terminal.ask("five"))) and len(messages(server)) == 3


@pytest.mark.long
def test_the_tools_of_an_mcp_server_are_called(tmp_path: Path) -> None:
    server = [
        "tools = []",
        "tool_timeout_s = 20.0",
        "[agent.mcp.test]",
        'command = "python"',
        f'args = ["{MCP_SERVER}"]',
    ]
    answers = (calling("add", a=2, b=3), saying("Five."), calling("dies"), calling("add", a=1, b=1), saying("Two."))
    with chatting(tmp_path, *answers, agent=server) as (terminal, model):
        assert re.search(r'→ add {"a": 2, "b": 3}\s+← 5.0\s+Five.', plain(terminal.ask("2 + 3?")))
        assert "MCP server 'test' is gone" in plain(terminal.ask("end it"))
        time.sleep(1.0)  # the server is started again
        assert "← 2.0" in plain(terminal.ask("1 + 1?")) and messages(model, 0) == [("user", "2 + 3?")]


@pytest.mark.long
def test_what_is_said_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    with chatting(tmp_path, calling("hostile"), saying("\x1b[31mred", "\x9b2J")) as (terminal, _):
        shown = terminal.ask("go")
        assert r"\x1b[2J" in shown and r"\x1b[31mred\x9b2J" in shown and "x" * 200 in shown and "x" * 400 not in shown
        assert "\x1b[2J" not in shown and "\x1b[31mred" not in shown and "\x07" not in shown and "\x9b" not in shown


@pytest.mark.long
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (error_reply(500, "boom"), "boom"),
        (error_reply(401, "who?"), "--api-key"),
        (error_reply(400, "maximum context length is 10"), "begin a new one with /reset"),
        (Reply(body="<html>", content_type="text/html"), "no stream of events"),
        (Reply(body="data: {broken\n\n", content_type="text/event-stream"), "llm_fault"),
        (Reply(body="", content_type="text/event-stream"), "stopped: "),
        (calling("nowhere"), "nowhere"),
        (HANG, "no answer within agent.llm_timeout_s = 5 s"),
    ],
)
def test_a_failure_is_told_and_the_chat_goes_on(answer: Reply, told: str, tmp_path: Path) -> None:
    with chatting(tmp_path, answer, saying("Here.")) as (terminal, server):
        assert told in terminal.ask("first").replace("\r\n", " ")
        assert "Here." in terminal.ask("second") and messages(server) == [("user", "second")]


@pytest.mark.long
def test_ctrl_c_ends_the_answer_and_the_second_one_the_program(tmp_path: Path) -> None:
    with chatting(tmp_path, slow(*["word "] * 20), slow("Well. ", "Here.")) as (terminal, server):
        terminal.type("tell me\r")
        terminal.wait_for("word word")
        terminal.type("\x03")
        assert "interrupted" in terminal.wait_for("you> ")
        said = terminal.ask("again")
        assert "Here." in said and "word" not in said and messages(server) == [("user", "again")]
        time.sleep(0.5)
        terminal.type("\x03")
        assert "Ctrl-C again" in terminal.wait_for("you> ")
        # input() shows its prompt just before it waits: a signal between the two is seen with the next key only.
        time.sleep(0.5)
        terminal.type("\x03")
        assert terminal.ended() == 0


@pytest.mark.long
@pytest.mark.parametrize("busy", [False, True])
def test_sigterm_ends_it(busy: bool, tmp_path: Path) -> None:
    with chatting(tmp_path, slow(*["word "] * 20)) as (terminal, _):
        if busy:
            terminal.type("tell me\r")
            terminal.wait_for("word word")
        terminal.process.terminate()
        assert terminal.ended() == 130


@pytest.mark.long
def test_ctrl_d_ends_it(tmp_path: Path) -> None:
    with chatting(tmp_path, saying("Here.")) as (terminal, _):
        terminal.type("\x04")
        assert terminal.ended() == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--json"], "No such option: --json"),
        (["--set", "agent.episode=my_agent.py:play"], "plays one question an episode"),
    ],
)
def test_what_does_not_fit_is_said(flags: list[str], told: str) -> None:
    command = [sys.executable, "sqlagent_test.py", "--chat", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"]
    done = subprocess.run([*command, *flags], cwd=ROOT / "sql_agent", capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr
