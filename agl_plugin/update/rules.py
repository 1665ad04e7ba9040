"""What a recipe may decide about an update and about health, as plain data.

Light to import: the starting process builds these, and only the process that trains loads verl.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

# Where a batch's meta_info holds its Plan.
PLAN = "agentgrpo_plan"
# Where the rows for a worker hold the sizes of their micro batches.
CUTS = "agentgrpo_cuts"
# What an actor tells of its update beside verl's metrics: one value per optimizer step, and one per rank.
OF_THE_AUDIT = "audit/"
GRAD_NORMS, WEIGHTS_BEFORE, WEIGHTS_AFTER = "audit/grad_norms", "audit/weights_before", "audit/weights_after"
# Log-probabilities and entropies of its rows, where its pass is the only one: a pair of tensors, rows x response.
SCORES = "audit/scores"
# One per rank: a sample of weights and moments with the optimizer's settings (agl_plugin.update.fingerprint).
STATE = "audit/state"
# Rewards are kept in steps of 2^-16, so that the mean of equal rewards is exactly that reward in float32 (groups of up
# to 119 rows): otherwise rounding gives a group without variance advantages of up to 0.2.
REWARD_STEPS = 65536


def in_reward_steps(reward: float) -> int:
    """The reward as its advantage is computed, in steps of 2^-16."""
    return round(reward * REWARD_STEPS)


@dataclass(frozen=True)
class UpdateRules:
    """`n_updates` optimizer steps per training step; `correction`, `level` and `cap` of the weights of tokens.

    `has_reference`: the loss compares with a reference model; `has_entropy`: it has an entropy term; `has_own_loss`: it
    is the user's. `seed` and the training step decide which rows share an optimizer step. `overlong_filter` leaves out
    rollouts with an answer that was cut, `positive_only` those whose advantage is not positive. `row_tokens`: the most
    tokens of a row after its prompt, by which the aggregation "-norm" divides. `micro_batch_tokens`: the most tokens of
    a forward pass, 0 where verl's number of rows decides. `credit`: what is compared, rollouts or their phases;
    `turn_shaping`: what a turn with a failed call is behind the others of its rollout. `teacher`: where the reference
    model is another than the start model. `imitation`: weight of the likelihood of rollouts with a reward from
    `imitated_from` on, in groups that have others.
    """

    n_updates: int
    cap: float
    correction: Literal["off", "truncated", "masked"] = "off"
    level: Literal["token", "sequence"] = "token"
    has_reference: bool = False
    has_entropy: bool = False
    has_own_loss: bool = False
    seed: int = 0
    overlong_filter: bool = False
    positive_only: bool = False
    row_tokens: int = 1
    micro_batch_tokens: int = 0
    credit: Literal["rollout", "phases"] = "rollout"
    turn_shaping: float = 0.0
    teacher: str = ""
    imitation: float = 0.0
    imitated_from: float = 0.5

    @property
    def by_turn(self) -> bool:
        """Whether turns of a rollout have advantages of their own: each is a row then."""
        return self.credit == "phases" or self.turn_shaping > 0

    @property
    def advantage_decides(self) -> bool:
        """Whether a token without an advantage has no gradient."""
        return not (self.has_reference or self.has_entropy or self.has_own_loss or self.imitation)


@dataclass(frozen=True)
class Plan:
    """A training step as each rank makes it: rows of each optimizer step, in the order of the rank's share.

    A step of 0 rows has nothing to learn from and is not made; `cuts` has the rows of the micro batches of each step,
    where they are cut by tokens. `tokens` and `rows` are what the whole training step has
    per rank, rows that are not computed included: each of them weighs the same, whichever optimizer step it is in.
    `only_pass`: the update's pass is the only one of this policy, and the correction's weights are made in it.
    """

    sizes: tuple[int, ...]
    tokens: float
    rows: float
    rules: UpdateRules
    only_pass: bool = False
    cuts: tuple[tuple[int, ...], ...] | None = None

    @property
    def steps(self) -> list[tuple[list[int], tuple[int, ...] | None]]:
        """The places of the rows of each optimizer step that is made, and its micro batches where they are cut."""
        rows = parts(range(sum(self.sizes)), self.sizes)
        pairs = zip(rows, self.cuts or itertools.repeat(None), strict=False)
        return [(places, cuts) for places, cuts in pairs if places]


def parts(items: Iterable[int], sizes: Iterable[int]) -> Iterator[list[int]]:
    """The items in parts of such sizes."""
    remaining = iter(items)
    return (list(itertools.islice(remaining, size)) for size in sizes)


@dataclass(frozen=True)
class UpdatedRow:
    """A row of the update: `computed` where it can change a weight, in the `optimizer_step` (from 1)."""

    advantage: float
    n_trained: int
    computed: bool
    optimizer_step: int


@dataclass(frozen=True)
class Updated:
    """An update: its rows by number, the gradient norm of each optimizer step, and fingerprints of the weights.

    `state`: the optimizer's `settings`, and elements of `weights_before`, `weights_after`, `exp_avg`, `exp_avg_sq`, of
    the first rank.
    """

    rows: Mapping[int, UpdatedRow]
    grad_norms: list[float]
    weights_before: str
    weights_after: str
    state: Mapping[str, Any]


@dataclass(frozen=True)
class Watch:
    """A limit on a metric. `key` is its configuration key, `advice` what may help; `above` says which side is bad."""

    metric: str
    key: str
    limit: float
    above: bool
    advice: str

    def warning(self, step: int, value: float) -> str:
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
