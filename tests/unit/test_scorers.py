"""From an episode to its reward: bonus, judge, extraction, and what stays unscored."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import UserError
from sql_agent.config import RewardConfig
from sql_agent.records import Episode, QueryResult, Question, Reward, Score, SqlCall
from sql_agent.scoring.answer_text import extract_answer, strip_thinking
from sql_agent.scoring.build import build_context
from sql_agent.scoring.check import check_scorers, needs_answer
from sql_agent.scoring.registry import SCORERS, ScoringContext
from sql_agent.scoring.reward import score
from sql_agent.testing.server import Answer, Reply, chat_reply, error_reply, openai_server

KEY = "sk-very-secret-0123456789"
QUESTION = Question(id="q1", question="氨氯地平的适应症是什么？", answer="高血压；稳定型心绞痛")
RAN, FAILED = QueryResult(columns=["a"], rows=[[1]]), QueryResult(error="no such table")
VERDICT = {"accuracy": 0.9, "completeness": 0.8, "clarity": 1, "professionalism": 1, "reason": "好"}


@pytest.fixture(autouse=True)
def no_teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TEACHER_API_KEY", "TEACHER_MODEL", "TEACHER_BASE_URL", "JUDGE_ENDPOINTS"):
        monkeypatch.delenv(name, raising=False)


def set_teacher(monkeypatch: pytest.MonkeyPatch, base_url: str) -> None:
    for name, text in (("API_KEY", KEY), ("MODEL", "judge-1"), ("BASE_URL", base_url)):
        monkeypatch.setenv(f"TEACHER_{name}", text)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts are kept: a test must not find those of another one."""
    monkeypatch.chdir(tmp_path)


def config(**judge: Any) -> RewardConfig:
    return RewardConfig.model_validate({"judge": {"folder": str(Path.cwd() / "judge"), **judge}})


def reward(text: str, *results: QueryResult, context: ScoringContext | None = None, **question: Any) -> Reward:
    calls = [SqlCall(sql="SELECT 1", result=result) for result in results]
    episode = Episode(question=QUESTION.model_copy(update=question), final_answer=text, sql_calls=calls)
    return asyncio.run(score(episode, context or build_context(config())))


@pytest.mark.parametrize(
    ("results", "bonus"),
    [([], 0.0), ([FAILED], 0.0), ([RAN], 0.1), ([RAN, RAN, RAN], 0.1), ([FAILED, RAN], 0.1), ([QueryResult()], 0.1)],
)
def test_the_bonus_is_paid_once_for_sql_that_executed(results: list[QueryResult], bonus: float) -> None:
    found = reward("高血压；稳定型心绞痛", *results)
    assert found.parts == {"sql": bonus, "answer": 1.0} and found.total == pytest.approx(1.0 + bonus)
    assert found.scorer == "judge" and "coverage 1.00" in found.explanation


def test_an_empty_answer_is_zero_without_asking_anyone(monkeypatch: pytest.MonkeyPatch) -> None:
    with openai_server(lambda _: chat_reply(json.dumps(VERDICT))) as server:
        set_teacher(monkeypatch, server.base_url)
        context = build_context(config())
        for text in ("", "  \n", "<think>高血压</think>", "<think>高血压", "：", "Solution", QUESTION.question):
            found = reward(text, RAN, context=context)
            assert found.parts == {"sql": 0.1, "answer": 0.0} and found.explanation
    assert not server.requests


def test_an_answer_from_the_database_needs_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    with openai_server(lambda _: chat_reply(json.dumps(VERDICT))) as server:
        set_teacher(monkeypatch, server.base_url)
        context = build_context(config())
        for results in ([], [FAILED]):
            found = reward("用于高血压", *results, context=context, sql=["SELECT 1"])
            assert found.parts == {"sql": 0.0, "answer": 0.0} and "no query was executed" in found.explanation
        assert not server.requests
        assert reward("用于高血压", RAN, context=context, sql=["SELECT 1"]).parts["answer"] == pytest.approx(0.89)
        assert reward("用于高血压", context=context).parts["answer"] == pytest.approx(0.89)


def test_in_a_group_the_answer_waits_unless_a_gate_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    with openai_server(lambda _: chat_reply(json.dumps(VERDICT))) as server:
        set_teacher(monkeypatch, server.base_url)
        context = build_context(config(mode="groupwise"))
        grouped = dataclasses.replace(context, in_group=True)
        waits = reward("用于高血压", RAN, context=grouped)
        assert (waits.total, waits.unscored, waits.parts) == (None, "awaits_group", {"sql": 0.1})
        assert waits.metadata["item"]["answer"] == "用于高血压"
        assert reward("：", RAN, context=grouped).total == pytest.approx(0.1)
        assert reward("高血压", RAN, context=grouped, scorer="exact").total is not None
        assert not server.requests
        assert reward("用于高血压", RAN, context=context).total is not None


def test_a_mode_that_needs_an_llm_judge_says_so() -> None:
    with pytest.raises(UserError, match=r"reward.judge.mode = 'pairwise': .*mode=pointwise"):
        build_context(config(mode="pairwise"))


def test_a_budget_of_money_needs_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    set_teacher(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(UserError, match="budget_cost = 1: judge-1 at .* has no prompt_price") as caught:
        build_context(config(budget_cost=1))
    assert KEY not in str(caught.value)


def test_no_reference_is_unscored_not_zero() -> None:
    for name in ("reference", "exact", "judge"):
        found = reward("高血压", RAN, answer="", scorer=name)
        assert found.total is None and found.unscored == "no_reference" and not found.parts


def test_the_llm_judge_is_used_where_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with openai_server(lambda _: chat_reply(json.dumps(VERDICT))) as server:
        set_teacher(monkeypatch, server.base_url)
        context = build_context(config(language="en"))
        assert context.judge_name == f"judge-1 at {server.base_url}" and KEY not in repr(context)
        found = reward("用于高血压", RAN, context=context)
        again = reward("用于高血压", RAN, context=pickle.loads(pickle.dumps(context)), scorer="agentcpm")
        offline = reward("用于高血压", RAN, context=context, scorer="reference")
    assert found.parts == {"sql": 0.1, "answer": pytest.approx(0.89)} and found.explanation == "好"
    assert found.metadata["accuracy"] == 0.9 and found.metadata["judge_usage"]["completion_tokens"] == 5
    assert again.parts == found.parts and again.scorer == "agentcpm"
    assert again.metadata["judge_usage"] == {**dict.fromkeys(found.metadata["judge_usage"], 0), "cache_hits": 1}
    assert "coverage" in offline.metadata and len(server.requests) == 1
    assert "strict grader" in server.requests[0].json["messages"][0]["content"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error_reply(500, "boom"), "judge_unreachable"),
        (error_reply(401, "bad key"), "judge_rejected"),
        (chat_reply("very good"), "judge_unparsable"),
        (Reply(body="<html>", content_type="text/html"), "judge_unparsable"),
    ],
)
def test_a_judge_fault_is_unscored(answer: Answer, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with openai_server(lambda _: answer) as server:
        set_teacher(monkeypatch, server.base_url)
        found = reward("高血压", RAN, context=build_context(config(attempts=1)))
    assert (found.total, found.unscored, found.parts) == (None, kind, {}) and "judge-1" in found.explanation


def test_who_judges_is_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    context = build_context(config())
    assert context.judge_name == "offline reference judge (no TEACHER_* endpoint set)" and context.llm is None
    exact = RewardConfig(default_scorer="exact")
    assert build_context(exact).judge_name == "none; scorer exact"
    with pytest.raises(UserError, match=r"TEACHER_API_KEY.*kind=reference"):
        build_context(config(kind="llm"))
    set_teacher(monkeypatch, "http://127.0.0.1:9")
    assert build_context(exact).judge_name.startswith("none; scorer exact; where a row asks for it: judge-1 at ")
    assert build_context(config(kind="reference")).llm is None
    assert build_context(config(kind="llm")).llm is not None
    assert reward("高血压", context=context).total is not None
    monkeypatch.delenv("TEACHER_MODEL")
    with pytest.raises(UserError, match="TEACHER_MODEL not set") as caught:
        build_context(config())
    assert KEY not in str(caught.value)


def test_a_row_that_asks_for_the_llm_without_one_is_unscored() -> None:
    assert reward("高血压", scorer="llm").unscored == "no_llm_judge"
    with pytest.raises(UserError, match=r"row 2 \(q1\): scorer 'llm' needs the TEACHER"):
        check_scorers([QUESTION, QUESTION.model_copy(update={"scorer": "llm"})], build_context(config()))


def test_which_rows_need_a_reference_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {name: QUESTION.model_copy(update={"scorer": name}) for name in ("exact", "math", "reference", "llm")}
    offline = build_context(config())
    assert needs_answer(QUESTION, offline)
    assert {name: needs_answer(row, offline) for name, row in named.items()} == {
        **{"exact": True, "math": True, "reference": True},
        "llm": False,
    }
    set_teacher(monkeypatch, "http://127.0.0.1:9/v1")
    online = build_context(config())
    assert not needs_answer(QUESTION, online) and needs_answer(named["exact"], online)


def test_unknown_scorers_are_named_with_their_rows() -> None:
    check_scorers([QUESTION.model_copy(update={"scorer": name, "sql": ["SELECT 1"]}) for name in ("", *SCORERS)])
    rows = [QUESTION.model_copy(update={"scorer": name}) for name in ("", "refrence", "exact", "maths!")]
    with pytest.raises(UserError, match=r"row 2 \(q1\).*did you mean reference\?") as caught:
        check_scorers(rows)
    assert "row 4" in str(caught.value) and "row 3" not in str(caught.value)
    with pytest.raises(UserError, match=r"and 30 more"):
        check_scorers([rows[3]] * 40)
    with pytest.raises(UserError, match=r"default_scorer = 'jugde'.*did you mean judge"):
        build_context(RewardConfig.model_validate({"default_scorer": "jugde"}))


@pytest.mark.parametrize(
    ("wanted", "given_answer", "expected"),
    [("3", " ３。", 1.0), ("3", "3.0", 1.0), ("3", "13", 0.0), ("Yes", "yes.", 1.0), ("高血压", "高 血压", 1.0)],
)
def test_exact(wanted: str, given_answer: str, expected: float) -> None:
    assert reward(given_answer, answer=wanted, scorer="exact").parts["answer"] == expected


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        ("", "<think>a</think>高血压", "高血压"),
        ("", "a</think>高血压", "高血压"),
        ("", "高血压<think>a", "高血压"),
        ("", "<think>a</think>高<think>b</think>血压", "高血压"),
        ("answer", "<answer>1</answer> <answer> 2 </answer>", "2"),
        ("answer", "<answer>1<answer>2</answer>", "2"),
        ("answer", "<think><answer>1</answer></think>2", ""),
        ("answer", "3", ""),
        ("answer", "<answer>3", ""),
        ("boxed", r"so \boxed{1} or \fbox{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("boxed", r"\boxed {a{b{c}}d}", "a{b{c}}d"),
        ("boxed", r"\boxed{1} \boxed{2", "1"),
        ("boxed", r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        ("boxed", "42", ""),
    ],
)
def test_extraction(schema: str, text: str, expected: str) -> None:
    assert extract_answer(text, schema) == expected


def test_what_is_extracted_is_what_is_scored() -> None:
    text = "我先想想：糖尿病、哮喘。<answer>高血压；稳定型心绞痛</answer>"
    assert reward(text, answer_schema="answer").parts["answer"] == 1
    missing = reward("高血压；稳定型心绞痛", answer_schema="boxed")
    assert missing.parts["answer"] == 0 and "boxed" in missing.explanation
    assert reward(r"<think>\boxed{4}</think>\boxed{3}", answer="3", answer_schema="boxed", scorer="exact").total == 1


@given(st.lists(st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", r"\boxed{", "{", "}", "x"])))
def test_any_mix_of_marks_is_survived(parts: list[str]) -> None:
    text = "".join(parts)
    assert "<think>" not in strip_thinking(text)
    for schema in ("answer", "boxed"):
        assert extract_answer(text, schema) in strip_thinking(text)


@pytest.mark.parametrize("mark", ["<think>", "<answer>", r"\boxed{", "</think>"])
def test_extraction_is_fast_on_100_kb(mark: str) -> None:
    for schema in ("", "answer", "boxed"):
        extract_answer(mark * (100_000 // len(mark)), schema)


def test_a_new_scorer_is_a_function_and_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def length(question: Question, episode: Episode, context: ScoringContext) -> Score:
        return Score(value=min(1.0, len(episode.final_answer) / 10))

    monkeypatch.setitem(SCORERS, "length", length)
    assert reward("高血压", RAN, scorer="length").total == pytest.approx(0.4)
