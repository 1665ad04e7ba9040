"""Train a reward model on preference pairs with TRL's RewardTrainer: all weights, or LoRA.

    agentgrpo reward-model train --data converted.jsonl --model Qwen/Qwen2.5-0.5B-Instruct --out FOLDER
    accelerate launch --num_processes 2 reward_modeling.py ... --use_peft --lora_r 32

All flags of TRL's RewardConfig and ModelConfig are taken; below stand those of this script and the defaults it changes.
Guarantees: pickled weights and code of a model folder are refused; texts are encoded exactly as for scoring; no
prompt is on both sides of the validation split; a full output folder is left alone unless a run is resumed there.
Leaves in --output_dir: model, tokenizer, curves.png, metrics.json, README.md (the model card), checkpoint-N folders.
Not covered: quantised bases on a CPU, and sequence lengths that need context parallelism.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import typer
from accelerate import PartialState
from transformers import AutoModelForSequenceClassification, AutoTokenizer, HfArgumentParser
from transformers.trainer_utils import get_last_checkpoint
from trl.trainer.model_config import ModelConfig
from trl.trainer.reward_config import RewardConfig
from trl.trainer.reward_trainer import RewardTrainer
from trl.trainer.utils import get_peft_config

from foundation.errors import UserError
from foundation.files import write_text
from reward_model.card import plot_curves, write_card
from reward_model.encoding import Encoder
from reward_model.evaluation import pair_accuracy
from reward_model.folder import check_weights_folder
from reward_model.merge_lora import BASE_NOTE, base_note
from reward_model.pairs import Pair
from reward_model.scoring import RewardScorer
from reward_model.training_data import Loaded, load, tokenized

CARD_PAIRS = 2000


@dataclass
class Options:
    """The flags of this script itself."""

    dataset_name: str = field(metadata={"help": "pairs: a .jsonl file, a data set folder, or a hub name"})
    dataset_split: str = field(default="train", metadata={"help": "split of a folder or hub name"})
    eval_dataset: str | None = field(default=None, metadata={"help": "pairs to validate on, instead of a share"})
    eval_share: float = field(default=0.1, metadata={"help": "share of the prompts held out for validation"})


@dataclass
class TrainingOptions(RewardConfig):
    """TRL's settings with other defaults: validate and save each epoch, no tracker, zero-centred scores."""

    output_dir: str | None = field(default="reward_model_output", metadata={"help": "folder of the result"})
    num_train_epochs: float = field(default=1.0, metadata={"help": "passes over the pairs"})
    max_length: int | None = field(default=2048, metadata={"help": "pairs with more tokens are left out"})
    center_rewards_coefficient: float | None = field(default=0.01, metadata={"help": "pulls the mean score to 0"})
    gradient_checkpointing: bool = field(default=False, metadata={"help": "less memory, slower"})
    eval_strategy: str = field(default="epoch", metadata={"help": "no, steps or epoch"})
    save_strategy: str = field(default="epoch", metadata={"help": "no, steps or epoch"})
    save_total_limit: int | None = field(default=2, metadata={"help": "checkpoints kept"})
    report_to: None | str | list[str] = field(default="none", metadata={"help": "wandb, swanlab, tensorboard or none"})
    seed: int = field(default=1, metadata={"help": "seed of head, order and validation split"})
    overwrite_output_dir: bool = field(default=False, metadata={"help": "train into a folder that is not empty"})
    resume_from_checkpoint: str | None = field(
        default=None, metadata={"help": "a checkpoint-N folder, or latest: the newest one in --output_dir"}
    )

    def __post_init__(self) -> None:
        if not torch.cuda.is_available() and not self.bf16:
            self.bf16, self.use_cpu = False, True
        super().__post_init__()


@dataclass
class ModelOptions(ModelConfig):
    """TRL's settings with the defaults that a reward model needs."""

    lora_task_type: str = field(default="SEQ_CLS", metadata={"help": "PEFT task type"})
    lora_modules_to_save: list[str] | None = field(
        default_factory=lambda: ["score"], metadata={"help": "modules trained in full beside the adapters"}
    )


def train(options: Options, settings: TrainingOptions, model_options: ModelOptions) -> dict[str, Any]:
    """Train, save and evaluate; returns what metrics.json holds. Raises UserError for wrong input."""
    checkpoint = _checkpoint(settings)
    base = _checked_base(model_options)
    tokenizer = AutoTokenizer.from_pretrained(base, revision=model_options.model_revision)
    encoder = Encoder(tokenizer, max_tokens=settings.max_length or sys.maxsize)
    data = load(
        options.dataset_name,
        split=options.dataset_split,
        eval_source=options.eval_dataset,
        eval_share=options.eval_share,
        seed=settings.seed,
    )
    train_set = tokenized(data.train, encoder, data.skipped[options.dataset_name])
    eval_set = tokenized(data.validation, encoder, data.skipped[options.eval_dataset or options.dataset_name])
    torch.manual_seed(settings.seed)  # the new head is random
    trainer = RewardTrainer(
        model=_load_base(base, model_options, trust_code=settings.trust_remote_code),
        args=settings,
        train_dataset=train_set,
        eval_dataset=eval_set,
        processing_class=tokenizer,
        peft_config=get_peft_config(model_options),
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    out = Path(settings.output_dir or "")
    trainer.save_model(str(out))
    # TRL writes its arguments as a pickle beside the weights; nothing here reads it.
    (out / "training_args.bin").unlink(missing_ok=True)
    metrics = _metrics(trainer, encoder, data, tokenizer.pad_token_id) if trainer.is_world_process_zero() else {}
    if metrics:
        write_text(out / "metrics.json", json.dumps(metrics, ensure_ascii=False, indent=1) + "\n")
        plot_curves(metrics["log"], out / "curves.png")
        lora, data_name = model_options.use_peft, options.dataset_name
        write_card(out / "README.md", metrics, base=base, data=data_name, lora=lora)
        if lora and Path(base).is_dir():  # which base the adapter belongs to
            write_text(out / BASE_NOTE, json.dumps(base_note(Path(base))) + "\n")
    trainer.accelerator.wait_for_everyone()
    return metrics


def _checkpoint(settings: TrainingOptions) -> str | None:
    """The checkpoint to continue from. Raises UserError when there is none, or the folder is taken."""
    out = Path(settings.output_dir or "")
    wanted = settings.resume_from_checkpoint
    newest = get_last_checkpoint(str(out)) if out.is_dir() else None
    if wanted in ("latest", "True", "true"):
        if not newest:
            raise UserError(f"--resume_from_checkpoint {wanted}: no checkpoint-N folder in {out}; leave the flag out")
        return newest
    if wanted:
        if not (Path(wanted) / "trainer_state.json").is_file():
            raise UserError(
                f"--resume_from_checkpoint {wanted}: no trainer_state.json there; give a checkpoint-N folder"
            )
        return wanted
    if out.is_dir() and any(out.iterdir()) and not settings.overwrite_output_dir:
        raise UserError(
            f"--out {out}: is not empty; name a new folder, or continue with --resume_from_checkpoint latest"
        )
    return None


def _checked_base(options: ModelOptions) -> str:
    """The model to start from; a local folder must be safe to load."""
    name = options.model_name_or_path
    if not name:
        raise UserError("--model is missing; give a model folder or a hub name")
    folder = Path(name)
    if folder.is_dir():
        check_weights_folder(folder)
        return str(folder.resolve())
    if folder.is_absolute() or name.startswith(("./", "../", "~")):
        raise UserError(f"--model {name}: no such folder; give one with config.json, or a hub name")
    return name


def _load_base(base: str, options: ModelOptions, *, trust_code: bool) -> Any:
    model = AutoModelForSequenceClassification.from_pretrained(
        base,
        num_labels=1,
        dtype=options.dtype or "float32",
        revision=options.model_revision,
        attn_implementation=options.attn_implementation,
        trust_remote_code=trust_code,
        use_safetensors=True,
    )
    model.config.use_cache = False
    return model


def _metrics(trainer: Any, encoder: Encoder, data: Loaded, pad_id: int) -> dict[str, Any]:
    model = trainer.accelerator.unwrap_model(trainer.model).eval()
    sample: list[Pair] = data.validation[:CARD_PAIRS]
    return {
        "pairs": {"train": len(data.train), "validation": len(data.validation)},
        "skipped": {source: dict(skipped.counts) for source, skipped in data.skipped.items()},
        "validation": pair_accuracy(RewardScorer(model, encoder, pad_id=pad_id), sample),
        "steps": trainer.state.global_step,
        "log": trainer.state.log_history,
    }


# What TRL calls the flags that have other names here.
TRL_NAMES = {
    "--model": "--model_name_or_path",
    "--data": "--dataset_name",
    "--out": "--output_dir",
    "--epochs": "--num_train_epochs",
    "--batch-size": "--per_device_train_batch_size",
    "--lr": "--learning_rate",
    "--lora": "--use_peft",
    "--lora-rank": "--lora_r",
}


def _of_trl(word: str) -> str:
    flag, equals, value = word.partition("=")
    return f"{TRL_NAMES.get(flag, flag)}{equals}{value}"


def command(context: typer.Context) -> None:
    """Train a reward model. All flags of TRL are taken: see --help."""
    main(context.args)


vars(command)["context_settings"] = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def main(words: list[str] | None = None) -> None:
    """Read the flags and train."""
    # The annotations of dataclasses in this module are texts; the parser resolves them itself.
    parser = HfArgumentParser((Options, TrainingOptions, ModelOptions), description="Train a reward model.")  # type: ignore[arg-type]
    options, settings, model_options = parser.parse_args_into_dataclasses(
        args=[_of_trl(word) for word in (sys.argv[1:] if words is None else words)]
    )
    try:
        metrics = train(options, settings, model_options)
    except UserError as exc:
        print(f"error: {exc}", file=sys.stderr)
        raise SystemExit(2) from exc
    if PartialState().is_main_process:
        validation = metrics["validation"]
        accuracy = f"{validation['accuracy']:.3f} on {validation['n']} validation pairs"
        print(f"pair accuracy {accuracy}; model: {settings.output_dir}")


if __name__ == "__main__":
    main()
