"""The health of a run over its steps: which metrics are shown, what each of them means, and where its limit lies.

Guarantees: a measure that a run does not have is left out; each further metric health/<name> gets a panel of its own.
The limits are those of the run's configuration; training/health_rules.py says which metric each of them is for.
"""

from __future__ import annotations

from typing import NamedTuple

from sql_agent.run_report.folder import RunData
from sql_agent.run_report.measures import Series, Unit, over_steps
from sql_agent.run_report.plain import cut, number, tree
from sql_agent.training.health_rules import LIMITS, measure_of

MOST_OTHERS, MOST_WARNINGS, WARNING_CHARS = 12, 20, 400


class Measure(NamedTuple):
    title: str
    about: str
    unit: Unit = "number"


HEALTH = {
    "health/entropy": Measure("Entropy", "Per token. Near 0 the policy always does the same, and learns nothing more."),
    "actor/grad_norm": Measure("Gradient norm", "Before clipping. Spikes come before a collapse."),
    "health/clip_share": Measure("Clip share", "Tokens whose update was clipped.", "percent"),
    "health/kl_to_start": Measure("KL to the start", "How far the policy has moved from the model that it started as."),
    "train/token_accuracy": Measure("Token accuracy", "Supervised tokens that the policy finds likeliest.", "percent"),
    "train/pair_accuracy": Measure("Pair accuracy", "Pairs whose better side gained more likelihood.", "percent"),
    "train/pair_margin": Measure("Pair margin", "How much more likelihood the better side gained, times beta."),
    "actor/ppo_kl": Measure("KL of one update", "Between the policy that sampled and the one being updated."),
    "health/sampler_gap": Measure(
        "Sampler gap", "Log-probability of a token, vLLM against the trainer, mean difference."
    ),
    "health/truncation_share": Measure("Truncation", "LLM calls cut at the token limit.", "percent"),
    "health/answer_chars_mean": Measure("Answer length", "Characters of the final answer, mean.", "count"),
    "rollout/response_tokens_mean": Measure(
        "Tokens per rollout", "The policy's own tokens in all its calls, mean.", "count"
    ),
    "rollout/turns_mean": Measure("Turns", "LLM calls per rollout, mean."),
    "health/tool_call_share": Measure(
        "Tool use", "Scored rollouts in which a call of a tool ran to its end.", "percent"
    ),
    "health/repeat_share": Measure("Repeated queries", "Rollouts that ran the same SQL more than once.", "percent"),
    "health/bonus_without_rows_share": Measure(
        "Bonus without rows", "Rollouts that earned the SQL bonus and found nothing.", "percent"
    ),
    "health/zero_variance_share": Measure(
        "Groups without variance", "All rewards of the group equal: no update comes from it.", "percent"
    ),
    "rollout/staleness_mean": Measure(
        "Staleness", "Updates since the oldest weights that answered a trained rollout, mean.", "count"
    ),
    "rollout/too_old": Measure("Too old", "Rollouts of the step that rollout.max_staleness left out.", "count"),
    "health/zero_reward_share": Measure("Rewards of 0", "Scored rollouts that earned nothing at all.", "percent"),
    "health/unscored_share": Measure("Unscored", "Rollouts that a fault left without a reward.", "percent"),
    "health/judge_fault_share": Measure("Judge faults", "Rollouts that the judge failed to grade.", "percent"),
}
# In the reward's own chart, or told by another measure.
ELSEWHERE = {"health/reward_mean", "health/reward_moving_mean", "health/answer_tokens_mean"}


def health(run: RunData) -> list[Series]:
    """All health measures that this run has: those of HEALTH, then each further metric health/<name>."""
    rows = run.rows("train")
    others = sorted({key for row in rows for key in row if key.startswith("health/")} - HEALTH.keys() - ELSEWHERE)
    measures = HEALTH | {key: Measure(_title(key), "") for key in others[:MOST_OTHERS]}
    limits = _limits(run)
    series = []
    for metric, measure in measures.items():
        steps, values = over_steps(rows, metric)
        if steps:
            limit = limits.get(metric, (None, True))
            series.append(Series(metric.partition("/")[2], *measure, steps, values, *limit))
    return series


def _limits(run: RunData) -> dict[str, tuple[float | None, bool]]:
    """Metric -> the run's limit, and whether above it is bad. A limit of 0 is none."""
    configured = tree(run.config.get("health"))
    limits = [(number(configured.get(key)) or None, *measure_of(key)) for key in LIMITS]
    return {f"health/{name}": (limit, above) for limit, name, above in limits}


def _title(key: str) -> str:
    name = key.partition("/")[2].replace("_", " ").replace("/", ": ")[:40]
    return name[:1].upper() + name[1:]


def warnings(run: RunData) -> list[str]:
    texts = [cut(text, WARNING_CHARS) for row in run.rows("train") for text in row.get("warnings", [])]
    return texts[:MOST_WARNINGS]
