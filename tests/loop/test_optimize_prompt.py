"""The search for a system prompt, against real local servers: one plays the policy, the other criticises and edits.

The policy answers rightly only where its system prompt holds MAGIC, which the editor adds; so the search must find it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from foundation.files import read_lines, write_lines
from recipes.prompt_cpu import search
from sql_agent.config import prompt_file
from sql_agent.data.bundled import DATA
from sql_agent.data.dataset import load_questions
from sql_agent.testing.server import Answer, Handler, chat_reply, error_reply, openai_server, tool_call_reply
from tests.typed import app_of

app = app_of("prompt")

MAGIC = "Answer with the sum alone."
SMALL = ["--rounds", "1", "--beam", "1", "--branch", "1", "--batch", "2", "--train", "4", "--val", "4"]


def policy(request: dict[str, Any]) -> Answer:
    system, question = (str(message["content"]) for message in request["messages"][:2])
    left, right = question.removesuffix("?").split("+")
    return chat_reply(str(int(left) + int(right)) if MAGIC in system else "I do not know")


def editor(request: dict[str, Any]) -> Answer:
    """The first call of an edit is for a critique, the second for the new prompt."""
    text = json.dumps(request["messages"])
    return chat_reply(f"Add: {MAGIC}" if "Revise the given" not in text and MAGIC not in text else f"You add. {MAGIC}")


def run(folder: Path, *flags: str, edit: Handler = editor, play: Handler = policy, env: bool = True) -> tuple[int, str]:
    rows = [{"qid": n, "question": f"{n}+{n}?", "ground_truth": str(n + n), "scorer": "exact"} for n in range(8)]
    write_lines(folder / "rows.jsonl", rows)
    (folder / "seed.txt").write_text("You are a calculator.")
    keys = {"data.train_file": "rows.jsonl", "data.val_file": "rows.jsonl", "agent.system_prompt": "seed.txt"}
    sets = [part for key, name in keys.items() for part in ("--set", f"{key}={folder / name}")]
    sets += ["--set", "reward.judge.kind=reference"]
    with openai_server(edit) as optimiser, openai_server(play) as model:
        named = {"TEACHER_API_KEY": "key", "TEACHER_MODEL": "editor", "TEACHER_BASE_URL": optimiser.base_url}
        asked = ["--model", f"fake-model@{model.base_url}", "--out", str(folder / "out"), *SMALL, *sets, *flags]
        done = CliRunner().invoke(
            app, asked, env={**(named if env else dict.fromkeys(named, "")), "JUDGE_ENDPOINTS": ""}
        )
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.mark.long
def test_the_search_finds_the_better_prompt_and_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LITELLM_LOCAL_MODEL_COST_MAP")
    status, said = run(tmp_path)
    out = tmp_path / "out"
    assert status == 0, said
    assert os.environ.pop("LITELLM_LOCAL_MODEL_COST_MAP")  # which would be fetched from GitHub
    assert said.splitlines()[-1] == f"prompt: {out / 'best_prompt.txt'}"
    assert MAGIC in (out / "best_prompt.txt").read_text()
    found = json.loads((out / "results.json").read_text())
    assert (found["prompts"]["v0"]["mean"], found["prompts"][found["best"]]["mean"]) == (0, 1)
    assert found["difference"]["mean"] == 1 and found["optimiser_calls"] == 2 and found["ended"] == "all rounds"
    trials = [row for row in read_lines(out / "trials.jsonl") if row["split"] == "val"]
    assert len(trials) == len({(row["model"], row["question_id"]) for row in trials}) == 8
    assert (out / "prompts" / "v0.txt").read_text() == "You are a calculator.\n" and "**v1**" in (
        out / "report.md"
    ).read_text()


@pytest.mark.slow
def test_a_budget_and_a_dead_editor_end_the_search_with_what_there_is(tmp_path: Path) -> None:
    for name, flags, edit, why in (
        ("calls", ["--max-calls", "1"], editor, "--max-calls 1"),
        ("episodes", ["--max-episodes", "5"], editor, "--max-episodes 5"),
        ("dead", [], lambda request: error_reply(401, "no"), "the optimising model failed"),
    ):
        (tmp_path / name).mkdir()
        status, said = run(tmp_path / name, *flags, edit=edit)
        assert status == 1 and why in said, said
        assert (tmp_path / name / "out" / "best_prompt.txt").read_text() == "You are a calculator.\n"


@pytest.mark.slow
def test_faults_of_the_policy_are_no_zeros(tmp_path: Path) -> None:
    calls: list[int] = []

    def flaky(request: dict[str, Any]) -> Answer:
        calls.append(1)
        return error_reply(500, "busy") if len(calls) % 3 == 0 else policy(request)

    run(tmp_path, "--concurrency", "1", play=flaky)
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    unscored = [row for row in read_lines(tmp_path / "out" / "trials.jsonl") if row["reward"] is None]
    assert unscored and all(mean["mean"] in (0, 1) for mean in found["prompts"].values() if mean["n"])


@pytest.mark.slow
@pytest.mark.parametrize("edited", ["", "x" * 20_000], ids=["empty", "long"])
def test_an_edit_that_is_none_is_no_candidate(tmp_path: Path, edited: str) -> None:
    def edit(request: dict[str, Any]) -> Answer:
        return chat_reply("A critique.") if "A critique." not in json.dumps(request["messages"]) else chat_reply(edited)

    status, _ = run(tmp_path, edit=edit)
    assert status in (0, 1) and (tmp_path / "out" / "best_prompt.txt").read_text() == "You are a calculator.\n"


def test_without_an_optimising_model_nothing_is_played(tmp_path: Path) -> None:
    status, said = run(tmp_path, "--model", str(tmp_path / "none"), env=False)  # which is not even looked at
    assert status == 2 and said.startswith("error: no optimising model") and not (tmp_path / "out").exists()


@pytest.mark.long
def test_the_recipe_finds_the_prompt_that_the_policy_knows(tmp_path: Path) -> None:
    """recipes/prompt_cpu, a few questions of it: the policy here knows the answers under one of the listed prompts."""
    known = {
        one.question: one.answer for split in ("train", "val") for one in load_questions(DATA / f"{split}.parquet")
    }
    wanted = prompt_file("system_short").read_text(encoding="utf-8").strip()

    def policy(request: dict[str, Any]) -> Answer:
        system, question = (str(message["content"]) for message in request["messages"][:2])
        if request["messages"][-1]["role"] != "tool":
            return tool_call_reply(("query_database_by_sql", {"sql": "SELECT 1"}))
        return chat_reply(known[question] if system.strip() == wanted else "不知道。")

    few = ["--batch", "2", "--train", "4", "--val", "4", "--out", str(tmp_path / "out")]
    with openai_server(search.editor()) as optimiser, openai_server(policy) as model:
        named = {"TEACHER_API_KEY": "key", "TEACHER_MODEL": "list", "TEACHER_BASE_URL": optimiser.base_url}
        asked = [*search.FLAGS, *few, "--model", f"fake-model@{model.base_url}"]
        done = CliRunner().invoke(app, asked, env={**named, "JUDGE_ENDPOINTS": ""})
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (tmp_path / "out" / "best_prompt.txt").read_text().strip() == wanted
    assert found["prompts"]["v0"]["mean"] < found["prompts"][found["best"]]["mean"] and found["optimiser_calls"] == 6
