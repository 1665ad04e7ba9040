"""Section `data`: the questions."""

from __future__ import annotations

from pydantic import Field, model_validator

from sql_agent.config.node import Node

QUESTION_FILES = (".parquet", ".jsonl", ".json", ".ndjson", ".csv")
TRAIN, VAL = "data/train.parquet", "data/val.parquet"


class FileConfig(Node):
    """One of several question files: its share, and the agent of the rows that name none."""

    file: str = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0, le=1000)
    agent: str = ""


class DataConfig(Node):
    """The questions. Relative paths are looked up from the working directory, then from sql_agent/."""

    train_file: str = Field(default=TRAIN, description="training questions")
    val_file: str = Field(default=VAL, description="validation questions")
    train_files: list[FileConfig] = Field(
        default=[],
        description="[several files](15-training.md#several-tasks-in-one-run) instead, each with its share of a step: "
        "`{ file = ..., weight = 1.0, agent = ... }`",
    )
    val_files: list[FileConfig] = Field(
        default=[], description="several files instead, each with its share of `val_max_rows`"
    )
    val_max_rows: int = Field(default=64, ge=1, description="validation questions used in one validation")
    seed: int = Field(default=1, description="order of the training questions, and which rows share an optimizer step")

    @property
    def training(self) -> list[FileConfig]:
        """The files to train on."""
        return self.train_files or [FileConfig(file=self.train_file)]

    @property
    def validation(self) -> list[FileConfig]:
        """The files to validate with."""
        return self.val_files or [FileConfig(file=self.val_file)]

    @model_validator(mode="after")
    def _one_or_several(self) -> DataConfig:
        for name, one, several, default in (
            ("train", self.train_file, self.train_files, TRAIN),
            ("val", self.val_file, self.val_files, VAL),
        ):
            if several and one != default:
                raise ValueError(
                    f"data.{name}_file = {one!r} is one file, and data.{name}_files names {len(several)}: leave one of "
                    f"the two out, with --set 'data.{name}_files=[]' for example"
                )
        return self
