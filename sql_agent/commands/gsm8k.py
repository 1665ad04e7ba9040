"""train_gsm8k_agent.py and test_interactive.py: `agentgrpo train --backend local` and `chat`, for word problems."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from typer import Option

from foundation import console, gpus, run_folder
from foundation.command import with_flags
from foundation.console import log_warnings
from foundation.errors import UserError
from foundation.files import read_object, write_json
from foundation.run_folder import step_folder
from sql_agent.commands.ask import ChatFlags, talk_with
from sql_agent.commands.export import export_checkpoint
from sql_agent.config import TrainConfig, build_config, command_tree, commands, load_recipe, nested
from sql_agent.data.dataset import load_questions
from sql_agent.data.named import question_file
from sql_agent.local.job import run_local
from sql_agent.run_report.file import report_line
from sql_agent.training import options

NOTE = "run.json"  # beside the epochs: of which run and recipe they are
TINY_RECIPE, RECIPE, DATASET = "math_cpu", "math_gsm8k", "gsm8k"
KEYS = {
    "group_size": "rollout.group_size",
    "max_tokens": "rollout.max_response_tokens",
    "epochs": "trainer.epochs",
    "lr": "optim.lr",
}


@dataclass(frozen=True)
class Flags:
    """The command line. What is None says nothing."""

    model: Annotated[str, Option(help="folder or hub name (default: the recipe's; without a GPU the tiny policy)")] = ""
    data: Annotated[
        str, Option(help=f"{DATASET}, a question file, or a hub name (default: {DATASET}; the tiny policy's problems)")
    ] = ""
    max_samples: Annotated[int | None, Option(help="use the first so many questions (default: all)")] = None
    group_size: Annotated[int | None, Option(help="rollouts per question (default: the recipe's)")] = None
    max_tokens: Annotated[int | None, Option(help="longest answer of one model call (default: the recipe's)")] = None
    epochs: Annotated[int, Option(help="passes over the questions")] = 3
    batch_size: Annotated[int | None, Option(help="rollouts per forward pass (default: the recipe's)")] = None
    gradient_accumulation_steps: Annotated[
        int | None, Option(help="forward passes per step (default: by the recipe's step)")
    ] = None
    lr: Annotated[float | None, Option(help="AdamW learning rate (default: the recipe's)")] = None
    out: Annotated[Path, Option(help="gets epoch_1, epoch_2 ...")] = Path("outputs/Qwen2.5-0.5B/rl")
    lora: Annotated[bool, Option("--lora", help="train LoRA adapters; the epochs are merged")] = False
    recipe: Annotated[str, Option(help=f"settings (default: {RECIPE}; {TINY_RECIPE} for the tiny policy)")] = ""
    set_: Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help="set any key")] = None
    debug: Annotated[bool, Option("--debug", help="DEBUG log, and everything on the console")] = False


def resolve_config(flags: Flags) -> TrainConfig:
    """defaults < recipe < flags < --set. Raises UserError."""
    cpu = not gpus.gpu_count()
    recipe = flags.recipe or (TINY_RECIPE if cpu and not flags.model else RECIPE)
    file = str(_questions(flags, recipe))
    keys = {"model.path": flags.model} if flags.model else {}
    keys |= {"data.train_file": file, "data.val_file": file, "logging.debug": flags.debug}
    keys |= {"trainer.device": "cpu" if cpu else "cuda"} | _step(flags, recipe, n=len(load_questions(Path(file))))
    keys |= {key: value for name, key in KEYS.items() if (value := getattr(flags, name)) is not None}
    keys |= {"trainer.max_steps": 0, "trainer.validate_first": False, "trainer.validate_every": -1}
    keys |= {"rollout.rollout_timeout_s": 3600, "logging.trackers": ["console"]}
    keys_of_flags = command_tree(commands.LOCAL, flags.set_ or [], recipe=recipe, flags=nested(keys))
    return options.configured(keys_of_flags, recipe=recipe, lora=flags.lora)


def _questions(flags: Flags, recipe: str) -> Path:
    if flags.max_samples is not None and flags.max_samples < 1:
        raise UserError(f"--max-samples {flags.max_samples}: must be at least 1; leave it out for all questions")
    recipe_file = load_recipe(recipe).get("data", {}).get("train_file", "")
    name = flags.data or (recipe_file if Path(recipe_file).is_file() else DATASET)
    return question_file(name, max_samples=flags.max_samples)


def _step(flags: Flags, recipe: str, *, n: int) -> dict[str, int]:
    """How many questions make a step and rows a pass, and the epochs' checkpoints: a step never has more than `n`."""
    base = build_config(load_recipe(recipe))
    group = flags.group_size or base.rollout.group_size
    rows = flags.batch_size or base.optim.micro_batch_rows
    passes = flags.gradient_accumulation_steps
    wanted = max(1, rows * passes // group) if passes else base.optim.questions_per_step
    questions = max(1, min(wanted, n))
    return {
        "optim.questions_per_step": questions,
        "optim.mini_batch_questions": questions,
        "optim.micro_batch_rows": math.gcd(questions * group, rows),
        "trainer.save_every": max(1, n // questions),
        "trainer.keep_checkpoints": max(2, flags.epochs),
    }


def train(flags: Flags, terminal: Console) -> tuple[int, Path]:
    """Train, and write the model of each epoch. Returns the exit status and the run folder. Raises UserError."""
    config, out = resolve_config(flags), flags.out.expanduser().absolute()
    epochs = sorted(out.glob("epoch_*"))
    if epochs and not (out / NOTE).is_file():
        raise UserError(f"--out {out}: has {epochs[0].name}, which this command did not make; name a new folder")
    status, run_dir = run_local(config, terminal)
    checkpoints = run_dir / run_folder.CHECKPOINTS
    per_epoch = config.trainer.save_every
    steps = {n: step_folder(checkpoints, n * per_epoch) for n in range(1, config.trainer.epochs + 1)}
    saved = {n: step for n, step in steps.items() if step.is_dir()}
    if saved:  # an earlier training's epochs go; their run keeps the checkpoints
        if epochs:
            names = ", ".join(path.name for path in epochs)
            terminal.print(f"{out}: replacing {names} of an earlier training")
        for path in epochs:
            shutil.rmtree(path)
        write_json(out / NOTE, {"run": str(run_dir), "recipe": config.recipe})
    for n, step in saved.items():
        export_checkpoint(step, out / f"epoch_{n}")
        terminal.print(f"model: {out / f'epoch_{n}'}", markup=False)
    return status, run_dir


def recipe_of(model: Path) -> str:
    """The recipe that an epoch's model was trained with; the one for GSM8K for other models."""
    return read_object(model.absolute().parent / NOTE).get("recipe", RECIPE)


@with_flags(Flags)
def train_gsm8k(flags: Flags) -> int:
    """Train an agent that solves word problems with a calculator and Python: GRPO in one process, the math recipe.

    \b
    python train_gsm8k_agent.py                            the tiny policy, problems that come along
    python train_gsm8k_agent.py --model_path MODEL --dataset gsm8k --total_epochs 3 --output_dir OUT

    The model after each epoch is the folder OUT/epoch_N, and test_interactive.py talks to it. `gsm8k` is the hub's, or
    a folder gsm8k/ with train.jsonl in it; a file of questions does as well. There is no validation unless --set
    trainer.validate_every=20 --set data.val_file=FILE asks for it. docs/18-one-process.md has more.
    """
    log_warnings(debug=flags.debug)
    terminal = console.own_terminal()
    status, run_dir = train(flags, terminal)
    terminal.print(f"{report_line(run_dir)}\nrun: {run_dir}", markup=False)
    return status


def chat_gsm8k(
    model: Annotated[str, Option(help="model folder or hub name")],
    max_tokens: Annotated[int | None, Option(min=1, help="longest answer of one model call")] = None,
    temperature: Annotated[float, Option(min=0.0, max=2.0, help="0 is greedy")] = 0.0,
    recipe: Annotated[str, Option(help="settings (default: those that the model was trained with here)")] = "",
) -> None:
    """Talk to a model that train_gsm8k_agent.py trained: `agentgrpo chat`, with the tools that it was trained with.

    \b
    python test_interactive.py --model_path outputs/Qwen2.5-0.5B/rl/epoch_1
    """
    recipe = recipe or recipe_of(Path(model))
    sets = ["trainer.device=auto"]
    talk_with(ChatFlags(model=model, max_tokens=max_tokens, temperature=temperature, recipe=recipe, set_=sets))
