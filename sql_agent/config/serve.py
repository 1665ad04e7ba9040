"""Section `serve`: the agent behind an address."""

from __future__ import annotations

from pydantic import Field

from sql_agent.config.node import Node


class ServeConfig(Node):
    """The agent behind an address."""

    vote: int = Field(
        default=0,
        ge=0,
        description="answers that are drawn for each question; the one is sent whose result set most of them found; "
        "0: one, without a vote",
    )
    keep: str = Field(
        default="",
        description="file to which conversations and feedback are appended, for [agentgrpo curate "
        "traffic](45-curate.md#traffic); empty: nothing is kept",
    )
