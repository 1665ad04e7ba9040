"""Names of persons in a text: a given and a family name side by side, by Faker's lists and CC-CEDICT's persons, and in
Chinese a family name before a title.

Guarantees: a pure function of the text. One of the two may stand in no list, where neither is a word of WordNet. Not
covered: a given name alone, names in lower case, and Chinese names of rare family names or with a word in them; where
every word of a text has a capital (a headline), a pair of words is no name. Well-known people have names too.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path

from faker.providers import person

from sql_agent.words.meanings import characters_of_given_names, is_chinese_word, is_english_word

TOGETHER = ("zh_CN", "ja_JP", "ko_KR")  # written without a blank, the family name first
WORD = re.compile(r"(?:(?:de|van|von|der|da|di|del) )*(?:[^\W\d_]|[\u0900-\u097f])+(?:['’-][^\W\d_]+)*")
TITLES = "先生|女士|小姐|太太|夫人|医生|大夫|老师|师傅|教授|主任|经理|律师"
BEFORE = (
    r"(?:(?<![\u3040-\u9fff\uac00-\ud7af])|(?<=患者)|(?<=病人)|(?<=叫)|(?<=姓名)|(?<=我是)|(?<=さん)|(?<=는)|(?<=は))"
)
AFTER = (
    rf"(?=[^\u4e00-\u9fff\uac00-\ud7af]|$|{TITLES}|同志|今年|现年|様|氏"
    r"|씨|님|입니다|이?라고|이?에요|예요|[의은는이가을를](?![\uac00-\ud7af]))"
)
# What is named after somebody: "Charcot Marie Tooth disease".
AFTER_SOMEBODY = re.compile(r"(?: \w+)? (?:disease|disorder|syndrome|lymphoma|sign|test|score|scale)(?![a-z])", re.I)
LONGEST_WORD = 4  # characters
COMMON = 0.25  # percent of China's people with a family name; rarer ones begin foreign words more often


@functools.cache
def _lists(*locales: str) -> tuple[frozenset[str], frozenset[str]]:
    """The given and the family names of some countries, in their script and in Latin letters."""
    given, family = set(), set()
    for locale in locales:
        provider = importlib.import_module(f"faker.providers.person.{locale}").Provider
        for kind, names in (("first_", given), ("last_", family)):
            for member in dir(provider):
                values = getattr(provider, member)
                if re.match(f"(?:male_|unisex_)?{kind}(?:romanized_)?name", member) and isinstance(values, Collection):
                    names.update(name for name in values if isinstance(name, str))
    return frozenset(given), frozenset(family)


@functools.cache
def _countries() -> list[tuple[frozenset[str], frozenset[str]]]:
    """The lists of all countries of Faker."""
    folders = sorted(Path(person.__file__).parent.glob("*_*/__init__.py"))
    return [_lists(file.parent.name) for file in folders]


@functools.cache
def _together() -> re.Pattern[str]:
    """Names of countries that write them without a blank."""
    wholes, called = [], ""
    for locale in TOGETHER:
        lists = ([name for name in names if not name.isascii()] for names in _lists(locale))
        given, family = ("|".join(sorted(names, key=len, reverse=True)) for names in lists)
        second = "".join(sorted(set("".join(_lists(locale)[0]))))
        wholes.append(f"(?:{family}) ?(?:{given}{f'|[{second}]{{1,2}}' if locale == 'zh_CN' else ''})")
        if locale == "ja_JP":
            called = f"(?:{family})[\u3040-\u30ff\u4e00-\u9fff]{{0,3}}(?:さん|様|氏|くん|ちゃん)"
    return re.compile(f"{BEFORE}(?:(?:{'|'.join(wholes)}){AFTER}|{called})")


@functools.cache
def _families() -> list[str]:
    """Common Chinese family names, and those of two characters, which come first."""
    shares = importlib.import_module("faker.providers.person.zh_CN").Provider.last_names
    return sorted((name for name, share in shares.items() if share >= COMMON or len(name) > 1), key=len, reverse=True)


@functools.cache
def _han() -> re.Pattern[str]:
    """Such a family name, and two characters of given names."""
    given = "".join(characters_of_given_names(_families()))
    return re.compile(f"(?=(({'|'.join(_families())})([{given}]{{2}})))")


def _has_title(text: str) -> bool:
    """Whether a Chinese family name, which ends no word (关于女士), stands before a title."""
    names = re.finditer(f"(?:{'|'.join(_families())})(?={TITLES})", text)
    return any(name.start() == 0 or not is_chinese_word(text[name.start() - 1 : name.end()]) for name in names)


def _stands_alone(text: str, name: re.Match[str]) -> bool:
    """Whether no word of CC-CEDICT reaches into a Chinese name, or is a part of it but its given name."""
    start, end = name.span(1)
    words = (
        (at, at + n)
        for n in range(2, LONGEST_WORD + 1)
        for at in range(max(0, start - n + 1), min(end, len(text) - n + 1))
        if is_chinese_word(text[at : at + n])
    )
    return all(
        word in (name.span(1), name.span(2)) or (word == name.span(3) and name[3] in _lists("zh_CN")[0])
        for word in words
    )


def names_someone(text: str) -> bool:
    """Whether a person is named by given and family name, or in Chinese by the latter and a title."""
    if _has_title(text) or _together().search(text) or any(_stands_alone(text, name) for name in _han().finditer(text)):
        return True
    words = list(WORD.finditer(text))
    if len(words) > 4 and all(word[0][:1].isupper() for word in words):
        return False
    beside = [
        (first[0], second[0])
        for first, second in pairwise(words)
        if text[first.end() : second.start()] in (" ", ", ") and not AFTER_SOMEBODY.match(text, second.end())
    ]
    return any(_pair(first, second) or _pair(second, first) for first, second in beside)


def _pair(given: str, family: str) -> bool:
    """Whether the two are names of one country; or of two, or one a name and the other in no dictionary."""
    if given[:1].islower() or family.split()[-1][:1].islower() or (family[-1:].isupper() and len(family) < 3):
        return False
    lists = [(given in given_names, family in family_names) for given_names, family_names in _countries()]
    words = [is_english_word(given.lower()), is_english_word(family.lower())]
    if is_english_word(f"{given} {family}".lower()):
        return False
    if any(map(all, lists)):
        return True
    listed = list(map(any, zip(*lists, strict=True)))
    return not any(words) and (all(listed) or (any(listed) and min(map(len, (given, family))) > 2))
