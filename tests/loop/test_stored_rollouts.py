"""Training from the stored rollouts of a run: a real run in one process first, then others that learn from it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from agl_plugin.audit.stored import StoredRun
from agl_plugin.audit.verify import verify
from foundation import run_folder
from foundation.chat_template import read_template
from foundation.errors import UserError
from foundation.files import read_lines
from sql_agent.config import TrainConfig, build_config, load_recipe
from sql_agent.local.job import dry_run_local, run_local
from sql_agent.training.stored import check_tokens
from sql_agent.tuning.job import prepare, run_tuning
from sql_agent.tuning.options import resolve_config
from tests.typed import app_of, tune_flags

pytestmark = pytest.mark.usefixtures("environment")
QUIET = Console(quiet=True)
SMALL: dict[str, Any] = {
    "rollout": {"group_size": 4, "max_response_tokens": 80, "rollout_timeout_s": 900.0, "sampler_logprobs": True},
    "optim": {"questions_per_step": 4, "mini_batch_questions": 4, "micro_batch_rows": 4},
    "trainer": {"device": "cpu", "max_steps": 2, "validate_first": False, "validate_every": -1, "save_every": 1},
    "data": {"val_max_rows": 4},
    "agent": {"system_prompt": "system_short"},
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of four questions, four rollouts each."""
    folder = {"trainer": {"runs_dir": str(tmp_path_factory.mktemp("runs"))}}
    status, run_dir = run_local(build_config(load_recipe("smoke_cpu"), SMALL, folder), QUIET)
    assert status == 0
    return run_dir


def tuned(source: Path, *sets: str, method: Any = "sft") -> TrainConfig:
    """By the run's name; all stored rollouts are good enough unless `sets` say otherwise."""
    given = [f"data.from_store={source.name}", f"trainer.runs_dir={source.parent}", "trainer.save_every=0", *sets]
    return resolve_config(method, tune_flags(method, *(word for text in given for word in ("--set", text))))


@pytest.mark.long
def test_sft_learns_the_sampled_tokens_of_stored_rollouts(source: Path) -> None:
    plan = prepare(tuned(source, "sft.min_reward=-9", "sft.best_of=0", "data.from_store_uses=2", "sft.epochs=5"))
    rollouts = [row for row in read_lines(source / run_folder.ROLLOUTS) if not row["unscored"]]
    n_same = plan.source.left_out["the same as another rollout of its question"]
    assert len(plan.source.chats) == len(rollouts) == 32 and n_same < 16
    with closing(StoredRun(source)) as stored:
        sampled = [sum(len(turn.sampled) for turn in of.seen.calls) for of in stored.rollouts(range(8), use=1, step=0)]
    assert sampled == [sum(row["response_tokens"]) for row in rollouts]
    assert plan.tokens["supervised"] <= sum(sampled)
    assert plan.steps == -(-len(plan.rows) * 2 // 16)  # twice each, and not five times
    best_of_each = prepare(tuned(source, "sft.min_reward=-9"))
    assert len(best_of_each.rows) == 8 and best_of_each.config.agent.system_prompt == plan.config.agent.system_prompt


@pytest.mark.long
@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_a_tuning_run_learns_from_stored_rollouts(method: str, source: Path) -> None:
    sets = {"sft": ["sft.min_reward=-9", "sft.best_of=0"], "dpo": ["dpo.margin=0.01", "dpo.lr=1e-3"]}[method]
    status, run_dir = run_tuning(tuned(source, *sets, method=method), QUIET)
    summary = json.loads((run_dir / run_folder.SUMMARY).read_text())
    assert (status, summary["status"], summary["data"]["train"]["source"]) == (0, "finished", str(source))
    assert all(row["actor/grad_norm"] > 0 for row in read_lines(run_dir / run_folder.METRICS) if row["kind"] == "train")


def learner(source: Path, *more: dict[str, Any]) -> TrainConfig:
    stored = {"data": {"from_store": source.name, "from_store_uses": 2}, "trainer": {"runs_dir": str(source.parent)}}
    keys = {"optim": {"importance_correction": "truncated"}, "trainer": {"max_steps": 0, "epochs": 5, "save_every": 0}}
    return build_config(load_recipe("smoke_cpu"), SMALL, stored, keys, *more)


@pytest.mark.long
def test_grpo_learns_from_stored_rollouts(source: Path) -> None:
    status, run_dir = run_local(learner(source), QUIET)
    rows = read_lines(run_dir / run_folder.ROLLOUTS)
    steps = [row for row in read_lines(run_dir / run_folder.METRICS) if row["kind"] == "train"]
    played = {row["rollout_id"]: row for row in read_lines(source / run_folder.ROLLOUTS)}
    uses = Counter(row["rollout_id"].rpartition("/u")[0] for row in rows)
    assert (status, len(steps), uses) == (0, 4, dict.fromkeys(played, 2))  # two passes, and not five epochs
    assert all(row["reward"] == played[row["rollout_id"].rpartition("/u")[0]]["reward"] for row in rows)
    assert len({row["question_id"] for row in rows}) == 8
    first, *_, last = (row["sampler/log_prob_diff_mean"] for row in steps)
    assert last > first and last > 1e-3  # the weights move away from those that sampled
    checked = verify(run_dir)
    (told,) = (note for note in checked.notes if str(source) in note)
    ages = [part.split(": ") for part in told.rpartition("in updates: ")[2].split(", ")]
    assert not checked.problems and sum(int(n) for _, n in ages) == 64
    # Step 4 trains after 3 updates of its own; the other run's second step was sampled one update after the start.
    assert ages[0][0] == "0" and {int(age) for age, _ in ages} <= set(range(5))
    chain = CliRunner().invoke(app_of("audit"), ["why", str(run_dir), rows[-1]["rollout_id"]]).output
    assert f"of {source}, use 2" in chain and "updates away from the weights" in chain


def test_a_dry_run_counts_the_passes(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dry_run_local(learner(source), Console()) == 0
    told = capsys.readouterr().out
    assert "steps: 4, each" in told and "rollouts: 64 stored, 0 in 0" in told and "model calls: at most 0" in told


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"rollout": {"group_size": 8}}, "sampled with rollout.group_size = 4, not 8"),
        ({"rollout": {"temperature": 0.5}}, "sampled with rollout.temperature = 1.0, not 0.5"),
        ({"data": {"from_store": "no-such-run"}}, "data.from_store = no-such-run: .*no audit file"),
        ({"optim": {"questions_per_step": 16}}, "8 questions, but a step takes optim.questions_per_step = 16"),
    ],
)
def test_what_cannot_be_obeyed_is_refused(keys: dict[str, Any], said: str, source: Path) -> None:
    with pytest.raises(UserError, match=said):
        dry_run_local(learner(source, keys), QUIET)


def test_another_tokenizer_or_template_is_refused(source: Path, tmp_path: Path) -> None:
    with closing(StoredRun(source)) as stored:
        other = Path(shutil.copytree(stored.model, tmp_path / "model"))
        check_tokens(stored, other)
        (other / "chat_template.jinja").write_text(read_template(other) + " ", encoding="utf-8")
        with pytest.raises(UserError, match="has another chat template than"):
            check_tokens(stored, other)
        tokenizer = json.loads((other / "tokenizer.json").read_text(encoding="utf-8"))
        tokenizer["added_tokens"].append({**tokenizer["added_tokens"][-1], "id": 9999, "content": "<|more|>"})
        (other / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
        with pytest.raises(UserError, match="has another tokenizer than"):
            check_tokens(stored, other)
        (other / "tokenizer.json").unlink()
        with pytest.raises(UserError, match=r"has no tokenizer\.json"):
            check_tokens(stored, other)
