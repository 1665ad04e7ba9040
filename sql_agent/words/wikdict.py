"""Makes wikdict.txt.gz from dictionaries of FreeDict: `python -m sql_agent.words.wikdict /usr/share/dictd` (of
dict-freedict-eng-bul, -eng-fin, -eng-ind, -eng-jpn, -eng-nor, -ell-eng, -fin-eng and -pol-eng).

Guarantees: the same file from the same dictionaries. A line is an English word or phrase, and those that share a
translation with it in at least AGREEING of them and CC-CEDICT: what several languages say with one word means the same.
Words that WordNet calls opposites are left out.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from spellchecker import SpellChecker

from sql_agent.words.meanings import chinese_of_phrases
from sql_agent.words.wordnet import SPEECH, lines

OUT = Path(__file__).parent / "wikdict.txt.gz"
BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
AGREEING = 2  # dictionaries
COMMON = 100  # times in the dictionary's corpus
MOST = 12  # English words of one translation; more say little
WORDS = 3  # of a phrase
ASIDE = re.compile(r"\([^()]*\)|\[[^]]*\]|<[^>]*>")
ENGLISH = re.compile(r"[a-z]+(?:[ -][a-z]+)*")

Groups = dict[str, set[str]]


def main(folder: Path) -> None:
    common = SpellChecker().word_frequency.dictionary
    pairs: Counter[tuple[str, str]] = Counter()
    for groups in _dictionaries(folder):
        alike = {
            pair
            for words in groups.values()
            if 1 < len(english := {w for w in words if all(common[part] >= COMMON for part in w.split())}) <= MOST
            for pair in combinations(sorted(english), 2)
        }
        pairs.update(alike)
    opposite = set(_opposites(Path("/usr/share/wordnet")))
    agreed: Groups = defaultdict(set)
    for (word, other), n in pairs.items():
        if n >= AGREEING and (word, other) not in opposite:
            agreed[word].add(other)
    text = "\n".join(f"{word}|{','.join(sorted(others))}" for word, others in sorted(agreed.items()))
    OUT.write_bytes(gzip.compress(text.encode(), mtime=0))


def _dictionaries(folder: Path) -> Iterator[Groups]:
    """Of each language its words, each by its part of speech, with the English ones that mean it."""
    for language in ("bul", "fin", "ind", "jpn", "nor"):
        yield _from_english(folder / f"freedict-eng-{language}")
    for language in ("ell", "fin", "pol"):
        yield _to_english(folder / f"freedict-{language}-eng")
    chinese: Groups = defaultdict(set)
    for phrase, words in chinese_of_phrases().items():
        for word in words:
            chinese[word].add(phrase)
    yield chinese


def _entries(file: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Headword, part of speech and lines of each entry."""
    text = gzip.decompress(file.with_suffix(".dict.dz").read_bytes())
    for line in file.with_suffix(".index").read_text(encoding="utf-8").splitlines():
        head, start, length = line.split("\t")[:3]
        entry = text[_number(start) : _number(start) + _number(length)].decode("utf-8", "replace").splitlines()
        if entry:
            speech = re.search(r"<(\w+)>", entry[0])
            yield head, speech[1] if speech else "", entry[1:]


def _number(digits: str) -> int:
    value = 0
    for digit in digits:
        value = value * 64 + BASE64.index(digit)
    return value


def _senses(entry: list[str]) -> Iterator[list[str]]:
    """The translations of each sense; the line behind each is its definition."""
    is_first = True
    for line in entry:
        numbered = re.match(r"\s*\d+\.\s*", line)
        if is_first or numbered:
            plain = re.sub(r"^\s*\d+\.\s*|\s*\d+\.\s*$", "", ASIDE.sub("", line))
            yield [" ".join(translation.split()).lower() for translation in plain.split(",")]
        is_first = False


def _is_phrase(text: str) -> bool:
    return ENGLISH.fullmatch(text) is not None and len(re.split("[ -]", text)) <= WORDS


def _plain(text: str) -> str:
    return text.replace("-", " ").removeprefix("to ")


def _from_english(file: Path) -> Groups:
    groups: Groups = defaultdict(set)
    for head, speech, entry in _entries(file):
        if _is_phrase(head):
            for sense in _senses(entry):
                for translation in filter(None, sense):
                    groups[f"{translation}/{speech}"].add(_plain(head))
    return groups


def _to_english(file: Path) -> Groups:
    groups: Groups = defaultdict(set)
    for head, speech, entry in _entries(file):
        for n, sense in enumerate(_senses(entry)):
            groups[f"{head}/{speech}/{n}"] |= {_plain(translation) for translation in sense if _is_phrase(translation)}
    return groups


def _opposites(folder: Path) -> Iterator[tuple[str, str]]:
    """Pairs of words between which WordNet has an antonym's pointer, either way round."""
    names: dict[tuple[str, str], list[str]] = {}
    antonyms: list[tuple[tuple[str, str, int], tuple[str, str, int]]] = []
    for name, speech in SPEECH.items():
        for fields in lines(folder / f"data.{name}"):
            count = int(fields[3], 16)
            key = speech, fields[0]
            names[key] = [re.sub(r"\(.*\)", "", word).lower() for word in fields[4 : 4 + 2 * count : 2]]
            at = 4 + 2 * count
            for n in range(int(fields[at])):
                sign, offset, other, places = fields[at + 1 + 4 * n : at + 5 + 4 * n]
                if sign == "!":
                    there = other.replace("s", "a"), offset, int(places[2:], 16) - 1
                    antonyms.append(((*key, int(places[:2], 16) - 1), there))
    for (a, b, n), (c, d, m) in antonyms:
        yield names[a, b][n], names[c, d][m]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
