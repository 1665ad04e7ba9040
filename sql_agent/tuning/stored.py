"""The stored rollouts of a run (`data.from_store`) as conversations, token for token as they were played.

Guarantees: supervised is exactly what the policy sampled, after the tokens that it saw; no template, tool or agent is
asked, so rollouts of agents of one's own and of environments are learned from as any others. What is not scored stays
out and is counted.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from agl_plugin.update.rows import NAN
from foundation import run_folder
from sql_agent.config import DataConfig
from sql_agent.training.stored import check_tokens, stored_run
from sql_agent.tuning.chats import Chat
from sql_agent.tuning.sources import Source


def stored_source(data: DataConfig, runs: Path, model: Path) -> Source:
    """All stored rollouts that `model` can learn from. Raises UserError."""
    with closing(stored_run(data, runs)) as stored:
        check_tokens(stored, model)
        source = Source(str(stored.folder), stored.folder / run_folder.AUDIT, are_rollouts=True)
        source.left_out += stored.left_out
        for place in range(len(stored.groups)):
            for rollout in stored.rollouts([place], use=1, step=0):
                if rollout.reward is None:
                    source.left_out["unscored"] += 1
                else:
                    # The same tokens are the same conversation, whatever the last bits of their probabilities.
                    calls = tuple(replace(turn, log_probs=[NAN] * len(turn.sampled)) for turn in rollout.turns)
                    source.chats.append(Chat([], group=rollout.record["group"], reward=rollout.reward, calls=calls))
    return source
