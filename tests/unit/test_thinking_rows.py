"""Rows of a model that thinks, or was told not to: real episodes through a real tokenizer and chat template.

The small template does with thoughts what Qwen3's does; Qwen3's own text, with its own vocabulary, is slow to fetch.
"""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agl_plugin.update.adapter import scored_calls
from agl_plugin.update.rows import Call
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import build_config
from sql_agent.records import Question
from sql_agent.testing.server import openai_server
from tests.exact_rows import assert_exact, batch_of, qwen_tokenizer, small_tokenizer
from tests.spans import llm_call, reward_span
from tests.template_policy import TemplatePolicy

pytestmark = [pytest.mark.filterwarnings("ignore:In CPU autocast"), pytest.mark.usefixtures("rank")]
TOOL = '''
def look(n: int) -> str:
    """Look a number up."""
    return f"the value of {n} is {n * n}"
'''
TALK = """
import openai

async def play(question, endpoint, tools):
    said = []
    async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key="x", max_retries=0) as client:
        for word in question.question.split():
            said.append({"role": "user", "content": word})
            reply = await client.chat.completions.create(model="m", messages=said)
            said.append({"role": "assistant", "content": reply.choices[0].message.content})
    return said[-1]["content"]
"""
THOUGHT = "<think>\nI look it up.\n</think>\n\n"
ANSWER = "That is all."


@pytest.fixture(scope="module", params=["small", pytest.param("qwen3", marks=pytest.mark.slow)])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return small_tokenizer(TOOL, THOUGHT, ANSWER) if request.param == "small" else qwen_tokenizer()


def tool_calls(n_turns: int, *, thought: str) -> list[str]:
    """What the policy says in an episode of so many calls."""
    bodies = [json.dumps({"name": "look", "arguments": {"n": n}}) for n in range(n_turns - 1)]
    return [f"{thought}<tool_call>\n{body}\n</tool_call>" for body in bodies] + [thought + ANSWER]


def played(
    tokenizer: Any, texts: Sequence[str], folder: Path, *, thinks: bool, words: str = "", reward: float = 1.0
) -> list[Call]:
    """An episode as the adapter gives it; with `words`, which a user says one by one, an episode of one's own."""
    (folder / "tool.py").write_text(TOOL, encoding="utf-8")
    (folder / "talk.py").write_text(textwrap.dedent(TALK), encoding="utf-8")
    agent: dict[str, Any] = {"tools": [str(folder / "tool.py")], "system_prompt": "tools", "max_turns": 9}
    agent |= {} if thinks else {"chat_template_kwargs": {"enable_thinking": False}}
    agent |= {"episode": f"{folder / 'talk.py'}:play"} if words else {}
    policy = TemplatePolicy(tokenizer, texts)
    with EpisodeRunner(build_config({"agent": agent})) as runner, openai_server(policy) as server:
        question = Question(id="q", question=words or "Look them up.")
        episode = asyncio.run(runner.run(question, LLMEndpoint(server.base_url, "m")))
    assert episode.stop_reason == "answered" and len(policy.calls) == len(texts) == episode.n_turns
    calls = [(list(call.prompt), list(call.sampled)) for call in policy.calls]
    spans = [llm_call(prompt, sampled, seq=n) for n, (prompt, sampled) in enumerate(calls, start=1)]
    return scored_calls([*spans, reward_span(reward, seq=99, n_calls=len(calls))])


@pytest.mark.long
def test_with_thinking_off_each_rollout_is_one_row(tokenizer: Any, tmp_path: Path) -> None:
    rollouts = [played(tokenizer, tool_calls(n, thought=""), tmp_path, thinks=False) for n in range(2, 9)]
    metrics = batch_of(rollouts).metrics
    assert metrics["batch/merged_share"] == 1.0 and metrics["batch/rows"] == 7 and metrics["batch/calls"] == 35
    first = tokenizer.decode(rollouts[0][0].prompt)
    assert first.endswith("<think>\n\n</think>\n\n")
    assert_exact(rollouts[:3])


@pytest.mark.long
def test_thoughts_since_the_question_are_kept_and_merge(tokenizer: Any, tmp_path: Path) -> None:
    rollouts = [played(tokenizer, tool_calls(n, thought=THOUGHT), tmp_path, thinks=True) for n in (2, 5, 8)]
    assert batch_of(rollouts).metrics["batch/merged_share"] == 1.0
    assert_exact(rollouts[:2])


@pytest.mark.long
@pytest.mark.parametrize("thinks", [True, False])
def test_a_user_who_speaks_again_splits_the_rows_exactly(tokenizer: Any, tmp_path: Path, thinks: bool) -> None:
    """The template forgets what was thought before that message, and empty thoughts too, as docs/15 says."""
    words, said = {2: "one two", 4: "one two three four"}, THOUGHT + ANSWER if thinks else ANSWER
    rollouts = [played(tokenizer, [said] * n, tmp_path, thinks=thinks, words=w) for n, w in words.items()]
    metrics = batch_of(rollouts).metrics
    assert metrics["batch/rows"] == 6 and metrics["batch/merged_share"] == 0.0
    assert metrics["batch/unmerged_prefix_mismatch"] == 4
    assert_exact(rollouts)


@pytest.mark.long
def test_a_thought_may_be_left_out_in_between(tokenizer: Any, tmp_path: Path) -> None:
    calls = tool_calls(3, thought="")
    said = [[THOUGHT + calls[0], calls[1], THOUGHT + calls[2]], [calls[0], THOUGHT + calls[2]]]
    assert_exact([played(tokenizer, texts, tmp_path, thinks=True) for texts in said])
