"""A rubric of one's own (reward.judge.prompt): checked before the run, sent, named, recorded, cached by its text."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from foundation import run_folder
from foundation.errors import UserError
from reward_client import JudgeItem
from reward_client.prompting import PROMPTS, read_prompt
from sql_agent.config import ROOT, TrainConfig, build_config, load_recipe
from sql_agent.scoring.build import build_context
from sql_agent.testing.server import chat_reply, openai_server
from sql_agent.training.job import GrpoPlan

GOOD = "Number {nonce}. Grade ANSWER: " + '{"accuracy": 0.0, "completeness": 0.0, "clarity": 0, "professionalism": 1}'
SCORES = {"accuracy": 0.5, "completeness": 0.5, "clarity": 1, "professionalism": 1, "reason": "x"}


def recipe(folder: Path, prompt: str = "my.txt", *, text: str | bytes | None = GOOD, more: str = "") -> str:
    """A recipe in `folder`, with the prompt beside it; its path."""
    folder.mkdir(exist_ok=True)
    if text is not None:
        (folder / "my.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    path = folder / "config.toml"
    lines = f'[reward.judge]\nprompt = "{prompt}"\nfolder = "{folder / "judge"}"\n{more}\n'
    path.write_text(lines + f'[trainer]\nruns_dir = "{folder}"\n', encoding="utf-8")
    return str(path)


def config_of(folder: Path, **options: str) -> TrainConfig:
    return build_config(load_recipe(recipe(folder, **options)))


def teacher(base_url: str) -> dict[str, str]:
    return {"TEACHER_API_KEY": "k", "TEACHER_MODEL": "judge-1", "TEACHER_BASE_URL": base_url}


@pytest.fixture(autouse=True)
def no_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JUDGE_ENDPOINTS", *teacher("")):
        monkeypatch.delenv(name, raising=False)


def test_the_file_is_found_beside_the_recipe_before_other_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.txt").write_text("another", encoding="utf-8")
    assert config_of(tmp_path / "own").reward.judge.prompt == str(tmp_path / "own" / "my.txt")
    (tmp_path / "my.txt").write_text(GOOD, encoding="utf-8")
    (tmp_path / "own" / "my.txt").unlink()
    build_context(build_config(load_recipe(str(tmp_path / "own"))).reward)  # the one of the folder we are in
    (tmp_path / "my.txt").unlink()
    with pytest.raises(UserError, match="prompt = 'my.txt': .*cannot be read"):
        build_context(build_config(load_recipe(str(tmp_path / "own"))).reward)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"must hold the placeholder \{nonce\}"),
        (GOOD.replace("{nonce}", "nonce"), r"must hold the placeholder \{nonce\}"),
        (GOOD + " {question}", r"unknown placeholder \{question\}.*call them QUESTION"),
        (GOOD + " { answer }", r"unknown placeholder \{answer\}"),
        (GOOD + " {nonce1}", r"unknown placeholder \{nonce1\}"),
        (GOOD.replace("clarity", "style"), "does not ask for clarity: .* one JSON object"),
        (GOOD + "x" * 16_000, "at most 16000 are sent"),
        (b"{nonce} \xff\xfe", "cannot be read .no UTF-8"),
        (None, "cannot be read .No such file"),
    ],
    ids=lambda value: str(value)[-30:],
)
def test_what_a_prompt_lacks_is_told_before_the_start(text: str | bytes | None, said: str, tmp_path: Path) -> None:
    """Without an endpoint too."""
    config = build_config(load_recipe(recipe(tmp_path / "own", text=text)))
    with pytest.raises(UserError, match=f"(?s)reward.judge.prompt = .*my.txt.*{said}"):
        build_context(config.reward)


@pytest.mark.parametrize("mode", ["pairwise", "groupwise"])
def test_beside_a_mode_with_prompts_of_its_own_it_is_an_error(mode: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="reward.judge.mode = pointwise"):
        config_of(tmp_path / "own", more=f'mode = "{mode}"')


def test_the_bundled_rubrics_pass_the_check() -> None:
    for language in ("zh", "en"):
        assert read_prompt(PROMPTS / f"rubric_{language}.txt")


def test_it_is_sent_with_a_number_and_each_text_has_verdicts_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item, names = JudgeItem(question="问", reference="高血压", answer="高血压"), set()
    with openai_server(lambda _: chat_reply(json.dumps(SCORES))) as server:
        for name, value in teacher(server.base_url).items():
            monkeypatch.setenv(name, value)
        for text in (GOOD, GOOD + " Be strict.", GOOD):
            llm = build_context(config_of(tmp_path / "own", text=text).reward).llm
            assert llm and asyncio.run(llm.grade(item)).overall == 0.5
            names.add(llm.name)
        assert len(server.requests) == 2  # the third is in the cache
        system = server.requests[1].json["messages"][0]["content"]
    nonce = system.split()[1].rstrip(".")
    assert system == (GOOD + " Be strict.").replace("{nonce}", nonce) and len(nonce) == 16
    assert len(names) == 2 and all("prompt my.txt (" in name for name in names)


def test_the_run_folder_keeps_the_text_and_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in teacher("http://127.0.0.1:9/v1").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "environ", dict(os.environ))  # preparing a run sets variables
    rest: dict[str, Any] = {"model": tmp_path, "steps": 1, "method": "grpo", "run": "r", "train": [], "val": []}
    rest |= {"verl": {}, "daemon": None, "trainer": None}
    config, bare = config_of(tmp_path / "own"), build_config({})
    for name, one in (("own", config), ("bare", bare)):
        GrpoPlan(config=one, run_dir=tmp_path / name, scoring=build_context(one.reward), **rest).write_down()
    assert (tmp_path / "own" / run_folder.JUDGE_PROMPT).read_text(encoding="utf-8") == GOOD
    kept = json.loads((tmp_path / "own" / run_folder.CONFIG).read_text(encoding="utf-8"))
    assert kept["reward"]["judge"]["prompt"] == str(tmp_path / "own" / "my.txt")
    assert not (tmp_path / "bare" / run_folder.JUDGE_PROMPT).exists()


@pytest.mark.long
def test_the_judge_report_measures_it(tmp_path: Path) -> None:
    items = tmp_path / "items.jsonl"
    line = {"question": "问", "reference": "高血压", "answer": "高血压", "label": 1.0, "kind": "good"}
    items.write_text(json.dumps(line), encoding="utf-8")
    path = recipe(tmp_path / "own")
    command = [sys.executable, "-m", "sql_agent", "judge-report", "--strategies", "0", "--no-flips", "--recipe", path]
    with openai_server(lambda _: chat_reply(json.dumps(SCORES))) as server:
        done = subprocess.run(
            [*command, "--items", str(items), "--out", str(tmp_path / "out")],
            cwd=ROOT, env={**os.environ, **teacher(server.base_url)}, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert all(r.json["messages"][0]["content"].startswith("Number ") for r in server.requests)
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert "prompt my.txt (" in report["judges"][1]["judge"]
