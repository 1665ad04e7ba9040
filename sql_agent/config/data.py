"""Section `data`: the questions."""

from __future__ import annotations

from pydantic import Field

from sql_agent.config.node import Node


class DataConfig(Node):
    """The questions. Relative paths are looked up from the working directory, then from sql_agent/."""

    train_file: str = Field(default="data/train.parquet", description="training questions")
    val_file: str = Field(default="data/val.parquet", description="validation questions")
    val_max_rows: int = Field(default=64, ge=1, description="validation questions used in one validation")
    seed: int = Field(default=1, description="order of the training questions, and which rows share an optimizer step")
