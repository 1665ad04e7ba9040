"""The page of a served agent in a real browser, as `agentgrpo serve --page` gives it, before a scripted model server.

Skipped where no Chromium is installed (apt-get install chromium chromium-driver).
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from foundation.files import read_lines
from foundation.net import free_port
from sql_agent.testing.server import HANG, Reply, error_reply, openai_server, stream_reply
from tests.browser import Reader, chromium, missing

TOKEN = "t" * 24
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
AGENTGRPO = Path(sys.executable).with_name("agentgrpo")
HARM = "<img src=x onerror='window.hit=1'><script>window.hit=2</script>![](http://198.51.100.1/a.png)\n```\n{{window.hit=3}}"
SQL = f"SELECT n, t FROM notes -- {HARM.replace(chr(10), ' ')}"


def model(request: dict[str, Any]) -> Reply:
    """Fails for `fail`, hangs for `wait`; else queries, and says what is harmful."""
    said = [one for one in request["messages"] if one["role"] != "system"]
    if said[-1]["content"] == "fail":
        return error_reply(500, "boom")
    if said[-1]["content"] == "wait":
        return HANG
    if said[-1]["role"] == "tool":
        return stream_reply({"role": "assistant", "content": f"{len(said)} said. "}, {"content": HARM})
    call = {"name": "query_database_by_sql", "arguments": json.dumps({"sql": SQL})}
    return stream_reply(
        {"role": "assistant", "tool_calls": [{"index": 0, "id": "c", "type": "function", "function": call}]}
    )


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The page's address; the server gets a SIGTERM with the page open, and ends by itself."""
    with closing(sqlite3.connect(folder / "own.db")) as database, database:
        database.execute("CREATE TABLE notes (n INTEGER, t TEXT)")
        database.executemany("INSERT INTO notes VALUES (?, ?)", [(1, HARM), (2, None)])
    port = free_port()
    with openai_server(model) as behind, (folder / "log").open("w") as log:
        command = [AGENTGRPO, "serve", f"fake@{behind.base_url}", "--as-agent", "--page", "--port", str(port)]
        keys = ["agent.system_prompt=generic_en", f"database.path={folder / 'own.db'}", "database.tables=[]"]
        command += [part for key in [*keys, f"serve.keep={folder / 'kept.jsonl'}"] for part in ("--set", key)]
        env = {**os.environ, "AGENT_API_TOKEN": TOKEN}
        with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=log, text=True) as server:
            try:
                assert server.stdout and "serving" in server.stdout.readline(), (folder / "log").read_text()
                yield f"http://127.0.0.1:{port}/page"
            finally:
                server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 130, (folder / "log").read_text()
    told = (folder / "log").read_text()
    assert "Traceback" not in told and "deleted" not in told, told


@pytest.mark.long
@pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")
def test_a_conversation_shows_answer_query_rows_and_faults_and_runs_nothing_of_theirs(tmp_path: Path) -> None:
    with chromium(tmp_path / "profile") as browser, served(tmp_path) as address:
        metrics = address.replace("/page", "/metrics")
        page = httpx.get(address, follow_redirects=True)
        assert page.status_code == 200 and "fake" not in page.text
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert httpx.get(address.replace("/page", "/v1/models")).status_code == 401
        browser.show(address, width=1000)
        reader = Reader(browser)
        reader.types("input", "wrong")
        reader.sees(".fault", "a valid bearer token is needed")
        reader.types("input", TOKEN)
        reader.sees(".text-h6", "fake")
        reader.types("textarea", "first <b>one</b>")
        reader.sees(".asked", "first <b>one</b>")
        reader.sees(".call", "Query, rows: 2")
        for part in (".text", ".code", "td"):
            reader.sees(part, "<img src=x onerror='window.hit=1'>")
        reader.sees("td", "NULL")
        reader.clicks(".thumbs button:last-child")
        reader.types("textarea", "fail")
        reader.sees(".fault", "boom")
        reader.types("textarea", "second")
        reader.sees(".text", "5 said.")  # two of the first answer, its question and call; none of the one that failed
        assert browser.run("return [window.hit, document.images.length];") == [None, 0]
        origin = address.removesuffix("/page")
        assert [url for url in browser.requests() if not url.startswith(origin)] == []
        assert [line for line in browser.console() if not line.startswith("DEBUG")] == []
        for number in (1, 2):  # nobody waits any more for the first by the button, for the second as its page is gone
            reader.types("textarea", "wait")
            reader.sees(".asked", "wait")
            if number == 1:
                reader.clicks("button.anew")
                reader.types("textarea", "third")
                reader.sees(".text", "3 said.")
            else:
                browser.driver.get("about:blank")
            given_up = f'path="/v1/chat/completions",status="499"}} {number}.0'
            reader.until(lambda _, line=given_up: line in httpx.get(metrics, headers=HEADERS).text, given_up)
    kept = read_lines(tmp_path / "kept.jsonl")
    assert [row.get("score") for row in kept if row["kind"] == "feedback"] == [-1]
