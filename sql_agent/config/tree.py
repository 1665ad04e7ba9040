"""The whole tree, and the rules that hold between its sections."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Self, get_args

from sql_agent.config.agent import AgentConfig
from sql_agent.config.agents import check_agent_tree, unknown_agent
from sql_agent.config.data import DataConfig
from sql_agent.config.database import DatabaseConfig, PythonConfig
from sql_agent.config.health import HealthConfig
from sql_agent.config.losses import Advantage
from sql_agent.config.node import Node, option
from sql_agent.config.optim import OptimConfig
from sql_agent.config.reward import RewardConfig
from sql_agent.config.rollout import RolloutConfig
from sql_agent.config.trainer import LocalConfig, LoggingConfig, ModelConfig, ServeConfig, StoreConfig, TrainerConfig
from sql_agent.config.tune import DpoConfig, SftConfig

PENALISED = (
    "what they sample is by intention not the policy that is trained, and nothing else weighs that; for better answers "
    "alone set them in rollout.validation and rollout.evaluation"
)
WEIGHED = "truncated or masked"
IN_GROUPS = " or ".join(name for name in get_args(Advantage) if name != "reinforce++")
# A key that is set, another one that it depends on, the values which that may have, and why.
NEEDS = (
    ("optim.importance_correction", "rollout.sampler_logprobs", "true", "it reads what vLLM says of its tokens"),
    ("optim.credit", "optim.advantage", IN_GROUPS, "it compares within a group"),
    ("optim.credit", "rollout.level", "transition", "turns get advantages, and so rows, of their own"),
    ("optim.credit", "agent.match", "empty", "turns are numbered by the calls that are trained"),
    ("optim.turn_shaping", "rollout.level", "transition", "turns get advantages, and so rows, of their own"),
    ("optim.turn_shaping", "agent.match", "empty", "turns are numbered by the calls that are trained"),
    ("rollout.presence_penalty", "optim.importance_correction", WEIGHED, PENALISED),
    ("rollout.frequency_penalty", "optim.importance_correction", WEIGHED, PENALISED),
    ("rollout.calls_per_engine", "rollout.proxy", "gateway", "the limit is the gateway's"),
    ("rollout.gateways", "rollout.proxy", "gateway", "there is one LiteLLM"),
    ("rollout.resample_flat_groups", "optim.advantage", IN_GROUPS, "beside the whole step an even group teaches too"),
    ("rollout.async_groups", "rollout.proxy", "gateway", "it tells the weights of each call"),
    ("rollout.async_groups", "rollout.resample_flat_groups", "0", "steps do not wait for groups"),
    ("rollout.async_groups", "data.curriculum.on", "false", "questions are drawn before rewards are known"),
    ("rollout.async_groups", "optim.importance_correction", WEIGHED, "older weights sampled than are trained"),
    ("data.from_store", "data.train_files", "[]", "stored rollouts are the data"),
    ("data.from_store", "data.curriculum.on", "false", "what was not solved cannot be asked again"),
    ("data.from_store", "rollout.resample_flat_groups", "0", "nothing is sampled"),
    ("data.from_store", "rollout.async_groups", "0", "nothing is sampled"),
    ("data.from_store", "optim.teacher", "empty", "a teacher corrects what the policy itself would say"),
    ("data.from_store", "optim.importance_correction", WEIGHED, "other weights sampled than are trained"),
    ("data.from_store", "sft.dataset", "empty", "stored rollouts are the data"),
    ("data.from_store", "dpo.dataset", "empty", "stored rollouts are the data"),
)


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
        return "" if self.merged_adapter else self.model.lora_adapter_path

    @property
    def merged_adapter(self) -> Path | None:
        """The adapter to continue from where it goes into the start model, with which KL and preferences compare."""
        compares = self.method == "dpo" or (self.method == "grpo" and self.optim.kl_coef > 0)
        path = self.model.lora_adapter_path
        return Path(path).expanduser().resolve() if path and compares else None

    def problems(self) -> Iterator[str]:
        yield from self._agents_fit()
        yield from self._keys_go_together()
        yield from self._machines_and_validations_fit()
        yield from self._temperature_and_lengths_fit()
        yield from self._batches_divide()

    def _agents_fit(self) -> Iterator[str]:
        """Names and sections of agents, and the names that files of questions give."""
        for name, tree in self.agents.items():
            check_agent_tree(name, tree)
        for key in ("train_files", "val_files"):
            for entry in getattr(self.data, key):
                if entry.agent and entry.agent not in self.agents:
                    problem = unknown_agent(entry.agent, self.agents)
                    yield f"data.{key}: {entry.file!r} has agent = {entry.agent!r}: {problem}"

    def _keys_go_together(self) -> Iterator[str]:
        """What NEEDS says. Learning from files reads none of the keys of rollouts, and GRPO none of theirs."""
        ours = {self.method} if self.method in ("sft", "dpo") else set(TrainConfig.model_fields) - {"sft", "dpo"}
        for key, other, values, why in NEEDS:
            section, _, name = key.partition(".")
            value, default = self._value(key), getattr(TrainConfig.model_fields[section].default, name)
            is_read = value != default and other.partition(".")[0] in ours
            other_value = self._value(other)
            other_text = "empty" if other_value == "" else str(other_value).lower()  # as NEEDS has it
            if is_read and other_text not in values.split(" or "):
                yield f"{key} = {value} needs {other} = {values}: {why}. Set that, or leave {key} out"

    def _value(self, key: str) -> Any:
        return functools.reduce(getattr, key.split("."), self)

    def _machines_and_validations_fit(self) -> Iterator[str]:
        """What several machines, stopping early and a teacher elsewhere need."""
        rollout, trainer = self.rollout, self.trainer
        if trainer.early_stop and min(trainer.save_every, trainer.validate_every) <= 0:
            yield (
                f"trainer.early_stop = {trainer.early_stop} needs validations and checkpoints: set "
                "trainer.validate_every and trainer.save_every above 0"
            )
        if rollout.gateways != "one" and trainer.n_nodes == 1:
            yield f"rollout.gateways = {rollout.gateways} needs several machines (trainer.n_nodes); leave it at one"
        if self.optim.teacher.startswith("http") and rollout.temperature != 1:
            yield (
                f"optim.teacher = {self.optim.teacher} tells log-probabilities at temperature 1, and "
                f"rollout.temperature = {rollout.temperature:g}: set that to 1"
            )
        packs = trainer.device != "cpu" and self.model.attention == "flash_attention_2"
        if trainer.sequence_parallel > 1 and not packs:
            yield (
                f"trainer.sequence_parallel = {trainer.sequence_parallel} needs a GPU and model.attention = "
                "flash_attention_2, which takes rows without padding: set that, or leave it at 1"
            )

    def _temperature_and_lengths_fit(self) -> Iterator[str]:
        """A temperature that can be trained with, and rows that hold what is sampled."""
        rollout = self.rollout
        if rollout.temperature == 0:
            yield (
                "rollout.temperature = 0 must be above 0: a question's rollouts would be the same, and the trainer "
                "divides by it. rollout.validation has a temperature of its own; set rollout.temperature = 1.0"
            )
        if rollout.level == "trajectory" and rollout.trajectory_max_response_tokens < rollout.max_response_tokens:
            yield (
                f"rollout.trajectory_max_response_tokens = {rollout.trajectory_max_response_tokens} must not be below "
                f"rollout.max_response_tokens = {rollout.max_response_tokens}: a single answer would be cut"
            )
        if rollout.max_model_len > rollout.row_tokens:
            yield (
                f"rollout.max_model_len = {rollout.max_model_len} must not exceed the {rollout.row_tokens} tokens of a "
                f"training row (level {rollout.level}): what is sampled beyond them could not be trained. Raise "
                "rollout.trajectory_max_response_tokens, or rollout.max_prompt_tokens with level transition"
            )

    def _batches_divide(self) -> Iterator[str]:
        """verl asserts these in a worker, minutes later."""
        optim = self.optim
        rows = self.optim.mini_batch_questions * self.rollout.group_size
        if optim.mini_batch_questions > optim.questions_per_step:
            yield (
                f"optim.mini_batch_questions = {optim.mini_batch_questions} must not exceed optim.questions_per_step = "
                f"{optim.questions_per_step}: a mini-batch is a part of a step. Lower the one, or raise the other"
            )
        if optim.questions_per_step * self.rollout.group_size % self.trainer.n_ranks:
            yield (
                f"optim.questions_per_step x rollout.group_size = {optim.questions_per_step * self.rollout.group_size} "
                f"must be a multiple of trainer.n_nodes x trainer.n_gpus = {self.trainer.n_ranks}"
            )
        if self.trainer.device == "cpu" and self.trainer.offload == "always":
            yield 'trainer.offload = "always" needs a GPU: on a CPU there is no second memory; leave it out'
        if rows % (optim.micro_batch_rows * self.trainer.n_ranks):
            yield (
                f"optim.mini_batch_questions x rollout.group_size = {rows} must be a multiple of "
                f"optim.micro_batch_rows x trainer.n_nodes x trainer.n_gpus = "
                f"{optim.micro_batch_rows * self.trainer.n_ranks}"
            )
