"""What an answer is held against: the asked facts and the words that may stand around them.

Facts are the clauses of the evidence's cells, without what the question quotes; where the reference does nothing but
quote them, what it quotes is all that is asked. The reference is the evidence where there is none, where it counts, and
where it chooses from what the question offers. Free are all other text of evidence and reference, the closed list, and
words of the question, but none that judges and none that a judging word (不, 能) was cut from.
Guarantees: pure functions on text, cached, because a group of rollouts asks for the same exam.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from os.path import commonprefix

from sql_agent.offline_judge import verdicts
from sql_agent.offline_judge.doubts import COMPARES, is_frame
from sql_agent.offline_judge.lexicon import DENYING, Lexicon, spell, tokens
from sql_agent.offline_judge.normal import flat, normalise, with_headings
from sql_agent.offline_judge.sections import ORDER, Cell, Fact, Item, Names, Record, compared, labelled, parts, runs
from sql_agent.offline_judge.slots import COMMON, content, stem
from sql_agent.offline_judge.tables import rows, ties
from sql_agent.offline_judge.words import PHRASES, RELATIONS, phrases
from sql_agent.words.meanings import in_chinese, is_chinese_verb, is_chinese_word, is_unknown

SENTENCE_END = re.compile(r"[。!?\n]+|\.(?= |$)")
ITEM_END = re.compile(r"[;,、|]+|(?<!\d)\.|\.(?!\d)")
CLAUSE_END = re.compile(r"[,;:、。?!\n]")
LABEL_END = re.compile(r"(?<!\d):|:(?!\d)|(?<=.)(?:表现为|症见)(?=.)")
POLITE = re.compile(  # can you tell me
    r"^(?:请问)?[你您]?(?:能|可以?|能不能|可不可以)否?([请帮给和跟为]?我?.{0,2}"
    r"(?:告[诉知]|介绍|[讲列]|说[明说]|解释|总结).*?)吗?$"
)
YES_OR_NO = re.compile(r"[吗否]|(.)[不没]\1")  # the words of such a question are a statement
ASKS = re.compile(r"(?<![是属])(?:是否)?(?:包[括含]|含有?|有(?!机)|[会需]|可以?|(?<![功性机])能|([有能会可])[不没]\1)")
TITLE = re.compile(  # what the reference tells of its thing
    r"(?<!目)的([^,;。:、\d]{2,6}?)(?:主?要?[是为:]|包括|如下|中)|\b(?:the|its) ([a-z]{4,}(?: [a-z]{4,})?)(?= of )"
)
MODAL = re.compile(r"(?<![功性机可])能|可以")
PERMITS = re.compile(r"\b(?:can|could|may|must|should|shall)\b")
LEADS = re.compile(  # to an item of a list, and say nothing of it
    r"^(?:(?:亦|也|还|并|以及|及|和|或)?(?:可|主要|适)?(?:用于|症见|见于|可见|表现为|包括)|(?:以及|及|和)(?=..)"
    r"|(?:and|or|also)(?: also)? (?:for )?(?:the )?"
    r"|(?:[\w-]+ ){1,4}(?:is|are) (?:indicated|used|recommended|contraindicated) (?:for|in|as)(?: the)?"
    r"(?: (?:treatment|management|relief) of)? )"
)
LAST_JOINT = re.compile(r"(?<=..)(?:以及|及|和)(?=[^\W\d].)|(?<!^and) (?:and|as well as) ")
MAX_JOINED = 8  # tokens
MIN_KNOWN, MIN_OWN = 0.2, 0.25
MIN_MEANT = 3  # words of a reference that tell a run of facts
SHOWN = re.compile(r"((?:表现为|症见)[^;:。?!\n]*);")  # in one clause
JUDGING = re.compile(rf"{DENYING.pattern}|[禁忌慎停]|避免|{MODAL.pattern}")
MIN_DENYING_RUN, MIN_OWN_CHARS = 4, 4
COUNTERS = "种个款项条类点"
CLOSED = frozenset(phrases(PHRASES))


@dataclass(frozen=True)
class Exam:
    """What is asked; words are spelt. `names` (read by `callers`) tell sections apart, those of `labels` only where a
    clause begins; `wholes` are texts of many facts, `own` the reference's clauses, `prose` what it says in other words
    (its texts -> what is its own in them), `axes` are what a cell ties together (its labels, the rows and the columns
    of its tables: a heading -> the items under it), `headings` all of these; `items` are the facts and, found by
    `beside`, what else the evidence says; `compares`: it asks how things differ; `is_verdict`: yes or no is asked,
    `verdict` is which of them; `times` counts how often the evidence says a word, `texts` are its cells, `lexicon`
    holds facts and free words, `record` all of these but the reference's, `echoes` the question's, `words` the stems
    of all of these."""

    question: str
    reference: str
    facts: list[Fact]
    names: Names
    callers: Lexicon
    labels: set[str]
    of_form: dict[str, list[int]]
    wholes: dict[str, list[str]]
    own: set[str]
    prose: dict[str, str]
    axes: list[dict[str, frozenset[int]]]
    headings: Lexicon
    items: list[Fact]
    beside: dict[str, list[int]]
    times: Counter[str]
    in_order: bool
    compares: bool
    is_verdict: bool
    is_alone: bool
    verdict: bool | None
    lexicon: Lexicon
    record: Lexicon
    echoes: Lexicon
    texts: list[str]
    words: set[str]

    def tells(self, text: str) -> bool:
        """Whether a text in normal form has a fact in it."""
        told = {*self.of_form, *self.wholes, *self.prose}
        return any(word in told for *_, word in self.lexicon.read(text)[0])


@functools.lru_cache(maxsize=1024)
def make_exam(question: str, reference: str, evidence: tuple[str | Cell, ...]) -> Exam | None:
    """None where there is no fact to compare with."""
    question = POLITE.sub(r"\1", normalise(question).rstrip("?。 "))
    cells = [Cell(cell) if isinstance(cell, str) else cell for cell in evidence]
    cells = [
        replace(cell, text=with_headings(cell.text), column=normalise(cell.column.replace("_", " "))) for cell in cells
    ]
    record, told = [_items(normalise(cell.text)) for cell in cells], _items(normalise(reference))
    asked = Lexicon(parts(question))
    shared = {run for items in (*record, told) for pair in items for text in pair for run in runs(text, asked)}
    echoes = {*_echoes(question), *(run for run in shared if not JUDGING.search(run))}
    free = {question, f"{question}?", *CLOSED, *(cell.row.partition(" ")[0] for cell in cells)}  # the table's name
    bare, others = Lexicon({*free, *_relations(question)}), Lexicon(shared)
    own = {item: bare.core(item, others) for _, item in told}
    is_verdict, is_alone = verdicts.is_asked(question), verdicts.alone(question, normalise(reference)) is not None
    if is_verdict and len(own) > 1:
        own |= {item: "" for item in own for at, end, _ in verdicts.told(item) if item[at:end] == item}
    labels = {label: list(runs(label, asked)) for label, _ in told}
    titles = {title for found in TITLE.findall(normalise(reference)) for title in found if not JUDGING.search(title)}
    known = {item for items in record for _, item in items}
    if _is_evidence(own, known):
        cells, record = [], [[pair for pair in told if pair[0] == label] for label in labels]
        facts = [Fact((core, item), n) for n, items in enumerate(record) for _, item in items if (core := own[item])]
    else:
        facts = _asked(
            question, {} if is_alone else own, record, cells, Lexicon({*free, *_relations(question), *shared})
        )
    is_quote = {fact.forms[0] for fact in facts} <= {*own, *own.values()}
    bare_words = Lexicon(CLOSED)
    naming = Lexicon(part for part in parts(question) if bare_words.read(part)[1])
    names = labelled(_named(reference, naming), record, naming, facts)
    told_apart = {frozenset(name for name in names if fact.section in names[name]) for fact in facts}
    if cells and len(told_apart) < len({fact.section for fact in facts}):
        names = compared(question, cells, facts, known) | names
    names = _names_by_column(question, cells, names) | _names_by_relation(question, names) | names
    if facts:
        free |= {
            *_relations(question),
            *names,
            *known,
            *own,
            *labels,
            *titles,
            *(run for found in labels.values() for run in found),
        }
        free |= {f"{above}:{item}" for items in record for above, item in items if cells}
    else:  # "A or B, which one?": the answer stands in the question, so its words are not free
        echoes, facts = set(), [Fact((item,), n) for n, items in enumerate(record) for _, item in items]
    if not facts:
        return None
    items = [*facts, *_others(record, facts)]
    axes = _axes(cells, record, items) if not names or cells else []
    axes += _records(question, cells, record, [] if names else told, facts)
    headings = {heading for axis in axes for heading in axis}
    headings |= {spell(text) for cell in cells for text in _outer(normalise(cell.text))}
    labels_of = [{spell(above) for above, _ in items if above} for items in record]
    headings |= {text for texts in labels_of if len(texts) > 1 for text in texts} | {spell(c.column) for c in cells}
    headings |= {one for cell in cells for one in _translated(cell.column, question)}
    headings -= {" ", *(form for fact in facts for form in map(spell, fact.forms))}
    of_form = _by_form(facts)
    is_verdict &= is_alone or not any(True for form in of_form for _ in verdicts.told(form.strip()))
    flats = ((spell(normalise(flat(cell.text, sign))), n) for n, cell in enumerate(cells) for sign in ("", "\n"))
    wholes = {text: [spell(item) for _, item in record[n] if spell(item) in of_form] for text, n in flats}
    wholes = {text: told for text, told in wholes.items() if told and text not in of_form}
    prose = {} if is_quote else {spell(item): spell(core) for item, core in own.items() if core}
    prose |= {core: core for core in prose.values() if len(core) > 2 * MIN_OWN_CHARS}
    quoting = Lexicon(of_form)  # what is made of facts is read as these
    said = {text for text in (*own, *own.values()) if spell(text) not in of_form and not quoting.read(text)[1]}
    prose = {text: core for text, core in prose.items() if quoting.read(text)[1]}
    words = {*free, *headings, *of_form, *wholes, *_sizes(facts)} - said
    return Exam(
        question=spell(question),
        reference=reference,
        facts=facts,
        names={spell(name): sections for name, sections in names.items()},
        callers=Lexicon(names),
        labels={spell(name) for name in (*names, *headings) if JUDGING.search(name)} - {*of_form},
        of_form=of_form,
        wholes=wholes,
        own=set(map(spell, own)),
        prose=prose,
        axes=axes,
        headings=Lexicon(heading for axis in axes for heading in axis),
        items=items,
        beside=_by_form(items[len(facts) :], len(facts)),
        times=Counter(spell(item) for items in record for _, item in items),
        in_order=ORDER.search(question) is not None and not names,
        verdict=verdicts.wanted(question, normalise(reference), _cells_asked(question, cells)) if is_verdict else None,
        compares=COMPARES.search(question) is not None,
        is_verdict=is_verdict,
        is_alone=is_alone,
        lexicon=Lexicon({*words, *prose}),
        record=Lexicon(words - {*own, *own.values()} | {*known}),
        echoes=Lexicon(echoes),
        texts=[spell(normalise(cell.text)) for cell in cells],
        words=_stems(question, reference, *(f"{cell.column} {cell.text}" for cell in cells)),
    )


def _translated(column: str, question: str) -> set[str]:
    """What a Chinese question may call a column of an English name, as a whole and word by word."""
    words = {column, *column.split()} if not question.isascii() else set[str]()
    return {one for word in words if word and word.isascii() for one in in_chinese(word)}


def _stems(*texts: str) -> set[str]:
    return {stem(word) for text in texts for word in spell(normalise(text)).split()}


def _by_form(facts: Sequence[Fact], first: int = 0) -> dict[str, list[int]]:
    of_form: dict[str, list[int]] = {}
    for i, fact in enumerate(facts, first):
        for form in dict.fromkeys(map(spell, fact.forms)):
            of_form.setdefault(form, []).append(i)
    return of_form


def _others(record: Record, facts: Sequence[Fact]) -> list[Fact]:
    """What the evidence says besides."""
    told = {form for fact in facts for form in fact.forms}
    items = {(n, item): above for n, items in enumerate(record) for above, item in items if item not in told}
    return [Fact((item, f"{above}:{item}") if above else (item,), n) for (n, item), above in items.items()]


def _axes(cells: list[Cell], record: Record, known: list[Fact]) -> list[dict[str, frozenset[int]]]:
    """What tells the facts of one cell apart, where it is more than one thing; headings are spelt."""
    found = []
    for n, (cell, items) in enumerate(zip(cells, record, strict=False)):
        told = {form: i for i, fact in enumerate(known) if fact.section == n for form in fact.forms}
        tables = ties(cell.text, _texts)
        times = Counter(item for _, item in items)  # what stands under no heading too is tied to none
        lines = f"{normalise(cell.text)}\n"
        under = [
            [pair for pair in items if pair[0] and (f"{pair[0]}:\n" in lines) is is_line] for is_line in (True, False)
        ]
        for pairs in (*under, *tables):
            tied = Counter(item for _, item in pairs)
            axis: dict[str, set[int]] = {}
            for heading, item in pairs:
                if not spell(heading).strip() or heading == item:
                    continue
                under = axis.setdefault(spell(heading), set())  # of what is not asked too
                if item in told and tied[item] >= times[item]:
                    under.add(told[item])
            found += (
                [{heading: frozenset(under) for heading, under in axis.items()}]
                if len(axis) > 1 and any(axis.values())
                else []
            )
    return found


def _records(
    question: str, cells: list[Cell], record: Record, told: list[Item], facts: list[Fact]
) -> list[dict[str, frozenset[int]]]:
    """What tells records apart that the question does not name: the first cell of each row, the reference's labels, the
    columns, but not where the question calls some of them otherwise."""
    groups = [
        [n for n, cell in enumerate(cells) if (cell.row or str(n)) == row]
        for row in dict.fromkeys(cell.row or str(n) for n, cell in enumerate(cells))
    ]
    rows = {record[n][0][1]: {*others} for n, *others in groups if others and len(record[n]) == 1}
    labels = {label: {f.section for f in facts if (label, f.forms[0]) in told} for label, _ in told if label}
    is_one_each = sorted(n for sections in labels.values() for n in sections) == [*range(len(cells))]
    columns = {cell.column: {n for n, c in enumerate(cells) if c.column == cell.column} for cell in cells}
    ways = [rows if len(rows) == len(groups) else {}, labels if is_one_each and len(labels) == len(cells) else {}]
    is_asked = {spell(column) in spell(question) for column in columns}
    ways += [columns] if "" not in columns and len(is_asked) == 1 else []
    held = [{name: [i for i, f in enumerate(facts) if f.section in way[name]] for name in way} for way in ways]
    return [{spell(name): frozenset(way[name]) for name in way} for way in held if len(way) > 1]


def _sizes(facts: list[Fact]) -> set[str]:
    """ "4种：" before four facts says nothing else; where a number is asked for, it does."""
    sizes = {len(facts), *Counter(fact.section for fact in facts).values()}
    is_number = any(form.isdecimal() for fact in facts for form in fact.forms)
    return set() if is_number else {f"{n}{counter}" for n in sizes for counter in COUNTERS}


def _items(text: str) -> list[Item]:
    """(label, item): the label is what stood before the last colon of the sentence, or at the end of the one before."""
    label, found = "", list[Item]()
    for sentence in SENTENCE_END.split(SHOWN.sub(r"\1\n", text)):
        label = label if not sentence else label[:-1] if label.endswith(":") else ""
        for clause in ITEM_END.split(sentence):
            *before, item = (part.strip() for part in LABEL_END.split(clause))
            label = before[-1] if before else label
            if spell(item).strip():
                found.append((label, item))
            elif before:
                label += ":"
    return found


def _named(reference: str, asked: Lexicon) -> list[Item]:
    """(label, item) as of `_items`, under the last label that has other words of the question than that before it."""
    label, found = "", list[Item]()
    for clause in re.split(f"{SENTENCE_END.pattern}|{ITEM_END.pattern}", normalise(reference)):
        *before, item = (part.strip() for part in LABEL_END.split(clause))
        for one in before:
            label = one if any(run not in label for run in runs(one, asked)) else label
        found.append((label, item))
    return found


def _outer(text: str) -> Iterator[str]:
    """The headings of labels, and those of lines."""
    for clause in re.split(f"{SENTENCE_END.pattern}|{ITEM_END.pattern}", text):
        *labels, item = LABEL_END.split(clause)
        yield from labels[:-1] if item.strip() else labels


def _is_evidence(own: dict[str, str], known: set[str]) -> bool:
    """Whether the reference is what answers are held against."""
    counts = len(own) == 1 and all(core.isdecimal() and core not in known for core in own.values())
    return not known or counts or bool(own and not any(own.values()) and not {*own} <= known)


def _headers(cell: str) -> set[str]:
    """What stands in the headers of a cell's tables."""
    return {item for header, *_ in rows(cell) for field in header for _, item in _items(normalise(field))}


def _cells_asked(question: str, cells: list[Cell]) -> list[str]:
    """What the question calls by a cell's whole text."""
    return [text for text in (normalise(cell.text) for cell in cells) if text in question]


def _quoted(own: dict[str, str], known: Lexicon, around: Lexicon) -> set[str] | None:
    """What the reference quotes where it says nothing else but whence it is; spelled."""
    quoted = set[str]()
    for item, core in own.items():
        words, unknown = known.read(item, around)
        if core and unknown and not is_frame(item, unknown):
            return None
        quoted |= {word for *_, word in words} if core else set()
    return quoted


def _asked(question: str, own: dict[str, str], record: Record, cells: Sequence[Cell], around: Lexicon) -> list[Fact]:
    """What the reference quotes where it does nothing else; else all but numbers of rows and what the question says."""
    forms: dict[tuple[int, str], list[str]] = {}
    for n, items in enumerate(record):
        before = None
        for above, item in items:  # a heading may stand before its own: without it, it may be another's
            for part in _joined(item) if above == before else [item]:
                whole = [item] * (part != item) + ([f"{above}:{item}"] if above else [])
                forms.setdefault((n, part), [part, *_without_lead(part)]).extend(whole)
            before = above
            if f"{item}?" in normalise(cells[n].text):  # a fact that asks
                forms.setdefault((n, item), [item]).append(f"{item}?")
    facts = [Fact(tuple(texts), n) for (n, _), texts in forms.items()]
    known = {fact.forms[0] for fact in facts}
    headers = {(n, text) for n, cell in enumerate(cells) for text in _headers(cell.text)}
    headings = {above for items in record for above, _ in items} | {cell.column for cell in cells}
    others = {i: c for i, c in own.items() if not {i, c} & known}
    said = _quoted(others, Lexicon({*known, *headings}), around)
    is_talk = not said and others == own and any(own.values())  # and quotes nothing
    if own and said is not None and not is_talk:
        said = {word for word in said if word not in spell(question)} | {*map(spell, (*own, *own.values()))}
        quoted = [fact for fact in facts if spell(fact.forms[0]) in said]
        row_of = [cell.row or str(n) for n, cell in enumerate(cells)]
        open_rows = {row_of[f.section] for f in quoted if spell(f.forms[0]) not in spell(question)}
        asked = [f for f in quoted if spell(f.forms[0]) not in spell(question) or row_of[f.section] not in open_rows]
        return [fact for fact in asked if (fact.section, fact.forms[0]) not in headers] or asked
    asked = [f for f in facts if not f.forms[0].isdecimal() and spell(f.forms[0]) not in spell(question)]
    asked = [fact for fact in asked if (fact.section, fact.forms[0]) not in headers] or asked or facts
    meant = _meant(question, "\n".join(own), record, cells, asked)
    asked = meant if len(meant) < len(asked) else _of_parts(question, record, cells, asked) or asked
    is_one = len({cell.row for cell in cells}) == 1 and all(cell.column for cell in cells)
    asked = _run(question, "\n".join(own), cells, asked) if is_one else asked
    sizes = Counter(fact.section for fact in asked)  # the name of a row tells nothing of it
    telling = [fact for fact in asked if sizes[fact.section] > 1 or not cells[fact.section].column]
    return _about(question, telling or asked) if verdicts.is_asked(question) else asked


def _meant(question: str, reference: str, record: Record, cells: Sequence[Cell], facts: list[Fact]) -> list[Fact]:
    """The facts of those cells, or of those parts of one under a heading, that a reference in other words tells of: of
    a cell all where it tells of more than half of its parts."""
    told = {(fact.section, fact.forms[0]) for fact in facts}
    places: dict[tuple[int, str], set[tuple[int, str]]] = {}
    groups: dict[tuple[int, str], set[str]] = {}
    for n, cell in enumerate(cells):
        for item, heading in _walk(cell.text, record[n]):
            if (n, item) in told:
                places.setdefault((n, item), set()).add((n, heading))
                groups.setdefault((n, heading), _words(heading)).update(_words(item))
    times = Counter(word for words in groups.values() for word in words)
    said = _words(reference) - _words(question)
    weight = {word: 1 / times[word] for word in said if word in times}
    if len(groups) < 2 or len(weight) < MIN_KNOWN * len(said) or not weight:
        return facts
    shares = {key: sum(weight.get(word, 0) for word in words) for key, words in groups.items()}
    own = {key: share / (sum(1 / times[word] for word in groups[key]) or 1) for key, share in shares.items()}
    meant = {key for key in groups if 2 * shares[key] >= max(shares.values()) or own[key] >= MIN_OWN}
    parts = Counter(n for n, _ in groups)
    whole = {n for n, told in Counter(n for n, _ in meant).items() if 2 * told > parts[n]}
    whole |= {n for n, size in parts.items() if size == 1 and not cells[n].column}  # what was quoted for the question
    return [f for f in facts if f.section in whole or places[f.section, f.forms[0]] & meant]


def _run(question: str, reference: str, cells: Sequence[Cell], facts: list[Fact]) -> list[Fact]:
    """Of each cell the shortest run of facts with all that the cell has of the reference's own words; all facts where
    these are few, or the question names a column: it asks for all of it."""
    asked = _words(question)
    said = set[str]() if any(_words(cell.column) & asked for cell in cells) else _words(reference) - asked
    left = list[Fact]()
    for _, section in groupby(facts, lambda fact: fact.section):
        ours = [*section]
        words = [said & _words("\n".join(fact.forms)) for fact in ours]
        every = set[str]().union(*words)
        runs, begin, have = [(len(ours), 0)], 0, Counter[str]()
        for end, told in enumerate(words, 1):
            have.update(told)
            while len(every) >= MIN_MEANT and len(+have) == len(every):
                runs.append((end - begin, begin))
                have.subtract(words[begin])
                begin += 1
        size, begin = min(runs)
        left += ours[begin : begin + size]
    return left


def _walk(text: str, items: Sequence[Item]) -> Iterator[tuple[str, str]]:
    """(item, heading) of a cell: the last heading or label before it; before any the sentence that it stands in."""
    under, heading = {item: above for above, item in _under_lines(text)}, ""
    sentences = {item: str(n) for n, one in enumerate(SENTENCE_END.split(normalise(text))) for item in _texts(one)}
    for above, item in items:
        heading = above or under.get(item, "") or heading
        for part in dict.fromkeys((item, *_joined(item))):
            yield part, heading or sentences.get(item, "")


def _words(text: str) -> set[str]:
    return {stem(word) for word in content(text)} - COMMON | {one[0] for one in tokens(text) if one[0][0].isdecimal()}


def _about(question: str, facts: list[Fact]) -> list[Fact]:
    """The facts that have most of the question's words; all where none has one."""
    ours = content(question)
    shares = [max(len(ours & content(form)) for form in fact.forms) for fact in facts]
    return [fact for fact, n in zip(facts, shares, strict=True) if n and 2 * n >= max(shares)] or facts


def _joined(item: str) -> list[str]:
    """What the last item of a list joins; the item where it joins nothing."""
    found = [joint for joint in LAST_JOINT.finditer(item) if not _is_in_word(item, *joint.span())]
    joined = [item[: found[0].start()], item[found[0].end() :]] if len(found) == 1 else [item]
    return joined if all(len(one) > 1 and len(tokens(one)) <= MAX_JOINED for one in joined) else [item]


def _is_in_word(text: str, start: int, end: int) -> bool:
    """Whether a Chinese joint is a part of a word: 及 of 及时."""
    return any(map(is_chinese_word, (text[start - 1 : end], text[start : end + 1]))) and not text[start:end].isascii()


def _without_lead(item: str) -> list[str]:
    """An item without the words that lead to it in its cell, where it has some."""
    rest = LEADS.sub("", item)
    return [rest] if rest != item and len(tokens(rest)) > 1 else []


def _of_parts(question: str, record: Record, cells: Sequence[Cell], facts: Sequence[Fact]) -> list[Fact]:
    """Those under the headings within a cell that the question names, where it has others; no cell's title is one."""
    titles = {spell(cell.column) for cell in cells}
    left = list[Fact]()
    for n, (cell, items) in enumerate(zip(cells, record, strict=True)):
        tied = [*items, *_under_lines(cell.text), *(pair for axis in ties(cell.text, _texts) for pair in axis)]
        above = [above for above, _ in tied if spell(above).strip() and spell(above) not in titles]
        named = _named_headings(question, [*dict.fromkeys(above)]) if len({*above}) > 1 else set()
        under = {item for above, item in tied if above in named}
        ours = [fact for fact in facts if fact.section == n]
        left += [fact for fact in ours if under.intersection(fact.forms)] or ours
    return left


def _named_headings(question: str, headings: Sequence[str]) -> set[str]:
    """Those whose own words the question says, and no other one says more of them: what ends all headings is none."""
    asked, said = {one[0] for one in tokens(question)}, dict[str, set[str]]()
    for heading in headings:
        same = max((_end(heading, other) for other in headings if other != heading), key=len, default="")
        is_chinese = re.search("[\u4e00-\u9fff]", heading) is not None
        own = heading.removesuffix(same) if is_chinese and len(heading) > len(same) + 1 else heading
        words = {one[0] for one in tokens(own) if re.search(r"[^\W\d]", one[0])}
        if words and (spell(own) in spell(question) or (not is_chinese and words <= asked)):
            said[heading] = words
    return {one for one, words in said.items() if not any(words < others for others in said.values())}


def _end(text: str, other: str) -> str:
    """What both end with, where it is a word or more."""
    same = commonprefix([text[::-1], other[::-1]])[::-1]
    return same if len(same) > 1 else ""


def _under_lines(text: str) -> Iterator[Item]:
    """(heading, item) of all lines behind one that ends with a colon."""
    heading = ""
    for line in normalise(text).split("\n"):
        heading = line[:-1] if line.endswith(":") else heading
        yield from ((heading, item) for item in _texts(line) if heading and not line.endswith(":"))


def _texts(text: str) -> list[str]:
    return [item for _, item in _items(normalise(text))]


def _echoes(question: str) -> Iterator[str]:
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


def _names_by_column(question: str, cells: Sequence[Cell], names: Names) -> Names:
    """What an answer may call the columns, where there are several and names tell sections apart."""
    columns = dict.fromkeys(cell.column for cell in cells) if names else {}
    called = {column: {column, *_translated(column, question)} for column in columns}
    return {
        word: frozenset(n for n, cell in enumerate(cells) if cell.column == column)
        for column, words in called.items()
        for word in words
        if len(columns) > 1 and sum(word in others for others in called.values()) == 1
    }


def _names_by_relation(question: str, names: Names) -> Names:
    """How a sentence says the kinds of things that the question asks for, where their names tell sections apart."""
    said = Names()
    for wanted, says in RELATIONS:
        sections = {names[name] for name in names if re.search(wanted, name)}
        words = (word for word in phrases(says) if len(word) > 1 and word not in question)
        said |= dict.fromkeys(words, *sections) if len(sections) == 1 else {}
    return said


def _relations(question: str) -> list[str]:
    """How a sentence says the one kind of thing that the question asks for; nothing where it asks for several."""
    asked = [(found.start(), says) for wanted, says in RELATIONS if (found := re.search(wanted, question))]
    judged = len(asked) != 1 or JUDGING.search(question[: asked[0][0]].replace("除了", ""))  # 不适用于 asks for no use
    return [] if judged else phrases(asked[0][1])
