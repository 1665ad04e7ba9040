"""The tiny policy of this recipe: a teacher who shows how to call the two tools, and who errs on purpose.

Guarantees: people, things and places are made-up words, fresh in each demonstration, and wordings are those of the
training questions, so nothing of validation and test is shown. The flawed teacher mostly adds, whatever is asked,
leaves the second step out, and stops a series one too early: GRPO is there to correct that.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipes.math_cpu.problems import KINDS, PEOPLE, PLACES, THINGS, WORDINGS, Call, Problem, make
from sql_agent.tiny_policy.task import Lesson, Message, Settings, TinyTask

HERE = Path(__file__).resolve().parent
PROMPT = HERE / "prompt.txt"
ALWAYS_ADDS, ONE_STEP, TOO_EARLY = 0.6, 0.7, 0.6
SYLLABLES = "ba be bo da de di do fa fi ga go ka ki ko la le li lo ma me mi mo na ne ni no pa po ra ri ro sa so ta te "
SYLLABLES += "ti"
ARGUMENTS = {"calculate": "expression", "python": "code"}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {key: {}}}}}
    for name, key in reversed(ARGUMENTS.items())
]
# The fixed parts of calls and answers, and every number of two digits: one token each.
FRAMES = [
    *(f'\n{{"name": "{name}", "arguments": {{"{key}": "' for name, key in ARGUMENTS.items()),
    *('"}}\n', "sum(range(", "+1))", "))", "#### "),
    *(str(n) for n in range(10, 100)),
]
SETTINGS = Settings(echo_steps=60, query_steps=160, clean_steps=160, flawed_steps=120)


@dataclass(frozen=True)
class MathTeacher:
    """Demonstrations decided by `rng` alone."""

    rng: random.Random
    flawed: bool

    def _word(self, ending: str = "") -> str:
        return "".join(self.rng.choices(SYLLABLES.split(), k=self.rng.randint(2, 3))) + ending

    def _problem(self) -> Problem:
        kind = self.rng.choice(KINDS)
        who, things, place = self._word().capitalize(), self._word("s"), self._word()
        return make(kind, self.rng.choice(WORDINGS[kind][:-1]), self.rng, who=who, things=things, place=place)

    def _call(self, problem: Problem) -> Call:
        """What the teacher calls."""
        call, errs = problem.call, self.rng.random()
        if not self.flawed:
            return call
        if problem.kind == "series" and errs < TOO_EARLY:
            return Call(call.tool, call.text.replace("+1))", "))"))
        if problem.kind == "left_over" and errs < ONE_STEP:
            return Call(call.tool, call.text.partition("-")[0])
        if problem.kind in ("difference", "product", "share") and errs < ALWAYS_ADDS:
            return Call(call.tool, "+".join(map(str, problem.numbers)))
        return call

    def demonstrate(self) -> list[Message]:
        """A whole episode."""
        problem = self._problem()
        call = self._call(problem)
        result = worked_out(call)
        return [
            {"role": "system", "content": PROMPT.read_text(encoding="utf-8").strip()},
            {"role": "user", "content": problem.question},
            _asked(call),
            {"role": "tool", "content": result},
            {"role": "assistant", "content": f"#### {result}"},
        ]

    def query(self) -> list[Message]:
        """A question and the call."""
        problem = self._problem()
        return [{"role": "user", "content": problem.question}, _asked(self._call(problem))]

    def echo(self) -> list[Message]:
        """Repeat numbers and words."""
        n = self.rng.randint(2, 8)
        words = [self._word() if self.rng.random() < 0.3 else str(self.rng.randint(1, 5000)) for _ in range(n)]
        text = " ".join(words)
        return [{"role": "user", "content": text}, {"role": "assistant", "content": text}]


def worked_out(call: Call) -> str:
    """What the tool gives for a call of a teacher; whole numbers and, for an added share, what is added."""
    return str(eval(call.text.replace("/", "//"), {"sum": sum, "range": range, "__builtins__": {}}))


def _asked(call: Call) -> Message:
    arguments = {ARGUMENTS[call.tool]: call.text}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"type": "function", "function": {"name": call.tool, "arguments": arguments}}],
    }


def learn() -> Lesson:
    """The lesson."""
    words = [word for group in (PEOPLE, THINGS, PLACES) for text in group.values() for word in text.split()]
    wordings = [text for texts in WORDINGS.values() for text in texts]
    frame = ["system", "user", "assistant", *ARGUMENTS, *ARGUMENTS.values(), "error", *(str(n) for n in range(100))]
    prompt = PROMPT.read_text(encoding="utf-8")
    texts = [*words, *SYLLABLES.split(), *wordings, *frame, prompt, json.dumps(frame)] * 3
    return Lesson(texts=texts, frames=FRAMES, tools=TOOLS, teacher=MathTeacher, settings=SETTINGS)


TASK = TinyTask(
    name="math agent",
    sources=[HERE / "tiny.py", HERE / "problems.py", PROMPT],
    shipped=HERE / "shipped",
    about=f"""The teacher is flawed on purpose. It mostly adds whatever is asked ({ALWAYS_ADDS:.0%}), leaves out the
  second step ({ONE_STEP:.0%}) and stops a series one too early ({TOO_EARLY:.0%}). GRPO is there to correct that; its
  gain here says nothing of larger models.
- It understands the wordings that it was shown, and numbers up to 99.""",
    learn=learn,
)
