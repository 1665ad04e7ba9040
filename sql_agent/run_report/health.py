"""The health of a run over its steps: which metrics are shown, what each of them means, and where its limit lies.

Guarantees: a measure that a run does not have is left out; each further metric health/<name> gets a panel of its own.
The limits are those of the run's configuration; training/health_rules.py says which metric each of them is for.
"""

from __future__ import annotations

from dataclasses import dataclass

from sql_agent.run_report.folder import RunData
from sql_agent.run_report.measures import Series, Unit, Value, first, over_steps, share
from sql_agent.run_report.plain import Tree, cut, items, number, tree
from sql_agent.training.health_rules import LIMITS

MOST_OTHERS, MOST_WARNINGS, WARNING_CHARS = 12, 20, 400


def _unscored(row: Tree) -> float | None:
    found = number(row.get("health/unscored_share"))
    rollouts, scored = number(row.get("rollout/rollouts")), number(row.get("rollout/scored"))
    if found is not None or scored is None or not rollouts:
        return found
    return 1 - scored / rollouts


def either(*values: Value) -> Value:
    """The first of these that a step has."""
    return lambda row: next((found for value in values if (found := value(row)) is not None), None)


@dataclass(frozen=True)
class Measure:
    """One sign of a healthy run. `name` is that of its metric health/<name>, where there is one."""

    name: str
    title: str
    about: str
    value: Value
    unit: Unit = "number"


ROWS_CUT = share(first("batch/rows_cut"), first("batch/rows"))
FLAT = share(first("rollout/zero_variance_groups"), first("rollout/groups"))
HEALTH = [
    Measure(
        *("entropy", "Entropy", "Per token. Near 0 the policy always does the same, and learns nothing more."),
        first("health/entropy", "actor/entropy_loss"),
    ),
    Measure(
        *("grad_norm", "Gradient norm", "Before clipping. Spikes come before a collapse."),
        first("health/grad_norm", "actor/grad_norm"),
    ),
    Measure(
        *("clip_share", "Clip share", "Tokens whose update was clipped."),
        first("health/clip_share", "actor/pg_clipfrac"),
        "percent",
    ),
    Measure(
        *("kl_to_start", "KL to the start", "How far the policy has moved from the model that it started as."),
        first("health/kl_to_start", "actor/kl_to_start", "actor/kl_loss"),
    ),
    Measure(
        *("update_kl", "KL of one update", "Between the policy that sampled and the one being updated."),
        first("health/update_kl", "actor/ppo_kl"),
    ),
    Measure(
        *("sampler_gap", "Sampler gap", "Log-probability of a token, vLLM against the trainer, mean difference."),
        first("health/sampler_gap"),
    ),
    Measure(
        *(
            "truncation_share",
            "Truncation",
            "LLM calls (in older runs: training rows) cut at the token limit.",
        ),
        either(first("health/truncation_share"), ROWS_CUT),
        "percent",
    ),
    Measure(
        *("answer_chars_mean", "Answer length", "Characters of the final answer, mean."),
        first("health/answer_chars_mean"),
        "count",
    ),
    Measure(
        *("response_tokens", "Tokens per rollout", "The policy's own tokens in all its calls, mean."),
        first("rollout/response_tokens_mean"),
        "count",
    ),
    Measure(*("turns", "Turns", "LLM calls per rollout, mean."), first("rollout/turns_mean")),
    Measure(
        *("repeat_share", "Repeated queries", "Rollouts that ran the same SQL more than once."),
        first("health/repeat_share"),
        "percent",
    ),
    Measure(
        *("bonus_without_rows_share", "Bonus without rows", "Rollouts that earned the SQL bonus and found nothing."),
        first("health/bonus_without_rows_share"),
        "percent",
    ),
    Measure(
        *("zero_variance_share", "Groups without variance", "All rewards of the group equal: no update comes from it."),
        either(first("health/zero_variance_share"), FLAT),
        "percent",
    ),
    Measure(
        *("zero_reward_share", "Rewards of 0", "Scored rollouts that earned nothing at all."),
        first("health/zero_reward_share"),
        "percent",
    ),
    Measure(
        *("unscored_share", "Unscored", "Rollouts that a fault left without a reward."),
        _unscored,
        "percent",
    ),
    Measure(
        *("judge_fault_share", "Judge faults", "Rollouts that the judge failed to grade."),
        first("health/judge_fault_share"),
        "percent",
    ),
]
# In the reward's own chart, or told by another measure.
ELSEWHERE = {"health/reward_mean", "health/reward_moving_mean", "health/answer_tokens_mean"}


def health(run: RunData) -> list[Series]:
    """All health measures that this run has: those of HEALTH, then each further metric health/<name>."""
    rows = run.rows("train")
    known = {f"health/{measure.name}" for measure in HEALTH} | ELSEWHERE
    others = sorted({key for row in rows for key in row if key.startswith("health/")} - known)
    measures = [*HEALTH, *(Measure(key, _title(key), "", first(key)) for key in others[:MOST_OTHERS])]
    limits = _limits(run)
    found = []
    for measure in measures:
        steps, values = over_steps(rows, measure.value)
        if steps:
            limit, above = limits.get(measure.name, (None, True))
            found.append(Series(measure.name, measure.title, measure.about, measure.unit, steps, values, limit, above))
    return found


def _limits(run: RunData) -> dict[str, tuple[float | None, bool]]:
    """Measure -> the run's limit, and whether above it is bad. A limit of 0 is none."""
    given = tree(run.config.get("health"))
    return {
        metric.removeprefix("health/"): (number(given.get(key)) or None, above)
        for key, (metric, above, _) in LIMITS.items()
    }


def _title(key: str) -> str:
    name = key.partition("/")[2].replace("_", " ").replace("/", ": ")[:40]
    return name[:1].upper() + name[1:]


def warnings(run: RunData) -> list[str]:
    """What the run warned of, in the order of the steps."""
    told = [cut(text, WARNING_CHARS) for row in run.rows("train") for text in items(row.get("warnings"))]
    return told[:MOST_WARNINGS]
