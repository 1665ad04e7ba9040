"""What is played and noted around an optimizer step: rollouts, their files, metrics, validation."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from agl_plugin.run.agents import reward_by_agent
from agl_plugin.run.health import Health
from agl_plugin.run.statistics import of_rollouts
from agl_plugin.update.rules import in_reward_steps
from foundation import run_folder
from foundation.errors import RunError
from foundation.files import append_lines
from foundation.rollout_keys import told_tools
from sql_agent.local.audit import LocalAudit, Trained
from sql_agent.local.rollouts import Played, Player
from sql_agent.local.sampling import Sampler
from sql_agent.records import Question


class Step:
    """The steps of one run, one after the other."""

    def __init__(
        self,
        run_dir: Path,
        player: Player,
        tokenizer: Any,
        *,
        health: Health,
        audit: LocalAudit | None,
        seed: int,
        max_batch: int,
        of_steps: int,
    ) -> None:
        self._run_dir, self._player, self._tokenizer = run_dir, player, tokenizer
        self._health, self._seed, self._max_batch, self._of_steps = health, seed, max_batch, of_steps
        self._audit, self.has_signal = audit, True
        self._rows: list[dict[str, Any]] = []
        self._stats: dict[str, float] = {}
        self._generation_s = 0.0
        self._began_s = time.monotonic()

    def play(self, model: Any, questions: Sequence[tuple[int, Question]], *, step: int) -> list[Played]:
        """The rollouts of a training step, written down. Raises RunError when none can be learned from."""
        started = time.monotonic()
        torch.manual_seed(self._seed * 1_000_003 + step)
        played = self._player.play(questions, self._sampler(model), step=step, mode="train")
        self._generation_s = time.monotonic() - started
        self._rows = [one.row for one in played]
        append_lines(self._run_dir / run_folder.ROLLOUTS, self._rows)
        if self._audit:
            self._audit.played(played, step=step, n_updates=step - 1)
        self._stats = {f"rollout/{name}": value for name, value in statistics_of(played).items()}
        if self._stats["rollout/groups"] - self._stats["rollout/groups_too_small"] < 1:
            raise RunError(_nothing(step, played))
        return played

    def batched(self, model: Any, played: Sequence[Played], rows: Trained) -> None:
        """Note which rows the update of a step begins with."""
        if self._audit:
            self._audit.batched(model, played, rows)

    def trained(self, model: Any, step: int, metrics: dict[str, float]) -> None:
        """Write the line of a training step. Raises RunError where health ends the run."""
        if self._audit:
            self._audit.updated(model, metrics, step=step)
        now = time.monotonic()
        times = {"time/generation": self._generation_s, "time/update": now - self._began_s - self._generation_s}
        found = {**self._stats, **metrics}
        self._write(
            "train", step, now - self._began_s, {**found, **times, **self._health.after_step(step, found, self._rows)}
        )
        self._began_s = now
        if self._health.stop:
            raise RunError(self._health.stop)

    def saved(self, step: int) -> None:
        """Write the line of a checkpoint."""
        if self._audit:
            self._audit.saved(step)
        now = time.monotonic()
        self._write("checkpoint", step, now - self._began_s, {})
        self._began_s = now

    def validate(self, model: Any, questions: Sequence[Question], *, step: int) -> None:
        """Play the validation questions greedily, once each, and write their line."""
        played = self._player.play(list(enumerate(questions)), self._sampler(model), step=step, mode="val")
        append_lines(self._run_dir / run_folder.ROLLOUTS, [one.row for one in played])
        if self._audit:
            self._audit.played(played, step=step, n_updates=step)
        now = time.monotonic()
        stats = {f"val/{name}": value for name, value in statistics_of(played).items()}
        self._write("val", step, now - self._began_s, stats)
        self._began_s = now

    def _sampler(self, model: Any) -> Sampler:
        return Sampler(model, self._tokenizer, max_batch=self._max_batch)

    def _write(self, kind: str, step: int, seconds: float, more: dict[str, Any]) -> None:
        row = {"kind": kind, "step": step, "of_steps": self._of_steps, "seconds": round(seconds, 4)}
        append_lines(self._run_dir / run_folder.METRICS, [row | more])


def statistics_of(played: Sequence[Played]) -> dict[str, float]:
    """Counts and means, under the names of a step's metrics; means are over scored rollouts only."""
    scored = [one for one in played if one.reward is not None]
    counts = Counter(one.row["unscored"] for one in played if one.row["unscored"])
    by_agent = reward_by_agent((one.row, one.reward) for one in played)
    of = [(one.reward or 0.0, one.row) for one in scored]
    return {**of_rollouts(of, n_rollouts=len(played), unscored=counts), **_of_groups(scored), **by_agent}


def _of_groups(scored: Sequence[Played]) -> dict[str, float]:
    groups: defaultdict[int, list[float]] = defaultdict(list)
    for one in scored:
        groups[one.group].append(one.reward or 0.0)
    flat = [
        len(rewards) > 1 and len({in_reward_steps(reward) for reward in rewards}) == 1 for rewards in groups.values()
    ]
    small = [len(rewards) < 2 for rewards in groups.values()]
    return {"groups": len(groups), "zero_variance_groups": sum(flat), "groups_too_small": sum(small)}


def _nothing(step: int, played: Sequence[Played]) -> str:
    counts = Counter(one.row["unscored"] or "scored" for one in played)
    reason = next((one.row["reason"] for one in played if one.row["unscored"]), "")
    tools = told_tools(one.row for one in played)
    return (
        f"step {step}: no question has two scored rollouts to compare; rollouts by fate: {dict(counts)}. "
        f"{f'Tools broke: {tools}. ' if tools else ''}"
        f"The first reason: {reason or 'none given'}. rollouts.jsonl has them all"
    )
