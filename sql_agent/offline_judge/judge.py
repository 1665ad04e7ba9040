"""The offline judge: how much of the reference answer an answer states, and how much it states beyond that.

    coverage = mean credit over the facts of the reference            (recall)
    support  = supported claims / all claims of the answer            (precision)
    value    = 2 * coverage * support / (coverage + support)          (F1)

This is SQuAD's token F1 (Rajpurkar et al. 2016, section 6.1) with facts in place of tokens, and support as in FActScore
(Min et al. 2023): claims found in the reference or the evidence over all claims. Facts are what stands between
separators; a fact's credit is 1 where it stands as a word of its own, else it grows with the share of its words that
agreeing claims contain (agreeing: same numbers, no flipped "not", no opposite, no other word in a place).

Guarantees: deterministic, value in [0, 1], stdlib only; a fact of up to three characters counts exactly or not at all;
a fact that is denied, refuted, contradicted elsewhere, asked back, told of somebody else or as another kind of thing (a
use as a contraindication) is not covered; words of the question and polite filler neither help nor harm; a claim
repeated more than twice, and anything in neither reference nor evidence, text for the judge too, lowers support.
Not covered: synonyms beyond a short list, facts spread over several sentences, reasoning. An LLM judge sees those.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sql_agent.offline_judge.exam import HALF, Exam, Phrase, make_exam
from sql_agent.offline_judge.item import (
    NAME_WEIGHT,
    PREDICATE_NOT,
    RECALL_RAMP,
    Item,
    amounts,
    amounts_to_choose_from,
    counts_else,
    is_bare,
    likeness_of_name,
    ramp,
    support_of,
)
from sql_agent.offline_judge.normal import COUNTER, normalise
from sql_agent.offline_judge.stance import (
    Sentence,
    asks,
    hedges,
    names_alternatives,
    other_kind,
    other_subject,
    other_subject_of_field,
    permits,
    refutes,
    sentences,
    turns_question_round,
    without_contrast,
)
from sql_agent.offline_judge.table import flatten
from sql_agent.offline_judge.text import (
    NEGATING_SIGN,
    agree,
    asked_runs,
    blank,
    content,
    contradicts,
    cover,
    covered,
    has_variant,
    items,
    mask,
    mask_asked,
    share,
    stands_free,
    tokens,
    weight,
    whole_words,
)

MAX_ANSWER_CHARS = 8000
MIN_FUZZY_WEIGHT = 4  # lighter facts count exactly or not at all
CLAIM_WEIGHT = 8  # unsupported text of this weight counts as one claim, longer text as several
FREE_MENTIONS = 2  # a summary may repeat what was said
SOMEBODY_ELSE = ("\0",)  # a subject that the question does not ask for

BACKWARD = re.compile(r"以上|上[述面]|前[述面]|这些|[这那][几\d]+[条项种点句个]|\b(?:these|above)\b")
BOTH = re.compile(r"两者|二者|[2两]种药|两药|[2两]种疾?病|共同|\bboth\b")
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


def grade(*, question: str, reference: str, answer: str, evidence: Sequence[str] = ()) -> ReferenceVerdict | None:
    """Compare `answer` with `reference`; None when the reference holds no fact to compare with.

    Only the first MAX_ANSWER_CHARS characters of the answer are read.
    """
    exam = make_exam(question, reference, tuple(evidence))
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


class _Tally:
    """Reads an answer clause by clause and keeps the books."""

    def __init__(self, exam: Exam) -> None:
        self._exam = exam
        self._forms: dict[str, list[Phrase]] = {}
        for phrase in (*exam.facts, *exam.quotes):
            for form in {phrase.text, phrase.core} if weight(tokens(phrase.core)) >= 2 else {phrase.text}:
                self._forms.setdefault(form, []).append(phrase)
        self._longest_first = sorted(self._forms, key=len, reverse=True)
        self._credit = [0.0] * len(exam.facts)
        self._void: set[int] = set()
        self._told: dict[int, set[int]] = {}
        self._mentions: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._supported = self._unsupported = 0.0
        self._invented: list[str] = []
        self._current: tuple[str, ...] = ()
        n_facts = len(exam.facts)
        self._true_count = re.compile(rf"(?<!\d){n_facts}(?=[种个类款项条])" if n_facts > 1 else r"(?!)")
        self._carried_denial = False
        self._foreign = ""

    def read(self, answer: str) -> None:
        """Book every clause of a normalised answer. The question again, word for word, is skipped."""
        answer = answer.replace(self._exam.question.rstrip("?。. "), "\n")
        answer = flatten(answer, subjects=self._exam.subjects or self._exam.entities, phrases=self._forms)
        answer = without_contrast(answer, is_said=lambda text: bool(self._find(text)))
        for sentence in sentences(answer):
            if not asks(sentence):
                self._read_sentence(sentence)
        self._void |= self._hedged(answer)

    def _read_sentence(self, sentence: Sentence) -> None:
        found = [item for clause, _ in sentence for item in self._items(clause, is_label=False)]
        free = [mask_asked(item.free, self._exam.question) for item in found]
        whole = self._unexplained_of(sentence)
        refuted = any(refutes(text) or hedges(text) for text in [*free, whole])
        refuted |= turns_question_round(whole, asked=self._exam.question)
        refuted |= names_alternatives(whole) and any(item.weight >= 2 and item.support < HALF for item in found)
        listed = self._listed_before_not(sentence)
        carries = False
        for place, (clause, end) in enumerate(sentence):
            is_label = end == ":"
            self._current = self._subject(clause, is_label=is_label)
            found = self._items(clause, is_label=is_label)
            denying = [self._denies(item) for item in found]
            n_denying = sum(denying)
            carries = n_denying > 0 or (carries and is_bare(clause, found))
            denied = refuted or carries or place in listed
            for item, denies_itself in zip(found, denying, strict=True):
                self._book_spans(item, denied=denied or self._carried_denial)
                untold = refuted or place in listed or self._carried_denial
                self._book_rest(item, denied=untold or n_denying > denies_itself)
            if denied and BACKWARD.search(clause):
                self._void |= {i for i, credit in enumerate(self._credit) if credit}
            carries &= end == ","
            if is_label:
                self._carried_denial = denied
            elif end and end in "。!?":
                self._carried_denial = False
        if self._foreign == "sentence":
            self._foreign, self._current = "", ()

    def _listed_before_not(self, sentence: Sentence) -> set[int]:
        """Places of the members of an English list whose last one has the verb: "A, B and C are not symptoms"."""
        places: set[int] = set()
        for last, (clause, _) in enumerate(sentence):
            if not PREDICATE_NOT.search(clause):
                continue
            for place in range(last - 1, -1, -1):
                before, end = sentence[place]
                if place in places or end != "," or not is_bare(before, self._items(before, is_label=False)):
                    break
                places.add(place)
        return places

    def _unexplained_of(self, sentence: Sentence) -> str:
        """The sentence without phrases and the question's words: words of doubt may stand on both sides of them."""
        text = self._unexplained(";".join(clause for clause, _ in sentence))
        return mask_asked(text, self._exam.question)

    def _items(self, clause: str, *, is_label: bool) -> list[Item]:
        return [self._item(text, is_label=is_label) for text in items(clause)]

    def _denies(self, item: Item) -> bool:
        return item.denies or (self._exam.forbids and permits(item.free))

    def _subject(self, clause: str, *, is_label: bool) -> tuple[str, ...]:
        """What is told of from this clause on: the subjects it names, somebody else, or what was told of before."""
        exam = self._exam
        rest = self._unexplained(clause)
        foreign = other_kind(rest, asked=exam.question)
        if foreign:
            self._foreign = "label" if is_label else "sentence"
            return SOMEBODY_ELSE
        if self._foreign and foreign is None:
            return SOMEBODY_ELSE
        if self._foreign:
            self._foreign, self._current = "", ()
        if exam.entities and other_subject(rest, is_label=is_label, known=exam.entities, asked=exam.question):
            return SOMEBODY_ELSE
        if not exam.entities and other_subject_of_field(rest, asked=exam.question):
            return SOMEBODY_ELSE
        before = () if self._current == SOMEBODY_ELSE and any(e in clause for e in exam.entities) else self._current
        return self._named(clause, is_label=is_label) or before

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
        whole = clause
        for start, end, _ in self._find(clause) if self._exam.subjects and not is_label else ():
            begins = whole[start:end].startswith(tuple(f"{subject}的" for subject in self._exam.subjects))
            if not begins and not self._is_of_question(whole, start, end):
                clause = blank(clause, start, end)
        named = []
        for subject in self._exam.subjects:
            if subject in clause:
                named.append(subject)
                clause = clause.replace(subject, " ")
        return tuple(named)

    def _hedged(self, answer: str) -> set[int]:
        """Facts whose number the answer gives otherwise too: naming several must not pay."""
        known = set(tokens(self._exam.asked)) | {w for quote in self._exam.quotes for w in tokens(quote.text)}
        counted = set(COUNTED.findall(answer)) - known
        numbers = {f.index for f in self._exam.facts if f.core.isdecimal() and counted - {f.core}}
        rest = self._unexplained(answer)
        said = " ".join(phrase.text for phrase in (*self._exam.facts, *self._exam.quotes))
        guessed = amounts_to_choose_from(answer, known=amounts(said))
        numbers |= {fact.index for fact in self._exam.facts if guessed & amounts(fact.text)}
        return numbers | {fact.index for fact in self._exam.facts if has_variant(fact.text, rest)}

    def _unexplained(self, text: str) -> str:
        """The text without its exact phrases."""
        for start, end, _ in self._find(text):
            text = blank(text, start, end)
        return text

    def _item(self, text: str, *, is_label: bool) -> Item:
        found, masked = [], text
        for start, end, form in self._find(text):
            neutral = self._is_of_question(text, start, end, itself=is_label)
            masked = blank(masked, start, end, " " if neutral else "\0")
            found += [] if neutral else [(start, end, form)]
        masked = self._true_count.sub(lambda match: " " * len(match[0]), masked)
        masked = mask(masked, self._exam.question if is_label else self._exam.asked)
        spans, free = [], text
        for start, end, form in found:
            denied = start > 0 and NEGATING_SIGN.fullmatch(masked[start - 1]) is not None
            if denied or weight(tokens(form)) > NAME_WEIGHT or stands_free(masked, text, start, end):
                spans.append((form, denied))
                free = blank(free, start, end)
            else:
                masked = masked[:start] + text[start:end] + masked[end:]
        item = Item(text=text, spans=spans, masked=masked.replace("\0", " "), free=free)
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

    def _nearest(self, item: Item) -> tuple[float, str]:
        best = (0.0, "")
        for phrase in self._forms if item.weight >= 2 else ():
            support = support_of(item.masked, phrase, asked=self._exam.asked)
            if support > best[0] and agree(phrase, item.free, self._exam.asked):
                best = (support, phrase)
        return best

    def _book_spans(self, item: Item, *, denied: bool) -> None:
        """Book the exact phrases of an item: covered, repeated, denied, or told of the wrong subject."""
        for form, denied_here in item.spans:
            self._mentions[form, self._current] += 1
            count = self._mentions[form, self._current]
            facts = [phrase for phrase in self._forms[form] if phrase.index >= 0]
            mine = [fact for fact in facts if self._is_told_of(fact) and not counts_else(fact, item)]
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
            if not facts:  # the evidence may say a fact in other words than the reference
                self._earn_alike(form, form)

    def _book_rest(self, item: Item, *, denied: bool) -> None:
        """Book what is no exact phrase: partial credit for the facts it resembles, and its support."""
        if item.weight < 2 or (item.support < HALF and ADVICE.search(item.text)):
            return
        if not denied:
            self._earn_alike(item.free, item.masked)
        if item.support < HALF:
            mine = [fact for fact in self._exam.facts if self._is_told_of(fact)]
            self._void |= {fact.index for fact in mine if contradicts(fact.text, item.free)}
        key = (item.masked, self._current)
        self._mentions[key] += 1
        lost = denied or self._mentions[key] > FREE_MENTIONS or self._current == SOMEBODY_ELSE
        support = 0.0 if lost else item.support
        claims = max(1.0, item.weight / CLAIM_WEIGHT)
        # A fragment supports as much as it is of its phrase, so that fragments add up to one claim.
        fragment = min(1.0, item.weight / weight(tokens(item.nearest))) if item.nearest else 1.0
        self._supported += support * claims * fragment
        self._unsupported += (1 - support) * claims
        if support < HALF:
            self._invented.append(item.text)

    def _earn_alike(self, said: str, unexplained: str) -> None:
        for fact in self._exam.facts:
            if self._is_told_of(fact) and self._credit[fact.index] < 1:
                self._earn(fact, self._resemblance(fact, said, unexplained))

    def _resemblance(self, fact: Phrase, said: str, unexplained: str) -> float:
        """Credit in [0, 1] for the part of a fact's words told so far by claims that contradict nothing of it."""
        asked, size = self._exam.asked, weight(tokens(fact.text))
        if size < MIN_FUZZY_WEIGHT:
            return 0.0
        if size <= NAME_WEIGHT:
            alike = likeness_of_name(fact.text, said, unexplained)
            return alike if alike and agree(fact.text, said, asked) else 0.0
        ours, words = content(fact.text, asked), content(said, asked)
        near = max(cover(ours, words), cover(words, ours)) >= HALF or cover(content(unexplained), ours) >= HALF
        if not near or not agree(fact.text, said, asked):
            return 0.0
        told = self._told.setdefault(fact.index, set())
        told |= covered(ours, words)
        credit = ramp(weight(ours[i] for i in told) / weight(ours), RECALL_RAMP)
        numbers_told = all(i in told for i, word in enumerate(ours) if word[0].isdigit())
        return credit if numbers_told else min(HALF, credit)

    def _is_told_of(self, fact: Phrase) -> bool:
        if self._current == SOMEBODY_ELSE:
            return False
        return not fact.subject or not self._current or fact.subject in self._current

    def _earn(self, fact: Phrase, credit: float) -> None:
        factor = self._exam.unattributed if fact.subject and not self._current else 1.0
        self._credit[fact.index] = max(self._credit[fact.index], factor * credit)
