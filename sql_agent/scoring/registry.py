"""The one table of scorers, and the two ways to add to it: the decorator `scorer`, and entry points.

Guarantees: a name means one scorer; a scorer that cannot be loaded is a UserError that names it before the run.
Entry points of the group `agentgrpo.scorers` are loaded with the configured modules, by `load_scorers`.
Not covered: what the scorers compute (scorers.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any, cast

from foundation import modules
from foundation.errors import UserError, did_you_mean
from reward_client.judge import LLMJudge
from reward_client.reward_model import RewardModelClient
from sql_agent.config import ROOT, RewardConfig, resolve_path
from sql_agent.config.agents import unknown_agent
from sql_agent.config.reward import TermConfig
from sql_agent.environment.database import Database
from sql_agent.environment.databases import Databases
from sql_agent.records import Episode, Question, Score

ENTRY_POINTS = "agentgrpo.scorers"
BAD_SCORE = "bad_score"


@dataclass(frozen=True)
class ScoringContext:
    """What scorers share. `judge_name` is for people. None stands for what is not there in this run.

    `llm` is None where the offline reference judge grades; `no_reward_model` says why there is no reward model.
    `databases` are the agent's, with a higher limit of rows. `in_group`: the episode belongs to a group that will be
    graded together (see groups.py). `environment`: the agent's environment gives a reward, which then grades what
    neither a row nor the configuration grades otherwise. `target` and `limit` are those of the term under way, 0
    without one. In a group an answer that earns something with fewer than `min_turns` LLM calls stays unscored.
    `agents` are the contexts of the run's further agents. `own_database`: the database is not the bundled one.
    """

    config: RewardConfig
    judge_name: str
    llm: LLMJudge | None = None
    reward_model: RewardModelClient | None = None
    no_reward_model: str = ""
    databases: Databases | None = None
    own_database: bool = False
    environment: bool = False
    in_group: bool = False
    target: int = 0
    min_turns: int = 1
    limit: int = 0
    agents: dict[str, ScoringContext] = field(default_factory=dict)

    def of(self, agent: str) -> ScoringContext:
        """The context that grades this agent's rows, "" being [agent] itself. Raises UserError for an unknown one."""
        if not agent:
            return self
        if agent not in self.agents:
            raise UserError(f"agent {agent!r}: {unknown_agent(agent, self.agents)}")
        return replace(self.agents[agent], in_group=self.in_group)

    def database_of(self, db_id: str) -> Database | None:
        """The question's database; None where the agent has none. Raises DatabaseFault."""
        return self.databases and self.databases.of(db_id)

    def terms_for(self, scorer: str) -> list[TermConfig]:
        """What a row is graded by that names `scorer` ("": none)."""
        unset = not scorer and self.config.default_scorer == "judge" and not self.config.terms
        return self.config.terms_for("environment" if unset and self.environment else scorer)

    def close(self) -> None:
        """End the processes that scorers started."""
        for context in (self, *self.agents.values()):
            if context.databases:
                context.databases.close()


Scorer = Callable[[Question, Episode, ScoringContext], Awaitable[Score | float] | Score | float]
SCORERS: dict[str, Scorer] = {}


def scorer[F: Scorer](*names: str) -> Callable[[F], F]:
    """Register the decorated function, sync or async, under these names.

    It gets the question, the episode with the cleaned final answer (never an empty one) and the context, and gives a
    Score, or a number in [0, 1]. Raises UserError when a name is taken by another function.
    """

    def register(function: F) -> F:
        for name in names:
            _add(name, function)
        return function

    return register


def _add(name: str, function: Scorer) -> None:
    earlier = SCORERS.setdefault(name, function)
    # A file that is loaded twice makes its functions anew; that is the same scorer.
    if earlier is not function and _origin(earlier) != _origin(function):
        raise UserError(
            f"scorer {name!r} is registered twice, by {_origin(earlier)} and {_origin(function)}; rename one"
        )
    SCORERS[name] = function


def _origin(function: Any) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"


def load_scorers(modules: Sequence[str]) -> None:
    """Import the modules (dotted names, or paths of .py files) and entry points that hold scorers.

    Raises UserError for one that cannot be imported.
    """
    for name in modules:
        try:
            import_module(name)
        except UserError:
            raise
        except Exception as exc:  # the user's own module may fail in any way, and its name is what helps
            raise UserError(f"reward.scorer_modules: {name!r} cannot be imported ({exc!r:.300})") from exc
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            function = entry.load()
        except Exception as exc:  # a package of somebody else
            raise UserError(f"entry point {entry.value!r} of {ENTRY_POINTS} cannot be loaded ({exc!r:.300})") from exc
        if not callable(function):
            raise UserError(f"entry point {entry.value!r} of {ENTRY_POINTS} is no function; a scorer is one")
        _add(entry.name, cast(Scorer, function))


def import_module(name: str) -> ModuleType:
    """The module of a dotted name or of a .py file, which is loaded once. Raises whatever the module raises."""
    return modules.import_module(str(resolve_path(name, ROOT)) if name.endswith(".py") else name)


def unknown_scorer(name: str) -> str:
    """What is wrong with this name, and which names there are."""
    return f"no such scorer. There are: {', '.join(SCORERS)}{did_you_mean(name, SCORERS)}"
