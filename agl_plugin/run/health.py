"""Is a run still learning? Metrics per step, one warning per problem, and the reasons to stop.

Guarantees: each problem is told once per run; a run is stopped only by what cannot get better by itself (updates that
are not finite, rewards that never differ) or, where the recipe says so, by a collapse. Metrics that cannot be computed
(KL without a reference model) are absent, never 0. Knows nothing of what a rollout does: `describe` adds that.
Limits compare with the mean of the last `window` steps, because one small batch says little; a run that is resumed
goes on with the windows of its checkpoint.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agl_plugin.update.rules import StopRules, Watch
from foundation.files import write_json

Describe = Callable[[Sequence[Mapping[str, Any]]], dict[str, float]]
NOT_FINITE = "not finite"
STATE = "run_health.json"  # in a checkpoint's folder
ZERO_VARIANCE = "health/zero_variance_share"
AGAINST_FLAT = (
    "Raise rollout.temperature or rollout.group_size, or take questions that are neither too easy nor too hard"
)


def share(part: float, whole: float) -> float:
    """part / whole; 0 of nothing is 0."""
    return part / whole if whole else 0.0


@dataclass(kw_only=True, eq=False)
class Health:
    """The health of one run, fed step by step. Picklable: it travels to the process that trains."""

    watches: Sequence[Watch]
    rules: StopRules
    window: int
    max_response_tokens: int
    describe: Describe

    def __post_init__(self) -> None:
        self.stop = ""
        self.weights_are_finite = True
        self._recent: dict[str, deque[float]] = {}
        self._start: list[float] = []
        self._told: set[str] = set()
        self._bad = self._flat = 0

    def after_step(self, step: int, metrics: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """`health/...` of one training step, from verl's and the daemon's metrics and the records of its rollouts.

        `warnings` holds the texts of new problems, where there are any. Sets `stop` when the run must not go on.
        """
        measured = self._measure(metrics, rows)
        for name, value in measured.items():
            self._recent.setdefault(name, deque(maxlen=self.window)).append(value)
        if "health/reward_mean" in measured:
            measured["health/reward_moving_mean"] = self._mean("health/reward_mean")
            self._start = (self._start + [measured["health/reward_mean"]])[: self.window]
        warnings = [*self._flat_steps(step, metrics), *self._limits(step), *self._bad_steps(step, metrics)]
        warnings += self._collapse(step)
        return measured | {"warnings": warnings} if warnings else measured

    def save(self, folder: Path) -> None:
        """Keep the windows and what was told in a checkpoint's folder."""
        recent = {name: [*values] for name, values in self._recent.items()}
        write_json(folder / STATE, {"recent": recent, "start": self._start, "told": sorted(self._told)})

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint. Steps in a row without an update, or alike, are counted anew: something changed."""
        if (folder / STATE).is_file():
            state = json.loads((folder / STATE).read_text(encoding="utf-8"))
            self._recent = {name: deque(values, maxlen=self.window) for name, values in state["recent"].items()}
            self._start, self._told = state["start"], {*state["told"]}

    def _measure(self, metrics: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        names = {
            "health/entropy": "actor/entropy_loss",
            "health/kl_to_start": "actor/kl_to_start",
            "health/clip_share": "actor/pg_clipfrac",
            "health/reward_mean": "rollout/reward_mean",
            "health/zero_reward_share": "rollout/zero_reward_share",
            "health/sampler_gap": "sampler/log_prob_diff_mean",
        }
        measured = {ours: float(metrics[theirs]) for ours, theirs in names.items() if theirs in metrics}
        compared = metrics.get("rollout/groups", 0) - metrics.get("rollout/groups_too_small", 0)
        measured[ZERO_VARIANCE] = share(metrics.get("rollout/zero_variance_groups", 0), compared)
        measured |= self._of_rollouts(rows) | self.describe(rows)
        return {name: value for name, value in measured.items() if math.isfinite(value)}

    def _of_rollouts(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        calls = [
            reason == "length" or n >= self.max_response_tokens
            for row in rows
            for reason, n in zip(row.get("finish_reasons", []), row["response_tokens"], strict=False)
        ]
        answers = [row["response_tokens"][-1] for row in rows if row["response_tokens"]]
        measured = {"health/unscored_share": share(sum(bool(row["unscored"]) for row in rows), len(rows))}
        if calls:
            measured["health/truncation_share"] = sum(calls) / len(calls)
        if answers:
            measured["health/answer_tokens_mean"] = statistics.fmean(answers)
        return measured

    def _mean(self, name: str, *, default: float = 0.0) -> float:
        return statistics.fmean(self._recent[name]) if name in self._recent else default

    def _once(self, problem: str, text: str) -> list[str]:
        if problem in self._told:
            return []
        self._told.add(problem)
        return [text]

    def _limits(self, step: int) -> list[str]:
        texts: list[str] = []
        for watch in self.watches:
            implied = watch.metric == ZERO_VARIANCE and self._flat
            if watch.metric not in self._recent or implied:
                continue
            value = self._mean(watch.metric)
            if value > watch.limit if watch.above else value < watch.limit:
                texts += self._once(watch.key, watch.warning(step, value))
        return texts

    def _bad_steps(self, step: int, metrics: Mapping[str, Any]) -> list[str]:
        """Updates that verl skipped, or a loss that is no number."""
        watched = ("actor/entropy_loss", "actor/pg_loss", "actor/grad_norm")
        infinite = [name for name in watched if name in metrics and not math.isfinite(metrics[name])]
        skipped = metrics.get("actor/updates_skipped", 0)
        self.weights_are_finite = watched[0] not in infinite
        self._bad = self._bad + 1 if infinite or skipped else 0
        if not self._bad:
            return []
        if self.rules.max_bad_steps and self._bad >= self.rules.max_bad_steps:
            self.stop = (
                f"{self._bad} steps in a row without a finite update (step {step}, health.max_bad_steps = "
                f"{self.rules.max_bad_steps}). The skipped updates changed no weight. Lower optim.lr and continue "
                "with --resume --set trainer.resume_changed=true"
            )
        text = (
            f"step {step}: {int(skipped)} of {int(metrics.get('actor/updates', 0))} updates skipped, because the "
            f"gradient is {NOT_FINITE}" + (f" ({', '.join(infinite)} too)" if infinite else "")
        )
        return self._once(NOT_FINITE, text)

    def _flat_steps(self, step: int, metrics: Mapping[str, Any]) -> list[str]:
        """Steps in which all rewards are the same: nothing can be learned from them."""
        low, high = metrics.get("rollout/reward_min"), metrics.get("rollout/reward_max")
        same = low is not None and low == high
        self._flat = self._flat + 1 if same else 0
        if not same:
            return []
        if self.rules.max_flat_steps and self._flat >= self.rules.max_flat_steps:
            self.stop = (
                f"all rewards of {self._flat} steps in a row are {low:g} (step {step}, health.max_flat_steps = "
                f"{self.rules.max_flat_steps}): groups that do not differ teach nothing. {AGAINST_FLAT}"
            )
        text = f"step {step}: all rewards are {low:g}, nothing to learn from; rollouts.jsonl has why. {AGAINST_FLAT}"
        return self._once("flat", text)

    def _collapse(self, step: int) -> list[str]:
        """Reward far below the start while the policy hardly varies any more, or mostly earns 0."""
        rules, reward = self.rules, self._recent.get("health/reward_mean")
        if not reward or len(reward) < self.window or step <= self.window:
            return []
        drop = statistics.fmean(self._start) - statistics.fmean(reward)
        entropy = self._mean("health/entropy", default=math.inf)
        zero = self._mean("health/zero_reward_share", default=0.0)
        if drop < rules.collapse_drop or (entropy > rules.collapse_entropy and zero < rules.collapse_zero_share):
            return []
        what = f"reward is {drop:.3f} below the first {self.window} steps, entropy {entropy:.3g}, {zero:.0%} earn 0"
        if rules.stop_on_collapse:
            self.stop = (
                f"step {step}: the policy collapsed: {what}. Lower optim.lr, set optim.kl_coef, and continue from a "
                "checkpoint before the fall"
            )
        return self._once("collapse", f"step {step}: the policy seems to collapse: {what}")
