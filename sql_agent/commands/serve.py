"""`agentgrpo serve`: a model for OpenAI clients."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from foundation.errors import UserError
from sql_agent.config import build_config, command_tree, load_recipe
from sql_agent.config.commands import SERVE
from sql_agent.errors import LLMFault
from sql_agent.evaluation.targets import look_at, model_folder, settings_for
from sql_agent.serving.models import gpu_count
from sql_agent.serving.server import serve_model


def serve(
    model: Annotated[str, typer.Option(help="run, checkpoint, model folder or hub name; empty: the tiny policy")] = "",
    port: Annotated[int, typer.Option(min=1, max=65535, help="on 127.0.0.1")] = 8000,
    recipe: Annotated[str, typer.Option(help="settings of a folder of recipes/ or a TOML file")] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="set any key")] = None,
) -> None:
    """Serve a model with vLLM until Ctrl-C, with the settings of training: tool parser, chat template, precision.

    \b
    agentgrpo serve --model runs/RUN        then, in another terminal, the command that it prints

    Only this machine can connect; docs/40-serve.md has `vllm serve` for others.
    """
    base = load_recipe(recipe) if recipe else settings_for([model])
    config = build_config(base, command_tree(SERVE, set_ or [], recipe=recipe, flags={}))
    target = look_at(model, config, option="--model")
    notes = Console(stderr=True, highlight=False, soft_wrap=True)

    def tell(text: str, detail: str = "") -> None:
        notes.print(f"{text}{detail}", markup=False)

    folder = model_folder(target, tell=tell)
    if folder is None:
        raise UserError(f"--model {model}: is served already; name a run, a folder or a hub name")
    device = target.config.trainer.device
    tell(f"starting vLLM with {folder.name}")
    cpu = device == "cpu" or (device == "auto" and gpu_count() == 0)
    with serve_model(folder, target.config, cpu=cpu, port=port) as server:
        asked = f"--base-url {server.base_url} --model {server.model}"
        tell(f"try:   agentgrpo ask {asked} --set agent.system_prompt={target.config.agent.system_prompt}")
        print(f"serving {server.model} at {server.base_url}", flush=True)
        server.process.wait()
        raise LLMFault(server.why_it_died())
