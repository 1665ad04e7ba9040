"""What users said in a chat log, whatever its format: docs/45-curate.md and tests/unit/test_chat_logs.py list them.

Guarantees: a pure function of the file; a session that has another form is told with its place and what it has, never
read as something else. Messages are looked for in whatever a gateway or a trace put around them, but not in answers and
tools; of edited messages those count that lead to the current one. A message counts as a user's by its role alone, so
logs that give people names and no roles (WhatsApp, Telegram, Slack) are refused in these words. Not covered: audio, and
which of two persons asks.
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
from foundation.files import BadLine, decode_line, in_utf8, writable

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
# What is around a request, and what holds answers and tools, in which nobody looks for a user.
AROUND = re.compile(r"request|input|body|payload|^chat$|params|kwargs|queryResult|attributes", re.I)
REPLIED = re.compile(
    r"output|response|completion|choices|rejected|(?<!query)results?$|tools$|functions$|candidates", re.I
)
STEPS = {"tool", "retriever", "embedding", "parser", "reranker", "evaluator"}  # of a trace, which nobody asked
ROLES = ("role", "from", "sender", "author", "speaker", "sender_type", "event", "type", "角色")
TEXTS = ("content", "value", "text", "parts", "message", "utterance", "body", "msg", "data", "内容")
ASKED = ("instruction", "prompt", "question", "query", "queryText", "input", "user", "human", "message", "问题", "提问")
ANSWERED = {
    *("answer", "target", "reply", "assistant", "bot", "gpt", "chosen", "fulfillmentText", "回答"),
    "model",  # of a request that was logged alone
}
SESSIONS = (
    *("session_id", "conversation_id", "sessionId", "conversationId", "uuid", "thread_id", "dialogue_id"),
    *("trace_id", "traceId", "id"),
)
PEOPLE = {"from", "from_id", "user", "user_id", "author", "author_id", "requester_id", "sender_id"}
STAMP = r"\[?\d{1,4}[./-]\d{1,2}[./-]\d{1,4},?[ T].{4,14}?(?:\]| -|(?<=\d\d)) "
MARKED = re.compile(
    rf"(?:^[ \t]*(?:{STAMP})?(?:[#*>][#*> ]*)?|###[ ]*)"
    r"(human|user|customer|client|visitor|patient|assistant|bot|ai|agent|chatbot|doctor|[haq]|"
    r"用户|患者|客户|助手|医生|客服|机器人)"
    r"\**[ \t]*[:：]\**[ \t]*|<(?:\|im_start\||start_of_turn|\|start_header_id\|)>(\w+)(?:<\|end_header_id\|>)?\s",
    re.I | re.M,
)
ASKERS = {*USERS, "h", "q"}
MOST_DOTS = 9  # in a key of a trace
BLANK = re.compile(r"[ \t\r\n]*")
ENDED = re.compile(r"<\|(?:im_end|eot_id|endoftext)\|>|<end_of_turn>")
NAMED = re.compile(rf"^{STAMP}[^:\n]{{1,40}}: ", re.M)
WANTED = "it needs a list of messages with role and content (docs/45-curate.md has the formats)"
NAMES = "gives people names and no roles, so nobody can tell who asks; write role (user, assistant) beside each message"


def read_sessions(path: Path) -> Iterator[tuple[int, Any]]:
    """Each session of a log with its number from 1, or what is wrong with its line. Raises UserError for no log."""
    with path.open("rb") as file:
        head = file.read(4)
        if head in (b"PAR1", b"PK\x03\x04") or head[:2] == b"\x1f\x8b":
            raise UserError(f"{path}: is packed or parquet; write the log as JSON, JSON lines, CSV or plain text")
        data = in_utf8(head + file.read())
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        if data.lstrip()[:1] not in (b"{", b"["):
            raise UserError(f"{path}: is no text in UTF-8 ({exc}); write it again in UTF-8") from exc
        text = data.decode("utf-8", "surrogateescape")  # its lines are told
    if path.suffix.lower() in (".csv", ".tsv"):
        head = text.partition("\n")[0]
        rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=head.count))
        known = {name.lower(): name for name in (*ROLES, *TEXTS, *ASKED, *ANSWERED, *SESSIONS, *LISTS)}
        try:
            names = ((name or "").strip() for name in rows.fieldnames or [])
            rows.fieldnames = [known.get(name.lower(), name) for name in names]
            yield from enumerate(rows, start=1)
        except csv.Error as exc:
            raise UserError(f"{path}: is no table that can be read ({exc}); write it again") from exc
    elif (text.lstrip()[:1] not in ("{", "[") or NAMED.match(text)) and path.suffix.lower() != ".jsonl":
        yield from _transcripts(path, text)
    else:
        for number, value in _json(path, text):
            try:
                sessions = _sessions(value)
            except RecursionError:
                sessions = []
            yield from ((number, session) for session in sessions or [value])


def _transcripts(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    if not MARKED.search(text):
        why = NAMES if NAMED.search(text) else "is no JSON, and no line of it begins with a role (User:, 用户：)"
        raise UserError(f"{path}: {why}")
    yield from enumerate(re.split(r"\n[ \t]*(?:-{3,}|={3,}|\*{3,})[ \t]*\n", text), start=1)


def _json(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    try:
        whole = json.loads(text)
        text.encode("utf-8")
    except (ValueError, RecursionError) as exc:
        if text.lstrip().startswith("[") and "\n[" not in text.strip():
            raise UserError(f"{path}: begins as a JSON list and is none ({exc}); write it again") from exc
        yield from _values(text)
        return
    # A list of messages is one session; of messages with sessions of their own, it is taken message by message.
    if isinstance(whole, list) and whole and all(isinstance(message, dict) and _role(message) for message in whole):
        whole = whole if any(key in whole[0] for key in SESSIONS[:-1]) or _messages(whole[0]) is not None else [whole]
    yield from enumerate(whole if isinstance(whole, list) else [whole], start=1)


def _values(text: str) -> Iterator[tuple[int, Any]]:
    """Each JSON value of a text, one a line or one behind the other, with its line, or what is wrong with the line."""
    decode = json.JSONDecoder().raw_decode
    at = 0
    number = 1
    failed_at = 0
    while (start := _behind_blanks(text, at)) < len(text):
        number += text.count("\n", at, start)
        at = (text.find("\n", start) + 1 or len(text) + 1) - 1
        if start >= failed_at:  # else a value over several lines was begun and broke off later
            try:
                at = decode(text, start)[1]
            except (ValueError, RecursionError) as exc:
                failed_at = getattr(exc, "pos", len(text))
        try:
            yield number, decode_line(text[start:at].encode("utf-8", "surrogateescape"))
        except BadLine as bad:
            yield number, bad
        number += text.count("\n", start, at)


def _sessions(value: Any, *, by_role: bool = False) -> list[Any]:
    """What holds messages in a value: itself, or entries of its lists (pages of an API, spans of a trace)."""
    if not isinstance(value, dict):
        return [value] if isinstance(value, list) and (not by_role or _has_user(value)) else []
    if _find_messages(value) or (not by_role and (_question_of_row(value) or _role(value))):
        return [value]
    lists = [(key, inner) for place in _places(value) for key, inner in _searched(place) if isinstance(inner, list)]
    # What a row of any other list asks may be asked of a tool.
    return [session for key, inner in lists for row in inner for session in _sessions(row, by_role=key != "data")]


def user_texts(number: int, session: Any) -> tuple[str, list[str]]:
    """The id of a session and what its user said. Raises ValueError with what is wrong."""
    if isinstance(session, BadLine):
        raise session
    named: dict[str, Any] = session if isinstance(session, dict) else {}
    around = named.get("conversation")
    places = (named, around) if isinstance(around, dict) else (named,)
    name = next((str(place[key]) for place in places for key in SESSIONS if place.get(key)), f"line {number}")
    texts = (" ".join(writable(text).split()) for text in _user_messages(session))
    return writable(name), [text for text in texts if text]


def _user_messages(session: Any) -> list[str]:
    if isinstance(session, str):
        return _marked(session)
    if isinstance(session, list):
        return _listed(session)
    if not isinstance(session, dict):
        raise ValueError(f"is a {type(session).__name__}, not a session")
    if in_place := _messages(session):
        place, key, messages = in_place
        texts = _marked(messages) if isinstance(messages, str) else _listed(messages)
        # The turns before stand in `history`, the last question beside it.
        last = _question_of_row(place, answered=True) if "history" in key else ""
        return [*texts, last] if last else texts
    if _role(session):
        return _listed([session])
    if text := _question_of_row(session):
        return [text]
    keys = ", ".join(map(str, session))[:200] or "nothing"
    raise ValueError(f"has {keys}; {NAMES if _names_people(session) else WANTED}")


def _places(session: dict[str, Any], around: re.Pattern[str] = re.compile("")) -> Iterator[dict[str, Any]]:
    """A session and the objects in it, the outer ones first, but no answers and tools."""
    places = [session]
    for place in places:
        yield place
        places += [inner for key, inner in _searched(place) if isinstance(inner, dict) and around.search(key)]


def _searched(place: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What may hold messages: the lists of LISTS before others."""
    for key in (*(key for key in LISTS if key in place), *(key for key in place if key not in LISTS)):
        if isinstance(key, str) and not REPLIED.search(key):
            yield key, _plain(place[key])


def _plain(value: Any) -> Any:
    """A value out of a JSON text, attributes of a trace as one object, and "a.b" in it as b in a."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    if isinstance(value, list) and value and all(isinstance(p, dict) and {*p} == {"key", "value"} for p in value):
        pairs = ((str(pair["key"]), pair["value"]) for pair in value)
        value = {
            key: next(iter(wrapped.values()), None) if isinstance(wrapped, dict) else wrapped for key, wrapped in pairs
        }
    if not isinstance(value, dict) or not any("." in str(name) for name in value):
        return value
    whole: dict[str, Any] = {}
    for name, inner in value.items():
        *path, last = str(name).split(".", MOST_DOTS)
        place = whole
        for step in path:
            if not isinstance(place.get(step), dict):
                place[step] = {}
            place = place[step]
        place[last] = inner
    return whole


def _find_messages(session: dict[str, Any]) -> tuple[dict[str, Any], str, Any] | None:
    """The messages of a session among which is one of a user, where they stand, and how they are called there."""
    for place in _places(_plain(session)):
        for key, value in _searched(place):
            if isinstance(value, dict) and value and all(isinstance(node, dict) for node in value.values()):
                value = _branch(value, place.get("current_node") or place.get("currentId"))
            elif isinstance(value, dict) and _is_user(value):
                value = [value]
            if isinstance(value, list) and _has_user(value):
                return place, key, value
            if (
                isinstance(value, str)
                and key in (*LISTS, *TEXTS, *ASKED)
                and not _role(place)
                and _is_transcript(value)
            ):
                return place, key, value
    return None


def _branch(nodes: dict[str, Any], current: Any) -> list[Any]:
    """Messages that stand by their ids: those that lead to the current one, where it is told, or all, by their time."""
    left = dict(nodes)
    path = list[Any]()
    while isinstance(current, str) and current in left:
        path.append(left.pop(current))
        current = path[-1].get("parent") or path[-1].get("parentId")
    return path[::-1] or sorted(nodes.values(), key=_time)


def _time(node: dict[str, Any]) -> float:
    time = _unwrapped(node).get("create_time")
    return time if isinstance(time, int | float) else 0


def _unwrapped(message: Any) -> dict[str, Any]:
    """A message out of what an exporter put around it."""
    message = _plain(message)
    inside = (message[key] for key in ("message", "kwargs") if isinstance(message.get(key), dict))
    return next((inner for inner in map(_plain, inside) if _role(inner)), message)


def _is_user(message: dict[str, Any]) -> bool:
    message = _unwrapped(message)
    return _role(message) in USERS and any(message.get(key) is not None for key in TEXTS)


def _has_user(messages: list[Any]) -> bool:
    return any((isinstance(m, dict) and _is_user(m)) or (isinstance(m, list) and _has_user(m)) for m in messages)


def _names_people(session: dict[str, Any]) -> bool:
    """Whether people are named somewhere, as in logs of talks among them."""
    values = (value for place in _places(session) for value in (place, *place.values()))
    entries = (entry for value in values for entry in (value if isinstance(value, list) else [value]))
    return any(isinstance(entry, dict) and PEOPLE & entry.keys() for entry in entries)


def _messages(session: dict[str, Any]) -> tuple[dict[str, Any], str, Any] | None:
    """The messages of a session, where they stand, and how they are called there; None for none."""
    if in_place := _find_messages(session):
        return in_place
    for place in _places(session, AROUND):
        for key in LISTS:
            if isinstance(place.get(key), list):
                return place, key, place[key]
            if key in ("messages", "conversations") and place.get(key) is not None:
                raise ValueError(
                    f"{key} must be a list of objects with role and content, not a {type(place[key]).__name__}"
                )
    return None


def _listed(messages: list[Any]) -> list[str]:
    if messages and all(isinstance(message, str) for message in messages):  # UltraChat: by turns, the user first
        return messages[::2]
    texts: list[str] = []
    todo = messages[::-1]
    has_user = _has_user(messages)
    while todo:
        message = todo.pop()
        if isinstance(message, list) and message and all(isinstance(part, str | None) for part in message[:2]):
            texts.append(message[0] or "")  # [question, answer]
        elif isinstance(message, list):
            todo.extend(reversed(message))
        elif not isinstance(message, dict):
            raise ValueError(f"a message is a {type(message).__name__}; {WANTED}")
        else:
            message = _unwrapped(message)
            todo.extend(reversed(message["replies"] if isinstance(message.get("replies"), list) else []))
            # A call of a tool has no role among messages that have one.
            if (_role(message) or PEOPLE & message.keys() or not has_user) and (text := _user_text(message)):
                texts.append(text)
    return texts


def _user_text(message: dict[str, Any]) -> str:
    """What a message of a user says, "" for one of somebody else."""
    role = _role(message)
    if not role:
        if text := _question_of_row(message):
            return text
        why = NAMES if PEOPLE & message.keys() else WANTED
        raise ValueError(f"a message has {', '.join(map(str, message)) or 'nothing'}; {why}")
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
    return "user" if {*message} == {"parts"} else ""  # Gemini


def _text(content: Any) -> str:
    if isinstance(content, list):
        texts = [part if isinstance(part, str) else _text(part) for part in content]
        return " ".join(filter(None, texts))
    if isinstance(content, dict):
        if content.get("type") not in (None, "text", "input_text", "human") and "parts" not in content:
            return ""
        return next((_text(content[key]) for key in ("text", "parts", "content", "value") if content.get(key)), "")
    return content if isinstance(content, str) else ""


def _question_of_row(session: dict[str, Any], *, answered: bool = False) -> str:
    """What a row of question and answer asks (Alpaca, Dolly, prompt and completion), "" for none."""
    if STEPS & {str(session.get(key)).lower() for key in ("run_type", "span_kind", "type")}:
        return ""
    question = ""
    for row in _places(session, AROUND):
        answered = answered or any(key in ANSWERED or REPLIED.search(str(key)) for key in row)
        key = next((key for key in ASKED if isinstance(row.get(key), str) and row[key].strip()), None)
        if key is not None and (answered or key in ("queryText", "question", "query")):
            more = row.get("input") or row.get("context") if key == "instruction" else None
            question = f"{row[key]} {more}" if isinstance(more, str) and more.strip() else row[key]
    return question


def _is_transcript(text: str) -> bool:
    """Whether somebody is said to speak first, and somebody after that."""
    return MARKED.match(text, _behind_blanks(text, 0)) is not None and len(_turns(text)) > 1


def _turns(text: str) -> list[re.Match[str]]:
    """Where somebody begins to speak; a user by the word that the first is called, as others stand in their texts."""
    marks = list(MARKED.finditer(text))
    asks = next((name for name in map(_speaker, marks) if name in ASKERS), "")
    return [mark for mark in marks if _speaker(mark) == asks or _speaker(mark) not in ASKERS]


def _speaker(mark: re.Match[str]) -> str:
    return (mark[1] or mark[2]).lower()


def _marked(text: str) -> list[str]:
    """A text in which roles stand at the beginning of lines (Anthropic's HH, transcripts) or as tokens of a model."""
    marks = _turns(text)
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    return [ENDED.sub("", text[m.end() : end]) for m, end in zip(marks, ends, strict=True) if _speaker(m) in ASKERS]


def _behind_blanks(text: str, at: int) -> int:
    blanks = BLANK.match(text, at)
    return blanks.end() if blanks else at
