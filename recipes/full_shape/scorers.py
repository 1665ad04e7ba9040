"""A reward that differs without knowing anything: the shorter an answer, the better.

Random weights never answer a question, so every judge gives 0 and a group has no variance; lengths always differ.
"""

from __future__ import annotations

from sql_agent.records import Episode, Question
from sql_agent.scoring.registry import ScoringContext, scorer

HALF_CHARS = 200


@scorer("shorter_is_better")
def shorter_is_better(question: Question, episode: Episode, context: ScoringContext) -> float:
    """1 for an empty answer, 1/2 at HALF_CHARS characters."""
    return HALF_CHARS / (HALF_CHARS + len(episode.final_answer))
