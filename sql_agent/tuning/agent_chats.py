"""Conversations of the configured agent: rollouts as they were played, and questions with their reference answer.

Guarantees: system prompt, tools and the form of results are those of the agent in training; reference SQL runs on the
configured database, through the agent's own tool, read-only.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from foundation.chat_template import Message
from foundation.errors import Unusable, UserError
from foundation.rollout_keys import RunKeys
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.sql_tool import QUERY
from sql_agent.agent.tool import EpisodeContext
from sql_agent.config import AgentTree
from sql_agent.records import Question, RolloutRecord
from sql_agent.tuning.chats import Chat, chat_of


class AgentChats(AbstractContextManager["AgentChats"]):
    """Opens the agent's tools on first use. A context manager."""

    def __init__(self, config: AgentTree) -> None:
        self._runner = EpisodeRunner(config)

    def _runner_of(self, agent: str) -> EpisodeRunner:
        """Raises Unusable for one that [agents] does not name."""
        if agent and agent not in self._runner.config.agents:
            raise Unusable(f"agent {agent!r}, which [agents] does not name")
        return self._runner.of(agent)

    def __exit__(self, *_exc: object) -> None:
        self._runner.close()

    @cached_property
    def specs(self) -> list[Message]:
        """The schemas of the agent's tools. Raises UserError."""
        return _specs(self._runner)

    def of_rollout(self, row: dict[str, Any]) -> Chat:
        """A line of rollouts.jsonl or trials.jsonl. Raises Unusable."""
        try:
            record, keys = RolloutRecord.model_validate(row), RunKeys.model_validate(row)
        except ValidationError:
            raise Unusable("no rollout of this project") from None
        if keys.mode == "val":
            raise Unusable("a rollout of validation")
        if record.unscored or record.reward is None:
            raise Unusable("unscored")
        if not record.messages:
            raise Unusable("recorded without messages (by an older version)")
        if record.n_untrained_calls or record.stop_reason in ("fault", "invalid_tool_call", "context_overflow"):
            raise Unusable("calls that are not all of the policy, or not all there")
        question = {"role": "user", "content": record.question}
        group = keys.group or record.question_id
        runner = self._runner_of(record.agent)
        messages = [*_system(runner, record.db_id), question, *record.messages]
        return chat_of(messages, _specs(runner), group=group, reward=record.reward)

    def of_questions(self, questions: list[Question]) -> tuple[list[Chat], Counter[str]]:
        """A conversation for each question that has an answer, and what was left out."""
        chats, left_out = list[Chat](), Counter[str]()

        async def show_all() -> None:
            for question in questions:
                try:
                    chats.append(await self._shown(question))
                except Unusable as exc:
                    left_out[str(exc)] += 1

        asyncio.run(show_all())
        return chats, left_out

    async def _shown(self, question: Question) -> Chat:
        """How the agent should have answered. Raises Unusable."""
        runner = self._runner_of(question.agent)
        if not question.answer.strip():
            raise Unusable("no reference answer")
        tool = next((tool for tool in runner.toolset.offered if tool.name == QUERY), None)
        messages: list[Message] = [*_system(runner, question.db_id), {"role": "user", "content": question.question}]
        for n, sql in enumerate(question.sql if tool else []):
            assert tool
            context = EpisodeContext()
            result = await tool.invoke(context, json.dumps({"sql": sql}, ensure_ascii=False))
            if not context.sql_calls or not context.sql_calls[-1].result.ok:
                raise Unusable("reference SQL that does not run")
            call = {"id": f"call_{n}", "name": QUERY, "arguments": {"sql": sql}}
            messages += [
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"], "content": result},
            ]
        messages.append({"role": "assistant", "content": question.answer})
        return chat_of(messages, _specs(runner), group=question.id)


def _system(runner: EpisodeRunner, db_id: str) -> list[Message]:
    agent = runner.config.agent
    if agent.custom_episode:
        raise UserError(
            f"{agent.custom_episode}: what such an agent is told stands nowhere in its rollouts. "
            "Write its conversations as rows with messages, and give that file"
        )
    if runner.toolset.kinds:
        raise UserError(
            f"agent.tools = {agent.tools} has environments, which tell the model more than the question; rollouts "
            "do not hold it. Write the conversations as rows with messages, and give that file"
        )
    return [{"role": "system", "content": runner.prompt_for(db_id)}]


def _specs(runner: EpisodeRunner) -> list[Message]:
    return [tool.spec for tool in runner.toolset.offered]
