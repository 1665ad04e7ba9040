"""Which checkpoints of a run stay, which is the best, and when a run has not got better for long enough.

The best is that of the highest validation reward, smoothed: one validation of few questions is mostly noise, so each
counts as the mean of itself and those before it. What is known stands in checkpoints/best.json:

    {"validations": [[step, reward], ...], "step": n, "reward": smoothed, "over": [steps], "folder": its checkpoint,
     "ended": whether the run ended because it got no better}

Guarantees: the best is never deleted, nor the newest ones; a run that goes on from a checkpoint knows the validations
up to it, and the same best. A validation without a checkpoint (before the first step) does not count.
"""

from __future__ import annotations

import json
import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foundation import run_folder
from foundation.files import write_json

KNOWN = ("step", "reward", "over", "folder")  # of the best


@dataclass(frozen=True)
class KeepRules:
    """`newest` checkpoints stay beside the best, whose validations are smoothed over `best_over`.

    A run ends after `early_stop` validations in a row that were no new best; 0: never.
    """

    newest: int
    best_over: int
    early_stop: int


class Checkpoints:
    """The checkpoints below `folder` of one run; `resumed` is the checkpoint of another that it goes on from, or ""."""

    def __init__(self, folder: Path, rules: KeepRules, *, resumed: str) -> None:
        self.folder, self._rules = folder, rules
        self._validations: list[list[float]] = []  # step and reward
        self._best: dict[str, Any] = {}
        if resumed and (file := Path(resumed).parent / run_folder.BEST).is_file():
            known = json.loads(file.read_text(encoding="utf-8"))
            upto = run_folder.step_number(Path(resumed))
            self._validations = [validation for validation in known["validations"] if validation[0] <= upto]
            self._best = {key: known[key] for key in KNOWN} if known["step"] <= upto else {}
            self._write()

    def validated(self, step: int, reward: float | None) -> None:
        """The mean reward of a validation after `step` training steps, of which a checkpoint is saved if it is best.

        None, where nothing was scored, does not count.
        """
        if reward is None:
            return
        self._validations.append([step, reward])
        steps, rewards = zip(*self._validations[-self._rules.best_over :], strict=True)
        smoothed = statistics.fmean(rewards)
        if not self._best or smoothed > self._best["reward"]:
            folder = run_folder.step_folder(self.folder, step)
            self._best = {"step": step, "reward": smoothed, "over": list(steps), "folder": str(folder.resolve())}

    def is_best(self, step: int) -> bool:
        return self._best.get("step") == step

    @property
    def gets_no_better(self) -> bool:
        """Whether so many validations were no new best that the run ends."""
        since = sum(step > self._best.get("step", 0) for step, _ in self._validations)
        return bool(self._best) and 0 < self._rules.early_stop <= since

    def saved(self) -> None:
        """A checkpoint is whole: say which is the best, and delete those that need not stay."""
        self._write()
        steps = run_folder.steps_of(self.folder)
        for old in steps[: -self._rules.newest]:
            if not self.is_best(run_folder.step_number(old)):
                shutil.rmtree(old.rename(self.folder / f".old-{old.name}"))

    def _write(self) -> None:
        if self._best:
            self.folder.mkdir(parents=True, exist_ok=True)
            tree = {"validations": self._validations, **self._best, "ended": self.gets_no_better}
            write_json(self.folder / run_folder.BEST, tree)
