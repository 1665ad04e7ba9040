"""Which of two: whether an answer chooses, of two things that the question names, the one that the reference chooses.

Guarantees: pure functions on text in normal form, linear in it. The other thing may be told of where that is denied, or
set against the chosen one; a doubt, a denial of the chosen one and both chosen are no choice. Not covered: more than
two things.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from sql_agent.offline_judge.doubts import DENIALS, DOUBTS, is_frame
from sql_agent.offline_judge.lexicon import spell, tokens
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.sections import ASK_END, JOINT, PART_END, Cell
from sql_agent.offline_judge.slots import content, is_form
from sql_agent.offline_judge.verdicts import wanted

ASKS = re.compile(
    r"(?<!在)哪(?![些里儿])|还是|谁|\b(?:which|who)\b|(?:\bwhat\b|^(?:is|are|was|were|do|does|did|can|must|should|has|have|will)\b)(?=.*\bor\b)"
)
OF_TWO = re.compile(r"哪1?[两2]?[个种款位者类件家条]|谁|还是|\b(?:which|or)\b")  # one of things
SEVERAL = re.compile(r"哪[几些]|\bwhich (?:ones|of these|\w+s are)\b")
IS_IT = re.compile(r"^(?:is|was) it (?=.*\bor\b)")
PLAIN = (  # two things and nothing else between signs
    re.compile(r"\bwhich(?: one)?, (?:the )?([^,;?]{1,60}?),? or (?:the )?([^,;?]{1,60}?),"),
    re.compile(r", (?:the )?([^,;?]{1,60}?),? or (?:the )?([^,;?]{1,60})$"),
    re.compile(r"([^,;是]{1,30})[,;]?(?:还是|或)([^,;?]{1,30}?)(?:[两2二]?[者个种]?之?[中里]|[,;?]|$)"),
)
OFFERS = re.compile(r"(?<![a-z])or(?![a-z])|还是")
ENDS = re.compile(r"[,;。.!?\n]|而(?!且)|\b(?:but|while|whereas)\b")
CLAIM_ENDS = re.compile(rf"{ENDS.pattern}|:(?!\d)")
AGAINST = re.compile(
    r"比(?![较如例重值分])|不同于|相比|\b(?:unlike|than|compared (?:to|with)|versus|instead of|rather than|against)\b"
)
MIN_RUN = 3
MAX_TALK = 3  # words of a clause beside a name
MAX_NAME, MAX_WORDS = 3, 12  # tokens by which a thing is known, and of its whole name


class Choice(NamedTuple):
    """What tells the chosen thing, and the other; spelt. `names` are all that they are called, `words` its words."""

    chosen: str
    other: str
    names: tuple[str, ...]
    words: frozenset[str]


def choice(question: str, reference: str, cells: Sequence[Cell] = ()) -> Choice | None:
    """None where the question is none of two things, or the reference chooses none of them, or both."""
    question = IS_IT.sub("which, ", question)
    names = (
        (_named_by_rows(question, cells) or _offered(question))
        if ASKS.search(question) and not SEVERAL.search(question)
        else None
    )
    if not names:
        return None
    first, second, called = names
    which = Choice(first, second, tuple(map(spell, called)), frozenset(word for one in called for word in content(one)))
    said = [name in spell(reference) for name in (first, second)]
    claims, _ = _verdicts(which, question, reference)
    is_first = said[0] if sum(said) == 1 else claims.pop() if len(claims) == 1 and all(said) else None
    return None if is_first is None else which if is_first else which._replace(chosen=second, other=first)


def _named_by_rows(question: str, cells: Sequence[Cell]) -> tuple[str, str, tuple[str, ...]] | None:
    """What the question says of the names of two rows: the longest run of tokens that each has for itself."""
    rows: dict[str, list[str]] = {}
    for cell in cells:
        text = normalise(cell.text)
        if len(tokens(text)) <= MAX_WORDS:
            rows.setdefault(cell.row, []).append(text)
    asked = spell(question)
    found: dict[str, list[str]] = {}
    for row, texts in rows.items():
        runs = [(run, text) for text in texts for run in _runs(text) if run in asked]
        runs = runs or [(run, row) for run in _runs(normalise(row)) if run in asked]
        if runs:
            run, text = max(runs, key=lambda pair: (pair[0] == spell(pair[1]), len(pair[0])))
            found.setdefault(run, []).append(text)
    if len(found) != 2:
        return None
    first, second = found
    if first in second or second in first:
        return None
    return first, second, tuple(text for texts in found.values() for text in texts)


def _runs(text: str) -> Iterator[str]:
    """The runs of tokens of a name by which it may be known: two characters or a word, and no number alone."""
    words = [one[0] for one in tokens(text)]
    for start, end in combinations(range(len(words) + 1), 2):
        run = words[start:end]
        if sum(len(word) if word.isascii() else 2 for word in run) > MIN_RUN and any(map(str.isalpha, run)):
            yield spell(" ".join(run))


def _offered(question: str) -> tuple[str, str, tuple[str, ...]] | None:
    """The two things that stand on both sides of a joint."""
    plain = [found for pattern in PLAIN for found in pattern.findall(question)]
    for joined in [*plain, *map(_joined, PART_END.split(question))]:
        if len(joined) == 2:
            first, second = (_name(one, joined[1 - n], from_end=n == 0) for n, one in enumerate(joined))
            if first.strip() and second.strip():
                ends = (one if one.isascii() else one.replace(" ", "") for one in (first, second))
                return first, second, (*(one for one in joined if len(tokens(one)) <= MAX_WORDS), *ends)
    return None


def _joined(part: str) -> list[str]:
    joined = [one for one in JOINT.split(part) if tokens(one)]
    joined = [one for one in joined if not ASKS.search(one)] if len(joined) > 2 else joined
    return joined[-2:] if OFFERS.search(part) else joined


def of_rows(question: str, cells: Sequence[Cell]) -> str:
    """What names the one row that the question is true of, by its cells' own words; "" where it is none or several."""
    rows: dict[str, list[str]] = {}
    for cell in cells:
        rows.setdefault(cell.row, []).append(normalise(cell.text))
    said = {row: [text for text in texts if spell(text) in spell(question)] for row, texts in rows.items()}
    most = max(map(len, said.values()), default=0)
    meant = [row for row, texts in said.items() if len(texts) == most]
    if len(meant) > 1 and most:
        names = [text for texts in said.values() for text in texts]
        others = ("\n".join(text for text in rows[row] if text not in names) for row in meant)
        are_true = [wanted(question, text, names) is True for text in others]
        meant = [row for row, is_true in zip(meant, are_true, strict=True) if is_true]
    return "\n".join(said[meant[0]]) if len(meant) == 1 and (most > 1 or len(said) == 1 or len(rows) > 1) else ""


def told(which: Choice, question: str, answer: str) -> bool | None:
    """Whether the answer says that it is the chosen one and not the other; None where it says neither, or doubts. What
    stands under a name, and what else is told of one, counts where nothing says which it is."""
    claims, mentions = _verdicts(which, question, answer)
    chosen = claims or mentions
    return None if None in chosen or not chosen or (len(mentions) > 1 and not claims) else chosen == {True}


def _verdicts(which: Choice, question: str, answer: str) -> tuple[set[bool | None], set[bool | None]]:
    """What clauses say of which it is, and what those that only tell of one thing do; None is a doubt."""
    asked, claims, mentions = {*DOUBTS.findall(question)}, set[bool | None](), set[bool | None]()
    is_denied = DENIALS.search(question) is not None  # which one has none?
    choosing = next((one for one in ASK_END.split(question) if ASKS.search(one)), question)
    ours = content(_without_names(which, choosing)) - which.words
    ends = [(end.start(), end.end(), end[0]) for end in CLAIM_ENDS.finditer(answer)]
    begin = 0
    for at, after, sign in [*ends, (len(answer), len(answer), "")]:
        clause, begin = answer[begin:at], after
        said = spell(clause)
        if which.chosen not in said and which.other not in said:
            continue
        theirs = content(clause) - which.words
        shared = {one for one in ours if any(is_form(other, one) for other in theirs)}
        says = 2 * len(shared) >= max(len(ours), len(theirs))
        is_bare = _is_talk(which, clause)
        turns = (DENIALS.search(clause) is not None) is not is_denied and not is_bare
        tells = theirs or re.search(r"(?<![a-z\d])\d", _without_names(which, clause))
        is_claim = says if tells and not is_bare else sign not in (":", "\n")
        against = AGAINST.search(clause)
        told_of = clause[: against.start()] if against else clause  # not of what stands behind it
        says_chosen, says_other = (name in spell(told_of) for name in (which.chosen, which.other))
        if says_other and not turns and (says or is_bare):
            (claims if is_claim else mentions).add(False)
        elif says_chosen and not says_other:
            is_short = (
                is_claim or len(theirs) <= MAX_TALK
            )  # a longer clause, as a quote is, may have a doubt of its own
            is_doubted = is_short and {*DOUBTS.findall(told_of)} - asked
            (claims if is_claim or is_doubted else mentions).add(None if is_doubted else not turns)
    return claims, mentions


def _without_names(which: Choice, text: str) -> str:
    for name in (*which.names, which.chosen, which.other):
        text = text.replace(name.strip() if name.isascii() else name.replace(" ", ""), " ")
    return text


def _is_talk(which: Choice, clause: str) -> bool:
    """Whether a clause with a name says nothing else: "the answer is A"."""
    clause = spell(clause)
    for name in (*which.names, which.chosen, which.other):
        clause = clause.replace(name, " ")
    return not re.search(r"\d", clause) and is_frame(clause, [(0, len(clause))], is_last=True)


def without_other(which: Choice, answer: str) -> str:
    """An answer without the clauses that tell of the other thing alone."""
    ends = [0, *(end.end() for end in ENDS.finditer(answer)), len(answer)]
    clauses = [answer[a:b] for a, b in zip(ends, ends[1:], strict=False)]
    return "".join(one for one in clauses if which.other not in spell(one) or which.chosen in spell(one))


def _name(text: str, other: str, *, from_end: bool) -> str:
    """What tells one thing, next to the joint: no beginning or end that the other has too."""
    found = [one[0] for one in tokens(text)]
    size = MAX_NAME if not text.isascii() else len(found) if from_end and len(found) <= MAX_NAME else 1
    places = range(len(found), 0, -1) if from_end else range(len(found))
    names = (spell(" ".join(found[max(0, at - size) : at] if from_end else found[at : at + size])) for at in places)
    return next((name for name in names if name not in spell(other)), "")
