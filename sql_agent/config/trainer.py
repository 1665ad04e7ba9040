"""Sections `trainer`, `local`, `store` and `logging`: length, device, checkpoints, and what a run leaves where."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from sql_agent.config.node import Node
from sql_agent.config.paths import HOME


class TrainerConfig(Node):
    """Length, device, checkpoints."""

    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto: cuda where an NVIDIA driver answers"
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto",
        description="of passes through the model (weights and AdamW are float32); auto: bfloat16 on a GPU alone",
    )
    offload: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="weights and AdamW of the update wait in the machine's memory while vLLM samples (GPUs alone); "
        "auto: where they would not fit beside rollout.gpu_memory_utilization",
    )
    n_gpus: int = Field(default=1, ge=1, description="GPUs of a machine (or one pretended GPU on the CPU)")
    n_nodes: int = Field(
        default=1, ge=1, description="machines of the Ray at RAY_ADDRESS, each with n_gpus, that train and sample"
    )
    sequence_parallel: int = Field(
        default=1,
        ge=1,
        description="GPUs that share each row in the update (Ulysses); above 1 it needs model.attention = "
        "flash_attention_2",
    )
    epochs: int = Field(default=2, ge=1, description="passes over the training questions")
    max_steps: int = Field(default=0, ge=0, description="stop after this many steps; 0: as many as the epochs have")
    save_every: int = Field(default=20, ge=-1, description="steps between checkpoints, the last step too; -1: none")
    validate_every: int = Field(default=20, ge=-1, description="steps between validations; -1: none")
    validate_first: bool = Field(default=True, description="validate before the first step")
    keep_checkpoints: int = Field(default=2, ge=1, description="newest checkpoints that stay, beside the best (GRPO)")
    best_over: int = Field(
        default=2,
        ge=1,
        description="validations whose mean says how good a checkpoint is; RUN@best names the best one",
    )
    early_stop: int = Field(
        default=0, ge=0, description="end after so many validations in a row that were no new best; 0: never"
    )
    resume: str = Field(
        default="",
        description="empty: fresh; latest; RUN, RUN@best, RUN@N or a global_step_N folder, of this project's runs",
    )
    resume_changed: bool = Field(
        default=False, description="resume although model, data, database or training settings differ from the old run"
    )
    runs_dir: str = Field(default="runs", description="parent of run folders; relative paths start at the project root")
    seed: int = Field(
        default=1,
        ge=0,
        lt=1 << 32,
        description="seed of sampling (with step, question and call)",
    )

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

    max_batch: int = Field(default=96, ge=1, description="LLM calls that are answered together; fewer need less memory")
    quantization: Literal["none", "nf4"] = Field(
        default="none",
        description="nf4: weights in 4 bits (NF4, quantised twice), with LoRA; needs bitsandbytes",
    )
    optimizer: Literal["adamw", "adamw_8bit"] = Field(
        default="adamw", description="adamw_8bit: its moments in 8 bits; needs a GPU and bitsandbytes"
    )


class StoreConfig(Node):
    """Where rollouts and spans live."""

    external_address: str = Field(
        default="",
        description="http://host:port of a running `python -m agl_plugin.store` or `agl store`; empty: managed",
    )
    mongo_uri: str = Field(default="", description="MongoDB of a managed store; empty: rollouts.db of the run folder")
    patience_s: float = Field(
        default=60.0, ge=0, description="how long requests wait for a store that is away, and may be started again"
    )
    keep_spans: int = Field(
        default=4,
        ge=0,
        description="the store deletes spans of ended rollouts this many steps and validations after theirs; 0: never",
    )
    port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="port of the managed store; 0: a free one (4747 where `AGL_CURRENT_ROLE` names one half of a run)",
    )
    proxy_host: str = Field(
        default="127.0.0.1",
        description="interface of the LLM proxy; another one, for runners elsewhere, needs AGL_STORE_TOKEN",
    )
    proxy_port: int = Field(default=0, ge=0, le=65535, description="port of the LLM proxy; 0: a free one")

    def port_in(self, role: str) -> int:
        """Where the managed store listens; 0: anywhere, as no process but this one's has to know."""
        return self.port or (0 if role == "both" else 4747)


class LoggingConfig(Node):
    """Where metrics go besides the run folder."""

    trackers: list[Literal["console", "wandb", "swanlab", "tensorboard"]] = Field(
        default=["console", "wandb"], description="verl trackers"
    )
    project: str = Field(default="AgentGRPO", description="project name in the trackers")
    experiment: str = Field(
        default="sql_agent", description="experiment name in the trackers; part of the run folder's name"
    )
    audit: bool = Field(
        default=True, description="keep [audit.db](36-audit.md): what stands behind each reward and row"
    )
    debug: bool = Field(default=False, description="DEBUG log level")
