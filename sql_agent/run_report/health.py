"""The health of a run over its steps: which metrics are shown, what each of them means, and where its limit lies.

Guarantees: a measure that a run does not have is left out; each further metric health/<name> gets a panel of its own.
The limits are those of the run's configuration; training/health_rules.py says which metric each of them is for.
"""

from __future__ import annotations

from dataclasses import dataclass

from sql_agent.run_report.folder import RunData
from sql_agent.run_report.measures import Series, Unit, over_steps
from sql_agent.run_report.plain import cut, items, number, tree
from sql_agent.training.health_rules import LIMITS, watched

MOST_OTHERS, MOST_WARNINGS, WARNING_CHARS = 12, 20, 400


@dataclass(frozen=True)
class Measure:
    """One sign of a healthy run. Its metric is health/<name> where METRICS names no other."""

    name: str
    title: str
    about: str
    unit: Unit = "number"

    @property
    def metric(self) -> str:
        return METRICS.get(self.name, f"health/{self.name}")


METRICS = {
    "grad_norm": "actor/grad_norm",
    "token_accuracy": "train/token_accuracy",
    "pair_accuracy": "train/pair_accuracy",
    "pair_margin": "train/pair_margin",
    "update_kl": "actor/ppo_kl",
    "response_tokens": "rollout/response_tokens_mean",
    "turns": "rollout/turns_mean",
    "staleness": "rollout/staleness_mean",
    "too_old": "rollout/too_old",
}
HEALTH = [
    Measure("entropy", "Entropy", "Per token. Near 0 the policy always does the same, and learns nothing more."),
    Measure("grad_norm", "Gradient norm", "Before clipping. Spikes come before a collapse."),
    Measure("clip_share", "Clip share", "Tokens whose update was clipped.", "percent"),
    Measure("kl_to_start", "KL to the start", "How far the policy has moved from the model that it started as."),
    Measure("token_accuracy", "Token accuracy", "Supervised tokens that the policy finds likeliest.", "percent"),
    Measure("pair_accuracy", "Pair accuracy", "Pairs whose better side gained more likelihood.", "percent"),
    Measure("pair_margin", "Pair margin", "How much more likelihood the better side gained, times beta."),
    Measure("update_kl", "KL of one update", "Between the policy that sampled and the one being updated."),
    Measure("sampler_gap", "Sampler gap", "Log-probability of a token, vLLM against the trainer, mean difference."),
    Measure("truncation_share", "Truncation", "LLM calls cut at the token limit.", "percent"),
    Measure("answer_chars_mean", "Answer length", "Characters of the final answer, mean.", "count"),
    Measure("response_tokens", "Tokens per rollout", "The policy's own tokens in all its calls, mean.", "count"),
    Measure("turns", "Turns", "LLM calls per rollout, mean."),
    Measure("tool_call_share", "Tool use", "Scored rollouts in which a call of a tool ran to its end.", "percent"),
    Measure("repeat_share", "Repeated queries", "Rollouts that ran the same SQL more than once.", "percent"),
    Measure(
        "bonus_without_rows_share",
        "Bonus without rows",
        "Rollouts that earned the SQL bonus and found nothing.",
        "percent",
    ),
    Measure(
        "zero_variance_share",
        "Groups without variance",
        "All rewards of the group equal: no update comes from it.",
        "percent",
    ),
    Measure(
        "staleness", "Staleness", "Updates since the oldest weights that answered a trained rollout, mean.", "count"
    ),
    Measure("too_old", "Too old", "Rollouts of the step that rollout.max_staleness left out.", "count"),
    Measure("zero_reward_share", "Rewards of 0", "Scored rollouts that earned nothing at all.", "percent"),
    Measure("unscored_share", "Unscored", "Rollouts that a fault left without a reward.", "percent"),
    Measure("judge_fault_share", "Judge faults", "Rollouts that the judge failed to grade.", "percent"),
]
# In the reward's own chart, or told by another measure.
ELSEWHERE = {"health/reward_mean", "health/reward_moving_mean", "health/answer_tokens_mean"}


def health(run: RunData) -> list[Series]:
    """All health measures that this run has: those of HEALTH, then each further metric health/<name>."""
    rows = run.rows("train")
    known = {f"health/{measure.name}" for measure in HEALTH} | ELSEWHERE
    others = sorted({key for row in rows for key in row if key.startswith("health/")} - known)
    measures = [*HEALTH, *(Measure(key.partition("/")[2], _title(key), "") for key in others[:MOST_OTHERS])]
    limits = _limits(run)
    series = []
    for measure in measures:
        steps, values = over_steps(rows, measure.metric)
        if steps:
            limit, above = limits.get(measure.name, (None, True))
            series.append(Series(measure.name, measure.title, measure.about, measure.unit, steps, values, limit, above))
    return series


def _limits(run: RunData) -> dict[str, tuple[float | None, bool]]:
    """Measure -> the run's limit, and whether above it is bad. A limit of 0 is none."""
    given = tree(run.config.get("health"))
    limits = [(number(given.get(key)) or None, *watched(key)) for key in LIMITS]
    return {name: (limit, above) for limit, name, above in limits}


def _title(key: str) -> str:
    name = key.partition("/")[2].replace("_", " ").replace("/", ": ")[:40]
    return name[:1].upper() + name[1:]


def warnings(run: RunData) -> list[str]:
    """What the run warned of, in the order of the steps."""
    texts = [cut(text, WARNING_CHARS) for row in run.rows("train") for text in items(row.get("warnings"))]
    return texts[:MOST_WARNINGS]
