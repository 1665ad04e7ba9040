"""What is measured on a record, what is left out, and how records become figures."""

from __future__ import annotations

import math
import random
from pathlib import Path
from statistics import fmean

import pytest

from foundation.errors import UserError
from foundation.stats import Difference, Quantiles
from sql_agent.evaluation.folder import TRIALS, finished
from sql_agent.evaluation.measures import (
    MEASURES,
    OF_SQL,
    by_question,
    by_task,
    compare,
    compare_groups,
    of_k,
    repeated_text,
    sql_validity,
    summarize,
)
from sql_agent.evaluation.results import EvalReport
from sql_agent.evaluation.trials import draw
from sql_agent.evaluation.view import _rewards, markdown
from sql_agent.records import QueryResult, Question, SqlCall, ToolCall, TrialRecord
from sql_agent.run_report.headline import measure_rows
from tests.run_folders import results_of

DECODINGS = ("sampled", "greedy")


def record(question: str, reward: float | None, *, task: str = "t", match: float | None = 1.0) -> TrialRecord:
    """A trial of an episode that came to its end."""
    return TrialRecord(
        question_id=question,
        task_type=task,
        reward=reward,
        reward_parts={"sql": 0.1, "answer": reward - 0.1} if reward is not None else {},
        n_turns=2,
        sql_calls=calls(None),
        answer="答案",
        episode_s=0.5,
        llm_seconds=[0.1, 0.3],
        prompt_tokens=20,
        completion_tokens=4,
        unscored="" if reward is not None else "judge_down",
        stop_reason="answered",
        execution_match=match,
        no_match="" if match is not None else "no_reference",
    )


def calls(*errors: str | None) -> list[SqlCall]:
    return [SqlCall(sql="SELECT 1", result=QueryResult(rows=[] if error else [[1]], error=error)) for error in errors]


def fault(question: str) -> TrialRecord:
    """A trial that a fault of the endpoint ended."""
    return TrialRecord(question_id=question, task_type="t", unscored="llm_fault", no_match="fault")


def test_samples_of_a_question_count_as_one_question() -> None:
    records = [record("a", 1.0)] * 9 + [record("b", 0.0)]
    assert by_question(records, "reward") == {"a": 1.0, "b": 0.0}
    assert summarize(records).measures["reward"].mean == 0.5


def test_each_term_of_the_reward_is_a_measure_with_its_difference() -> None:
    parts = {"sql": 0.1, "sql_result": 0.5, "length_penalty": -0.1}
    before, after = record("a", 0.5), record("a", 0.6)
    before = before.model_copy(update={"reward_parts": parts})
    after = after.model_copy(update={"reward_parts": {**parts, "length_penalty": 0.0}})
    found = summarize([before, record("b", 1.0), fault("c")])
    assert (found.measures["reward part sql_result"].mean, found.measures["reward part sql_result"].n) == (0.5, 1)
    assert found.measures["answer score"].mean == pytest.approx((0.4 + 0.9) / 2)
    differences = compare([before], [after])
    assert differences["reward part length_penalty"].mean == pytest.approx(0.1)
    assert list(summarize([record("a", 1.0)]).measures) == list(MEASURES)
    graded = before.model_copy(update={"reward_parts": {"query": 0.2, "answer": 0.3}})
    assert list(summarize([graded]).measures)[len(MEASURES) :] == ["reward part query", "reward part answer"]
    models = {"m": {"test/greedy": summarize([record("a", 1.0)])}, "n": {"test/greedy": found}}
    shown = {"keys": ["test/greedy"], "database": "0123abcd", "delta": {"test/greedy": differences}}
    report = EvalReport.model_construct(models=models, **shown)
    table = _rewards(report)
    assert table.header[-3:] == ("reward part sql_result", "reward part length_penalty", "reward part answer")
    assert [[str(cell).split()[0] for cell in row[-3:]] for row in table.rows] == [
        ["-", "-", "-"],
        ["0.500", "-0.100", "0.900"],
        ["+0.000", "+0.100", "-"],
    ]


def test_an_agent_without_sql_calls_its_own_tools_and_is_shown_no_columns_of_sql() -> None:
    played = record("a", 1.0).model_copy(update={"sql_calls": [], "tool_calls": [ToolCall(name="calculate")]})
    idle = played.model_copy(update={"question_id": "b", "tool_calls": []})
    trials = [
        t.model_copy(update={"model": "m", "split": "s", "decoding": d}) for d in DECODINGS for t in (played, idle)
    ]
    assert summarize(trials).measures["called the tool"].mean == 0.5
    plain = [trial.model_dump(mode="json") for trial in trials]
    with_sql = results_of(plain).model_copy(update={"keys": [f"s/{d}" for d in DECODINGS]})
    without = with_sql.model_copy(update={"database": ""})
    assert "executed SQL" in markdown(with_sql) and "execution match" in markdown(with_sql)
    assert "SQL" not in markdown(without) and "execution match" not in markdown(without)
    assert "executed SQL" in {row.note for row in measure_rows(with_sql)}
    assert {"reward", "called the tool"} <= (rows := {row.note for row in measure_rows(without)}) and not rows & {
        *OF_SQL
    }


def test_a_fault_is_in_no_mean_and_counted() -> None:
    found = summarize([record("a", 0.6), fault("a"), fault("b")])
    assert found.unscored == {"llm_fault": 2} and found.trials == 3
    assert found.stop_reasons == {"answered": 1, "fault": 2}
    assert {measure: figures.n for measure, figures in found.measures.items()} == (
        dict.fromkeys(MEASURES, 1) | {"repeated text": 0}
    )
    assert found.latency_s["episode"] == Quantiles(0.5, 0.5, 1)
    assert found.latency_s["llm call"].n == 2 and found.latency_s["llm call"].p50 == pytest.approx(0.2)


def test_a_fault_of_the_judge_leaves_what_the_episode_shows() -> None:
    found = summarize([record("a", None, match=0.5)]).measures
    assert found["reward"].n == found["answer score"].n == 0
    assert found["execution match"].mean == 0.5 and found["turns"].mean == 2


def test_no_reference_query_is_left_out_of_the_match_and_counted() -> None:
    found = summarize([record("a", 1.0, match=0.0), record("b", 1.0, match=None)])
    assert found.measures["execution match"].mean == 0.0 and found.measures["execution match"].n == 1
    assert found.no_execution_match == {"no_reference": 1}


def test_sql_validity_is_the_share_of_calls_that_ran() -> None:
    assert sql_validity(TrialRecord(sql_calls=calls(None, "no such table", "no such table", None))) == 0.5
    assert sql_validity(TrialRecord()) is None


@pytest.mark.parametrize(
    ("answer", "share"),
    [("", None), ("1234567", None), ("12345678", 0.0), ("1234567812345678", 1 / 9), ("啊" * 17, 0.9)],
)
def test_repeated_text(answer: str, share: float | None) -> None:
    assert repeated_text(TrialRecord(answer=answer)) == (pytest.approx(share) if share is not None else None)


def test_two_models_are_compared_question_by_question() -> None:
    rng = random.Random(3)
    hard = {f"q{i}": rng.random() for i in range(40)}
    before = [record(q, value, match=0.0) for q, value in hard.items()] + [record("only-before", 1.0)]
    after = [record(q, value + 0.05, match=1.0) for q, value in hard.items()] + [record("only-after", 0.0)]
    found = compare(before, after)
    assert found["reward"].n == 40 and found["reward"].low == pytest.approx(0.05)
    assert found["answer score"].mean == pytest.approx(0.05) and (found["answer score"].p or 1) < 0.001
    assert found["execution match"] == Difference(1.0, 1.0, 1.0, 40, 0.0002)
    assert found["turns"].p is None and found["turns"].mean == 0.0


def test_task_types_are_told_apart() -> None:
    before = [record("a", 1.0, task="x"), record("b", 0.2, task="y", match=None)]
    after = [record("a", 0.7, task="x"), record("c", 0.2, task="z")]
    found = summarize(before).by_task
    assert {task: figures.measures["reward"].mean for task, figures in found.items()} == {"x": 1.0, "y": 0.2}
    assert found["y"].measures["execution match"].n == 0 and found["y"].questions == 1
    between = compare_groups(by_task(before), by_task(after))
    assert list(between) == ["x"] and between["x"]["reward"].mean == pytest.approx(-0.3)


def test_of_k_takes_the_questions_with_k_samples() -> None:
    records = [record("a", r) for r in (0.0, 1.0, 1.0)] + [record("b", r) for r in (0.0, 0.5)]
    found = of_k(records)["reward"]
    assert list(found) == [2, 3]
    assert found[2].best.mean == pytest.approx((1.0 + 0.5) / 2) and found[3].best.n == 1
    assert found[2].worst.mean == pytest.approx((1 / 3 + 0.0) / 2)
    assert of_k([record("a", 1.0)]) == {}


def test_figures_come_back_from_disk_and_no_number_is_null_there(tmp_path: Path) -> None:
    trials = [record("a", None).model_copy(update={"model": model}) for model in ("before", "after")]
    results = results_of([trial.model_dump() for trial in trials])
    results.write(tmp_path / "results.json")
    text = (tmp_path / "results.json").read_text(encoding="utf-8")
    assert "NaN" not in text and '"mean": null' in text
    again = EvalReport.read(tmp_path / "results.json")
    (figures,), (delta,) = again.models["after"].values(), again.delta.values()
    assert math.isnan(figures.measures["reward"].mean) and math.isnan(delta["reward"].low)
    assert again.model_dump_json() == results.model_dump_json() and delta["turns"].p is None


def test_a_draw_is_seeded_and_keeps_the_order() -> None:
    questions = [Question(id=str(i), question=f"{i}?") for i in range(100)]
    drawn = draw(questions, 10)
    assert drawn == draw(questions, 10) and len(drawn) == 10
    assert [int(q.id) for q in drawn] == sorted(int(q.id) for q in drawn)
    assert draw(questions, 0) == draw(questions, 500) == questions
    assert fmean(int(q.id) for q in draw(questions, 50)) != 24.5


def test_a_trial_that_cannot_be_read_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / TRIALS).write_text('\n{"model": 1}\n{"cut off')
    with pytest.raises(UserError, match=r"trials\.jsonl: line 1 is no trial; remove it, and its trial is played again"):
        finished(tmp_path)
