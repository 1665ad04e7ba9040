"""Section `logging`: where metrics go besides the run folder."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sql_agent.config.node import Node


class LoggingConfig(Node):
    """Where metrics go besides the run folder."""

    trackers: list[Literal["console", "wandb", "swanlab", "tensorboard"]] = Field(
        default=["console", "wandb"], description="verl trackers"
    )
    project: str = Field(default="AgentGRPO", description="project name in the trackers")
    experiment: str = Field(
        default="sql_agent", description="experiment name in the trackers; part of the run folder's name"
    )
    audit: bool = Field(
        default=True, description="keep [audit.db](36-audit.md): what stands behind each reward and row"
    )
    debug: bool = Field(default=False, description="DEBUG log level")
