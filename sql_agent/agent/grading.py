"""Who grades the episodes of a configuration: what its tools bring along is decided here, the rest in scoring."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace

from sql_agent.agent.toolset import SQL, Toolset
from sql_agent.config import AgentTree, agents_of
from sql_agent.scoring.build import build_context
from sql_agent.scoring.registry import ScoringContext


def scoring_of(config: AgentTree, *, run: str = "", opened: Callable[[str], Toolset] | None = None) -> ScoringContext:
    """The scoring context of a run and of its agents. Raises UserError for tools or scorers that cannot be used.

    `opened` gives the tools of an agent where they are there already.
    """
    with ExitStack() as stack:
        # Together: own tools of all agents are forked from one process, which takes a second to start.
        toolsets = {
            name: opened(name) if opened else stack.enter_context(closing(Toolset(of_agent)))
            for name, of_agent in agents_of(config).items()
        }
        of_all = {name: _scoring_of(of_agent, toolsets[name], run=run) for name, of_agent in agents_of(config).items()}
    default = of_all.pop("")
    # One judge and one reward model, with one budget.
    shared = {"llm": default.llm, "reward_model": default.reward_model}
    return replace(default, agents={name: replace(of_agent, **shared) for name, of_agent in of_all.items()})


def _scoring_of(config: AgentTree, toolset: Toolset, *, run: str) -> ScoringContext:
    environment = bool(config.agent.agl_class) or any(kind.rewards for kind in toolset.kinds)
    database = config.database if SQL in config.agent.tools else None
    context = build_context(config.reward, database, run=run, environment=environment)
    return replace(context, min_turns=config.agent.min_turns)
