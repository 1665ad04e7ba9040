"""Section `data`: the questions."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from sql_agent.config.node import Node, option

QUESTION_FILES = (".parquet", ".jsonl", ".json", ".ndjson", ".csv")
TRAIN, VAL = "data/train.parquet", "data/val.parquet"


class FileConfig(Node):
    """One of several question files: its share, and the agent of the rows that name none."""

    file: str = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0, le=1000)
    agent: str = ""


class PoolWeights(Node):
    """Shares of a step's questions, by pool; pools without a question give theirs to the others."""

    new: float = option(2.0, "not asked yet", gt=0)
    hard: float = option(1.0, "solved by up to a third of their rollouts, and not never", gt=0)
    middle: float = option(1.0, "by a third to two thirds", gt=0)
    easy: float = option(0.5, "by more, and not always", gt=0)
    rested: float = option(0.25, "never or always solved, after their rest", gt=0)


class CurriculumConfig(Node):
    """Questions by how often each was solved."""

    on: bool = option(False, "choose [by difficulty](15-training.md#curriculum)")
    solved_at: float = option(0.5, "a rollout with this reward or more has solved its question")
    half_life_steps: float = option(24.0, "training steps after which a rollout counts half as much", gt=0)
    rest_steps: int = option(12, "training steps that a question rests which was never or always solved", ge=0)
    edge: float = option(0.06, "never solved: a share of at most this; always: at least 1 less this", ge=0, lt=0.5)
    probe: int = option(0, "questions played before the first step, to fill the pools and forecast flat groups", ge=0)
    weights: PoolWeights = PoolWeights()

    def problems(self) -> Iterator[str]:
        keys = self.model_dump(exclude_defaults=True)
        if keys and not self.on:
            yield (
                f"data.curriculum.{next(iter(keys))} has nothing to do: set data.curriculum.on = true, or leave it out"
            )


class DataConfig(Node):
    """The questions. Relative paths are looked up from the working directory, then from sql_agent/."""

    train_file: str = option(TRAIN, "training questions")
    val_file: str = option(VAL, "validation questions")
    train_files: list[FileConfig] = option(
        [],
        "[several files](15-training.md#several-tasks-in-one-run) instead, each with its share of a step: "
        "`{ file = ..., weight = 1.0, agent = ... }`",
    )
    val_files: list[FileConfig] = option([], "several files instead, each with its share of `val_max_rows`")
    from_store: str = option(
        "", "a finished run whose [stored rollouts](15-training.md#stored-rollouts) are learned from, no new ones"
    )
    from_store_uses: int = option(1, "how often each stored rollout is used at most", of="data.from_store", ge=1)
    val_max_rows: int = option(64, "validation questions used in one validation", ge=1)
    seed: int = option(1, "order of the training questions, and which rows share an optimizer step", ge=0, lt=1 << 32)

    curriculum: CurriculumConfig = CurriculumConfig()

    @property
    def training(self) -> list[FileConfig]:
        return self.train_files or [FileConfig(file=self.train_file)]

    @property
    def validation(self) -> list[FileConfig]:
        return self.val_files or [FileConfig(file=self.val_file)]

    def problems(self) -> Iterator[str]:
        for name, file, several, default in (
            ("train", self.train_file, self.train_files, TRAIN),
            ("val", self.val_file, self.val_files, VAL),
        ):
            if several and file != default:
                yield (
                    f"data.{name}_file = {file!r} is one file, and data.{name}_files names {len(several)}: leave one "
                    f"of the two out, with --set 'data.{name}_files=[]' for example"
                )
