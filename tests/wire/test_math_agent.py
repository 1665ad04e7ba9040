"""The math recipe played against a scripted model: no line of the package knows of it."""

from __future__ import annotations

import asyncio
import re
from contextlib import closing

import pytest

from recipes.math_cpu.tiny import ARGUMENTS
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.grading import scoring_of
from sql_agent.config import build_config, load_recipe
from sql_agent.data.dataset import load_questions
from sql_agent.scoring.reward import score
from sql_agent.testing.server import chat_reply, in_turn, openai_server, tool_call_reply


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "tool", "written", "reward"),
    [
        ("series", "python", "sum(range({}, {}+1))", 1.0),
        ("series", "python", "sum(range({}, {}))", 0.0),
        ("sum", "calculate", "{}+{}", 1.0),
    ],
)
def test_an_episode_calls_a_tool_and_earns_by_its_number(kind: str, tool: str, written: str, reward: float) -> None:
    config = build_config(load_recipe("math_cpu"))
    question = next(q for q in load_questions(config.data.train_file) if q.task_type == kind)
    text = written.format(*re.findall(r"\d+", question.question))
    answer = str(eval(text))
    model = in_turn(tool_call_reply((tool, {ARGUMENTS[tool]: text})), chat_reply(f"#### {answer}"))

    async def play():
        episode = await runner.run(question, LLMEndpoint(server.base_url, "scripted"))
        return episode, await score(episode, scoring)

    with openai_server(model) as server, EpisodeRunner(config) as runner, closing(scoring_of(config)) as scoring:
        runner.check()
        episode, earned = asyncio.run(play())
    assert [(call.name, call.result, call.outcome) for call in episode.tool_calls] == [(tool, answer, "ok")]
    assert earned.total == reward, earned.explanation
