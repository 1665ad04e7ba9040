"""Makes wordnet.txt.gz from WordNet 3.0: `python -m sql_agent.words.wordnet /usr/share/wordnet` (of wordnet-base).

Guarantees: the same file from the same WordNet. One synset a line: its words of common English, and the lines of like
adjectives, of derived forms, and of the verbs above it and of its group, and behind a ! of its opposites; behind them
one irregular form a line, and one verb a line that first means to say, to think or to feel. The words are those of up
to three common ones, in their eight most common senses. Of nouns nothing above is taken: a mother is a parent, and
another question.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from spellchecker import SpellChecker

OUT = Path(__file__).parent / "wordnet.txt.gz"
COMMON = 200  # times in the dictionary's corpus
SENSES, WORDS = 8, 3
SPEECH = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
LINKS = {"&", "^", "$", "*", "+"}  # like, see also, verb group, entails, derived
SAID, THOUGHT, FELT = "32", "31", "37"  # the files of verbs: lexnames(5WN)

Key = tuple[str, str]


def main(folder: Path) -> None:
    common = SpellChecker().word_frequency.dictionary
    words: dict[Key, set[str]] = {}
    for key, lemma in _senses(folder):
        if len(lemma.split()) <= WORDS and all(common[word] >= COMMON for word in lemma.split()):
            words.setdefault(key, set()).add(lemma)
    links = {
        key: {(sign, other) for sign, other in others if other in words}
        for key, others in _links(folder)
        if key in words
    }
    linked = {key for key, others in links.items() if others} | {other for some in links.values() for _, other in some}
    place = {key: n for n, key in enumerate(sorted(key for key in words if key in linked or len(words[key]) > 1))}
    out = [
        "|".join(
            [",".join(sorted(words[key])), *(f"{sign}{n}" for sign, n in sorted((s, place[o]) for s, o in links[key]))]
        )
        for key in place
    ]
    out += sorted({form for form in _irregular(folder) if all(common[word] >= COMMON for word in form.split(">"))})
    out += sorted(f"{verb}!" for verb in _said(folder) if verb.isalpha() and common[verb] >= COMMON)
    OUT.write_bytes(gzip.compress("\n".join(out).encode(), mtime=0))


def lines(file: Path) -> Iterator[list[str]]:
    """The fields of each line of a file of WordNet."""
    return (line.split(" | ")[0].split() for line in file.read_text().splitlines() if not line.startswith(" "))


def _senses(folder: Path) -> Iterator[tuple[Key, str]]:
    for name, speech in SPEECH.items():
        for lemma, _, _, pointers, *rest in lines(folder / f"index.{name}"):
            for offset in rest[int(pointers) + 2 :][:SENSES]:
                yield (speech, offset), re.sub("[_-]", " ", lemma)


def _links(folder: Path) -> Iterator[tuple[Key, set[tuple[str, Key]]]]:
    """Of each synset "!" with an opposite of a word of it, and "" with those that are near it."""
    for name, speech in SPEECH.items():
        for fields in lines(folder / f"data.{name}"):
            key = speech, fields[0]
            at = 4 + 2 * int(fields[3], 16)
            pointers = zip(*(fields[at + n : at + 4 * int(fields[at]) : 4] for n in (1, 2, 3)), strict=True)
            wanted = LINKS | {"!"} | ({"@"} if speech == "v" else set())
            yield (
                key,
                {
                    (sign if sign == "!" else "", (other.replace("s", "a"), offset))
                    for sign, offset, other in pointers
                    if sign in wanted
                },
            )


def _said(folder: Path) -> Iterator[str]:
    """The verbs whose first sense is to say, to think or to feel."""
    files = {fields[0]: fields[1] for fields in lines(folder / "data.verb")}
    for lemma, _, _, pointers, *rest in lines(folder / "index.verb"):
        if files[rest[int(pointers) + 2]] in (SAID, THOUGHT, FELT):
            yield lemma


def _irregular(folder: Path) -> Iterator[str]:
    for name in SPEECH:
        forms = lines(folder / f"{name}.exc")
        yield from (">".join(fields[:2]) for fields in forms if len(fields) == 2 or name == "noun")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
