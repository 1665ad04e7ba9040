"""The offline judge: how much of the reference answer an answer states, and how much it states beyond that.

    coverage = mean credit over the facts of the reference            (recall)
    support  = supported claims / all claims of the answer            (precision)
    value    = 2 * coverage * support / (coverage + support)          (F1)

This is SQuAD's token F1 (Rajpurkar et al. 2016, section 6.1) with facts in place of tokens, and support as in FActScore
(Min et al. 2023): claims found in the reference or the evidence over all claims. Facts are what stands between
separators; a fact's credit is 1 where it stands as a word of its own, else it grows with the share of its token
bigrams that agreeing claims contain (agreeing: same numbers, no flipped "not", no opposite).

Guarantees: deterministic, value in [0, 1], stdlib only; a fact of up to three characters counts exactly or not at all;
a denied fact, or one told of the wrong entity, is not covered; words of the question and polite filler neither help
nor harm; a claim repeated more than twice, and anything in neither reference nor evidence, lowers support.
Not covered: synonyms, facts spread over several sentences, and reasoning. An LLM judge sees those.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sql_agent.reference_text import (
    COUNTER,
    NEGATING_SIGN,
    NEGATOR,
    agree,
    asked_runs,
    blank,
    clauses,
    core,
    denies,
    grams,
    items,
    mask,
    normalise,
    share,
    stands_free,
    tokens,
    weight,
    whole_words,
)

MAX_ANSWER_CHARS = 8000
MIN_FUZZY_WEIGHT = 4  # lighter facts count exactly or not at all
NAME_WEIGHT = 6  # up to this weight a fact is a name: it must stand free, and a near miss earns at most HALF
HALF = 0.5
RECALL_RAMP = (0.3, 0.9)  # share of a fact's bigrams that earns 0 and 1
SUPPORT_RAMP = (0.4, 0.8)  # share of a claim's bigrams, found in one phrase, that counts 0 and 1
CLAIM_WEIGHT = 8  # unsupported text of this weight counts as one claim, longer text as several
FREE_MENTIONS = 2  # a summary may repeat what was said

BACKWARD = re.compile(r"以上|上述|前述|这些|\b(?:these|above)\b")
BOTH = re.compile(r"两者|二者|两种药|两药|两种疾病|共同|\bboth\b")
ADVICE = re.compile(r"医生|医师|药师|遵医嘱|咨询|就医|就诊|仅供参考|疑问|\b(?:doctor|physician|pharmacist)\b")
COUNTED = re.compile(rf"\d+(?:\.\d+)?(?={COUNTER}|\s*[、;,.。或和至]|\s*$)", re.MULTILINE)


@dataclass(frozen=True)
class ReferenceVerdict:
    """F1 of coverage and support, each in [0, 1], and what was missing and what was invented."""

    value: float
    coverage: float
    support: float
    missing: list[str]
    invented: list[str]

    @property
    def explanation(self) -> str:
        """One line for people."""
        parts = [f"coverage {self.coverage:.2f}", f"support {self.support:.2f}"]
        parts += [f"missing: {'；'.join(self.missing[:5])}"] if self.missing else []
        parts += [f"not in reference or evidence: {'；'.join(self.invented[:5])}"] if self.invented else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Phrase:
    """A fact of the reference, or (index -1) of the evidence.

    `subject`: the entity or field it is told of, where the reference tells of several. `core`: the text of an
    unlabelled fact without the question's words and filler at its ends. `negated`: its label denies it.
    """

    text: str
    index: int = -1
    subject: str = ""
    negated: bool = False
    core: str = ""


@dataclass(frozen=True)
class _Exam:
    """What an answer is held against: facts, evidence, the question, and those of its words that are neutral.

    `unattributed` is the credit of a fact told without naming its subject.
    """

    facts: list[Phrase]
    quotes: list[Phrase]
    question: str
    asked: str
    subjects: list[str]
    unattributed: float


def grade(*, question: str, reference: str, answer: str, evidence: Sequence[str] = ()) -> ReferenceVerdict | None:
    """Compare `answer` with `reference`; None when the reference holds no fact to compare with.

    Only the first MAX_ANSWER_CHARS characters of the answer are read.
    """
    exam = _exam(question, reference, tuple(evidence))
    if not exam.facts:
        return None
    tally = _Tally(exam)
    if not is_copy(question, answer):
        tally.read(normalise(answer[:MAX_ANSWER_CHARS]))
    return tally.verdict()


def is_copy(question: str, answer: str) -> bool:
    """True when the answer says nothing but the question again, however often."""
    asked, said = tokens(normalise(question)), tokens(normalise(answer[:MAX_ANSWER_CHARS]))
    rest = "".join(said).replace("".join(asked), "")
    alike = share(said, asked) >= 0.9 and share(asked, said) >= 0.8 and len(said) <= 1.2 * len(asked)
    return bool(said) and (not rest or alike)


def _ramp(value: float, limits: tuple[float, float]) -> float:
    low, high = limits
    return min(1.0, max(0.0, (value - low) / (high - low)))


@functools.lru_cache(maxsize=1024)
def _exam(question: str, reference: str, evidence: tuple[str, ...]) -> _Exam:
    """Cached: a group of rollouts asks for the same one."""
    question = asked = normalise(question)
    found = list(dict.fromkeys(_labelled_facts(normalise(reference))))
    subjects, of_entities = _subjects([label for label, _ in found], question)
    told = [(label, text) for label, text in found if label or core(text, question)]
    if not any(core(text, question) for _, text in told):
        # "A or B, which one?": the answer stands in the question, so its words cannot be neutral.
        told, asked = found, ""
    facts = [
        Phrase(
            text=text,
            index=i,
            subject=subjects.get(label, ""),
            negated=denies(mask(label, question)),
            core="" if label else core(text, asked),
        )
        for i, (label, text) in enumerate(told)
    ]
    quotes = [Phrase(text) for quote in evidence for clause, _ in clauses(normalise(quote)) for text in items(clause)]
    names = sorted(set(subjects.values()), key=len, reverse=True)
    return _Exam(facts, quotes, question, asked, names, HALF if of_entities else 1.0)


def _labelled_facts(reference: str) -> Iterator[tuple[str, str]]:
    """(label, fact): the label is what stood before the last colon of the sentence."""
    label = ""
    for clause, end in clauses(reference):
        if end == ":":
            label = clause.strip()
            continue
        yield from ((label, item) for item in items(clause))
        if end and end in "。!?\n":
            label = ""


def _subjects(labels: list[str], asked: str) -> tuple[dict[str, str], bool]:
    """The subject of each label, where the reference tells of several things that the question names.

    Labels read "ENTITY的FIELD"; subjects are the entities, or the fields of the one entity. The flag: entities.
    """
    parts = {label: label.partition("的") for label in labels if label}
    of_entities = len({entity for entity, _, _ in parts.values()}) > 1
    subjects = {label: entity if of_entities else field for label, (entity, _, field) in parts.items()}
    named = len(set(subjects.values())) > 1 and all(s and s in asked for s in subjects.values())
    return (subjects if named else {}), of_entities


@dataclass
class _Item:
    """One item of a clause: `masked` keeps only unexplained text, `free` all but the exact phrases.

    `spans`: each exact phrase, and whether a negator stands right before it. `support`: how far one phrase, `nearest`,
    supports the unexplained text, in [0, 1].
    """

    text: str
    spans: list[tuple[str, bool]]
    masked: str
    free: str
    support: float = 0.0
    nearest: str = ""

    @property
    def weight(self) -> int:
        """Weight of the unexplained text; a bare negator is no claim."""
        return weight(tokens(NEGATOR.sub(" ", self.masked)))

    @property
    def denies(self) -> bool:
        """True when text that no phrase explains negates."""
        return self.support < HALF and denies(self.masked)


class _Tally:
    """Reads an answer clause by clause and keeps the books."""

    def __init__(self, exam: _Exam) -> None:
        self._exam = exam
        self._forms: dict[str, list[Phrase]] = {}
        for phrase in (*exam.facts, *exam.quotes):
            for form in {phrase.text, phrase.core} if weight(tokens(phrase.core)) >= 2 else {phrase.text}:
                self._forms.setdefault(form, []).append(phrase)
        self._longest_first = sorted(self._forms, key=len, reverse=True)
        self._credit = [0.0] * len(exam.facts)
        self._void: set[int] = set()
        self._told: dict[int, set[tuple[str, ...]]] = {}
        self._mentions: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._supported = self._unsupported = 0.0
        self._invented: list[str] = []
        self._current: tuple[str, ...] = ()
        self._carried_denial = False

    def read(self, answer: str) -> None:
        """Book every clause of a normalised answer. The question again, word for word, is skipped."""
        answer = answer.replace(self._exam.question.rstrip("?。. "), "\n")
        for clause, end in clauses(answer):
            is_label = end == ":"
            self._current = self._named(clause, is_label=is_label) or self._current
            found = [self._item(text, is_label=is_label) for text in items(clause)]
            denied = any(item.denies for item in found)
            for item in found:
                others_deny = self._carried_denial or any(i.denies for i in found if i is not item)
                self._book_spans(item, denied=denied or self._carried_denial)
                self._book_rest(item, denied=others_deny)
            if denied and BACKWARD.search(clause):
                self._void |= {i for i, credit in enumerate(self._credit) if credit}
            if is_label:
                self._carried_denial = denied
            elif end and end in "。!?":
                self._carried_denial = False
        self._void |= self._hedged(answer)

    def verdict(self) -> ReferenceVerdict:
        """F1 of what was booked."""
        credit = [0.0 if i in self._void else c for i, c in enumerate(self._credit)]
        coverage = sum(credit) / len(credit)
        claims = self._supported + self._unsupported
        support = self._supported / claims if claims else 0.0
        value = 2 * coverage * support / (coverage + support) if coverage + support else 0.0
        missing = [fact.text for fact, c in zip(self._exam.facts, credit, strict=True) if c < HALF]
        return ReferenceVerdict(value, coverage, support, missing, list(dict.fromkeys(self._invented)))

    def _named(self, clause: str, *, is_label: bool) -> tuple[str, ...]:
        """The subjects that a clause names; a longer name, or a phrase outside a label, hides those inside it."""
        if BOTH.search(clause):
            return tuple(self._exam.subjects)
        for start, end, _ in self._find(clause) if self._exam.subjects and not is_label else ():
            if not self._is_of_question(clause, start, end):
                clause = blank(clause, start, end)
        named = []
        for subject in self._exam.subjects:
            if subject in clause:
                named.append(subject)
                clause = clause.replace(subject, " ")
        return tuple(named)

    def _hedged(self, answer: str) -> set[int]:
        """Facts that are one number, where the answer counts otherwise too: naming several must not pay."""
        known = set(tokens(self._exam.asked)) | {w for quote in self._exam.quotes for w in tokens(quote.text)}
        counted = set(COUNTED.findall(answer)) - known
        return {f.index for f in self._exam.facts if f.core.isdecimal() and counted - {f.core}}

    def _item(self, text: str, *, is_label: bool) -> _Item:
        found, masked = [], text
        for start, end, form in self._find(text):
            neutral = self._is_of_question(text, start, end, itself=is_label)
            masked = blank(masked, start, end, " " if neutral else "\0")
            found += [] if neutral else [(start, end, form)]
        masked = mask(masked, self._exam.question if is_label else self._exam.asked)
        spans, free = [], text
        for start, end, form in found:
            denied = start > 0 and NEGATING_SIGN.fullmatch(masked[start - 1]) is not None
            if denied or weight(tokens(form)) > NAME_WEIGHT or stands_free(masked, text, start, end):
                spans.append((form, denied))
                free = blank(free, start, end)
            else:
                masked = masked[:start] + text[start:end] + masked[end:]
        item = _Item(text=text, spans=spans, masked=masked.replace("\0", " "), free=free)
        item.support, item.nearest = self._nearest(item)
        return item

    def _is_of_question(self, text: str, start: int, end: int, *, itself: bool = False) -> bool:
        """True when text[start:end] stands in a longer run of the question's words (or is one, with `itself`)."""
        runs = asked_runs(text, self._exam.question)
        return any(a <= start and end <= b and (itself or (a, b) != (start, end)) for a, b in runs)

    def _find(self, text: str) -> list[tuple[int, int, str]]:
        """Exact occurrences (start, end, form) of all phrases, the longest first, without overlaps."""
        found: list[tuple[int, int, str]] = []
        for form in self._longest_first:
            start = text.find(form)
            while start >= 0:
                end = start + len(form)
                if whole_words(text, start, end):
                    found.append((start, end, form))
                    text = blank(text, start, end, "\0")
                start = text.find(form, start + 1)
        return found

    def _nearest(self, item: _Item) -> tuple[float, str]:
        rest = tokens(item.masked)
        best = (0.0, "")
        for phrase in self._forms if item.weight >= 2 else ():
            support = _ramp(share(rest, tokens(phrase)), SUPPORT_RAMP)
            if support > best[0] and agree(phrase, item.free, self._exam.asked):
                best = (support, phrase)
        return best

    def _book_spans(self, item: _Item, *, denied: bool) -> None:
        """Book the exact phrases of an item: covered, repeated, denied, or told of the wrong subject."""
        for form, denied_here in item.spans:
            self._mentions[form, self._current] += 1
            count = self._mentions[form, self._current]
            facts = [phrase for phrase in self._forms[form] if phrase.index >= 0]
            mine = [fact for fact in facts if self._is_told_of(fact)]
            flipped = (denied or denied_here) and not any(fact.negated for fact in facts)
            if flipped:
                self._void |= {fact.index for fact in mine}
            if flipped or count > FREE_MENTIONS or (facts and not mine):
                self._unsupported += 1
                self._invented.append(item.text)
                continue
            # Told of two subjects at once and true of one: half a truth.
            true_of = {fact.subject for fact in mine} & set(self._current)
            truth = len(true_of) / len(self._current) if true_of else 1.0
            self._supported += truth * (count == 1)
            self._unsupported += 1 - truth
            for fact in mine:
                self._earn(fact, truth)

    def _book_rest(self, item: _Item, *, denied: bool) -> None:
        """Book what is no exact phrase: partial credit for the facts it resembles, and its support."""
        if item.weight < 2 or (item.support < HALF and ADVICE.search(item.text)):
            return
        for fact in self._exam.facts if not denied else ():
            if self._is_told_of(fact) and self._credit[fact.index] < 1:
                self._earn(fact, self._resemblance(fact, item))
        key = (item.masked, self._current)
        self._mentions[key] += 1
        support = 0.0 if denied or self._mentions[key] > FREE_MENTIONS else item.support
        claims = max(1.0, item.weight / CLAIM_WEIGHT)
        # A fragment supports as much as it is of its phrase, so that fragments add up to one claim.
        fragment = min(1.0, item.weight / weight(tokens(item.nearest))) if item.nearest else 1.0
        self._supported += support * claims * fragment
        self._unsupported += (1 - support) * claims
        if support < HALF:
            self._invented.append(item.text)

    def _resemblance(self, fact: Phrase, item: _Item) -> float:
        """Credit in [0, 1] for the part of a fact's bigrams told so far by claims that contradict nothing of it."""
        ours, words = tokens(fact.text), tokens(item.free)
        size, wanted = weight(ours), grams(ours)
        near = max(share(ours, words), share(words, ours)) >= HALF or share(tokens(item.masked), ours) >= HALF
        if size < MIN_FUZZY_WEIGHT or not near or not agree(fact.text, item.free, self._exam.asked):
            return 0.0
        told = self._told.setdefault(fact.index, set())
        told |= wanted & grams(words)
        credit = _ramp(len(told) / len(wanted), RECALL_RAMP)
        numbers_told = {w for w in ours if w[0].isdigit()} <= {w for gram in told for w in gram}
        return credit if numbers_told and size > NAME_WEIGHT else min(HALF, credit)

    def _is_told_of(self, fact: Phrase) -> bool:
        return not fact.subject or not self._current or fact.subject in self._current

    def _earn(self, fact: Phrase, credit: float) -> None:
        factor = self._exam.unattributed if fact.subject and not self._current else 1.0
        self._credit[fact.index] = max(self._credit[fact.index], factor * credit)
