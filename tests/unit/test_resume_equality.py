"""A run that is resumed from verl's checkpoint moves its weights exactly as one that was never stopped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
from verl.utils.torch_functional import get_cosine_schedule_with_warmup

from agl_plugin.patches.install import install
from sql_agent.config import ROOT
from tests.actor import actor_of, as_planned, one_rank, tiny_model
from tests.unit.test_actor_updates import ROLLOUTS, data_of

install("cpu", "worker")
CONTENTS = ["model", "optimizer", "extra"]


class Run:
    """A model, its AdamW with warm-up and cosine, and verl's checkpoints of all three."""

    def __init__(self) -> None:
        self.model: Any = FSDP(
            tiny_model().float(), device_id=torch.device("cpu"), use_orig_params=False,
            sharding_strategy=ShardingStrategy.NO_SHARD,
        )  # fmt: skip
        self.actor = actor_of(self.model, micro_rows=2)
        self.optimizer = self.actor.engine.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = get_cosine_schedule_with_warmup(self.optimizer, 1, num_training_steps=4, min_lr_ratio=0.2)
        contents = OmegaConf.create({"save_contents": CONTENTS, "load_contents": CONTENTS})
        self.checkpoints = FSDPCheckpointManager(
            self.model, self.optimizer, lr_scheduler=self.schedule, checkpoint_config=contents
        )

    def step(self, number: int) -> list[float]:
        """One update on the data of this step; the gradient norm."""
        rewards = {name: (group, number * reward, calls) for name, (group, reward, calls) in ROLLOUTS.items()}
        rewards["c"] = ("q", 0.1 * number**2, ROLLOUTS["c"][2])
        metrics = self.actor.update_policy(data=as_planned(data_of(rewards)))
        self.schedule.step()
        return metrics["actor/grad_norm"]

    def weights(self) -> torch.Tensor:
        return torch.cat([p.detach().flatten().clone() for p in self.model.parameters()])


def resume_equals_no_stop(folder: Path) -> None:
    """Two more steps after a resume, against four in a row."""
    whole = Run()
    norms = [whole.step(number) for number in range(1, 5)]

    first = Run()
    assert [first.step(number) for number in (1, 2)] == norms[:2]
    first.checkpoints.save_checkpoint(str(folder), global_step=2)

    resumed = Run()
    assert not torch.equal(resumed.weights(), first.weights())
    resumed.checkpoints.load_checkpoint(str(folder))
    assert torch.equal(resumed.weights(), first.weights())
    assert resumed.schedule.get_last_lr() == first.schedule.get_last_lr() == [pytest.approx(1e-2 * (0.2 + 0.8 * 0.75))]
    assert [resumed.step(number) for number in (3, 4)] == norms[2:]
    assert torch.equal(resumed.weights(), whole.weights())


def optimizer_matters(folder: Path) -> None:
    """Without the optimizer's state the weights would move otherwise."""
    whole, resumed = Run(), Run()
    for number in (1, 2):
        whole.step(number)
    whole.checkpoints.save_checkpoint(str(folder), global_step=2)
    resumed.checkpoints.checkpoint_load_contents = ["model"]
    resumed.checkpoints.load_checkpoint(str(folder))
    assert torch.equal(resumed.weights(), whole.weights())
    assert whole.step(3) == resumed.step(3)  # the same gradient
    assert not torch.equal(resumed.weights(), whole.weights())


def settings_are_the_new_runs(folder: Path) -> None:
    """Another learning rate and decay: the moments stay, and the next update is the new rate's."""
    first, resumed = Run(), Run()
    for number in (1, 2):
        first.step(number)
    first.checkpoints.save_checkpoint(str(folder), global_step=2)
    resumed.optimizer = torch.optim.AdamW(resumed.model.parameters(), lr=1e-3, weight_decay=0.5)
    resumed.schedule = get_cosine_schedule_with_warmup(resumed.optimizer, 1, num_training_steps=4, min_lr_ratio=0.2)
    engine = resumed.actor.engine
    resumed.checkpoints.optimizer = engine.optimizer = resumed.optimizer
    resumed.checkpoints.lr_scheduler = engine.lr_scheduler = resumed.schedule
    engine.checkpoint_manager = resumed.checkpoints
    engine.load_checkpoint(str(folder))
    (group,) = resumed.optimizer.param_groups
    assert resumed.schedule.get_last_lr() == [group["lr"]] == [pytest.approx(1e-3 * (0.2 + 0.8 * 0.75))]
    assert (group["initial_lr"], group["weight_decay"], resumed.schedule.last_epoch) == (1e-3, 0.5, 2)
    states = [one.optimizer.state_dict()["state"][0] for one in (first, resumed)]
    assert states[0]["step"] == 2 and all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    engine.lr_scheduler_step()
    assert resumed.schedule.get_last_lr() == [pytest.approx(1e-3 * (0.2 + 0.8 * 0.25))]


def main(folder: str) -> None:
    """Both, in a process group of their own."""
    with one_rank(Path(folder)):
        for scenario in (resume_equals_no_stop, optimizer_matters, settings_are_the_new_runs):
            scenario(Path(folder) / scenario.__name__)


@pytest.mark.long
def test_a_resume_equals_no_stop(tmp_path: Path) -> None:
    """In a process of its own: FSDP leaves tensors behind, and torch warns of them in whichever test collects them."""
    code = f"from tests.unit.test_resume_equality import main; main({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
