"""hello_agents.rl: data sets, rewards and trainers."""

from __future__ import annotations

import functools
import importlib.util
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from sql_agent.api import create_reward, evaluate_rewards, export, load_dataset, register_dataset, train
from sql_agent.api.jobs import for_word_problems, sft
from sql_agent.api.rewards import Accuracy, RewardFunction, accuracy_of, final_answer
from sql_agent.api.runs import Run

__all__ = ["evaluate_rewards"]
TRL_AVAILABLE = importlib.util.find_spec("trl") is not None
GSM8K = "gsm8k"
Rows = list[dict[str, Any]]
_saved: set[Path] = set()  # model folders that this process wrote


@dataclass
class TrainingConfig:
    """What the trainers below take."""

    model_name: str
    output_dir: str = "./output"
    num_train_epochs: int = 3
    per_device_train_batch_size: int = 4
    learning_rate: float = 5e-5
    use_lora: bool = True
    lora_r: int = 16
    lora_alpha: int = 32


def create_sft_dataset(max_samples: int | None = None, split: str = "train") -> Rows:
    """GSM8K, or what is registered under that name, as prompts and completions."""
    return load_dataset(GSM8K, format="sft", split=split, max_samples=max_samples)


def create_rl_dataset(max_samples: int | None = None, split: str = "train", model_name: str | None = None) -> Rows:
    """GSM8K, or what is registered under that name, as prompts and truths."""
    return load_dataset(GSM8K, format="rl", split=split, max_samples=max_samples, model=model_name)


def _on(kind: str, base: RewardFunction | None = None, **parameters: Any) -> RewardFunction:
    return create_reward(kind, **({"base": base} if base else {}), **parameters)


create_accuracy_reward = functools.partial(create_reward, "accuracy")
create_length_penalty_reward = functools.partial(_on, "length_penalty")
create_step_reward = functools.partial(_on, "step")


class MathRewardFunction(Accuracy):
    def extract_answer(self, text: str) -> str:
        return final_answer(text)

    def compare_answers(self, answer: str, truth: str) -> bool:
        return accuracy_of(answer, truth) == 1.0


class _Trainer:
    run: Run | None = None

    def __init__(self, config: TrainingConfig, dataset: Sequence[dict[str, Any]], **_: Any) -> None:
        self.config = config
        self._name = f"{type(self).__name__}-{id(dataset)}"
        register_dataset(self._name, dataset)

    def _model(self) -> str:
        name = self.config.model_name
        return str(Path(name).resolve()) if Path(name).exists() else name

    @property
    def _adapter(self) -> dict[str, Any]:
        """Keys of the adapter; {} for all weights."""
        c = self.config
        return {"model.lora_rank": c.lora_r, "model.lora_alpha": c.lora_alpha} if c.use_lora else {}

    def save_model(self, path: str | Path = "") -> Path:
        """Write the trained model as a folder. Raises UserError before `train`."""
        if self.run is None:
            raise UserError("save_model: train first")
        out = Path(path or self.config.output_dir).absolute()
        if out in _saved or (out.exists() and not any(out.iterdir())):  # two trainers of one config save to one folder
            shutil.rmtree(out, ignore_errors=True)
        model = export(self.run, out)
        _saved.add(out)
        return model


class SFTTrainerWrapper(_Trainer):
    def train(self) -> Run:
        c = self.config
        keys: dict[str, Any] = {"sft.epochs": c.num_train_epochs, "sft.batch_size": c.per_device_train_batch_size}
        keys |= {"sft.lr": c.learning_rate, **self._adapter}
        self.run = sft(model=self._model(), dataset=self._name, use_lora=c.use_lora, **keys)
        return self.run


class GRPOTrainerWrapper(_Trainer):
    def __init__(
        self, config: TrainingConfig, dataset: Sequence[dict[str, Any]], reward_fn: RewardFunction | None = None
    ) -> None:
        super().__init__(config, dataset)
        self._reward = reward_fn or create_reward("accuracy")

    def train(self) -> Run:
        c, n = self.config, self.config.per_device_train_batch_size
        sizes = ("optim.questions_per_step", "optim.mini_batch_questions", "optim.micro_batch_rows")
        keys: dict[str, Any] = for_word_problems(self._name) | dict.fromkeys(sizes, n) | self._adapter
        keys |= {"optim.lr": c.learning_rate, "trainer.epochs": c.num_train_epochs}
        self.run = train(model=self._model(), dataset=self._name, reward=self._reward, **keys)
        return self.run
