"""Section `serve`: the agent behind an address."""

from __future__ import annotations

from sql_agent.config.node import Node, option


class ServeConfig(Node):
    """The agent behind an address."""

    vote: int = option(
        0,
        "answers that are drawn for each question; the one is sent whose result set most of them found; "
        "0: one, without a vote",
        ge=0,
    )
    keep: str = option(
        "",
        "file to which conversations and feedback are appended, for [agentgrpo curate "
        "traffic](45-curate.md#traffic); empty: nothing is kept",
    )
