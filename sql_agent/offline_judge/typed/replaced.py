"""Another thing where the question has one: 桂花小学 for 桐花小学, "from B to A" for "from A to B", another person.

Chinese has no capitals: the place in a clause, a value's last character or a surname tells a name.
Guarantees: pure functions, linear in the answer. What `slots` finds by dictionaries is found there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from os.path import commonprefix

from faker.providers.person.zh_CN import Provider

from sql_agent.offline_judge.lexicon import Lexicon, spell, tokens
from sql_agent.offline_judge.sections import parts
from sql_agent.offline_judge.typed.sentences import FRAME
from sql_agent.words.meanings import is_opposite, same_meaning

MAX_NAME, MIN_BEHIND = 12, 3  # tokens
SURNAMES = {*list(Provider.last_names)[:100]}  # the most frequent ones
MIN_NAME = 3  # characters of a Chinese name that no dictionary has
TIMES = "年月日天季度份周期次场"
DEFINITE = ("这", "该", "本", "此", "其")
ASKED = re.compile(r"[#哪谁几何怎吗呢]|什么|多少钱?|是否|(.)[不没]\1")
COPULA = re.compile(r"[是为叫由].?$")
WAY = re.compile(r"(?:\bfrom |[从由])(\w+?)( to |[到至])(\w+)")  # of an order, or of a journey
COMPARED = re.compile(r"\b(?:more|fewer|less) (?P<first>.{2,60}?) than (?P<second>.{2,60})")
COMPARED_ZH = re.compile("(?P<first>.+?)比(?!赛)(?P<second>.+?)(?P<way>[\u4e00-\u9fff])[了出约]{0,2} ?(?:多少|几|#)")
WAY_ZH = re.compile("(?!差)([\u4e00-\u9fff])[了出约]{0,2} ?#")
SUPERLATIVE = re.compile(r"\b(?:[a-z]{2,}est|most|top|best|worst)\b|最")


def turns_way(question: str, said: str) -> bool:
    """Whether "from A to B" of the question became "from B to A", or "B first" did."""
    said = said.replace("至", "到")
    if any(SUPERLATIVE.fullmatch(end) and f"{end} first" in question for _, _, end in WAY.findall(said)):
        return True
    ways = [(start, to.replace("至", "到"), end) for start, to, end in WAY.findall(question)]
    ways = [(start, to, end if to == " to " else end[: len(start)]) for start, to, end in ways]
    return any(start != end and f"{end}{to}{start}" in said for start, to, end in ways)


def turns_comparison(question: str, clause: str) -> bool:
    """Whether a clause, with # for values, has the sides of "A比B" or "more A than B" the other way round, or in
    Chinese an opposite of what the question asks; both are the same again."""
    is_chinese = not question.isascii()
    compares = COMPARED_ZH if is_chinese else COMPARED
    compared, told, way = compares.search(question), compares.search(clause), WAY_ZH.search(clause)
    if not compared:
        return False
    parts = list[str] if is_chinese else str.split
    sides = {*parts(compared["first"])}, {*parts(compared["second"])}
    first, second = sides[0] - sides[1], sides[1] - sides[0]
    said = {*parts(told["first"])} if told else set[str]()
    is_opposed = is_chinese and way is not None and is_opposite(compared["way"], way[1])
    return (len(said & second) > len(said & first)) is not is_opposed


def renames(question: str, clause: str) -> bool:
    """Whether a Chinese clause, with # for values, begins as the question does, but for a part of the first name."""
    if question.isascii():
        return False
    question = re.sub(f"#[{TIMES}]", "#", ASKED.sub("#", question.rstrip("?")))
    asked, told = (["^", *(token[0] for token in tokens(text)), "$"] for text in (question, re.sub("#+", "#", clause)))
    same = next((n for n, (ours, theirs) in enumerate(zip(asked, told, strict=False)) if ours != theirs), 0)
    for size in range(1, MAX_NAME if same else 0):
        gone, new = "".join(asked[same : same + size]), "".join(told[same : same + size])
        n_same_behind = len(commonprefix([asked[same + size :], told[same + size :]]))
        if n_same_behind == 0 and _has_other_subject(asked[same:], told[same:], size, question):
            return True
        if ASKED.search(gone + new) or gone.isascii() or not n_same_behind:
            continue
        may_be_synonym = n_same_behind < 2 and same > 3 and told[same + size] not in "是在有由为$"
        if may_be_synonym or (n_same_behind < 3 and "的" in asked[:same]):
            return False
        is_whole = gone not in clause and bool(FRAME.read(gone)[1]) and same + n_same_behind > 2
        return is_whole and _is_other_name(gone, new, question)
    return False


def _has_other_subject(asked: Sequence[str], told: Sequence[str], size: int, question: str) -> bool:
    """Whether a name of another length stands for the question's first `size` tokens, and then all goes on as there,
    up to the value."""
    if "#" not in asked[size:]:
        return False
    behind = asked[size : asked.index("#", size) + 1]
    at = next((n for n in range(2, MAX_NAME) if told[n : n + len(behind)] == behind), 0)
    gone, new = "".join(asked[:size]), "".join(told[:at])
    if not at or len(behind) < MIN_BEHIND or ASKED.search(gone + new) or size < 2:
        return False
    return FRAME.read(gone) == ([], [(0, len(gone))]) and _is_other_name(gone, new, question)


def _is_other_name(gone: str, new: str, question: str) -> bool:
    """Whether `new` is none of the question's, and no other word for what is gone."""
    is_told = {*new} & {*DEFINITE} or any(new[n : n + 2] in question for n in range(max(1, len(new) - 1)))
    if is_told or FRAME.read(new) != ([], [(0, len(new))]):
        return False
    return not same_meaning(*sorted((gone.rstrip("了"), new)))


def lacks_subject(question: str, said: str) -> bool:
    """Whether a Chinese answer leaves out what the question begins with."""
    if question.isascii():
        return False
    question, told = re.sub(r"^(?:请问|谁是|谁为|[请把按在])+", "", question), spell(said)
    gone = Lexicon(part for part in parts(question) if spell(part) in told).read(question)[1]
    return bool(gone) and gone[0][0] == 0 and 2 <= gone[0][1] <= MAX_NAME


def is_alike(name: str, value: str) -> bool:
    """A person's surname, or the last character of another Chinese value: 李伟 for 王芳, 东城区 for 西城区."""
    is_person = 1 < len(value) < 4 and value[0] in SURNAMES
    return len(value) > 1 < len(name) and (name[0] in SURNAMES if is_person else name[-1] == value[-1] > "\u4e00")
