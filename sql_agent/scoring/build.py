"""Who judges: decided once, from the configuration and the environment, before anything is scored."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from foundation.errors import UserError
from reward_client.endpoints import endpoints_from_env
from reward_client.judge import LLMJudge
from reward_client.prompting import read_prompt
from reward_client.reward_model import ENV_URL, RewardModelClient, reward_model_from_env
from reward_client.schema import Budget, JudgeEndpoint
from sql_agent.config import HOME, ROOT, DatabaseConfig, RewardConfig, database_place, resolve_path
from sql_agent.environment.databases import Databases
from sql_agent.scoring.check import why_unusable
from sql_agent.scoring.functions import load_function
from sql_agent.scoring.registry import SCORERS, ScoringContext, load_scorers
from sql_agent.scoring.result_match import MAX_RESULT_ROWS

JUDGES = {"judge", "reference", "llm", "agentcpm"}


def build_context(
    config: RewardConfig, database: DatabaseConfig | None = None, *, run: str = "", environment: bool = False
) -> ScoringContext:
    """Decide who judges: the configuration, JUDGE_ENDPOINTS, TEACHER_* and REWARD_MODEL_*. No request is made here.

    `database` is read by `sql_result`. `run` names the account that all processes of a run share; "" opens one of
    its own. `environment`: the agent's tools have an environment that gives rewards. Raises UserError for an unknown or
    unusable default scorer or term, a module of scorers that cannot be imported, a prompt of the judge that lacks
    something, kind "llm" without an endpoint, half-set variables, or a mode that needs an LLM judge.
    """
    load_scorers(config.scorer_modules)
    _check_prompt(config)
    name, judge = _judge(config, run)
    model, no_model = _reward_model(config)
    if config.reword and judge is None:
        if no_model and os.environ.get(ENV_URL, "").strip():
            raise UserError(f"reward.reword = {config.reword}: {no_model}")
        how = f"the reward model, up to {config.reword}" if model else f"off, {ENV_URL} is not set"
        name += f"; other words: {how}"
    tables = database and database.model_copy(update={"max_rows": MAX_RESULT_ROWS})
    context = ScoringContext(
        config=config,
        judge_name=name,
        llm=judge,
        reward_model=model,
        no_reward_model=no_model,
        databases=tables and Databases(tables),
        own_database=tables is not None and database_place(tables) != database_place(DatabaseConfig()),
        environment=environment,
    )
    for term in context.terms_for(""):
        if ":" in term.scorer and term.scorer not in SCORERS:
            load_function(term.scorer)
        if problem := why_unusable(term.scorer, dataclasses.replace(context, target=term.target)):
            key = "reward.terms: scorer" if config.terms else "reward.default_scorer"
            raise UserError(f"{key} = {term.scorer!r}: {problem}")
    return dataclasses.replace(context, judge_name=_grader(context))


def _grader(context: ScoringContext) -> str:
    """Who grades a row that names no scorer: the judge, or by name the scorers, beside an LLM that rows may ask for."""
    scorers = [term.scorer for term in context.terms_for("")]
    if JUDGES & {*scorers}:
        return context.judge_name
    named = f"none; scorer {' + '.join(scorers)}"
    return f"{named}; where a row asks for it: {context.judge_name}" if context.llm else named


def _judge(config: RewardConfig, run: str) -> tuple[str, LLMJudge | None]:
    why = "reward.judge.kind = reference"
    if config.judge.kind != "reference":
        try:
            if endpoints := endpoints_from_env():
                judge = _llm_judge(endpoints, config, run=run)
                return judge.name, judge
        except ValueError as exc:
            raise UserError(str(exc)) from exc
        why = "no TEACHER_* endpoint set"
    if config.judge.kind == "llm":
        raise UserError(
            "reward.judge.kind = 'llm': the LLM judge needs TEACHER_API_KEY, TEACHER_MODEL and TEACHER_BASE_URL. "
            "Set them in .env, or use --set reward.judge.kind=reference"
        )
    if config.judge.mode != "pointwise":
        raise UserError(
            f"reward.judge.mode = {config.judge.mode!r}: the offline reference judge grades pointwise only. Set "
            "TEACHER_API_KEY, TEACHER_MODEL and TEACHER_BASE_URL, or use --set reward.judge.mode=pointwise"
        )
    return f"offline reference judge ({why})", None


def _prompt(config: RewardConfig) -> Path | None:
    return resolve_path(config.judge.prompt, ROOT) if config.judge.prompt else None


def _check_prompt(config: RewardConfig) -> None:
    """Also where no endpoint is set: a recipe that is tried offline should be right online."""
    try:
        if path := _prompt(config):
            read_prompt(path)
    except ValueError as exc:
        raise UserError(f"reward.judge.prompt = {config.judge.prompt!r}: {exc}") from exc


def _reward_model(config: RewardConfig) -> tuple[RewardModelClient | None, str]:
    """The client, or why there is none: an error only where a row asks for it."""
    options = config.reward_model
    scale = resolve_path(options.scale_file, ROOT) if options.scale_file else None
    try:
        client = reward_model_from_env(scale, timeout_s=options.timeout_s, attempts=options.attempts)
    except ValueError as exc:
        return None, str(exc)
    return client, "" if client else "needs REWARD_MODEL_URL, the address of a scoring API. Set it in .env"


def _llm_judge(endpoints: Sequence[JudgeEndpoint], config: RewardConfig, *, run: str) -> LLMJudge:
    options = config.judge
    return LLMJudge(
        endpoints,
        language=options.language,
        prompt=_prompt(config),
        timeout_s=options.timeout_s,
        max_tokens=options.max_tokens,
        attempts=options.attempts,
        concurrency=options.concurrency,
        rpm=options.rpm,
        tpm=options.tpm,
        budget=Budget(calls=options.budget_calls, tokens=options.budget_tokens, cost=options.budget_cost),
        folder=(HOME / Path(options.folder).expanduser()).resolve(),
        run=run,
    )
