"""Sections `sft` and `dpo`: learning from files instead of rollouts of the moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from sql_agent.config.node import Node, option


class TuneConfig(Node):
    """What `agentgrpo sft` and `agentgrpo dpo` share."""

    dataset: str = option("", "a file (.jsonl, .parquet), run or evaluation folder, hub name; empty: `data.train_file`")
    output_dir: str = option("", "new folder for the finished model, merged; empty: none")
    max_samples: int = option(0, "use the first so many conversations or pairs; 0: all", ge=0)
    epochs: int = option(3, "passes over the data", ge=1)
    max_steps: int = option(0, "stop after this many steps; 0: as many as the epochs have", ge=0)
    batch_size: int = option(1, "rows (pairs) per forward pass", ge=1)
    gradient_accumulation_steps: int = option(4, "forward passes per optimizer step", ge=1)
    lr: float = option(5e-5, "AdamW learning rate", gt=0)
    lr_schedule: Literal["constant", "linear", "cosine"] = option("linear", "constant, or falling to 0 over the run")
    warmup_share: float = option(0.0, "share of the steps in which the rate rises", ge=0, lt=1)
    weight_decay: float = option(0.0, "AdamW weight decay", ge=0)
    grad_clip: float = option(1.0, "gradient norm limit", gt=0)
    max_tokens: int = option(2048, "longer rows are left out and counted, never cut", ge=2)


class SftConfig(TuneConfig):
    """Supervised fine-tuning with `agentgrpo sft`."""

    min_reward: float = option(0.8, "of rollouts, those below this reward are not learned from")
    best_of: int = option(1, "of each question's rollouts, the best so many; 0: all", ge=0)


class DpoConfig(TuneConfig):
    """Learning from preferences with `agentgrpo dpo`."""

    lr: float = option(5e-6, "AdamW learning rate", gt=0)
    loss: Literal["dpo", "ipo", "kto"] = option("dpo", "TRL's loss: dpo is its `sigmoid`; kto takes 2 pairs or more")
    beta: float = option(0.1, "how strongly the policy is held to the start model", gt=0)
    margin: float = option(0.2, "of rollouts, those of one question make a pair from this difference of rewards", gt=0)
    pairs_per_question: int = option(4, "pairs of one question, or group, at most", ge=1)

    def problems(self) -> Iterator[str]:
        if self.loss == "kto" and self.batch_size < 2:
            yield (
                f"dpo.batch_size = {self.batch_size}: kto estimates how far the policy has moved from prompts with "
                "what other rows of the batch say; give 2 or more pairs"
            )
