"""The public names of scoring: `from sql_agent.scorers import scorer` is all that a scorer of your own needs."""

from sql_agent.scoring.build import build_context
from sql_agent.scoring.check import check_scorers
from sql_agent.scoring.registry import SCORERS, Scorer, ScoringContext, scorer
from sql_agent.scoring.reward import score

__all__ = ["SCORERS", "Scorer", "ScoringContext", "build_context", "check_scorers", "score", "scorer"]
