"""The report's numbers, choices and limits; how the page looks and behaves is in tests/wire/test_run_report.py."""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest

from agl_plugin.run.time_split import PHASES
from foundation import run_folder
from foundation.errors import UserError
from foundation.files import append_lines, write_json, write_lines
from foundation.stats import Estimate
from foundation.versions import versions
from sql_agent.config import ROOT, build_config, known_keys, load_recipe
from sql_agent.records import RolloutRecord
from sql_agent.run_report import cases, facts, health, measures
from sql_agent.run_report import page as pages
from sql_agent.run_report.file import PLOTS, REPORT, report_line, write_report
from sql_agent.run_report.folder import RunData, read_run
from sql_agent.run_report.headline import headlines, measure_rows
from sql_agent.training.health_rules import LIMITS, measure_of
from tests.run_folders import add_evaluation, keep, make_run, play, results_of

MOST_BYTES = 3_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 20 steps with an evaluation of two models."""
    folder = make_run(tmp_path_factory.mktemp("runs") / "20260101-000000-demo_cpu-demo", steps=20)
    add_evaluation(folder)
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> RunData:
    return read_run(folder)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


# Numbers


def test_the_headline_is_what_the_evaluation_found(run: RunData, folder: Path) -> None:
    tree = json.loads((folder / "evaluation" / "results.json").read_text())
    found = {f"{h.title}/{h.note.partition(',')[0]}": h for h in headlines(run)}
    assert list(found) == ["test_entities/sampled", "test_entities/greedy", "test/sampled", "test/greedy"]
    for key, headline in found.items():
        assert headline.before and headline.delta
        assert vars(headline.before) == tree["models"]["before"][key]["measures"]["reward"]
        assert vars(headline.after) == tree["models"]["after"][key]["measures"]["reward"]
        assert vars(headline.delta).items() <= tree["delta"][key]["reward"].items()
        assert f"{len(lost)} trials unscored" in headline.note if (lost := lost_of(folder, key)) else True
        assert headline.verdict == "better" and [task.title for task in headline.tasks]
    assert {"reward", "answer score", "executed SQL", "turns"} <= {row.note for row in measure_rows(run.results)}


def test_a_verdict_needs_an_interval_without_zero(tmp_path: Path) -> None:
    make_run(tmp_path, steps=2)
    out = add_evaluation(tmp_path, n=4)
    tree = json.loads((out / "results.json").read_text())
    for key, (low, high) in zip(tree["delta"], [(-0.1, 0.2), (-0.3, -0.1), (0.1, 0.3), (None, None)], strict=True):
        tree["delta"][key]["reward"] |= {"low": low, "high": high}
    write_json(out / "results.json", tree)
    found = headlines(read_run(tmp_path))
    assert [h.verdict for h in found] == ["no clear difference", "worse", "better", ""]
    told: list[str] = []
    write_report(tmp_path, tell=told.append)
    assert [line.partition(" (")[0].rpartition(": ")[2] for line in told][:3] == [h.verdict for h in found[:3]]
    assert "[-0.300, -0.100]: worse (" in told[1] and "nan" not in "".join(told)


def lost_of(folder: Path, key: str) -> list[dict[str, Any]]:
    trials = lines(folder / "evaluation" / "trials.jsonl")
    return [t for t in trials if t["reward"] is None and f"{t['split']}/{t['decoding']}" == key]


def test_a_named_folder_without_an_evaluation_is_refused_and_the_page_stays(folder: Path, tmp_path: Path) -> None:
    before = write_report(folder).read_bytes()
    for wrong in (tmp_path, tmp_path / "nosuch"):
        with pytest.raises(UserError, match="no folder of an evaluation"):
            write_report(folder, evaluation=wrong)
    assert (folder / REPORT).read_bytes() == before


def test_without_an_evaluation_the_first_and_last_validation_are_compared(tmp_path: Path) -> None:
    (found,) = headlines(read_run(make_run(tmp_path, steps=20)))
    rows = [row for row in lines(tmp_path / run_folder.ROLLOUTS) if row["mode"] == "val"]
    old, new = ({r["question_id"]: r["reward"] for r in rows if r["step"] == step} for step in (0, 20))
    assert found.before and found.delta and found.note == "greedy, step 0 and step 20, 36 questions"
    assert found.before.mean == pytest.approx(statistics.fmean(old.values()))
    assert found.delta.mean == pytest.approx(statistics.fmean(new[q] - old[q] for q in old))
    assert found.delta.low < found.delta.mean < found.delta.high


def test_validations_are_compared_over_the_questions_that_both_scored(tmp_path: Path) -> None:
    file = make_run(tmp_path, steps=20) / run_folder.ROLLOUTS
    rows = lines(file)
    low = {row["question_id"] for row in rows if row["mode"] == "val" and row["step"] == 20 and row["reward"] < 0.5}
    for row in rows:
        if row["mode"] == "val" and row["step"] == 20 and row["question_id"] in low:
            row |= {"reward": None, "unscored": "tool_fault"}
    write_lines(file, rows)
    (found,) = headlines(read_run(tmp_path))
    assert low and found.before and found.delta
    assert found.after.mean - found.before.mean == pytest.approx(found.delta.mean)
    assert found.note.endswith(f"{36 - len(low)} questions, {len(low)} more not scored in both")


def test_a_mixed_run_has_the_validation_of_each_agent(tmp_path: Path) -> None:
    make_run(tmp_path, steps=20)
    file = tmp_path / run_folder.ROLLOUTS
    rows = [{**row, "agent": "a" if row["task_type"].startswith("drug") else "b"} for row in lines(file)]
    assert {row["agent"] for row in rows} == {"a", "b"}
    write_lines(file, rows)
    whole, *parts = headlines(read_run(tmp_path))
    assert [one.title for one in (whole, *parts)] == ["validation", "validation: a", "validation: b"]
    for part, agent in zip(parts, "ab", strict=True):
        of = {row["step"]: [] for row in rows}
        for row in rows:
            if row["mode"] == "val" and row["agent"] == agent:
                of[row["step"]].append(row["reward"])
        assert part.after.mean == pytest.approx(statistics.fmean(of[20])) and part.delta
        assert part.delta.mean == pytest.approx(statistics.fmean(of[20]) - statistics.fmean(of[0]))
        assert part.delta.low < part.delta.mean < part.delta.high


def test_validations_have_the_interval_of_their_rollouts(run: RunData) -> None:
    found = dict(measures.validations(run))
    assert list(found) == [0, 10, 20]
    for row in run.rows("val"):
        assert found[row["step"]].mean == pytest.approx(row["val/reward_mean"])
        assert found[row["step"]].low < row["val/reward_mean"] < found[row["step"]].high


def test_a_validation_without_its_rollouts_has_no_interval(tmp_path: Path) -> None:
    make_run(tmp_path, steps=2)
    (tmp_path / run_folder.ROLLOUTS).unlink()
    (_, found), *_ = measures.validations(read_run(tmp_path))
    assert math.isnan(found.low) and found.n == 0


# Time and health


def test_phases_are_those_that_are_measured(run: RunData) -> None:
    steps, seconds = measures.phase_seconds(run)
    assert len(steps) == 20 and seconds["weight sync"] == pytest.approx([0.4] * 20)
    assert [*measures.PHASES, "other"] == list(PHASES)  # those that are measured
    assert set(seconds) == set(measures.PHASE_COLOR) - {"reference model"}
    totals = [row["seconds"] for row in run.rows("train")]
    assert [sum(values) for values in zip(*seconds.values(), strict=True)] == pytest.approx(totals)


def test_each_health_metric_has_a_panel(run: RunData) -> None:
    found = {series.name: series for series in health.health(run)}
    assert found["kl_to_start"].values == pytest.approx([row["health/kl_to_start"] for row in run.rows("train")])
    assert found["grad_norm"].values == pytest.approx([row["actor/grad_norm"] for row in run.rows("train")])
    assert found["new_sign"].title == "New sign" and "health/reward_mean" not in found
    assert {"entropy", "clip_share", "truncation_share", "response_tokens_mean", "unscored_share"} <= set(found)


def test_limits_are_those_of_the_run(tmp_path: Path) -> None:
    make_run(tmp_path, steps=6)
    file = tmp_path / run_folder.CONFIG
    config = json.loads(file.read_text())
    limits = {"repeat_share_max": 0.3, "entropy_min": 0.9, "kl_max": 0.0}
    write_json(file, {**config, "health": {**config["health"], **limits}})
    found = {series.name: series for series in health.health(read_run(tmp_path))}
    assert (found["repeat_share"].limit, found["repeat_share"].is_beyond) == (0.3, True)
    assert (found["entropy"].limit, found["entropy"].above_is_bad, found["entropy"].is_beyond) == (0.9, False, True)
    assert found["kl_to_start"].limit is None and not found["kl_to_start"].is_beyond
    assert {f"health/{measure_of(key)[0]}" for key in LIMITS} <= set(health.HEALTH)


def test_warnings_of_the_run_are_told(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path, steps=31))
    assert health.warnings(run) == ["step 30: health/repeat_share is 0.3, above health.repeat_share_max = 0.3"]
    assert health.warnings(run)[0] in pages.render(pages.Page(run), pngs=[])


def test_what_a_step_lacks_is_no_zero(tmp_path: Path) -> None:
    rows = [{"kind": "train", "step": s, "actor/grad_norm": None if s == 2 else 1.0} for s in (1, 2, 3)]
    append_lines(tmp_path / run_folder.METRICS, rows)
    (series,) = health.health(read_run(tmp_path))
    assert (series.steps, series.values) == ([1, 3], [1.0, 1.0])


def test_long_runs_are_drawn_as_means() -> None:
    rows: list[dict[str, Any]] = [{"step": s, "x": float(s)} for s in range(1, 1001)]
    steps, values = measures.over_steps(rows, "x")
    assert len(steps) <= measures.MOST_POINTS and steps[-1] == 1000
    assert values[0] == pytest.approx(4.0) and steps[0] == 7  # the mean of steps 1 to 7, drawn at 7


# Choosing


def test_pairs_are_the_most_improved_the_worse_and_the_low_questions(run: RunData) -> None:
    compared = {(q.after[0].split, q.after[0].question_id): q for q in cases.compared(run)}
    pairs = cases.pairs(run)
    kinds = [case.kind for case in pairs]
    assert kinds == sorted(kinds, key=["improved", "worse", "still low"].index) and kinds.count("improved") == 5
    for case in pairs:
        question = compared[case.where.partition(" ")[0], case.right.record.question_id]
        assert (case.left.label, case.right.label) == ("before", "after")
        assert {"improved": question.change > 0, "worse": question.change < 0}.get(case.kind, True)
        assert f"{question.old:.2f} → {question.new:.2f}" in case.rewards
    best = max(compared.values(), key=lambda q: q.change)
    assert pairs[0].rewards.startswith(f"mean reward {best.old:.2f} → {best.new:.2f}")


def test_a_transcript_is_the_trial_as_it_was(run: RunData) -> None:
    case = cases.pairs(run)[0]
    found = case.right.record
    trials = [t for t in lines(run.folder / "evaluation" / "trials.jsonl") if t["question_id"] == found.question_id]
    split = case.where.partition(" ")[0]
    (trial,) = (t for t in trials if (t["model"], t["split"], t["decoding"]) == ("after", split, "greedy"))
    assert found.sql_calls and case.right.reward == trial["reward"]
    assert found == RolloutRecord.model_validate(trial)


def test_groups_show_best_against_worst(run: RunData) -> None:
    for case in cases.groups(run):
        assert case.left.reward is not None and case.right.reward is not None
        assert case.left.reward < case.right.reward and case.where.startswith("training, step ")
        assert int(case.where.rpartition(" ")[2]) > 20 * 2 // 3


def test_groups_without_a_difference_are_shown_as_such(tmp_path: Path) -> None:
    folder = make_run(tmp_path, steps=2, validate_every=100)
    rollouts = lines(folder / "rollouts.jsonl")
    (folder / "rollouts.jsonl").unlink()
    append_lines(folder / "rollouts.jsonl", [{**r, "reward": 0.0} for r in rollouts])
    shown = cases.groups(read_run(folder))
    assert shown and all((case.left.label, case.right.label) == ("one", "another") for case in shown)
    assert all(case.left.record != case.right.record for case in shown)


def test_a_trial_that_was_played_again_counts_once(tmp_path: Path) -> None:
    place = {"model": "after", "split": "test", "decoding": "greedy", "sample": 0}
    record = play(1, skill=1.0, rng=random.Random(1))
    make_run(tmp_path, steps=1)
    (tmp_path / "evaluation").mkdir()
    fault = {**record, "reward": None, "unscored": "llm_fault"}
    append_lines(tmp_path / "evaluation" / "trials.jsonl", [{**place, **fault}, {**place, **record}])
    (entry,) = read_run(tmp_path).trials
    assert entry.reward == record["reward"] and not entry.unscored


def test_without_an_evaluation_the_worst_questions_are_those_of_training(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path, steps=8, validate_every=100))
    improved, worst = cases.standings(run)
    assert improved == [] and cases.pairs(run) == [] and cases.groups(run)
    means = [standing.new for standing in worst]
    assert means == sorted(means) and all(not s.before and s.where.startswith("step ") for s in worst)


def test_texts_are_cut_and_say_so(tmp_path: Path) -> None:
    call = {"sql": "SELECT 'x'", "result": {"columns": ["c"] * 20, "rows": [["v" * 500] * 20] * 100}}
    make_run(tmp_path, steps=1)
    (tmp_path / run_folder.ROLLOUTS).unlink()
    row = {**play(1, skill=1.0, rng=random.Random(1)), "answer": "y" * 9000, "sql_calls": [call] * 50, "group": "g"}
    keep(tmp_path, [{**row, "reward": reward} for reward in (0.0, 1.0)], step=1, mode="train")
    page = pages.render(pages.Page(read_run(tmp_path)), pngs=[])
    assert page.count("y" * 1600 + "… (+7400 characters)") == page.count("46 further calls, not shown") == 2
    assert page.count("100 rows, not all shown") == 2 * 4
    assert page.count("v" * 80 + "… (+420 characters)") == 2 * 4 * 5 * 6


# Facts


def test_settings_name_what_differs_from_the_defaults(run: RunData) -> None:
    found = {setting.key: setting for rows in facts.settings(run).values() for setting in rows}
    assert (found["rollout.group_size"].value, found["rollout.group_size"].default) == ("8", "4")
    assert found["agent.max_turns"].default is None
    assert set(found) == set(known_keys())


def test_versions_are_those_that_are_installed() -> None:
    found = versions()
    assert found["verl"] == version("verl") and found["torch"] == version("torch") and "python" in found


# Files


@pytest.mark.long
def test_a_damaged_folder_gives_a_page_that_says_so(tmp_path: Path) -> None:
    make_run(tmp_path, steps=4)
    (tmp_path / run_folder.SUMMARY).write_text('{"status": ', encoding="utf-8")
    (tmp_path / run_folder.CONFIG).unlink()
    with (tmp_path / run_folder.METRICS).open("a", encoding="utf-8") as file:
        file.write('not json\n[1]\n{"kind": "train", "step": "nine"}\n{"kind": "train", "st')
    run = read_run(tmp_path)
    assert len(run.rows("train")) == 4
    told = " ".join(run.problems)
    assert "summary.json cannot be read" in told and "config.json is missing" in told
    assert "metrics.jsonl: 2 line(s) cannot be read" in told
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "config.json is missing" in page and "4 of 4" in page and "unfinished" in page


WRONG: list[Any] = [None, True, 7, 1e400, 10**400, "text", [], {}, [[]], {"a": None}, float("nan")]


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps, to be spoiled in copies."""
    return make_run(tmp_path_factory.mktemp("short"), steps=2)


def spoil(rows: list[dict[str, Any]], value: Any) -> list[dict[str, Any]]:
    """The rows, and after them the same with a value in each place."""
    everywhere = [{**dict.fromkeys(row, value), "kind": "train", "mode": "val"} for row in rows]
    inside = [{**row, "sql_calls": [{"sql": value, "result": value}, value], "step": 1} for row in rows]
    return [*rows, *everywhere, *inside]


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_values_of_any_type_give_a_page(short: Path, tmp_path: Path, value: Any) -> None:
    """Another program, or another version, wrote the files."""
    summary, config = (json.loads((short / name).read_text()) for name in (run_folder.SUMMARY, run_folder.CONFIG))
    told = dict.fromkeys(summary, value)
    (tmp_path / run_folder.SUMMARY).write_text(json.dumps(told))
    (tmp_path / run_folder.CONFIG).write_text(json.dumps({**config, "rollout": value}))
    for name in (run_folder.METRICS, run_folder.ROLLOUTS):
        text = "".join(json.dumps(row) + "\n" for row in spoil(lines(short / name), value))
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "evaluation").mkdir()
    results = results_of([play(1, skill=1.0, rng=random.Random(1))]).model_dump()
    write_json(tmp_path / "evaluation" / "results.json", {**results, "models": {"after": {"a/b": value}}})
    run = read_run(tmp_path)
    assert run.results is None and any("results.json cannot be read" in problem for problem in run.problems)
    assert health.health(run) and measures.phase_seconds(run)[1] and measures.training_reward(run).values
    assert "</html>" in pages.render(pages.Page(run), pngs=[])


@pytest.mark.long
def test_values_of_all_types_are_drawn(short: Path, tmp_path: Path) -> None:
    for name in (run_folder.METRICS, run_folder.ROLLOUTS):
        rows = [row for value in WRONG for row in spoil(lines(short / name), value)]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert "</html>" in write_report(tmp_path).read_text(encoding="utf-8")


def test_a_run_that_failed_before_its_first_step_has_a_page(tmp_path: Path) -> None:
    summary = {
        "status": "failed",
        "error": "\x1b[36mthe store\x1b[39m at http://x is gone",
        "total_steps": 40,
        "versions": {"verl": 1},
    }
    write_json(tmp_path / run_folder.SUMMARY, summary)
    page = write_report(tmp_path).read_text(encoding="utf-8")
    for text in (
        "the store at http://x is gone",
        "0 of 40",
        "No training step was finished",
        "metrics.jsonl is missing",
    ):
        assert text in page
    assert list((tmp_path / PLOTS).iterdir()) == []


@pytest.mark.long
def test_curves_lie_beside_the_page(tmp_path: Path) -> None:
    target = write_report(make_run(tmp_path, steps=5))
    assert target == tmp_path / REPORT and not list(tmp_path.glob("*.tmp"))
    pngs = {path.name: path.read_bytes() for path in (tmp_path / PLOTS).iterdir()}
    assert sorted(pngs) == ["health.png", "parts.png", "pools.png", "reward.png", "time.png"]
    assert all(data.startswith(b"\x89PNG") and len(data) > 10_000 for data in pngs.values())
    page = target.read_text(encoding="utf-8")
    assert all(f'href="plots/{name}"' in page for name in pngs)
    assert "5 of 12 groups were flat, which forecasts 19 to 68 %" in page
    (tmp_path / run_folder.METRICS).unlink()
    write_report(tmp_path)  # the pictures of the older report go
    assert sorted(p.name for p in (tmp_path / PLOTS).iterdir()) == ["reward.png"]


@pytest.mark.long
def test_a_long_run_with_endless_texts_gives_a_small_page(tmp_path: Path) -> None:
    make_run(tmp_path, steps=600, questions=1, validate_every=300)
    add_evaluation(tmp_path)
    endless = '<"&>' * 3000
    trials = lines(tmp_path / "evaluation" / "trials.jsonl")
    for trial in trials:
        call = {
            "sql": endless,
            "turn": 1,
            "result": {"columns": [endless] * 40, "rows": [[endless] * 40], "error": None},
        }
        trial |= {"answer": endless, "reason": endless, "question": endless, "reference": endless}
        trial |= {"sql_calls": [call] * 9} if trial["question_id"] == "q-0007" else {}
    (tmp_path / "evaluation" / "trials.jsonl").unlink()
    append_lines(tmp_path / "evaluation" / "trials.jsonl", trials[:200] + trials[-40:])
    results_of(trials[:200] + trials[-40:]).write(tmp_path / "evaluation" / "results.json")
    assert write_report(tmp_path).stat().st_size < MOST_BYTES


@pytest.mark.long
def test_every_transcript_at_its_limit_gives_a_small_page(tmp_path: Path) -> None:
    make_run(tmp_path, steps=3)
    endless, cell = '"' * 2000, '"' * 100  # on the page each mark takes five bytes
    call = {"sql": endless, "turn": 1, "result": {"columns": [cell] * 7, "rows": [[cell] * 7] * 6, "error": None}}
    rows = []
    for number in range(30):
        for step, reward in ((0, number % 3 / 2), (3, 0.5)):
            record = play(number, skill=1.0, rng=random.Random(1))
            record |= {"answer": endless, "reason": endless, "reference": endless, "sql_calls": [call] * 6}
            rows.append((step, {**record, "question": endless, "reward": reward}))
    (tmp_path / run_folder.ROLLOUTS).unlink()
    for step, row in rows:
        keep(tmp_path, [row], step=step, mode="val")
    keep(tmp_path, [{**rows[0][1], "group": "g", "reward": r} for r in (0.0, 1.0)], step=3, mode="train")
    page = write_report(tmp_path)
    assert page.read_text(encoding="utf-8").count('class="side"') >= 20
    assert page.stat().st_size < MOST_BYTES


def test_what_is_no_run_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run folder"):
        write_report(tmp_path)


@pytest.mark.long
def test_a_report_that_fails_is_one_line(tmp_path: Path) -> None:
    line = report_line(tmp_path)
    assert line.startswith("warning: no report of this run (error: ") and "no run folder" in line and "\n" not in line
    write_json(tmp_path / run_folder.CONFIG, build_config(load_recipe("demo_cpu")).model_dump())
    assert report_line(tmp_path) == f"report: {tmp_path / REPORT}"


def test_a_report_ends_with_the_command_that_makes_it(tmp_path: Path) -> None:
    """A kill -9 is no end that a process could see to itself."""
    write_json(tmp_path / run_folder.CONFIG, build_config(load_recipe("demo_cpu")).model_dump())
    said = "from pathlib import Path; from sql_agent.run_report.file import report_line; "
    code = f"{said}report_line(Path({str(tmp_path)!r}))"
    command = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    began = psutil.Process(command.pid)
    deadline_s = time.monotonic() + 30
    while not (tree := began.children(recursive=True)) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    time.sleep(0.2)  # the report is a child of what sees to its end
    tree = began.children(recursive=True)
    command.kill()
    command.wait()
    assert len(tree) >= 1 and psutil.wait_procs(tree, timeout=5)[1] == []
    assert not (tmp_path / REPORT).exists()


def test_a_run_that_learns_from_files_shows_what_it_learned(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({"method": "sft", "status": "finished", "total_steps": 45}))
    (tmp_path / "config.json").write_text("{}")
    rows = [{"kind": "train", "step": n, "train/loss": 1 / n, "train/token_accuracy": n / 45} for n in range(6, 46)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = read_run(tmp_path)
    assert run.problems == [] and facts.steps(run) == (45, 45)  # resumed at step 6, and done
    chart = pages._loss(run)
    assert chart and chart.legend[0][1] == "loss per step"
    assert "token_accuracy" in {series.name for series in health.health(run)}


def test_averages_say_that_they_are_and_one_question_has_no_interval(tmp_path: Path) -> None:
    run = RunData(tmp_path, metrics=[{"kind": "train", "step": n, "train/loss": 1.0} for n in range(1, 401)])
    chart = pages._loss(run)
    assert chart and chart.legend[0][1] == "loss, mean of 3 steps"
    assert str(Estimate(0.5, 0.5, 0.5, 1)) == "0.500"
