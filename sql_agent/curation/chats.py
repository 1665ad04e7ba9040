"""Chat logs -> questions that stand alone, in the raw format of the question files.

logs.py reads the formats. Guarantees: a pure function of the file; the same log gives the same ids; each user turn that
is left out is counted and written with its reason; what a message says is data. Left out are later turns (they lean on
what came before), greetings, thanks, texts that are too short or too long, code, and private data (private.py). What
opens a turn and asks nothing ("Hi! I hope you're well.", "你好，") is taken off. Not covered: whether a question is
a good one.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foundation.errors import UserError
from sql_agent.curation.logs import read_sessions, user_texts
from sql_agent.curation.private import private
from sql_agent.curation.wording import wording

# What opens a talk and asks nothing: a whole sentence, or its first words.
OPENING = re.compile(
    r"^(?:(?:(?:hi|hello|hey|greetings|howdy)(?: (?:there|all|everyone|team|doctor|doc|guys|again))?|dear \w+|"
    r"good (?:morning|afternoon|evening|day)|"
    r"how are you(?: doing)?(?: today)?|(?:i )?hope (?:that )?(?:you|this)[^.!?,]*|thank(?:s| you)[^.!?,]*|"
    r"nice to meet you|sorry to (?:bother|disturb) you|excuse me|(?:i have|i've got) a (?:quick )?question|"
    r"ok(?:ay)?|yes|no|bye|test|help|(?:你|您|大家|医生|老师)好[啊呀]?|在吗|在不在|"
    r"(?:早上|上午|中午|下午|晚上)好[啊呀]?|打扰(?:了|一下)|不好意思|谢谢[你您]?了?|多谢|辛苦了|嗯+|哦+|好的?|是的?|不是|再见|继续|测试|帮助|"
    r"我?(?:想)?(?:请教|问|咨询)(?:你|您)?(?:一?个|一下)问题|有个问题(?:想问|请教)(?:一下|你|您)*|医生)"
    r"(?:[\s,.!?:;~，。！？：；、-]+|$))+",
    re.I,
)
LEANS = re.compile(
    r"^(?:那|它|他|她|这个|那个|这种|还有呢|然后|为什么$|上面|前面|刚才|再|and |it |that |this |then |why$|what about)"
)
SMALL = "small talk"
CODE = re.compile(r"```|[{};][^\S\n]*$|^[^\S\n]*(?:import|def|class|select|function)\b", re.I | re.M)


@dataclass(frozen=True)
class Turn:
    """What a user said: in which session, and as which of their turns."""

    session: str
    turn: int
    text: str


@dataclass(frozen=True)
class Limits:
    """What a question may be. `later` takes what a session asks later too, unless it leans on what came before."""

    min_chars: int = 5
    max_chars: int = 300
    later: bool = False


def read_turns(path: Path) -> tuple[list[Turn], list[str]]:
    """All user turns of a log, and what could not be read, with its place. Raises UserError for no log at all."""
    if not path.is_file():
        why = "is no file" if path.exists() else "no such file"
        raise UserError(f"{path}: {why}; name a chat log of JSON lines, or a JSON list of sessions")
    turns: list[Turn] = []
    bad: list[str] = []
    n_turns: dict[str, int] = {}
    for number, value in read_sessions(path):
        try:
            session, texts = user_texts(number, value)
        except (ValueError, RecursionError) as exc:
            bad.append(f"session {number}: {exc}")
            continue
        for text in texts:
            n_turns[session] = n_turns.get(session, 0) + 1
            turns.append(Turn(session, n_turns[session], OPENING.sub("", text)))
    if not turns:
        raise UserError(
            f"{path}: no turn of a user in it. " + ("; ".join(bad[:5]) or "It is empty, or all of it is said by others")
        )
    return turns, bad


def why_unusable(turn: Turn, limits: Limits, *, first: bool) -> str:
    """Why a turn is no question that stands alone, or "". `first`: nothing but small talk came before."""
    text = unicodedata.normalize("NFKC", turn.text)
    if not text.strip(" ,.!?，。！？~"):
        return SMALL
    if not first and not limits.later:
        return "a later turn"
    if not first and LEANS.search(text.lower()):
        return "leans on an earlier turn"
    if not limits.min_chars <= len(text) <= limits.max_chars:
        return f"has {'fewer' if len(text) < limits.min_chars else 'more'} characters than are allowed"
    if private_data := private(text):
        return f"holds {private_data}"
    return "code" if CODE.search(text) else ""


def questions(turns: list[Turn], limits: Limits) -> tuple[list[dict[str, Any]], list[tuple[Turn, str]]]:
    """The rows of the usable turns, each question once, and the turns that were left out, with their reasons."""
    rows: list[dict[str, Any]] = []
    dropped: list[tuple[Turn, str]] = []
    first: dict[tuple[str, ...], str] = {}
    begun: set[str] = set()
    for turn in turns:
        why = why_unusable(turn, limits, first=turn.session not in begun)
        if why != SMALL:
            begun.add(turn.session)
        tokens = () if why else wording(turn.text).words
        if not why and tokens in first:
            why = f"asked before ({first[tokens]})"
        if why:
            dropped.append((turn, why))
            continue
        digest = hashlib.sha256(f"{turn.session}\0{turn.turn}\0{turn.text}".encode()).hexdigest()[:12]
        first[tokens] = f"chat-{digest}"
        source = {"session": turn.session, "turn": turn.turn}
        rows.append({"qid": f"chat-{digest}", "question": turn.text, "ground_truth": "", "meta": source})
    return rows, dropped
