"""Section `health`: limits that warn, and rules that stop a run."""

from __future__ import annotations

from typing import Literal

from sql_agent.config.node import Node, option


class HealthConfig(Node):
    """Limits that warn once per run, and rules that stop it. A limit of 0 is off; means are over `window` steps."""

    window: int = option(5, "training steps that a limit is averaged over", ge=1)
    entropy_min: float = option(0.01, "entropy per sampled token, in nats", ge=0)
    kl_max: float = option(0.5, "KL to the start model per token (only with optim.kl_coef)", ge=0)
    clip_share_max: float = option(0.3, "share of tokens that PPO clips", ge=0, le=1)
    truncation_share_max: float = option(0.2, "share of LLM calls that end at rollout.max_response_tokens", ge=0, le=1)
    bonus_without_rows_share_max: float = option(0.3, "share of rollouts with SQL bonus and no row found", ge=0, le=1)
    repeat_share_max: float = option(0.3, "share of rollouts that repeat a query", ge=0, le=1)
    tool_call_share_min: float = option(0.1, "share of rollouts with a tool's call that ran to its end", ge=0, le=1)
    answer_chars_max: float = option(2000, "mean length of the final answer, in characters", ge=0)
    unscored_share_max: float = option(0.2, "share of rollouts without a reward", ge=0, le=1)
    judge_fault_share_max: float = option(0.1, "share of rollouts that the judge failed to grade", ge=0, le=1)
    zero_variance_share_max: float = option(0.7, "share of groups in which all rewards are the same", ge=0, le=1)
    sampler_gap_max: float = option(0.05, "mean difference of a token's log-probability, vLLM and the trainer", ge=0)
    max_bad_steps: int = option(3, "stop after so many steps in a row with a not finite update; 0: never", ge=0)
    max_flat_steps: int = option(10, "stop after so many steps in a row with rewards all the same; 0: never", ge=0)
    collapse_drop: float = option(0.2, "collapse: mean reward of a window so far below the first window, and ...", gt=0)
    collapse_zero_share: float = option(0.8, "... so many rollouts earn 0, or entropy is below entropy_min", gt=0, le=1)
    on_collapse: Literal["warn", "stop"] = option("warn", "what a collapse does")
