"""Questions and rollouts of a step in this process: episodes against the endpoint, graded as runners grade them.

Guarantees: the records are those of rollouts.jsonl under the same keys; a fault leaves a rollout unscored, and so does
its time limit, after which nothing of it counts; groups that are judged together are, in training. What is sampled
follows from the seed: each call draws with its own, and calls are sampled together in rounds, one of each rollout that
still plays. Rounds wait for slow tools for PATIENCE of a rollout's time in a step; after that, what is sampled together
depends on time, by which probabilities differ in their last bits, and seldom a token.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from agl_plugin.audit.facts import Seen
from agl_plugin.run.ahead import Finished, InFlight
from agl_plugin.update.rows import Call
from foundation.background import Overdue, within
from foundation.rollout_keys import AWAITS_GROUP, NO_LLM_CALL, TIMED_OUT, RunKeys
from foundation.seeds import call_seeds, rollout_seed
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import AgentTree
from sql_agent.data.dataset import to_row
from sql_agent.local.endpoint import PolicyEndpoint
from sql_agent.local.sampling import Sampler
from sql_agent.records import Episode, Question, Reward, rollout_record
from sql_agent.scoring.groups import grader_of
from sql_agent.scoring.registry import ScoringContext
from sql_agent.scoring.reward import graded

Mode = Literal["train", "val"]
PATIENCE = 0.25  # the others must not run out of time for one that hangs; nobody is done before it anyway
POLL_S = 0.002
logger = logging.getLogger(__name__)


class Player:
    def __init__(self, config: AgentTree, endpoint: PolicyEndpoint, scoring: ScoringContext, *, seed: int) -> None:
        self._config, self._endpoint, self._scoring, self._seed = config, endpoint, scoring, seed
        # A call waits here while those of all other rollouts are sampled, so it has the time that its rollout has.
        self._runner = EpisodeRunner(config.but(agent={"llm_timeout_s": config.rollout.rollout_timeout_s}))
        self._grader = grader_of(scoring)

    def close(self) -> None:
        self._runner.close()

    def play(
        self, questions: Sequence[Question], sampler: Sampler, *, step: int, mode: Mode, first: int = 0
    ) -> InFlight:
        """Finished rollouts of the questions: a group of each in training, else one; the calling thread samples.

        `first`: how many rollouts the step has already, which these stand in for.
        """
        size = self._config.rollout.group_size if mode == "train" else 1
        questions = [question for question in questions for _ in range(size)]
        names = [f"{mode}-{step}-{n}" for n in range(first, first + len(questions))]
        seeds = self._seeds(questions, step=step, mode=mode)
        self._endpoint.begin(names)
        tasks = [
            self._endpoint.worker.submit(self._rollout(name, question, mode, seed))
            for name, question, seed in zip(names, questions, seeds, strict=True)
        ]
        patience_s = PATIENCE * self._config.rollout.rollout_timeout_s
        while not all(task.done() for task in tasks):
            calls, waiting = self._endpoint.take(all_of_them=patience_s > 0)
            if not calls:
                time.sleep(POLL_S)
                patience_s -= POLL_S * waiting
            for call, answer in zip(calls, sampler.answers(calls), strict=True):
                self._endpoint.answer(call, answer)
        played = InFlight()
        for n, (name, question, task) in enumerate(zip(names, questions, tasks, strict=True), start=first):
            record, calls = task.result(), self._endpoint.sampled.get(name, [])
            group = f"{mode}-{step}-group-{n // size}"
            place = {"step": step, "mode": mode, "group": group, "resampled": first > 0}
            played.questions[name] = {**to_row(question), "data_id": group}
            played.rows.append(record | _keys(name, calls, record, place))
        if mode == "train":
            self._grade(played.rows)
        n_updates = max(0, step - 1) if mode == "train" else step
        for row in played.rows:
            seen = _seen(row, self._endpoint.sampled.get(row["rollout_id"], []), weights=n_updates)
            reward = None if row["unscored"] else row["reward"]
            played.seen.append(seen)
            played.finished[row["rollout_id"]] = Finished(reward, row["unscored"], seen.calls)
        return played

    def _seeds(self, questions: Sequence[Question], *, step: int, mode: Mode) -> list[int]:
        """Those of the rollouts, as train_sql_agent.py has them."""
        seen = Counter[str]()
        seeds: list[int] = []
        for question in questions:
            key = question.id or question.question
            seeds.append(rollout_seed(self._seed, mode=mode, step=step, question=key, copy=seen[key]))
            seen[key] += 1
        return seeds

    async def _rollout(self, name: str, question: Question, mode: Mode, seed: int) -> dict[str, Any]:
        rollout = self._config.rollout
        llm = self._endpoint.of_rollout(name).sampled(rollout if mode == "train" else rollout.validation)
        llm = dataclasses.replace(llm, seeds=call_seeds(seed))
        scoring = dataclasses.replace(self._scoring, in_group=mode == "train")
        work = graded(self._episode(name, question, llm), question, scoring)
        try:
            episode, reward = await within(work, limit_s=rollout.rollout_timeout_s)
        except Overdue as late:
            self._endpoint.over(name)
            reason = f"rollout.rollout_timeout_s = {rollout.rollout_timeout_s:g} is over; {late}"
            episode, reward = None, Reward(unscored=TIMED_OUT, explanation=reason)
        except Exception as exc:
            logger.exception("rollout of question %s broke", question.id)
            episode, reward = None, Reward(unscored="agent_error", explanation=f"{type(exc).__name__}: {exc}"[:500])
        return rollout_record(question, episode, reward).model_dump()

    async def _episode(self, name: str, question: Question, llm: LLMEndpoint) -> Episode:
        try:
            return await self._runner.run(question, llm)
        finally:
            self._endpoint.over(name)

    def _grade(self, rows: Sequence[dict[str, Any]]) -> None:
        for group in {row["group"] for row in rows if row["unscored"] == AWAITS_GROUP}:
            members = [row for row in rows if row["group"] == group]
            changes = self._endpoint.worker.submit(self._grader(members)).result()
            for row, change in zip(members, changes, strict=True):
                row.update(change)


def _keys(name: str, calls: Sequence[Call], record: dict[str, Any], place: dict[str, Any]) -> dict[str, Any]:
    unscored = record["unscored"]
    if not calls and unscored in ("", AWAITS_GROUP):
        unscored = NO_LLM_CALL
    keys = RunKeys(
        **place,
        rollout_id=name,
        status="succeeded" if unscored in ("", AWAITS_GROUP) else "failed",
        unscored=unscored,
        prompt_tokens_by_call=[len(call.prompt) for call in calls],
        response_tokens=[len(call.sampled) for call in calls],
        finish_reasons=[call.finish_reason for call in calls],
    )
    return keys.model_dump()


def _seen(row: dict[str, Any], calls: Sequence[Call], *, weights: int) -> Seen:
    """What the audit keeps of a rollout, whose calls were answered by weights that have seen so many updates."""
    rollout, attempt, now = row["rollout_id"], f"{row['rollout_id']}/a1", time.time()
    facts = {"attempt_id": attempt, "weights_version": weights}
    calls = [
        dataclasses.replace(call, facts={**call.facts, **facts, "response_id": f"{attempt}/{n}"})
        for n, call in enumerate(calls)
    ]
    attempt_row = {"id": attempt, "rollout_id": rollout, "n": 1, "status": row["status"]}
    attempt_row["started_s"] = calls[0].facts["started_s"] if calls else now
    attempt_row["ended_s"] = calls[-1].facts["ended_s"] if calls else now
    return Seen(rollout, {}, [attempt_row], calls)
