"""Section `health`: limits that warn, and rules that stop a run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sql_agent.config.node import Node


class HealthConfig(Node):
    """Limits that warn once per run, and rules that stop it. A limit of 0 is off; means are over `window` steps."""

    window: int = Field(default=5, ge=1, description="training steps that a limit is averaged over")
    entropy_min: float = Field(default=0.01, ge=0, description="entropy per sampled token, in nats")
    kl_max: float = Field(default=0.5, ge=0, description="KL to the start model per token (only with optim.kl_coef)")
    clip_share_max: float = Field(default=0.3, ge=0, le=1, description="share of tokens that PPO clips")
    truncation_share_max: float = Field(
        default=0.2, ge=0, le=1, description="share of LLM calls that end at rollout.max_response_tokens"
    )
    bonus_without_rows_share_max: float = Field(
        default=0.3, ge=0, le=1, description="share of rollouts with the SQL bonus whose queries found no row"
    )
    repeat_share_max: float = Field(default=0.3, ge=0, le=1, description="share of rollouts that repeat a query")
    tool_call_share_min: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="share of rollouts in which a tool's call ran to its end (agents with tools)",
    )
    answer_chars_max: float = Field(default=2000, ge=0, description="mean length of the final answer, in characters")
    unscored_share_max: float = Field(default=0.2, ge=0, le=1, description="share of rollouts without a reward")
    judge_fault_share_max: float = Field(
        default=0.1, ge=0, le=1, description="share of rollouts that the judge failed to grade"
    )
    zero_variance_share_max: float = Field(
        default=0.7, ge=0, le=1, description="share of groups in which all rewards are the same"
    )
    sampler_gap_max: float = Field(
        default=0.05, ge=0, description="mean difference of a token's log-probability, vLLM against the trainer"
    )
    max_bad_steps: int = Field(
        default=3, ge=0, description="stop after so many steps in a row with an update that is not finite; 0: never"
    )
    max_flat_steps: int = Field(
        default=10, ge=0, description="stop after so many steps in a row in which all rewards are the same; 0: never"
    )
    collapse_drop: float = Field(
        default=0.2, gt=0, description="collapse: mean reward of a window so far below the first window, and ..."
    )
    collapse_zero_share: float = Field(
        default=0.8, gt=0, le=1, description="... so many rollouts earn 0, or the entropy is below entropy_min"
    )
    on_collapse: Literal["warn", "stop"] = Field(default="warn", description="what a collapse does")
