"""The probe before a run: what a recipe's rewards pay to answers that know nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sql_agent.config import ROOT, DatabaseConfig, RewardConfig, TrainConfig
from sql_agent.data.dataset import load_questions
from sql_agent.records import Question
from sql_agent.run_report.facts import facts
from sql_agent.run_report.folder import RunData
from sql_agent.scoring.build import build_context
from sql_agent.scoring.registry import ScoringContext
from sql_agent.training.job import GrpoPlan
from sql_agent.training.probe import FieldProbe, field_of, findings, is_cheap, probe, probed
from sql_agent.training.summary import build_summary

pytestmark = pytest.mark.usefixtures("offline_judge")

STORED = [Question(id=str(n), question=f"Where is drug {n} kept?", answer="In the dark.") for n in range(6)]


@pytest.fixture
def context() -> Iterator[ScoringContext]:
    with closing(build_context(RewardConfig(), DatabaseConfig())) as found:
        yield found


def test_honest_answers_earn_all_and_what_knows_nothing_next_to_nothing(context: ScoringContext) -> None:
    fields = probe(load_questions(ROOT / "sql_agent" / "data" / "train.parquet"), context, n=80)
    assert len(fields) == 10 and all(one.honest >= 0.95 and one.n == 8 for one in fields)
    paid = {what: value for one in fields for what, value in one.paid.items() if what != "a constant"}
    assert {"nothing", "the question again", "SELECT *", "a verdict", "its own name"} <= {*paid}
    assert max(paid.values()) <= 0.1 and not any(one.is_flat for one in fields)


@pytest.mark.parametrize(("n", "probed_each"), [(1, [1]), (5, [5]), (20, [8, 8])])
def test_no_more_questions_are_probed_than_are_asked_for(n: int, probed_each: list[int]) -> None:
    rows = [Question(id=str(k), question=f"{k}?", answer=str(k), task_type="ab"[k % 2]) for k in range(40)]
    with closing(build_context(RewardConfig(default_scorer="exact"))) as context:
        assert [field.n for field in probe(rows, context, n=n)] == probed_each


def test_a_field_of_few_values_is_named(context: ScoringContext) -> None:
    data = load_questions(ROOT / "sql_agent" / "data" / "train.parquet")
    fields = probe([one for one in data if field_of(one) == "drug_field, single, storage"], context, n=8)
    assert fields[0].constant > 0.25
    paid = f"{fields[0].constant:.2f} of 1.00 in drug_field, single, storage"
    assert [*findings(fields * 2)] == [f"one constant answer earns {paid}; {paid}"]


@pytest.mark.parametrize(("scorer", "constant"), [("exact", 1.0), ("reference", 1.0), ("math", 0.0)])
def test_other_scorers_are_probed_too(scorer: str, constant: float) -> None:
    numbers = [Question(id=str(n), question=f"{n} + 1?", answer=str(n + 1)) for n in range(6)]
    with closing(build_context(RewardConfig(default_scorer=scorer))) as context:
        (found,) = probe(numbers if scorer == "math" else STORED, context, n=8)
    assert (found.honest, found.constant) == (1.0, constant)


def test_a_scorer_that_pays_everything_alike_is_flat_and_asked_only_on_demand(tmp_path: Path) -> None:
    own = "@scorer('half')\ndef half(question, episode, context):\n    return 0.5\n"
    (tmp_path / "half.py").write_text(f"from sql_agent.scorers import scorer\n\n\n{own}")
    config = RewardConfig(default_scorer="half", scorer_modules=[str(tmp_path / "half.py")])
    with closing(build_context(config)) as context:
        assert not is_cheap(STORED, context) and probed(STORED, context) == []
        found = FieldProbe(field="x", n=2, honest=0.5, paid={"a constant": 0.5, "the question again": 0.5})
        assert [*findings([found])][1] == "field x: every answer that was tried earns 0.50, so its groups are flat"
        (one,) = probe(STORED, context, n=8)
    assert one.constant == one.honest == one.paid["a verdict"] == 0.5


def test_the_run_says_it_in_its_summary_and_report(context: ScoringContext, tmp_path: Path) -> None:
    fields = [FieldProbe(field=f"field {n}", n=8, honest=1.0, paid={"a constant": n / 10}) for n in (6, 1)]
    told_of: Any = {"verl": {}, "daemon": None, "trainer": SimpleNamespace(from_store={}, goes_on_from=())}
    plan = GrpoPlan(
        config=TrainConfig(),
        run_dir=tmp_path,
        model=tmp_path,
        steps=1,
        method="grpo",
        run="run",
        train=STORED,
        val=STORED,
        scoring=context,
        probed=fields,
        **told_of,
    )
    summary = build_summary(tmp_path, total_s=1.0, peak_memory_gib=1.0, facts=json.loads(json.dumps(plan.facts())))
    assert dict(facts(RunData(tmp_path, summary=summary)))["probe"].startswith("one constant answer earns 0.60 of ")


@pytest.mark.long
def test_the_documented_command(tmp_path: Path) -> None:
    flags = ["--recipe", "smoke_cpu", "--probe", "16", "--out", str(tmp_path)]
    command = [sys.executable, "sql_agent/judge_report.py", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"report: {tmp_path}" and "a constant" in done.stdout
    assert len(json.loads((tmp_path / "probe.json").read_text())["fields"]) == 2


@pytest.mark.long
def test_a_recipes_report_probes_it_whatever_its_scorers_are(tmp_path: Path) -> None:
    flags = ["--set", "reward.default_scorer=sql_result", "--strategies", "0", "--no-flips", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "sql_agent", "judge-report", "--recipe", "smoke_cpu", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "a constant" in done.stdout and "right answers refused" in done.stdout


def test_the_runs_own_database_is_left_as_it_is(context: ScoringContext) -> None:
    assert context.databases
    before = len(context.databases.workers.idle)
    probe(load_questions(ROOT / "sql_agent" / "data" / "val.parquet"), context, n=8)
    assert len(context.databases.workers.idle) == before == 0
