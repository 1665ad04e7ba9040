"""Every snippet of docs/50-extending.md is run: here, or by the test that `RUN_BY` names.

Settings (toml) are composed by tests/test_docs.py; commands are typed as they stand by
tests/smoke/test_extending_commands.py, which is slow.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sql_agent.config import ROOT
from tests.pages import blocks_of

PAGE = ROOT / "docs" / "50-extending.md"
OWN = "tests/wire/test_own_episodes.py"
RUN_BY = {  # a mark of the snippet -> who runs it
    "def shout": OWN,
    "class Counter": OWN,
    "Ask until": OWN,
    "StateGraph": OWN,
    "def is_chinese": "tests/unit/test_reward_terms.py",
    "def names_drug": __name__,
    "[project.entry-points": __name__,
}
# A package that brings the page's scorer, installed as such packages are: a folder of metadata beside the code.
USE = """
import asyncio
from sql_agent.config import RewardConfig
from sql_agent.records import Episode, Question
from sql_agent.scoring.build import build_context
from sql_agent.scoring.reward import score

context = build_context(RewardConfig(default_scorer="names_drug"{modules}))
for meta in ({{"entity": {{"drug_name": "aspirin"}}}}, {{}}):
    question = Question(id="q", question="?", answer="-", meta=meta)
    reward = asyncio.run(score(Episode(question=question, final_answer="take aspirin"), context))
    print(reward.total, reward.unscored)
"""


def snippet(mark: str) -> str:
    (body,) = [body for _, body in blocks_of(PAGE.read_text(encoding="utf-8")) if mark in body]
    return body


def test_every_snippet_has_one_who_runs_it() -> None:
    text = PAGE.read_text(encoding="utf-8")
    code = [body for language, body in blocks_of(text) if language not in ("toml", "bash")]
    assert text.count("```") == 2 * len(blocks_of(text))
    assert [body for body in code if sum(mark in body for mark in RUN_BY) != 1] == []
    assert all(snippet(mark) for mark in RUN_BY)
    for place in {*RUN_BY.values()} - {__name__}:
        assert "50-extending.md" in (ROOT / place).read_text(encoding="utf-8")


def use(folder: Path, modules: str = "") -> list[str]:
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("TEACHER_", "JUDGE_"))}
    done = subprocess.run(
        [sys.executable, "-c", USE.format(modules=modules)], cwd=folder, capture_output=True, text=True, timeout=120,
        env={**keep, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:2]


@pytest.mark.long
def test_the_scorer_grades_and_its_package_brings_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(snippet("def names_drug"), encoding="utf-8")
    graded = ["1.0 ", "None no_drug"]
    assert use(tmp_path, ', scorer_modules=["mine.py"]') == graded
    package, metadata = tmp_path / "my_package", tmp_path / "my_package-1.0.dist-info"
    for folder in (package, metadata):
        folder.mkdir()
    (package / "__init__.py").touch()
    (tmp_path / "mine.py").rename(package / "scorers.py")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n", encoding="utf-8")
    declared = snippet("[project.entry-points").replace("project.entry-points.", "").replace('"', "")
    (metadata / "entry_points.txt").write_text(declared, encoding="utf-8")
    assert use(tmp_path) == graded
