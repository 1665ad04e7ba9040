"""The tiny policy of this recipe: the flawed teacher of `agentgrpo mine`, in turn for each of the eight databases."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

from recipes.spider_cpu import databases
from sql_agent.mining import asks, questions, rewording, schema, tiny
from sql_agent.mining.state import Settled
from sql_agent.tiny_policy.task import Lesson, Message, Settings, Teacher, TinyTask

HERE = Path(__file__).resolve().parent
PROMPT = HERE / "prompt.txt"
SETTINGS = Settings(echo_steps=100, query_steps=1000, clean_steps=260, flawed_steps=240, query_rows=48, loss_max=0.35)
SETTLED = Settled(database="", size=0, changed_ns=0, language="en", seed=databases.SEED, questions=0)


@dataclass(frozen=True)
class Several:
    """One of the teachers each time."""

    rng: random.Random
    teachers: list[Teacher]

    def demonstrate(self) -> list[Message]:
        """A whole episode about one database."""
        return self.rng.choice(self.teachers).demonstrate()

    def query(self) -> list[Message]:
        """A question and the call."""
        return self.rng.choice(self.teachers).query()

    def echo(self) -> list[Message]:
        """An exercise in copying."""
        return self.rng.choice(self.teachers).echo()


def learn() -> Lesson:
    """The lessons of all databases as one."""
    prompt = PROMPT.read_text(encoding="utf-8").strip()
    with tempfile.TemporaryDirectory() as folder:
        lessons = [tiny.lesson_of(schema, SETTLED, prompt) for _, _, schema in databases.schemas(Path(folder))]
    return Lesson(
        texts=[text for lesson in lessons for text in lesson.texts],
        frames=list(dict.fromkeys(frame for lesson in lessons for frame in lesson.frames)),
        tools=lessons[0].tools,
        teacher=lambda rng, flawed: Several(rng, [lesson.teacher(rng, flawed) for lesson in lessons]),
        settings=SETTINGS,
    )


TASK = TinyTask(
    name="SQL agent of eight databases",
    sources=[
        Path(__file__).resolve(),
        PROMPT,
        questions.WORDINGS,
        *(Path(module.__file__ or "") for module in (databases, asks, questions, rewording, schema, tiny)),
    ],
    shipped=HERE / "shipped",
    about=tiny.ABOUT.replace("one database", "eight databases"),
    learn=learn,
)
