"""What an answer asserts, and what it only mentions: questions, refuted hearsay, permissions, other subjects.

Guarantees: pure functions on normalised text, linear in its length. They see marks on the surface, a question mark or
"谣言" for example; irony, and a refutation in words that are not listed, they do not see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from sql_agent.offline_judge.normal import HAN
from sql_agent.offline_judge.text import clauses, mask, tokens, weight

Sentence = list[tuple[str, str]]

ASKING = re.compile(r"[吗呢]$|^(?:是不是|是否|难道|莫非|有没有)")
# Words that take back the sentence in which they stand: false, made up, turned round, withdrawn, none of them.
REFUTING = re.compile(
    r"谣言|误(?:以为|认为|传|解|导|植|读)|虚[构假]|捏造|编造|杜撰|假的|骗人|臆[想测造]|想象|幻想|子虚乌有|胡[说扯编]"
    r"|不(?:实|属实|符|成立|对|可信|准确|正确)|(?:不要|别|勿)相?信|有误|错误|错的|说错|过时|作废"
    r"|[说弄搞写]反|反了|反面|反例|颠倒|推翻|驳[斥倒]|辟谣|站不住|对不上|删[去除掉]|剔除|划[去掉]|撤回|收回|取消|废止|不再(?:适用|有效)"
    r"|[毫查]无(?:根据|依据|实据|此事)|无(?:根据|依据)|[没无]有?一[个项种条样款]|一[个项种条样款][也都][不没]"
    r"|\b(?:myth|untrue|false|wrong|incorrect|outdated|hoax|rumou?rs?|fiction|debunked|refuted)\b"
)
# Words of one who does not commit himself: naming what may be and what may not be must not pay.
HEDGING = re.compile(
    r"也许|或许|兴许|说不[定准好]|拿不准|吃不准|无法确定|不确定|要么|再不然|[若不]是[^;。]{1,12}[就便]是"
    r"|可能(?:不|没|未|都不|两者都不|二者都不)|\b(?:maybe|perhaps?|not sure|either way)\b"
)
# One thing or another: where one of them is made up, none is said.
ALTERNATIVES = re.compile(
    r"(?:也|还|又)有?可能[是为]|可能属于|[;,、]或者?[是为]|\bor (?:maybe|possibly)\b|\b(?:it|this) (?:could|might) be\b"
)
PERMITTING = re.compile(
    r"(?<![不禁勿未])(?:(?:可以?|能够?)(?:放心|安全|正常|照常)?(?:地)?(?:使用|服用|应用|用于|用|服)"
    r"|放心|适(?:用于|合)|允许|推荐|鼓励|提倡|优先|没有任?何?禁忌|无任?何?禁忌|安全(?:使用|服用)|(?:很|都|最|较|更|非常|完全|绝对|十分)安全|安全的|首选|[效果疗]{2}[最更很]?[好佳]|无妨|无碍|照[用吃服])"
    r"|\b(?:safe(?:ly)?|feel free|(?:can|may) be used|suitable|allowed|recommended)\b"
)
# What follows such words is the opposite of what is said: "not 2 but 1", "1 and not 2".
INSTEAD = re.compile(
    r"(?:不是|并非)([^;。,而]{1,24}?)[;,]?而是|与其说[是]?([^;。,]{1,24}?)[;,]?不如说[是]?|[;,]?而(?:不是|并?非)([^;。,:]{1,24})"
)
NOTHING_ELSE = re.compile(r"[没无]有?(?:第\d+[种个项条]|其[他它余]|别的|更多)[^;。,:!?\n]{0,8}")
# What a drug is for, who must not get it, what else it does: how a question asks, and how an answer says it.
KINDS = (
    (
        re.compile(r"适应[症证]|适用|用途|主治|(?<![禁忌慎不勿])用于|治疗?(?:什么|哪)|\bindicat|\bused (?:for|to)\b"),
        re.compile(
            r"适应[症证]|适用于|主治|(?:用于|用来|可以?|能够?)治疗|缓解|防治|减轻|改善|消除"
            r"|\bindicat|\btreats?\b|\bused (?:for|to)\b|\brelie(?:ve|f)|\bcures?\b|\bimprov"
        ),
    ),
    (re.compile(r"禁|忌|\bcontraindicat"), re.compile(r"禁忌|禁用|忌用|\bcontraindicat")),
    (
        re.compile(r"不良反应|副作用|副反应|\badverse|\bside effect"),
        re.compile(r"不良反应|副作用|副反应|引起(?!的)|诱发(?!的)|加重|\badverse|\bside effect|\bcauses?\b"),
    ),
)
DIRECTIONS = (
    re.compile(r"增加|升高|增强|加重|延长|\bincreas|\brais"),
    re.compile(r"减少|降低|减弱|减轻|缩短|\bdecreas|\breduc|\blower"),
)
FIELD = re.compile(
    r"(.{2,24}?)的(?:典型|主要|常见)?(?:适应[症证]|适用范围|主要用途|用途|用法|用量|剂量|不良反应|副作用|禁忌|禁用|忌用|注意事项|用药|须知|相互作用"
    r"|合用|药理|作用|机制|成分|组分|剂型|分类|类别|简介|贮藏|储存|保存|存放|规格|包装|生产|厂家|概述|症状|临床|表现|病因|起因|发病"
    r"|诊断|鉴别|检查|治疗|并发症|预防|预后|流行)"
)
# The stems of international drug names in Chinese, at the end of a name that opens a clause or stands in its label.
DRUG = re.compile(
    rf"{HAN}{{1,6}}?(?:霉素|沙星|地平|洛尔|普利|沙坦|他汀|拉唑|替丁|西林|双胍|列酮|列汀|列净|西泮|唑仑|康唑|替尼|单抗|诺酯)"
)
# Heads of sections and groups of people are no subjects of their own.
GENERIC = re.compile(
    r"说明|补充|提示|总结|结论|建议|备注|参考|标准|正确|如下|以下|记载|提醒|首先|其次|最后|方面|部分|数据|查询|结果"
    r"|^\d+种|成人|儿童|小儿|老人|老年|孕妇|妇女|女性|男性|患者|病人|人群|者$|两|二者|各自|该|此|本|这|那|它|其|答|问|第[一二三]"
)


def sentences(text: str) -> Iterator[Sentence]:
    """The clauses of each sentence, with the marks that end them."""
    sentence: Sentence = []
    for clause, end in clauses(text):
        sentence.append((clause, end))
        if not end or end in "。!?\n":
            yield sentence
            sentence = []


def asks(sentence: Sentence) -> bool:
    """True for a question: it asserts nothing."""
    clause, end = sentence[-1]
    return end == "?" or ASKING.search(clause.strip()) is not None


def refutes(unexplained: str) -> bool:
    """True when words that no phrase of reference or evidence explains take back what is said."""
    return REFUTING.search(unexplained) is not None


def hedges(unexplained: str) -> bool:
    """True when such words leave open whether it is so."""
    return HEDGING.search(unexplained) is not None


def other_kind(unexplained: str, *, asked: str) -> bool | None:
    """True when the words tell of another kind of thing than was asked for ("禁用于" where uses are), False when of the
    same, None when of none."""
    wanted = [pattern for kind in KINDS if kind[0].search(asked) for pattern in kind]
    if not wanted:
        return None
    if any(pattern.search(unexplained) for pattern in wanted):
        return False
    return True if any(says.search(unexplained) for _, says in KINDS) else None


def turns_question_round(unexplained: str, *, asked: str) -> bool:
    """True when such words say the opposite of what was asked for: what lowers, where the question is what raises."""
    for up, down in (DIRECTIONS, DIRECTIONS[::-1]):
        if up.search(asked) and not down.search(asked) and down.search(unexplained) and not up.search(unexplained):
            return True
    return False


def names_alternatives(unexplained: str) -> bool:
    """True when such words name something else that it may be."""
    return ALTERNATIVES.search(unexplained) is not None


def without_contrast(text: str, *, is_said: Callable[[str], bool]) -> str:
    """`text` without what it only sets itself off from ("not X but ...", "and nothing else").

    An X for which `is_said` is true stays: to deny a fact is no contrast.
    """

    def cut(match: re.Match[str]) -> str:
        denied = next(group for group in match.groups() if group is not None)
        return match[0] if is_said(denied) else ";"

    return NOTHING_ELSE.sub(" ", INSTEAD.sub(cut, text))


def permits(unexplained: str) -> bool:
    """True when such words allow something, which denies a contraindication."""
    return PERMITTING.search(unexplained) is not None


def other_subject(clause: str, *, is_label: bool, known: Sequence[str], asked: str) -> bool:
    """True when a clause tells of a subject that is not `known`: "X的禁忌", or the label "X:".

    A part or an abbreviation of a known name is known, and so is what contains one (盐酸 before a drug's name), a slip
    of the pen too.
    """
    named = [match[1].strip() for match in FIELD.finditer(clause)]
    drug = DRUG.search(clause) if is_label else DRUG.match(clause.strip())
    name = drug[0].rpartition("的")[2] if drug else ""
    if (
        name
        and name not in asked
        and not any(k in name or _abbreviates(name, k) or _abbreviates(k, name) for k in known)
    ):
        return True
    if is_label and not named and mask(clause, asked).strip() == clause.strip():
        named = [clause.strip()]
    return any(_is_strange(name, known=known, asked=asked) for name in named)


def other_subject_of_field(clause: str, *, asked: str) -> bool:
    """True when a clause tells of "X的症状" where the question asks for the same field of something else."""
    return any(
        clause[match.end(1) : match.end()] in asked and _is_strange(match[1].strip(), known=(), asked=asked)
        for match in FIELD.finditer(clause)
    )


def _is_strange(name: str, *, known: Sequence[str], asked: str) -> bool:
    name = re.split(r"[、()\[\]\"'“”\s]|(?<=[和与及或说])", name)[-1]
    if not name or GENERIC.search(name) or not (re.search(HAN, name) or name.isascii()):
        return False
    if name in asked or any(k in name or _abbreviates(name, k) for k in known):
        return False
    return weight(tokens(name)) >= 3 and weight(tokens(mask(name, asked))) >= 2


def _abbreviates(short: str, name: str) -> bool:
    """True when the characters of `short` come in this order in `name`, its first one first."""
    rest = iter(name)
    return short[:1] == name[:1] and all(char in rest for char in short)
