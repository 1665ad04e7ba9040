"""Conversations of the configured agent: rollouts as they were played, and questions with their reference answer.

Guarantees: system prompt, tools and the form of results are those of the agent in training; reference SQL runs on the
configured database, through the agent's own tool, read-only.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from foundation.errors import UserError
from foundation.rollout_keys import RunKeys
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.sql_tool import QUERY
from sql_agent.agent.tool import EpisodeContext
from sql_agent.config import AgentTree, agent_config
from sql_agent.records import Question, RolloutRecord
from sql_agent.tuning.chats import Chat, Message, Unusable, chat_of


class AgentChats:
    """Opens the agent's tools on first use. A context manager."""

    def __init__(self, config: AgentTree) -> None:
        self._config = config
        self._runner = EpisodeRunner(config)
        self._others: dict[str, AgentChats] = {}

    def of(self, agent: str) -> AgentChats:
        """The conversations of one of [agents]; closed with this. Raises Unusable for one that there is not."""
        if agent and agent not in self._config.agents:
            raise Unusable(f"agent {agent!r}, which [agents] does not name")
        if agent and agent not in self._others:
            self._others[agent] = AgentChats(agent_config(self._config, agent))
        return self._others[agent] if agent else self

    def __enter__(self) -> AgentChats:
        return self

    def __exit__(self, *_exc: object) -> None:
        for other in self._others.values():
            other._runner.close()
        self._runner.close()

    @cached_property
    def specs(self) -> list[Message]:
        """The schemas of the agent's tools. Raises UserError."""
        return [tool.spec for tool in self._runner.toolset.offered]

    def _system(self, db_id: str) -> list[Message]:
        agent = self._config.agent
        if agent.own:
            raise UserError(
                f"{agent.own}: what such an agent is told stands nowhere in its rollouts. "
                "Write its conversations as rows with messages, and give that file"
            )
        if self._runner.toolset.has_environments:
            raise UserError(
                f"agent.tools = {agent.tools} has environments, which tell the model more than the question; rollouts "
                "do not hold it. Write the conversations as rows with messages, and give that file"
            )
        return [{"role": "system", "content": self._runner.prompt_for(db_id)}]

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
        group, agent = keys.group or record.question_id, self.of(record.agent)
        return chat_of(
            [*agent._system(record.db_id), question, *record.messages], agent.specs, group=group, reward=record.reward
        )

    def of_questions(self, questions: list[Question]) -> tuple[list[Chat], Counter[str]]:
        """A conversation for each question that has an answer, and what was left out."""

        chats, left_out = list[Chat](), Counter[str]()

        async def show_all() -> None:
            for question in questions:
                try:
                    chats.append(await self.of(question.agent)._shown(question))
                except Unusable as exc:
                    left_out[str(exc)] += 1

        asyncio.run(show_all())
        return chats, left_out

    async def _shown(self, question: Question) -> Chat:
        """How the agent should have answered. Raises Unusable."""
        if not question.answer.strip():
            raise Unusable("no reference answer")
        tool = next((tool for tool in self._runner.toolset.offered if tool.name == QUERY), None)
        messages: list[Message] = [*self._system(question.db_id), {"role": "user", "content": question.question}]
        for n, sql in enumerate(question.sql if tool else []):
            assert tool
            context = EpisodeContext()
            result = await tool.invoke(context, json.dumps({"sql": sql}, ensure_ascii=False))
            if not context.calls or not context.calls[-1].result.ok:
                raise Unusable("reference SQL that does not run")
            call = {"id": f"call_{n}", "name": QUERY, "arguments": {"sql": sql}}
            messages += [
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"], "content": result},
            ]
        return chat_of([*messages, {"role": "assistant", "content": question.answer}], self.specs, group=question.id)
