"""Yes or no: what the clauses of an answer say to a question, by their own word or by the question's words.

A clause with the question's words says yes, with a denial or the opposite of one of them no. Others have to be frames,
or reasons beside a clear verdict. All verdicts have to agree.
Guarantees: pure functions, linear in the answer. Not covered: a verdict in other words than the question's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from sql_agent.offline_judge.doubts import DENIALS, NO, SOURCE, YES
from sql_agent.offline_judge.lexicon import spell, tokens
from sql_agent.offline_judge.slots import COMPARES, is_exchanged, is_other_way, is_turned, opposites, stem
from sql_agent.offline_judge.typed.doubted import new_doubts, with_asked_limits
from sql_agent.offline_judge.typed.sentences import (
    AUXILIARIES,
    FRAME,
    GRAMMAR,
    clauses_of,
    content_of,
    is_phrase,
    lexicon_of,
    weight,
)
from sql_agent.offline_judge.units import NAMES
from sql_agent.words.meanings import is_chinese_verb, one_sense

MAX_UNKNOWN = 4  # weight of unknown words around a verdict
FEW_WORDS = 3  # of "it is not", which speaks of nothing else
SIZES = re.findall(  # no doubts in what is told beside a yes or a no
    "[^|]+",
    "about|around|over|under|between|above|below|before|after|almost|nearly|roughly|at least|at most|more than"
    "|less than|fewer than|超过|左右|约|不到|至少|大于|小于|高于|低于|多于|少于",
)
OFFERS_BOTH = re.compile(r"(.)[不没]\1|没有?(?=[?？]?$)")  # of a question
POLITE = re.compile(r"^(is|are|was|were|do|does|did|has|have|had|can|could|will|would|should) not\b")  # isn't it?
NEGATIVE = re.compile(r"\b(?:not|never)\b|没(?=有)|从[不未]|(?<=是)不(?!是)")  # of what is asked
IS_VERDICT = re.compile(rf"(?![有没])(?:{YES.pattern}|{NO.pattern})")
TWICE_DENIED = re.compile(r"\b(?:not|never) (?:been |being )?not\b|(?:并?不是|并[非不]|没有?|从?[不未])[不未没]有?")
ENDS_DENYING = re.compile(rf"(?:{DENIALS.pattern})(?:有|是|的)?$")  # "never", "unfortunately not"
ALL = re.compile(r"\b(?:all|every)\b|[都每]|所有|全部")
NOT_ALL = re.compile(r"not (?:all|every)\b|(?:并非|不是|没有?)(?:所有|全|每|都)")
IMPERATIVE = re.compile(r"(?:please|see|check|refer|请[查参])\b")
CONCLUDES = re.compile(
    r"^(?:(?:and|so|that|this|which|then|therefore|thus|hence) |因此|所以|故)*"
    r"(?:(?:the )?(?:final )?(?:answer|result|conclusion) is |means |(?:答案|结果|结论)[是为])?"
)
SAYS_NOTHING = re.compile(
    r"^after [a-z]+ing\b|\bnot only\b|不[仅但光]|\b(?:that|this|the same) (?:day|night|date|week|month|year|time)\b"
    r"|[当那同][天日月年]|任何"
)
TOPIC = re.compile(  # of what comes next
    r"(?:for|in|at|on|according to|based on|i [a-z]+ed) (?!.*\b(?:is|are|was|were|has|have|do|does|did)\b)"
    r"|在.{2,}[中里内上月日年时]$|就.+(?:而言|来[说看])$|根据"
)
PERMITS = re.compile(r"\bmay (?!be|have|not|or)")  # beside a yes or a no; elsewhere it doubts
COMPLEMENT = re.compile(r" 1$|(?<=了)[上下起出过回进][来去]")  # "it has one", 幸存了下来
ANY_SENTENCE = {"any", "ever", "single", "会", "曾", "过", "着"} | AUXILIARIES
NO_OF = re.compile(r"\bno ([a-z]{3,})")

STAYS = re.compile(r"\b(?:stay|remain)(?:s|ed)?\b(?! (?:at|in|with)\b)")
LABELLED = re.compile(  # - Open on Sundays: no
    r"(?:^|(?<=\n))[ *-]*([^\n:;.,]{2,60}?)[ *]*:[ *]*(?=(?:yes|no|true|false)[ *.]*(?:\n|$))"
)
BY_HOW_MUCH = re.compile(rf"\b(\d[\d.]*) (?:(?:{NAMES}|years?|months?|days?) )?(?=(?:more|less|fewer|[a-z]+er)\b)")

Saying = bool | Literal["frame", "nothing"]  # a verdict, nothing of the thing, or nothing that can be read


def polarity(said: str, question: str) -> bool | None:
    """What the answer says to a question of yes or no; None where it doubts, says both or speaks of something else.
    To a question that denies ("does it never stop?") a yes says the same as a sentence that denies."""
    question = POLITE.sub(r"\1 ", OFFERS_BOTH.sub(r"\1", question))
    said = STAYS.sub("is", said) if not STAYS.search(question) else said
    if COMPARES.search(question):
        numbers = {*spell(question).split()}
        said = BY_HOW_MUCH.sub(lambda by: by[0] if by[1] in numbers else "", said)
    if any(opposites(question, label[1]) for label in LABELLED.finditer(said)):  # closed: no
        return None
    asked = content_of(question)
    said = LABELLED.sub(lambda label: " " if content_of(label[1]) <= asked else label[0], said)
    clauses = clauses_of(with_asked_limits(said, question))
    if not NEGATIVE.search(question):
        return verdict(clauses, question)
    statements = [clause for clause in clauses if not IS_VERDICT.fullmatch(clause)]
    verdicts = {not NO.match(clause) for clause in clauses if IS_VERDICT.fullmatch(clause)}
    if statements:
        stated = verdict(statements, NEGATIVE.sub(" ", question))
        if stated is None:
            return None
        verdicts.add(not stated)
    return verdicts.pop() if len(verdicts) == 1 else None


def verdict(clauses: Sequence[str], question: str) -> bool | None:
    """What the clauses say to a question that denies nothing."""
    compares = COMPARES.search(question) is not None
    are_turned = [compares and is_other_way(question, clause) for clause in clauses]
    clauses = [without_opposites(clause, question, clause) for clause in clauses]
    clauses = [_denied(clause) if is_turned else clause for clause, is_turned in zip(clauses, are_turned, strict=True)]
    alone = {saying for clause in clauses if isinstance(saying := _says(clause, question, after=None), bool)}
    verdicts: list[bool] = []
    for clause, is_reversed in zip(clauses, are_turned, strict=True):
        saying = _says(clause, question, after=verdicts[0] if verdicts else None)
        if saying == "nothing" and len(alone) == 1 and _may_be_reason(clause, question, of=True in alone):
            continue
        if saying == "nothing":
            return None
        is_no = NO.match(clause) or False in verdicts  # and why, with other words for what is denied
        is_checked = not (is_reversed or is_no)
        if is_checked and (is_exchanged(question, clause, "\n".join(clauses)) or is_turned(question, clause)):
            return None
        if isinstance(saying, bool):
            verdicts.append(saying)
    return verdicts[0] if len({*verdicts}) == 1 else None


def without_opposites(said: str, question: str, shown: str) -> str:
    """A text with the question's words, denied, for their opposites in what is `shown` of it, and no double denial:
    "it is closed" is "it is not open" where that is asked."""
    for start, end, word in reversed(opposites(question, shown)):
        if not word.isascii() and not FRAME.read(said[start:end])[1]:  # a word of any sentence: 查询结果
            continue
        said = f"{said[:start].removesuffix('more ')}{'not ' if word.isascii() else '不'}{word}{said[end:]}"
    return TWICE_DENIED.sub(" ", said)


def gives_verdict(said: str) -> bool:
    """Whether a clause of a text is a yes or a no by its own word."""
    clauses = (CONCLUDES.sub("", clause) for clause in clauses_of(said))
    return any(IS_VERDICT.match(clause) for clause in clauses)


def _may_be_reason(clause: str, question: str, *, of: bool) -> bool:
    """Whether a clause beside a verdict may be why it is so: no doubt, and for a yes no denial of what is asked."""
    if new_doubts(clause, question) - {*SIZES}:
        return False
    is_about_it = content_of(question) & {stem(token[0]) for token in tokens(clause)}
    return not (of and is_about_it and DENIALS.search(clause))


def _denied(clause: str) -> str:
    """A clause with a denial more, or one less."""
    return DENIALS.sub(" ", clause).strip() if DENIALS.search(clause) else f"not {clause}"


def _says(clause: str, question: str, *, after: bool | None) -> Saying:
    """What one clause says `after` the verdict of those before it."""
    if _is_courtesy(clause) or IMPERATIVE.match(clause):
        return "frame"
    clause = re.sub("no longer|yet to|not yet", "not", re.sub(r"\bs not\b", "is not", clause))
    clause = SAYS_NOTHING.sub(" ", CONCLUDES.sub("", clause))
    if NOT_ALL.match(clause) and ALL.search(question):
        return False
    if TOPIC.match(clause) and not DENIALS.search(clause):
        return "frame"
    lead = NO.match(clause) or YES.match(clause)
    if lead and question.startswith(clause[: lead.end() + 1]):  # a name's first letters
        lead = None
    is_decided = lead is not None or after is not None
    statement = clause[lead.end() :] if lead else clause
    if is_decided:
        clause, statement = PERMITS.sub(" ", clause), PERMITS.sub(" ", statement)
    statement = COMPLEMENT.sub("", statement)
    denies = bool({*DENIALS.findall(statement)} - {*DENIALS.findall(question)})
    if new_doubts(clause, question) - ({*SIZES} if is_decided else set()) or (lead and denies):
        return "nothing"
    if clause.isascii() and SOURCE.search(clause):
        return "frame"
    spoken = _compared(DENIALS.sub(" ", statement), question, has_lead=lead is not None)
    is_no = NO.match(clause) is not None
    if lead and spoken.n_unknown <= MAX_UNKNOWN * spoken.is_statement:
        return not is_no
    if denies and len(spoken.stems) <= 1 and ENDS_DENYING.search(statement):
        return False
    if denies and after is False:  # the same again
        return "frame"
    lacking = {stem(word) for word in NO_OF.findall(clause)}
    if after and lacking and lacking <= {stem(word) for word in spoken.unknown}:  # free: no booking
        return "frame"
    is_reason = after is not None and spoken.n_unknown and (spoken.is_statement or lead)
    if is_reason and not denies and not is_no:
        return "frame"
    if spoken.is_statement and not spoken.n_unknown:
        return not denies
    return "nothing" if denies or spoken.is_statement or spoken.n_unknown > MAX_UNKNOWN else "frame"


def _is_courtesy(clause: str) -> bool:
    words, strange = FRAME.read(clause)
    return len(words) == 1 and not strange and is_phrase(words[0][2])


class _Spoken(NamedTuple):
    """What a clause speaks of: all its stems, the words that the question has not, how many these are, and whether it
    says what is asked."""

    stems: set[str]
    unknown: list[str]
    n_unknown: float
    is_statement: bool


def _compared(said: str, question: str, *, has_lead: bool) -> _Spoken:
    """What is `said` without yes, no and denials, beside the question."""
    asked, stems = content_of(question), {stem(token[0]) for token in tokens(said)}
    asked_words = [token[0] for token in tokens(question) if stem(token[0]) in asked]
    words = [token[0] for start, end in lexicon_of(question).read(said)[1] for token in tokens(said[start:end])]
    unknown = [
        word
        for word in words
        if stem(word) not in asked
        and word not in ANY_SENTENCE
        and not any(one_sense(word, asked_word) for asked_word in asked_words)
    ]
    is_echo = (len(stems) > 1 or not said.isascii()) and bool(stems) and spell(said) in spell(question)
    is_frame = not has_lead and not is_echo and not FRAME.read(said)[1]
    least = 0.5 if is_echo and (len(said.strip()) == 1 or is_chinese_verb(said.strip())) else 1  # 招, 高
    is_about_it = sum(map(weight, stems & asked)) >= least and not is_frame
    is_short = len(stems) <= FEW_WORDS and stems <= GRAMMAR and bool(stems & AUXILIARIES)
    return _Spoken(stems, unknown, sum(map(weight, unknown)), is_about_it or is_short)
