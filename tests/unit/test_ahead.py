"""Groups that play on over the ends of steps: who is trained when, how old, and what the audit makes of it."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from agentlightning.types import LLM

from agl_plugin.audit import schema
from agl_plugin.audit.log import AuditLog
from agl_plugin.audit.verify import verify
from agl_plugin.daemon import GrpoDaemon
from agl_plugin.run.ahead import STATE, InFlight, QuestionLine
from agl_plugin.run.question_order import QuestionOrder
from agl_plugin.update.rows import Limits
from agl_plugin.update.sampler_gap import WEIGHTS, correct
from foundation import run_folder
from foundation.files import read_lines
from tests.actor import actor_of, one_rank, tiny_model
from tests.audited import MAX_PROMPT, MAX_TOGETHER, RULES, collecting, settings, update_step
from tests.spans import llm_call, reward_span

BOUND = 1
Done = dict[tuple[str, int], list[int]]  # question and number of its rollout -> the weights that answered its calls


def spans_of(n: int, versions: list[int], **ids: str) -> list[Any]:
    """A rollout whose calls continue each other, each of two tokens, and whose log-probabilities tell the weights."""
    said = [[9, 10] * turn for turn in range(len(versions))]
    calls = [
        llm_call([7, 8, *said[turn]], [9, 10], seq=turn, weights=version, log_probs=[-0.1 - version, -0.7], **ids)
        for turn, version in enumerate(versions)
    ]
    reward = 0.2 + n / 10
    parts = {"question": "?", "reward": reward, "reward_parts": {"answer": reward}, "stop_reason": "answered"}
    return [*calls, reward_span(reward, seq=99, n_calls=len(calls), record=json.dumps(parts), **ids)]


class Players:
    """The runners: they take what is queued and end what a step says."""

    def __init__(self, daemon: GrpoDaemon) -> None:
        self.daemon, self.store = daemon, daemon.store
        self.running: dict[tuple[str, int], Any] = {}
        self.asked: list[str] = []

    async def until(self, collected: Future[None], done: Done, *, n_asked: int) -> None:
        n_asked += len(self.asked)
        while not collected.done():
            while rollout := await self.store.dequeue_rollout():
                name: Any = rollout.input
                self.asked.append(name["id"])
                self.running[name["id"], self.asked.count(name["id"]) - 1] = rollout
            for one in self.running.keys() & done.keys() if len(self.asked) >= n_asked else ():
                rollout = self.running.pop(one)
                attempt = rollout.attempt.attempt_id
                spans = spans_of(one[1], done[one], rollout=rollout.rollout_id, attempt=attempt)
                await self.store.add_many_spans(spans)
                await self.store.update_attempt(rollout.rollout_id, attempt, status="succeeded")
            await asyncio.sleep(0.01)

    def step(self, questions: str, done: Done, *, n_groups: int = 1) -> None:
        """One step that asks these questions and trains so many groups; 0: it waits for all."""
        daemon = self.daemon
        daemon.step += 1
        daemon.gate.open(weights=daemon.step - 1)
        asked = [{"id": name, "question": f"{name}?"} for name in questions]
        with ThreadPoolExecutor(1) as pool:
            collected = pool.submit(daemon.collect, asked, ["m"], is_train=True, n_groups=n_groups)
            asyncio.run(self.until(collected, done, n_asked=2 * len(questions)))
            collected.result(30)


@contextmanager
def playing(folder: Path, *, told_bound: int = BOUND) -> Iterator[tuple[GrpoDaemon, Players, AuditLog]]:
    told = settings("trajectory") | {"max_staleness": told_bound}
    with AuditLog(folder, settings=told) as audit, collecting(folder, audit, level="trajectory") as daemon:
        daemon.options = replace(daemon.options, async_groups=1, max_staleness=BOUND)
        policy = LLM(endpoint="http://127.0.0.1:1/v1", model="m", sampling_parameters={})
        served: Any = SimpleNamespace(is_running=lambda: True, as_resource=lambda **_: policy)
        daemon.llm_proxy, daemon._addresses, daemon.step = served, ["m"], 0
        daemon.gateway_watch._proxy = served
        yield daemon, Players(daemon), audit


STEPS: list[tuple[str, Done]] = [
    ("ab", {("a", 0): [0], ("a", 1): [0], ("b", 0): [0]}),
    ("c", {("b", 1): [0, 1], ("c", 0): [1]}),
    ("d", {("d", 0): [2], ("d", 1): [2, 2]}),
    ("", {("c", 1): [3], ("c", 2): [3], ("c", 3): [3]}),  # the first of c is two updates old: c is asked again
]


def trained(daemon: GrpoDaemon) -> set[str]:
    assert daemon.batched
    return {daemon.rollouts.questions[rollout]["id"] for rollout, _ in daemon.batched.rows}


def test_a_group_is_trained_once_it_is_complete_unless_it_is_too_old(tmp_path: Path) -> None:
    limits, stats, names = Limits(MAX_PROMPT, MAX_TOGETHER), list[dict[str, float]](), list[set[str]]()
    with playing(tmp_path) as (daemon, players, _):
        for asked, done in STEPS:
            players.step(asked, done)
            daemon.batch(limits)
            stats.append(daemon.stats)
            names.append(trained(daemon))
        left_out: Any = daemon.batched
        why = sorted((daemon.rollouts.questions[i]["id"], reason) for i, reason in left_out.left_out.items())
    assert names == [{"a"}, {"b"}, {"d"}, {"c"}] and players.asked == [*"aabbccddcc"]
    told = ("staleness_mean", "staleness_max", "too_old", "asked_again", "groups_in_flight", "rollouts", "scored")
    assert [[one[name] for name in told] for one in stats] == [
        [0, 0, 0, 0, 1, 2, 2],
        [1, 1, 0, 0, 1, 2, 2],
        [0, 0, 0, 0, 1, 2, 2],
        [0, 0, 1, 1, 0, 4, 3],
    ]
    assert why == [("c", "group_too_small"), ("c", "too_old")]
    lines = read_lines(tmp_path / run_folder.ROLLOUTS)
    assert [line["step"] for line in lines] == [1, 1, 2, 2, 3, 3, 4, 4, 4, 4]
    assert len({line["rollout_id"] for line in lines}) == 10


def test_with_no_group_ahead_a_step_is_the_one_that_waits_for_all(tmp_path: Path) -> None:
    batches = list[Any]()
    for n_groups in (0, 2):
        (folder := tmp_path / str(n_groups)).mkdir()
        with playing(folder) as (daemon, players, _):
            players.step("ab", {(name, n): [0] * (n + 1) for name in "ab" for n in range(2)}, n_groups=n_groups)
            daemon.options = replace(daemon.options, async_groups=0)
            batches.append((daemon.batch(Limits(MAX_PROMPT, MAX_TOGETHER)), daemon.stats))
            assert not daemon.playing_on.questions
    (one, metrics), stats = batches[0]
    (other, other_metrics), other_stats = batches[1]
    assert (metrics, stats) == (other_metrics, other_stats) and "staleness_mean" not in stats
    assert all(torch.equal(one.batch[name], other.batch[name]) for name in one.batch.keys())  # noqa: SIM118


@pytest.mark.parametrize(("told_bound", "problem"), [(1, ""), (0, "answered by weights"), (2, "left out as too_old")])
def test_the_audit_computes_staleness_again(tmp_path: Path, told_bound: int, problem: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with one_rank(tmp_path), playing(folder, told_bound=told_bound) as (daemon, players, audit):
        actor = actor_of(tiny_model(vocabulary=16), micro_rows=2, lr=0.1)
        for asked, done in STEPS:
            players.step(asked, done)
            update_step(daemon, audit, actor, RULES)
    found = verify(folder)
    assert (problem in "\n".join(found.problems)) if problem else not found.problems
    notes = [note for note in found.notes if "staleness" in note]
    assert notes == (
        [f"trained rollouts by staleness in updates (at most {told_bound}): 0: 6, 1: 2"] if told_bound else []
    )


def test_weights_of_the_correction_are_those_of_each_calls_own_log_probabilities(tmp_path: Path) -> None:
    """In float64, from the calls that the audit stores: of step 2, whose rollouts have calls of two versions."""
    with playing(tmp_path) as (daemon, players, audit):
        for asked, done in STEPS[:2]:
            players.step(asked, done)
        batch, metrics = daemon.batch(Limits(MAX_PROMPT, MAX_TOGETHER))
        audit.wait()
        with closing(schema.opened(tmp_path)) as file:
            query = """SELECT rollout.id, weights_version, log_probs FROM rollout JOIN llm_call USING (attempt_id)
                WHERE step = 2 ORDER BY rollout.id, llm_call.n"""
            calls = [(i, version, schema.unpack(stored, "f")) for i, version, stored in file.execute(query)]
    assert {version for _, version, _ in calls} == {0, 1} and metrics["batch/calls_without_log_probs"] == 0
    tensors = batch.batch
    trainer = torch.linspace(-2.5, -0.1, tensors["responses"].numel()).view(tensors["responses"].shape)
    tensors["old_log_probs"], mask = trainer, tensors["response_mask"].bool()
    correct(batch, replace(RULES, correction="truncated", cap=2.0))
    for row, rollout in enumerate(batch.non_tensor_batch["rollout_id_list"]):
        sampled = [value for i, _, given in calls if i == rollout for value in given]
        expected = [min(math.exp(t - s), 2.0) for t, s in zip(trainer[row][mask[row]].tolist(), sampled, strict=True)]
        assert tensors[WEIGHTS][row][mask[row]].tolist() == pytest.approx(expected, rel=1e-5)


def line_of(*, ahead: int, n_steps: int = 6) -> QuestionLine:
    rows: list[dict[str, Any]] = [{"id": f"q{i}"} for i in range(12)]
    return QuestionLine(QuestionOrder(rows, n=3, seed=1), rows, n=3, ahead=ahead, n_steps=n_steps)


def test_each_question_is_drawn_once_in_the_order_of_the_steps_and_again_after_a_stop(tmp_path: Path) -> None:
    line, order = line_of(ahead=4), QuestionOrder([{"id": f"q{i}"} for i in range(12)], n=3, seed=1)
    n_open, drawn = 0, list[dict[str, Any]]()
    for step in range(1, 7):
        fresh = line.of_step(step, n_open=n_open)
        drawn += fresh
        n_open += len(fresh) - 3
        if step == 2:
            asked = {f"r{i}": {**question, "data_id": str(i)} for i, question in enumerate(drawn[-4:])}
            line.save(tmp_path, InFlight(asked))
    assert n_open == 0  # nothing is asked that the last step does not train
    assert [row["id"] for row in drawn] == [f"q{at}" for step in range(1, 7) for at in order.of_step(step)]
    assert json.loads((tmp_path / STATE).read_text())["groups"][0]["rollouts"] == ["r0"]
    again = line_of(ahead=4)
    again.load(tmp_path, step=2)
    assert again.of_step(3, n_open=0) == drawn[6:10] + drawn[10:13]
    fresh = line_of(ahead=1)
    fresh.load(tmp_path / "none", step=2)  # a checkpoint of a run that waited for all
    assert fresh.of_step(3, n_open=0) == drawn[6:10]
