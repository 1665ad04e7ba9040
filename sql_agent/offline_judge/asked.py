"""Which clauses of the evidence are asked for.

All of the cells, without what the question quotes and without headers of tables; fewer where something says so: what
the reference quotes, if it does nothing else; the cells and parts of cells that it tells of in other words; what stands
under the headings that the question names. Whatever is not asked for stays free.
Guarantees: pure functions; what is asked for does not depend on any answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from os.path import commonprefix

from sql_agent.offline_judge import verdicts
from sql_agent.offline_judge.asked_columns import of_columns, of_names, said_words
from sql_agent.offline_judge.choices import OF_TWO
from sql_agent.offline_judge.clauses import SENTENCE_END, joined, texts_of, under_lines
from sql_agent.offline_judge.doubts import is_frame
from sql_agent.offline_judge.echoes import ways_to_say
from sql_agent.offline_judge.lexicon import Lexicon, spell, tokens
from sql_agent.offline_judge.naming import MAX_NAME
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.sections import Cell, Fact, Item, Record
from sql_agent.offline_judge.slots import content, is_form
from sql_agent.offline_judge.tables import rows, ties

LEADS = re.compile(  # to an item of a list, and say nothing of it
    r"^(?:(?:亦|也|还|并|以及|及|和|或)?(?:可|主要|适)?(?:用于|症见|见于|可见|表现为|包括)|(?:以及|及|和|如)(?=..)"
    r"|(?:因为?|由于|所以|因此|故|但|而|且|或)(?=..)|(?:because|since|so|but|while)(?: of)? "
    r"|(?:and|or|also)(?: also)? (?:for )?(?:the )?|(?:give|take|administer|use|followed by|then|after that) (?=\d)"
    r"|(?:[\w-]+ ){1,4}(?:is|are) (?:indicated|used|recommended|contraindicated) (?:for|in|as)(?: the)?"
    r"(?: (?:treatment|management|relief) of)? )"
)
MIN_KNOWN, MIN_OWN = 0.2, 0.25
MIN_TIMES_TOLD = 2  # as often as of all others a reference tells of the line that it tells of
MIN_MEANT = 3  # words of a reference that tell a run of facts


def is_evidence(own: dict[str, str], known: set[str]) -> bool:
    """Whether the reference is what answers are held against."""
    counts = len(own) == 1 and all(core.isdecimal() and core not in known for core in own.values())
    return not known or counts or bool(own and not any(own.values()) and not {*own} <= known)


def asked_facts(
    question: str, own: dict[str, str], record: Record, cells: Sequence[Cell], around: Lexicon
) -> list[Fact]:
    """What the reference quotes where it does nothing else; else all but numbers of rows and what the question says.
    `own` is what the reference says -> what of it is its own; `around` are free words."""
    facts = _every_fact(record, cells)
    quoted = _quoted_facts(question, own, facts, record, cells, around)
    if quoted is not None:
        return _without_headers(quoted, cells) or quoted
    asked = [fact for fact in facts if not fact.forms[0].isdecimal() and spell(fact.forms[0]) not in spell(question)]
    asked = _without_headers(asked, cells) or asked or facts
    named = of_columns(question, "\n".join(own), cells, asked)
    naming = of_names(question, cells)
    unnamed = [fact for fact in asked if cells[fact.section].column not in naming]
    asked, every = named or unnamed or asked, asked
    is_one = len({cell.row for cell in cells}) == 1 and all(cell.column for cell in cells)
    parts = _of_parts(question, record, cells, asked) or asked
    meant = _meant(question, "\n".join(own), record, cells, asked)
    asked = meant if len(meant) < len(asked) else parts
    if is_one:
        line = _line(question, "\n".join(own), cells, parts)
        told = _run(question, "\n".join(own), cells, asked)
        asked = told if len(line) == len(parts) or {*told} <= {*line} else line
    told, rows_told = {fact.section for fact in asked}, {cells[fact.section].row for fact in asked}
    is_named = len(named) < len(every)  # columns, of all
    asked += [
        fact for fact in named if fact.section not in told and (is_named or cells[fact.section].row not in rows_told)
    ]
    sizes = Counter(fact.section for fact in asked)  # the name of a row tells nothing of it
    telling = [fact for fact in asked if named or sizes[fact.section] > 1 or not cells[fact.section].column]
    asks_of_two = OF_TWO.search(question) and len({cells[fact.section].row for fact in asked}) == 2
    return _about(question, telling or asked) if verdicts.is_asked(question) or asks_of_two else asked


def _every_fact(record: Record, cells: Sequence[Cell]) -> list[Fact]:
    """The items of all cells, a list's last two apart; each with its heading, and without words that lead to it."""
    forms: dict[tuple[int, str], list[str]] = {}
    for n, items in enumerate(record):
        before = None
        for above, item in items:  # a heading may stand before its own: without it, it may be another's
            for part in joined(item) if above == before else [item]:
                whole = [item] * (part != item) + ([f"{above}:{item}"] if above else [])
                forms.setdefault((n, part), [part, *_without_lead(part)]).extend(whole)
            before = above
            if f"{item}?" in normalise(cells[n].text):  # a fact that asks
                forms.setdefault((n, item), [item]).append(f"{item}?")
    return [Fact(tuple(texts), n) for (n, _), texts in forms.items()]


def _quoted_facts(
    question: str,
    own: dict[str, str],
    facts: Sequence[Fact],
    record: Record,
    cells: Sequence[Cell],
    around: Lexicon,
) -> list[Fact] | None:
    """Those that the reference quotes; None where it says anything else, or talks alone. What the question says of a
    row is asked where nothing else of that row is."""
    known = {fact.forms[0] for fact in facts}
    headings = {above for items in record for above, _ in items} | {cell.column for cell in cells}
    others = {item: core for item, core in own.items() if not {item, core} & known}
    said = _quoted(others, Lexicon({*known, *headings}), around)
    is_talk = not said and others == own and any(own.values())
    if not own or said is None or is_talk:
        return None
    echoed = spell(question)
    said = {word for word in said if word not in echoed} | {*map(spell, (*own, *own.values()))}
    quoted = [fact for fact in facts if spell(fact.forms[0]) in said]
    row_of = [cell.row or str(n) for n, cell in enumerate(cells)]
    is_open = {fact: spell(fact.forms[0]) not in echoed for fact in quoted}
    open_rows = {row_of[fact.section] for fact in quoted if is_open[fact]}
    return [fact for fact in quoted if is_open[fact] or row_of[fact.section] not in open_rows]


def _without_headers(facts: Sequence[Fact], cells: Sequence[Cell]) -> list[Fact]:
    """Those that stand in no header of their cell's tables."""
    headers = [
        {item for header, *_ in rows(cell.text) for field in header for item in texts_of(field)} for cell in cells
    ]
    return [fact for fact in facts if fact.forms[0] not in headers[fact.section]]


def _quoted(own: dict[str, str], known: Lexicon, around: Lexicon) -> set[str] | None:
    """What the reference quotes where it says nothing else but whence it is; spelled."""
    quoted = set[str]()
    for item, core in own.items():
        words, unknown = known.read(item, around)
        if core and unknown and not is_frame(item, unknown):
            return None
        quoted |= {word for *_, word in words} if core else set()
    return quoted


def _without_lead(item: str) -> list[str]:
    """An item without the words that lead to it in its cell, where it has some."""
    rest = LEADS.sub("", item)
    return [rest] if rest != item and len(tokens(rest)) > 1 else []


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
                groups.setdefault((n, heading), said_words(heading)).update(said_words(item))
    times = Counter(word for words in groups.values() for word in words)
    said = said_words(reference) - said_words(question)
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


def _walk(text: str, items: Sequence[Item]) -> Iterator[tuple[str, str]]:
    """(item, heading) of a cell: the last heading or label before it; before any the sentence that it stands in."""
    under, heading = {item: above for above, item in under_lines(text)}, ""
    sentences = {item: str(n) for n, one in enumerate(SENTENCE_END.split(normalise(text))) for item in texts_of(one)}
    for above, item in items:
        heading = above or under.get(item, "") or heading
        for part in dict.fromkeys((item, *joined(item))):
            yield part, heading or sentences.get(item, "")


def _run(question: str, reference: str, cells: Sequence[Cell], facts: list[Fact]) -> list[Fact]:
    """Of each cell the shortest run of facts with all that the cell has of the reference's own words; all facts where
    these are few, or the question names a column: it asks for all of it."""
    asked = said_words(question)
    said = set[str]() if any(said_words(cell.column) & asked for cell in cells) else said_words(reference) - asked
    left = list[Fact]()
    for _, section in groupby(facts, lambda fact: fact.section):
        ours = [*section]
        words = [said & said_words("\n".join(fact.forms)) for fact in ours]
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


def _line(question: str, reference: str, cells: Sequence[Cell], facts: Sequence[Fact]) -> list[Fact]:
    """Those of the one line that has all words of the question that its cell has, and some of them alone; all where no
    line has most of them, or the reference tells of other lines too. What names thing or column tells none."""
    names = [text for text in (normalise(cell.text) for cell in cells) if len(tokens(text)) <= MAX_NAME]
    free = said_words("\n".join([*names, *(cell.column for cell in cells), *ways_to_say(question)]))
    lines = [[*_lines(cell.text, [fact for fact in facts if fact.section == n])] for n, cell in enumerate(cells)]
    every = set[str]().union(*(words for ours in lines for words, _ in ours))
    asked, told = said_words(question) - free, (said_words(reference) - said_words(question)) & every
    found = list[tuple[int, list[Fact]]]()
    for ours in lines:
        times = Counter(word for words, _ in ours for word in words & asked)
        for words, here in ours:
            is_told = told & words and MIN_TIMES_TOLD * len(told - words) <= len(told & words)
            if is_told and {*times} <= words and 1 in times.values():
                found.append((len(times), here))
    sizes = [size for size, _ in found]
    best = [line for size, line in found if size == max(sizes)]
    return best[0] if len(best) == 1 else [*facts]


def _lines(text: str, facts: Sequence[Fact]) -> Iterator[tuple[set[str], list[Fact]]]:
    """The words and the facts of each line or sentence that has some."""
    for line in SENTENCE_END.split(normalise(text)):
        items = {part for item in texts_of(line) for part in (item, *joined(item))}
        ours = [fact for fact in facts if fact.forms[0] in items]
        if ours:
            yield said_words(line), ours


def _of_parts(question: str, record: Record, cells: Sequence[Cell], facts: Sequence[Fact]) -> list[Fact]:
    """Those under the headings within cells that the question names, where they have others; no cell's title is one. Of
    a table whose row and column it names, where these cross."""
    titles = {spell(cell.column) for cell in cells}
    parts = dict[int, list[Fact]]()
    for n, (cell, items) in enumerate(zip(cells, record, strict=True)):
        ways = ([*items, *under_lines(cell.text)], *ties(cell.text, texts_of))
        under = [under for way in ways if (under := _under_named(question, way, titles))]
        ours = [(fact, [not told.isdisjoint(fact.forms) for told in under]) for fact in facts if fact.section == n]
        crossing = [fact for fact, is_under in ours if under and all(is_under)]
        parts[n] = crossing or [fact for fact, is_under in ours if any(is_under)]
    with_parts = {cell.row for n, cell in enumerate(cells) if parts[n]}
    return [fact for fact in facts if fact in parts[fact.section] or cells[fact.section].row not in with_parts]


def _under_named(question: str, tied: Sequence[Item], titles: set[str]) -> set[str]:
    """What stands under the headings that the question names, where there are others."""
    above = [above for above, _ in tied if spell(above).strip() and spell(above) not in titles]
    named = _named_headings(question, [*dict.fromkeys(above)]) if len({*above}) > 1 else set()
    return {item for above, item in tied if above in named}


def _named_headings(question: str, headings: Sequence[str]) -> set[str]:
    """Those whose own words the question says, or else forms of these, and no other one says more of them: what ends
    all headings is none."""
    asked, said, like = {one[0] for one in tokens(question)}, dict[str, set[str]](), dict[str, set[str]]()
    for heading in headings:
        same = max((_end(heading, other) for other in headings if other != heading), key=len, default="")
        is_chinese = re.search("[\u4e00-\u9fff]", heading) is not None
        own = heading.removesuffix(same) if is_chinese and len(heading) > len(same) + 1 else heading
        words = {one[0] for one in tokens(own) if re.search(r"[^\W\d]", one[0])}
        if words and (spell(own) in spell(question) or (not is_chinese and words <= asked)):
            said[heading] = words
        if words and not is_chinese and all(any(is_form(word, other) for other in asked) for word in words):
            like[heading] = words
    said = said or like
    return {one for one, words in said.items() if not any(words < others for others in said.values())}


def _end(text: str, other: str) -> str:
    """What both end with, where it is a word or more."""
    same = commonprefix([text[::-1], other[::-1]])[::-1]
    return same if len(same) > 1 else ""


def _about(question: str, facts: list[Fact]) -> list[Fact]:
    """The facts that have most of the question's words; all where none has one."""
    ours = content(question)
    shares = [max(len(ours & content(form)) for form in fact.forms) for fact in facts]
    return [fact for fact, n in zip(facts, shares, strict=True) if n and 2 * n >= max(shares)] or facts
