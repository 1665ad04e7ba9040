"""Section `rollout`: how the policy is sampled."""

from __future__ import annotations

from typing import Literal

from sql_agent.config.node import Node, option


class Sampling(Node):
    """How an answer is sampled."""

    temperature: float = option(1.0, "0: the likeliest token each time", ge=0)
    top_p: float = option(1.0, "sample from the likeliest tokens of this share", gt=0, le=1)
    top_k: int = option(0, "sample from so many likeliest tokens; 0: all", ge=0)
    presence_penalty: float = option(0.0, "taken off logits of tokens said before", ge=-2, le=2)
    frequency_penalty: float = option(0.0, "taken off logits, for each time said before", ge=-2, le=2)
    stop: list[str] = option([], "texts that end an answer, which leaves them out", max_length=16)


class ValidationSampling(Sampling):
    """Validation: as in training, with keys of its own."""

    temperature: float = option(0.0, "0: the likeliest token each time", ge=0)


class EvaluationSampling(Sampling):
    """Evaluation, and the try-out: sampled trials; greedy ones, and the try-out, take all but the temperature."""


class RolloutConfig(Sampling):
    """How the policy is sampled; the keys of sampling are training's, where all but the temperature are off-policy."""

    temperature: float = option(1.0, "training temperature, above 0, by which the trainer divides too", ge=0)
    group_size: int = option(4, "rollouts per question (n of GRPO)", ge=1)
    validation: ValidationSampling = ValidationSampling()
    evaluation: EvaluationSampling = EvaluationSampling()
    max_model_len: int = option(
        0, "tokens of a conversation in the model server, at most the model's own; 0: a training row's", ge=0
    )
    max_prompt_tokens: int = option(2048, "longest prompt of a training row; longer ones are left out, counted", ge=16)
    max_response_tokens: int = option(768, "longest answer of one LLM call", ge=8)
    n_runners: int = option(1, "runner processes, each with `runner_concurrency` rollouts in flight", ge=1)
    runner_concurrency: int = option(64, "rollouts in flight per runner process", ge=1)
    level: Literal["transition", "trajectory"] = option(
        "trajectory", "one training row per call, or one per rollout where its calls continue each other"
    )
    trajectory_max_response_tokens: int = option(
        4096, "longest row after its prompt (trajectory level); what is longer goes on in a row of its own", ge=8
    )
    poll_interval_s: float = option(0.1, "idle poll of runners and of the trainer's wait loop", gt=0)
    rollout_timeout_s: float = option(
        600.0, "longest rollout, in an evaluation the longest scoring; what takes more is unscored (timed_out)", gt=0
    )
    gpu_memory_utilization: float = option(0.6, "share of GPU memory for vLLM", gt=0, le=0.95)
    tensor_parallel: int = option(1, "GPUs per vLLM engine", ge=1)
    max_num_seqs: int = option(256, "sequences vLLM runs at once, as far as its cache holds them", ge=1)
    calls_per_engine: int = option(
        0, "calls of the gateway at an engine at once; 0: twice `max_num_seqs`, half running, half queued", ge=0
    )
    tool_parser: str = option("hermes", "vLLM's tool call parser")
    proxy: Literal["gateway", "litellm"] = option(
        "gateway",
        "LLM proxy between agents and vLLM: this project's gateway, or agent-lightning's on LiteLLM, which "
        "costs some forty times the CPU and knows other APIs than chat completions too",
    )
    gateways: Literal["one", "per_node"] = option(
        "one",
        "a gateway where the run is started, or one on each of trainer.n_nodes machines, for a part of the "
        "rollouts and by the engines beside it; all must reach the store",
    )
    sampler_logprobs: bool = option(
        True, "let vLLM return the log-probability of sampled tokens, and compare (sampler/...)"
    )
    plain_spans: bool = option(
        False,
        "let the gateway write token ids as lists of numbers, with each call's messages, as "
        "agent-lightning's own readers take them. Default: packed, by what is new since the rollout's call before",
    )
    async_groups: int = option(
        0, "groups in flight beyond a step's own, over the change of weights; 0: a step waits for its own", ge=0
    )
    max_staleness: int = option(
        2,
        "with async_groups: updates that the trained weights may be ahead of those that answered a "
        "rollout's first call; what is older is left out and counted",
        of="rollout.async_groups",
        ge=1,
    )
    resample_flat_groups: int = option(
        0, "times per step that groups without variance are replaced by other questions (dynamic sampling)", ge=0, le=8
    )

    @property
    def is_shifted(self) -> bool:
        """Whether training samples otherwise than the trainer computes: cut, or moved by penalties."""
        return self.top_p < 1 or self.top_k > 0 or bool(self.presence_penalty or self.frequency_penalty)

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
