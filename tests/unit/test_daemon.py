"""GrpoDaemon on a real in-memory store: what it waits for, leaves out, counts and writes down.

The rollouts are queued and answered here in the place of trainer, proxy and runners; tests/loop has all of them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import agentlightning as agl
import pytest
import torch
from agentlightning.types import EnqueueRolloutRequest, Span

from agl_plugin.daemon import GrpoDaemon
from agl_plugin.options import DaemonOptions
from agl_plugin.run.ahead import InFlight
from agl_plugin.run.resampling import SpareQuestions
from agl_plugin.update.advantage import over_rollouts
from agl_plugin.update.rows import Limits
from foundation import run_folder
from foundation.errors import RunError
from foundation.files import read_lines
from foundation.net import free_port
from foundation.rollout_keys import LLM_CALLS_KEY, SEED_KEY
from tests.spans import call_without_ids, fault_span, llm_call, reward_span, waiting_span

MAX_PROMPT, MAX_RESPONSE = 16, 8
# What a runner leaves of one rollout: a function from its ids to its spans.
Play = Callable[[dict[str, Any]], list[Span]]


def record(reward: float | None, **more: Any) -> str:
    parts = {"sql": 0.1, "answer": reward - 0.1} if reward is not None else {}
    return json.dumps(
        {"question": "高血压？", "reward": reward, "reward_parts": parts, "stop_reason": "answered", **more}
    )


def scored(reward: float, *, n_calls: int = 1) -> Play:
    """A rollout of `n_calls` LLM calls that earned `reward`."""

    def play(ids: dict[str, Any]) -> list[Span]:
        calls = [llm_call([7, 8, *range(1, n + 1)], [9] * n, seq=n, **ids) for n in range(1, n_calls + 1)]
        return [*calls, reward_span(reward, seq=99, n_calls=n_calls, record=record(reward), **ids)]

    return play


def faulty(reason: str) -> Play:
    """A rollout that a fault ended after its first call."""
    return lambda ids: [llm_call([7], [9], seq=1, **ids), fault_span(reason, seq=2, record=record(None), **ids)]


def waiting(n_calls: int = 1) -> Play:
    """A rollout whose reward comes with its group."""

    def play(ids: dict[str, Any]) -> list[Span]:
        calls = [llm_call([7, *range(1, n + 1)], [9] * n, seq=n, **ids) for n in range(1, n_calls + 1)]
        note = record(None, unscored="awaits_group", n_calls=n_calls)
        return [*calls, waiting_span(seq=99, n_calls=n_calls, record=note, **ids)]

    return play


def waiting_without_ids(ids: dict[str, Any]) -> list[Span]:
    return [call_without_ids(seq=1, **ids), waiting_span(seq=2, n_calls=1, record=record(None), **ids)]


def without_ids(ids: dict[str, Any]) -> list[Span]:
    """A rollout whose server gave no token ids."""
    return [call_without_ids(seq=1, **ids), reward_span(1.0, seq=2, n_calls=1, record=record(1.0), **ids)]


def without_calls(ids: dict[str, Any]) -> list[Span]:
    """A rollout whose agent asked no model."""
    return [reward_span(1.0, seq=1, n_calls=0, record=record(1.0), **ids)]


def crashed(_ids: dict[str, Any]) -> list[Span]:
    """A rollout that left nothing at all."""
    return []


@pytest.fixture
def store() -> agl.InMemoryLightningStore:
    return agl.InMemoryLightningStore(thread_safe=True)


@pytest.fixture
def daemon(store: agl.InMemoryLightningStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GrpoDaemon]:
    monkeypatch.setattr("agl_plugin.daemon.LATE_SPANS_S", 0.2)
    monkeypatch.setattr("agl_plugin.daemon.WATCH_EVERY_S", 0.2)
    daemon = GrpoDaemon(
        model="m",
        group_size=2,
        temperature=1.0,
        pad_token_id=0,
        merge=False,
        store=store,
        run_dir=tmp_path,
        options=DaemonOptions(poll_interval_s=0.01, rollout_timeout_s=60.0, stall_s=1.0),
    )
    daemon.step = 3
    yield daemon
    daemon.close()


def test_the_rollouts_of_a_question_are_queued_each_with_a_seed(daemon: GrpoDaemon) -> None:
    first, second = daemon._requests({"d1": {"id": "q1"}}, resampled=True)
    assert first.input == second.input == {"id": "q1", "data_id": "d1"}
    assert (first.metadata or {})[SEED_KEY] != (second.metadata or {})[SEED_KEY]
    assert (first.mode, (first.metadata or {})["data_id"]) == ("train", "d1")
    assert first.config is not None and first.config.timeout_seconds == 60.0 and first.config.max_attempts == 2


def queue(daemon: GrpoDaemon, n_rollouts: list[int], *, is_train: bool = True, name: str = "d") -> None:
    """Enqueue questions with so many rollouts each, as the daemon does; `name` begins the names of their groups."""
    daemon.is_train = is_train
    mode = "train" if is_train else "val"
    requests = [
        EnqueueRolloutRequest(input={"question": "高血压？"}, mode=mode, metadata={"data_id": f"{name}{question}"})
        for question, n in enumerate(n_rollouts)
        for _ in range(n)
    ]
    rollouts = asyncio.run(daemon.store.enqueue_many_rollouts(requests))
    daemon.rollouts = InFlight({r.rollout_id: {"data_id": (r.metadata or {})["data_id"]} for r in rollouts})


async def answer(store: agl.LightningStore, plays: list[Play]) -> None:
    """Take and finish one rollout per play, in the order of the queue."""
    for play in plays:
        rollout = await store.dequeue_rollout()
        assert rollout is not None
        ids = {"rollout": rollout.rollout_id, "attempt": rollout.attempt.attempt_id}
        spans = play(ids)
        if spans:
            await store.add_many_spans(spans)
        status = "succeeded" if spans else "failed"
        await store.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, status=status)


def finish(daemon: GrpoDaemon, groups: list[list[Play]], *, is_train: bool = True, name: str = "d") -> None:
    """Queue the groups, play them, and let the daemon collect them."""
    queue(daemon, [len(group) for group in groups], is_train=is_train, name=name)
    asyncio.run(answer(daemon.store, [play for group in groups for play in group]))
    daemon._wait(daemon._play())


def batch_of(daemon: GrpoDaemon) -> tuple[Any, dict[str, Any]]:
    return daemon.batch(Limits(MAX_PROMPT, MAX_RESPONSE))


def lines(daemon: GrpoDaemon) -> list[dict[str, Any]]:
    return read_lines(daemon.run_dir / run_folder.ROLLOUTS)


def test_each_turn_of_a_scored_rollout_is_a_row_with_its_reward(daemon: GrpoDaemon) -> None:
    """In float32 to 2^-17; as bfloat16, which agent-lightning stores, 0.73 would be 0.7305."""
    finish(daemon, [[scored(0.73, n_calls=2), scored(0.1)]])
    batch, metrics = batch_of(daemon)
    scores = batch.batch["token_level_scores"]
    assert scores.dtype == torch.float32 and scores.shape == (3, 2)
    rows = sorted(zip(batch.non_tensor_batch["rollout_id_list"], scores.tolist(), strict=True))
    first, second = [line["rollout_id"] for line in sorted(lines(daemon), key=lambda line: -line["reward"])]
    expected = sorted([(first, [0.73, 0]), (first, [0, 0.73]), (second, [0.1, 0])])
    for row, (rollout, values) in zip(rows, expected, strict=True):
        assert row == (rollout, pytest.approx(values, abs=2**-17))
    assert metrics["training/reward"] == pytest.approx(0.415)


@pytest.mark.parametrize("reward", [0.1, 0.73, 1.1, 1 / 3, 0.0])
def test_equal_rewards_give_exactly_no_advantage(daemon: GrpoDaemon, reward: float) -> None:
    """GRPO divides by the standard deviation + 1e-6: a rounding error in the mean would become a direction to learn."""
    finish(daemon, [[scored(reward, n_calls=n) for n in (3, 3, 3, 4)]])  # the mean of 13 equal floats is often off
    batch, _ = batch_of(daemon)
    index = batch.non_tensor_batch["data_id_list"]
    advantages = over_rollouts("group", batch.batch["token_level_scores"], batch.batch["response_mask"], index)
    assert len(batch) == 13 and advantages.abs().max().item() == 0.0


def test_the_batch_holds_the_token_ids_of_the_calls(daemon: GrpoDaemon) -> None:
    finish(daemon, [[scored(0.5, n_calls=2), scored(0.6)]])
    batch, _ = batch_of(daemon)
    masks = batch.batch["attention_mask"].bool()
    width = batch.batch["prompts"].shape[1]
    prompts = [p[m].tolist() for p, m in zip(batch.batch["prompts"], masks[:, :width], strict=True)]
    responses = [r[m].tolist() for r, m in zip(batch.batch["responses"], masks[:, width:], strict=True)]
    assert sorted(prompts) == [[7, 8, 1], [7, 8, 1], [7, 8, 1, 2]] and sorted(responses) == [[9], [9], [9, 9]]


def test_an_unscored_rollout_is_counted_and_never_a_zero(daemon: GrpoDaemon) -> None:
    finish(daemon, [[scored(0.4), scored(0.8), faulty("llm_fault"), without_ids, without_calls, crashed]])
    batch, metrics = batch_of(daemon)
    assert len(batch) == 2 and metrics["training/reward"] == pytest.approx(0.6)
    assert daemon.stats["rollouts"] == 6 and daemon.stats["scored"] == 2
    assert daemon.stats["reward_mean"] == pytest.approx(0.6)
    assert daemon.stats["reward_parts/answer"] == pytest.approx(0.5)
    reasons = {k.removeprefix("unscored/"): n for k, n in daemon.stats.items() if k.startswith("unscored/")}
    assert reasons == {"llm_fault": 1, "no_token_ids": 1, "no_llm_call": 1, "agent_error": 1}


def test_a_group_gets_its_rewards_when_its_last_rollout_has_finished(daemon: GrpoDaemon) -> None:
    seen: list[list[str]] = []

    async def grade_group(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        seen.append(sorted(row["unscored"] for row in rows))
        await asyncio.sleep(0.05)
        changes = {"unscored": "", "reward_parts": {"answer": 1.0}, "reason": "ranked"}
        return [{**changes, "reward": row["n_calls"] / 4} if "n_calls" in row else {} for row in rows]

    daemon.grade_group = grade_group
    groups = [[waiting(1), waiting(3), faulty("llm_fault"), waiting_without_ids], [scored(0.5), scored(0.6)]]
    finish(daemon, groups)
    batch, metrics = batch_of(daemon)
    assert seen == [["awaits_group", "awaits_group", "llm_fault", "no_token_ids"]]
    rewards = {line["rollout_id"]: line["reward"] for line in lines(daemon) if line["group"] == "d0"}
    assert sorted(r for r in rewards.values() if r is not None) == [0.25, 0.75]
    given = dict(zip(batch.non_tensor_batch["rollout_id_list"], batch.batch["token_level_scores"].sum(-1), strict=True))
    assert all(given[i].item() == reward for i, reward in rewards.items() if reward is not None)
    assert len(batch) == 6 and metrics["training/reward"] == pytest.approx((0.25 + 0.75 + 0.5 + 0.6) / 4)
    assert daemon.stats["unscored/no_token_ids"] == 1 and "unscored/awaits_group" not in daemon.stats


def test_what_nobody_grades_stays_unscored(daemon: GrpoDaemon) -> None:
    finish(daemon, [[waiting(), scored(0.4), scored(0.8)]])
    batch, _ = batch_of(daemon)
    assert len(batch) == 2 and daemon.stats["unscored/awaits_group"] == 1


class Spare(SpareQuestions):
    """Further questions, each of which is answered as soon as its group is queued: the daemon is waiting then."""

    def __init__(self, daemon: GrpoDaemon, groups: list[list[Play]]) -> None:
        n = len(groups)
        super().__init__([{"id": f"spare{i}", "question": "肝炎？"} for i in range(n)], range(n))
        self.plays = [play for group in groups for play in group]
        self.rounds: list[int] = []
        enqueue = daemon.store.enqueue_many_rollouts

        async def enqueue_and_answer(requests: Any) -> Any:
            rollouts = await enqueue(requests)
            self.rounds.append(len(rollouts))
            now, self.plays = self.plays[: len(rollouts)], self.plays[len(rollouts) :]
            await answer(daemon.store, now)
            return rollouts

        daemon.store.enqueue_many_rollouts = enqueue_and_answer  # pyright: ignore[reportAttributeAccessIssue]


def resampled(daemon: GrpoDaemon, groups: list[list[Play]], spare: list[list[Play]], *, times: int) -> Spare:
    """A step whose flat groups are sampled anew up to `times` times, in groups of two."""
    daemon.options = replace(daemon.options, resample=times)
    queue(daemon, [len(group) for group in groups])
    asyncio.run(answer(daemon.store, [play for group in groups for play in group]))
    daemon.spare_questions = drawn = Spare(daemon, spare)
    daemon._wait(daemon._play())
    return drawn


def rewards_in(batch: Any) -> list[float]:
    return sorted(batch.batch["token_level_scores"].sum(-1).tolist())


FLAT = [scored(0.5), scored(0.5)]
VARIED = [scored(0.25), scored(0.75)]


def test_flat_groups_are_replaced_by_groups_that_teach(daemon: GrpoDaemon) -> None:
    spare = resampled(daemon, [FLAT, [scored(0.0), scored(1.0)], FLAT], [VARIED, VARIED], times=1)
    batch, metrics = batch_of(daemon)
    assert rewards_in(batch) == [0.0, 0.25, 0.25, 0.75, 0.75, 1.0] and spare.rounds == [4]
    assert (daemon.stats["resampled_groups"], daemon.stats["replaced_groups"]) == (2, 2)
    assert (daemon.stats["groups"], daemon.stats["zero_variance_groups"]) == (5, 2)
    assert daemon.stats["rollouts"] == 10 and metrics["training/reward"] == pytest.approx(0.5)  # over all ten
    assert [line["resampled"] for line in lines(daemon)] == [False] * 6 + [True] * 4
    assert {line["step"] for line in lines(daemon)} == {3}


def test_a_substitute_that_is_flat_too_is_tried_again_and_then_left(daemon: GrpoDaemon) -> None:
    spare = resampled(daemon, [FLAT, FLAT], [[scored(0.1), scored(0.1)], VARIED, FLAT], times=2)
    batch, _ = batch_of(daemon)
    assert spare.rounds == [4, 2]
    assert rewards_in(batch) == [0.25, 0.5, 0.5, 0.75]  # one place filled, the other keeps its own flat group
    assert (daemon.stats["resampled_groups"], daemon.stats["replaced_groups"]) == (3, 1)


def test_faults_in_a_substitute_leave_the_old_group(daemon: GrpoDaemon) -> None:
    crowd = [[faulty("judge_unreachable"), scored(0.9)], [crashed, without_ids]]
    resampled(daemon, [FLAT, FLAT, VARIED], crowd, times=1)
    batch, _ = batch_of(daemon)
    assert rewards_in(batch) == [0.25, 0.5, 0.5, 0.5, 0.5, 0.75]
    assert daemon.stats["replaced_groups"] == 0 and daemon.stats["unscored/judge_unreachable"] == 1


def test_a_group_that_faults_made_small_is_not_sampled_again(daemon: GrpoDaemon) -> None:
    spare = resampled(daemon, [[scored(0.5), faulty("llm_fault")], VARIED], [VARIED], times=3)
    batch, _ = batch_of(daemon)
    assert spare.rounds == [] and rewards_in(batch) == [0.25, 0.75]
    assert daemon.stats["resampled_groups"] == 0 and daemon.stats["groups_too_small"] == 1


def test_a_substitute_without_a_runner_ends_the_run_like_any_other(daemon: GrpoDaemon) -> None:
    daemon.options = replace(daemon.options, resample=1)
    queue(daemon, [2])
    asyncio.run(answer(daemon.store, FLAT))
    daemon.spare_questions = SpareQuestions([{"id": "s", "question": "肝炎？"}], [0])
    with pytest.raises(RunError, match="no rollout finished"):
        daemon._wait(daemon._play())
    assert len(lines(daemon)) == 2  # what had finished is on record


def test_substitutes_are_graded_with_their_group(daemon: GrpoDaemon) -> None:
    async def grade_group(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"unscored": "", "reward": n / 4, "reward_parts": {"answer": n / 4}} for n, _ in enumerate(rows)]

    daemon.grade_group = grade_group
    resampled(daemon, [FLAT], [[waiting(), waiting()]], times=1)
    batch, _ = batch_of(daemon)
    assert rewards_in(batch) == [0.0, 0.25]


def test_validation_is_never_sampled_again(daemon: GrpoDaemon) -> None:
    daemon.options = replace(daemon.options, resample=3)
    finish(daemon, [[scored(0.5)], [scored(0.5)]], is_train=False)
    assert daemon.validation()["val/rollouts"] == 2


def test_the_end_of_each_call_and_the_spread_of_rewards_are_told(daemon: GrpoDaemon) -> None:
    finish(daemon, [[scored(0.0), scored(0.6), scored(0.9, n_calls=2)]])
    batch_of(daemon)
    assert (daemon.stats["reward_min"], daemon.stats["reward_max"]) == (0.0, 0.9)
    assert daemon.stats["zero_reward_share"] == pytest.approx(1 / 3)
    assert sorted(line["finish_reasons"] for line in daemon.rollouts.rows) == [["stop"], ["stop"], ["stop", "stop"]]


def test_a_group_that_the_grader_leaves_unscored_has_no_reward(daemon: GrpoDaemon) -> None:
    async def grade_group(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"unscored": "judge_unreachable"} for _ in rows]

    daemon.grade_group = grade_group
    finish(daemon, [[waiting(), waiting()], [scored(0.4), scored(0.8)]])
    batch, _ = batch_of(daemon)
    assert len(batch) == 2 and daemon.stats["unscored/judge_unreachable"] == 2


def test_a_group_of_one_scored_rollout_is_left_out(daemon: GrpoDaemon) -> None:
    """Without a second rollout there is nothing to compare with: verl would use the reward itself as the advantage."""
    finish(daemon, [[scored(0.4), scored(0.8)], [scored(1.0, n_calls=3), faulty("judge_down")]])
    batch, _ = batch_of(daemon)
    assert {uid.partition("/")[0] for uid in batch.non_tensor_batch["data_id_list"]} == {"d0"} and len(batch) == 2
    assert (daemon.stats["groups"], daemon.stats["groups_too_small"]) == (2, 1)
    assert daemon.stats["scored"] == 3 and daemon.stats["reward_mean"] == pytest.approx(2.2 / 3)


def test_groups_without_variance_are_counted(daemon: GrpoDaemon) -> None:
    finish(daemon, [[scored(0.5), scored(0.5)], [scored(0.5), scored(0.6)], [scored(0.5), faulty("llm_fault")]])
    batch_of(daemon)
    assert (daemon.stats["groups"], daemon.stats["zero_variance_groups"], daemon.stats["groups_too_small"]) == (3, 1, 1)


@pytest.mark.parametrize(
    ("groups", "what"),
    [
        ([[faulty("llm_fault"), crashed]], "none of 2 rollouts can be trained on"),
        ([[without_calls, without_calls]], "none of 2 rollouts can be trained on"),
        ([[without_ids, without_ids]], "none of 2 rollouts can be trained on"),
        ([[scored(0.5), crashed], [crashed, scored(0.7)]], "no question has two scored rollouts to compare"),
    ],
)
def test_a_step_without_data_stops_with_causes_and_counts(
    daemon: GrpoDaemon, groups: list[list[Play]], what: str
) -> None:
    finish(daemon, groups)
    with pytest.raises(RunError) as caught:
        batch_of(daemon)
    text = str(caught.value)
    assert f"step 3: {what}" in text and str(daemon.run_dir / run_folder.ROLLOUTS) in text
    reasons = [line["unscored"] for line in lines(daemon) if line["unscored"]]
    assert all(f"  {reasons.count(reason)} x {reason}: " in text for reason in reasons)
    assert ("token ids" in text) == ("no_token_ids" in reasons) and "judge" not in text  # nothing else is blamed


def test_validation_means_are_over_scored_rollouts(daemon: GrpoDaemon) -> None:
    finish(daemon, [[scored(0.5)], [faulty("judge_down")], [scored(1.0)]], is_train=False)
    metrics = daemon.validation()
    assert metrics["val/reward_mean"] == pytest.approx(0.75)
    assert (metrics["val/rollouts"], metrics["val/scored"], metrics["val/unscored/judge_down"]) == (3, 2, 1)
    assert {line["mode"] for line in lines(daemon)} == {"val"}


def test_validation_without_any_score_stops(daemon: GrpoDaemon) -> None:
    finish(daemon, [[crashed]], is_train=False)
    with pytest.raises(RunError, match="validation: none of 1 rollouts was scored"):
        daemon.validation()


def test_every_rollout_is_written_down_with_its_record(daemon: GrpoDaemon) -> None:
    finish(daemon, [[scored(0.5, n_calls=2), faulty("llm_fault"), crashed]])
    by_reason = {line["unscored"]: line for line in lines(daemon)}
    assert by_reason.keys() == {"", "llm_fault", "agent_error"}
    good = by_reason[""]
    assert (good["step"], good["mode"], good["group"], good["status"]) == (3, "train", "d0", "succeeded")
    assert (good["prompt_tokens_by_call"], good["response_tokens"]) == ([3, 4], [1, 2])
    assert good["question"] == "高血压？" and good["reward_parts"] == {"sql": 0.1, "answer": 0.4}
    assert by_reason["agent_error"]["status"] == "failed" and by_reason["llm_fault"]["reward"] is None


def test_only_the_latest_attempt_counts(daemon: GrpoDaemon) -> None:
    """Spans of an attempt that was given up arrive late, also with a reward of their own."""

    async def play() -> None:
        store = daemon.store
        rollout = await store.dequeue_rollout()
        assert rollout is not None
        old = {"rollout": rollout.rollout_id, "attempt": rollout.attempt.attempt_id}
        retry = await store.start_attempt(rollout.rollout_id)
        new = {"rollout": rollout.rollout_id, "attempt": retry.attempt.attempt_id}
        await store.add_many_spans(scored(0.9)(new))
        await store.add_many_spans(scored(0.2, n_calls=3)(old))
        await store.update_attempt(rollout.rollout_id, retry.attempt.attempt_id, status="succeeded")

    queue(daemon, [1], is_train=False)
    asyncio.run(play())
    daemon._wait(daemon._play())
    assert daemon.validation()["val/reward_mean"] == pytest.approx(0.9)
    assert lines(daemon)[0]["response_tokens"] == [1]


@pytest.mark.parametrize("told", [True, False])
def test_spans_that_come_shortly_after_the_end_are_waited_for(
    daemon: GrpoDaemon, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """The proxy exports its spans in its own time; the reward can be there first. Not every runner tells its calls."""
    monkeypatch.setattr("agl_plugin.daemon.LATE_SPANS_S", 10.0)

    async def late() -> None:
        rollout = await daemon.store.dequeue_rollout()
        assert rollout is not None
        ids = {"rollout": rollout.rollout_id, "attempt": rollout.attempt.attempt_id}
        *calls, reward = scored(0.9, n_calls=2)(ids)
        if not told:
            assert reward.attributes.pop(LLM_CALLS_KEY) == 2
        await daemon.store.add_many_spans([calls[0], reward])
        await daemon.store.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, status="succeeded")
        waiting = asyncio.get_running_loop().run_in_executor(None, lambda: daemon._wait(daemon._play()))
        await asyncio.sleep(0.3)
        await daemon.store.add_span(calls[1])
        await waiting

    queue(daemon, [1], is_train=False)
    asyncio.run(late())
    assert lines(daemon)[0]["response_tokens"] == [1, 2] and lines(daemon)[0]["unscored"] == ""


def test_a_run_without_runners_stops_and_says_so(daemon: GrpoDaemon) -> None:
    queue(daemon, [2])
    with pytest.raises(RunError, match=r"no rollout finished for \d+ s \(limit 1 s\).*queuing: no runner takes work"):
        daemon._wait(daemon._play())


def test_a_store_that_lost_its_rollouts_is_named(daemon: GrpoDaemon) -> None:
    queue(daemon, [2])
    daemon.store = agl.InMemoryLightningStore(thread_safe=True)
    with pytest.raises(RunError, match=r"knows 0 of 2 open rollouts: it was restarted.*--resume"):
        daemon._wait(daemon._play())


def test_a_store_that_is_gone_is_named(daemon: GrpoDaemon) -> None:
    queue(daemon, [1])
    address = f"http://127.0.0.1:{free_port()}"
    daemon.store = gone = agl.LightningStoreClient(address, retry_delays=(), health_retry_delays=())
    with pytest.raises(RunError, match=f"the store at {address} stopped answering.*continue with --resume"):
        daemon._wait(daemon._play())
    daemon._wait(gone.close(), timeout_s=10)
