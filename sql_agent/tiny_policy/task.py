"""What a tiny policy is made for: words, tools, and a teacher whose habits GRPO is there to correct.

A recipe brings one along as the object TASK of a module or .py file, named by `model.tiny`; without it the task is SQL
(sql_task.py). Everything else - tokenizer, network, wiring, warm start, cache, shipped weights - is the same.
Light: naming a task and its fingerprint loads none of what training needs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from foundation.errors import UserError
from sql_agent.scoring.registry import import_module

Message = dict[str, Any]
HERE = Path(__file__).resolve().parent
AGENT = HERE.parent
MAKERS = [HERE / f"{name}.py" for name in ("task", "tokenizer", "train", "wired")] + [HERE / "chat_template.jinja"]


class Teacher(Protocol):
    """An endless source of chats."""

    def demonstrate(self) -> list[Message]:
        """A whole episode: system prompt, question, call, result, answer."""
        ...

    def query(self) -> list[Message]:
        """An exercise in asking: a question and the call."""
        ...

    def echo(self) -> list[Message]:
        """An exercise in copying: a text, and the same text."""
        ...


@dataclass(frozen=True)
class Settings:
    """Sizes and schedule; part of the fingerprint of a built policy."""

    echo_steps: int = 120
    query_steps: int = 220
    clean_steps: int = 450
    flawed_steps: int = 250
    echo_rows: int = 32
    query_rows: int = 64
    echo_share: float = 0.25
    batch_rows: int = 16
    muon_lr: float = 0.02
    adamw_lr: float = 3e-3
    weight_decay: float = 0.0
    final_lr_share: float = 0.1
    loss_max: float = 0.3

    @property
    def n_steps(self) -> int:
        """Optimizer steps of all stages together."""
        return self.echo_steps + self.query_steps + self.clean_steps + self.flawed_steps


@dataclass(frozen=True)
class Lesson:
    """What is taught. `frames` are texts of one token each; `teacher` gets a generator, and whether it is flawed."""

    texts: list[str]
    frames: list[str]
    tools: list[dict[str, Any]]
    teacher: Callable[[random.Random, bool], Teacher]
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True)
class TinyTask:
    """A task by name. `sources` decide its lesson; `shipped` is the folder of weights that come along; `about` is for
    the model card: what it cannot do, and how its teacher errs.
    """

    name: str
    sources: Sequence[Path]
    shipped: Path
    about: str
    learn: Callable[[], Lesson]
    language: str = "en"


def load_task(source: str) -> TinyTask:
    """The task that `model.tiny` names; "" is SQL. Raises UserError."""
    try:
        task = getattr(import_module(source or "sql_agent.tiny_policy.sql_task"), "TASK", None)
    except Exception as exc:  # the user's own module may fail in any way
        raise UserError(
            f"model.tiny = {source!r} cannot be imported ({exc!r:.300}); give a module or a .py file"
        ) from exc
    if not isinstance(task, TinyTask):
        raise UserError(f"model.tiny = {source!r} has no TinyTask called TASK; see sql_agent/tiny_policy/task.py")
    return task
