"""Offers at an answer's end: what the speaker may do next, or what the reader may want, and nothing of the value.

Guarantees: pure functions, linear in the text. One with a number, a denial, a doubt or another answer in it stays. Not
covered: an offer before the value; another value in an offer's own words ("I can also list barley").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Set

from sql_agent.offline_judge.doubts import DENIALS, DOUBTS
from sql_agent.offline_judge.values import plain

PIECE = re.compile(r"[^.!?\n。！？]*[.!?\n。！？]+[\s*_]*|[^.!?\n。！？]+")
ASIDE = re.compile(r"[,，;；](?=\s{0,2}(?:如需|如果?您?还?需要?|if you(?:'d)? (?:need|want|like)\b))", re.I)
ADDRESSES = re.compile(  # speaks to the reader, or of the speaker
    r"\b(?:you|your|yours|i|me|we|us)\b|[您你我请祝]|欢迎|建议|[需想]?要|随[时便]|(?:其[他它]|别的|更多).*[?吗]"
    r"|^\W*(?:anything|any|need|want|more|cheers|happy|glad|pleased|hope|just|feel free|ask|tell|say)\b"
    r"|^\W*[a-z]{3,}ing (?:an?|the|for|to)\b[^,;:]*\?|\bbe (?:useful|helpful|interesting)\b"
)
OPENS = re.compile(  # what the speaker may do
    r"^\W*(?:(?:if|should|in case) you\b[^,]*, *)?(?:i (?:can|could|ll|will|would|d)\b|(?:shall|should|can) i\b)"
)
STATES = re.compile(r"\b(?:is|are|was|were|has|have|had|see|think|guess|swear|imagine)\b")
ACTS = re.compile(
    r"\b(?:else|help\w*|assist\w*|questions?|further|more|another|additional|details?|wants?|needs?|likes?|interest\w*"
    r"|hope|happy|glad|ask|tell|let|say|show|list|plot|share|give|explain|compare|look|dig|break|walk|expand|explore"
    r"|provide|export)\b"
    r"|帮|希望|疑问|告[诉知]|[提疑]问|问[题我]|联系|了解|建议|提供|欢迎|祝|找我|[要我想][再看知]|[要我]再?(?:进1步|[把将为给查列导])"
    r"|我来?[也还]?可以|[查察][看询]|其[他它]|可以再"
)
SENDS = re.compile(  # to somebody or something else
    r"\b(?:doctors?|physicians?|clinicians?|pharmacists?|professionals?|medical|healthcare|specialists?|nurse|leaflet|label|manual|record|appointment)\b"
    r"|医[生师嘱院疗]|药师|就[诊医]|说明书|专业|为准|自行|擅自"
)
ADVISES = re.compile(
    r"\b(?:you|your|please|always|seek|consult|see|ask|contact|should|never|keep|read|refer)\b|请|建议|务必|切勿|应[该当]?|您"
)
REPORTS = re.compile(  # what such a person says, or how much of something
    r"(?:医[生师]|药师|人[士员]|专家)(?:们?[会都也]?)(?:建议|[说让给要]|推荐|认为|应)|加倍|翻倍|[加减][量半大]"
    r"|\b(?:doctor|physician|clinician|pharmacist|professional|specialist|nurse|leaflet|label|manual|record)s?"
    r" (?:should|must|recommend|say|advise|want|prescribe|state|insist)s?\b|\b(?:double|triple|twice|half|halve)\b"
)
TELLS = re.compile(  # somebody else something
    r"告[诉知](?![我您你他她]?[们]?(?:$|[,;。!?])|我|[您你])|转告|[:：]\W*\w"
    r"|\b(?:tell\w*|inform\w*|say\w*|remind\w*) (?:(?:him|her|them|your|the) (?:\w+ )?)?that\b"
)
_FROM = r"(?:数据|资料|信息)?(?:来源|来自|出处|sources?|from)"
SOURCE = re.compile(  # in brackets or in a line of its own: (source: table drugs)
    rf"[(（【\[] ?{_FROM}\W{{1,3}}([^()（）【】\[\]\n.。!！?？;；:：\d]{{1,40}})[)）】\]]"
    rf"|^[^\w\n]{{0,8}}{_FROM}[^\w\n]{{0,4}}[:：]([^\n.。!！?？;；:：\d]{{1,60}})$",
    re.I | re.M,
)
KEEPS = re.compile(  # what a quote is from
    r"\b(?:tables?|database|records?|sheet|leaflet|label|manual|handbook|guide|page|site|website|catalog(?:ue)?|document|files?"
    r"|entry|book|journal|report|dataset|encyclop\w+|wiki\w*|pharmacopoeia)\b"
    r"|表|库|书|百科|手册|指南|目录|文献|药典|网站?|档案|记录|文件|页面|资料$"
)
LEADS = re.compile(
    rf"{ADVISES.pattern}|{SENDS.pattern}|\b(?:if|when|before|after|for|as|this|these)\b|[如若当以具在的]"
)
NOTICE = re.compile(  # what it is that follows
    r"^\W*(?:(?:温馨|友情|特别|重要)?(?:提[示醒]|说明|声明)|请?注意(?:事项)?|备注|note|notice|reminder|tip|disclaimer|important)"
    r"\W*[:：]"
)
FIXES = re.compile(  # the answer itself: "should I say rye?"
    r"\b(?:say|(?<!would )be(?! (?:useful|helpful|interesting))|mean|answer\w*|count|call|take|put"
    r"|add(?! (?:the|an?|more)\b)|make it|correct|fix|change"
    r"|replace|redo|recheck|re-?run|verify|confirm|double)\b"
    r"|(?<!是不)(?<!您)是(?![否不])|[改换填写选指重叫]|说(?!明)|(?<!解)答|当作|算[作成]|核[实对]|确认"
)
NAME = re.compile(r"\b(?!I\b)[A-Z][\w-]*")
DOUBTFUL = {"if", "or", "about", "could", "may", "哪", "可以", "如果", "或", "疑", "?"}  # as every offer may be
CHOICE = re.compile(
    r"要不要|是不是|是否|不清楚|不明白|不懂|进1步|前\d+|\btop \d+|1[张份下]|\binstead(?=\?)"
    r"|\b(?:csv|excel|json|pdf|sql)\b",
    re.I,
)  # and in what form


COMPARED_YEAR = re.compile(
    r"\bcompare\w*(?: \w+){0,4} (?:to|with|and|against) (?:19|20)\d\d\b|[和与跟](?:19|20)\d\d年.{0,6}[比对]"
)


def cut_offers(answer: str, numbers: Set[str] = frozenset()) -> tuple[str, str]:
    """An answer without the offers at its end, and these; `numbers` may stand in them."""
    pieces, offers = _pieces(answer), list[str]()
    while len(pieces) > 1 and (not pieces[-1].strip(" *_\n") or _is_offer(plain(pieces[-1]), numbers)):
        offers.append(CHOICE.sub(" ", pieces.pop().strip(" *_\n")[1:]))
    return "".join(pieces), "\n".join(offers)


def without_offers(answer: str, tells: Callable[[str], bool]) -> str:
    """An answer without offers and advice, but where they are what it `tells`, or have a name that nothing else has."""
    first, *others = _pieces(answer)
    is_free = [(_is_offer(said := plain(one)) or _is_advice(said)) and not tells(one) for one in others]
    known = {*NAME.findall(" ".join([first, *(one for one, free in zip(others, is_free, strict=True) if not free)]))}
    is_new = [not {*NAME.findall(one.strip(" *_\n")[1:])} <= known for one in others]
    return first + "".join(one for one, free, new in zip(others, is_free, is_new, strict=True) if not free or new)


def without_sources(answer: str, tells: Callable[[str], bool]) -> str:
    """An answer without the notes of what a quote is from, where these are names and nothing else."""

    def kept(note: re.Match[str]) -> str:
        said = plain(note[1] or note[2])
        is_claim = DENIALS.search(said) or DOUBTS.search(said) or ADDRESSES.search(said) or tells(said)
        return " " if KEEPS.search(said) and not is_claim else note[0]

    return SOURCE.sub(kept, answer)


def _pieces(answer: str) -> list[str]:
    return PIECE.findall(ASIDE.sub("。", answer)) or [answer]


def _is_offer(said: str, numbers: Set[str] = frozenset()) -> bool:
    bare = CHOICE.sub(" ", said)
    bare = re.sub(r"(?<=[a-z] )1\b(?!\d)", " ", bare)  # each one
    bare = COMPARED_YEAR.sub(" ", bare) if "?" in said else bare
    may_act = (OPENS.search(said) and not STATES.search(said)) or (
        ADDRESSES.search(said) and ("?" in said or ACTS.search(said))
    )
    is_own = may_act and not TELLS.search(said) and not FIXES.search(bare)
    return (
        bool(is_own)
        and not ({*re.findall(r"\d+", bare)} - numbers or DENIALS.search(bare))
        and {*DOUBTS.findall(bare)} <= DOUBTFUL
    )


def _is_advice(said: str) -> bool:
    """Whether a sentence sends the reader to somebody, or to the source."""
    said = NOTICE.sub("", said)
    is_sent = SENDS.search(said) and ADVISES.search(said) and not (TELLS.search(said) or REPORTS.search(said))
    return (
        bool(is_sent)
        and all(map(LEADS.search, re.split("[,;，；]", said.rstrip(",.;。 "))))
        and not re.search(r"\d", said)
        and {*DOUBTS.findall(said)} <= DOUBTFUL | {"before", "after", "whether"}
    )
