"""`--dry-run`: what can be known of a run without a GPU, the model's files and a store; nothing is trained.

Guarantees: the checks are those of a real run, in its order, the judge's included (one call each, if it is an LLM), and
one episode of each agent is played against a scripted model, which answers every call with the question's reference.
So paths, imports, programs and an agent.match that names none of the agents that called are found; the script calls no
tool, and a dry run changes nothing outside. A store of the user's own need not run yet.
Not covered: GPUs, and whether a model that is not on this machine can be had; figures of memory are arithmetic over
parameters and settings, and were not measured on GPUs.
"""

from __future__ import annotations

import asyncio
import json
import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console

from foundation.errors import UserError
from foundation.gpus import gpu_count
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.grading import scoring_of
from sql_agent.config import AgentTree, TrainConfig, TrainerConfig, agents_of, flatten
from sql_agent.errors import Fault
from sql_agent.records import Question
from sql_agent.scoring.check import check_judge, offline_kinds, useless_queries
from sql_agent.scoring.registry import ScoringContext
from sql_agent.serving.models import check_model_folder, check_model_name
from sql_agent.testing.server import chat_reply, openai_server
from sql_agent.training import preflight
from sql_agent.training.external_store import look_for_store
from sql_agent.training.memory import GB, local_model, memory, model_name, parameters
from sql_agent.training.probe import findings, probed
from sql_agent.training.questions import load_data, total_steps
from sql_agent.training.verl_config import verl_overrides
from sql_agent.training.verl_keys import check_verl, composed_base

TRAINED, UNTRAINED = "/trained", "/untrained"


def dry_run(config: TrainConfig, terminal: Console, *, verl: bool = True) -> int:
    """Check, compose (unless `verl` is False) and count; print all of it. Raises UserError as a run would."""
    if verl:
        check_verl(config)
    preflight.check_agent(config)
    with closing(scoring_of(config)) as scoring:
        train, val = load_data(config, scoring)
        probed_questions = val if config.data.from_store else train
        steps = total_steps(config, len(train))
        check(config, scoring, steps=steps)
        played = [*rehearse(config, [*probed_questions, *val])]
        graded = offline_kinds(probed_questions, scoring)
        lines = [*arithmetic(config, scoring, n_train=len(train), n_val=len(val), steps=steps), *played]
        lines += [f"the offline judge grades {graded}; it reads sentences in English and Chinese"] if graded else []
        lines += filter(None, [useless_queries(probed_questions, scoring)])
        lines += findings(probed(probed_questions, scoring))
        lines += [look_for_store(address)] if (address := config.store.external_address) else []
    whole, base = config.logging.debug, flatten(TrainConfig().model_dump(mode="json"))
    show(terminal, "configuration", flatten(config.model_dump(mode="json")), base=base, whole=whole)
    if verl:
        path = model_name(config.model, tiny=config.is_tiny, seed=config.trainer.seed)
        overrides = verl_overrides(config, model_path=path, run_dir=Path("RUN_FOLDER"), total_steps=steps)
        show(terminal, "verl's configuration", flatten(overrides), base=flatten(composed_base()), whole=whole)
    terminal.print("\n".join(["", *lines]), markup=False)
    terminal.print("dry run: the checks passed; nothing was trained", markup=False)
    return 0


def check(config: TrainConfig, scoring: ScoringContext, *, steps: int) -> None:
    """The checks of a run that need neither GPU nor store nor model."""
    preflight.resumed(config, steps=steps)
    preflight.check_adapter(config.model)
    preflight.check_loss(config.optim.loss)
    preflight.check_trackers(config.logging.trackers)
    check_model_name(config.model.path)
    if folder := local_model(config.model.path):
        check_model_folder(folder, allow_remote_code=config.model.allow_remote_code)
        preflight.check_disk(config.trainer, folder, lora=config.model.lora_rank > 0)
    if gpu_count() >= config.trainer.n_gpus or config.trainer.device == "cpu":
        preflight.check_devices(config.trainer, config.rollout)
    preflight.check_parallel(config.trainer, config.rollout, folder)
    check_judge(scoring)


def show(terminal: Console, title: str, flat: dict[str, Any], *, base: dict[str, Any], whole: bool) -> None:
    """A tree over its defaults `base` as lines `key = value`; unless `whole`, those that are not the default."""
    shown = base | flat if whole else {key: value for key, value in flat.items() if base.get(key, ...) != value}
    lines = (f"  {key} = {json.dumps(value, ensure_ascii=False, default=str)}" for key, value in sorted(shown.items()))
    note = "" if whole else ", where it is not the default (--debug: all)"
    terminal.print("\n".join(["", f"{title}{note}", *lines]), markup=False)


def arithmetic(config: TrainConfig, scoring: ScoringContext, *, n_train: int, n_val: int, steps: int) -> Iterator[str]:
    """Lines for people: rows and steps, calls, memory, disk."""
    rollout, optim, trainer = config.rollout, config.optim, config.trainer
    rollouts = optim.questions_per_step * rollout.group_size
    updates = math.ceil(optim.questions_per_step / optim.mini_batch_questions)
    later = math.ceil(steps / trainer.validate_every) if trainer.validate_every > 0 else 0
    validations, stored = later + trainer.validate_first, bool(config.data.from_store)
    n_played = validations * n_val + (0 if stored else steps * rollouts)
    name = model_name(config.model, tiny=config.is_tiny, seed=trainer.seed)
    where = "cpu" if trainer.device == "cpu" else f"{trainer.device}, {trainer.n_gpus} GPU(s)"
    yield f"recipe {config.recipe} on {where}; model {name}"
    if trainer.device == "cuda" and gpu_count() < trainer.n_gpus:
        yield f"GPUs: not looked at (the driver here shows {gpu_count()})"
    yield f"questions: {n_train} to train, {n_val} to validate"
    yield f"steps: {steps}, each {optim.questions_per_step} questions x {rollout.group_size} = {rollouts} rollouts in"
    yield f"  {updates} optimizer step(s) of {rollouts // updates} rollouts"
    size = f"{optim.micro_batch_tokens} tokens" if optim.micro_batch_tokens else f"{optim.micro_batch_rows} rows"
    yield f"  {size} per forward pass and GPU"
    kind = "stored" if stored else "in training"
    yield f"rollouts: {steps * rollouts} {kind}, {validations * n_val} in {validations} validation(s)"
    turns = max(settings.agent.max_turns for settings in agents_of(config).values())
    yield f"model calls: at most {n_played * turns} ({turns} turns each)"
    calls = judge_calls(
        config.reward.judge.mode if scoring.llm else "",
        groups=0 if stored else steps * optim.questions_per_step,
        size=rollout.group_size,
        n_val=validations * n_val,
    )
    yield f"judge: {scoring.judge_name}; calls: {calls}"
    yield from memory(config.model, optim, rollout, trainer, tiny=config.is_tiny)
    n, _ = parameters(config.model.path, tiny=config.is_tiny)
    yield disk(trainer, n, lora=config.model.lora_rank > 0)


def judge_calls(mode: str, *, groups: int, size: int, n_val: int) -> str:
    """The most calls of an LLM judge, tries after a failure not counted; `mode` is "" without one."""
    if not mode:
        return "none"
    calls = {"pointwise": size, "pairwise": size * (size - 1), "groupwise": 1}[mode] * groups
    return f"at most {calls + n_val}, {calls} of them in training (equal answers and failed tries not counted)"


def disk(trainer: TrainerConfig, n: float, *, lora: bool) -> str:
    """What the checkpoints of a model of `n` parameters need, beside what is free."""
    if trainer.save_every <= 0:
        return "disk: no checkpoints (trainer.save_every)"
    need = preflight.checkpoint_bytes(trainer, 2 * n, lora=lora)
    runs_dir = trainer.runs
    there = next(folder for folder in (runs_dir, *runs_dir.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    short = " (too little: on this disk the run would not start)" if free < need else ""
    return (
        f"disk: about {need / GB:.3g} GB for {trainer.keep_checkpoints} checkpoints, the best and one in the making; "
        f"{free / GB:.3g} GB free in {runs_dir}{short}"
    )


def rehearse(config: AgentTree, questions: Sequence[Question]) -> Iterator[str]:
    """A line for each agent that has a question. Raises UserError naming the agent that fails, and why."""
    with EpisodeRunner(config) as runner:
        for name, settings in agents_of(config).items():
            question = next((candidate for candidate in questions if candidate.agent == name), None)
            if question is not None:
                yield _played(runner, question, settings.agent.match, f"agents.{name}" if name else "agent")


def _played(runner: EpisodeRunner, question: Question, match: str, key: str) -> str:
    text = question.answer or "42"

    with openai_server(lambda _: chat_reply(text), keep_alive=True) as server:
        address = server.base_url.removesuffix("/v1")
        llm = LLMEndpoint(f"{address}{TRAINED}/v1", "scripted", untrained_url=f"{address}{UNTRAINED}/v1")
        try:
            episode = asyncio.run(runner.run(question, llm))
        except Fault as exc:
            raise UserError(f"{key}: an episode against a model that answers {text!r:.80} failed: {exc}") from exc
    called = [request.path for request in server.requests]
    trained = sum(path.startswith(TRAINED) for path in called)
    if called and not trained:
        raise UserError(
            f"{key}.match = {match!r}: of {len(called)} calls of the episode none was of an agent of that "
            "name, so nothing would be trained. Write the name by which the program asks (endpoint.for_agent, or "
            "/agent/NAME/v1 in the model's address), or leave agent.match out"
        )
    calls = f"{trained} of {len(called)} calls trained" if called else "the model was not called: nothing to train on"
    return f"episode of {key} against a scripted model: {episode.stop_reason}; {calls}"
