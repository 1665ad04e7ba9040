"""The faults of the environment: a branch of the tree in foundation/errors.py. A fault is never a reward.

Fault                 the episode has no meaning: the rollout stays unscored and is counted by `kind`
 |-- LLMFault         the model's endpoint failed (429, 5xx, timeout, connection reset, proxy death)
 |-- DatabaseFault    the database is missing, locked, corrupt or was replaced while running
 |-- ReaderFault      the model that reads long results (agent.reader) failed at all its addresses
 |-- ToolFault        a tool is broken: its environment, its MCP server (a tool of one's own may raise it too)
 +-- EpisodeFault     an episode of one's own raised, or its program ended with an error or at its limit
"""

from __future__ import annotations

from foundation.errors import AgentGRPOError


class Fault(AgentGRPOError):
    """Something broke that is neither the policy's merit nor its mistake."""

    status = 1
    kind = "fault"


class LLMFault(Fault):
    """The model endpoint gave no usable answer."""

    kind = "llm_fault"


class DatabaseFault(Fault):
    """The database itself failed, as opposed to the query."""

    kind = "database_fault"


class ReaderFault(Fault):
    """No address of the reader answered."""

    kind = "reader_fault"


class ToolFault(Fault):
    """A tool is broken, as opposed to used wrongly. `tool` and `reason`, a word, are what it is counted by."""

    kind = "tool_fault"

    def __init__(self, text: str, *, tool: str = "", reason: str = "fault") -> None:
        super().__init__(text)
        self.tool, self.reason = tool, reason


class EpisodeFault(Fault):
    """The code that plays the episode failed."""

    kind = "episode_fault"
