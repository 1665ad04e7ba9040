"""Sections `sft` and `dpo`: learning from files instead of rollouts of the moment."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from sql_agent.config.node import Node


class TuneConfig(Node):
    """What `agentgrpo sft` and `agentgrpo dpo` share."""

    dataset: str = Field(
        default="",
        description="a file (.jsonl, .parquet), a run or evaluation folder, or a hub name; empty: `data.train_file`",
    )
    output_dir: str = Field(default="", description="new folder for the finished model, merged; empty: none")
    max_samples: int = Field(default=0, ge=0, description="use the first so many conversations or pairs; 0: all")
    epochs: int = Field(default=3, ge=1, description="passes over the data")
    max_steps: int = Field(default=0, ge=0, description="stop after this many steps; 0: as many as the epochs have")
    batch_size: int = Field(default=1, ge=1, description="rows (pairs) per forward pass")
    gradient_accumulation_steps: int = Field(default=4, ge=1, description="forward passes per optimizer step")
    lr: float = Field(default=5e-5, gt=0, description="AdamW learning rate")
    lr_schedule: Literal["constant", "linear", "cosine"] = Field(
        default="linear", description="constant, or falling to 0 over the run's steps"
    )
    warmup_share: float = Field(default=0.0, ge=0, lt=1, description="share of the steps in which the rate rises")
    weight_decay: float = Field(default=0.0, ge=0, description="AdamW weight decay")
    grad_clip: float = Field(default=1.0, gt=0, description="gradient norm limit")
    max_tokens: int = Field(default=2048, ge=2, description="longer rows are left out and counted, never cut")


class SftConfig(TuneConfig):
    """Supervised fine-tuning with `agentgrpo sft`."""

    min_reward: float = Field(default=0.8, description="of rollouts, those below this reward are not learned from")
    best_of: int = Field(default=1, ge=0, description="of each question's rollouts, the best so many; 0: all")


class DpoConfig(TuneConfig):
    """Learning from preferences with `agentgrpo dpo`."""

    lr: float = Field(default=5e-6, gt=0, description="AdamW learning rate")
    loss: Literal["dpo", "ipo", "kto"] = Field(
        default="dpo", description="TRL's loss: dpo is its `sigmoid`; kto needs a `batch_size` of 2 or more"
    )
    beta: float = Field(default=0.1, gt=0, description="how strongly the policy is held to the start model")
    margin: float = Field(
        default=0.2, gt=0, description="of rollouts, those of one question make a pair from this difference of rewards"
    )
    pairs_per_question: int = Field(default=4, ge=1, description="pairs of one question, or group, at most")

    @model_validator(mode="after")
    def _kto_compares_rows(self) -> DpoConfig:
        if self.loss == "kto" and self.batch_size < 2:
            raise ValueError(
                f"dpo.batch_size = {self.batch_size}: kto estimates how far the policy has moved from prompts with "
                "what other rows of the batch say; give 2 or more pairs"
            )
        return self
