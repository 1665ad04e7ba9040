"""Several agents in one run: configurations, files with weights, and the order of their questions."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agl_plugin.run.question_order import QuestionOrder, order
from agl_plugin.run.statistics import reward_by_agent
from foundation import run_folder
from foundation.errors import UserError
from foundation.files import write_lines
from sql_agent.agent.grading import scoring_of
from sql_agent.agent.toolset import databases_of
from sql_agent.config import agent_config, agents_of, build_config, load_recipe, resolve_system_prompt
from sql_agent.config.build import merge
from sql_agent.records import Question, RunRecord
from sql_agent.scoring.check import check_scorers
from sql_agent.training.health_rules import behaviour, health_of
from sql_agent.training.questions import load_data
from sql_agent.training.summary import build_summary, summary_table
from sql_agent.training.verl_config import verl_overrides

FILES, WEIGHTS = [0] * 30 + [1] * 10 + [2] * 5, [3.0, 2.0, 1.0]
MATH: dict[str, Any] = {
    "agent": {"tools": ["python"], "max_turns": 3},
    "reward": {"default_scorer": "exact", "sql_bonus": 0.0},
}
OFFLINE: dict[str, Any] = {"reward": {"judge": {"kind": "reference"}}, "agents": {"math": MATH}}


def epochs(n: int, *, seed: int = 1) -> list[list[int]]:
    return [order(FILES, WEIGHTS, seed=seed, epoch=epoch) for epoch in range(n)]


def test_weights_are_the_shares_of_every_stretch() -> None:
    for places in epochs(3):
        assert len(places) == len(FILES)
        for start in range(len(places) - 12):
            of = Counter(FILES[n] for n in places[start : start + 12])
            assert all(abs(of[file] - 12 * share) <= 1 for file, share in enumerate((1 / 2, 1 / 3, 1 / 6)))


def test_a_file_goes_on_where_the_epoch_before_left_it() -> None:
    """Of the first file an epoch takes 22 of 30: none comes again before all came; of the last one 8 of 5."""
    taken = [[n for places in epochs(3) for n in places if FILES[n] == file] for file in range(3)]
    for file, size in enumerate((30, 10, 5)):
        passes = [taken[file][at : at + size] for at in range(0, len(taken[file]) - size + 1, size)]
        assert len(passes) > 1 and all(len(set(one)) == size for one in passes)
        assert len({tuple(one) for one in passes}) == len(passes)


def test_the_order_is_of_seed_and_epoch_alone() -> None:
    assert epochs(3) == epochs(3) and order(FILES, WEIGHTS, seed=1, epoch=2) == epochs(3)[2]
    assert epochs(1) != epochs(1, seed=2)


def test_a_file_without_questions_has_no_turn_and_one_file_is_a_plain_permutation() -> None:
    assert sorted(order([0, 0, 2, 2], [1.0, 1.0, 1.0], seed=1, epoch=0)) == [0, 1, 2, 3]
    assert sorted(order([0] * 9, [], seed=1, epoch=1)) == list(range(9))


def test_questions_that_replace_flat_groups_have_the_same_shares() -> None:
    rows = [{"id": f"{file}-{n}", "file": str(file)} for n, file in enumerate(FILES)]
    spare = QuestionOrder(rows, n=2, seed=1, weights=WEIGHTS).spare(3)
    assert Counter(row["file"] for row in spare.draw(12, used=set())) == {"0": 6, "1": 4, "2": 2}


def test_an_agent_is_the_configuration_with_what_it_changes() -> None:
    config = build_config(OFFLINE, {"agent": {"max_turns": 9, "repeat_limit": 5}})
    math = agent_config(config, "math")
    assert (math.agent.tools, math.agent.max_turns, math.agent.repeat_limit) == (["python"], 3, 5)
    assert math.reward.default_scorer == "exact" and math.reward.judge.kind == "reference" and not math.agents
    assert agents_of(config)[""].agent == config.agent and list(agents_of(config)) == ["", "math"]
    assert list(databases_of(config)) == ["database"]


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"agents": {"math": {"agent": {"tool": []}}}}, r"agents.math.agent.tool = \[\]: unknown key; did you mean"),
        ({"agents": {"math": {"agent": {"max_turns": 0}}}}, "agents.math.agent.max_turns = 0"),
        ({"agents": {"math": {"agent": {"max_turns": 1, "min_turns": 2}}}}, "agents.math: agent.min_turns = 2"),
        ({"agents": {"math": {"tools": ["python"]}}}, r"agents.math.tools: an agent has the sections agent, reward"),
        ({"agents": {"math": {"rollout": {}}}}, r"agents.math.rollout: .* shared by the run"),
        ({"agents": {"math": {"reward": {"judge": {"kind": "llm"}}}}}, "one judge and one reward model grade a run"),
        ({"agents": {"default": {}}}, "agents.default: an agent's name must"),
        ({"agents": {"a b": {}}}, "agents.a b: an agent's name must"),
        (
            {"data": {"train_files": [{"file": "a", "agent": "mth"}]}},
            "'a' has agent = 'mth': no such agent. .*has none",
        ),
        ({"agents": {"math": {}}, "data": {"val_files": [{"file": "a", "agent": "mth"}]}}, "did you mean math"),
        ({"data": {"train_files": [{"file": "a", "weigth": 2}]}}, "did you mean weight"),
        ({"data": {"train_files": [{"file": "a", "weight": 0}]}}, "weight = 0"),
        ({"data": {"train_file": "b", "train_files": [{"file": "a"}]}}, "leave one of the two out"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(tree: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        build_config(tree)


def test_each_agent_has_its_prompt() -> None:
    tree = merge(OFFLINE, {"agents": {"sql": {}, "own": {"agent": {"system_prompt": "system_en"}}}})
    config = resolve_system_prompt(build_config(tree), tiny=True)
    prompts = {name: one.agent.system_prompt for name, one in agents_of(config).items()}
    assert prompts == {"": "system_short", "math": "tools", "sql": "system_short", "own": "system_en"}


def test_files_of_the_recipe_stand_in_its_folder() -> None:
    config = build_config(load_recipe("mixed_cpu"))
    sql, math = config.data.train_files
    assert sql.file == "data/train.parquet" and Path(math.file).is_file() and Path(math.file).is_absolute()
    assert all(Path(tool).is_absolute() for tool in agent_config(config, "math").agent.tools if tool.endswith(".py"))
    assert Path(agent_config(config, "math").agent.system_prompt).is_absolute()


def jsonl(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[dict[str, Any]]:
    sql = [{"id": f"q{n}", "question": f"sql {n}?", "answer": "a"} for n in range(6)]
    math = [{"id": f"q{n}", "question": f"math {n}?", "answer": "1"} for n in range(4)]
    math[3] |= {"agent": "other"}
    of_sql, of_math = jsonl(tmp_path / "sql.jsonl", *sql), jsonl(tmp_path / "math.jsonl", *math)
    both = [{"file": of_sql}, {"file": of_math, "weight": 2.0, "agent": "math"}]
    yield merge(OFFLINE, {"agents": {"other": {}}, "data": {"train_files": both, "val_files": both, "val_max_rows": 6}})


def test_rows_get_agent_file_and_an_id_of_their_own(files: dict[str, Any]) -> None:
    config = build_config(files)
    with closing(scoring_of(config)) as scoring:
        train, val = load_data(config, scoring)
    assert [question.agent for question in train] == [""] * 6 + ["math"] * 3 + ["other"]
    assert [question.file for question in train] == [0] * 6 + [1] * 4
    assert [question.id for question in train] == [f"q{n}" for n in range(6)] + [f"q{n}@2" for n in range(4)]
    assert Counter(question.file for question in val) == {0: 2, 1: 4}  # shares of val_max_rows
    weights = verl_overrides(config, model_path="/m", run_dir=Path("/r"), total_steps=1)["data"]["sampler"]["weights"]
    assert weights == [1.0, 2.0]


def test_an_unknown_agent_of_a_row_is_told_before_anything_starts(files: dict[str, Any]) -> None:
    files["agents"].pop("other")
    config = build_config(files)
    with (
        closing(scoring_of(config)) as scoring,
        pytest.raises(UserError, match=r"row 4 \(q3@2\): agent 'other': no such"),
    ):
        load_data(config, scoring)


def test_an_agent_that_nothing_validates_is_told_of(files: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    config = build_config(files, {"data": {"val_files": files["data"]["val_files"][:1]}})
    with closing(scoring_of(config)) as scoring:
        load_data(config, scoring)
    assert "agent math: no validation question is its own" in caplog.text


def test_rows_are_checked_with_the_scorer_of_their_agent() -> None:
    config = build_config(OFFLINE, {"agents": {"math": {"reward": {"default_scorer": "sql_result"}}}})
    with pytest.raises(UserError, match="agents|reward.default_scorer = 'sql_result': needs a database"):
        scoring_of(config)
    with closing(scoring_of(build_config(OFFLINE))) as scoring:
        assert scoring.of("math").config.default_scorer == "exact" and scoring.of("") is scoring
        check_scorers([Question(id="1", question="?", answer="1", agent="math")], scoring)
        with pytest.raises(UserError, match="There are: math"):
            check_scorers([Question(id="1", question="?", answer="1", agent="maths")], scoring)


def record(agent: str, reward: float | None, *, tool: bool = True) -> dict[str, Any]:
    call = {"name": "t", "outcome": "ok"}
    shown = RunRecord.model_validate({"agent": agent, "reward": reward, "tool_calls": [call] * tool, "sql_calls": []})
    return {**shown.model_dump(), "unscored": "" if reward is not None else "judge_fault"}


def test_figures_by_agent_leave_out_what_is_unscored() -> None:
    rows = [(record("sql", 0.5), 0.5), (record("sql", None), None), (record("", 1.0), 1.0)]
    stats = reward_by_agent(rows)
    assert stats == {
        **{"reward/default/rollouts": 1, "reward/default/scored": 1, "reward/default/mean": 1.0},
        **{"reward/sql/rollouts": 2, "reward/sql/scored": 1, "reward/sql/mean": 0.5},
    }
    assert reward_by_agent([(record("", 1.0), 1.0)]) == {}


def test_the_summary_has_the_validation_of_each_agent_with_its_interval(tmp_path: Path) -> None:
    rows = [
        {**record(agent, reward), "question_id": f"{agent}{n}", "mode": "val", "step": step}
        for step in (0, 4)
        for agent, rewards in (("math", (0.0, 1.0, 1.0, None)), ("sql", (0.5, 0.25)))
        for n, reward in enumerate(rewards)
    ]
    write_lines(tmp_path / run_folder.ROLLOUTS, rows)
    write_lines(tmp_path / run_folder.METRICS, [{"kind": "val", "step": step, "seconds": 1.0} for step in (0, 4)])
    facts = {"status": "finished", "judge": "", "model": {"path": ""}, "total_steps": 4}
    summary = build_summary(tmp_path, total_s=1.0, peak_memory_gib=1.0, facts=facts)
    first, last = (one["by_agent"] for one in summary["validation"])
    assert first == last and first["math"]["questions"] == 3 and first["sql"]["reward_mean"] == 0.375
    low, high = first["math"]["reward_ci95"]
    assert low < 2 / 3 < high and first["math"]["reward_mean"] == pytest.approx(2 / 3)
    console = Console(record=True, width=160, quiet=False, file=io.StringIO())
    console.print(summary_table(summary))
    assert "validation: sql" in console.export_text()


def test_an_agent_that_stops_calling_its_tools_is_told_of_by_name() -> None:
    config = build_config(OFFLINE, {"agents": {"talk": {"agent": {"tools": [], "system_prompt": "tools"}}}})
    watched = {
        watch.metric
        for watch in health_of(config.health, config, max_response_tokens=768).watches
        if watch.key == "health.tool_call_share_min"
    }
    assert watched == {"health/tool_call_share", "health/tool_call_share/math"}
    found = behaviour([record("math", 0.0, tool=False), record("math", 1.0), record("talk", 1.0, tool=False)])
    assert found["health/tool_call_share/math"] == 0.5 and found["health/tool_call_share"] == pytest.approx(1 / 3)
