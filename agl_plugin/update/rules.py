"""What a recipe may decide about an update and about health, as plain data.

Light to import: the starting process builds these, and only the process that trains loads verl.
"""

from __future__ import annotations

from dataclasses import dataclass

# Where a batch's meta_info names the optimizer steps that are planned for it, how many trained tokens the step has for
# each one in the batch, and asks the update to measure entropy and sampler gap (the cap of the ratios).
N_UPDATES = "agentgrpo_n_updates"
STEP_OVER_BATCH = "agentgrpo_step_over_batch"
MEASURE_CAP = "agentgrpo_measure_cap"


@dataclass(frozen=True)
class UpdateRules:
    """`n_updates` optimizer steps per training step; token weights min(ratio, cap) where `correct`.

    `has_reference`: the loss compares with a reference model; `has_entropy`: it has an entropy term. `measure`: the
    update may measure entropy by itself; on a GPU that would keep the logits of a large vocabulary in memory beside the
    graph.
    """

    n_updates: int
    correct: bool
    cap: float
    has_reference: bool = False
    has_entropy: bool = False
    measure: bool = False

    @property
    def advantage_decides(self) -> bool:
        """Whether a token without an advantage has no gradient."""
        return not self.has_reference and not self.has_entropy

    @property
    def one_pass(self) -> bool:
        """Whether nothing needs the log-probabilities before the update: its own forward pass then gives them.

        With one optimizer step per training step the policy of the update is the one that sampled, and the ratio is 1.
        """
        return self.measure and self.n_updates == 1 and not self.correct and not self.has_reference


@dataclass(frozen=True)
class Watch:
    """A limit on a metric. `key` is its configuration key, `advice` what may help; `above` says which side is bad."""

    metric: str
    key: str
    limit: float
    above: bool
    advice: str

    def warning(self, step: int, value: float) -> str:
        """One line for people."""
        side = "above" if self.above else "below"
        return f"step {step}: {self.metric} is {value:.3g}, {side} {self.key} = {self.limit:g}: {self.advice}"


@dataclass(frozen=True)
class StopRules:
    """When to stop. Counts are steps in a row, and 0 switches a rule off."""

    max_bad_steps: int
    max_flat_steps: int
    collapse_drop: float
    collapse_entropy: float
    collapse_zero_share: float
    stop_on_collapse: bool
