"""This recipe, played through with a scripted model on a local server: configuration, tools, data and reward."""

import asyncio
from contextlib import closing
from pathlib import Path

from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.grading import scoring_of
from sql_agent.config import build_config, load_recipe
from sql_agent.data.dataset import load_questions
from sql_agent.scoring.reward import score
from sql_agent.testing.server import chat_reply, in_turn, openai_server, tool_call_reply

CONFIG = build_config(load_recipe(str(Path(__file__).parent)))


def test_an_episode_calls_the_tools_and_earns_its_reward() -> None:
    (question, *_) = load_questions(CONFIG.data.train_file)
    model = in_turn(
        tool_call_reply(("price_of", {"item": "pen"})),
        tool_call_reply(("multiply", {"a": 4, "b": 1.5})),
        chat_reply("6"),
    )

    async def play():
        episode = await runner.run(question, LLMEndpoint(server.base_url, "scripted"))
        return episode, await score(episode, scoring)

    with openai_server(model) as server, EpisodeRunner(CONFIG) as runner, closing(scoring_of(CONFIG)) as scoring:
        runner.check()
        episode, reward = asyncio.run(play())
    assert [(call.name, call.result) for call in episode.tool_calls] == [("price_of", "1.5"), ("multiply", "6.0")]
    assert reward.total == 1.0, reward.explanation
