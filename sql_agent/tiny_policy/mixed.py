"""A tiny policy for several tasks at once: their words, and their teachers in turn.

Guarantees: what is shown is what each task alone would show, with the tools of that task after its system prompt, in
the words of the chat template; the order is decided by the generator alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sql_agent.tiny_policy.task import Lesson, Message, Settings, Teacher, TinyTask


@dataclass(frozen=True)
class MixedTeacher:
    """Asks one of several teachers each time, as often as `shares` say."""

    rng: random.Random
    teachers: list[tuple[Teacher, list[dict[str, Any]]]]
    shares: list[float]

    def _one(self) -> tuple[Teacher, list[dict[str, Any]]]:
        return self.rng.choices(self.teachers, self.shares)[0]

    def demonstrate(self) -> list[Message]:
        """A whole episode of one task."""
        teacher, tools = self._one()
        system, *rest = teacher.demonstrate()
        return [{**system, "content": system["content"] + told(tools)}, *rest]

    def query(self) -> list[Message]:
        """A question and the call."""
        return self._one()[0].query()

    def echo(self) -> list[Message]:
        """An exercise in copying."""
        return self._one()[0].echo()


def told(tools: list[dict[str, Any]]) -> str:
    """The tools as chat_template.jinja writes them after a system prompt; no one list fits all tasks of a lesson."""
    functions = [tool["function"] for tool in tools]
    return "\n工具：" + "；".join(f"{one['name']}({', '.join(one['parameters']['properties'])})" for one in functions)


def mixed(name: str, tasks: Sequence[tuple[TinyTask, float]], *, settings: Settings, sources: list[Path]) -> TinyTask:
    """One task made of several, each with its share of what is shown. The first of `sources` names the folder."""
    return TinyTask(
        name=name,
        sources=[*sources, Path(__file__), *(path for task, _ in tasks for path in task.sources)],
        shipped=sources[0].parent / "shipped",
        about="\n- ".join(f"As {task.name}: {task.about}" for task, _ in tasks),
        learn=lambda: _lesson([(task.learn(), share) for task, share in tasks], settings),
        language="zh",
    )


def _lesson(lessons: list[tuple[Lesson, float]], settings: Settings) -> Lesson:
    def teacher(rng: random.Random, flawed: bool) -> Teacher:
        return MixedTeacher(
            rng, [(lesson.teacher(rng, flawed), lesson.tools) for lesson, _ in lessons], [share for _, share in lessons]
        )

    return Lesson(
        texts=[text for lesson, _ in lessons for text in lesson.texts],
        frames=list(dict.fromkeys(frame for lesson, _ in lessons for frame in lesson.frames)),
        tools=[],  # they stand in the system prompts
        teacher=teacher,
        settings=settings,
    )
