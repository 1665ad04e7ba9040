"""Section `rollout`: how the policy is sampled."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sql_agent.config.node import Node


class Sampling(Node):
    """How an answer is sampled."""

    temperature: float = Field(default=1.0, ge=0, description="0: the likeliest token each time")
    top_p: float = Field(default=1.0, gt=0, le=1, description="sample from the likeliest tokens of this share")
    top_k: int = Field(default=0, ge=0, description="sample from so many likeliest tokens; 0: all")
    presence_penalty: float = Field(default=0.0, ge=-2, le=2, description="taken off logits of tokens said before")
    frequency_penalty: float = Field(
        default=0.0, ge=-2, le=2, description="taken off logits, for each time said before"
    )
    stop: list[str] = Field(default=[], max_length=16, description="texts that end an answer, which leaves them out")


class ValidationSampling(Sampling):
    """Validation: as in training, with keys of its own."""

    temperature: float = Field(default=0.0, ge=0, description="0: the likeliest token each time")


class EvaluationSampling(Sampling):
    """Evaluation, and the try-out: sampled trials; greedy ones, and the try-out, take all but the temperature."""


class RolloutConfig(Sampling):
    """How the policy is sampled; the keys of sampling are those of training."""

    group_size: int = Field(default=4, ge=1, description="rollouts per question (n of GRPO)")
    temperature: float = Field(default=1.0, ge=0, description="training temperature, by which the trainer divides too")
    top_p: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="sample from the likeliest tokens of this share; below 1 the sampler is off-policy",
    )
    top_k: int = Field(default=0, ge=0, description="sample from so many likeliest tokens; 0: all; else off-policy")
    presence_penalty: float = Field(
        default=0.0, ge=-2, le=2, description="taken off logits of tokens said before; off-policy, needs the correction"
    )
    frequency_penalty: float = Field(
        default=0.0, ge=-2, le=2, description="taken off logits, for each time said before; needs the correction too"
    )
    validation: ValidationSampling = ValidationSampling()
    evaluation: EvaluationSampling = EvaluationSampling()
    max_model_len: int = Field(
        default=0,
        ge=0,
        description="tokens of one conversation in the model server; 0: as many as a training row holds, "
        "max_prompt_tokens and what may follow it; never more than the model itself can",
    )
    max_prompt_tokens: int = Field(
        default=2048, ge=16, description="longest prompt of a training row; longer ones are dropped and counted"
    )
    max_response_tokens: int = Field(default=768, ge=8, description="longest answer of one LLM call")
    n_runners: int = Field(
        default=1, ge=1, description="runner processes, each with `runner_concurrency` rollouts in flight"
    )
    runner_concurrency: int = Field(default=64, ge=1, description="rollouts in flight per runner process")
    level: Literal["transition", "trajectory"] = Field(
        default="trajectory",
        description="one training row per call, or one per rollout where its calls continue each other",
    )
    trajectory_max_response_tokens: int = Field(
        default=4096,
        ge=8,
        description="longest row after its prompt (trajectory level); what is longer goes on in a row of its own",
    )
    poll_interval_s: float = Field(default=0.1, gt=0, description="idle poll of runners and of the trainer's wait loop")
    rollout_timeout_s: float = Field(
        default=600.0,
        gt=0,
        description="longest rollout; one that takes more is ended a little earlier and unscored (timed_out)",
    )
    gpu_memory_utilization: float = Field(default=0.6, gt=0, le=0.95, description="share of GPU memory for vLLM")
    tensor_parallel: int = Field(default=1, ge=1, description="GPUs per vLLM engine")
    max_num_seqs: int = Field(
        default=256, ge=1, description="sequences vLLM runs at once, as far as its cache holds them"
    )
    calls_per_engine: int = Field(
        default=0,
        ge=0,
        description="calls that the gateway has at each engine at once, others wait in it; 0: twice `max_num_seqs`, "
        "one half running and one queued",
    )
    tool_parser: str = Field(default="hermes", description="vLLM's tool call parser")
    proxy: Literal["gateway", "litellm"] = Field(
        default="gateway",
        description="LLM proxy between agents and vLLM: this project's gateway, or agent-lightning's on LiteLLM, which "
        "costs some forty times the CPU and knows other APIs than chat completions too",
    )
    gateways: Literal["one", "per_node"] = Field(
        default="one",
        description="a gateway where the run is started, or one on each of trainer.n_nodes machines, for a part of the "
        "rollouts and by the engines beside it; all must reach the store",
    )
    sampler_logprobs: bool = Field(
        default=True, description="let vLLM return the log-probability of each sampled token, and compare (sampler/...)"
    )
    plain_spans: bool = Field(
        default=False,
        description="let the gateway write token ids as lists of numbers, with each call's messages, as "
        "agent-lightning's own readers take them. Default: packed, by what is new since the rollout's call before",
    )
    async_groups: int = Field(
        default=0,
        ge=0,
        description="groups in flight beyond those that a step trains; they play on over the change of weights. 0: "
        "each step waits for all of its own",
    )
    max_staleness: int = Field(
        default=2,
        ge=1,
        description="with async_groups: updates that the trained weights may be ahead of those that answered a "
        "rollout's first call; what is older is left out and counted",
    )
    resample_flat_groups: int = Field(
        default=0,
        ge=0,
        le=8,
        description="times per step that groups without variance are replaced by other questions (dynamic sampling)",
    )

    @property
    def is_shifted(self) -> bool:
        """Whether training samples otherwise than the trainer computes: cut, or moved by penalties."""
        return self.top_p < 1 or self.top_k > 0 or self.has_penalties

    @property
    def has_penalties(self) -> bool:
        """Whether training lowers what was said before."""
        return bool(self.presence_penalty or self.frequency_penalty)

    @property
    def row_response_tokens(self) -> int:
        """The most tokens of a training row after its prompt."""
        return self.trajectory_max_response_tokens if self.level == "trajectory" else self.max_response_tokens

    @property
    def row_tokens(self) -> int:
        """The longest training row."""
        return self.max_prompt_tokens + self.row_response_tokens

    @property
    def context_tokens(self) -> int:
        """Tokens that the model server is asked to hold of one conversation."""
        return self.max_model_len or self.row_tokens
