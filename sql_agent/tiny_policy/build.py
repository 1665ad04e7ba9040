"""Build the tiny policy: tokenizer, wired initialisation, supervised warm start; cached by content.

    python -m sql_agent.tiny_policy.build --seed 1

Guarantees: the same seed, sources and machine type give the same weights; a folder appears complete or not at all. It
is an ordinary Hugging Face model folder (Qwen3ForCausalLM, safetensors, chat template) without code of its own.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from foundation.errors import UserError
from sql_agent.config import ROOT

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
CACHE = ROOT / ".cache" / "tiny_policy"
HERE = Path(__file__).resolve().parent
AGENT = HERE.parent
# What decides the weights: build.py and measure.py do not.
CODE = ["chat_template.jinja", "words.yaml"]
CODE += [f"{name}.py" for name in ("asking", "corpus", "demos", "tokenizer", "train", "wired")]
CARD = """---
license: mit
language: zh
---
# Tiny policy of the medical SQL agent (seed {seed})

A Qwen3 of {millions:.2f} million parameters, made on this machine in a few minutes. It is there so that training,
evaluation and serving run where there is neither a GPU nor a model to download.

- Start: random weights, but for the attention heads of the first two layers, set by hand so that it can copy (see
  wired.py).
- Warm start: {n_steps} steps on made-up demonstrations: invented names, invented or cut-up facts.
- The demonstrator is flawed on purpose. It mostly reads the column of general remarks instead of the one asked for
  ({wrong_column:.0%}), and often stops at the first fact ({first_fact_only:.0%}). GRPO is there to correct that; its
  gain here says nothing of larger models.
- It knows no medicine and understands little beyond the phrasings it was shown. It is not a medical model; do not use
  its output for decisions about health.
"""


def source_files() -> list[Path]:
    """All files that decide what the policy becomes."""
    data = AGENT / "data"
    words = [data / "templates.yaml", AGENT / "prompts" / "system_short.txt"]
    return [*sorted(data.glob("source/*/*.yaml")), *words, *(HERE / name for name in CODE)]


def fingerprint(seed: int) -> str:
    """16 hex digits over the sources, the code that trains, and the seed."""
    digest = hashlib.sha256(f"seed {seed}".encode())
    for path in source_files():
        content = path.read_bytes()
        digest.update(f"{path.relative_to(AGENT).as_posix()} {len(content)} ".encode() + content)
    return digest.hexdigest()[:16]


def ensure_tiny_policy(seed: int, *, out: Path | None = None, force: bool = False) -> Path:
    """The absolute folder of this seed's tiny policy; built first where the cache (or `out`) lacks it, in minutes.

    `force` builds in any case. Raises UserError when `out` holds something else than a built policy.
    """
    folder = (out or CACHE / fingerprint(seed)).expanduser().resolve()
    if _is_complete(folder) and not force and out is None:
        return folder
    if out is not None and folder.exists() and any(folder.iterdir()) and not (force and _is_complete(folder)):
        raise UserError(f"--out {out}: is not empty; name a new folder, or give --force to replace a built policy")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as temp:
        built = Path(temp) / "model"
        _build(built, seed=seed)
        _put(built, folder, old=Path(temp) / "old", force=force)
    return folder


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


def _build(folder: Path, *, seed: int) -> None:
    # Slow imports, not needed when the cache has the policy.
    from sql_agent.tiny_policy.corpus import load_corpus
    from sql_agent.tiny_policy.tokenizer import train_tokenizer
    from sql_agent.tiny_policy.train import Settings, train_policy

    settings = Settings()
    corpus = load_corpus()
    tokenizer = train_tokenizer(corpus.texts)
    clock = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *clock)
    started = time.monotonic()
    console = Console(stderr=True)
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("tiny policy", total=settings.n_steps)

        def show(step: int, _n_steps: int, loss: float) -> None:
            bar.update(task, completed=step, description=f"tiny policy, loss {loss:.3f}")

        model = train_policy(tokenizer, corpus, seed=seed, settings=settings, progress=show)
    millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    save(model, tokenizer, folder)
    flaws = settings.flaws
    card = CARD.format(
        seed=seed,
        millions=millions,
        n_steps=settings.n_steps,
        wrong_column=flaws.wrong_column,
        first_fact_only=flaws.first_fact_only,
    )
    (folder / "README.md").write_text(card, encoding="utf-8")
    console.print(f"tiny policy: {millions:.2f} M parameters, built in {time.monotonic() - started:.0f} s")


def save(model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write model, tokenizer (the chat template inside its config) and generation settings."""
    assert model.generation_config is not None
    model.generation_config.update(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(folder)
    # The template inside tokenizer_config.json: older readers do not know a file of its own.
    tokenizer.save_pretrained(folder, save_jinja_files=False)


@app.command()
def main(
    seed: Annotated[int, typer.Option(help="the same seed gives the same weights")] = 1,
    out: Annotated[Path | None, typer.Option(help="folder to build into (default: the project's .cache)")] = None,
    force: Annotated[bool, typer.Option("--force", help="build even if it is there")] = False,
) -> None:
    """Build and warm-start the tiny policy, a real Qwen3 of about 1M parameters, unless the cache holds it.

    It takes four to five minutes on two quiet cores and prints the folder, which --model of the other commands accepts.
    """
    try:
        typer.echo(str(ensure_tiny_policy(seed, out=out, force=force)))
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error


if __name__ == "__main__":
    app()
