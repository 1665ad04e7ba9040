"""Text tools of the offline judge: cutting into clauses and items, comparing words, and what counts as a contradiction.

Guarantees: pure functions on normalised text, linear in its length except `asked_runs` (length x question).
Not covered: word segmentation. A Chinese character is a token, and `FILLER` lists what says nothing.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

from sql_agent.offline_judge.normal import HAN

CLAUSE_END = re.compile(r"[;。!?\n]|(?<!\d)[.:,]|[.:,](?!\d)")
ITEM_END = re.compile(
    rf"[、()\[\]{{}}|<>=\"'“”‘’《》「」【】…—]+|(?<={HAN})[ \t]+(?={HAN})|(?<=[a-z])[ \t]and[ \t](?=[a-z])"
)
NUMBER = re.compile(r"\d+(?:\.\d+)?")
TOKEN = re.compile(r"\d+(?:\.\d+)?|[a-z]+|[^\W\d_a-z]|[%°+∅]")
# 非 alone begins names (非诺贝特): in running text it negates only within these words.
# Words that say "hardly" or "spared" deny as well; answers may mix languages.
FOREIGN_NOT = (
    r"\b(?:not?|never|without|cannot|neither|nor|none)\b|n't\b|(?:では|じゃ)(?:ない|ありません)|ません|しない|아니|않"
)
NEGATOR = re.compile(
    r"[不无未没勿毋否]|[并而绝]非|除外|除了|[以之]外\s*$|错误|难[言说]|极少|很少|鲜[有少见]|免[于受]|何[必须]|"
    rf"很小|极小|不大|微乎其微|忽略不计|\b(?:except|false|wrong|hardly|far from)\b|{FOREIGN_NOT}"
)
NEGATING_SIGN = re.compile(rf"[不无非未没勿毋否]|难[言说]|极少|很少|{FOREIGN_NOT}")
# Words with a negating character that deny nothing.
LEXICAL = re.compile(
    r"不(?:良|全|足|适|稳|宁|孕|育|规则|仅|但|过|同|断|久|慎|详|等|少|一)|无(?:论|菌|力|水)|未来|没错|是否|能否"
)
OPPOSITES = re.findall(
    r"(\S+)/(\S+)",
    "升/降 高/低 增/减 加/减 亢/减 强/弱 急/慢 轻/重 左/右 禁/慎 禁/可 慎/可 避免/鼓励 宜/忌 快/缓 缩/张 缩短/延长 "
    "内/外 深/浅 粗/细 长/短 多/少 单/双 早/晚 前/后 上/下 已/未 阴性/阳性 正常/异常 良好/不良 停/继续 睡前/晨起 有/无 "
    "预防/治疗 抑制/激活 抑制/激动 抑制/兴奋 抑制/促进 阻断/激动 阻断/激活 阻滞/开放 拮抗/激动 排除/纳入 住院/门诊 "
    "increase/decrease increased/decreased high/low acute/chronic left/right upper/lower",
)
EITHER_WAY = re.compile(  # "降低或升高": both sides are no side
    "|".join(rf"{x}\w?(?:或者?|还是|\bor\b){y}" for a, b in OPPOSITES for x, y in ((a, b), (b, a)))
)
# What answers say around the facts. Words with a negating character stay out, unless they deny nothing.
FILLER = """
经查询 经检索 经查 据查 据记载 原文 写道 写到 写着 序号 编号
您好 你好 谢谢 感谢 根据 依据 按照 查询 检索 数据库 结果 显示 记录 记载 资料 信息 数据 可知 得知 可以 能够 如下
以下 下列 上述 以上 包括 包含 含有 主要 常见 一般 通常 有关 关于 对于 其中 分别 具体 所以 因此 总之 综上 所述 即
分为 可分为 属于 列出 名称 内容 通过 适用于 适合 用于 可用于 治疗 临床上 临床 出现 引起 可引起 导致 可能 还有
以及 并且 而且 从而 进而 同时 另外 此外 例如 比如 等等 情况 方面 相关 患者 药品 药物 药 疾病 该药 本药 该病
符合条件 条件 共有 一共 总共 共计 合计 共 计 种 个 款 项 条 类 禁用于 禁用 忌用 适应症 适应证 适用范围 主要用途
用途 用法用量 用量 用法 服用方法 不良反应 副作用 禁忌症 禁忌 注意事项 药物相互作用 相互作用 药理作用 作用机制
成分 剂型 分类 类别 简介 贮藏 储存 保存 规格 包装 生产企业 厂家 概述 症状 临床表现 表现 病因 原因 诊断依据
诊断标准 诊断 鉴别诊断 检查项目 检查 治疗方法 治疗方案 并发症 预防措施 预防 预后 流行病学 希望 帮助 帮到 您 请问
至于 答案 回答 请 在 的 地 得 了 是 为 有 和 与 及 或 也 还 又 都 均 可 能 会 将 对 由 从 来 使 中 里 它 其他
其它 其 这 那 该 此 被 把 而 则 等 如 呢 吗 啊 吧 到 后 时 各 每个 两者 二者 两药 2种药 2种药物 本品 的人 同样
使用 服用 说明书 做到 放在 置于 不仅 不但 仅 只 一种
"""
ENGLISH_FILLER = """
the a an of is are was were be for and or to in on with as it its this that these those has have include includes
including according database query result results shows following answer used use uses treat treatment drug drugs
disease diseases indication indications there total hello please note may can also such by from respectively
patient patients contraindicated contraindication contraindications
"""
FILLER_RUN = re.compile(
    "|".join(
        [
            *(re.escape(word) for word in sorted(FILLER.split(), key=len, reverse=True)),
            rf"\b(?:{'|'.join(ENGLISH_FILLER.split())})\b",
        ]
    )
)


NEGATING_CHARS = frozenset("不无非未没勿毋否")
NEGATED_TOKENS = 4  # how far a "not" reaches
# What may stand in place of one another without changing what is said.
FUNCTION = frozenset(
    "要需须应宜得致就才也再还且很较更最常易会能可以将把被使让令由因为而并与和及或的地了着过在于对向从到时者等其该此"
)


@functools.lru_cache(maxsize=8192)
def tokens(text: str) -> tuple[str, ...]:
    """Numbers, Latin words and single Chinese characters."""
    return tuple(TOKEN.findall(text))


def weight(words: Iterable[str]) -> int:
    """A Chinese character weighs 1, a number or a Latin word 2 (about what they say)."""
    return sum(2 if word.isascii() and word.isalnum() else 1 for word in words)


def grams(words: Sequence[str]) -> set[tuple[str, ...]]:
    """Bigrams; a single token stands for itself."""
    return {(word,) for word in words} if len(words) == 1 else set(pairwise(words))


def share(part: Sequence[str], whole: Sequence[str]) -> float:
    """Share of the bigrams of `part` that occur in `whole`, in [0, 1]."""
    wanted = grams(part)
    found = wanted & ({(word,) for word in whole} | set(pairwise(whole)))
    return len(found) / len(wanted) if wanted else 0.0


@functools.lru_cache(maxsize=8192)
def content(text: str, asked: str = "") -> tuple[str, ...]:
    """The tokens that say something: without the question's words, filler and function words; all where none do."""
    told = tuple(word for word in tokens(mask(text, asked)) if word not in FUNCTION)
    return told or tokens(text)


def covered(part: Sequence[str], whole: Sequence[str]) -> set[int]:
    """The places of `part` whose word stands in `whole` too: a number, a Latin word, or two characters in a row.

    Each stands for one: what `part` says more often than `whole` is not found again.
    """
    words, pairs = Counter(whole), Counter(pairwise(whole))
    found: set[int] = set()
    for i, word in enumerate(part):
        if words[word] > 0 and (len(part) == 1 or (word.isalnum() and word.isascii())):
            words[word] -= 1
            found.add(i)
    for i, pair in enumerate(pairwise(part)):
        if pairs[pair] > 0:
            pairs[pair] -= 1
            found |= {i, i + 1}
    return found


def cover(part: Sequence[str], whole: Sequence[str]) -> float:
    """The share of `part`, by weight, that `covered` finds, in [0, 1]."""
    return weight(part[i] for i in covered(part, whole)) / weight(part) if part else 0.0


def clauses(text: str) -> Iterator[tuple[str, str]]:
    """Each clause with the mark that ends it ("" at the end of the text)."""
    start = 0
    for match in CLAUSE_END.finditer(text):
        yield text[start : match.start()], match[0]
        start = match.end()
    yield text[start:], ""


def items(clause: str) -> list[str]:
    """What an enumeration lists; pieces without a token are left out."""
    return [item.strip() for item in ITEM_END.split(clause) if tokens(item)]


def denies(text: str) -> bool:
    """True when a word of `text` negates."""
    return NEGATOR.search(LEXICAL.sub(" ", text)) is not None


def mask(text: str, asked: str) -> str:
    """`text`, of the same length, with the question's words and filler blanked."""
    masked = mask_asked(text, asked)
    # Both in the text as it is and in what is left of it: the question's "药" must not leave half of "药品" behind.
    for match in FILLER_RUN.finditer(text):
        masked = blank(masked, *match.span())
    return FILLER_RUN.sub(lambda match: " " * len(match[0]), masked)


def mask_asked(text: str, asked: str) -> str:
    """Blank what `asked_runs` finds."""
    for start, end in asked_runs(text, asked):
        text = blank(text, start, end)
    return text


def blank(text: str, start: int, end: int, sign: str = " ") -> str:
    """`text`, of the same length, with text[start:end] replaced by `sign`."""
    return text[:start] + sign * (end - start) + text[end:]


@functools.lru_cache(maxsize=8192)
def asked_runs(text: str, asked: str) -> list[tuple[int, int]]:
    """(start, end) of the longest runs of tokens that the question has too; a single Chinese character is no run."""
    spans = [match.span() for match in TOKEN.finditer(text)]
    words = [text[a:b] for a, b in spans]
    source = "\0" + "\0".join(tokens(asked)) + "\0"
    runs, start = [], 0
    while start < len(words):
        end = start
        while end < len(words) and "\0" + "\0".join(words[start : end + 1]) + "\0" in source:
            end += 1
        if weight(words[start:end]) >= 2:
            runs.append((spans[start][0], spans[end - 1][1]))
        start = max(end, start + 1)
    return runs


def core(text: str, asked: str) -> str:
    """`text` without what carries no information at its ends: words of the question, filler."""
    masked = mask(text, asked)
    start, end = len(masked) - len(masked.lstrip()), len(masked.rstrip())
    return text[start:end]


def agree(fact: str, claim: str, asked: str) -> bool:
    """False when a claim that resembles a fact contradicts it: other numbers or names, a flipped "not", an opposite."""
    ours, theirs = tokens(fact), tokens(claim)
    chinese = re.search(HAN, fact) is not None
    exact = {w for w in theirs if w[0].isdigit() or (chinese and w.isascii() and w.isalpha())} - set(tokens(asked))
    units = {(a, b) for a, b in pairwise(theirs) if a in exact and a[0].isdigit()}
    if not exact <= set(ours) or not units <= set(pairwise(ours)):
        return False
    if _negations(fact, claim) != len(NEGATING_SIGN.findall(claim)) or _moves_negation(fact, claim):
        return False
    return not _opposes(fact, claim) and not swaps_words(fact, claim)


def _negations(fact: str, claim: str) -> int:
    """How many "not" of the fact the claim needs as well: not those whose words it leaves out."""
    said = set(pairwise(tokens(claim)))
    negated = [tokens(fact[match.end() :])[:NEGATED_TOKENS] for match in NEGATING_SIGN.finditer(fact)]
    return sum(len(words) < 2 or bool(said & set(pairwise(words))) for words in negated)


def _moves_negation(fact: str, claim: str) -> bool:
    """True when one says "not" of words that the other says as well, without it."""
    return _negates_what_is_said(fact, claim) or _negates_what_is_said(claim, fact)


def _negates_what_is_said(one: str, other: str) -> bool:
    return bool((_negated(one) & set(pairwise(content(other)))) - _negated(other))


def _negated(text: str) -> set[tuple[str, ...]]:
    """The two words after each "not"."""
    return {content(text[match.end() :])[:2] for match in NEGATING_SIGN.finditer(text)}


def contradicts(fact: str, claim: str) -> bool:
    """True when a claim is about the same as a fact but for its numbers, a "not" or an opposite."""
    fact, claim = LEXICAL.sub(" ", fact), LEXICAL.sub(" ", claim)
    flipped = len(NEGATING_SIGN.findall(fact)) != len(NEGATING_SIGN.findall(claim)) or _opposes(fact, claim)
    ours, theirs = _without_numbers(fact), _without_numbers(NEGATING_SIGN.sub(" ", claim))
    other_numbers = {w for w in tokens(claim) if w[0].isdigit()} - set(tokens(fact))
    alike = weight(theirs) >= 4 and share(theirs, ours) >= 0.6 and share(ours, theirs) >= 0.25
    return alike and (flipped or bool(other_numbers))


def has_variant(fact: str, text: str) -> bool:
    """True when `text`, without the fact itself, says it with another number: "25mg/片" for "50mg/片"."""
    parts = NUMBER.split(fact)
    if len(parts) < 2 or weight(tokens("".join(parts))) < 2:
        return False
    return re.search(rf"(?<![\d.]){NUMBER.pattern.join(map(re.escape, parts))}(?![\d.])", text) is not None


def _without_numbers(text: str) -> tuple[str, ...]:
    return tuple(w for w in tokens(mask(text, "")) if not w[0].isdigit())


@functools.lru_cache(maxsize=8192)
def swaps_words(fact: str, claim: str) -> bool:
    """True when the claim puts other words in a place of the fact: "与地高辛合用" for "与华法林合用".

    Words that are added, left out or moved are no swap, nor are function words and filler; `agree` counts the "not"s.
    """
    ours, theirs = tokens(mask(fact, "")), tokens(mask(claim, ""))
    same = FUNCTION | NEGATING_CHARS
    gone, new = set(ours) - set(theirs) - same, set(theirs) - set(ours) - same
    for tag, a, b, c, d in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if tag == "replace" and gone & set(ours[a:b]) and new & set(theirs[c:d]):
            return True
    return False


def _opposes(fact: str, claim: str) -> bool:
    if EITHER_WAY.search(claim) and not EITHER_WAY.search(fact):
        return True
    return any(_opposed(fact, claim, a, b) or _opposed(fact, claim, b, a) for a, b in OPPOSITES)


def _opposed(fact: str, claim: str, here: str, there: str) -> bool:
    return here in fact and there not in fact and there in claim and here not in claim


def whole_words(text: str, start: int, end: int) -> bool:
    """False when text[start:end] cuts a number or a Latin word in two (3 in 13, 5 in 0.5)."""
    left, right = text[max(0, start - 2) : start], text[end : end + 2]
    if text[start].isdigit() and re.search(r"[a-z]$|\d\.?$", left):
        return False
    if text[end - 1].isdigit():
        return re.match(r"\.?\d", right) is None
    is_latin = text[start].isascii() and text[start].isalpha()
    ends_latin = text[end - 1].isascii() and text[end - 1].isalpha()
    return not (is_latin and re.search(r"[a-z]$", left)) and not (ends_latin and re.match(r"[a-z]", right))


def stands_free(masked: str, text: str, start: int, end: int) -> bool:
    """True when no unexplained word touches text[start:end]: "偏头痛" does not tell of "头痛".

    `masked` is `text` with all that is explained blanked.
    """
    left, right = start - 1, end
    if text[start].isascii():  # words of Latin script touch across a space, but not across a word that is explained
        while left >= 0 and text[left] in " \t":
            left -= 1
        left = left if left >= 0 and re.match("[a-z]", masked[left]) else start - 1
    if text[end - 1].isascii():
        while right < len(text) and text[right] in " \t":
            right += 1
        right = right if right < len(text) and re.match("[a-z]", masked[right]) else end
    beside = [masked[left : left + 1] if left >= 0 else "", masked[right : right + 1]]
    return not any(TOKEN.match(char) and char not in FUNCTION for char in beside)
