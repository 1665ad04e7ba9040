"""`agentgrpo serve`: a model, or the agent around it, for OpenAI clients.

Guarantees: an address is taken before a model is loaded; a vLLM of ours that ends also ends the command, with its last
words; SIGTERM or Ctrl-C closes the agent's port and answers what was accepted. Not covered: TLS.
"""

from __future__ import annotations

import logging
import math
import os
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from starlette.types import ASGIApp

from foundation.console import log_warnings, tell
from foundation.errors import UserError
from foundation.http_gate import Traffic, checked_token
from foundation.http_server import run
from foundation.net import bind, http_address
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import agent_config, build_config, command_tree, load_recipe, recipe_path
from sql_agent.config.commands import SERVE, SERVE_AGENT
from sql_agent.data.bundled import ensure_databases
from sql_agent.errors import LLMFault
from sql_agent.evaluation.targets import Target, label, look_at, model_folder, running, settings_for
from sql_agent.serving.agent_answer import Answerer
from sql_agent.serving.agent_api import AgentApi, Limits
from sql_agent.serving.chat import check_runner
from sql_agent.serving.kept import Keeper
from sql_agent.serving.server import serve_model

TOKEN_NAME = "AGENT_API_TOKEN"


def serve(
    target: Annotated[
        str,
        typer.Argument(
            help="run, checkpoint, model folder or hub name; --as-agent: or NAME@ADDRESS; left out: the tiny policy"
        ),
    ] = "",
    model: Annotated[str, typer.Option(help="the same, as other commands say it")] = "",
    port: Annotated[int, typer.Option(min=1, max=65535, help="of the address")] = 8000,
    recipe: Annotated[str, typer.Option(help="settings of a folder of recipes/ or a TOML file")] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="set any key")] = None,
    as_agent: Annotated[bool, typer.Option("--as-agent", help="the agent: prompt, tools and loop")] = False,
    host: Annotated[str | None, typer.Option(help="interface; beyond 127.0.0.1 AGENT_API_TOKEN is needed")] = None,
    agent: Annotated[str | None, typer.Option(help="one of [agents]")] = None,
    db_id: Annotated[str | None, typer.Option(help="of database.folder")] = None,
    max_open: Annotated[int | None, typer.Option(min=1, help="conversations in flight before 429 (256)")] = None,
    timeout_s: Annotated[float | None, typer.Option(min=1.0, help="longest answer, then 504 (300)")] = None,
    vote: Annotated[
        int | None, typer.Option(min=2, help="answers per question, of which the result set of most is sent")
    ] = None,
    page: Annotated[bool | None, typer.Option("--page", help="a page to talk to the agent, at /page")] = None,
) -> None:
    """Serve a model with vLLM until Ctrl-C, with the settings of training: tool parser, chat template, precision.

    \b
    agentgrpo serve runs/RUN                       then, in another terminal, the command that it prints
    agentgrpo serve runs/RUN --as-agent            the agent: its address answers with prompt, tools and loop
    agentgrpo serve runs/RUN --as-agent --page     and a page to talk to it
    agentgrpo serve NAME@http://host:8000/v1 --as-agent --recipe R    around a running server

    A model alone is for this machine; docs/40-serve.md has `vllm serve` for others. With --as-agent, AGENT_API_TOKEN
    (in the environment or .env) makes clients send it as their key.
    """
    if target and model:
        raise UserError(f"{target} and --model {model}: two models; name one")
    model = target or model
    options = {"--host": host, "--agent": agent, "--db-id": db_id, "--max-open": max_open, "--timeout-s": timeout_s}
    options |= {"--vote": vote, "--page": page}
    if not as_agent and (foreign := [name for name, value in options.items() if value is not None]):
        raise UserError(f"{', '.join(foreign)}: only for a served agent; add --as-agent, or leave it out")
    base = load_recipe(recipe) if recipe else settings_for([model])
    flags = {} if vote is None else {"serve": {"vote": vote}}
    command = SERVE_AGENT if as_agent else SERVE
    config = build_config(base, command_tree(command, set_ or [], recipe=recipe, flags=flags))
    looked_at = look_at(model, config, option="--model")
    if not as_agent:
        return _serve_model(looked_at, model, port, recipe=recipe, assignments=set_ or [])
    limits = Limits(max_open=max_open or Limits.max_open, time_s=timeout_s or Limits.time_s)
    names = {"agent": agent or "", "db_id": db_id or ""}
    return _serve_agent(looked_at, host or "127.0.0.1", port, **names, limits=limits, page=bool(page))


def ask_line(target: Target, *, address: str, name: str, recipe: str, assignments: list[str]) -> str:
    """The command that plays the agent which a served model was made for: by its run, or by name, recipe and prompt."""
    is_run = target.kind == "checkpoint"
    words = ["agentgrpo", "ask", "--base-url", address, "--model", target.text if is_run else name]
    words += ["--recipe", str(recipe_path(recipe).absolute())] if recipe else []
    prompt = [] if is_run and not recipe else [f"agent.system_prompt={target.config.agent.system_prompt}"]
    return shlex.join(words + [word for text in (*prompt, *assignments) for word in ("--set", text)])


def _serve_model(target: Target, model: str, port: int, *, recipe: str, assignments: list[str]) -> None:
    if target.kind == "endpoint":
        raise UserError(
            f"--model {model}: is served already; name a run, a folder or a hub name, or put the agent in front of it "
            "with --as-agent"
        )
    bind("127.0.0.1", port).close()  # before a model is made or loaded
    folder = model_folder(target, tell=tell)
    assert folder is not None
    tell(f"starting vLLM with {folder.name}")
    with serve_model(folder, target.config, port=port) as server:
        names = {"address": server.base_url, "name": server.model}
        tell(f"try:   {ask_line(target, **names, recipe=recipe, assignments=assignments)}")
        print(f"serving {server.model} at {server.base_url}", flush=True)
        server.process.wait()
        raise LLMFault(server.why_it_died())


def _paged() -> Callable[..., ASGIApp]:
    """What adds the page. Raises UserError where its library is not installed."""
    try:
        from sql_agent.serving.page import with_page
    except ImportError as exc:
        raise UserError(f"--page: needs a package more ({exc}): pip install 'agentgrpo[page]'") from exc
    return with_page


def _serve_agent(target: Target, host: str, port: int, *, agent: str, db_id: str, limits: Limits, page: bool) -> None:
    """Serve until a signal comes. Raises UserError, and LLMFault when vLLM does not start or ends."""
    log_warnings()
    logging.getLogger("foundation.http_server").setLevel(logging.INFO)
    logging.getLogger("openai.agents").setLevel(logging.CRITICAL)  # what it logs is in the fault
    token = checked_token(os.environ.get(TOKEN_NAME, ""), host=host, variable=TOKEN_NAME)
    with_page = _paged() if page else None
    listener, traffic = bind(host, port), Traffic()
    config = agent_config(target.config, agent)
    ensure_databases(config)
    with EpisodeRunner(config) as runner, ExitStack() as stack:
        check_runner(runner, db_id)
        tell(f"model {label(target)}; prompt: {config.agent.system_prompt}")
        with running(target, tell=tell) as model:
            llm = model.llm.sampled(target.config.rollout.evaluation)
            answerer = Answerer(runner, llm, db_id, vote=target.config.serve.vote)
            keep_file = target.config.serve.keep
            keeper = stack.enter_context(Keeper(Path(keep_file).expanduser())) if keep_file else None
            api = AgentApi(answerer, name=llm.model, limits=limits, keeper=keeper)
            address = http_address(host, port)
            app: ASGIApp = api.app(traffic, token=token)
            if with_page:
                app = with_page(app, f"{address}/v1", is_kept=bool(keep_file))
                tell(f"page at {address}/page")
            listener.listen()  # whoever reads the next line and calls is kept waiting, and not refused
            need = "needed" if token else "not needed"
            print(f"serving the agent {llm.model} at {address}/v1, token {need}", flush=True)
            drain_s = math.ceil(limits.time_s)
            run(app, traffic, listener, drain_s=drain_s, is_over=lambda: bool(model.why_it_died()), websockets=page)
            if why := model.why_it_died():
                raise LLMFault(why)
