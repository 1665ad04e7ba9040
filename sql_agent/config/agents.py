"""Section `agents`: further agents of one run, each told by what it changes of the configuration.

    [agents.math.agent]                  # keys of the sections agent, reward, database and python;
    tools = ["tools.py"]                 # what is left out is as in the sections themselves
    [agents.math.reward]
    default_scorer = "math"

Guarantees: an agent is a whole configuration, checked like one; what one model server, one judge and one update share
cannot differ. Rows of data name their agent in the column `agent`; a row without one is played by [agent] itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from foundation.errors import did_you_mean
from foundation.rollout_keys import DEFAULT_AGENT

SECTIONS = ("agent", "reward", "database", "python")
SHARED = ("judge", "reward_model")  # of the section reward: one account, one budget, one grading of groups
NAME = re.compile(r"[A-Za-z][\w-]*")


def check_agent_tree(name: str, tree: dict[str, Any]) -> None:
    """Raise ValueError for a name or a section that an agent cannot have."""
    if not NAME.fullmatch(name) or name == DEFAULT_AGENT:
        raise ValueError(
            f"agents.{name}: an agent's name must be of letters, digits, '_' and '-', begin with a letter, and not be "
            f"{DEFAULT_AGENT!r}, as rows without an agent are called. Rename it"
        )
    for section, values in tree.items():
        if section not in SECTIONS or not isinstance(values, dict):
            raise ValueError(
                f"agents.{name}.{section}: an agent has the sections {', '.join(SECTIONS)} with their keys; all else "
                f"is shared by the run. Write [agents.{name}.agent] for what stands in [agent]"
            )
    if shared := [key for key in SHARED if key in tree.get("reward", {})]:
        raise ValueError(
            f"agents.{name}.reward.{shared[0]}: one judge and one reward model grade a run; set reward.{shared[0]}"
        )


def unknown_agent(name: str, known: Iterable[str]) -> str:
    """What is wrong with this name, and which names there are."""
    names = list(known)
    there = f"There are: {', '.join(names)}{did_you_mean(name, names)}" if names else "The configuration has none"
    return f"no such agent. {there}. Name one of [agents], or leave the name out for [agent] itself"
