"""Train a reward model on preference pairs with TRL's RewardTrainer: all weights, or LoRA.

    agentgrpo reward-model train --data converted.jsonl --model Qwen/Qwen2.5-0.5B-Instruct --out FOLDER
    accelerate launch --num_processes 2 reward_model/reward_modeling.py ... --use_peft --lora_r 32

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
from transformers import AutoModelForSequenceClassification, AutoTokenizer, HfArgumentParser
from transformers.trainer_utils import get_last_checkpoint
from trl.trainer.model_config import ModelConfig
from trl.trainer.reward_config import RewardConfig
from trl.trainer.reward_trainer import RewardTrainer
from trl.trainer.utils import get_peft_config

from foundation.command import alias
from foundation.errors import UserError
from foundation.files import write_text
from foundation.weights import share
from reward_model.card import plot_curves, write_card
from reward_model.encoding import Encoder
from reward_model.folder import check_weights_folder
from reward_model.merge_lora import BASE_NOTE, base_note
from reward_model.scoring import RewardScorer, pair_accuracy
from reward_model.training_data import Loaded, load, tokenized

CARD_PAIRS = 2000
USAGE = """agentgrpo reward-model train --data PAIRS --model MODEL [--out FOLDER] [--lora] [--lora-rank N]
                                    [--epochs N] [--batch-size N] [--lr F] [any flag below]"""
DESCRIPTION = (
    "Train a reward model. --resume_from_checkpoint latest goes on from the newest checkpoint in --out. The flags are "
    "TRL's; --data, --model, --out and the others above are short for some of them."
)


@dataclass
class Options:
    """The flags of this script itself."""

    dataset_name: str = field(metadata={"help": "pairs: a .jsonl file, a data set folder, or a hub name"})
    dataset_split: str = field(default="train", metadata={"help": "split of a folder or hub name"})
    eval_dataset: str | None = field(default=None, metadata={"help": "pairs to validate on, instead of a share"})
    eval_share: float = field(default=0.1, metadata={"help": "share of the prompts held out for validation"})
    overwrite_output_dir: bool = field(default=False, metadata={"help": "train into a folder that is not empty"})


# TRL's flags that have other defaults here: validate and save each epoch, no tracker, zero-centred scores, a new head.
DEFAULTS: dict[str, Any] = {
    "output_dir": "reward_model_output",
    "num_train_epochs": 1.0,
    "max_length": 2048,
    "center_rewards_coefficient": 0.01,
    "gradient_checkpointing": False,
    "eval_strategy": "epoch",
    "save_strategy": "epoch",
    "save_total_limit": 2,
    "report_to": "none",
    "seed": 1,
    "lora_task_type": "SEQ_CLS",
    "lora_modules_to_save": ["score"],
}


def train(options: Options, settings: RewardConfig, model_options: ModelConfig) -> dict[str, Any]:
    """Train, save and evaluate; returns what metrics.json holds. Raises UserError for wrong input."""
    checkpoint = _checkpoint(settings, overwrite=options.overwrite_output_dir)
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
    metrics = {}
    if trainer.is_world_process_zero():
        metrics = _metrics(trainer, encoder, data)
        _explain(out, metrics, data=options.dataset_name, base=base, lora=model_options.use_peft)
        share(out)
    trainer.accelerator.wait_for_everyone()
    return metrics


def _explain(out: Path, metrics: dict[str, Any], *, data: str, base: str, lora: bool) -> None:
    """Write what says of the model in `out` how it was made and how good it is."""
    write_text(out / "metrics.json", json.dumps(metrics, ensure_ascii=False, indent=1) + "\n")
    plot_curves(metrics["log"], out / "curves.png")
    write_card(out / "README.md", metrics, base=base, data=data, lora=lora)
    if lora and Path(base).is_dir():  # which base the adapter belongs to
        write_text(out / BASE_NOTE, json.dumps(base_note(Path(base))) + "\n")


def _checkpoint(settings: RewardConfig, *, overwrite: bool) -> str | None:
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
    if out.is_dir() and any(out.iterdir()) and not overwrite:
        raise UserError(
            f"--out {out}: is not empty; name a new folder, or continue with --resume_from_checkpoint latest"
        )
    return None


def _checked_base(options: ModelConfig) -> str:
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


def _load_base(base: str, options: ModelConfig, *, trust_code: bool) -> Any:
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


def _metrics(trainer: Any, encoder: Encoder, data: Loaded) -> dict[str, Any]:
    model = trainer.accelerator.unwrap_model(trainer.model).eval()
    return {
        "pairs": {"train": len(data.train), "validation": len(data.validation)},
        "skipped": {source: dict(skipped.counts) for source, skipped in data.skipped.items()},
        "validation": pair_accuracy(RewardScorer(model, encoder), data.validation[:CARD_PAIRS]),
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
    # The annotations of dataclasses in this module are texts; the parser resolves them itself.
    parser = HfArgumentParser((Options, RewardConfig, ModelConfig), usage=USAGE, description=DESCRIPTION)  # type: ignore[arg-type]
    parser.set_defaults(**DEFAULTS)
    if not torch.cuda.is_available():
        parser.set_defaults(bf16=False, use_cpu=True)
    words = [_of_trl(word) for word in context.args]
    options, settings, model_options, *unread = parser.parse_args_into_dataclasses(words, return_remaining_strings=True)
    if unread[0]:
        raise UserError(f"{' '.join(unread[0])}: no such flag; agentgrpo reward-model train --help lists them all")
    metrics = train(options, settings, model_options)
    if metrics:  # of the main process
        validation = metrics["validation"]
        accuracy = f"{validation['accuracy']:.3f} on {validation['n']} validation pairs"
        typer.echo(f"pair accuracy {accuracy}; model: {settings.output_dir}")


vars(command)["context_settings"] = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

if __name__ == "__main__":
    alias(command)
