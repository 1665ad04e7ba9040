"""What may be said of a question: its own words again, and how a sentence says what it asks for.

No word that judges (不, 能, 禁) is free, and none that such a word was cut from: "能用" of "能用吗" would be an answer.
Guarantees: pure functions on text in normal form, linear in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sql_agent.offline_judge import verdicts
from sql_agent.offline_judge.clauses import CLAUSE_END
from sql_agent.offline_judge.lexicon import DENYING
from sql_agent.offline_judge.sections import parts
from sql_agent.offline_judge.words import PHRASES, RELATIONS, phrases
from sql_agent.words.meanings import is_chinese_verb, is_unknown

YES_OR_NO = re.compile(r"[吗否]|(.)[不没]\1")  # the words of such a question are a statement
ASKS = re.compile(r"(?<![是属])(?:是否)?(?:包[括含]|含有?|有(?!机)|[会需]|可以?|(?<![功性机])能|([有能会可])[不没]\1)")
MODAL = re.compile(r"(?<![功性机可])能|可以")
PERMITS = re.compile(r"\b(?:can|could|may|must|should|shall)\b")
JUDGING = re.compile(rf"{DENYING.pattern}|[禁忌慎停]|避免|{MODAL.pattern}")
MIN_DENYING_RUN, MIN_OWN_CHARS = 4, 4
CLOSED = frozenset(phrases(PHRASES))


def echoes_of(question: str) -> Iterator[str]:
    """Parts of the question that may be said again: none that asks yes or no, none that a judging word was cut from."""
    for clause in CLAUSE_END.split(question):
        sign = JUDGING.search(clause)
        if YES_OR_NO.search(clause):  # what it asks about may be said, and not what it asks of it
            about = ASKS.search(clause)
            clause = clause[: about.start()] if about and not re.search("是|属于", clause[: about.start()]) else ""
        for run in (clause, *parts(clause)):
            at = clause.find(run)
            is_cut = sign and at > sign.start() and "的" not in clause[sign.start() : at]
            is_asked = verdicts.is_asked(question) and PERMITS.search(run)
            if (
                (not is_cut or (is_unknown(run) and not any(map(is_chinese_verb, (run[:1], run[:2])))))
                and not is_asked
                and not MODAL.search(run)
                and (len(run) >= MIN_DENYING_RUN or not DENYING.search(run))
            ):
                yield run


def ways_to_say(question: str) -> list[str]:
    """How a sentence says the one kind of thing that the question asks for; nothing where it asks for several."""
    asked = [(found.start(), says) for wanted, says in RELATIONS if (found := re.search(wanted, question))]
    judged = len(asked) != 1 or JUDGING.search(question[: asked[0][0]].replace("除了", ""))  # 不适用于 asks for no use
    return [] if judged else phrases(asked[0][1])
