"""The whole tree, and the rules that hold between its sections."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from sql_agent.config.agent import AgentConfig
from sql_agent.config.agents import check_agent_tree, unknown_agent
from sql_agent.config.data import DataConfig
from sql_agent.config.database import DatabaseConfig
from sql_agent.config.health import HealthConfig
from sql_agent.config.model import ModelConfig
from sql_agent.config.node import Node, option
from sql_agent.config.optim import OptimConfig
from sql_agent.config.python import PythonConfig
from sql_agent.config.reward import RewardConfig
from sql_agent.config.rollout import RolloutConfig
from sql_agent.config.serve import ServeConfig
from sql_agent.config.trainer import LocalConfig, LoggingConfig, StoreConfig, TrainerConfig
from sql_agent.config.tune import DpoConfig, SftConfig


class AgentTree(Node):
    """What plays and grades: the sections that an agent has of its own, how models are asked, and further agents.

    One agent alone is a tree without `agents`.
    """

    agent: AgentConfig = AgentConfig()
    agents: dict[str, dict[str, Any]] = option(
        {},
        "[further agents](15-training.md#several-tasks-in-one-run) by a name of your own, which rows of "
        "data say in the column `agent`: what each changes of `agent`, `reward`, `database` and `python`",
    )
    database: DatabaseConfig = DatabaseConfig()
    python: PythonConfig = PythonConfig()
    reward: RewardConfig = RewardConfig()
    rollout: RolloutConfig = RolloutConfig()

    def but(self, **sections: dict[str, Any]) -> Self:
        """The same with keys of sections as the program decided them; nobody's input, so not validated again."""
        changed = {name: getattr(self, name).model_copy(update=keys) for name, keys in sections.items()}
        return self.model_copy(update=changed)


class TrainConfig(AgentTree):
    """The whole run."""

    recipe: str = option("", "name of the recipe this configuration started from")
    method: Literal["grpo", "sft", "dpo"] = option("grpo", "whose configuration this is: `agentgrpo train`, sft or dpo")
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    optim: OptimConfig = OptimConfig()
    sft: SftConfig = SftConfig()
    dpo: DpoConfig = DpoConfig()
    local: LocalConfig = LocalConfig()
    health: HealthConfig = HealthConfig()
    trainer: TrainerConfig = TrainerConfig()
    store: StoreConfig = StoreConfig()
    serve: ServeConfig = ServeConfig()
    logging: LoggingConfig = LoggingConfig()
    verl: dict[str, Any] = option({}, "keys of verl itself, passed on to it: [see below](#verls-own-keys)")

    @property
    def is_tiny(self) -> bool:
        """Whether the run trains the tiny policy: no GPU, and no model named."""
        return self.trainer.device == "cpu" and not self.model.path

    @property
    def run_name(self) -> str:
        """What the run's folder is called, after the time."""
        return f"{self.recipe or self.method}-{self.logging.experiment}"

    @property
    def tune(self) -> SftConfig | DpoConfig:
        """[sft] or [dpo]."""
        return self.sft if self.method == "sft" else self.dpo

    @property
    def passes(self) -> int:
        """How often the training data are gone over: no stored rollout is used more than data.from_store_uses times."""
        epochs = self.tune.epochs if self.method in ("sft", "dpo") else self.trainer.epochs
        return min(epochs, self.data.from_store_uses) if self.data.from_store else epochs

    @property
    def trained_adapter(self) -> str:
        """The adapter that is trained on as it is; "" for all weights, a new adapter, and one that is merged."""
        return "" if self.merges_adapter else self.model.lora_adapter_path

    @property
    def merged_adapter(self) -> Path | None:
        """The adapter that goes into the start model."""
        return Path(self.model.lora_adapter_path).expanduser().resolve() if self.merges_adapter else None

    @property
    def merges_adapter(self) -> bool:
        """Whether the adapter to continue from goes into the start model, with which KL and preferences compare."""
        compares = self.method == "dpo" or (self.method == "grpo" and self.optim.kl_coef > 0)
        return bool(self.model.lora_adapter_path) and compares

    @model_validator(mode="after")
    def _agents_fit(self) -> TrainConfig:
        """Names and sections of agents, and the names that files of questions give."""
        for name, tree in self.agents.items():
            check_agent_tree(name, tree)
        for key in ("train_files", "val_files"):
            for entry in getattr(self.data, key):
                if entry.agent and entry.agent not in self.agents:
                    problem = unknown_agent(entry.agent, self.agents)
                    raise ValueError(f"data.{key}: {entry.file!r} has agent = {entry.agent!r}: {problem}")
        return self

    @model_validator(mode="after")
    def _sampling_fits(self) -> TrainConfig:
        """What the sampler tells, what stopping early needs, and the keys of the gateway."""
        rollout = self.rollout
        if self.optim.importance_correction != "off" and not rollout.sampler_logprobs:
            raise ValueError(
                f"optim.importance_correction = {self.optim.importance_correction} needs what vLLM says of its tokens: "
                "set rollout.sampler_logprobs = true"
            )
        trainer = self.trainer
        if trainer.early_stop and min(trainer.save_every, trainer.validate_every) <= 0:
            raise ValueError(
                f"trainer.early_stop = {trainer.early_stop} needs validations and checkpoints: set "
                "trainer.validate_every and trainer.save_every above 0"
            )
        if rollout.calls_per_engine and rollout.proxy != "gateway":
            raise ValueError(
                f"rollout.calls_per_engine = {rollout.calls_per_engine} is the gateway's, and rollout.proxy = "
                f"{rollout.proxy} has no such limit: leave it out, or set rollout.proxy = gateway"
            )
        if rollout.gateways != "one" and (rollout.proxy != "gateway" or trainer.n_nodes == 1):
            raise ValueError(
                f"rollout.proxy = {rollout.proxy}, trainer.n_nodes = {trainer.n_nodes}: rollout.gateways = "
                f"{rollout.gateways} needs rollout.proxy = gateway and several machines; leave it at one"
            )
        return self

    @model_validator(mode="after")
    def _async_groups_fit(self) -> TrainConfig:
        """What rollouts that outlive their step need."""
        rollout = self.rollout
        if rollout.async_groups:
            for key, wrong, remedy in (
                ("rollout.proxy", rollout.proxy != "gateway", "gateway, which tells the weights of each call"),
                ("rollout.resample_flat_groups", rollout.resample_flat_groups > 0, "0: steps do not wait for groups"),
                ("data.curriculum.on", self.data.curriculum.on, "false: questions are drawn before rewards are known"),
                (
                    "optim.importance_correction",
                    self.optim.importance_correction == "off",
                    "truncated or masked: older weights sampled than are trained",
                ),
            ):
                if wrong:
                    raise ValueError(
                        f"rollout.async_groups = {rollout.async_groups} needs {key} = {remedy}. Set that, or "
                        "async_groups = 0"
                    )
        elif rollout.max_staleness != RolloutConfig().max_staleness:
            raise ValueError(
                f"rollout.max_staleness = {rollout.max_staleness} has nothing to bound, because rollout.async_groups "
                "is 0: set that above 0, or leave max_staleness out"
            )
        return self

    @model_validator(mode="after")
    def _advantages_fit(self) -> TrainConfig:
        """What a way of computing advantages needs of the rollouts."""
        rollout = self.rollout
        if rollout.has_penalties and self.optim.importance_correction == "off":
            raise ValueError(
                f"rollout.presence_penalty = {rollout.presence_penalty:g} and rollout.frequency_penalty = "
                f"{rollout.frequency_penalty:g} need optim.importance_correction = truncated: what they sample is by "
                "intention not the policy that is trained, and nothing else weighs the difference. For better answers "
                "alone set them in rollout.validation and rollout.evaluation"
            )
        if self.optim.advantage == "reinforce++" and rollout.resample_flat_groups:
            raise ValueError(
                f"rollout.resample_flat_groups = {rollout.resample_flat_groups} must be 0 with optim.advantage = "
                "reinforce++: it compares with the whole step, so a group whose rewards are equal teaches too. Set it "
                "to 0, or take optim.advantage = group"
            )
        by_turn = {"optim.credit": self.optim.credit != "rollout", "optim.turn_shaping": self.optim.turn_shaping > 0}
        for key, is_set in by_turn.items():
            if is_set and rollout.level != "transition":
                raise ValueError(
                    f"{key} gives turns of a rollout advantages of their own, and with rollout.level = "
                    f"{rollout.level} they share a row: set rollout.level = transition, or leave {key} out"
                )
            if is_set and self.agent.match:
                raise ValueError(
                    f"{key} numbers turns by the calls that are trained, and agent.match leaves some out: leave one of "
                    "the two out"
                )
        if self.optim.teacher.startswith("http") and rollout.temperature != 1:
            raise ValueError(
                f"optim.teacher = {self.optim.teacher} tells log-probabilities at temperature 1, and "
                f"rollout.temperature = {rollout.temperature:g}: set that to 1"
            )
        if self.optim.credit == "phases" and self.optim.advantage == "reinforce++":
            raise ValueError(
                "optim.credit = phases compares within a group, and optim.advantage = reinforce++ with the whole step: "
                "take optim.advantage = group, or leave optim.credit out"
            )
        return self

    @model_validator(mode="after")
    def _temperature_and_lengths_fit(self) -> TrainConfig:
        """A temperature that can be trained with, and rows that hold what is sampled."""
        rollout = self.rollout
        if rollout.temperature == 0:
            raise ValueError(
                "rollout.temperature = 0 must be above 0: a question's rollouts would be the same, and the trainer "
                "divides by it. rollout.validation has a temperature of its own; set rollout.temperature = 1.0"
            )
        if rollout.level == "trajectory" and rollout.trajectory_max_response_tokens < rollout.max_response_tokens:
            raise ValueError(
                f"rollout.trajectory_max_response_tokens = {rollout.trajectory_max_response_tokens} must not be below "
                f"rollout.max_response_tokens = {rollout.max_response_tokens}: a single answer would be cut"
            )
        if rollout.max_model_len > rollout.row_tokens:
            raise ValueError(
                f"rollout.max_model_len = {rollout.max_model_len} must not exceed the {rollout.row_tokens} tokens of a "
                f"training row (level {rollout.level}): what is sampled beyond them could not be trained. Raise "
                "rollout.trajectory_max_response_tokens, or rollout.max_prompt_tokens with level transition"
            )
        return self

    @model_validator(mode="after")
    def _stored_rollouts_fit(self) -> TrainConfig:
        """What needs rollouts of the moment, or other data."""
        optim, rollout, data = self.optim, self.rollout, self.data
        if not data.from_store:
            return self
        if self.method in ("sft", "dpo"):
            dataset = f"{self.method}.dataset"
            rules = [(dataset, self.tune.dataset, "empty: stored rollouts are the data")]
        else:
            rules = [
                ("data.train_files", data.train_files, "[]: stored rollouts are the data"),
                ("data.curriculum.on", data.curriculum.on, "false: what was not solved cannot be asked again"),
                ("rollout.resample_flat_groups", rollout.resample_flat_groups, "0: nothing is sampled"),
                ("rollout.async_groups", rollout.async_groups, "0: nothing is sampled"),
                ("optim.teacher", optim.teacher, "empty: a teacher corrects what the policy itself would say"),
                (
                    "optim.importance_correction",
                    optim.importance_correction == "off",
                    "truncated or masked: other weights sampled than are trained",
                ),
            ]
        for key, wrong, remedy in rules:
            if wrong:
                raise ValueError(f"data.from_store = {data.from_store} needs {key} = {remedy}. Set that")
        return self

    @model_validator(mode="after")
    def _batches_divide(self) -> TrainConfig:
        """verl asserts these in a worker, minutes later."""
        optim, rows = self.optim, self.optim.mini_batch_questions * self.rollout.group_size
        if optim.mini_batch_questions > optim.questions_per_step:
            raise ValueError(
                f"optim.mini_batch_questions = {optim.mini_batch_questions} must not exceed optim.questions_per_step = "
                f"{optim.questions_per_step}"
            )
        if optim.questions_per_step * self.rollout.group_size % self.trainer.n_ranks:
            raise ValueError(
                f"optim.questions_per_step x rollout.group_size = {optim.questions_per_step * self.rollout.group_size} "
                f"must be a multiple of trainer.n_nodes x trainer.n_gpus = {self.trainer.n_ranks}"
            )
        if self.trainer.device == "cpu" and self.trainer.offload == "always":
            raise ValueError('trainer.offload = "always" needs a GPU: on a CPU there is no second memory; leave it out')
        packs = self.trainer.device != "cpu" and self.model.attention == "flash_attention_2"
        if self.trainer.sequence_parallel > 1 and not packs:
            raise ValueError(
                f"trainer.sequence_parallel = {self.trainer.sequence_parallel} needs a GPU and model.attention = "
                "flash_attention_2, which takes rows without padding: set that, or leave it at 1"
            )
        if rows % (optim.micro_batch_rows * self.trainer.n_ranks):
            raise ValueError(
                f"optim.mini_batch_questions x rollout.group_size = {rows} must be a multiple of "
                f"optim.micro_batch_rows x trainer.n_nodes x trainer.n_gpus = "
                f"{optim.micro_batch_rows * self.trainer.n_ranks}"
            )
        return self
