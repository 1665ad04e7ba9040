"""Names of persons in a text: a given and a family name of one country side by side, by the lists of Faker.

Guarantees: a pure function of the text. Not covered: names that those lists lack (most family names of Poland and
Turkey, most given ones of Japan), a given name alone, and names in lower case; where every word of a text has a capital
(a headline), a pair of words is no name.
"""

from __future__ import annotations

import functools
import importlib
import re
from itertools import pairwise

from sql_agent.curation.wording import is_word

LOCALES = "en_US en_GB en_IN de_DE fr_FR es_ES it_IT pt_BR nl_NL sv_SE da_DK pl_PL cs_CZ tr_TR id_ID ru_RU hi_IN"
TOGETHER = ("zh_CN", "ja_JP", "ko_KR")  # written without a blank, the family name first
WORD = re.compile(r"(?:(?:de|van|von|der|da|di|del) )*(?:[^\W\d_]|[\u0900-\u097f])+(?:['’-][^\W\d_]+)*")
# Given names that begin a question, a sentence or a date more often.
WORDS = frozenset(
    [
        "will",
        "may",
        "april",
        "june",
        "august",
        "can",
        "chase",
        "grace",
        "hope",
        "art",
        "dean",
        "mark",
        "bill",
        "rose",
        "summer",
        "dawn",
        "penny",
    ]
)
BEFORE = (
    r"(?:(?<![\u3040-\u9fff\uac00-\ud7af])|(?<=患者)|(?<=病人)|(?<=叫)|(?<=姓名)|(?<=我是)|(?<=さん)|(?<=는)|(?<=は))"
)
AFTER = r"(?=[^\u4e00-\u9fff\uac00-\ud7af]|$|先生|女士|小姐|同志|医生|大夫|老师|今年|现年|さん|씨|님|입니다|です)"


@functools.cache
def _lists(locale: str) -> tuple[frozenset[str], frozenset[str]]:
    """The given and the family names of a country."""
    provider = importlib.import_module(f"faker.providers.person.{locale}").Provider
    given, family = set(), set()
    for kind, names in (("first_name", given), ("last_name", family)):
        for attribute in dir(provider):
            if attribute.startswith(kind) and not callable(values := getattr(provider, attribute)):
                names.update(name for name in values if isinstance(name, str))
    return frozenset(given), frozenset(family)


@functools.cache
def _together() -> re.Pattern[str]:
    """Names of countries that write them without a blank."""
    wholes = []
    for locale in TOGETHER:
        given, family = ("|".join(sorted(names, key=len, reverse=True)) for names in _lists(locale))
        second = "".join(sorted(set("".join(_lists(locale)[0]))))
        wholes.append(f"(?:{family}) ?(?:{given}" + (f"|[{second}]{{1,2}})" if locale == "zh_CN" else ")"))
    return re.compile(f"{BEFORE}(?:{'|'.join(wholes)}){AFTER}")


def names_someone(text: str) -> bool:
    """Whether a person is named by given and family name."""
    if _together().search(text):
        return True
    found = list(WORD.finditer(text))
    if len(found) > 4 and all(word[0][:1].isupper() for word in found):
        return False
    beside = [(one[0], other[0]) for one, other in pairwise(found) if text[one.end() : other.start()] in (" ", ", ")]
    return any(_pair(one, other) or _pair(other, one) for one, other in beside)


def _pair(given: str, family: str) -> bool:
    if given[:1].islower() or family[-1:].isupper() and len(family) < 3 or given.lower() in WORDS:
        return False
    countries = [(given in one, family in other) for one, other in map(_lists, LOCALES.split())]
    if any(map(all, countries)):
        return True
    # Of two countries: unless both are words that have another sense.
    rare = not (is_word(given.lower()) and is_word(family.lower()))
    return rare and any(one for one, _ in countries) and any(other for _, other in countries)
