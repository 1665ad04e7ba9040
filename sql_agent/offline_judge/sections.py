"""Whose facts are whose: the sections of what is asked, and the names that tell them apart.

A section is a cell of the evidence, or a label of the reference where that is the evidence; its names are what the
reference calls it, else what the question compares. Guarantees: pure functions. Not covered: names that stand neither
in the question nor in the reference.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os.path import commonprefix

from sql_agent.offline_judge.lexicon import Lexicon, spell, tokens
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.slots import content
from sql_agent.offline_judge.words import is_related
from sql_agent.words.meanings import is_chinese_word, is_of_talk, same_meaning

PART_END = re.compile(  # no \b: beside Chinese there is no blank
    r"(?<!目)的|包括|(?<![存所现正])在|对比|比较|[2两]?个?(?:方面|角度)|[。?!:]|;(?!还有|以及)"
    r"|,(?!(?: ?(?!wh|how|is |are |do |i |we |please|both )[\w-]++){0,6},? ?(?:and|or|as)(?![a-z]))"  # no list follows
    r"|(?<![a-z])(?:between|among|in terms of|with respect to|with regard to|regarding|alike)(?![a-z])"
    r"|(?<![a-z])(?:similar|differ(?:ent)?)(?! (?:to|from))(?![a-z])"
    r"|(?<!\band )(?<!\bor )(?<!\bthat )(?<!\bthose )(?<!\bas )(?<![a-z])(?:of|for|in)(?![a-z])"
)
JOINT = re.compile(  # stands between things that are compared
    r"[、/和与同及]|(?<!^)(?<![、和与])跟|;?(?:以及|还有)|(?:, ?(?:(?:and|or)(?![a-z]))?"
    r"|(?<![a-z])(?:and|or|as well as|vs|versus|with|(?:differ(?:s|ent)? )?from|similar to|compared to)(?![a-z]))"
    r"(?: ?(?:the|that|those|of|for|in)(?![a-z]))*"
)
LOOSEST = ("、", "以及", "和", "跟", "同", "与", "及")
ORDER = re.compile(  # what is asked for has an order
    r"顺序|次序|先后|依次|排序|排列|从.{1,6}到|由.到|最[^,;。?]{1,6}的\d+|前\d+[名位大种个]"
    r"|\b(?:in (?:[\w-]+ ){0,3}order|order(?:ed)?(?: \w+){0,3} by|order of|(?:rank|sort)(?:ed)?|top|from .+ to"
    r"|\w*(?:est|most)\b[^.?]* first|the \d+ (?:\w*est|most|least)"
    r"|(?:start|beginn?)ing with)\b"
)
OF = re.compile(  # the columns stand before the things
    r"^(?!(?:for|of|between|among)\b).*\b(?:(?<!terms )of|for|between|among)\b"
    r"|[从就][^;。?]{2,40}(?:方面|角度|对比|比较)"
)
ASKS_FIRST = re.compile(r"^(?:[都还]?有|是)?(?:哪些|什么|怎[样么]|如何)")  # a thing
ASKS_ONLY = re.compile(
    r"(?:怎么?样?|如何|怎样|什么|哪[些个里]?|多少|要|它|how|what|which|when|where|it)+"
)  # names nothing
MIN_RUN_CHARS, MAX_RUN = 2, 24
ASK_END = re.compile(  # between two questions
    r"(?:[?;]|\.(?!\d))\s*(?:and |also,? ?|而|那么?|(?:另外|此外|还有),?)?"
    r"|,\s*(?:and |而|那么?)?(?=(?:how|what|which|who|when|where)\b)|,(?=[^,?]*呢\??$)"
)
ASKING = re.compile(
    r"^(?:how|what|which|who|when|where|tell|give|list|explain|describe|show|please)\b|呢|什么|如何|怎|哪|多[少久长大高快重远]|几"
)
MAX_SHORT = 12  # tokens of a question that asks by its mark alone
OWN = re.compile(r" of ([^,;.?]{1,60}?),? ?(?:and|as well as) (?:its|their) ([^,;.?]+)")  # the X of A and its Y
OWNER = re.compile(r"它们?的?|其(?![他它中余实次])的?")
Item = tuple[str, str]  # its label, and what it says
Record = Sequence[Sequence[Item]]  # the items of each section
Names = dict[str, frozenset[int]]  # the sections that each name stands for


@dataclass(frozen=True)
class Cell:
    """A cell of the evidence, and its row and column where they are known."""

    text: str
    row: str = ""
    column: str = ""


@dataclass(frozen=True)
class Fact:
    """One asked fact: the texts that state it, and the section (cell, or label of the reference) that it belongs to."""

    forms: tuple[str, ...]
    section: int


def labelled(told: Sequence[Item], record: Record, asked: Lexicon, facts: Sequence[Fact]) -> Names:
    """Each section is called as the reference calls what it has most of."""
    labels = {one: [p for run in runs(one, asked) for p in parts(run) if asked.read(p)[0]] for one, _ in told}
    called: dict[int, list[str]] = {}
    taken: set[str] = set()
    for n in sorted({fact.section for fact in facts}):
        has = Counter(label for label, item in told if item in {item for _, item in record[n]})
        label = max(labels, key=lambda one: (has[one], one not in taken), default="")
        taken.add(label)
        called[n] = labels[label] if has[label] else []
    headings = Counter(above for n in called for above in {spell(above) for above, _ in record[n]})
    common = [above for above, n in headings.items() if n > 1]
    return _names({n: [one for one in called[n] if not any(spell(one) in above for above in common)] for n in called})


def _names(runs: dict[int, list[str]]) -> Names:
    """What tells sections apart: each run with the sections that have it. Nothing where one section has no name."""
    names = {run: frozenset(n for n in runs if run in runs[n]) for found in runs.values() for run in found}
    names = {run: sections for run, sections in names.items() if len(sections) < len(runs)}
    return names if len(frozenset[int]().union(*names.values())) == len(runs) else {}


def compared(question: str, cells: Sequence[Cell], facts: Sequence[Fact], known: set[str]) -> Names:
    """The names of what the question compares, where rows or else columns can be dealt out to them, in its order.

    Where a name begins or ends nobody can know: each end of what precedes a joint is a name, and each beginning of
    what follows it, but none that the other thing has too.
    """
    question = OWNER.sub("", OWN.sub(r" and \2 of \1", question))
    asked = sorted({fact.section for fact in facts})
    columns = [cells[n].column for n in asked]
    ways, names = [[cells[n].row or str(n) for n in asked], *([columns] if all(columns) else [])], Names()
    if len(set(columns)) > 1 and all(column.strip() and column in spell(question) for column in map(spell, columns)):
        names = _names({n: [cells[n].column] for n in asked})
        ways.pop()
    told = [
        ([ASKS_FIRST.sub("", thing) for thing in one[0]], one[1])
        for one in _things(question, {len({*way}) for way in ways})
        if not any(spell(name) in spell(thing) for name in names for thing in one[0])
    ]
    for things, is_whole in told[::-1] if OF.search(question) else told:
        fits = (len({*way}) == len(things) if way is columns else not len({*way}) % len(things) for way in ways)
        way = next((way for way, does_fit in zip(ways, fits, strict=True) if does_fit), None)
        things = [_asked_of(thing, is_column=way is columns) for thing in things] if is_whole else things
        runs = {n: list(_ends(thing, n or is_whole, len(things))) for n, thing in enumerate(things) if len(things) > 1}
        named = _names(runs)
        own = {run: min(named[run]) for run in named if sum(spell(run) in spell(thing) for thing in things) == 1}
        both = any(len({n for run, n in own.items() if spell(run) in spell(item)}) > 1 for item in known)
        if way and {*own.values()} == {*runs} and runs and not both:
            ways.remove(way)
            groups = list(dict.fromkeys(way))
            groups = _as_called(groups, things, cells) if way is columns else groups
            dealt = [groups.index(key) * len(things) // len(groups) for key in way]
            names |= {
                run: frozenset(n for n, i in zip(asked, dealt, strict=True) if i == of) for run, of in own.items()
            }
    return names


def _as_called(columns: list[str], things: Sequence[str], cells: Sequence[Cell]) -> list[str]:
    """Columns in the order of things: each where one's words mean its name or are in its cells, the others as they
    come."""
    if len(columns) != len(things):
        return columns
    said = {one: content("\n".join(normalise(cell.text) for cell in cells if cell.column == one)) for one in columns}
    meant = [
        next((c for c in columns if means(thing, c) or is_related(c, thing)), "") or _said_by(thing, said)
        for thing in things
    ]
    left = iter([column for column in columns if column not in meant])
    is_clear = all(meant.count(column) < 2 for column in columns)
    return [column or next(left) for column in meant] if is_clear else columns


def _said_by(thing: str, said: dict[str, set[str]]) -> str:
    """The one column whose cells have words of a thing that those of no other have."""
    words = content(thing) - {
        word for word, n in Counter(word for own in said.values() for word in own).items() if n > 1
    }
    having = [column for column, own in said.items() if own & words]
    return having[0] if len(having) == 1 else ""


def means(thing: str, column: str) -> bool:
    """Whether a word of a text means one of a column's name."""
    words = [thing[i : i + n] for n in (2, 3, 4) for i in range(len(thing) - n + 1)]
    words = [one[0] for one in tokens(thing)] if thing.isascii() else [one for one in words if is_chinese_word(one)]
    words = [one for one in words if not is_of_talk(one)]
    return any(same_meaning(*sorted((word, name))) for word in words for name in column.split())


def _things(question: str, sizes: set[int]) -> Iterator[tuple[list[str], bool]]:
    """What is joined in a part of the question; or else what several questions begin with, behind what they share."""
    asked = [one for one in ASK_END.split(question) if len(tokens(one)) > 1]
    is_short = "?" in question and all(len(tokens(one)) < MAX_SHORT for one in asked)
    if len(asked) < 2 or not (is_short or all(map(ASKING.search, asked))):
        for part in PART_END.split(question):  # a title may have a joint of its own
            splits = [JOINT.split(part), *(part.split(sign) for sign in LOOSEST if sign in part)]
            yield next((one for one in splits if any(not size % len(one) for size in sizes)), splits[0]), False
    else:
        spelt = [[token[0] for token in tokens(one)] for one in asked]
        same = len(commonprefix(spelt))
        asked = [one[tokens(one)[same].start() :] for one in asked if len(tokens(one)) > same]
        yield asked, True


def _asked_of(text: str, *, is_column: bool) -> str:
    """What a question begins with: its thing, or what it asks of it."""
    if not is_column:
        return re.sub(r"^(?:(?:(?!\bof\b).)* of )?(?:the |an? )?", "", text)
    column = re.sub("^.*(?:(?<!目)的|:)", "", text.rstrip("的"))
    return re.sub(r"^.*\b(?:the|its|their|are|is)\b ?", "", re.split(r" (?:of|for|does|do) ", column)[0])


def _ends(text: str, n: int, of: int) -> Iterator[str]:
    """The ends of the first thing, the beginnings of the last, of others the whole."""
    words = tokens(text)[-MAX_RUN:] if not n else tokens(text)[:MAX_RUN]
    starts = [token.start() for token in (words if not n else words[:1])]
    ends = [token.end() for token in (words if n == of - 1 else words[-1:])]
    found = (run for start in starts for end in ends if len(run := text[start:end]) >= MIN_RUN_CHARS)
    return (run for run in found if not ASKS_ONLY.fullmatch(run))


def parts(text: str) -> Iterator[str]:
    """All runs of up to MAX_RUN tokens."""
    found = tokens(text)
    runs = (text[one.start() : last.end()] for i, one in enumerate(found) for last in found[i : i + MAX_RUN])
    return (run for run in runs if len(run) >= MIN_RUN_CHARS)


def runs(text: str, asked: Lexicon) -> Iterator[str]:
    """The longest parts of the text that the question has too."""
    return (part[start:end] for part in PART_END.split(text) for start, end, _ in asked.read(part)[0])
