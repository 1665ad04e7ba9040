"""Chat logs of many makers: what users asked is read, or the file is refused with the true reason."""

# ruff: noqa: E501
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foundation.errors import UserError
from sql_agent.curation.chats import read_turns

Q, A = "What helps against migraine?", "Rest."
PAIR = [("user", Q), ("assistant", A)]


def said(role: str, text: str, by: tuple[str, str] = ("role", "content")) -> dict[str, Any]:
    return {by[0]: role, by[1]: text}


def node(role: str, text: str, at: int) -> dict[str, Any]:
    return {
        "message": {"author": {"role": role}, "create_time": at, "content": {"content_type": "text", "parts": [text]}}
    }


READ: dict[str, Any] = {
    "OpenAI": {"messages": [said(*one) for one in PAIR]},
    "OpenAI, parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": Q}, {"type": "image_url"}]}]},
    "OpenAI Responses": {"input": [{"role": "user", "content": [{"type": "input_text", "text": Q}]}], "output": []},
    "batch requests": {"custom_id": "1", "body": {"model": "m", "messages": [said(*one) for one in PAIR]}},
    "logged calls": {"request": {"messages": [said(*one) for one in PAIR]}, "response": {"choices": []}},
    "ChatGPT export": {"title": "x", "mapping": {"a": node("assistant", A, 2), "b": node("user", Q, 1), "c": {"message": None}}},
    "Claude export": {"uuid": "1", "chat_messages": [{"sender": "human", "text": Q}, {"sender": "assistant", "text": A}]},
    "Gemini": {"contents": [{"role": "user", "parts": [{"text": Q}]}, {"role": "model", "parts": [{"text": A}]}]},
    "ShareGPT": {"conversations": [said("human", Q, ("from", "value")), said("gpt", A, ("from", "value"))]},
    "LMSYS": {"conversation_id": "1", "conversation": [said(*one) for one in PAIR]},
    "OpenAssistant": {"message_id": "1", "role": "prompter", "text": Q},
    "LangChain": {"messages": [{"type": "human", "data": {"content": Q}}, {"type": "ai", "data": {"content": A}}]},
    "LangSmith": {"inputs": {"messages": [{"type": "HumanMessage", "content": Q}]}, "outputs": {}},
    "Alpaca": {"instruction": Q, "input": "", "output": A},
    "Dolly": {"instruction": Q, "context": "", "response": A, "category": "qa"},
    "prompt and completion": {"prompt": Q, "completion": A},
    "question and answer": {"question": Q, "answer": A},
    "Dify": {"conversation_id": "1", "inputs": {}, "query": Q, "answer": A},
    "ChatGLM": {"prompt": "And in summer?", "response": A, "history": [[Q, A]]},
    "pairs": {"turns": [{"user": Q, "bot": A}]},
    "UltraChat": {"id": "0", "data": [Q, A]},
    "HH-RLHF": {"chosen": f"\n\nHuman: {Q}\n\nAssistant: {A}", "rejected": "\n\nHuman: no"},
    "Rasa": {"sender_id": "1", "events": [{"event": "user", "text": Q}, {"event": "bot", "text": A}, {"event": "action"}]},
    "Dialogflow": {"queryResult": {"queryText": Q, "fulfillmentText": A}},
    "Bot Framework": {"type": "message", "from": {"id": "7", "role": "user"}, "text": Q, "conversation": {"id": "c"}},
    "Discord": {"messages": [{"author": {"name": "x", "isBot": False}, "content": Q}, {"author": {"isBot": True}, "content": A}]},
}  # fmt: skip
TEXTS = {
    "semicolons.csv": f'session_id;role;content\n1;user;"{Q}"\n1;assistant;{A}\n',
    "log.csv": f'session_id,role,content\n1,user,"{Q}"\n1,assistant,{A}\n',
    "log.tsv": f"role\ttext\nuser\t{Q}\nassistant\t{A}\n",
    "log.txt": f"User: {Q}\nAssistant: {A}\n",
    "cr.csv": f"question,answer\r{Q},{A}\r",
    "zh.txt": f"用户：{Q}\n客服：{A}\n",
}
REFUSED = {
    "whatsapp.txt": (b"12/31/20, 9:15 PM - Anna: what helps?\n", "names and no roles"),
    "telegram.json": (b'{"messages": [{"id": 1, "from": "Anna", "from_id": "u1", "text": "what helps?"}]}', "names and no roles"),
    "slack.json": (b'[{"user": "U1", "text": "what helps?", "ts": "1"}]', "names|needs a list"),
    "log.parquet": (b"PAR1....", "parquet"),
    "log.jsonl.gz": (b"\x1f\x8b....", "packed"),
    "long.csv": (b"question,answer\n" + b"a" * 200_000, "field larger"),
    "notes.txt": (b"just some notes\n", "begins with a role"),
}  # fmt: skip


@pytest.mark.parametrize("shape", ["lines", "list", "one"])
@pytest.mark.parametrize("name", READ)
def test_what_users_asked_is_read(tmp_path: Path, name: str, shape: str) -> None:
    log = tmp_path / "log.json"
    chat = READ[name]
    log.write_text(
        json.dumps(chat, indent=1) if shape == "one" else json.dumps([chat]) if shape == "list" else json.dumps(chat)
    )
    turns, bad = read_turns(log)
    assert [turn.text for turn in turns][:1] == [Q] and not bad
    assert not any(turn.text == A for turn in turns)


@pytest.mark.parametrize("name", TEXTS)
def test_tables_and_transcripts_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(TEXTS[name], encoding="utf-8")
    assert [turn.text for turn in read_turns(tmp_path / name)[0]] == [Q]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    data, why = REFUSED[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=why):
        read_turns(tmp_path / name)
