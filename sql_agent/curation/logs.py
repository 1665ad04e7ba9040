"""What users said in a chat log, whatever its format: docs/45-curate.md and tests/unit/test_chat_logs.py list them.

Guarantees: a pure function of the file; a session that has another form is told with its place and what it has, never
read as something else. A message counts as a user's by its role alone, so logs that give people names and no roles
(WhatsApp, Telegram, Slack) are refused in these words. Not covered: audio, and which of two persons asks.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from foundation.files import BadLine, decode_line

USERS = {
    *("user", "human", "customer", "patient", "prompter", "client", "visitor", "caller", "usr", "end-user"),
    *("end_user", "enduser", "用户", "患者", "客户", "顾客", "访客", "病人"),
}
OTHERS = {
    *("assistant", "bot", "gpt", "model", "ai", "agent", "system", "tool", "function", "developer", "chatbot"),
    *("chatgpt", "bing", "bard", "claude", "doctor", "operator", "admin", "support", "advisor", "action", "slot"),
    *("session_started", "function_call", "observation", "助手", "医生", "客服", "机器人", "系统"),
}
LISTS = [
    *("messages", "conversations", "conversation", "chat_messages", "contents", "turns", "dialogue", "dialog"),
    *("history", "events", "utterances", "items", "mapping", "transcript", "chosen", "data", "input"),
]
INSIDE = ["request", "body", "inputs", "input", "payload", "chat", "params", "kwargs", "queryResult"]
ROLES = ("role", "from", "sender", "author", "speaker", "event", "type")
TEXTS = ("content", "value", "text", "parts", "message", "utterance", "body", "data")
ASKED = ("instruction", "prompt", "question", "query", "queryText", "input", "user", "human", "问题", "提问")
ANSWERED = {
    *("output", "response", "completion", "answer", "target", "reply", "assistant", "bot", "gpt", "chosen"),
    *("rejected", "responses", "fulfillmentText", "回答"),
}
SESSIONS = ("session_id", "conversation_id", "sessionId", "conversationId", "uuid", "thread_id", "dialogue_id", "id")
MARKED = re.compile(r"^[ \t]*(human|user|assistant|h|a|用户|患者|助手|医生|客服)[ \t]*[:：][ \t]*", re.I | re.M)
NAMED = re.compile(r"^\[?\d{1,4}[./-]\d{1,2}[./-]\d{1,4},? .{4,14}?(?:\]| -) [^:\n]{1,40}: ", re.M)
WANTED = "it needs a list of messages with role and content (docs/45-curate.md has the formats)"
NAMES = "gives people names and no roles, so nobody can tell who asks; write role (user, assistant) beside each message"


def read_sessions(path: Path) -> Iterator[tuple[int, Any]]:
    """Each session of a log with its number from 1, or what is wrong with its line. Raises UserError for no log."""
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if data[:4] in (b"PAR1", b"PK\x03\x04") or data[:2] == b"\x1f\x8b":
        raise UserError(f"{path}: is packed or parquet; write the log as JSON, JSON lines, CSV or plain text")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        if data.lstrip()[:1] not in (b"{", b"["):
            raise UserError(f"{path}: is no text in UTF-8 ({exc}); write it again in UTF-8") from exc
        text = data.decode("utf-8", "replace")
    if path.suffix.lower() in (".csv", ".tsv"):
        head = text.partition("\n")[0]
        rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=head.count))
        try:
            yield from enumerate(rows, start=1)
        except csv.Error as exc:
            raise UserError(f"{path}: is no table that can be read ({exc}); write it again") from exc
    elif text.lstrip()[:1] not in ("{", "["):
        yield from _transcripts(path, text)
    else:
        yield from _json(path, text)


def _transcripts(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    if not MARKED.search(text):
        why = NAMES if NAMED.search(text) else "is no JSON, and no line of it begins with a role (User:, 用户：)"
        raise UserError(f"{path}: {why}")
    yield from enumerate(re.split(r"\n[ \t]*(?:-{3,}|={3,}|\*{3,})[ \t]*\n", text), start=1)


def _json(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as exc:
        if text.lstrip().startswith("[") and "\n[" not in text.strip():
            raise UserError(f"{path}: begins as a JSON list and is none ({exc}); write it again") from exc
        for number, line in enumerate(text.encode("utf-8").splitlines(), start=1):
            if line.strip():
                try:
                    yield number, decode_line(line)
                except BadLine as bad:
                    yield number, bad
        return
    if isinstance(whole, dict):
        sessions = next((whole[key] for key in ("sessions", "conversations", "chats") if _nested(whole.get(key))), None)
        whole = [whole] if sessions is None else sessions
    # A list of messages is one session; of messages with sessions of their own, it is taken message by message.
    if isinstance(whole, list) and whole and all(isinstance(message, dict) and _role(message) for message in whole):
        whole = whole if any(key in whole[0] for key in SESSIONS[:-1]) or _messages(whole[0]) is not None else [whole]
    yield from enumerate(whole, start=1)


def _nested(value: Any) -> bool:
    """Whether a list holds sessions, each with messages of its own."""
    return isinstance(value, list) and any(
        isinstance(session, list) or isinstance(session, dict) and _messages(session) for session in value
    )


def user_texts(number: int, session: Any) -> tuple[str, list[str]]:
    """The id of a session and what its user said. Raises ValueError with what is wrong."""
    if isinstance(session, BadLine):
        raise session
    named: dict[str, Any] = session if isinstance(session, dict) else {}
    around = named.get("conversation")
    places = (named, around) if isinstance(around, dict) else (named,)
    name = next((str(place[key]) for place in places for key in SESSIONS if place.get(key)), f"line {number}")
    texts = (" ".join(text.encode("utf-8", "replace").decode().split()) for text in _user_messages(session))
    return name, [text for text in texts if text]


def _user_messages(session: Any) -> list[str]:
    if isinstance(session, str):
        return _marked(session)
    if isinstance(session, list):
        return _listed(session)
    if not isinstance(session, dict):
        raise ValueError(f"is a {type(session).__name__}, not a session")
    messages = _messages(session)
    if isinstance(messages, str):
        return _marked(messages)
    if messages is not None:
        texts = _listed(messages)
        # ChatGLM: the turns before stand in `history`, the last question beside it.
        last = _asked(session) if messages is session.get("history") else ""
        return [*texts, last] if last else texts
    if _role(session):
        return _listed([session])
    if text := _asked(session):
        return [text]
    keys = ", ".join(map(str, session))[:200] or "nothing"
    raise ValueError(f"has {keys}; {NAMES if 'user_id' in session or 'from_id' in session else WANTED}")


def _messages(session: dict[str, Any]) -> Any:
    """The messages of a session, however they are called, in what it wraps if need be; None for none."""
    for key in LISTS:
        value = session.get(key)
        if key == "mapping" and isinstance(value, dict):  # ChatGPT's export: a tree of nodes
            nodes = [node["message"] for node in value.values() if isinstance(node, dict) and node.get("message")]
            return sorted(nodes, key=lambda message: message.get("create_time") or 0)
        if isinstance(value, list) or key == "chosen" and isinstance(value, str) and MARKED.search(value):
            return value
        if key in ("messages", "conversations") and value is not None:
            raise ValueError(f"{key} must be a list of objects with role and content, not a {type(value).__name__}")
    inside = [session[key] for key in INSIDE if isinstance(session.get(key), dict)]
    return next((messages for wrapped in inside if (messages := _messages(wrapped)) is not None), None)


def _listed(messages: list[Any]) -> list[str]:
    if messages and all(isinstance(message, str) for message in messages):  # UltraChat: by turns, the user first
        return messages[::2]
    texts: list[str] = []
    for message in messages:
        if (
            isinstance(message, list) and message and all(isinstance(part, str | None) for part in message[:2])
        ):  # [question, answer]
            texts.append(message[0] or "")
        elif not isinstance(message, dict):
            raise ValueError(f"a message is a {type(message).__name__}; {WANTED}")
        elif text := _user_text(message):
            texts.append(text)
    return texts


def _user_text(message: dict[str, Any]) -> str:
    """What a message of a user says, "" for one of somebody else."""
    role = _role(message)
    if not role:
        if text := _asked(message):
            return text
        names = "from" in message or "user" in message or "author" in message
        raise ValueError(f"a message has {', '.join(map(str, message)) or 'nothing'}; {NAMES if names else WANTED}")
    if role not in USERS:
        return ""
    text = next((_text(message[key]) for key in TEXTS if message.get(key) is not None), None)
    if text is None:
        raise ValueError(f"a message has {', '.join(map(str, message))}; it needs role and content")
    return text


def _role(message: dict[str, Any]) -> str:
    """The role of who wrote a message, "" where it tells none."""
    for key in ROLES:
        value = message.get(key)
        if isinstance(value, dict):
            if isinstance(value.get("isBot"), bool) or isinstance(value.get("bot"), bool):
                return "bot" if value.get("isBot") or value.get("bot") else "user"
            value = value.get("role") or value.get("type")
        if isinstance(value, str) and (role := value.strip().lower().removesuffix("message")) in USERS | OTHERS:
            return role
    return ""


def _text(content: Any) -> str:
    if isinstance(content, list):
        texts = [part if isinstance(part, str) else _text(part) for part in content]
        return " ".join(filter(None, texts))
    if isinstance(content, dict):
        if content.get("type") not in (None, "text", "input_text", "human") and "parts" not in content:
            return ""
        return next((_text(content[key]) for key in ("text", "parts", "content", "value") if content.get(key)), "")
    return content if isinstance(content, str) else ""


def _asked(row: dict[str, Any]) -> str:
    """What a row of question and answer asks (Alpaca, Dolly, prompt and completion), "" for none."""
    inside = next((row[key] for key in INSIDE if isinstance(row.get(key), dict)), None)
    if inside is not None and (question := _asked(inside)):
        return question
    key = next((key for key in ASKED if isinstance(row.get(key), str) and row[key].strip()), None)
    if key is None or not (ANSWERED & row.keys() or key in ("queryText", "question", "query")):
        return ""
    more = row.get("input") or row.get("context") if key == "instruction" else None
    return f"{row[key]} {more}" if isinstance(more, str) and more.strip() else row[key]


def _marked(text: str) -> list[str]:
    """A text in which roles stand at the beginning of lines (Anthropic's HH, transcripts)."""
    parts = MARKED.split(text)
    return [message for who, message in zip(parts[1::2], parts[2::2], strict=True) if who.lower() in (*USERS, "h")]
