"""The faults of the environment: a branch of the tree in foundation/errors.py. A fault is never a reward."""

from __future__ import annotations

from foundation.errors import AgentGRPOError


class Fault(AgentGRPOError):
    """The episode has no meaning: the rollout stays unscored and is counted by `kind`."""

    status = 1
    kind = "fault"


class LLMFault(Fault):
    """The model's endpoint failed (429, 5xx, timeout, connection reset, proxy death)."""

    kind = "llm_fault"


class DatabaseFault(Fault):
    """The database, as opposed to the query: it is missing, locked, corrupt or was replaced while running."""

    kind = "database_fault"


class ReaderFault(Fault):
    """The model that reads long results (agent.reader) failed at all its addresses."""

    kind = "reader_fault"


class ToolFault(Fault):
    """A tool is broken, as opposed to used wrongly: its environment, its MCP server; a tool of one's own may raise it.

    `tool` and `reason`, a word, are what it is counted by.
    """

    kind = "tool_fault"

    def __init__(self, text: str, *, tool: str = "", reason: str = "fault") -> None:
        super().__init__(text)
        self.tool, self.reason = tool, reason


class EpisodeFault(Fault):
    """An episode of one's own raised, or its program ended with an error or at its limit."""

    kind = "episode_fault"
