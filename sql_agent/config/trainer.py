"""Sections `model`, `trainer`, `local`, `store`, `serve` and `logging`: what is trained where, and what it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sql_agent.config.node import Node, option
from sql_agent.config.paths import HOME


class ModelConfig(Node):
    """The policy."""

    path: str = option("", "model folder or hub name; empty: the tiny policy, or Qwen/Qwen3-0.6B on a GPU")
    tiny: str = option("", "module or .py file whose TASK the tiny policy is made for; empty: the SQL agent")
    tiny_seed: int = option(
        1,
        "seed of the tiny policy's warm start; bundled tasks bring the weights of 1, others take minutes",
        ge=0,
        lt=2**32,
    )
    lora_rank: int = option(0, "0 trains all weights", ge=0)
    lora_alpha: int = option(32, "LoRA scale numerator", ge=1)
    lora_adapter_path: str = option(
        "", "LoRA adapter to continue from; with a KL term, and for dpo, it is merged, and a new one trained"
    )
    attention: str = option("sdpa", "transformers attention; flash_attention_2 where it is installed")
    allow_remote_code: bool = option(False, "accept a model folder whose JSON names code to import, such as auto_map")


class TrainerConfig(Node):
    """Length, device, checkpoints."""

    device: Literal["auto", "cpu", "cuda"] = option("auto", "auto: cuda where an NVIDIA driver answers")
    precision: Literal["auto", "float32", "bfloat16"] = option(
        "auto", "of passes through the model (weights and AdamW are float32); auto: bfloat16 on a GPU alone"
    )
    offload: Literal["auto", "always", "never"] = option(
        "auto", "weights and AdamW wait in the machine's memory while vLLM samples; auto: where GPUs lack the room"
    )
    n_gpus: int = option(1, "GPUs of a machine (or one pretended GPU on the CPU)", ge=1)
    n_nodes: int = option(1, "machines of the Ray at RAY_ADDRESS, each with n_gpus, that train and sample", ge=1)
    sequence_parallel: int = option(1, "GPUs that share each row in the update (Ulysses), with flash_attention_2", ge=1)
    epochs: int = option(2, "passes over the training questions", ge=1)
    max_steps: int = option(0, "stop after this many steps; 0: as many as the epochs have", ge=0)
    save_every: int = option(20, "steps between checkpoints, the last step too; -1: none", ge=-1)
    validate_every: int = option(20, "steps between validations; -1: none", ge=-1)
    validate_first: bool = option(True, "validate before the first step")
    keep_checkpoints: int = option(2, "newest checkpoints that stay, beside the best (GRPO)", ge=1)
    best_over: int = option(2, "validations whose mean says how good a checkpoint is; RUN@best is the best one", ge=1)
    early_stop: int = option(0, "end after so many validations in a row that were no new best; 0: never", ge=0)
    resume: str = option("", "empty: fresh; latest; RUN, RUN@best, RUN@N or a global_step_N, of this project's runs")
    resume_changed: bool = option(False, "resume although model, data, database or training settings are not the run's")
    runs_dir: str = option("runs", "parent of run folders; relative paths start at the project root")
    seed: int = option(1, "seed of sampling (with step, question and call)", ge=0, lt=1 << 32)

    @property
    def n_ranks(self) -> int:
        """Processes of the update: a GPU each."""
        return self.n_nodes * self.n_gpus

    @property
    def runs(self) -> Path:
        """The parent of run folders."""
        return HOME / Path(self.runs_dir).expanduser()

    @property
    def in_bf16(self) -> bool:
        """Whether passes through the model are in bfloat16, around weights and moments in float32."""
        return self.precision == "bfloat16" or (self.precision == "auto" and self.device != "cpu")


class LocalConfig(Node):
    """Training in one process."""

    max_batch: int = option(96, "LLM calls that are answered together; fewer need less memory", ge=1)
    quantization: Literal["none", "nf4"] = option(
        "none", "nf4: weights in 4 bits (NF4, quantised twice), with LoRA; needs bitsandbytes"
    )
    optimizer: Literal["adamw", "adamw_8bit"] = option("adamw", "adamw_8bit: 8-bit moments; needs GPU, bitsandbytes")


class StoreConfig(Node):
    """Where rollouts and spans live."""

    external_address: str = option("", "http://host:port of `agentgrpo store` or `agl store`; empty: managed")
    mongo_uri: str = option("", "MongoDB of a managed store, or '$NAME' of a variable; empty: the run's rollouts.db")
    patience_s: float = option(60.0, "how long requests wait for a store that is away, and may be started again", ge=0)
    keep_spans: int = option(
        4, "the store deletes spans of ended rollouts this many steps and validations after theirs; 0: never", ge=0
    )
    port: int = option(0, "port of the managed store; 0: a free one (with `AGL_CURRENT_ROLE` 4747)", ge=0, le=65535)
    proxy_host: str = option("127.0.0.1", "interface of the LLM proxy; for runners elsewhere, with AGL_STORE_TOKEN")
    proxy_port: int = option(0, "port of the LLM proxy; 0: a free one", ge=0, le=65535)

    def port_in(self, role: str) -> int:
        """Where the managed store listens; 0: anywhere, as no process but this one's has to know."""
        return self.port or (0 if role == "both" else 4747)


class ServeConfig(Node):
    """The agent behind an address."""

    vote: int = option(0, "answers drawn per question; one with the result set of most is sent; 0: one", ge=0)
    keep: str = option("", "file for conversations and feedback, for [agentgrpo curate traffic](45-curate.md#traffic)")


class LoggingConfig(Node):
    """Where metrics go besides the run folder."""

    trackers: list[Literal["console", "wandb", "swanlab", "tensorboard"]] = option(["console", "wandb"], "of verl")
    project: str = option("AgentGRPO", "project name in the trackers")
    experiment: str = option("sql_agent", "experiment name in the trackers; part of the run folder's name")
    audit: bool = option(True, "keep [audit.db](36-audit.md): what stands behind each reward and row")
    debug: bool = option(False, "DEBUG log level")
