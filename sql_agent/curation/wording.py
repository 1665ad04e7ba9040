"""What a question says beneath its wording: numbers as digits, synonyms and abbreviations as one word, nothing polite.

Guarantees: a pure function of the text; words.txt decides what means the same, in English and Chinese. Not covered:
synonyms that stand in no group of that file, and a word of several meanings, which counts as its first group's.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unicodedata import normalize

from spellchecker import SpellChecker

from sql_agent.curation.numerals import in_digits, number
from sql_agent.offline_judge.normal import normalise

WORDS, COURTESY, CONTRASTS = (Path(__file__).parent / f"{name}.txt" for name in ("words", "courtesy", "contrasts"))
TOKEN = re.compile(r"\d+(?:\.\d+)?|[+*/^<>=×÷%]|(?<=\d)-(?=\d)|[a-zµμ°]+|[^\W_a-z\d]")
ACCENT = re.compile("[\u0300-\u036f]")
LONGEST = 8  # tokens of a phrase
MISSPELT = 5  # shorter words are too near to others
# Contractions: what denies stays, the rest says nothing.
CONTRACTED = (
    (re.compile(r"[’‘`´]"), "'"),
    (re.compile(r" {2,}"), " "),
    (re.compile(r"\bwon'?t\b(?!\s+to)|\bshan't\b"), "will not"),
    (re.compile(r"\bcan(?:'?t|not)\b"), "can not"),
    (re.compile(r"\bc'n\b"), "can"),
    (re.compile(r"\bain't\b|n't\b"), " not"),
    (re.compile(r"\b(is|do|does|did|are|was|were|has|have|had|would|could|should)nt\b"), r"\1 not"),
    (re.compile(r"'ve to\b"), " have to"),
    (re.compile(r"'(?:s|re|m|ve|ll|d|em)\b|(?<=s)'(?=\s)"), ""),
    (re.compile(r"\b(what|that|where|who|how|when|there|it)s\b"), r"\1"),
    (re.compile(r"\bwhat (?=(?:do|does|did|will|would|it)\b.*\b(?:cost|amount to|earn|weigh)s?\b)"), "how much "),
    (re.compile(r"\bwhat (?:(?:is|are|was|were) )?the (?:price|cost)s? (?:of|for)\b"), "how much is"),
    (re.compile(r"\bw/|&"), " and "),
    (re.compile(r"\by/?o\b"), "year old"),
    (re.compile(r"(?<=[a-z])/(?=(?:h|hr|hour|s|sec|min|day|wk|week|month|yr|year)\b)"), " per "),
    (re.compile(r"(?<![\w)\]/-])(?<!\d )[-−](?=\d)|零下|负(?=[\d一二三四五六七八九十])"), " minus "),
    (re.compile(r"\bdr\b\.?"), "doctor"),
    (re.compile(r"\b(?:per ?cent|pct)\b|(?<=\d) ?%"), "%"),
    (re.compile(r"\bd'(?=(?:i|you|we|they|he|she|it)\b)"), "do "),
    (re.compile(r"\b'?cause\b(?= (?:i|it|he|she|we|they|of)\b)"), "because"),
    (re.compile(r"(?<![分区性特个类级差辨告离鉴])别(?![的人名处嘌])"), "不要"),
    (re.compile(r"十分(?=感|谢)"), ""),
    (re.compile(r"个+(?=小时(?!候)|钟头|星期|礼拜|h\b|hr)"), ""),
    (re.compile(r"禁用(?![情况人])|禁止使用|忌用"), "不能用"),
    (re.compile(r"(没|不)(?:曾|有)"), r"\1"),
    # A verb beside its denial asks and denies nothing.
    (re.compile(r"有没(?!有)|有没有|有无"), "有"),
    (re.compile(r"([\u4e00-\u9fff]{1,2})不(?=\1)"), ""),
    (re.compile(r"(?<=能)不(?=可)|(?<=可)不(?=能)"), ""),
    (re.compile(r"是否|有否"), "是"),
    (re.compile(r"[能可]否"), "能"),
    (re.compile(r"会否"), "会"),
)  # fmt: skip


def _sections(file: Path) -> dict[str, list[str]]:
    """The sections of a file of words."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []  # those before the first heading are comments
    for line in file.read_text(encoding="utf-8").splitlines():
        if heading := re.fullmatch(r"\[([a-z-]+)\]", line):
            lines = sections[heading[1]] = []
        else:
            lines.append(line)
    return sections


SECTIONS = _sections(COURTESY)
STOP = frozenset(" ".join(SECTIONS["stop"]).split())
POLITE = re.compile(rf"\b(?:{'|'.join(SECTIONS['polite'])})")
# What stands before a question word is a clause as what stands before a mark is.
ASKS = r"\b(?:what|which|who|whose|whom|why|how|(?:when|where) (?:is|are|was|were|do|does|did|has|have|can|will))\b"
CLAUSE = re.compile(rf"(?!{ASKS})[^,.!?;:\n]+?(?={ASKS})|[^,.!?;:\n]*[,.!?;:\n]*(?:\s-+\s)?")
COURTEOUS = STOP | frozenset(" ".join(SECTIONS["clause"]).split())
MARKS = frozenset(" ".join(SECTIONS["clause-mark"]).split())
COURTEOUS_ZH = re.compile(f"[{SECTIONS['clause-zh'][0]}]+")
POLITE_ZH, ASKING_ZH = "|".join(SECTIONS["polite-zh"]), "|".join(SECTIONS["asking-zh"])
OF_ASKING = re.compile("|".join(SECTIONS["of-asking"]))  # what only a courtesy at the edge of many questions speaks of
IN_FULL = {short: full.strip() for short, full in (line.split(" =") for line in SECTIONS["short"])}
SHORT = re.compile("|".join(rf"\b{text}\b" if text.isascii() else text for text in IN_FULL))
DENIALS = frozenset(["not", "no", "never", "without", "neither", "nor", "不", "没", "无", "勿", "未", "非"])
DENIED = "not"


@dataclass(frozen=True)
class Wording:
    """The words that carry a question, as words.txt has them; the drugs and diseases among them; its own tokens, all of
    them and those that do not only ask; and, of Chinese, before numbers and units are put into one form."""

    words: tuple[str, ...]
    names: frozenset[str]
    framed: tuple[str, ...]
    plain: tuple[str, ...]
    written: tuple[str, ...]

    @functools.cached_property
    def views(self) -> tuple[tuple[str, ...], ...]:
        """The three ways to compare it."""
        return self.words, self.plain, self.framed

    @functools.cached_property
    def joined(self) -> tuple[str, ...]:
        """Each view without blanks."""
        return tuple(map("".join, self.views))

    @functools.cached_property
    def ordered(self) -> tuple[list[str], ...]:
        """Each view, sorted."""
        return tuple(map(sorted, self.views))

    @functools.cached_property
    def bag(self) -> frozenset[str]:
        """The words, once each."""
        return frozenset(self.words)

    @functools.cached_property
    def numbers(self) -> tuple[str, ...]:
        """Its numbers, sorted."""
        return tuple(word for word in self.ordered[0] if word[:1].isdigit())

    @functools.cached_property
    def denials(self) -> tuple[int, int]:
        """How often it denies, by its words and by all its tokens: a slip in 不良反应 makes a denial in the words."""
        return self.words.count(DENIED), sum(token in DENIALS for token in self.framed)


@functools.lru_cache(maxsize=65536)
def wording(text: str) -> Wording:
    """The wording of one question."""
    spoken = SHORT.sub(lambda short: IN_FULL[short[0]], ACCENT.sub("", normalize("NFD", text.lower())))
    for pattern, plain in CONTRACTED:
        spoken = pattern.sub(plain, spoken)
    written = () if spoken.isascii() else tuple(TOKEN.findall(re.sub(POLITE_ZH, " ", _without_courtesy(spoken))))
    spoken = _without_courtesy(in_digits(spoken))
    parts = _frame_zh().split(POLITE.sub(" ", spoken))  # what stands between Chinese words that only ask
    plain = tuple(_base(token) for part in parts if part for token in TOKEN.findall(part))
    tokens = _named(plain)
    names = groups()[1].intersection(tokens)
    priced = "price" if "much" in tokens else ""  # how much a thing is and what it costs
    words = tuple(DENIED if token in DENIALS else token for token in tokens if token not in ("1", priced))
    framed = tuple(_base(token, respelt=False) for token in TOKEN.findall(POLITE.sub(" ", spoken)))
    return Wording(words or plain or framed or (text,), names, framed or (text,), plain or framed or (text,), written)


def _without_courtesy(text: str) -> str:
    """The text without the clauses that hold nothing but words of courtesy, where another stays."""
    clauses = CLAUSE.findall(text)
    remaining = "".join(clause for clause in clauses if not _is_courteous(clause))
    return remaining if TOKEN.search(remaining) else text


def _is_courteous(clause: str) -> bool:
    words = TOKEN.findall(clause)
    if not words or not all(word in COURTEOUS if word.isascii() else COURTEOUS_ZH.fullmatch(word) for word in words):
        return False
    return any(not word.isascii() or word in MARKS for word in words)


@functools.cache
def _frame_zh() -> re.Pattern[str]:
    """What parts a Chinese question: courtesy, and, where no word of words.txt stands, what only asks."""
    phrases = set(re.findall(r"[\u4e00-\u9fff][^,\n]+", WORDS.read_text(encoding="utf-8")))
    return re.compile(f"(?:{POLITE_ZH})|({'|'.join(sorted(phrases, key=len, reverse=True))})|(?:{ASKING_ZH})")


@functools.cache
def groups() -> tuple[dict[tuple[str, ...], tuple[str, ...]], frozenset[str], frozenset[tuple[str, str]]]:
    """words.txt: the tokens of each phrase with those of its group's first one; which first ones are names; and which
    first ones share a phrase, so that either may be meant."""
    phrases: dict[tuple[str, ...], tuple[str, ...]] = {}
    names: set[str] = set()
    kin: set[tuple[str, str]] = set()
    sections = _sections(WORDS)
    for named, line in [(True, line) for line in sections["names"]] + [(False, line) for line in sections["words"]]:
        group = list(map(_tokens, line.split(", ")))
        first = ("_".join(group[0]),) if named else group[0]
        if named:
            names.add(first[0])
        for phrase in group:
            if (
                not (len(phrase) == 1 and phrase[0] in STOP)
                and phrase
                and (earlier := phrases.setdefault(phrase, first)) != first
            ):
                kin |= {(earlier[0], first[0]), (first[0], earlier[0])}
    return phrases, frozenset(names), frozenset(kin)


@functools.cache
def _contrasts() -> dict[tuple[str, ...], dict[int, int]]:
    """The lines of contrasts.txt that each phrase stands in, with its place there."""
    lines: dict[tuple[str, ...], dict[int, int]] = {}
    for n, line in enumerate(CONTRASTS.read_text(encoding="utf-8").splitlines()):
        for at, term in enumerate([] if line.startswith("#") else line.split(", ")):
            for phrase in term.split("/"):
                lines.setdefault(_tokens(phrase), {})[n] = at
    return lines


@functools.lru_cache(maxsize=65536)
def _contrasting(tokens: tuple[str, ...]) -> dict[int, set[int]]:
    """What of each line of contrasts.txt stands in a question, of several phrases the longest."""
    places: dict[int, set[int]] = {}
    for phrase in pieces(tokens, _contrasts().__contains__, longest=LONGEST):
        for line, place in _contrasts().get(phrase, {}).items():
            places.setdefault(line, set()).add(place)
    return places


def contrast(new: Wording, old: Wording) -> bool:
    """Whether each has something of a line of contrasts.txt that the other lacks."""
    views = [(_contrasting(new.plain), _contrasting(old.plain)), (_contrasting(new.framed), _contrasting(old.framed))]
    return any(
        mine[line] - theirs[line] and theirs[line] - mine[line]
        for mine, theirs in views
        for line in mine.keys() & theirs
    )


@functools.cache
def _lines() -> dict[tuple[str, ...], set[int]]:
    """The lines of words.txt, and the things of contrasts.txt, that each phrase stands in."""
    lines: dict[tuple[str, ...], set[int]] = {}
    contrasts = re.sub(", ", "\n", CONTRASTS.read_text(encoding="utf-8")).replace("/", ", ").splitlines()
    for n, line in enumerate(WORDS.read_text(encoding="utf-8").splitlines() + contrasts):
        for phrase in line.split(", "):
            lines.setdefault(_tokens(phrase), set()).add(n)
    return lines


def are_listed_together(phrase: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether a line of words.txt, or a thing of contrasts.txt, has both phrases."""
    return not _lines().get(phrase, set()).isdisjoint(_lines().get(other, set()))


def _named(tokens: tuple[str, ...]) -> list[str]:
    """The tokens that say something, with each phrase of words.txt, longest first, as its group's first one."""
    phrases = groups()[0]
    words: list[str] = []
    for piece in pieces(tokens, phrases.__contains__, longest=LONGEST):
        words += phrases.get(piece, () if piece[0] in STOP else piece)
    return words


def pieces[Text: (str, tuple[str, ...])](
    text: Text, is_known: Callable[[Text], bool], *, longest: int
) -> Iterator[Text]:
    """The text in what is known, from the left and the longest first, and single characters or tokens between."""
    at = 0
    while at < len(text):
        n = next((n for n in range(longest, 1, -1) if is_known(text[at : at + n])), 1)
        yield text[at : at + n]
        at += n


def _tokens(phrase: str) -> tuple[str, ...]:
    return tuple(map(_base, TOKEN.findall(normalise(phrase))))


@functools.cache
def _base(token: str, *, respelt: bool = True) -> str:
    """A word in its basic form, as far as words.txt or the ending tells it; a number in one form."""
    if token[0].isdigit():
        return number(token)
    if not token.isascii() or len(token) < 4 or token in STOP:
        return token
    bases = [base for base in _bases(token) if base in _vocabulary() and len(base) > 2 and base not in STOP]
    if bases:
        return min(bases, key=len)
    if respelt and token.isalpha() and len(token) >= MISSPELT and token not in _dictionary():
        right = _dictionary().correction(token)
        return _base(right, respelt=False) if right else token
    return token[:-1] if token.endswith("s") and not token.endswith(("ss", "us", "is")) else token


def _bases(token: str) -> Iterator[str]:
    """What the word may be a form of, itself among it."""
    yield token
    ends = (("ies", "y"), ("es", ""), ("es", "e"), ("s", ""), ("ing", ""), ("ing", "e"), ("ed", ""), ("ed", "e"))
    for end, more in ends:
        if token.endswith(end):
            base = token.removesuffix(end) + more
            yield base
            if base[-2:-1] == base[-1:]:
                yield base[:-1]
    # An adjective has both degrees: a number is not more numb.
    degree = re.fullmatch(r"([a-z]+?)(er|est)", token)
    if degree and f"{degree[1]}{'est' if degree[2] == 'er' else 'er'}" in _dictionary():
        yield from (degree[1], f"{degree[1]}e", f"{degree[1][:-1]}y")
        if degree[1][-2:-1] == degree[1][-1:]:
            yield degree[1][:-1]


@functools.cache
def _vocabulary() -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+", WORDS.read_text(encoding="utf-8")))


@functools.cache
def _dictionary() -> SpellChecker:
    """English words, and those of words.txt and the denials as rare ones."""
    words = SpellChecker(distance=1)
    words.word_frequency.load_words(sorted(word for word in {*_vocabulary(), *DENIALS} if word.isascii()))
    return words


def is_listed(token: str) -> bool:
    """Whether words.txt has the word."""
    return token in _vocabulary()


def is_word(token: str) -> bool:
    """Whether words.txt or an English dictionary has the word."""
    return token in _dictionary()
