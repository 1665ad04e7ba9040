"""Train an agent that solves word problems with a calculator and Python: train_local.py with the math recipe.

  python train_gsm8k_agent.py                            the tiny policy, problems that come along
  python train_gsm8k_agent.py --model_path MODEL --dataset gsm8k --total_epochs 3 --output_dir OUT

GRPO in one process; the model after each epoch is the folder OUT/epoch_N, and test_interactive.py talks to it. `gsm8k`
is the hub's, or a folder gsm8k/ with train.jsonl in it; a file of questions does as well. There is no validation unless
--set trainer.validate_every=20 --set data.val_file=FILE asks for it. docs/18-one-process.md has more.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from pathlib import Path

try:
    from dotenv import load_dotenv
except ModuleNotFoundError as missing:
    raise SystemExit(f"error: {missing}; run `make setup`, then `source .venv/bin/activate`") from None

from rich.console import Console

from foundation import run_folder
from foundation.errors import UserError
from foundation.files import write_json
from sql_agent.api.datasets import question_file
from sql_agent.config import HOME, TrainConfig, build_config, load_recipe
from sql_agent.data.dataset import load_questions
from sql_agent.local.job import run_local
from sql_agent.serving import models
from sql_agent.serving.checkpoints import step_folder
from sql_agent.training import options
from sql_agent.tuning.command import run_to_end

NOTE = "run.json"  # beside the epochs: of which run and recipe they are
TINY_RECIPE, RECIPE, DATASET = "math_cpu", "math_gsm8k", "gsm8k"
FLAGS = {
    "samples_per_prompt": "rollout.group_size",
    "max_new_tokens": "rollout.max_response_tokens",
    "total_epochs": "trainer.epochs",
    "learning_rate": "optim.lr",
}


def parser() -> argparse.ArgumentParser:
    """The command line; flags may be written with dashes too."""
    p = argparse.ArgumentParser(
        prog="train_gsm8k_agent.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )

    def add(name: str, kind: type = str, default: object = None, *, help: str) -> None:
        flags = dict.fromkeys([f"--{name}", f"--{name.replace('_', '-')}"])
        p.add_argument(*flags, dest=name, type=kind, default=default, help=help)

    add("model_path", help="model folder or hub name (default: the recipe's; the tiny policy without a GPU)")
    add("dataset", help=f"{DATASET}, a question file, or a hub name (default: {DATASET}; the tiny policy's problems)")
    add("max_samples", int, help="use the first so many questions (default: all)")
    add("samples_per_prompt", int, help="rollouts per question (default: the recipe's)")
    add("max_new_tokens", int, help="longest answer of one model call, in tokens (default: the recipe's)")
    add("total_epochs", int, 3, help="passes over the questions (default: 3)")
    add("batch_size", int, help="rollouts per forward pass (default: the recipe's)")
    add("gradient_accumulation_steps", int, help="forward passes per step (default: by the recipe's step)")
    add("learning_rate", float, help="AdamW learning rate (default: the recipe's)")
    add("output_dir", default="outputs/Qwen2.5-0.5B/rl", help="gets epoch_1, epoch_2 ... (default: %(default)s)")
    p.add_argument("--use_lora", "--use-lora", action="store_true", help="train LoRA adapters; the epochs are merged")
    p.add_argument("--recipe", help=f"settings (default: {RECIPE}; {TINY_RECIPE} for the tiny policy)")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set any key")
    p.add_argument("--debug", action="store_true", help="DEBUG log, and everything on the console")
    return p


def resolve_config(args: argparse.Namespace) -> TrainConfig:
    """defaults < recipe < flags < --set. Raises UserError."""
    cpu = not models.gpu_count()
    recipe = args.recipe or (TINY_RECIPE if cpu and not args.model_path else RECIPE)
    file = _questions(args, recipe)
    sets = [f"trainer.device={'cpu' if cpu else 'cuda'}", *_step(args, recipe, n=len(load_questions(file)))]
    sets += [f"{key}={value}" for name, key in FLAGS.items() if (value := getattr(args, name)) is not None]
    sets += ["trainer.max_steps=0", "trainer.validate_first=false", "trainer.validate_every=-1"]
    sets += ["rollout.rollout_timeout_s=3600", 'logging.trackers=["console"]', *args.set]
    argv = ["--recipe", recipe, "--train-file", str(file), "--val-file", str(file)]
    argv += ["--model", args.model_path] if args.model_path else []
    argv += ["--lora"] * args.use_lora + ["--debug"] * args.debug
    argv += [word for text in sets for word in ("--set", text)]
    return options.resolve_config(options.parser(prog="train_local.py").parse_args(argv))


def _questions(args: argparse.Namespace, recipe: str) -> Path:
    if args.max_samples is not None and args.max_samples < 1:
        raise UserError(f"--max_samples {args.max_samples}: must be at least 1; leave it out for all questions")
    own = load_recipe(recipe).get("data", {}).get("train_file", "")
    name = args.dataset or (own if Path(own).is_file() else DATASET)
    return question_file(name, split="train", max_samples=args.max_samples)


def _step(args: argparse.Namespace, recipe: str, *, n: int) -> list[str]:
    """How many questions make a step and rows a pass, and the epochs' checkpoints: a step never has more than `n`."""
    base = build_config(load_recipe(recipe))
    group = args.samples_per_prompt or base.rollout.group_size
    rows = args.batch_size or base.optim.micro_batch_rows
    passes = args.gradient_accumulation_steps
    asked = max(1, rows * passes // group) if passes else base.optim.questions_per_step
    questions = max(1, min(asked, n))
    epochs = args.total_epochs
    return [
        *(f"optim.{key}={questions}" for key in ("questions_per_step", "mini_batch_questions")),
        f"optim.micro_batch_rows={math.gcd(questions * group, rows)}",
        f"trainer.save_every={max(1, n // questions)}",
        f"trainer.keep_checkpoints={max(2, epochs)}",
    ]


def train(config: TrainConfig, out: Path, terminal: Console) -> tuple[int, Path]:
    """Train, and write the model of each epoch. Returns the exit status and the run folder. Raises UserError."""
    epochs = sorted(out.glob("epoch_*"))
    if epochs and not (out / NOTE).is_file():
        raise UserError(f"--output_dir {out}: has {epochs[0].name}, which this command did not make; name a new folder")
    status, run_dir = run_local(config, terminal)
    checkpoints, per_epoch = run_dir / run_folder.CHECKPOINTS, config.trainer.save_every
    steps = {n: step_folder(checkpoints, n * per_epoch) for n in range(1, config.trainer.epochs + 1)}
    made = {n: step for n, step in steps.items() if step.is_dir()}
    if made:
        _replace(epochs, terminal)
        write_json(out / NOTE, {"run": str(run_dir), "recipe": config.recipe})
    for n, step in made.items():
        _export(step, out / f"epoch_{n}", terminal)
    return status, run_dir


def _replace(old: list[Path], terminal: Console) -> None:
    """Take an earlier training's epochs away; their run keeps the checkpoints."""
    if old:
        terminal.print(f"{old[0].parent}: replacing {', '.join(path.name for path in old)} of an earlier training")
    for path in old:
        shutil.rmtree(path)


def _export(step: Path, out: Path, terminal: Console) -> None:
    from sql_agent.export import export_checkpoint

    export_checkpoint(step, out)
    terminal.print(f"model: {out}", markup=False)


def recipe_of(model: Path) -> str:
    """The recipe that an epoch's model was trained with; the one for GSM8K for other models."""
    note = model.absolute().parent / NOTE
    return json.loads(note.read_text(encoding="utf-8"))["recipe"] if note.is_file() else RECIPE


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 the run failed, 2 wrong input, 130 interrupted."""
    args = parser().parse_args(argv)

    def work(terminal: Console) -> tuple[int, Path]:
        try:
            return train(resolve_config(args), Path(args.output_dir).expanduser().absolute(), terminal)
        except UserError as exc:
            raise UserError(str(exc).replace("--model ", "--model_path ", 1)) from exc

    return run_to_end(work, debug=args.debug)


if __name__ == "__main__":
    load_dotenv(HOME / ".env")
    sys.exit(main())
