"""Chat logs of many makers: what users asked is read, or the file is refused with the true reason."""

# ruff: noqa: E501
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foundation.errors import UserError
from sql_agent.commands.curate import chats
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
    "a string to Responses": {"model": "m", "instructions": "Ask what helps", "input": Q},
    "Responses with calls": {"input": [said("user", Q), {"type": "function_call_output", "call_id": "c", "output": "what?"}]},
    "Gemini without role": {"contents": [{"parts": [{"text": Q}]}]},
    "Bedrock's log": {"input": {"inputBodyJson": {"messages": [{"role": "user", "content": [{"text": Q}]}]}}, "output": {"outputBodyJson": {"output": {"message": said("user", A)}}}},
    "a gateway's bodies as text": {"requestBody": json.dumps({"messages": [said(*one) for one in PAIR]}), "responseBody": "{}"},
    "LangSmith, constructors": {"inputs": {"messages": [[{"lc": 1, "kwargs": {"type": "system", "content": A}}, {"lc": 1, "kwargs": {"type": "human", "content": Q}}]]}},
    "LangSmith, chain": {"run_type": "chain", "inputs": {"input": Q, "chat_history": []}, "outputs": {"output": A}},
    "Langfuse, a page": {"data": [{"id": "1", "type": "GENERATION", "input": [said(*one) for one in PAIR], "output": A}], "meta": {}},
    "OpenTelemetry": {"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [
        {"key": f"gen_ai.prompt.{n}.{key}", "value": {"stringValue": text}} for n, one in enumerate(PAIR) for key, text in said(*one).items()]}]}]}]},
    "Phoenix": {"span_kind": "LLM", "attributes.llm.input_messages": [{"message.role": "user", "message.content": Q}]},
    "MLflow": {"info": {}, "data": {"request": json.dumps({"messages": [said(*one) for one in PAIR]}), "spans": []}},
    "OpenAssistant, tree": {"message_tree_id": "1", "prompt": {"text": Q, "role": "prompter", "replies": [{"text": A, "role": "assistant", "replies": []}]}},
    "ChatML": {"prompt": f"<|im_start|>system\n{A}<|im_end|>\n<|im_start|>user\n{Q}<|im_end|>\n<|im_start|>assistant\n{A}"},
    "Guanaco": {"text": f"### Human: {Q}### Assistant: {A}"},
    "Cohere": {"message": "And in summer?", "chat_history": [{"role": "USER", "message": Q}, {"role": "CHATBOT", "message": A}]},
    "preferences": {"prompt": [said("system", A), said("user", Q)], "chosen": [said("assistant", A)], "rejected": [said("user", A)]},
}  # fmt: skip
TEXTS = {
    "capitals.csv": f"Question,Answer\n{Q},{A}\n",
    "zh.csv": f"角色,内容\n用户,{Q}\n助手,{A}\n",
    "json.csv": 'id,messages\n1,"' + json.dumps([said(*one) for one in PAIR]).replace('"', '""') + '"\n',
    "times.txt": f"[2024-01-01 10:00:00] User: {Q}\n[2024-01-01 10:00:05] Bot: {A}\n",
    "log.md": f"**Customer:** {Q}\n\n**Agent:** {A}\nUser: is no speaker here\n",
    "chatml.txt": f"<|im_start|>system\n{A}<|im_end|>\n<|im_start|>user\n{Q}<|im_end|>\n",
    "pretty.json": f"{json.dumps({'messages': [said(*PAIR[0])]}, indent=1)}\n{json.dumps({'messages': [said(*PAIR[1])]})}",
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
    "slack.json": (b'[{"user": "U1", "text": "what helps?", "ts": "1"}]', "names and no roles"),
    "teams.json": (b'{"value": [{"from": {"user": {"displayName": "Anna"}}, "body": {"content": "what helps?"}}]}', "names and no roles"),
    "iphone.txt": (b"[31.12.23, 21:15:03] Anna: what helps?\n", "names and no roles"),
    "tool.json": (b'{"run_type": "tool", "inputs": {"input": "what helps?"}, "outputs": {"output": "rest"}}', "needs a list"),
    "steps.json": (b'{"task": "x", "steps": [{"tool": "search", "query": "what helps?"}]}', "needs a list"),
    "pydantic.json": (b'[{"kind": "request", "parts": [{"part_kind": "system-prompt", "content": "what helps?"}]}]', "needs a list"),
    "gbk.jsonl": ('{"messages": [{"role": "user", "content": "\u600e\u4e48\u529e"}]}'.encode("gbk"), "not UTF-8"),
    "others.json": (b'{"messages": [{"role": "assistant", "content": "what helps?"}]}', "said by others"),
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


def test_of_edited_messages_those_that_were_gone_on_with_are_read(tmp_path: Path) -> None:
    nodes = {
        "a": {"parent": None, **node("user", "What hlps?", 1)},
        "b": {"parent": None, **node("user", Q, 2)},
        "c": {"parent": "b", **node("assistant", A, 3)},
    }
    (tmp_path / "log.json").write_text(json.dumps([{"mapping": nodes, "current_node": "c"}]))
    assert [turn.text for turn in read_turns(tmp_path / "log.json")[0]] == [Q]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_text_with_a_mark_of_its_encoding_is_read(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "log.csv").write_text(f"role,content\nuser,{Q}\n", encoding=encoding)
    assert [turn.text for turn in read_turns(tmp_path / "log.csv")[0]] == [Q]


def test_every_bad_line_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    good = json.dumps({"messages": [said("user", Q)]})
    (tmp_path / "log.jsonl").write_text(f'hello\n{good}\n{{"torn": [1,\n{good}\n\n{good}{good}\n')
    turns, bad = read_turns(tmp_path / "log.jsonl")
    assert [turn.session for turn in turns] == ["line 2", "line 4", "line 6", "line 6"]
    assert [text.partition(":")[0] for text in bad] == ["session 1", "session 3"]


def test_an_id_with_half_a_character_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text('[{"id": "\\ud800", "messages": [{"role": "user", "content": "What helps?"}]}]')
    assert read_turns(tmp_path / "log.json")[0][0].session == "?"


def test_a_loop_of_links_and_a_folder_are_no_logs(tmp_path: Path) -> None:
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    for name, why in (("loop.jsonl", "no such file"), ("", "is no file")):
        with pytest.raises(UserError, match=why):
            chats(tmp_path / name, tmp_path / "out.jsonl")


def test_what_cannot_be_read_for_one_reason_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.jsonl").write_text('{"a": 1}\n' * 50 + json.dumps({"messages": [said("user", Q)]}))
    chats(tmp_path / "log.jsonl", tmp_path / "out.jsonl")
    assert capsys.readouterr().err.startswith("left out: session 1 and 49 more: has a;")
