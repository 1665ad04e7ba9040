"""From a question to a training batch: store, proxy, runner, agent, tool, judge, spans, triplets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from agl_plugin.daemon import GrpoDaemon
from agl_plugin.proxy.gateway import Gateway
from agl_plugin.proxy.spans import CALL_SPAN
from agl_plugin.update.rows import Limits
from foundation import run_folder
from foundation.errors import RunError
from foundation.rollout_keys import RECORD_KEY
from tests.loop.conftest import SLOW_S, Loop, collecting, log_prob, rollouts, token_ids

# The LLM proxy is forked from this process: litellm and pydantic warn in it, and an error there is a failed request.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module", params=["gateway", "litellm"])
def daemon(
    loop: Loop, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GrpoDaemon]:
    with collecting(loop, tmp_path_factory.mktemp("run"), proxy=request.param) as daemon:
        yield daemon


def test_a_question_becomes_triplets_with_the_servers_token_ids(daemon: GrpoDaemon, loop: Loop) -> None:
    lines = rollouts(daemon, loop, ["甲药的适应症是什么？", "半对：乙药的适应症是什么？"], is_train=True)
    batch, _ = daemon.batch(Limits(4096, 512))

    assert [line["reward"] for line in lines if "甲药" in line["question"]] == [pytest.approx(1.1)] * 2
    half = [line for line in lines if "半对" in line["question"]]
    assert all(line["reward_parts"]["sql"] == pytest.approx(0.1) and 0.1 < line["reward"] < 1.0 for line in half)
    assert all(len(line["sql_calls"]) == 1 and len(line["response_tokens"]) == 2 for line in lines)
    assert len(batch) == 8  # 2 questions x 2 rollouts x 2 turns
    sent = {tuple(token_ids(json.dumps(r.json["messages"], ensure_ascii=False))) for r in loop.server.requests}
    prompts = batch.batch["prompts"]
    masks = batch.batch["attention_mask"][:, : prompts.shape[1]].bool()
    assert {tuple(p[m].tolist()) for p, m in zip(prompts, masks, strict=True)} <= sent
    rewards = batch.batch["token_level_scores"].sum(-1)
    assert rewards.dtype == torch.float32
    by_rollout = {line["rollout_id"]: line["reward"] for line in lines}
    expected = [by_rollout[i] for i in batch.non_tensor_batch["rollout_id_list"]]
    assert rewards.tolist() == pytest.approx(expected, abs=1e-5)  # steps of 2^-16
    assert daemon.stats["scored"] == 4 and daemon.stats["zero_variance_groups"] == 2


def test_the_samplers_log_probabilities_reach_the_batch(daemon: GrpoDaemon, loop: Loop) -> None:
    rollouts(daemon, loop, ["甲药的适应症是什么？", "乙药的适应症是什么？"], is_train=True)
    batch, metrics = daemon.batch(Limits(4096, 512))

    tokens, mask = batch.batch["responses"], batch.batch["response_mask"].bool()
    given = batch.batch["rollout_log_probs"]
    assert metrics["batch/calls_without_log_probs"] == 0 and mask.sum() > 0
    assert torch.allclose(given[mask], torch.tensor([log_prob(t) for t in tokens[mask].tolist()]), atol=1e-6)
    assert not given[~mask].any()


def test_validation_asks_for_no_log_probabilities(daemon: GrpoDaemon, loop: Loop) -> None:
    start = len(loop.server.requests)
    rollouts(daemon, loop, ["甲药的适应症是什么？"], is_train=False)
    rollouts(daemon, loop, ["甲药的适应症是什么？"], is_train=True)
    asked = {r.json["temperature"]: r.json.get("logprobs") for r in loop.server.requests[start:]}
    assert asked == {0.0: None, 1.0: True}


@pytest.mark.long
def test_each_sampled_call_has_a_seed_that_another_play_of_the_step_has_again(daemon: GrpoDaemon, loop: Loop) -> None:
    def seeds(step: int, questions: list[str], *, is_train: bool = True) -> list[int | None]:
        start, daemon.step = len(loop.server.requests), step
        rollouts(daemon, loop, questions, is_train=is_train)
        return sorted((request.json.get("seed") for request in loop.server.requests[start:]), key=str)

    both = ["甲药的适应症是什么？", "乙药的适应症是什么？"]
    first = seeds(7, both)
    assert len(set(first)) == len(first) == 8 and None not in first
    assert seeds(7, both) == first and not set(seeds(8, both)) & set(first)
    assert seeds(7, both, is_train=False) == [None] * 4  # greedy


def test_each_split_is_sampled_by_its_own_keys(daemon: GrpoDaemon, loop: Loop) -> None:
    start = len(loop.server.requests)
    rollouts(daemon, loop, ["甲药的适应症是什么？"], is_train=False)
    rollouts(daemon, loop, ["甲药的适应症是什么？"], is_train=True)
    keys = ("temperature", "top_p", "top_k", "frequency_penalty", "stop")
    asked = {str([request.json.get(key) for key in keys]) for request in loop.server.requests[start:]}
    assert asked == {str([0.0, 1.0, None, 0.5, None]), str([1.0, 0.9, 20, None, ["END"]])}


@pytest.mark.parametrize("is_train", [True, False], ids=["training", "validation"])
def test_the_keys_of_the_template_come_with_each_call(daemon: GrpoDaemon, loop: Loop, is_train: bool) -> None:
    start = len(loop.server.requests)
    rollouts(daemon, loop, ["甲药的适应症是什么？"], is_train=is_train)
    asked = [request.json for request in loop.server.requests[start:]]
    assert [body["chat_template_kwargs"] for body in asked] == [{"enable_thinking": False}] * len(asked)
    answers = [one for body in asked for one in body["messages"] if one["role"] == "assistant"]
    assert answers and {one["reasoning_content"] for one in answers} == {"\n"}


def test_the_store_keeps_one_span_per_llm_call_and_one_record(daemon: GrpoDaemon, loop: Loop) -> None:
    (line,) = rollouts(daemon, loop, ["甲药的适应症是什么？"], is_train=False)
    spans = daemon._wait(daemon.store.query_spans(line["rollout_id"], attempt_id="latest"), timeout_s=30)
    if not isinstance(daemon.llm_proxy, Gateway):  # LiteLLM writes several spans a call
        spans = [span for span in spans if span.name == CALL_SPAN or RECORD_KEY in (span.attributes or {})]
    in_order = sorted(spans, key=lambda span: span.start_time or 0.0)
    assert [span.name == CALL_SPAN for span in in_order] == [True, True, False]
    assert line["n_turns"] == 2 and len({span.sequence_id for span in spans}) == 3


@pytest.mark.long
def test_a_runner_process_plays_many_rollouts_at_once(daemon: GrpoDaemon, loop: Loop) -> None:
    start = len(loop.server.requests)
    lines = rollouts(daemon, loop, [f"慢：甲药{i}的适应症是什么？" for i in range(8)], is_train=True)
    first = [r.at_s for r in loop.server.requests[start:] if len(r.json["messages"]) == 2]
    assert len(lines) == len(first) == 16
    assert max(first) - min(first) < SLOW_S  # one after the other they would start 16 delays apart


def test_a_fault_leaves_the_batch_and_is_counted_not_zeroed(daemon: GrpoDaemon, loop: Loop) -> None:
    lines = rollouts(daemon, loop, ["故障：甲药的适应症是什么？", "乙药的适应症是什么？"], is_train=True)
    batch, metrics = daemon.batch(Limits(4096, 512))

    broken = [line for line in lines if "故障" in line["question"]]
    assert [line["unscored"] for line in broken] == ["llm_fault"] * 2
    assert all(line["reward"] is None and line["response_tokens"] == [] for line in broken)
    assert daemon.stats["unscored/llm_fault"] == 2 and daemon.stats["scored"] == 2
    assert set(batch.non_tensor_batch["rollout_id_list"]) == {
        line["rollout_id"] for line in lines if line not in broken
    }
    assert metrics["training/reward"] == pytest.approx(1.1)


def test_a_step_without_any_scored_rollout_stops_with_the_causes(daemon: GrpoDaemon, loop: Loop) -> None:
    rollouts(daemon, loop, ["故障：甲药？"], is_train=True)
    with pytest.raises(RunError, match=r"none of 2 rollouts.*(?s:.)*llm_fault.*(?s:.)*rollouts.jsonl"):
        daemon.batch(Limits(4096, 512))


def test_an_answer_without_a_query_earns_no_bonus(daemon: GrpoDaemon, loop: Loop) -> None:
    (line,) = rollouts(daemon, loop, ["空话：甲药的适应症是什么？"], is_train=False)
    assert line["sql_calls"] == [] and line["reward_parts"]["sql"] == 0.0
    assert daemon.validation()["val/scored"] == 1


def test_validation_is_greedy_and_training_is_not(daemon: GrpoDaemon, loop: Loop) -> None:
    start = len(loop.server.requests)
    (line,) = rollouts(daemon, loop, ["半对：乙药的适应症是什么？"], is_train=False)
    assert {r.json["temperature"] for r in loop.server.requests[start:]} == {0}
    assert line["mode"] == "val" and line["reward"] == pytest.approx(1.1)
    rollouts(daemon, loop, ["半对：乙药的适应症是什么？"], is_train=True)
    assert {r.json["temperature"] for r in loop.server.requests[start + 2 :]} == {1.0}


@pytest.mark.long
def test_the_record_holds_what_a_person_wants_to_read(daemon: GrpoDaemon, loop: Loop) -> None:
    (line,) = rollouts(daemon, loop, ["甲药的适应症是什么？"], is_train=False)
    assert line["sql_calls"][0]["sql"].startswith("SELECT indication")
    assert line["sql_calls"][0]["result"]["rows"] == [["高血压；心绞痛"]]
    assert line["stop_reason"] == "answered" and line["n_turns"] == 2 and line["reason"]
    assert Path(daemon.run_dir / run_folder.ROLLOUTS).is_file()
