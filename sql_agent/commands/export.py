"""`agentgrpo export`: a checkpoint -> an ordinary model folder: safetensors, tokenizer, chat template, model card.

Guarantees: OUT appears complete or not at all, and only when it gives the checkpoint's logits. Full and LoRA
checkpoints of FSDP, of any number of ranks; a LoRA adapter is merged into its base model. The chat template renders as
in training (agent.chat_template_kwargs) unless a request says otherwise.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from foundation.chat_template import write_defaults
from foundation.console import log_warnings, notes
from foundation.errors import UserError
from foundation.files import check_new_folder, read_object, write_text
from foundation.weights import Precision, share
from sql_agent.agent.toolset import SQL
from sql_agent.config import DatabaseConfig, carried_prompt, database_place, prompt_text
from sql_agent.serving.checkpoint_model import BROKEN, NOT_THE_MODELS, TEXT_FILES, checkpoint_model, text_folder
from sql_agent.serving.checkpoints import check_whole, checkpoint_path, own_checkpoint, run_config
from sql_agent.training.summary import number

if TYPE_CHECKING:
    import torch

CARD = """---
library_name: transformers
pipeline_tag: text-generation
---
# A tool agent, step {step} of {run}

Trained with {method} from `{base}`.{health}

| | value |
|---|---|
| recipe | {recipe} |
| tools, as `agent.tools` names them | {tools} |
| judge in training | {judge} |
| training reward, last step | {reward} |
| validation reward | {validation} |
| precision | {precision} |
| keys of the chat template | {template} |
| largest change of a logit by the export, relative | {gap} |

{evaluation}
Serve it: `{serve}`
"""
METHODS = {
    "grpo": "GRPO (agent-lightning, verl)",
    "local": "GRPO in one process",
    "sft": "supervised fine-tuning (TRL)",
    "dpo": "preferences (TRL)",
}
SERVE = "vllm serve {name} --enable-auto-tool-choice --tool-call-parser {parser} --generation-config vllm"
NO_EVALUATION = "No held-out evaluation was given (`agentgrpo export --evaluation results.md`).\n"
PROBE_TOKENS = 64
# Largest share of the largest logit that the precision may change: float32 leaves room for merging an adapter.
LARGEST_GAP = {"float32": 1e-4, "bfloat16": 0.1, "float16": 0.02}


@dataclass(frozen=True)
class Export:
    """A finished export. `gap` is the largest change of a logit, as a share of the largest logit."""

    folder: Path
    dtype: str
    gap: float
    parser: str


def looked_at(source: Path, out: Path) -> tuple[Path, Path]:
    """The checkpoint, and the folder to write. Raises UserError when that exists, or the checkpoint is none."""
    named, out = str(source), out.expanduser().resolve()
    checkpoint = own_checkpoint(checkpoint_path(named, option=named), option=named)
    check_whole(checkpoint)
    check_new_folder(out, name=str(out))
    return checkpoint, out


def export_checkpoint(source: Path, out: Path, *, evaluation: str = NO_EVALUATION, dtype: Precision = "auto") -> Export:
    """Write the model folder `out`. Raises UserError when `out` exists, or is not the model of the checkpoint."""
    checkpoint, out = looked_at(source, out)
    run = checkpoint.parent.parent
    config = run_config(checkpoint)
    parser = config.get("rollout", {}).get("tool_parser", "hermes")
    # What is exported is the policy that sampled, in the precision that the run's vLLM had.
    sampled = "float32" if config.get("trainer", {}).get("device") == "cpu" else "bfloat16"
    chosen = sampled if dtype == "auto" else dtype
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".exporting-") as temp:
        folder = Path(temp) / "model"
        export = Export(out, chosen, _write(checkpoint / "actor", folder, chosen), parser)
        _carry_prompts(config, folder)
        write_defaults(folder, config.get("agent", {}).get("chat_template_kwargs", {}))
        (folder / "README.md").write_text(_card(run, checkpoint, export, evaluation), encoding="utf-8")
        os.replace(folder, out)
    return export


def _write(actor: Path, folder: Path, dtype: str) -> float:
    """Write the model of a checkpoint as `dtype` into `folder`; returns the largest change of a logit (`gap`)."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = checkpoint_model(actor)
    before = probe(model)
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    model = model.to(getattr(torch, dtype))
    model.save_pretrained(folder)
    share(folder)
    for file in text_folder(actor).iterdir():
        # config.json is written anew.
        if file.suffix in TEXT_FILES and file.name not in ("config.json", *NOT_THE_MODELS):
            shutil.copy2(file, folder / file.name)
    _check_tokenizer(folder, actor)
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    return compare(before, probe(loaded), limit=LARGEST_GAP[dtype], checkpoint=actor.parent)


def _check_tokenizer(folder: Path, actor: Path) -> None:
    """Load it as those will who serve the folder. Raises UserError."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.apply_chat_template([{"role": "user", "content": "?"}], tokenize=False)
    except Exception as exc:  # a library of others: what tokenizers raises has no other base
        why = f"tokenizer and chat template cannot be used ({' '.join(str(exc).split())[:200]})"
        raise UserError(BROKEN.format(path=actor, why=why)) from exc


def probe(model: Any) -> torch.Tensor:
    """Logits of the model for tokens from the whole vocabulary: PROBE_TOKENS x vocabulary, float32."""
    import torch

    ids = torch.linspace(0, model.config.vocab_size - 1, PROBE_TOKENS).long()
    with torch.no_grad():
        return model(input_ids=ids[None]).logits[0].float()


def compare(before: torch.Tensor, after: torch.Tensor, *, limit: float, checkpoint: Path) -> float:
    """The largest difference of two models' logits, as a share of the largest logit. Raises UserError above `limit`."""
    gap = float((before - after).abs().max() / before.abs().max())
    if not gap <= limit:  # NaN is no equality
        raise UserError(
            f"{checkpoint}: the exported model's logits differ by {gap:.2g} of the largest logit, at most {limit:.2g} "
            "is rounding; nothing was exported. nan: the weights hold NaN, use an older checkpoint; else try --dtype "
            "float32"
        )
    return gap


def _carry_prompts(config: dict[str, Any], folder: Path) -> None:
    """Write the system prompt of each agent into the folder."""
    for name, tree in _agents(config).items():
        try:
            write_text(carried_prompt(folder, name), prompt_text(tree.get("agent", {})["system_prompt"]) + "\n")
        except (KeyError, UserError) as exc:  # as old runs are, and runs whose prompt was moved
            notes.print(f"no system prompt in the folder ({exc}): name agent.system_prompt", markup=False)


def _card(run: Path, checkpoint: Path, export: Export, evaluation: str) -> str:
    config, summary = (read_object(run / name) for name in ("config.json", "summary.json"))
    kwargs = config.get("agent", {}).get("chat_template_kwargs", {})
    validation = [f"{v['reward_mean']:.3f} (step {v['step']})" for v in summary.get("validation", [])]
    return CARD.format(
        step=checkpoint.name.removeprefix("global_step_"),
        run=run.name,
        method=METHODS.get(summary.get("method") or config.get("method", "grpo"), "?"),
        base=Path(str(summary.get("model", {}).get("path", "?"))).name,
        recipe=config.get("recipe", "?"),
        tools=_tools(config),
        judge=summary.get("judge", "?"),
        health=" Not for decisions about health." if _asks_bundled(config) else "",
        reward=number(summary.get("reward_last_step")),
        validation=", ".join(validation) or "none",
        evaluation=evaluation,
        precision=export.dtype,
        template=f"{json.dumps(kwargs, ensure_ascii=False)}, unless a request says otherwise" if kwargs else "none",
        gap=f"{export.gap:.2g}",
        serve=SERVE.format(name=shlex.quote(export.folder.name), parser=export.parser),
    )


def _agents(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"": config, **config.get("agents", {})}


def _asks_bundled(config: dict[str, Any]) -> bool:
    """Whether an agent of the run asks the bundled database; keys of other versions do not count."""
    asking = [tree for tree in _agents(config).values() if SQL in tree.get("agent", {}).get("tools", [SQL])]
    known = [{k: v for k, v in tree.get("database", {}).items() if k in DatabaseConfig.model_fields} for tree in asking]
    places = [database_place(DatabaseConfig.model_validate(section)) for section in known]
    return database_place(DatabaseConfig()) in places


def _tools(config: dict[str, Any]) -> str:
    """Of all agents of the run: entries of agent.tools, files by their last name, and MCP servers."""
    agents = [tree.get("agent", {}) for tree in _agents(config).values()]
    names = [Path(name).name for agent in agents for name in (*agent.get("tools", []), *agent.get("mcp", {}))]
    return ", ".join(f"`{name}`" for name in dict.fromkeys(names)) or "none"


def export(
    source: Annotated[Path, typer.Argument(help="run, RUN@best, RUN@STEP, or one of its checkpoints/global_step_N")],
    out: Annotated[Path, typer.Argument(help="new folder of the model")],
    evaluation: Annotated[Path | None, typer.Option(help="results.md of an evaluation, for the model card")] = None,
    dtype: Annotated[Precision, typer.Option(help="of the weights; auto: the run's vLLM's")] = "auto",
) -> None:
    """Turn a checkpoint into a model folder for vLLM and transformers.

    \b
    agentgrpo export runs/RUN my_model          the newest checkpoint of a run
    agentgrpo export runs/RUN@best my_model     the one of the highest validation
    agentgrpo export runs/RUN@40 my_model --dtype float32

    The last line is `model: FOLDER`.
    """
    log_warnings()
    run(source, out, evaluation=evaluation, dtype=dtype)


def run(source: Path, out: Path, *, dtype: Precision, evaluation: Path | None = None) -> tuple[int, Path]:
    """The job itself. Returns the exit status, 0, and the folder. Raises UserError."""
    console = Console(highlight=False, soft_wrap=True)
    looked_at(source, out)
    measured = evaluation.read_text(encoding="utf-8") if evaluation else NO_EVALUATION
    console.print(f"exporting {source}; the copy must give the logits of the checkpoint", markup=False)
    exported = export_checkpoint(source, out, evaluation=measured, dtype=dtype)
    console.print(f"logits: differ by {exported.gap:.2g} of the largest, in {exported.dtype}", markup=False)
    serve = f"agentgrpo serve --model {shlex.quote(str(exported.folder))} --set rollout.tool_parser={exported.parser}"
    console.print(f"serve: {serve}    (elsewhere: the line in its README.md)", markup=False)
    # The folder is model and prompt; the run has tools and database too.
    console.print(f"try:   agentgrpo ask --model {shlex.quote(str(source))}", markup=False)
    console.print(f"model: {exported.folder}", markup=False)
    return 0, exported.folder
