"""Two real training steps with a loss, an advantage and weights other than the default's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from sql_agent.config import COMMAND, ROOT

LIMIT_S = 2700.0  # where sources of the tiny policy changed, it is built first: minutes
LOSS = """
def damped(tokens):
    return -tokens.ratio.clamp(max=1.5) * tokens.advantages
"""
SETTINGS = [
    *("optim.advantage=reinforce++", "optim.importance_correction=masked", "optim.overlong_filter=true"),
    *("optim.warmup=1", "optim.kl_coef=0.01", "optim.kl_estimator=k2", "optim.questions_per_step=4"),
    *("optim.mini_batch_questions=2", "rollout.group_size=4", "optim.micro_batch_rows=4"),
    *("trainer.max_steps=2", "trainer.validate_every=2", "trainer.save_every=0", "data.val_max_rows=4"),
]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["minirl", "my_loss.py:damped"])
def test_a_run_with_another_loss_trains(loss: str, tmp_path: Path) -> None:
    (tmp_path / "my_loss.py").write_text(LOSS)
    loss = loss.replace("my_loss.py", str(tmp_path / "my_loss.py"))
    settings = [*SETTINGS, f"optim.loss={loss}", f"trainer.runs_dir={tmp_path / 'runs'}"]
    flags = [word for setting in settings for word in ("--set", setting)]
    command = [*COMMAND, "train", "--recipe", "losses", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    first, second = (step for step in steps if step["kind"] == "train")
    assert first["actor/lr"] == 0 < second["actor/lr"] and second["actor/weights_changed_share"] > 0
    assert second["actor/updates"] == 2 and {"actor/pg_clipfrac", "batch/rows_overlong"} <= second.keys()
    assert second["actor/kl_loss"] >= 0
