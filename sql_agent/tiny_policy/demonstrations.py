"""Conversations to learn from as a file of messages, one a line: what `train_sft.py --dataset` takes.

    python -m sql_agent.tiny_policy.demonstrations --seed 1 --out shown.jsonl                     the warm start's
    python -m sql_agent.tiny_policy.demonstrations --questions data/train.parquet --out shown.jsonl

The first makes exercises and demonstrations of the teachers of the warm start, in the shares of `Settings`, decided by
the seed. The second answers bundled questions rightly: the query by name that the agent could have written, its real
result, and the facts in it. Guarantees: of questions it reads that file alone, and what it shows is what the agent's
database gives.
Not covered: questions of other makes, whose `meta` does not say what is asked.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from foundation.command import shown_errors
from foundation.errors import UserError
from foundation.files import write_lines
from sql_agent.config import DatabaseConfig, data_path, database_path
from sql_agent.data.dataset import load_questions
from sql_agent.environment.database import Database
from sql_agent.records import Question
from sql_agent.tiny_policy.build import task_of_recipe
from sql_agent.tiny_policy.corpus import load_corpus
from sql_agent.tiny_policy.demos import Draft, answer, to_messages
from sql_agent.tiny_policy.task import Lesson, Message, Settings

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def query_by_name(question: Question) -> str:
    """The SQL that answers a bundled question from its words alone. Raises KeyError for other questions."""
    intent, fields, entity = (question.meta[name] for name in ("intent", "fields", "entity"))
    table = question.evidence[0].source_table
    key = {words.table: words.key for words in load_corpus().tables}[table]
    names = [_quoted(value) for slot, value in entity.items() if "_name" in slot and isinstance(value, str)]
    if intent == "compare":
        return f"SELECT {key}, {fields[0]} FROM {table} WHERE {key} IN ({', '.join(names)})"
    if intent in ("search", "count"):
        what = key if intent == "search" else "COUNT(*)"
        return f"SELECT {what} FROM {table} WHERE {fields[0]} LIKE {_quoted('%' + entity['keyword'] + '%')}"
    return f"SELECT {', '.join(fields)} FROM {table} WHERE {key} = {names[0]}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def told(intent: str, rows: list[list[Any]]) -> str:
    """The answer that the rows of `query_by_name` give, in the demonstrator's words."""
    cells = [[str(cell).strip("。") for cell in row] for row in rows]
    if intent == "compare":
        return "".join(answer(intent, [fact], name=name) for name, fact in cells)
    if intent == "search":
        return answer(intent, [name for (name,) in cells])
    return "".join(answer(intent, [cell]) for cell in cells[0])


async def answered(questions: list[Question], database: Database) -> tuple[list[list[Message]], Counter[str]]:
    """A conversation for each question whose query finds something, and what was left out by its reason."""
    chats: list[list[Message]] = []
    left: Counter[str] = Counter()
    prompt = load_corpus().system_prompt
    for question in questions:
        try:
            sql = query_by_name(question)
        except (KeyError, IndexError):
            left["no bundled question"] += 1
            continue
        result = await database.query(sql)
        if not result.rows:
            left["a query that finds nothing"] += 1
            continue
        records = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
        draft = Draft(question.question, sql, records, told(question.meta["intent"], result.rows))
        chats.append(to_messages(draft, prompt))
    return chats, left


def exercises(lesson: Lesson, *, seed: int) -> Iterator[list[Message]]:
    """Without end: copying, asking, clean and flawed demonstrations, each as often as `Settings` says."""
    rng, shares = random.Random(seed), Settings()
    clean, flawed = lesson.teacher(rng, False), lesson.teacher(rng, True)
    asking = shares.query_steps * shares.query_rows
    shown = {
        clean.echo: shares.echo_steps * shares.echo_rows + asking * shares.echo_share,
        clean.query: asking * (1 - shares.echo_share),
        clean.demonstrate: shares.clean_steps * shares.batch_rows,
        flawed.demonstrate: shares.flawed_steps * shares.batch_rows,
    }
    while True:
        yield rng.choices(list(shown), list(shown.values()))[0]()


def row_of(chat: list[Message], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """A line of the file; an exercise without a system prompt has no tools, as in the warm start."""
    return {"messages": chat, "tools": tools if chat[0]["role"] == "system" else []}


def right_answers(file: str) -> list[list[Message]]:
    """Conversations for the questions of a file. Raises UserError where it has none that can be answered."""
    config = DatabaseConfig()  # pyright: ignore[reportCallIssue]
    with Database(config, database_path(config)) as database:
        chats, left = asyncio.run(answered(load_questions(data_path(file)), database))
    for reason, n in left.items():
        typer.echo(f"left out: {n} x {reason}", err=True)
    if not chats:
        raise UserError(f"--questions {file}: has no bundled question; the maker knows how to answer those alone")
    return chats


@app.command()
def main(
    out: Annotated[Path, typer.Option(help="new file, .jsonl")],
    seed: Annotated[int, typer.Option(help="the same seed gives the same exercises")] = 1,
    rows: Annotated[int, typer.Option(min=1, help="exercises to make")] = 24000,
    recipe: Annotated[str, typer.Option(help="the task of this recipe (default: SQL)")] = "",
    questions: Annotated[str, typer.Option(help="answer the bundled questions of this file instead")] = "",
) -> None:
    """Write conversations for train_sft.py: the warm start's exercises, or right answers to questions."""
    with shown_errors():
        if out.exists():
            raise UserError(f"--out {out}: exists; name a new file")
        lesson = task_of_recipe(recipe).learn()
        chats = right_answers(questions) if questions else itertools.islice(exercises(lesson, seed=seed), rows)
        write_lines(out, [row_of(chat, lesson.tools) for chat in chats])
    typer.echo(str(out))


if __name__ == "__main__":
    app()
