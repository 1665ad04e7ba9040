"""What `sft.dataset` and `dpo.dataset` name -> conversations, or pairs of them.

    rows with messages [, tools]            conversations as they stand, tool calls included
    rows with conversations [, tools]       the same as ShareGPT has them: from and value
    rows with prompt and completion         texts, or lists of messages
    questions (or in the raw format)        the agent's prompt, the reference SQL with its real results, the answer
    a run or an evaluation folder           its rollouts, as they were played: rollouts.jsonl, trials.jsonl
    rows with chosen and rejected           pairs, as `agentgrpo reward-model convert` writes or reads them
    all of them as .jsonl, a JSON list or .parquet
    stored rollouts (data.from_store)       token for token as they were played; no template, tool or agent is asked
    a hub name                              rows of its split `train`, in one of these forms; gsm8k is openai/gsm8k

Guarantees: what is left out is counted by reason; an unscored rollout is never a reward, and rollouts of validation are
not learned from. Raises UserError where nothing is left.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from agl_plugin.update.rows import Call
from foundation import run_folder
from foundation.errors import Unusable, UserError
from foundation.files import json_objects
from sql_agent.config import ROOT, AgentTree, DataConfig, TuneConfig, data_path, resolve_path
from sql_agent.config.paths import existing_file
from sql_agent.data.dataset import parse_file
from sql_agent.data.hub import hub_rows, local_copy, rows_of
from sql_agent.evaluation.folder import TRIALS
from sql_agent.training.stored import check_tokens, stored_run
from sql_agent.tuning.agent_chats import AgentChats
from sql_agent.tuning.chats import Chat, chat_of

Row = dict[str, Any]
SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet")
# One of them is in each row that is no question.
TOLD = frozenset({"messages", "conversations", "prompt", "chosen", "reward_parts"})
ROLE_OF = {"human": "user", "gpt": "assistant", "function_call": "assistant", "observation": "tool"}  # ShareGPT's
FORMS = (
    "a file is .jsonl with a row a line, a JSON list of rows, or .parquet; "
    "a row is {messages}, {conversations}, {prompt, completion}, a question {id, question, answer}, a rollout of "
    "rollouts.jsonl or trials.jsonl, or for dpo {prompt, chosen, rejected}, {chosen, rejected} or "
    "{messages, rejected_messages}"
)


@dataclass(frozen=True)
class Pair:
    """Two conversations of one prompt; the first is the better one."""

    chosen: Chat
    rejected: Chat


@dataclass
class Source:
    """What was read: conversations, or pairs of a file of pairs; `left_out` counts rows by reason."""

    name: str
    file: Path | None
    chats: list[Chat] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    are_rollouts: bool = False


def find_file(text: str, data: DataConfig) -> Path | None:
    """The file that a data set's name means; None for a hub name or a copy of it. Raises UserError for a wrong path."""
    if not text:
        first, *others = data.training
        if others:
            raise UserError(
                f"data.train_files names {1 + len(others)} files, and one is learned from: name it with --data; "
                "rows of several agents may stand in it, by their column `agent`"
            )
        return data_path(first.file)
    path = resolve_path(text, ROOT / "sql_agent", ROOT)
    for file in (path / run_folder.ROLLOUTS, path / TRIALS, path):
        if file.is_file():
            return file
    if local_copy(text, "train"):
        return None
    if path.exists() or path.suffix in SUFFIXES or text.startswith((".", "/", "~")) or text.count("/") > 1:
        problem = "holds neither rollouts.jsonl nor trials.jsonl" if path.is_dir() else "does not exist"
        raise UserError(f"--data {text}: {path} {problem}. Give a file, a run or evaluation folder, or a hub name")
    return None


def read_source(tune: TuneConfig, data: DataConfig, agents: AgentTree) -> Source:
    """All of a data set, in its order, as the agents show it. Raises UserError."""
    name = tune.dataset
    file = find_file(name, data)
    if file and not name:
        existing_file(file, key="data.train_file")
    source = Source(name or data.training[0].file, file)
    with AgentChats(agents) as agent:
        if file is None:
            rows = iter(hub_rows(name, "train"))
        elif file.suffix == ".parquet":
            rows = iter(rows_of(file))
        else:
            rows = (row for _, row in json_objects(file, lambda why, _: source.left_out.update([why])))
        first = next(rows, {})
        if file and first and not TOLD & first.keys():
            _take_questions(source, file, agent)
        else:
            _take(source, chain([first] if first else [], rows), agent)
    if not source.chats and not source.pairs:
        reasons = "\n".join(f"  {n} x {reason}" for reason, n in source.left_out.most_common())
        raise UserError(f"--data {source.name}: nothing to learn from; {FORMS}. Left out:\n{reasons or '  no rows'}")
    return source


def stored_source(data: DataConfig, runs: Path, model: Path) -> Source:
    """All stored rollouts that `model` can learn from, as they were played. Raises UserError.

    Supervised is exactly what the policy sampled, after the tokens that it saw.
    """
    with closing(stored_run(data, runs)) as stored:
        check_tokens(stored, model)
        source = Source(str(stored.folder), stored.folder / run_folder.AUDIT, are_rollouts=True)
        source.left_out += stored.left_out
        for place in range(len(stored.groups)):
            for rollout in stored.rollouts([place], use=1, step=0):
                if rollout.reward is None:
                    source.left_out["unscored"] += 1
                else:
                    # The same tokens are the same conversation, whatever the last bits of their probabilities.
                    calls = tuple(Call(call.prompt, call.sampled) for call in rollout.seen.calls)
                    source.chats.append(Chat([], group=rollout.record["group"], reward=rollout.reward, calls=calls))
    return source


def _take(source: Source, rows: Iterable[Row], agent: AgentChats) -> None:
    for row in rows:
        try:
            if "reward_parts" in row:
                source.are_rollouts = True
                source.chats.append(agent.of_rollout(row))
            elif "chosen" in row or "rejected_messages" in row:
                source.pairs.append(_pair(row, agent))
            else:
                source.chats.append(_chat(row, agent))
        except Unusable as exc:
            source.left_out[str(exc)] += 1


def _take_questions(source: Source, file: Path, agent: AgentChats) -> None:
    parsed = parse_file(file)
    source.left_out += Counter("no question: " + bad.reason[:80] for bad in parsed.bad)
    chats, left_out = agent.of_questions([question for _, question in parsed.rows])
    source.chats += chats
    source.left_out += left_out


def _chat(row: Row, agent: AgentChats) -> Chat:
    if row.get("label") is False:
        raise Unusable("label is false: not to be learned from")
    messages = _of_sharegpt(row.get("messages", row.get("conversations")))
    if not {"messages", "conversations"} & row.keys():
        prompt, completion = (row.get(a, row.get(b)) for a, b in (("prompt", "question"), ("completion", "answer")))
        messages = _as_messages("user", prompt) + _as_messages("assistant", completion)
    chat = _with_tools(messages, row, agent)
    said = (message for message in chat.messages if message["role"] == "assistant")
    if not any(message["content"].strip() or "tool_calls" in message for message in said):
        raise Unusable("no text of the assistant")
    return chat


def _with_tools(messages: Any, row: Row, agent: AgentChats) -> Chat:
    """A conversation with the tools of its row; one with calls and no tools gets the agent's."""
    chat = chat_of(messages, group=str(row.get("id", "")))
    tools = _parsed(row.get("tools"))
    if tools in (None, ""):
        tools = agent.specs if any("tool_calls" in message for message in chat.messages) else []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise Unusable("tools is no list of schemas")
    return replace(chat, tools=tools)


def _of_sharegpt(turns: Any) -> Any:
    """Turns of {from, value} as messages of {role, content}, a call in JSON as one; what has another form as it is."""
    is_list = isinstance(turns, list) and all(isinstance(turn, dict) for turn in turns)
    return [_of_turn(turn) for turn in turns] if is_list else turns


def _of_turn(turn: Row) -> Row:
    if not isinstance(name := turn.get("from"), str):
        return turn
    key, said = (
        ("tool_calls", [_parsed(turn.get("value"))]) if name == "function_call" else ("content", turn.get("value"))
    )
    return {"role": ROLE_OF.get(name, name), key: said, "weight": turn.get("weight")}


def _parsed(value: Any) -> Any:
    """What a text in JSON says, as data sets keep tools; anything else as it is."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def _as_messages(role: str, value: Any) -> list[Any]:
    """A text as one message of `role`, messages as they are. Raises Unusable."""
    if isinstance(value, str) and value.strip():
        return [{"role": role, "content": value}]
    if isinstance(value, dict | list) and value:
        return _of_sharegpt(value if isinstance(value, list) else [value])
    raise Unusable("no text of the user" if role == "user" else "no text of the assistant")


def _pair(row: Row, agent: AgentChats) -> Pair:
    if "rejected_messages" in row:
        chosen, rejected = row.get("messages"), row["rejected_messages"]
    else:
        asked = row.get("prompt") or row.get("conversations")
        before = _as_messages("user", asked) if asked else []
        chosen, rejected = ([*before, *_as_messages("assistant", row.get(side))] for side in ("chosen", "rejected"))
    pair = Pair(*(_with_tools(messages, row, agent) for messages in (chosen, rejected)))
    if pair.chosen.messages == pair.rejected.messages:
        raise Unusable("chosen equals rejected")
    return pair
