"""A checkpoint of a run -> an ordinary model folder: safetensors, tokenizer, chat template, model card.

    python sql_agent/export.py RUN_FOLDER OUT          the latest checkpoint of a run, or one global_step_N folder

Guarantees: OUT appears complete or not at all, and its weights are compared with the checkpoint's, tensor by tensor,
before it does. verl's checkpoints are pickles: export only what your own runs wrote. Full and LoRA checkpoints of FSDP
(any number of ranks); a LoRA adapter is merged into its base model.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sql_agent.errors import UserError
from sql_agent.preflight import own_checkpoint

if TYPE_CHECKING:
    import torch

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
CARD = """---
library_name: transformers
pipeline_tag: text-generation
---
# Medical SQL agent, step {step} of {run}

Trained with GRPO (agent-lightning, verl) from `{base}`; it calls one tool, `query_database_by_sql`.
Not for decisions about health.

| | value |
|---|---|
| recipe | {recipe} |
| judge in training | {judge} |
| training reward, last step | {reward} |
| validation reward | {validation} |

{evaluation}
Serve it: `vllm serve {name} --enable-auto-tool-choice --tool-call-parser {parser}`
"""
NO_EVALUATION = "No held-out evaluation was given (`export.py --evaluation results.md`).\n"


def export_checkpoint(source: Path, out: Path, *, evaluation: Path | None = None) -> Path:
    """Write the model folder `out` and return it. Raises UserError when `out` exists or the weights differ."""
    checkpoint, out = own_checkpoint(source.expanduser().resolve(), asked=str(source)), out.expanduser().resolve()
    if out.exists():
        raise UserError(f"{out}: exists; name a new folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".exporting-") as temp:
        folder = Path(temp) / "model"
        state = _merge(checkpoint / "actor", folder)
        _check_same(state, folder)
        run = checkpoint.parent.parent
        (folder / "README.md").write_text(_card(run, checkpoint, out, evaluation), encoding="utf-8")
        os.replace(folder, out)
    return out


def _merge(actor: Path, folder: Path) -> dict[str, torch.Tensor]:
    """Merge the shards into `folder`; returns the merged weights as they were in the checkpoint."""
    from verl.model_merger.base_model_merger import ModelMergerConfig
    from verl.model_merger.fsdp_model_merger import FSDPModelMerger

    kept: dict[str, torch.Tensor] = {}

    class Merger(FSDPModelMerger):
        """verl's merger, which hands out the weights it merged."""

        def save_hf_model_and_tokenizer(self, state_dict: dict[str, torch.Tensor]) -> None:
            kept.update({name: weight.clone() for name, weight in state_dict.items()})
            super().save_hf_model_and_tokenizer(state_dict)

    merger = Merger(
        ModelMergerConfig(
            operation="merge",
            backend="fsdp",
            local_dir=str(actor),
            target_dir=str(folder),
            hf_model_config_path=str(actor / "huggingface"),
        )
    )
    merger.merge_and_save()
    if (folder / "lora_adapter").is_dir():
        kept = _merge_adapter(folder)
    for name in ("generation_config.json", "chat_template.jinja"):
        if (actor / "huggingface" / name).is_file() and not (folder / name).is_file():
            shutil.copy2(actor / "huggingface" / name, folder / name)
    return kept


def _merge_adapter(folder: Path) -> dict[str, torch.Tensor]:
    """Add the LoRA adapter that verl put beside the base weights into them."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    merged: Any = PeftModel.from_pretrained(base, str(folder / "lora_adapter"))
    merged = merged.merge_and_unload()
    shutil.rmtree(folder / "lora_adapter")
    for old in folder.glob("*.safetensors*"):
        old.unlink()
    merged.save_pretrained(folder)
    return {name: weight.detach().clone() for name, weight in merged.state_dict().items()}


def _check_same(state: dict[str, torch.Tensor], folder: Path) -> None:
    """Load the folder as a user will, and compare. Raises UserError naming the first tensor that differs."""
    import torch
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").state_dict()
    for name, weight in state.items():
        if name not in loaded or not torch.equal(weight.to(loaded[name].dtype), loaded[name]):
            raise UserError(f"{folder}: tensor {name} is not what the checkpoint holds; nothing was exported")


def _card(run: Path, checkpoint: Path, out: Path, evaluation: Path | None) -> str:
    config, summary = (_json(run / name) for name in ("config.json", "summary.json"))
    validation = [f"{v['reward_mean']:.3f} (step {v['step']})" for v in summary.get("validation", [])]
    return CARD.format(
        step=checkpoint.name.removeprefix("global_step_"),
        run=run.name,
        base=Path(str(summary.get("model", {}).get("path", "?"))).name,
        recipe=config.get("recipe", "?"),
        judge=summary.get("judge", "?"),
        reward=summary.get("reward_last_step", "?"),
        validation=", ".join(validation) or "none",
        evaluation=evaluation.read_text(encoding="utf-8") if evaluation else NO_EVALUATION,
        name=out.name,
        parser=config.get("rollout", {}).get("tool_parser", "hermes"),
    )


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


@app.command()
def main(
    source: Annotated[Path, typer.Argument(help="run folder, or one of its checkpoints/global_step_N")],
    out: Annotated[Path, typer.Argument(help="new folder of the model")],
    evaluation: Annotated[Path | None, typer.Option(help="results.md of evaluate.py, for the model card")] = None,
) -> None:
    """Turn a checkpoint into a model folder for vLLM and transformers."""
    logging.basicConfig(level=logging.WARNING)
    console = Console(highlight=False, soft_wrap=True)
    try:
        folder = export_checkpoint(source, out, evaluation=evaluation)
    except UserError as exc:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {exc}", markup=False)
        raise typer.Exit(2) from None
    console.print(f"serve: vllm serve {folder} --enable-auto-tool-choice --tool-call-parser hermes", markup=False)
    console.print(f"try:   python sql_agent/sqlagent_test.py --model {folder}", markup=False)
    console.print(f"model: {folder}", markup=False)


if __name__ == "__main__":
    app()
