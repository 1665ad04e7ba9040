"""The commands of docs/45-curate.md one after the other, from a chat log that is made of the bundled questions.

    python -m recipes.curate_cpu.run runs/curated

Guarantees: every step is the command that a person types; the log follows from the seed, and each session says what was
planted. The same command goes on where it was stopped. Limits: without TEACHER_* or JUDGE_ENDPOINTS a rule stands in
for the language model; the references, which people would write, are those of the bundled questions.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from foundation.files import read_lines, write_lines
from sql_agent.commands.demo import run as run_command
from sql_agent.config import COMMAND, DatabaseConfig, TrainConfig, data_path, database_path
from sql_agent.data.bundled import ensure_data
from sql_agent.data.dataset import load_questions
from sql_agent.records import Question
from sql_agent.testing.server import Answer, Handler, chat_reply, openai_server

QUESTION = re.compile(r"BEGIN QUESTION [0-9a-f]+>>>\n(.*?)\n<<<END", re.DOTALL)
NAMES = "SELECT med_name FROM drugs_info UNION SELECT disease_name FROM disease"
SMALL_QUESTIONS = (
    "今天天气怎么样，适合出门跑步吗？", "帮我写一首关于春天的短诗。", "附近有什么好吃的餐馆推荐？",
    "明天去北京的高铁几点发车？", "怎样重置我的登录密码？", "这个月的房租应该怎么分摊？",
)  # fmt: skip
AGAIN: tuple[Callable[[str], str], ...] = (
    lambda text: f"医生您好，{text}",
    lambda text: f"{text.rstrip('？。')}？谢谢！",
    lambda text: f"麻烦问一下，{text}",
)
REPLY = {"role": "assistant", "content": "好的。"}
STEPS = ("asked", "kept", "kept_twice", "novel", "clean", "answered", "train")


def sessions(
    train: Sequence[Question], held_out: Sequence[Question], *, n: int, seed: int
) -> tuple[list[dict[str, Any]], list[Question]]:
    """A chat log with `n` questions worth keeping, and what is asked in vain; and an older set that knows some."""
    rng = random.Random(seed)
    drawn, part = rng.sample(list(train), 3 * n), max(1, n // 8)
    new, old = [question.question for question in drawn[:n]], drawn[n:]
    planted = [("new", text) for text in new]
    planted += [("repeated", rng.choice(AGAIN)(text)) for text in rng.sample(new, 2 * part)]
    planted += [("old", rng.choice(AGAIN)(question.question)) for question in rng.sample(old, part)]
    planted += [("held out", question.question) for question in rng.sample(list(held_out), part)]
    planted += [("off topic", text) for text in SMALL_QUESTIONS]
    private = rng.sample(old, part)
    planted += [("private", f"{question.question}我的电话是1381234{n:04}。") for n, question in enumerate(private)]
    log = [{"session_id": f"s{n}", "planted": kind, "messages": _talk(text)} for n, (kind, text) in enumerate(planted)]
    return log, old


def _talk(text: str) -> list[dict[str, str]]:
    messages = [{"role": "user", "content": content} for content in ("你好", text, "那儿童呢？", "谢谢")]
    return [turn for message in messages for turn in (message, REPLY)]


def reader(names: Sequence[str]) -> Handler:
    """A rule in the place of a language model: keep what names a drug or a disease, or asks for them."""

    def answer(request: dict[str, Any]) -> Answer:
        question = QUESTION.search(request["messages"][-1]["content"])
        keep = bool(question and any(name in question[1] for name in (*names, "药", "病")))
        return chat_reply(json.dumps({"keep": keep, "reason": "of medicine" if keep else "of something else"}))

    return answer


def names_known() -> list[str]:
    with closing(sqlite3.connect(f"{database_path(DatabaseConfig()).as_uri()}?mode=ro", uri=True)) as connection:
        return [name for (name,) in connection.execute(NAMES)]


def with_references(rows: Sequence[dict[str, Any]], questions: Sequence[Question]) -> list[dict[str, Any]]:
    """The rows whose question is known word for word, with its reference answer and query."""
    known = {question.question: question for question in questions}
    answered = []
    for row in rows:
        if question := known.get(row["question"]):
            reference = {"ground_truth": question.answer, "sql": question.sql, "task_type": question.task_type}
            answered.append(row | reference)
    return answered


def write_log(out: Path, *, n: int, seed: int) -> list[Question]:
    """Write chats.jsonl and old.jsonl into `out`, and return the bundled training questions."""
    config = TrainConfig()
    ensure_data(config.data, config)
    train = load_questions(data_path(config.data.train_file))
    held_out = load_questions(data_path("data/val.parquet"))
    log, old = sessions(train, held_out, n=n, seed=seed)
    write_lines(out / "chats.jsonl", log)
    rows = ({"qid": question.id, "question": question.question, "ground_truth": ""} for question in old)
    write_lines(out / "old.jsonl", rows)
    return train


def curate(out: Path, train: Sequence[Question], *, samples: int, model: str) -> None:
    """All steps; each ends the whole with its status when it fails."""

    def step(name: str, *flags: str) -> None:
        print(f"$ agentgrpo curate {name} {shlex.join(flags)}", flush=True)
        run_command(*COMMAND, "curate", name, *flags)

    file = {name: str(out / f"{name}.jsonl") for name in ("chats", "old", *STEPS)}
    step("chats", file["chats"], file["asked"])
    step("keep", file["asked"], file["kept"])
    step("again", file["kept"], file["kept_twice"])
    step("new", file["kept_twice"], file["novel"], "--old", file["old"])
    held_out = [str(data_path(f"data/{split}.parquet")) for split in ("val", "test")]
    step("leakage", file["novel"], *held_out, "--out", file["clean"])
    write_lines(out / "answered.jsonl", with_references(read_lines(out / "clean.jsonl"), train))
    flags = ["--samples", str(samples), "--recipe", "curate_cpu", *(["--model", model] if model else [])]
    step("difficulty", file["answered"], file["train"], *flags)


def main(
    out: Annotated[Path, typer.Argument(help="folder of all files")],
    n: Annotated[int, typer.Option("--questions", min=8, max=600, help="questions worth keeping in the log")] = 40,
    samples: Annotated[int, typer.Option(min=2, help="episodes per question")] = 8,
    model: Annotated[str, typer.Option(help="whose pass@k (agentgrpo evaluate --model)")] = "",
    seed: Annotated[int, typer.Option(help="of the log")] = 1,
) -> None:
    """Make a chat log, curate it, and tell how many questions each step left."""
    out = out.expanduser().absolute()
    train = write_log(out, n=n, seed=seed)
    has_endpoint = any(os.environ.get(variable) for variable in ("TEACHER_API_KEY", "JUDGE_ENDPOINTS"))
    with nullcontext() if has_endpoint else openai_server(reader(names_known())) as server:
        if server:
            os.environ |= {"TEACHER_API_KEY": "none", "TEACHER_MODEL": "a-rule", "TEACHER_BASE_URL": server.base_url}
        curate(out, train, samples=samples, model=model)
    for name in ("chats", *STEPS):
        print(f"{name + '.jsonl':17} {len(read_lines(out / f'{name}.jsonl'))}")


if __name__ == "__main__":
    typer.run(main)
