"""Who grades the episodes of a configuration: what its tools bring along is decided here, the rest in scoring."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from sql_agent.agent.toolset import SQL, Toolset
from sql_agent.config import TrainConfig, agents_of
from sql_agent.scoring.build import build_context
from sql_agent.scoring.registry import ScoringContext


def scoring_of(config: TrainConfig, *, run: str = "") -> ScoringContext:
    """The scoring context of a run and of its agents. Raises UserError for tools or scorers that cannot be used."""
    of_all = {name: _scoring_of(one, run=run) for name, one in agents_of(config).items()}
    own = of_all.pop("")
    # One judge and one reward model, with one budget.
    shared = {"llm": own.llm, "reward_model": own.reward_model}
    return replace(own, agents={name: replace(one, **shared) for name, one in of_all.items()})


def _scoring_of(config: TrainConfig, *, run: str) -> ScoringContext:
    with closing(Toolset(config)) as toolset:
        environment = toolset.gives_rewards or bool(config.agent.agl_class)
    database = config.database if SQL in config.agent.tools else None
    context = build_context(config.reward, database, run=run, environment=environment)
    return replace(context, min_turns=config.agent.min_turns)
