"""Section `optim`: the update."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sql_agent.config.node import Node


class OptimConfig(Node):
    """The update."""

    lr: float = Field(default=1e-6, gt=0, description="AdamW learning rate")
    lr_schedule: Literal["constant", "cosine"] = Field(
        default="constant", description="constant, or falling over the run's steps as half a cosine"
    )
    lr_final_share: float = Field(
        default=0.1, ge=0, le=1, description="share of the rate that is left at the end of the cosine"
    )
    weight_decay: float = Field(
        default=0.0, ge=0, description="AdamW weight decay (a step whose groups are all without variance is not made)"
    )
    clip_low: float = Field(default=0.2, gt=0, lt=1, description="lower PPO clip")
    clip_high: float = Field(default=0.3, gt=0, description="upper PPO clip")
    kl_coef: float = Field(default=0.0, ge=0, description="KL loss to the start model; 0 loads no reference model")
    entropy_coef: float = Field(default=0.0, ge=0, description="entropy bonus")
    questions_per_step: int = Field(default=32, ge=1, description="questions sampled per step")
    mini_batch_questions: int = Field(
        default=32,
        ge=1,
        description="questions per optimizer step (verl's ppo_mini_batch_size; times group_size in rows)",
    )
    micro_batch_rows: int = Field(default=4, ge=1, description="rows per forward pass and GPU")
    grad_clip: float = Field(default=1.0, gt=0, description="gradient norm limit")
    importance_correction: Literal["off", "truncated"] = Field(
        default="off", description="weigh each token with min(p_trainer / p_sampler, importance_cap)"
    )
    importance_cap: float = Field(default=2.0, gt=1, description="largest weight of the truncated correction")
