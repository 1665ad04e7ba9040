"""`agentgrpo serve`, and the command that it prints, word for word; the agent around that model, on its page."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from foundation.net import free_port
from sql_agent.commands.ask import choose_questions
from tests.browser import Reader, chromium, missing

AGENTGRPO = Path(sys.executable).with_name("agentgrpo")


@contextmanager
def served(folder: Path, *arguments: str) -> Iterator[str]:
    """What it said on its other channel, from when it serves until the block ends."""
    with (folder / "log").open("w+") as log:
        command = [AGENTGRPO, "serve", *arguments]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True) as server:
            try:
                assert server.stdout and "serving" in server.stdout.readline(), (folder / "log").read_text()
                yield (folder / "log").read_text()
            finally:
                server.send_signal(signal.SIGTERM)
            assert server.wait(120) == 130


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The arguments of the command that a server of the tiny policy prints."""
    with served(tmp_path_factory.mktemp("model"), "--port", str(free_port())) as told:
        found = re.search(r"^try:\s+agentgrpo (.*)$", told, re.MULTILINE)
        assert found, told
        yield found[1]


@pytest.mark.long
def test_the_command_that_it_prints_gets_right_answers(printed: str, tmp_path: Path) -> None:
    asked = [AGENTGRPO, *shlex.split(printed), "--limit", "2"]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "mean reward 1.100 over 2" in done.stdout, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")
def test_its_agent_answers_right_on_its_page(printed: str, tmp_path: Path) -> None:
    given = dict(zip(*[iter(shlex.split(printed)[1:])] * 2, strict=True))
    target, port = f"{given['--model']}@{given['--base-url']}", free_port()
    asked = choose_questions([], None, limit=1)[0]  # builds the bundled data where nobody has yet
    keys = ["--set", given["--set"], "--set", "rollout.evaluation.temperature=0", "--set", "serve.keep=kept.jsonl"]
    with (
        served(tmp_path, target, "--as-agent", "--page", "--port", str(port), *keys),
        chromium(tmp_path / "profile") as browser,
    ):
        browser.show(f"http://127.0.0.1:{port}/page", width=900, height=620)
        reader = Reader(browser)
        reader.types("textarea", asked.question)
        reader.sees(".call", "Query, rows: 1")
        for part in ("td", ".text"):
            reader.sees(part, asked.evidence[0].quote)
        reader.sees(".thumbs", "")
        browser.picture(tmp_path / "page.png")
