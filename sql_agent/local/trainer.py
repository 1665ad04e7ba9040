"""TRL's GRPOTrainer on rollouts of this project's agent: the loss, the optimizer and the schedule are TRL's.

TRL generates single answers; here `_generate_and_score_completions`, which it calls once per step, plays episodes and
gives TRL's own tensors: rows and masks of agl_plugin.update.rows, an advantage per row, and with a KL term the
reference's log-probabilities.
Guarantees: each sampled token counts once, in a mean over all sampled tokens of the step (TRL's loss type "dapo", which
divides by their number); rows without advantage or mask move nothing, and a step of such rows alone is not made.
Formula of the advantage: (r - mean) / (std + 1e-6) of a question's scored rollouts, as in agl_plugin.update.advantage.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import pad

from agl_plugin.run.mixture import order
from agl_plugin.update.rows import Limits, Row, rows_of_turns
from agl_plugin.update.rules import REWARD_STEPS, in_reward_steps
from sql_agent.config import TrainConfig
from sql_agent.local.audit import usable
from sql_agent.local.rollouts import Played
from sql_agent.local.step import Step
from sql_agent.records import Question
from sql_agent.tuning.trainers import Resumable, lora_of

EPSILON = 1e-6


class EpisodeTrainer(Resumable, GRPOTrainer):
    """`step` plays and notes. Each question comes group_size times, in the order of the data set."""

    step: Step
    config: TrainConfig

    # Not that of Resumable: each question comes group_size times.
    def _get_train_sampler(self, *args: Any, **told: Any) -> Any:
        return GRPOTrainer._get_train_sampler(self, *args, **told)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Rows x tokens: prompts padded on the left, what followed on the right; `tool_mask` is 1 on sampled tokens."""
        questions = [Question.model_validate_json(row["question"]) for row in inputs]
        size = self.config.rollout.group_size
        numbered = [(n // size, question) for n, question in enumerate(questions)]
        model = self.accelerator.unwrap_model(self.model)
        played = self.step.play(model, numbered, step=self.state.global_step + 1)
        found = training_rows(played, self.config)
        self.step.batched(model, played, found)
        rows = [(row, advantage) for _, row, advantage in found if usable(row, limits_of(self.config))]
        self.step.has_signal = bool(rows and self.beta) or any(advantage for _, advantage in rows)
        token = found[0][1].prompt[0]
        nothing = (Row([token], response=[token], mask=[0]), 0.0)
        n_fills = -len(rows) % self.args.steps_per_generation if rows else self.args.steps_per_generation
        return self._with_reference(self._tensors([*rows, *[nothing] * n_fills]))

    def _tensors(self, rows: Sequence[tuple[Row, float]]) -> dict[str, Any]:
        device = self.accelerator.device
        prompts = [torch.tensor(row.prompt) for row, _ in rows]
        after = [torch.tensor(row.response) for row, _ in rows]
        masks = [torch.tensor(row.mask) for row, _ in rows]
        pad_id: Any = self._tokenizer.pad_token_id
        tensors = {
            "prompt_ids": pad(prompts, padding_value=pad_id, padding_side="left"),
            "prompt_mask": pad([torch.ones_like(ids) for ids in prompts], padding_value=0, padding_side="left"),
            "completion_ids": pad(after, padding_value=pad_id),
            "completion_mask": pad([torch.ones_like(ids) for ids in after], padding_value=0),
            "tool_mask": pad(masks, padding_value=0),
            "advantages": torch.tensor([advantage for _, advantage in rows], dtype=torch.float32),
            "num_items_in_batch": torch.tensor(float(max(1, sum(sum(row.mask) for row, _ in rows)))),
        }
        return {name: tensor.to(device) for name, tensor in tensors.items()}

    def _with_reference(self, tensors: dict[str, Any]) -> dict[str, Any]:
        if not self.beta:
            return tensors
        ids = torch.cat([tensors["prompt_ids"], tensors["completion_ids"]], dim=1)
        mask = torch.cat([tensors["prompt_mask"], tensors["completion_mask"]], dim=1)
        n, at_once = tensors["completion_ids"].shape[1], self.args.per_device_train_batch_size
        model = self.accelerator.unwrap_model(self.model)
        with torch.no_grad():
            if self.ref_model is not None:
                found, *_ = self._get_per_token_logps_and_entropies(self.ref_model, ids, mask, n, at_once)
            else:
                with model.disable_adapter():
                    found, *_ = self._get_per_token_logps_and_entropies(model, ids, mask, n, at_once)
        return {**tensors, "ref_per_token_logps": found}


class NoSignal(TrainerCallback):
    """A step whose advantages are all 0 changes no weight: AdamW's momentum would."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if not self._step.has_signal:
            for weight in model.parameters():
                weight.grad = None


def limits_of(config: TrainConfig) -> Limits:
    """The widest row."""
    return Limits(config.rollout.max_prompt_tokens, config.rollout.row_response_tokens)


def training_rows(played: Sequence[Played], config: TrainConfig) -> list[tuple[str, Row, float]]:
    """The rows of a step: whose they are, and their advantages; of scored rollouts whose question has at least two."""
    merge, limits = config.rollout.level == "trajectory", limits_of(config)
    groups: defaultdict[int, list[Played]] = defaultdict(list)
    for one in played:
        if one.reward is not None:
            groups[one.group].append(one)
    return [
        (one.row["rollout_id"], row, advantage)
        for members in groups.values()
        if len(members) > 1
        for one, advantage in zip(members, advantages([one.reward or 0.0 for one in members]), strict=True)
        for row in (_cut(row, limits) for row in rows_of_turns(one.turns, merge=merge, limits=limits))
    ]


def _cut(row: Row, limits: Limits) -> Row:
    end = slice(limits.response_tokens)
    return dataclasses.replace(row, response=row.response[end], mask=row.mask[end], log_probs=row.log_probs[end])


def advantages(rewards: Sequence[float]) -> list[float]:
    """Of one question's rollouts; exactly 0 where the rewards do not differ."""
    counted = [in_reward_steps(reward) / REWARD_STEPS for reward in rewards]
    mean, std = statistics.fmean(counted), statistics.stdev(counted)
    return [(reward - mean) / (std + EPSILON) for reward in counted]


def make_trainer(
    config: TrainConfig, model: Any, tokenizer: Any, questions: Sequence[Question], *, step: Step, args: dict[str, Any]
) -> EpisodeTrainer:
    """The trainer over the questions."""
    rows = [{"prompt": "", "question": question.model_dump_json()} for question in questions]
    data = Dataset.from_list(rows).select(order_of(questions, config))
    trainer = EpisodeTrainer(
        model,
        reward_funcs=_unused,  # pyright: ignore[reportArgumentType]
        args=GRPOConfig(**args),
        train_dataset=data,
        processing_class=tokenizer,
        peft_config=lora_of(config),
    )
    trainer.kept, trainer.step, trainer.config = config.trainer.keep_checkpoints, step, config
    trainer.tools = [_unused]  # TRL leaves what tools said out of its loss where it has tools
    trainer.add_callback(NoSignal(step))
    return trainer


def order_of(questions: Sequence[Question], config: TrainConfig) -> list[int]:
    """The questions of all epochs, ordered as in train_sql_agent.py; what does not fill a step is left out."""
    per_epoch = len(questions) - len(questions) % config.optim.questions_per_step
    files, weights = [question.file for question in questions], [one.weight for one in config.data.train_files]
    orders = [order(files, weights, seed=config.data.seed, epoch=epoch) for epoch in range(config.trainer.epochs)]
    return [n for places in orders for n in places[:per_epoch]]


def _unused(**_: Any) -> list[float]:
    raise NotImplementedError  # rewards come with the rollouts
