"""What health means for this agent: the limits of the configuration as watches, and what a rollout's record tells.

agl_plugin/run/health.py measures, warns and stops; this module knows the records (rollouts.jsonl) and what helps.
Shares of behaviour are over scored rollouts, so that an outage does not look like a change of the policy.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agl_plugin.run.health import Health, share
from agl_plugin.update.rules import StopRules, Watch
from foundation.rollout_keys import broken_tools
from sql_agent.config import AgentTree, HealthConfig, agents_of
from sql_agent.records import RunRecord

TOOL_CALLS = "tool_call_share_min"
# Configuration key, which ends in max where above is bad and in min where below is: what may help.
LIMITS = {
    "entropy_min": "the policy hardly varies any more; lower optim.lr, raise optim.clip_high or optim.entropy_coef",
    "kl_max": "far from the start model; raise optim.kl_coef or lower optim.lr",
    "clip_share_max": "many tokens are clipped; lower optim.lr, or fewer optimizer steps per step "
    "(optim.mini_batch_questions)",
    "truncation_share_max": "LLM calls end at the length limit; raise rollout.max_response_tokens",
    "bonus_without_rows_share_max": "the bonus is earned with queries that find nothing; lower reward.sql_bonus or "
    "look at rollouts.jsonl",
    "repeat_share_max": "episodes repeat a query; look at rollouts.jsonl",
    "tool_call_share_min": "the policy hardly calls its tools; see in rollouts.jsonl whether answers earn as much "
    "without, say in the prompt what tools are for, or pay for calls (the scorer step_bonus)",
    "answer_chars_max": "answers grow long; check whether the judge rewards length (make judge-report)",
    "unscored_share_max": "many rollouts are unscored; the summary counts the reasons",
    "judge_fault_share_max": "the judge fails often; check its endpoints, limits and budget",
    "zero_variance_share_max": "most groups teach nothing; raise rollout.group_size, or set "
    "rollout.resample_flat_groups",
    "sampler_gap_max": "vLLM and the trainer disagree; set optim.importance_correction = truncated, or a higher "
    "precision",
}
LONGER = {"kl": "kl_to_start", "answer_chars": "answer_chars_mean"}  # metrics that are not called as their limit


def measure_of(key: str) -> tuple[str, bool]:
    """The measure that a key of LIMITS is for, and whether above is bad. Its metric is health/<measure>."""
    name, _, bound = key.rpartition("_")
    return LONGER.get(name, name), bound == "max"


def watches_of(config: HealthConfig, *, with_tools: Iterable[str] = ("",)) -> list[Watch]:
    """A watch for each limit that is set (0 switches a limit off).

    `with_tools` are the agents that have tools: for each of them a tool that is not called any more is told of.
    """
    watches = []
    for key, advice in LIMITS.items():
        limit, (name, above) = getattr(config, key), measure_of(key)
        agents = with_tools if key == TOOL_CALLS else [""]
        metrics = [f"health/{name}/{agent}" if agent else f"health/{name}" for agent in agents if limit]
        watches += [Watch(metric=m, key=f"health.{key}", limit=limit, above=above, advice=advice) for m in metrics]
    return watches


def health_of(health: HealthConfig, agents: AgentTree, *, max_response_tokens: int) -> Health:
    """The health of a run whose model calls sample at most `max_response_tokens`."""
    by_name = {name: settings.agent for name, settings in agents_of(agents).items()}
    # A program of one's own has no tools of ours.
    own_loops = {name: agent for name, agent in by_name.items() if not (agent.command or agent.agl_class)}
    return Health(
        watches=watches_of(health, with_tools=[name for name, a in own_loops.items() if a.tools or a.mcp]),
        rules=StopRules(
            max_bad_steps=health.max_bad_steps,
            max_flat_steps=health.max_flat_steps,
            collapse_drop=health.collapse_drop,
            collapse_entropy=health.entropy_min,
            collapse_zero_share=health.collapse_zero_share,
            stop_on_collapse=health.on_collapse == "stop",
        ),
        window=health.window,
        max_response_tokens=max_response_tokens,
        describe=behaviour,
    )


def behaviour(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Shares and means of one step's records; what needs a scored rollout is absent when there is none."""
    records = [RunRecord.model_validate(row) for row in rows]
    scored = [record for record in records if not record.unscored and "sql_calls" in record.model_fields_set]
    faults = sum(record.unscored.startswith("judge_") for record in records)
    shares = {"health/judge_fault_share": share(faults, len(rows))}
    shares |= {f"tools/{tool}/faults/{reason}": float(n) for (tool, reason), n in broken_tools(rows).items()}
    if not scored:
        return shares
    n_empty = sum(record.reward_parts.get("sql", 0.0) > 0 and not record.found_rows for record in scored)
    return {
        **shares,
        "health/bonus_without_rows_share": share(n_empty, len(scored)),
        "health/repeat_share": share(sum(map(repeats_a_query, scored)), len(scored)),
        "health/answer_chars_mean": statistics.fmean(len(record.answer) for record in scored),
        **calls_by_agent(scored),
        **tool_counts(records),
    }


def calls_by_agent(scored: Sequence[RunRecord]) -> dict[str, float]:
    """The share of rollouts that called a tool, of each agent that rows name; over all where none is named."""
    shares = {"health/tool_call_share": share(sum(record.used_a_tool for record in scored), len(scored))}
    for agent in sorted({record.agent for record in scored if record.agent}):
        used_tools = [record.used_a_tool for record in scored if record.agent == agent]
        shares[f"health/tool_call_share/{agent}"] = share(sum(used_tools), len(used_tools))
    return shares


def tool_counts(records: Sequence[RunRecord]) -> dict[str, float]:
    """Calls of each tool but SQL's: how many, and how many raised, took too long or were cut."""
    calls = [call for record in records for call in record.tool_calls]
    named = {call.name: [other.outcome for other in calls if other.name == call.name] for call in calls}
    return {
        f"tools/{name}/{count}": float(n)
        for name, outcomes in named.items()
        for count, n in (
            ("calls", len(outcomes)),
            ("errors", outcomes.count("error") + outcomes.count("bad_arguments")),
            ("timeouts", outcomes.count("timeout")),
            ("cut", outcomes.count("cut")),
        )
    }


def repeats_a_query(record: RunRecord) -> bool:
    """True when the same SQL, but for white space, was run more than once."""
    texts = [tuple(call.sql.split()) for call in record.sql_calls]
    return len(set(texts)) < len(texts)
