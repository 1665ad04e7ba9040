"""`agentgrpo prompt`: look for a better system prompt, with agent-lightning's APO."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from openai import AsyncOpenAI

from foundation.console import log_warnings, notes, tell
from foundation.environment import prepare_environment
from foundation.errors import RunError, UserError
from reward_client import needed_endpoints
from reward_client.schema import JudgeEndpoint
from sql_agent.agent.grading import scoring_of
from sql_agent.config import HOME, build_config, command_tree, data_path, load_recipe, prompt_text
from sql_agent.config.commands import OPTIMIZE
from sql_agent.config.paths import existing_file
from sql_agent.data.dataset import load_questions
from sql_agent.errors import LLMFault
from sql_agent.evaluation.prompt_trials import BEST, PromptTrials
from sql_agent.evaluation.targets import look_at, running, settings_for
from sql_agent.evaluation.trials import draw
from sql_agent.records import Question
from sql_agent.scoring.check import check_judge
from sql_agent.training.questions import check_gradable


async def search(
    trials: PromptTrials, rows: tuple[list[Question], list[Question]], editor: JudgeEndpoint, options: dict[str, int]
) -> str:
    """Search, and write what was found; returns how it ended, "" for its regular end. Raises UserError."""
    prepare_environment(cpu=False, offline=False)
    try:
        from agl_plugin.prompt_search import PromptSearch
    except ModuleNotFoundError as missing:
        raise UserError(f"{missing}: install the extra apo (uv sync --extra apo)") from missing
    client = AsyncOpenAI(base_url=editor.base_url, api_key=editor.api_key.get_secret_value())
    algorithm = PromptSearch(client, model=editor.model, play=trials.play, **options)
    ended = ""
    seed = prompt_text(trials.config.agent.system_prompt)
    try:
        async with client:
            await algorithm.search(seed, *rows)
    except (RunError, LLMFault) as exc:
        ended = str(exc)
    if trials.val:
        trials.report(algorithm.best, n_val=len(rows[1]), n_calls=algorithm.n_calls, ended=ended or "all rounds")
    return ended


def prompt(
    model: Annotated[str, typer.Option(help="whose prompt, as for evaluate; empty: the tiny policy")] = "",
    recipe: Annotated[str, typer.Option(help="settings of a folder of recipes/ or a TOML file")] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="set any key")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="rounds of the beam search")] = 3,
    beam: Annotated[int, typer.Option(min=1, help="prompts that go on after a round")] = 2,
    branch: Annotated[int, typer.Option(min=1, help="edits of each of them")] = 2,
    batch: Annotated[int, typer.Option(min=1, help="episodes that one critique reads")] = 4,
    train: Annotated[int, typer.Option(min=1, help="training questions, for critiques")] = 64,
    val: Annotated[int, typer.Option(min=2, help="validation questions, for choosing")] = 32,
    max_calls: Annotated[int, typer.Option(min=0, help="budget of calls to the optimising model; 0: no limit")] = 0,
    max_episodes: Annotated[int, typer.Option(min=0, help="budget of episodes; 0: no limit")] = 0,
    concurrency: Annotated[int, typer.Option(min=1, help="episodes in flight")] = 16,
    seed: Annotated[int, typer.Option(help="seed of what the search draws")] = 1,
    out: Annotated[Path | None, typer.Option(help="folder of the results (default: runs/prompts/TIME)")] = None,
) -> int:
    """Improve agent.system_prompt: a model reads episodes and rewards, criticises the prompt, edits it; the best stay.

    \b
    agentgrpo prompt --model qwen@http://127.0.0.1:8000/v1 --recipe qwen3_0_6b --max-calls 60

    TEACHER_* or JUDGE_ENDPOINTS name the model that criticises and edits. Writes best_prompt.txt, report.md,
    results.json, trials.jsonl and prompts/; the last line is `prompt: FILE`. Status 1: it ended early, by a fault or
    the budget; the best so far is written.
    """
    log_warnings()
    logging.getLogger("openai.agents").setLevel(logging.CRITICAL)
    folder = (out or HOME / "runs" / "prompts" / datetime.now().strftime("%Y%m%d-%H%M%S")).expanduser().absolute()
    options = {"beam_rounds": rounds, "beam_width": beam, "branch_factor": branch, "gradient_batch_size": batch}
    random.seed(seed)
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"--out {folder}: is not empty; name a new folder")
    base = load_recipe(recipe) if recipe else settings_for([model])
    config = build_config(base, command_tree(OPTIMIZE, set_ or [], recipe=recipe, flags={}))
    if config.agents:
        raise UserError(
            f"agents = {', '.join(config.agents)}: the search is for one prompt, and these have several; give a "
            "recipe of one agent alone"
        )
    editor = needed_endpoints("optimising model")[0]
    target = look_at(model, config, option="--model")
    data = target.config.data
    train_file = existing_file(data_path(data.train_file), key="data.train_file")
    val_file = existing_file(data_path(data.val_file), key="data.val_file")
    rows = draw(load_questions(train_file), train), draw(load_questions(val_file), val)
    with closing(scoring_of(target.config)) as scoring, running(target, tell=tell) as server:
        check_judge(scoring)
        for part in rows:
            check_gradable(part, scoring, source="questions")
        trials = PromptTrials(target.config, server.llm, scoring, folder, concurrency, max_episodes)
        options |= {"val_batch_size": val, "max_calls": max_calls}
        ended = asyncio.run(search(trials, rows, editor, options))
    if ended:
        notes.print(f"error: ended early: {ended}", markup=False)
    print(f"prompt: {folder / BEST}" if (folder / BEST).exists() else "prompt: none")
    return int(bool(ended))
