"""One episode of each agent against a scripted model on this machine: what breaks it is found before a run.

The model answers every call with the question's reference. Found are: paths, imports and programs of agents of one's
own, tools that cannot be opened, and an agent.match that names none of the agents that called. Limits: the script
calls no tool, so that a dry run changes nothing outside; a fault that needs another answer stays hidden.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from foundation.errors import UserError
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import AgentTree, agents_of
from sql_agent.errors import Fault
from sql_agent.records import Question
from sql_agent.testing.server import chat_reply, openai_server

TRAINED, UNTRAINED = "/trained", "/untrained"


def rehearse(config: AgentTree, questions: Sequence[Question]) -> Iterator[str]:
    """A line for each agent that has a question. Raises UserError naming the agent that fails, and why."""
    with EpisodeRunner(config) as runner:
        for name, settings in agents_of(config).items():
            question = next((candidate for candidate in questions if candidate.agent == name), None)
            if question is not None:
                yield _played(runner, question, settings.agent.match, f"agents.{name}" if name else "agent")


def _played(runner: EpisodeRunner, question: Question, match: str, key: str) -> str:
    text = question.answer or "42"

    with openai_server(lambda _: chat_reply(text), keep_alive=True) as server:
        address = server.base_url.removesuffix("/v1")
        llm = LLMEndpoint(f"{address}{TRAINED}/v1", "scripted", untrained_url=f"{address}{UNTRAINED}/v1")
        try:
            episode = asyncio.run(runner.run(question, llm))
        except Fault as exc:
            raise UserError(f"{key}: an episode against a model that answers {text!r:.80} failed: {exc}") from exc
    called = [request.path for request in server.requests]
    trained = sum(path.startswith(TRAINED) for path in called)
    if called and not trained:
        raise UserError(
            f"{key}.match = {match!r}: of {len(called)} calls of the episode none was of an agent of that "
            "name, so nothing would be trained. Write the name by which the program asks (endpoint.for_agent, or "
            "/agent/NAME/v1 in the model's address), or leave agent.match out"
        )
    calls = f"{trained} of {len(called)} calls trained" if called else "the model was not called: nothing to train on"
    return f"episode of {key} against a scripted model: {episode.stop_reason}; {calls}"
