"""An agent of one's own in the real loop: store, proxy, runner; of two agents one is trained, as its tokens show."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from agl_plugin.update.rows import Limits
from tests.loop.conftest import collecting, rollouts, running, token_ids

pytestmark = pytest.mark.filterwarnings("default")

AGENTS = """
import openai


async def ask(address, model, *texts):
    async with openai.AsyncOpenAI(base_url=address, api_key="x", max_retries=0) as client:
        messages = [{"role": "user", "content": text} for text in texts]
        reply = await client.chat.completions.create(model=model, messages=messages)
        return str(reply.choices[0].message.content)


async def play(question, endpoint, tools):
    # 空话: the scripted policy answers without a query.
    draft = await ask(endpoint.for_agent("writer"), endpoint.model, "空话 " + question.question)
    remark = await ask(endpoint.for_agent("critic"), endpoint.model, "空话 critic", draft)
    await ask(endpoint.for_agent("writer"), endpoint.model, "空话 again", remark)
    return question.answer
"""


@pytest.mark.long
@pytest.mark.parametrize("proxy", ["gateway", "litellm"])
def test_of_two_agents_one_is_trained(database: Path, tmp_path: Path, proxy: str) -> None:
    (tmp_path / "agents.py").write_text(AGENTS, encoding="utf-8")
    settings = {
        "agent.episode": f"{tmp_path / 'agents.py'}:play",
        "agent.match": "writer",
        "reward.judge.kind": "reference",
    }
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with (
        running(tmp_path, database, *flags) as loop,
        collecting(loop, tmp_path, proxy=proxy) as daemon,
    ):
        lines = rollouts(daemon, loop, ["甲药的适应症是什么？"], is_train=True)
        batch, metrics = daemon.batch(Limits(4096, 512))
        asked = [request.json for request in loop.server.requests]

    assert [(line["n_turns"], line["n_untrained_calls"], line["unscored"]) for line in lines] == [(3, 1, "")] * 2
    assert [line["reward"] for line in lines] == [pytest.approx(1.0)] * 2
    sampled = {(body["temperature"], body["top_p"], body["top_k"]) for body in asked}
    assert sampled == {(1.0, 0.9, 20)} and len(asked) == 6
    trained = {tuple(token_ids(json.dumps(b["messages"], ensure_ascii=False))) for b in asked if "critic" not in str(b)}
    prompts = batch.batch["prompts"]
    masks = batch.batch["attention_mask"][:, : prompts.shape[1]].bool()
    assert {tuple(p[m].tolist()) for p, m in zip(prompts, masks, strict=True)} == trained
    assert len(batch) == 4 and metrics["batch/calls_without_log_probs"] == 0  # 2 rollouts x 2 calls of the writer


COMMAND = """
import json, os, sys, urllib.request
question = json.loads(sys.stdin.readline())["question"]
body = {"model": os.environ["OPENAI_MODEL"], "messages": [{"role": "user", "content": "空话 " + question}]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
if "坏" in question:
    sys.exit("broken")
"""


@pytest.mark.long
def test_a_program_plays_rollouts_and_its_failure_is_unscored(database: Path, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(COMMAND, encoding="utf-8")
    flags = ("--set", f"agent.command={sys.executable} {tmp_path / 'agent.py'}", "--set", "reward.judge.kind=reference")
    with running(tmp_path, database, *flags) as loop, collecting(loop, tmp_path) as daemon:
        lines = rollouts(daemon, loop, ["甲药？", "坏：乙药？"], is_train=True)
        batch, _ = daemon.batch(Limits(4096, 512))
    assert {(line["unscored"], line["answer"]) for line in lines} == {("", "您好。"), ("episode_fault", "")}
    assert len(batch) == 2
