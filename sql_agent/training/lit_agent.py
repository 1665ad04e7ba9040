"""SqlAgent: agent-lightning's view of the agent. A row goes in; a reward span, or the reason for none, comes out.

Each rollout leaves one annotation span with the whole record (question, SQL, results, answer, reward), so that the
training side can write it down wherever the runner ran. A fault leaves no reward at all.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, cast

import agentlightning as agl
from agentlightning.types import AttemptedRollout, NamedResources, Rollout, SpanCoreFields

from foundation.marks import Marks
from foundation.rollout_keys import AWAITS_GROUP, LLM_CALLS_KEY, MAIN_LLM, RECORD_KEY, SEED_KEY, UNSCORED_KEY
from foundation.seeds import call_seeds
from foundation.store_token import token
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.grading import scoring_of
from sql_agent.config import AgentTree, JudgeConfig
from sql_agent.records import Question, RolloutRecord, rollout_record
from sql_agent.scoring.reward import graded
from sql_agent.scoring.scorers import ScoringContext


def to_spans(record: RolloutRecord) -> list[SpanCoreFields]:
    """The spans of a finished rollout: the record, and a reward span unless the rollout is unscored.

    One that awaits its group has no reward yet, but tells its number of LLM calls: its triplets will be used.
    """
    note: dict[str, Any] = {RECORD_KEY: json.dumps(record.model_dump(), ensure_ascii=False)}
    if record.reward is None:
        calls = {LLM_CALLS_KEY: record.n_trained_calls} if record.unscored == AWAITS_GROUP else {}
        return [agl.emit_annotation({**note, **calls, UNSCORED_KEY: record.unscored}, propagate=False)]
    dimensions = {"total": record.reward, **record.reward_parts}
    attributes = {**note, LLM_CALLS_KEY: record.n_trained_calls}
    return [agl.emit_reward(dimensions, primary_key="total", attributes=attributes, propagate=False)]


def share_of(judge: JudgeConfig, *, n_runners: int) -> JudgeConfig:
    """The judge of one of the runner processes, which share out the calls that it may get at once."""
    return judge.model_copy(update={"concurrency": max(1, judge.concurrency // n_runners)})


class SqlAgent(agl.LitAgent[dict[str, Any]]):
    """The configured agent as a LitAgent. Its tools and the judge are opened in the runner process, on first use.

    `run` names the account that the judge's budget is taken from, the same in all runners; `marks` are the control
    tokens of the policy.
    """

    def __init__(self, config: AgentTree, *, run: str = "", marks: Marks | None = None) -> None:
        super().__init__()
        self.config = config
        self._run = run
        self._marks = marks or Marks()
        self._runner: EpisodeRunner | None = None
        self._scoring: ScoringContext | None = None

    def _open(self) -> tuple[EpisodeRunner, ScoringContext]:
        if self._runner is None or self._scoring is None:
            runner = self._runner = EpisodeRunner(self.config)
            judge = share_of(self.config.reward.judge, n_runners=self.config.rollout.n_runners)
            config = self.config.but(reward={"judge": judge})
            self._scoring = scoring_of(config, run=self._run, opened=lambda name: runner.of(name).toolset)
        return self._runner, self._scoring

    async def rollout_async(
        self, task: dict[str, Any], resources: NamedResources, rollout: Rollout
    ) -> list[SpanCoreFields]:
        """One episode on one row; the mode of the rollout decides how it is sampled."""
        runner, scoring = self._open()
        question = Question.model_validate(task)
        llm = self._endpoint(cast(agl.ProxyLLM, resources[MAIN_LLM]), cast(AttemptedRollout, rollout))
        scoring = dataclasses.replace(scoring, in_group=rollout.mode == "train")
        episode, reward = await graded(runner.run(question, llm), question, scoring)
        return to_spans(rollout_record(question, episode, reward))

    def _endpoint(self, llm: agl.ProxyLLM, rollout: AttemptedRollout) -> LLMEndpoint:
        """The policy; without max_tokens, which the server sets to max_response_tokens or what the context has left.

        Another attempt draws what the one before drew.
        """
        seed = (rollout.metadata or {}).get(SEED_KEY)
        sampling = self.config.rollout
        endpoint = LLMEndpoint(
            base_url=llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id),
            model=llm.model,
            api_key=token() or "EMPTY",
            seeds=None if seed is None else call_seeds(seed),
            untrained_url=f"{llm.get_base_url(None, None).rstrip('/').removesuffix('/v1')}/v1",
            marks=self._marks,
        )
        return endpoint.sampled(sampling if rollout.mode == "train" else sampling.validation)
