"""What a served agent kept (serving/kept.py) -> questions, conversations and preference pairs, each with its origin.

Guarantees: a pure function of the file; of several feedbacks on an answer the last counts; an answer is a reference, or
a conversation to learn from, only where somebody said that it was good, or gave the right one. A corrected answer is a
reference alone: its agent has not found it, and would learn to say what its queries do not show. Two answers are a pair
where one was good and one bad, with the same prompt and the same history. Private data is looked for again. What is
left out has its reason.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from foundation.errors import UserError
from foundation.files import BadLine, decode_line, numbered_lines
from sql_agent.curation.chats import Limits, Turn, why_unusable
from sql_agent.curation.private import private
from sql_agent.curation.wording import wording

Row = dict[str, Any]


class Message(BaseModel):
    """Of a client."""

    role: Literal["user", "assistant"]
    content: str


class Conversation(BaseModel):
    """A line of the file: what a client `said`, and the agent's `messages`, `queries` that ran, and `answer` then."""

    kind: Literal["conversation"]
    id: str
    model: str
    db_id: str
    prompt: str
    at: int
    said: list[Message] = Field(min_length=1)
    messages: list[dict[str, Any]]
    answer: str
    queries: list[str]


class Feedback(BaseModel):
    """A line of the file: what was said of an answer."""

    kind: Literal["feedback"]
    id: str
    score: Literal[1, -1]
    answer: str = ""


LINE: TypeAdapter[Conversation | Feedback] = TypeAdapter(
    Annotated[Conversation | Feedback, Field(discriminator="kind")]
)


@dataclass
class Curated:
    """The rows for `agentgrpo train`, `sft` and `dpo`, and (id, question, why) of what was left out."""

    questions: list[Row] = field(default_factory=list)
    conversations: list[Row] = field(default_factory=list)
    pairs: list[Row] = field(default_factory=list)
    dropped: list[Row] = field(default_factory=list)


@dataclass(frozen=True)
class Talk:
    """A kept conversation and what was said of it: `score` 1, -1, or 0 for nothing; `correct`: the right answer."""

    row: Conversation
    origin: Row
    score: int = 0
    correct: str = ""

    @property
    def question(self) -> str:
        """The last message of the client."""
        return " ".join(self.row.said[-1].content.split())

    @property
    def reference(self) -> str:
        """The answer that somebody vouched for; "" for none."""
        return self.correct or (self.row.answer if self.score == 1 else "")

    @property
    def messages(self) -> list[Row]:
        """The conversation as the model saw it."""
        client_messages = [message.model_dump() for message in self.row.said]
        return [{"role": "system", "content": self.row.prompt}, *client_messages, *self.row.messages]


def read_talks(path: Path) -> tuple[list[Talk], list[str]]:
    """The conversations of a file, and what could not be read or belongs to none. Raises UserError for no file."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; name what `agentgrpo serve --as-agent --set serve.keep=FILE` wrote")
    rows: dict[str, Conversation] = {}
    feedback: dict[str, Feedback] = {}
    bad: list[str] = []
    for number, line in numbered_lines(path):
        try:
            row = LINE.validate_python(decode_line(line))
        except (BadLine, ValidationError) as exc:
            bad.append(f"line {number}: {exc if isinstance(exc, BadLine) else 'is no kept conversation or feedback'}")
            continue
        if isinstance(row, Feedback):
            feedback[row.id] = row
        else:
            rows[row.id] = row
    if not rows:
        raise UserError(f"{path}: no conversation in it; " + ("; ".join(bad[:3]) or "nobody has talked yet"))
    bad += [f"feedback on {name}, which was not kept" for name in feedback if name not in rows]
    return [_talk(path, row, feedback.get(name)) for name, row in rows.items()], bad


def _talk(path: Path, row: Conversation, feedback: Feedback | None) -> Talk:
    score, correct = (feedback.score, feedback.answer) if feedback else (0, "")
    return Talk(
        row, {"file": path.name, "id": row.id, "model": row.model, "at": row.at, "score": score}, score, correct
    )


def curate(talks: list[Talk], limits: Limits) -> Curated:
    """The rows of the usable conversations."""
    curated = Curated()
    usable = list[Talk]()
    for talk in talks:
        if why := next(filter(None, (private(message.content) for message in talk.row.said)), ""):
            curated.dropped.append({"id": talk.row.id, "why": f"holds {why}"})
        else:
            usable.append(talk)
    _questions(usable, limits, curated)
    curated.conversations = [
        {"messages": talk.messages, "meta": {"origin": talk.origin}}
        for talk in usable
        if talk.score == 1 and not talk.correct
    ]
    curated.pairs = _pairs(usable)
    return curated


def _questions(talks: list[Talk], limits: Limits, curated: Curated) -> None:
    """Each question that stands alone, once: where it was asked several times, with a reference if there is one."""
    first_names: dict[tuple[Any, ...], str] = {}
    for talk in sorted(talks, key=lambda talk: not talk.reference):
        name = talk.row.id
        first = len(talk.row.said) == 1
        why = why_unusable(Turn(name, 1 if first else 2, talk.question), limits, first=first)
        key = (talk.row.db_id, *wording(talk.question).words)
        if not why and key in first_names:
            why = f"asked before ({first_names[key]})"
        if why:
            curated.dropped.append({"id": name, "question": talk.question, "why": why})
            continue
        first_names[key] = name
        sql = talk.row.queries[-1:] if talk.score == 1 and not talk.correct else []
        row = {"qid": f"traffic-{name[-12:]}", "question": talk.question, "ground_truth": talk.reference, "sql": sql}
        if talk.row.db_id:
            row["db_id"] = talk.row.db_id
        curated.questions.append({**row, "meta": {"origin": talk.origin}})


def _pairs(talks: list[Talk]) -> list[Row]:
    """Good and bad answers to the same, the first with the first."""
    same: dict[str, dict[int, list[Talk]]] = defaultdict(lambda: defaultdict(list))
    for talk in talks:
        key = json.dumps([message.content for message in talk.row.said] + [talk.row.prompt, talk.row.db_id])
        same[key][talk.score].append(talk)
    return [
        {"chosen": good.messages, "rejected": bad.messages, "meta": {"origin": [good.origin, bad.origin]}}
        for by_score in same.values()
        for good, bad in zip((talk for talk in by_score[1] if not talk.correct), by_score[-1], strict=False)
        if good.messages != bad.messages
    ]
