"""Build the tiny policy: tokenizer, wired initialisation, supervised warm start; cached by content.

    python -m sql_agent.tiny_policy.build --seed 1
    python -m sql_agent.tiny_policy.build --seed 1 --untrained --out FOLDER     without the warm start

Guarantees: the same seed, sources and machine type give the same weights; a folder appears complete or not at all. It
is an ordinary Hugging Face model folder (Qwen3ForCausalLM, safetensors, chat template) without code of its own.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from foundation.command import shown_errors
from foundation.console import Heartbeat
from foundation.errors import UserError
from sql_agent.config import HOME, build_config, load_recipe
from sql_agent.tiny_policy.shipped import is_shipped, load_shipped, round_weights, ship
from sql_agent.tiny_policy.sources import fingerprint
from sql_agent.tiny_policy.task import Lesson, TinyTask, load_task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
CACHE = HOME / ".cache" / "tiny_policy"
WAITING = "OMP_WAIT_POLICY"
CARD = """---
license: mit
language: {task.language}
---
# Tiny policy of the {task.name} (seed {seed})

A Qwen3 of {millions:.2f} million parameters, made on this machine in a few minutes. It is there so that training,
evaluation and serving run where there is neither a GPU nor a model to download.

- Start: random weights, but for the attention heads of the first two layers, set by hand so that it can copy (see
  wired.py).
- Warm start: {n_steps} steps on made-up demonstrations.
- {task.about}
"""


def task_of_recipe(recipe: str) -> TinyTask:
    """The task of a recipe, by default SQL. Raises UserError."""
    return load_task(build_config(load_recipe(recipe)).model.tiny if recipe else "")


def ensure_tiny_policy(
    seed: int, task: TinyTask | None = None, *, out: Path | None = None, force: bool = False
) -> Path:
    """The absolute folder of this seed's tiny policy for a task (SQL by default); made first where the cache lacks it.

    That takes seconds where the repository has the weights (see shipped.py), else minutes. `force` trains in any
    case. Raises UserError when `out` holds something else than a built policy.
    """
    task = task or load_task("")
    folder = (out or CACHE / fingerprint(seed, task)).expanduser().resolve()
    if _is_complete(folder) and not force and out is None:
        return folder
    if out is not None and folder.exists() and any(folder.iterdir()) and not (force and _is_complete(folder)):
        raise UserError(f"--out {out}: is not empty; name a new folder, or give --force to replace a built policy")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as temp:
        built = Path(temp) / "model"
        _build(built, seed=seed, task=task, train=force or not is_shipped(seed, task))
        _put(built, folder, old=Path(temp) / "old", force=force)
    return folder


def save_untrained(seed: int, task: TinyTask, out: Path) -> Path:
    """What the warm start of this seed begins with, as a model folder: random weights, wired to copy."""
    if out.exists():
        raise UserError(f"--out {out}: exists; name a new folder")
    import torch

    from sql_agent.tiny_policy.train import build_model

    _, tokenizer = _lesson_and_tokenizer(task)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        save(build_model(tokenizer), tokenizer, out)
    return out.absolute()


def _is_complete(folder: Path) -> bool:
    return (folder / "config.json").is_file() and (folder / "model.safetensors").is_file()


def _put(built: Path, folder: Path, *, old: Path, force: bool) -> None:
    """Rename the built model into place; an old one leaves with the temporary folder."""
    if force:
        with suppress(FileNotFoundError):
            os.replace(folder, old)
    try:
        os.replace(built, folder)
    except OSError:
        # Another process finished the same policy meanwhile: the content is the same.
        if not _is_complete(folder):
            raise


def _build(folder: Path, *, seed: int, task: TinyTask, train: bool) -> None:
    started, console = time.monotonic(), Console(stderr=True)
    if train:
        _load_torch()
    lesson, tokenizer = _lesson_and_tokenizer(task)
    model = _train(tokenizer, lesson, seed, console) if train else load_shipped(tokenizer, seed, task)
    millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    save(model, tokenizer, folder)
    card = CARD.format(task=task, seed=seed, millions=millions, n_steps=lesson.settings.n_steps)
    (folder / "README.md").write_text(card, encoding="utf-8")
    how = "built" if train else "made of the shipped weights"
    console.print(f"tiny policy: {millions:.2f} M parameters, {how} in {time.monotonic() - started:.0f} s")


def _lesson_and_tokenizer(task: TinyTask) -> tuple[Lesson, PreTrainedTokenizerFast]:
    from sql_agent.tiny_policy.tokenizer import train_tokenizer  # slow, and not needed when the cache has the policy

    lesson = task.learn()
    return lesson, train_tokenizer(lesson.texts, lesson.frames)


def _load_torch() -> None:
    """Load torch such that its threads sleep while they wait for each other, unless the user says otherwise.

    Spinning threads take the cores from those they wait for: on two cores beside two busy processes 32 steps took 511 s
    (137 s of CPU), without spinning 70 s (16 s). libgomp looks at the variable once; children get none of it.
    """
    users = os.environ.get(WAITING)
    os.environ[WAITING] = users or "PASSIVE"
    import torch  # noqa: F401

    if users is None:
        del os.environ[WAITING]


def _train(tokenizer: PreTrainedTokenizerFast, lesson: Lesson, seed: int, console: Console) -> Qwen3ForCausalLM:
    """The warm start, with a bar on a terminal and a line now and then elsewhere."""
    from sql_agent.tiny_policy.products import fast_products
    from sql_agent.tiny_policy.train import train_policy

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    columns = (*columns, TextColumn("left"), TimeRemainingColumn())
    state = f"tiny policy: step 0 of {lesson.settings.n_steps}"
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar, Heartbeat(console, lambda: state):
        task = bar.add_task("tiny policy", total=lesson.settings.n_steps)

        def show(step: int, n_steps: int, loss: float) -> None:
            nonlocal state
            state = f"tiny policy: step {step} of {n_steps}, loss {loss:.3f}"
            bar.update(task, completed=step, description=f"tiny policy, loss {loss:.3f}")

        with fast_products():
            model = train_policy(tokenizer, lesson, seed=seed, progress=show)
    round_weights(model)
    return model


def save(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write model, tokenizer (the chat template inside its config) and generation settings."""
    assert model.generation_config is not None
    model.generation_config.update(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    model.save_pretrained(folder)
    # The template inside tokenizer_config.json: older readers do not know a file of its own.
    tokenizer.save_pretrained(folder, save_jinja_files=False)


@app.command()
def main(
    seed: Annotated[int, typer.Option(help="the same seed gives the same weights")] = 1,
    out: Annotated[Path | None, typer.Option(help="folder to build into (default: the project's .cache)")] = None,
    force: Annotated[bool, typer.Option("--force", help="train even if it is there or shipped")] = False,
    recipe: Annotated[str, typer.Option(help="the task of this recipe (default: SQL)")] = "",
    untrained: Annotated[bool, typer.Option("--untrained", help="leave the warm start out; needs --out")] = False,
    ship_: Annotated[bool, typer.Option("--ship", help="write the weights into the repository, for clones")] = False,
) -> None:
    """Build and warm-start the tiny policy, a real Qwen3 of about 1M parameters, unless the cache holds it.

    Seed 1 comes with its weights and takes seconds; they are trained anew where a source of the policy has changed.
    Other seeds take 15 to 20 minutes on two cores. Prints the folder, which --model of the other commands
    accepts.
    """
    with shown_errors():
        task = task_of_recipe(recipe)
        if untrained and (out is None or force or ship_):
            raise UserError("--untrained: needs --out, and goes with neither --force nor --ship")
        if untrained and out:
            folder = save_untrained(seed, task, out)
        else:
            folder = ensure_tiny_policy(seed, task, out=out, force=force)
    if ship_:
        from transformers import Qwen3ForCausalLM

        typer.echo(f"shipped: {ship(Qwen3ForCausalLM.from_pretrained(folder), seed, task)}", err=True)
    typer.echo(str(folder))


if __name__ == "__main__":
    app()
