"""Section `optim`: the update."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import model_validator

from foundation.errors import did_you_mean
from sql_agent.config.losses import FIXED, PRESETS, Advantage, Aggregation, is_own, with_preset
from sql_agent.config.node import Node, option


class OptimConfig(Node):
    """The update. The loss sets other defaults for some keys: [table](15-training.md#losses)."""

    loss: str = option(
        "grpo",
        "`grpo`, `dapo`, `dr_grpo`, `gspo`, `cispo`, `minirl`, `gpg`, or "
        "[one of your own](15-training.md#a-loss-of-your-own), `module:function`",
    )
    advantage: Advantage = option("group", "what a rollout is [compared with](15-training.md#advantage)")
    credit: Literal["rollout", "phases"] = option(
        "rollout", "what is compared: rollouts, or their [exploring and answering turns](15-training.md#phases) apart"
    )
    turn_shaping: float = option(
        0.0, "what turns with a failed call are behind the rest of their rollout; over its tokens it sums to 0", ge=0
    )
    loss_aggregation: Aggregation = option(
        "token-mean",
        "[what weighs the same](15-training.md#aggregation): a token, or a row with the mean or the sum of "
        "its tokens; -norm divides the sum by the tokens that a row may have",
    )
    lr: float = option(1e-6, "AdamW learning rate", gt=0)
    lr_schedule: Literal["constant", "cosine"] = option("constant", "constant, or half a cosine down over the run")
    lr_final_share: float = option(0.1, "share of the rate that is left at the end of the cosine", ge=0, le=1)
    warmup: float = option(
        0.0, "training steps in which the rate rises to lr, the first with rate 0; below 1: share of the run", ge=0
    )
    weight_decay: float = option(0.0, "AdamW weight decay (no step is made where no group has variance)", ge=0)
    clip_low: float = option(0.2, "the ratio's lower bound is 1 - clip_low; 1: it has none", gt=0, le=1)
    clip_high: float = option(0.3, "the ratio's upper bound is 1 + clip_high", gt=0)
    overlong_filter: bool = option(
        False, "leave rollouts whose answer was cut (max_response_tokens) out of the loss, not of the group's mean"
    )
    positive_only: bool = option(False, "leave rollouts whose advantage is not positive out")
    kl_coef: float = option(0.0, "KL loss to the start model; 0 loads no reference model", ge=0)
    kl_estimator: Literal["k1", "k2", "k3", "abs"] = option(
        "k3", "[estimator](15-training.md#kl-term) of the KL loss; health/kl_to_start stays k3", of="optim.kl_coef"
    )
    teacher: str = option(
        "",
        "the KL loss goes to this [teacher](15-training.md#distillation) instead: a model folder with the "
        "policy's tokenizer (one process), or the address of a vLLM server",
        of="optim.kl_coef",
    )
    imitation_coef: float = option(
        0.0, "weight of the likelihood of rollouts that solved their question where others of the group did not", ge=0
    )
    imitated_from: float = option(0.5, "the reward from which a rollout is imitated", of="optim.imitation_coef")
    entropy_coef: float = option(0.0, "entropy bonus", ge=0)
    questions_per_step: int = option(32, "questions sampled per step", ge=1)
    mini_batch_questions: int = option(
        32, "questions per optimizer step (verl's ppo_mini_batch_size; times group_size in rows)", ge=1
    )
    micro_batch_rows: int = option(4, "rows per forward pass and GPU", ge=1)
    micro_batch_tokens: int = option(
        0, "tokens per forward pass and GPU, with padding, one row at least; 0: micro_batch_rows decides", ge=0
    )
    grad_clip: float = option(1.0, "gradient norm limit", gt=0)
    importance_correction: Literal["off", "truncated", "masked"] = option(
        "off", "weigh a token with r = p_trainer / p_sampler, cut at importance_cap, or 0 outside [1 / cap, cap]"
    )
    importance_level: Literal["token", "sequence"] = option(
        "token", "r of a token, or the product over its row", of="optim.importance_correction"
    )
    importance_cap: float = option(2.0, "largest weight of the correction", gt=1)

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, section: Any) -> Any:
        return with_preset(section) if isinstance(section, dict) else section

    def problems(self) -> Iterator[str]:
        if self.loss not in PRESETS and not is_own(self.loss):
            yield (
                f"optim.loss = {self.loss!r} must be one of {', '.join(PRESETS)}, or module:function"
                f"{did_you_mean(self.loss, PRESETS)}"
            )
        keys, why = FIXED.get(self.loss, ("", ""))
        for key in keys.split():
            value, fixed = getattr(self, key), PRESETS[self.loss].get(key, type(self).model_fields[key].default)
            if value != fixed:
                yield (
                    f"optim.{key} = {value} must be {fixed} with optim.loss = {self.loss}: {why}. Leave it out, or "
                    "take another loss"
                )
        if self.warmup >= 1 and self.warmup % 1:
            yield (
                f"optim.warmup = {self.warmup} must be a whole number of training steps, or below 1 a share of the "
                f"run's: set {round(self.warmup)}"
            )
        if self.loss == "gspo" and self.importance_correction != "off" and self.importance_level == "token":
            yield (
                f"optim.importance_correction = {self.importance_correction} with optim.loss = gspo needs "
                "optim.importance_level = sequence: weights of tokens would make its gradient that of GSPO-token. Set "
                "that, or importance_correction = off"
            )
