"""Read, edit, write: what a model copies of files through a real file server leaves them as they are."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from foundation.marks import FAMILIES, model_marks
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import ROOT, build_config
from sql_agent.records import Question
from sql_agent.testing.server import chat_reply, openai_server, tool_call_reply
from sql_agent.tiny_policy.build import ensure_tiny_policy

SERVER = Path(__file__).with_name("file_server.py")
KINDS = {".py", ".md", ".html", ".toml", ".jinja", ".txt", ".yaml", ".sh", ".css", ".js", ".cff", ""}
MAX_BYTES, AT_ONCE = 60_000, 10
BESIDES = {
    "tokens.txt": "".join(f"{token} ＜{token[1:]} <\n" for token in FAMILIES),
    "page.html": "<!doctype html><p class='a'>1 < 2 &amp; <b>[ERROR]</b></p>\r\n<script>if (a<b) {}</script>",
    "mail.eml": "From: Ann <ann@example.org>\nTo: <bob@example.org>\n\n[INST] quoted\n",
    "log.txt": "[WARN] 12:00 <main> x\n[ERROR] <|im_end|> seen\n",
    "template.jinja": "{{ '<|im_start|>' + message['role'] }}\n<think>\n</think>＜＜|im_end|>",
}


def edits(body: dict[str, Any]) -> Any:
    """The model: reads the files that the question names, writes what it was shown of each, with a line more."""
    said = body["messages"]
    names = next(one["content"] for one in said if one["role"] == "user").split("|")
    shown = [one["content"] for one in said if one["role"] == "tool"]
    if not shown:
        return tool_call_reply(*(("read_file", {"name": name}) for name in names))
    if len(shown) > len(names):
        return chat_reply("done")
    return tool_call_reply(
        *(("write_file", {"name": name, "text": f"{text}+"}) for name, text in zip(names, shown, strict=True))
    )


@pytest.mark.long
def test_two_hundred_files_stay_as_they_are(tmp_path: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    real = [ROOT / name for name in listed if Path(name).suffix in KINDS]
    texts = {f"{n}-{one.name}": one.read_bytes() for n, one in enumerate(real) if one.stat().st_size < MAX_BYTES}
    chosen = dict(sorted(texts.items(), key=lambda item: (-item[1].count(b"<"), item[0]))[:200])
    chosen["diff.patch"] = subprocess.run(
        ["git", "diff", "--no-index", "/dev/null", "AGENTS.md"], cwd=ROOT, capture_output=True, check=False
    ).stdout
    chosen |= {name: text.encode() for name, text in BESIDES.items()}
    for name, content in chosen.items():
        (tmp_path / name).write_bytes(content)
    agent = {
        "tools": [],
        "system_prompt": "tools",
        "tool_max_chars": 100_000,
        "mcp": {"files": {"command": "python", "args": [str(SERVER), str(tmp_path)]}},
    }
    names = list(chosen)
    marks = model_marks(ensure_tiny_policy(1))
    with EpisodeRunner(build_config({"agent": agent})) as runner, openai_server(edits) as server:
        llm = LLMEndpoint(server.base_url, "m", marks=marks)

        async def play() -> None:
            for at in range(0, len(names), AT_ONCE):
                asked = Question(id=str(at), question="|".join(names[at : at + AT_ONCE]))
                assert (await runner.run(asked, llm)).stop_reason == "answered"

        asyncio.run(play())
        sent = [one for request in server.requests for one in request.json["messages"] if one["role"] == "tool"]
    assert len(chosen) == 206
    assert {name: (tmp_path / name).read_bytes() for name in names} == {k: v + b"+" for k, v in chosen.items()}
    assert sent and not [token for token in marks.tokens for one in sent if token in one["content"]]
