"""A text taken apart into items: clauses, each under the label before it.

An item ends at a comma, a semicolon, a full stop or a line; its label is what stood before the last colon of its
sentence. Guarantees: pure functions on text in normal form, linear in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sql_agent.offline_judge.lexicon import spell, tokens
from sql_agent.offline_judge.normal import normalise
from sql_agent.offline_judge.sections import Item
from sql_agent.words.meanings import is_chinese_word

SENTENCE_END = re.compile(r"[。!?\n]+|\.(?= |$)")
ITEM_END = re.compile(r"[;,、|]+|(?<!\d)\.|\.(?!\d)|(?<=\w) (?=because )")
CLAUSE_END = re.compile(r"[,;:、。?!\n]")
LABEL_END = re.compile(r"(?<!\d):|:(?!\d)|(?<=.)(?:表现为|症见)(?=.)")
SHOWN = re.compile(r"((?:表现为|症见)[^;:。?!\n]*);")  # in one clause
LAST_JOINT = re.compile(r"(?<=..)(?:以及|及|和)(?=[^\W\d].)|(?<!^and) (?:and|as well as) ")
MAX_JOINED = 8  # tokens


def items_of(text: str) -> list[Item]:
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


def texts_of(text: str) -> list[str]:
    return [item for _, item in items_of(normalise(text))]


def under_lines(text: str) -> Iterator[Item]:
    """(heading, item) of all lines behind one that ends with a colon, and of one that begins with two labels."""
    heading = ""
    for line in normalise(text).split("\n"):
        heading = line[:-1] if line.endswith(":") else heading
        yield from ((heading, item) for item in texts_of(line) if heading and not line.endswith(":"))
        first, *others = LABEL_END.split(ITEM_END.split(line)[0])
        yield from ((first, item) for item in texts_of(line) if len(others) > 1)


def outer_headings(text: str) -> Iterator[str]:
    """The headings of labels, and those of lines."""
    for clause in re.split(f"{SENTENCE_END.pattern}|{ITEM_END.pattern}", text):
        *labels, item = LABEL_END.split(clause)
        yield from labels[:-1] if item.strip() else labels


def joined(item: str) -> list[str]:
    """What the last item of a list joins; the item where it joins nothing."""
    found = [joint for joint in LAST_JOINT.finditer(item) if not _is_in_word(item, *joint.span())]
    joined = [item[: found[0].start()], item[found[0].end() :]] if len(found) == 1 else [item]
    return joined if all(len(one) > 1 and len(tokens(one)) <= MAX_JOINED for one in joined) else [item]


def _is_in_word(text: str, start: int, end: int) -> bool:
    """Whether a Chinese joint is a part of a word: 及 of 及时."""
    return any(map(is_chinese_word, (text[start - 1 : end], text[start : end + 1]))) and not text[start:end].isascii()
