"""Who grades the episodes of a configuration: what its tools bring along is decided here, the rest in scoring."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from sql_agent.agent.toolset import SQL, Toolset
from sql_agent.config import TrainConfig
from sql_agent.scoring.build import build_context
from sql_agent.scoring.registry import ScoringContext


def scoring_of(config: TrainConfig, *, run: str = "") -> ScoringContext:
    """The scoring context of a run. Raises UserError for tools or scorers that cannot be used."""
    with closing(Toolset(config)) as toolset:
        environment = toolset.gives_rewards
    database = config.database if SQL in config.agent.tools else None
    context = build_context(config.reward, database, run=run, environment=environment)
    return replace(context, min_turns=config.agent.min_turns)
