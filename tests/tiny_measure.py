"""How good a tiny policy is before GRPO, without vLLM and without openai-agents (evaluate.py measures with both).

Guarantees: questions, database, tool output and scorers are those of training; the same seed and folder give the same
figures. Not covered: the serving path (chat endpoint, tool parser of vLLM), see the smoke tests.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sql_agent.agent.sql_tool import render_result
from sql_agent.config import DatabaseConfig, JudgeConfig, RewardConfig, database_path
from sql_agent.environment.database import Database
from sql_agent.records import Episode, QueryResult, Question, SqlCall
from sql_agent.scoring.build import build_context
from sql_agent.scoring.reward import score
from sql_agent.scoring.scorers import ScoringContext
from sql_agent.tiny_policy.corpus import load_corpus
from sql_agent.tiny_policy.demos import TOOL_NAME, TOOLS, Message

# The expressions of vLLM's hermes parser.
TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>|<tool_call>(.*)", re.DOTALL)
MAX_TURNS = 3
MAX_NEW_TOKENS = 160
BATCH_ROWS = 32


@dataclass
class Talk:
    """One episode on its way: its messages, what was asked of the database, and the final answer."""

    question: Question
    messages: list[Message]
    calls: list[SqlCall] = field(default_factory=list)
    answer: str = ""
    done: bool = False


@dataclass(frozen=True)
class Outcome:
    """What one finished episode counts for: two yes/no marks, and the reward (up to 1.1)."""

    executed: bool
    name_copied: bool
    reward: float


def parse_call(text: str) -> str | None:
    """The SQL of the first tool call, read as vLLM's hermes parser reads it; None when there is no proper call."""
    match = TOOL_CALL.search(text)
    if not match:
        return None
    try:
        call = json.loads(match[1] or match[2])
        sql = call["arguments"]["sql"]
    except (ValueError, KeyError, TypeError):
        return None
    return sql if call.get("name") == TOOL_NAME and isinstance(sql, str) else None


@torch.no_grad()
def generate(model: Any, tokenizer: Any, chats: list[list[Message]], *, greedy: bool) -> list[str]:
    """One assistant turn for each chat, at temperature 1 or greedily."""
    texts: list[str] = []
    for start in range(0, len(chats), BATCH_ROWS):
        prompts = tokenizer.apply_chat_template(
            chats[start : start + BATCH_ROWS], tools=TOOLS, tokenize=False, add_generation_prompt=True
        )
        inputs = tokenizer(
            prompts, add_special_tokens=False, padding=True, padding_side="left", return_tensors="pt"
        ).to(model.device)
        sampling = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        ids = model.generate(**inputs, max_new_tokens=MAX_NEW_TOKENS, **sampling)
        texts += tokenizer.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return texts


async def talk_all(
    model: Any, tokenizer: Any, questions: list[Question], database: Database, *, greedy: bool
) -> list[Talk]:
    """Run all episodes, turn by turn, in step."""
    system = {"role": "system", "content": load_corpus().system_prompt}
    talks = [Talk(q, [system, {"role": "user", "content": q.question}]) for q in questions]
    for turn in range(1, MAX_TURNS + 1):
        active = [talk for talk in talks if not talk.done]
        replies = generate(model, tokenizer, [talk.messages for talk in active], greedy=greedy) if active else []
        for talk, reply in zip(active, replies, strict=True):
            await _take(talk, reply, database, turn=turn)
    return talks


async def _take(talk: Talk, reply: str, database: Database, *, turn: int) -> None:
    """Act on one reply: run its query, or keep it as the answer."""
    sql = parse_call(reply)
    if sql is None:
        talk.answer, talk.done = reply, True
        return
    result = await database.query(sql)
    talk.calls.append(SqlCall(sql=sql, result=result, turn=turn))
    call = {"type": "function", "function": {"name": TOOL_NAME, "arguments": {"sql": sql}}}
    talk.messages += [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": _shown(result)},
    ]


def _shown(result: QueryResult) -> str:
    return render_result(result, max_chars=DatabaseConfig().max_chars)  # pyright: ignore[reportCallIssue]


def asked_names(question: Question) -> list[str]:
    """The names, or the keyword, that a right query must hold."""
    entity = question.meta.get("entity", {})
    if "keyword" in entity:
        return [entity["keyword"]]
    return [value for key, value in entity.items() if "_name" in key]


async def judge_talk(talk: Talk, context: ScoringContext) -> Outcome:
    """Score one finished episode with the project's own scorer."""
    episode = Episode(
        question=talk.question, final_answer=talk.answer, sql_calls=talk.calls, n_turns=len(talk.calls) + 1
    )
    reward = await score(episode, context)
    return Outcome(
        executed=episode.executed_sql,
        name_copied=bool(talk.calls)
        and all(re.search(f"['%]{re.escape(name)}['%]", talk.calls[0].sql) for name in asked_names(talk.question)),
        reward=reward.total or 0.0,
    )


async def measure(
    folder: Path, questions: list[Question], *, seed: int, greedy: bool
) -> tuple[list[Talk], list[Outcome]]:
    """Episodes and outcomes of the policy in `folder`; sampling starts from `seed`."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    torch.manual_seed(seed)
    context = build_context(RewardConfig(judge=JudgeConfig(kind="reference")))  # pyright: ignore[reportCallIssue]
    config = DatabaseConfig()  # pyright: ignore[reportCallIssue]
    database = Database(config, database_path(config))
    try:
        talks = await talk_all(model, tokenizer, questions, database, greedy=greedy)
        return talks, [await judge_talk(talk, context) for talk in talks]
    finally:
        database.close()
