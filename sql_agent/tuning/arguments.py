"""The configuration -> the arguments of TRL's SFTConfig, DPOConfig and KTOConfig. Nothing is imported for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foundation.run_folder import CHECKPOINTS
from sql_agent.config import DpoConfig, LoggingConfig, TrainerConfig, TuneConfig

TRL_LOSS = {"dpo": "sigmoid", "ipo": "ipo", "kto": "kto"}


def trl_arguments(
    tune: TuneConfig, trainer: TrainerConfig, logging: LoggingConfig, *, run_dir: Path, steps: int
) -> dict[str, Any]:
    gpu = trainer.device == "cuda"
    schedule = "constant_with_warmup" if tune.lr_schedule == "constant" and tune.warmup_share else tune.lr_schedule
    shared = {
        "output_dir": str(run_dir / CHECKPOINTS),
        "logging_dir": str(run_dir / "tensorboard"),
        "report_to": [name for name in logging.trackers if name != "console"] or "none",
        "run_name": logging.experiment,
        "max_steps": steps,
        "per_device_train_batch_size": tune.batch_size,
        "gradient_accumulation_steps": tune.gradient_accumulation_steps,
        "learning_rate": tune.lr,
        "lr_scheduler_type": schedule,
        "warmup_ratio": tune.warmup_share,
        "weight_decay": tune.weight_decay,
        "max_grad_norm": tune.grad_clip,
        "optim": "adamw_torch",
        "bf16": trainer.in_bf16,
        "fp16": False,
        "use_cpu": not gpu,
        "gradient_checkpointing": gpu,
        "seed": trainer.seed,
        "logging_steps": 1,
        "save_strategy": "no" if trainer.save_every < 1 else "steps",
        "save_steps": max(1, trainer.save_every),
        # The order of all epochs is in the data set: with transformers' shuffling a run that is resumed within an
        # epoch other than its first gets the first epoch's order (seen with transformers 4.57).
        "train_sampling_strategy": "sequential",
        "remove_unused_columns": False,
        "dataloader_pin_memory": gpu,
        "disable_tqdm": True,
        "max_length": None,
    }
    if isinstance(tune, DpoConfig):
        return shared | {"loss_type": TRL_LOSS[tune.loss], "beta": tune.beta}
    return shared | {"completion_only_loss": False, "dataset_kwargs": {"skip_prepare_dataset": True}}
