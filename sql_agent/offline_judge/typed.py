"""Typed answers: where the truth is a number, a date, yes or no, a name or a list of them, in a sentence of any words.

An answer is read clause by clause. One that tells the truth may hold a few other words; each other clause must be a
frame (whence it is known, courtesy, the question again). Another value, another name, an alternative, a doubt, a denial
make it wrong. Guarantees: pure functions, linear in the text. Not covered: a doubt in words of no list.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from os.path import commonprefix
from typing import Literal

from faker.providers.person.zh_CN import Provider

from sql_agent.offline_judge.asides import Asked, cut_asides, explained, without_numbers, without_question
from sql_agent.offline_judge.columns import asked_for
from sql_agent.offline_judge.doubts import DENIALS, DOUBTS, FREE, NO, SOURCE, TALK, TITLES, YES
from sql_agent.offline_judge.foreign import SENTENCE_END, is_foreign
from sql_agent.offline_judge.lexicon import Lexicon, spell, tokens
from sql_agent.offline_judge.normal import SYMBOL_OF
from sql_agent.offline_judge.offers import cut_offers
from sql_agent.offline_judge.periods import without_period
from sql_agent.offline_judge.rivals import has_other_of_series, is_told_of_another
from sql_agent.offline_judge.sections import ORDER, Cell, parts
from sql_agent.offline_judge.slots import (
    ASKED as ASKED_FOR,
)
from sql_agent.offline_judge.slots import (
    COMPARES,
    PASSIVE,
    SAME,
    is_exchanged,
    is_form,
    is_other_kind,
    is_other_way,
    is_rivalled,
    is_turned,
    opposites,
    stem,
)
from sql_agent.offline_judge.tables import is_swapped, is_torn
from sql_agent.offline_judge.units import in_unit, unit_of
from sql_agent.offline_judge.values import ABBREVIATED, DATE, MONTH, MONTHS, NUMBER, SCALES, TIME, plain
from sql_agent.offline_judge.words import PHRASES, phrases
from sql_agent.records import AnswerType
from sql_agent.words.meanings import is_chinese_verb, is_chinese_word, one_sense, same_meaning

MAX_CHARS, MAX_HAN, MAX_WORDS, MAX_ITEMS = 60, 24, 6, 30  # of a truth; longer ones are no values
SPARE_MENTIONS = 3  # beyond twice each
MAX_ITEM_WORDS, MAX_ITEM_TOKENS = 3, 8  # of a list within a cell
COMMA, LISTED = re.compile(r"、|, (?=[a-z])"), re.compile(r"、|, (?:and )?(?=[a-z])| and (?=[a-z])")
NOT_TRUTH = re.compile(r"\b(?:not|never) (?:[a-z]+ly )?(?:(?:the|an?|on|in|by|at|for) )*#|(?:不是|并非|[不非没])#")
AROUND, MAX_NAME = 4, 12  # unknown words (a Chinese character is half a one) around a yes or a no
FLAGS = {"1": True, "y": True, "t": True, "0": False, "n": False, "f": False}
YES_WORDS, NO_WORDS = {"yes", "true", "是", "是的", "对"}, {"no", "false", "否", "不是", "不对"}
ASKS_YES_NO = re.compile(
    r"^(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should)\b|[吗否]|(.)[不没]\1|没有[?？]?$", re.I
)
SEPARATOR = re.compile(r"\s*(?:[,;、，；\n|]|\band\b|和|以及)\s*", re.I)
CLAUSE_END = re.compile(r"(?<!\d)[,:]|[,:](?!\d)|[;。!?\n、|()—–/→>]|(?<!\d)\.|\.(?!\d)| - |--")
MEASURE = re.compile(rf"{NUMBER.pattern}(?: percent)?(?: ?[^\W\d]{{1,9}}| ?[\u4e00-\u9fff]{{1,3}})?")
STOP = re.compile(r"[;；。：？！\n]|[!?:](?![!-~]|$)|(?<![!-~])[!?:]")
MARK = re.compile(r"(?<![\w./-])(\d{1,2})[.)](?=[^\W\d])")  # of an item
MARKED = re.compile("[✅✔☑👉🎉📊📅🏆🔍💡📝📌😊🙂]\ufe0f? ?|</?answer>")  # says nothing
ENDS = re.compile(r"(?<=[^\s\d] )(\d[\d,.:/-]*)\.(?=\s+[^\W\d])")  # a number that ends a sentence
JOINT = r"\s*(?:and|&|plus|as well as|以及|还有|加上|[和与及跟])\s*(?:the )?"
JOINED = re.compile(rf"\|{JOINT}\?+(?!\?|\s*\|)|^[^|]*\?{JOINT}\|")
LAST = re.compile(rf"#(?:{JOINT}|[\s,;:、]*)(\d[\d.]*)$")  # a number at an answer's end
OTHER = r"[^\W\u4e00-\u9fff]"  # a letter of no Chinese word, or a digit
WORD_WITHIN = re.compile(rf"(?<![.!?:–—|>-] )(?<!^)(?<![\n\"“*>(])(?<!{OTHER})(?![\d_]){OTHER}+")  # a line or sentence
PAIR = re.compile(rf"(?<!{OTHER})([A-Z](?:{OTHER}|-)*) (?=([A-Z](?:{OTHER}|-)*))")
SECONDS = re.compile(r"(\d\dh\d\d)m\d\d")  # which may be left out
YEAR = re.compile(r"(?<![\d.,-])(?:19|20)\d\d(?![\d.,])")
DAY_EN = re.compile(  # without its year
    rf"\b(?:(?:{MONTH}) (?:the )?\d{{1,2}}(?:st|nd|rd|th)?|\d{{1,2}}(?:st|nd|rd|th)? (?:of )?(?:{MONTH}))\b(?!,? ?\d)",
    re.I,
)
DAY_ZH = re.compile(r"(?<![\d年])(?<![\d年] )\d{1,2}月\d{1,2}[日号]")
DAYS = f"monday tuesday wednesday thursday friday saturday sunday sql {' '.join(MONTHS)}"
# Blanks between Chinese words: 蓝色 绿色
HEAPED = re.compile(r"(?<=[\u4e00-\u9fff])[\"”*+^]{0,3}[ \t]{1,4}[\"“*+^]{0,3}[ \t]{0,4}(?=[\u4e00-\u9fff])")
SIGN = re.compile("[❌❎✖✗✘⛔🚫👎]|(?:[≠¬]|!=) ?#")  # that judges a truth, or bounds a number
NUMBER_SIGN = re.compile(rf"{SIGN.pattern}|[<>≤≥±√]=? ?#")
NOT_HAN = re.compile(r"[^\W\u3400-\u9fff]|[^\w\s]")
LACKS = re.compile(r"\b(?:lack\w*|missing|without|closed?|shut|yet to)\b|[缺闭]")  # as good as a denial
OR = re.compile(r"# (?:or|nor) (?:the |an? )?#|#或者?#")
# Doubts only beside a truth: "under the direction of", "boarded or left".
NEAR = {"or", "或", "about", "around", "over", "under", "between", "above", "below", "before", "after"}
SIZES = {"about", "around", "over", "under", "between"}  # in what is told beside a yes or a no
AT_TRUTH = re.compile(rf"(?:\b(?:{'|'.join(NEAR)}) (?:the |an? |some )*|或者?|^或)[#\d]|# *(?:or\b|或)|^(?:or\b|或)")
SENTENCE = re.compile(r"[.。!;\n]|,(?=[^\x00-\x7f])")
UNSCALED = re.compile(r"(?<!\d)(?<!\d )(thousand|million|billion|[万亿])")
WHICH_DAY = re.compile(r"哪1?[天日](?!.*[点时])|\b(?:what|which) da(?:y|te)\b(?!.*\btime\b)")  # and no time of it
WAY = re.compile(r"(?:\bfrom |[从由])(\w+?)( to |[到至])(\w+)")  # of an order, or of a journey
NONE = re.compile(  # is 0, of what the question counts: no "no idea"
    r"(?:\b(?:none|no|nobody|not (?:a single|any|one))\b(?: of (?:the|its|them)\b)?"
    r"|1[^\d\s]?[也都]没有?|没有?(?:.{0,4}任何|1[^\d\s])) ?([a-z]+|[\u4e00-\u9fff]{0,2})"
)
NOTHING = {"none", "nothing", "no", "nobody", "无", "没有"}  # as a truth: the query found no row
FOUND_NO = re.compile(r"^.{0,60}\b(?:found|finds?|shows?|lists?) (?=no\b)")
EMPTY = re.compile(
    r"\b(?:no|0) (?:matching )?rows?\b|\bempty\b|没有?(?:返回|查询?到)(?:任何)?(?:记录|结果|数据)?|(?:结果|返回)为?空"
)
FEW = re.compile(r"\bnot (?:many|much|all|every|only|enough|quite)\b|不[多都全只]|没有?(?:多少|几)")
SINGLE = re.compile(r"\b(?:a|one|1) (?:single|sole)\b")
YEAR_MONTH = re.compile(r"(\d{4})(?:-|年)(\d{1,2})月?")
FALLS = r"(?:\b(?:lost|fell|fall|drop|decrease|decline|down|fewer|less|reduc)|[减少降跌])[^\d,.;。\n]{0,24}?"
SHARE = re.compile(
    r"(?<!\d)(?<!\d\.)(\d{1,9}) (?:out of|in|of(?: the)?) (?:every )?(\d{1,9})(?!\.?\d)"
    r"|(?<!\d)(\d{1,9})分之(\d{1,9})|每(\d{1,9})[^\d,;。]{1,8}[里中]有?(\d{1,9})"
)
ONLY = re.compile(r"\b(?:only|just|sole(?:ly)?)\b|(?<!\d)只|仅|唯1")  # of a part of a list
ASKS_NAME = re.compile(r"\b(?:who(?:m|se)?|which)\b|[哪谁]")
COPULA = re.compile(r"[是为叫由].?$")
DENIED = re.compile(
    r"(?:[不没未无]有?|\b(?:not?|without|never) (?:have |had )?(?:an? |any |the )?)([\u4e00-\u9fff]{2}|[a-z]{3,})"
)
ASKED = re.compile(r"[#哪谁几何怎吗呢]|什么|多少钱?|是否|(.)[不没]\1")
OF_TRUTH = re.compile(  # somebody else: "her brother"
    r"# s (?!the\b|an?\b|in\b)(\w+)"
    r"|(?:[由被]|的[^\W\d]{1,4}[是为])#+的(学生|徒弟|老师|师[父傅]|[儿孙]子|女儿|妻子|丈夫|[哥弟]{2}|[姐妹]{2}|父亲|母亲|朋友|助[手理]|同[事学]|对手)"
)
CHANGE = re.compile(r"\bstart\w* (?:at|from) #|[涨降增减升跌省][加少了长]{0,2}#")  # of a number, or where it begins
OTHER_RANK = re.compile(r"(?:\b(?:former|deputy|vice|acting|interim|ex)[ -]|副|前任)([a-z]+|[\u4e00-\u9fff]{2})")
RANK = re.compile(
    r"\b(?:came|comes?|finish\w*|plac\w+|rank\w*|is|was|were) (?:in )?(?:the )?(second|third|fourth|fifth)\b"
)
TIMES = "年月日天季度份周期次场"
DEFINITE = ("这", "该", "本", "此", "其")
SURNAMES = {*list(Provider.last_names)[:100]}  # the most frequent ones
ROUNDED = {"about", "around", "approximately", "roughly", "约", "大约", "左右"}
IS_ROUNDED = re.compile(r"(?:\b(?:about|around|approximately|roughly)|约)[ =:]{0,2}\d|\d[^\d,;。]{0,6}左右")
BOUNDS = (  # how a question asks for a bound itself, not for something of the largest one, and how an answer says it
    (
        r"^what(?: is|'s| was)? the (?:max(?:imum)?|most)\b|^how \w+(?: \w+){0,2} can\b|\bat most\W*$"
        r"|上限(?:是|为)?多少|最[多大高](?!的)[^的,，。]{0,8}[多几]",
        r"\b(?:at most|up to|not? more than)\b|不[得能可]?超过|[至最]多",
    ),
    (
        r"^what(?: is|'s| was)? the min(?:imum)?\b|\bat least\W*$"
        r"|下限(?:是|为)?多少|最[少小低](?!的)[^的,，。]{0,8}[多几]",
        r"\b(?:at least|not? less than)\b|不[得能可]?低于|至少|起码",
    ),
    (r"\bdeadline\b|\bdue\b|截止|最晚", r"\b(?:not? later than|at the latest)\b|最[晚迟]|不[晚迟]于"),
)
LIMITS = (  # of what a question speaks of
    r"\b(?:(?:more|longer|greater|higher|larger|older|later|taller|heavier|bigger|further|deeper) than|over|above"
    r"|exceed(?:s|ing|ed)?|after)|超过|[高大多长晚]于|逾|过了",
    r"\b(?:(?:less|fewer|shorter|lower|smaller|younger|earlier|cheaper) than|under|below|before)"
    r"|[低小少短早]于|不到|不足|未满",
    r"\b(?:at least|not? (?:less|fewer|lower|younger) than|or more|from)|至少|不[低小少]于|起码",
    r"\b(?:at most|not? more than|up to)|至多|不[高大多]于|不超过",
)
NOT = re.compile(r"(.)[不没]\1|没有?(?=[?？]?$)")  # of a question that offers both
POLITE = re.compile(r"^(is|are|was|were|do|does|did|has|have|had|can|could|will|would|should) not\b")  # isn't it?
NEGATIVE = re.compile(r"\b(?:not|never)\b|没(?=有)|从[不未]|(?<=是)不(?!是)")  # of what is asked
LEAD = re.compile(rf"(?![有没])(?:{YES.pattern}|{NO.pattern})")
ASIDE_ZH = re.compile(r"[^\W_]、[^\W_]{1,3}、(?=[\u4e00-\u9fff])")
TWICE_DENIED = re.compile(r"\b(?:not|never) (?:been |being )?not\b|(?:并?不是|并[非不]|没有?|从?[不未])[不未没]有?")
ASIDES = re.compile(
    r"^after [a-z]+ing\b|\bnot only\b|不[仅但光]|\b(?:that|this|the same) (?:day|night|date|week|month|year|time)\b"
    r"|[当那同][天日月年]|任何"
)
UNSAYING = frozenset(["any", "ever", "会", "曾", "过", "着"])  # words of a sentence that says no more by them
SO = re.compile(
    r"^(?:(?:and|so|that|then|therefore) )*"
    r"(?:(?:the )?(?:final )?(?:answer|result|conclusion) is |(?:答案|结果|结论)[是为])?"
)
MAY = re.compile(r"\bmay (?!be|have|not|or)")  # beside a yes or a no, a permission
WEEKDAY_ZH = re.compile(r"(周|星期|礼拜)([1-6日天])")
ASKS_MONTH = re.compile(r"\bmonth\b|几月|哪[1个]*月|月份")
SINCE = re.compile(r"\b(?:in|since|from) (?:19|20)\d\d\b|(?:19|20)\d\d年")
SHORT_DAYS = {"mon", "tue", "tues", "wed", "thu", "thurs", "fri", "sat", "sun"}
RANKS = ("first", "second", "third", "fourth")
QUARTER = re.compile(r"q([1-4])")
SUPERLATIVE = re.compile(r"\b(?:[a-z]{2,}est|most|top|best|worst)\b|最")
IMPERATIVE = re.compile(r"(?:please|see|check|refer|请[查参])\b")
DENIES = re.compile(rf"(?:{DENIALS.pattern})(?:有|是|的)?$")
KNOWN_NAMES = {*f"{DAYS} sep sept oct nov dec the jan feb mar apr jun jul aug celsius fahrenheit".split(), *SHORT_DAYS}
KNOWN_NAMES |= {f"{day}s" for day in DAYS.split() if day.endswith("day")}
WORDS = frozenset(spell(one) for one in [*FREE.split(), *TITLES.split()])
COMMON = [*f"{FREE} {TITLES}".split(), *phrases(f"{TALK} {PHRASES}")]
COURTEOUS = WORDS | {*map(spell, COMMON)}
FRAME = Lexicon(COMMON)
COUNTS = re.compile(r"\bhow many (?!percent)|[多几]少?[个名位只台辆条本件]")  # no share
KIND_OF_NAME = re.compile(r"\bthe ([a-z]+) (?=[\"'“‘«]?[A-Z])")  # the planet Mars
TITLED = re.compile(rf"^(?:(?:{'|'.join(one for one in TITLES.split() if one.isascii())})(?:\. ?| ))+")


@dataclass(frozen=True)
class Truth:
    """What an answer has to say: values in the canonical form; `rows` is what stands together, the question's too."""

    kind: AnswerType
    values: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...] = ()
    columns: tuple[str, ...] = ()
    is_ordered: bool = False


def kind_of_cells(question: str, cells: Sequence[Cell]) -> AnswerType | Literal[""]:
    """What the cells that a query found are, by number, column and form; "" where they are no values."""
    cells = _itemised(asked_for(question, cells, is_yes_no=ASKS_YES_NO.search(question) is not None))
    texts = [plain(cell.text) for cell in cells]
    if not texts or len(texts) > MAX_ITEMS or not all(_is_value(cell.text) for cell in cells):
        return ""
    if len(texts) > 1:
        return "list" if ORDER.search(plain(question)) else "set"
    if texts[0] in YES_WORDS | NO_WORDS or (texts[0] in FLAGS and ASKS_YES_NO.search(question)):
        return "yes_no"
    return _form(texts[0])


def kind_of_texts(question: str, reference: str, evidence: Sequence[str]) -> AnswerType | Literal[""]:
    """The same by the form of reference and quotes, which in Chinese are texts but for numbers and dates."""
    asked = plain(question)
    cells = [one for one in evidence if spell(plain(one)) not in spell(asked)]
    read = asked.isascii() or all(re.fullmatch(rf"{NUMBER.pattern}|{DATE.pattern}|{TIME}", plain(one)) for one in cells)
    if cells and read and all(spell(plain(one)) in spell(plain(reference)) or not reference for one in cells):
        values = list(dict.fromkeys(cells))
    else:
        values = _split(reference) if not re.search(r"[:：。\n!?]|\.\s", reference) else []
    is_han = re.search("[\u4e00-\u9fff]", "".join(values)) and not {*values} & (YES_WORDS | NO_WORDS)
    is_listed = any("\n" in plain(value).strip() for value in values)  # a cell of several lines is a text
    if not values or is_listed or not all(map(_is_value, values)) or (is_han and (len(values) > 1 or evidence)):
        return ""
    return kind_of_cells(question, [Cell(value) for value in values])


def is_value(*, question: str, reference: str, evidence: Sequence[str]) -> bool:
    """Whether the truth is by its form a value, or a few of them, that the question leaves open."""
    kind = kind_of_texts(question, reference, evidence)
    return bool(kind and truth_of(question, reference, [Cell(text) for text in evidence], kind))


def truth_of(question: str, reference: str, cells: Sequence[Cell], kind: AnswerType) -> Truth | None:
    """The values of this kind in cells or reference; None where they are none, or stand in the question."""
    asked, wanted = plain(question), asked_for(question, cells, is_yes_no=kind == "yes_no")
    wanted = _itemised(wanted) if kind in ("list", "set") else wanted
    cells = wanted if len(wanted) >= len(cells) else _without_places(cells, wanted)
    columns = tuple(plain(column.replace("_", " ")) for column in dict.fromkeys(cell.column for cell in cells))
    by_row: dict[str, list[str]] = {}
    for cell in cells:
        by_row.setdefault(cell.row, []).append(_bare(plain(cell.text)))
    values = [_bare(plain(cell.text)) for cell in wanted]
    values = [value for value in values if kind == "yes_no" or spell(value) not in spell(asked)]
    said = spell(plain(reference))
    if not values or (reference and not all(spell(value) in said for value in values)):
        texts = [plain(reference)] if kind in ("number", "date", "yes_no", "name") else _split(reference)
        values, by_row = [_bare(text) for text in texts if text], {}
    if kind == "yes_no":
        read = [value for value in values if value in {*YES_WORDS, *NO_WORDS, *FLAGS}]
        values = ["yes" if value in YES_WORDS or FLAGS.get(value) else "no" for value in read]
    elif any(spell(value) in spell(asked) for value in values):
        return None
    fits = {"number": NUMBER.match, "date": DATE.fullmatch}.get(kind, bool)
    if not values or not all(map(fits, values)) or (kind not in ("list", "set") and len({*values}) > 1):
        return None
    ordered = kind == "list" or (kind == "set" and ORDER.search(asked) is not None)
    return Truth(kind, tuple(values), tuple(map(tuple, by_row.values())), columns, ordered)


def typed_value(truth: Truth, *, question: str, answer: str, is_quoted: bool = False) -> float:
    """What the answer earns: 1 or 0, of a list or a set F1 of what it names. Where the truth may be one that
    `is_quoted` as a text, nothing more may be told beside it."""
    asked = plain(question)
    answer = _with_year(MARKED.sub("\n", without_question(answer, question)), asked)
    answer = _without_offer(answer, question)
    answer = HEAPED.sub("、", answer) if truth.kind in ("name", "set") else answer
    if is_foreign(answer, " ".join([question, *truth.columns, *truth.values, *sum(truth.rows, ())])):
        return 0.0
    about = _asked_for(truth, asked, plain(answer))
    whole, answer = answer, answer if truth.kind == "yes_no" or is_quoted else cut_asides(answer, about)
    known = [*truth.columns, *truth.values, *sum(truth.rows, ())]
    is_strange = _strange_names(answer, asked, known)
    said = plain(answer)
    if truth.kind == "yes_no":
        names = "|".join(re.escape(one).replace(r"\ ", "[_ ]") for one in truth.columns if one) or "$^"
        verdict = rf"(?<![a-z0-9_])(?:{names})(?: ?[=:]| is| was|[是为]) ?(?:(1|yes|true|是)|0|no|false|否)(?!\w)"
        said = re.sub(verdict, lambda m: "\nyes\n" if m[1] else "\nno\n", said)  # (survived = 1)
        is_told = _polarity(said, asked) is (truth.values[0] == "yes")
        is_strange &= truth.values[0] == "yes" and _strange_names(SENTENCE_END.split(answer.strip())[0], asked, known)
        return float(is_told and not is_strange and not is_other_kind(asked, said))
    if truth.values[0] in NOTHING and len(truth.values) == 1:
        clauses = ["never" if _is_nothing(one, asked) else one for one in _parts_of(said)]
        is_told = "never" in clauses and _verdict(clauses, asked) is False
        return float(is_told and not is_strange and not is_other_kind(asked, said))
    told = _Told(truth, question, answer, whole, about)
    if len({*truth.values}) == 1:
        said = told.normal(whole)
        if is_told_of_another(said, told.shown(said), asked, about, _capitals(whole)):
            return 0.0
    if not told.order or not told.is_clean or is_strange or told.has_other_amount(whole):
        return 0.0
    wanted = list(dict.fromkeys(truth.values))
    order = [wanted.index(value) for value in told.order[: told.only]]
    again = [b for a, b in zip([len(order), *order], order, strict=False) if b <= a]  # where the list begins
    if len(told.order) > 2 * len({*order}) + SPARE_MENTIONS:
        return 0.0
    lacks = any(NUMBER.match(value) for value in {*wanted} - {*told.order})
    is_short = len({*order}) < len(wanted)
    if is_short and (ONLY.search(told.said) or (ASKS_NAME.search(asked) and all(map(NUMBER.match, told.order)))):
        return 0.0
    if told.is_torn or (lacks and told.spare_numbers) or (truth.is_ordered and any(one != min(order) for one in again)):
        return 0.0
    n = len({*order})
    return 2 * n / (n + len(wanted))


def _asked_for(truth: Truth, asked: str, said: str) -> Asked:
    """What a value is, as far as asides go."""
    forms = Lexicon(form for value in truth.values for form in _forms(value, truth.kind, asked, said))
    is_none = truth.values == ("0",)
    number = NUMBER.match(truth.values[0]) if truth.kind == "number" else None
    shown = _filled(said, forms.read(said)[0], "#")
    own = {one[0] for one in tokens(f"{asked} {' '.join(truth.values)}")}
    return Asked(
        kind=truth.kind,
        tells=lambda text: bool(forms.read(_with_zeros(text, asked) if is_none else text)[0]),
        says=lambda word: _is_said(word, asked),
        number=float(number[0]) if number else None,
        unit="percent" if "percent" in asked else unit_of(asked, truth.values[0], truth.columns),
        content=frozenset(_content(asked)) | {one for one in asked if not one.isascii()},
        has_digit=any(re.search(r"\d", value) for value in truth.values),
        is_superlative=SUPERLATIVE.search(asked) is not None,
        follows=frozenset(re.findall(r"# ?([a-z]+|[\u4e00-\u9fff])", shown)),
        told=said,
        explained=explained(WEEKDAY_ZH.sub(" ", shown), float(number[0]), own) if number else frozenset(),
    )


class _Told:
    """The truths that an answer tells, in order, and whether it says nothing against them."""

    def __init__(self, truth: Truth, question: str, answer: str, whole: str, about: Asked) -> None:
        n, asked = len({*truth.values}), plain(question)
        self._truth, self._asked = truth, asked
        said = self.normal(answer)
        self._forms = {spell(form): value for value in truth.values for form in _forms(value, truth.kind, asked, said)}
        beside = [value for row in truth.rows for value in row if value not in truth.values]
        self._known, self._lexicon = _lexicon("\n".join([asked, *truth.columns, *beside])), Lexicon(self._forms)
        said = without_period(said, asked)
        if truth.kind == "name" and not re.search(r"\d", f"{truth.values[0]}") and not YEAR.search(asked):
            said = SINCE.sub(" ", said)
        said = _without_opposites(without_numbers(said, about.explained), asked, self.shown(said))
        self.said, self._all = said, f"{said} {about.told}"
        columns, self._content = " ".join(truth.columns).split(), _content(asked)
        self._columns = Lexicon(one for one in columns if stem(one) not in self._content)
        self._is_named = truth.kind in ("name", "list", "set")
        first = 1 if self._is_named and not any(map(NUMBER.fullmatch, truth.values)) else n
        numbers = {token[0] for token in tokens(asked)}
        self._beside = {token[0] for value in beside for token in tokens(value) if NUMBER.fullmatch(token[0])}
        self._numbers = numbers | {token[0] for value in beside for token in tokens(value)}
        self._numbers |= {str(place) for place in range(first, n + 1)}
        self._count = re.compile(rf"(?<=[共有这们#]){n if self._is_named else 'x'}[^\W\d]?(?![\d.])")
        self.order: list[str] = []
        self.only = MAX_ITEMS  # how many of them the answer says are all
        self._doubted = {*DOUBTS.findall(asked.rstrip("?？")), *_denials(asked)}
        self._doubted |= ROUNDED if truth.kind == "number" and re.search(r"\.\d\d", truth.values[0]) else set()
        self._is_negative = bool(_denials(asked))
        self._denied = DENIED.findall(LACKS.sub(" no ", asked))
        self._capitals = _capitals(answer)
        self._names = self._capitals | _capitals(question)
        self._spare = frozenset(KIND_OF_NAME.findall(question))
        is_active = re.match(r"(?:who|which [a-z]+) ", asked) and not PASSIVE.search(asked)
        self._orders = [asked, *([ASKED_FOR.sub("#", asked)] if is_active and truth.kind == "name" else [])]
        self._gone, self._topics = _unsaid(asked, said), self._topics_of(asked)
        capital = {spell(plain(word)).strip() for word in re.findall(r"\b[A-Z][\w-]*", answer)}
        self._is_capital = all(one[0].isdigit() or {*spell(one).split()[:1]} <= capital for one in truth.values)
        self.is_torn = self._is_torn(self.normal(whole))
        is_turned = self._is_negative and any(len(_denials(one)) > 1 for one in SENTENCE.split(said))  # and so have one
        money = (" ".join(["", *re.findall("[$€£]", text)]) for text in (question, answer))  # no part of plain numbers
        is_turned |= is_other_kind(
            " ".join([asked, *truth.columns]) + next(money), (shown := self.shown(said)) + next(money)
        )
        is_turned |= n == 1 and is_rivalled(self._forms, asked, said)
        is_turned |= has_other_of_series(said, asked, truth.values)
        asks = re.search(r"[?？]|(?<!#)\.\.|\.{3}|…", shown) is not None
        asks |= (NUMBER_SIGN if truth.kind == "number" else SIGN).search(shown) is not None
        pairs, told = ([*pairwise(["", *spell(text).split()])] for text in (asked, shown))
        same = {one for one in pairs if one[0] not in _words()}  # above 30
        told = Counter(b for a, b in told if NUMBER.fullmatch(b) and b in numbers and (a, b) not in same)
        self.spare_numbers = {*(told - Counter({row[0] for row in truth.rows}))}  # of the question, and of no row
        clean = [self._is_clean(one, leads=leads) for one, leads in self._clauses(said, shown)]
        ends = self.spare_numbers & {*LAST.findall(shown.rstrip(".。、 "))}
        self.is_clean = not (asks or ends or is_turned or _turns(asked, said)) and all(clean)

    def normal(self, answer: str) -> str:
        """An answer in the normal form, with the value as the question asks for it."""
        truth, n = self._truth, len({*self._truth.values})
        answer = ENDS.sub(r"\1;", answer) if n == 1 else answer
        said = MARK.sub(lambda m: "\n" if int(m[1]) <= n > 1 else m[0], plain(answer))
        said = _with_zeros(said, self._asked) if truth.values == ("0",) else said
        said = SINGLE.sub(" 1 ", said) if truth.values == ("1",) else said
        said = _as_asked(said, self._asked, truth)
        asked = f"{self._asked} {truth.columns}"
        return _without_percent(said, asked, truth.values[0]) if truth.kind == "number" else said

    def has_other_amount(self, answer: str) -> bool:
        """Whether an answer tells another amount beside a truth than its row has there."""
        said = re.sub(rf"{DATE.pattern}|{TIME}", " ", self.shown(self.normal(answer)))
        known = {number.lstrip("-") for one in self._numbers for number in NUMBER.findall(one)}
        is_open = self._is_named and bool(self._beside)
        return is_open and any(one.lstrip("-") not in known for one in NUMBER.findall(said))

    def shown(self, said: str) -> str:
        """The text with # for its truths."""
        return _filled(said, self._lexicon.read(said)[0], "#")

    def _clauses(self, said: str, shown: str) -> list[tuple[str, bool]]:
        """Each clause, and whether it leads to one that tells a truth. No mark within a truth ends one."""
        ends = [*CLAUSE_END.finditer(shown)]
        places = zip([0, *(m.end() for m in ends)], [*(m.start() for m in ends), len(said)], strict=True)
        pieces = [(said[a:b].strip(), shown[b : b + 1], "#" in shown[a:b]) for a, b in places]
        kept = [one for one in pieces if one[0]]
        tells = [*(tells for *_, tells in kept), False]
        return [
            (one, tells[n + 1] and (end == ":" or (end == "\n" and True not in tells[:n])))
            for n, (one, end, _) in enumerate(kept)
        ]

    def _is_torn(self, said: str) -> bool:
        """Whether values of one row of a table are told of another's, or of another column."""
        rows, torn = self._truth.rows, is_torn
        if len(rows) == 1:
            forms = [_form(value) for value in rows[0]]  # a number is not exchanged with a name
            pairs = [*zip(self._truth.columns, rows[0], strict=False)]
            pairs = [(a, b) for a, b in pairs if b in self._truth.values and forms.count(_form(b)) > 1]
            same = {name: [one for word in tokens(name) for one in SAME.get(word[0], ())] for name, _ in pairs}
            for name in same:  # by what tells it apart: "retired" for "retired on"
                others = {word[0] for other in same if other != name for word in tokens(other)}
                same[name] += [word[0] for word in tokens(name) if len(word[0]) > 3 and word[0] not in others]
            rows, torn = [(head, b) for a, b in pairs for head in (a, *same[a])], is_swapped  # largest for max
        if len(rows) < 2 or max(map(len, rows)) < 2:
            return False
        heads = {row[0] for row in rows}
        of = {spell(value): (value, frozenset(r[0] for r in rows if value in r)) for row in rows for value in row}
        asked, told = (
            [(*of[word], of[word][0] in heads) for *_, word in Lexicon(of).read(text)[0]]
            for text in (self._asked, said)
        )
        own = {word for word, _, is_heading in told if is_heading}
        if torn is is_torn and own and any(under and not under & own for _, under, is_head in told if not is_head):
            return True
        named = [one for one in asked if one[2]]  # where the answer names none, the question's order counts
        is_bare = all(not is_heading and under & {one for one, *_ in named} for _, under, is_heading in told)
        return is_torn([*named, *told]) if is_bare and not self._truth.is_ordered else torn(told)

    def _is_clean(self, clause: str, *, leads: bool) -> bool:
        """`leads`: the clause stands before a colon or a line's end, and the next one tells a truth."""
        found, _ = self._lexicon.read(clause)
        self.order += [self._forms[word] for *_, word in found]
        self.only = min(self.only, len(self.order)) if found and ONLY.search(clause) else self.only
        filled = _filled(clause, found, "#")
        rest = self._count.sub(lambda m: " " * len(m[0]), filled).replace("#", " ")
        courtesy, unknown = self._known.read(rest)
        unknown = [(a, b) for a, b in unknown if not (rest[a:b].isascii() and _content(rest[a:b]) <= self._content)]
        polite = [one for one in FRAME.read(rest)[0] if one[2].count(" ") > 3]  # "if you need anything else"
        is_heap = self._is_named and not self._truth.is_ordered and found
        is_heap = is_heap and not any(map(str.isalnum, "".join(one for *_, one in courtesy)))
        is_heap = is_heap and any(NOT_HAN.search(DOUBTS.sub(" ", rest[a:b])) for a, b in unknown)
        is_joined = JOINED.search(_filled(_filled(rest, found, "|"), unknown, "?"))  # "A and B" where only A is true
        said = _filled(filled, self._columns.read(filled)[0])  # a column's name is no other thing
        affirms = not _denials(clause) and any(one in clause for one in self._denied)  # what the question denies
        return not (
            self._is_doubted(_filled(filled, polite))
            or is_heap
            or (is_joined and (self._is_named or rest.isascii()))
            or _renames(self._asked, filled)
            or (found and affirms)
            or (found and is_exchanged(self._asked, said, self._all, self._spare))
            or (found and self._names and any(is_turned(one, filled, self._names | {"#"}) for one in self._orders))
            or any(token[0] not in self._numbers and re.search(r"\d", token[0]) for token in tokens(rest))
            or (self._is_named and not found and unknown and not (leads or self._is_beside(clause, rest, unknown)))
            or self._is_other(_filled(rest, found, "#"), courtesy, unknown, found[0][0] if found else 0)
        )

    def _is_beside(self, clause: str, rest: str, unknown: Sequence[tuple[int, int]]) -> bool:
        """Whether a clause that tells no truth tells a number of its row, or says whence one is known."""
        has_number = any(token[0] in self._beside for token in tokens(rest))
        return (has_number and not self._capitals & {*rest.split()}) or self._is_source(clause, rest, unknown)

    def _is_source(self, clause: str, rest: str, unknown: Sequence[tuple[int, int]]) -> bool:
        """Whether a clause that tells no truth says whence one is known, or what it is about: no further item."""
        if clause.isascii() and self._is_capital:
            return not any({*rest[start:end].split()} & self._capitals for start, end in unknown)
        is_topic = not any(COPULA.search(rest[:start]) for start, _ in unknown)
        is_topic = is_topic and (not self.order or clause.startswith((*DEFINITE, "它", "他", "她")))
        return bool(SOURCE.search(clause)) or (is_topic and bool(self._topics & self._topics_of(clause)))

    def _topics_of(self, clause: str) -> set[str]:
        pairs = {clause[n : n + 2] for n in range(len(clause) - 1)}
        return _content(clause) if clause.isascii() else {one for one in pairs if not one.isascii()}

    def _is_doubted(self, clause: str) -> bool:
        """Whether a clause, with # for the truths, doubts or denies more than the question does."""
        clause = _without_limits(clause, self._asked)
        for asks, says in BOUNDS:
            clause = re.sub(says, " ", clause) if re.search(asks, self._asked) else clause
        denials = {*_denials(clause)} - self._doubted
        if self._is_negative:  # "have no room" of who lacks one; without a truth or that word it denies the answer
            is_asked = "#" in clause or any(stem(word) in clause for word in self._denied)
            is_asked &= not NOT_TRUTH.search(clause)
            denials = set[str]() if is_asked else {*DENIALS.findall(clause)}
            clause = OR.sub("# #", clause.replace("not find", ""))
        doubts = {*DOUBTS.findall(clause)} - (NEAR if not AT_TRUTH.search(clause) else set())
        theirs = {stem(word) for words in OF_TRUTH.findall(clause) for word in words if word}
        is_another = self._truth.kind == "name" and not theirs <= self._content
        is_another |= any(m[1] in self._asked and m[0] not in self._asked for m in OTHER_RANK.finditer(clause))
        ranks = {*RANK.findall(clause)} - {*RANK.findall(self._asked)}
        is_another |= bool(ranks) and "#" in clause and len(self._truth.rows) == 1
        is_change = CHANGE.search(clause) and not re.search(r"\bstart|[涨降增减升跌省]", self._asked)
        is_else = is_another or ("# percent" in clause and COUNTS.search(self._asked))
        return bool(denials or doubts - self._doubted or is_else or (is_change and self._truth.kind == "number"))

    def _is_other(
        self, rest: str, known: Sequence[tuple[int, int, str]], unknown: Sequence[tuple[int, int]], first: int
    ) -> bool:
        """Whether something unknown looks like a value, or is a name in the place of one that the question has and the
        answer does not say: before the same words, or as the subject. Chinese has no capitals: a value's last character
        or a surname tells a value."""
        gone, following = self._gone
        ends = {end for start, end, _ in known if end - start > 1}
        for start, end in unknown:
            text, behind, before = rest[start:end], rest[end:].lstrip(), rest[:start].rstrip()
            if "\u4e00" <= text[-1] <= "\u9fff" and not before.endswith(DEFINITE):
                begins = not before or (before[-1] != "的" and len(before) in ends)
                is_gone = following and following in before and before[-1] not in TIMES  # who it is was left out
                is_first = begins and not is_gone and (start, end) == unknown[0] and rest[end:first].strip()
                is_told = behind[:1] not in (*"是为上里中",) or (not start and behind[:1] == following[:1])
                is_there = (is_first and is_told) or (following and behind.startswith(following))
                is_like = self._is_named and any(_alike(text, one) for one in self._truth.values)
                is_longer = self._is_named and end == first and COPULA.search(before) and not is_chinese_word(text)
                if len(text) > 1 and (
                    (gone and is_there) or is_like or (is_longer and len(text) < 4 and "的" not in text)
                ):
                    return True
        return False


def _without_offer(answer: str, question: str) -> str:
    """An answer without the offers at its end; with a new name one stays."""
    rest, offers = cut_offers(answer, frozenset(re.findall(r"\d+", question)))
    return rest if _capitals(offers) <= _capitals(f"{rest} {question}") | KNOWN_NAMES else answer


def _with_year(answer: str, asked: str) -> str:
    """An answer whose days of no year are of the one that the question names."""
    if len(years := {*YEAR.findall(asked)}) != 1:
        return answer
    year = years.pop()
    return DAY_ZH.sub(rf"{year}年\g<0>", DAY_EN.sub(rf"\g<0>, {year}", answer))


def _without_limits(clause: str, asked: str) -> str:
    """A clause without the limits that the question sets too, in other words: "more than 24" for "longer than 24"."""
    for limit in LIMITS:
        numbers = [match[1] for match in re.finditer(rf"(?:{limit}) ?(\d[\d.]*)", asked)]
        for number in numbers:
            clause = re.sub(rf"(?:{limit}) ?(?={re.escape(number)}(?![\d.]))", " ", clause)
    return clause


def _denials(text: str) -> list[str]:
    """What denies in a text; what is closed or lacking is denied."""
    return DENIALS.findall(LACKS.sub(" no ", text))


def _alike(text: str, value: str) -> bool:
    is_person = 1 < len(value) < 4 and value[0] in SURNAMES
    return len(value) > 1 and (text[0] in SURNAMES if is_person else text[-1] == value[-1])


def _capitals(text: str) -> set[str]:
    words = [spell(plain(word)) for word in re.findall(r"\b[A-Z][\w-]*", text)]
    return {word.strip() for word in words if word not in COURTEOUS and not re.search(r"\d", word)}


def _unsaid(asked: str, said: str) -> tuple[str, str]:
    """What the question begins with and the answer does not say, and the two characters behind; for Chinese alone."""
    asked = re.sub(r"^(?:请问|谁是|谁为|[请把按在])+", "", asked)
    told = spell(said)
    _, gone = Lexicon(part for part in parts(asked) if spell(part) in told).read(asked)
    if asked.isascii() or not gone or gone[0][0] or not 2 <= gone[0][1] <= MAX_NAME:
        return "", ""
    ends = re.search(r"[是有的在于由为]", asked[2 : gone[0][1]])
    end = 2 + ends.start() if ends else gone[0][1]
    return asked[:end], asked[end : end + 2]


def _with_zeros(said: str, asked: str) -> str:
    """A text with 0 for each clause that says that there is none of what the question counts."""
    said = NONE.sub(lambda m: _zero(m, asked), said)
    ends = [0, *(end.end() for end in CLAUSE_END.finditer(said)), len(said)]
    clauses = [(said[a:b], said[a:b].strip(" \n.:;,、。")) for a, b in pairwise(ends)]
    return "".join(
        one.replace(clause, " 0 ") if clause and len(clause) > 2 and _is_nothing(clause, asked) else one
        for one, clause in clauses
    )


def _zero(match: re.Match[str], asked: str) -> str:
    counted = match[1]
    is_asked = stem(counted) in _content(asked) if counted.isascii() and counted else counted in asked
    return f" 0 {counted}" if is_asked else match[0]


def _is_nothing(clause: str, asked: str) -> bool:
    """Whether a clause says that what the question asks for is not there, or that a query found none."""
    clause = FOUND_NO.sub("", clause)
    if EMPTY.search(clause):
        return not DOUBTS.search(clause) and not FRAME.read(EMPTY.sub(" ", clause))[1]
    is_denied = DENIALS.search(clause) and not FEW.search(clause)
    return bool(is_denied) and _verdict([f",{clause}"], asked) is False  # what denies is no answer by itself


def _as_asked(said: str, asked: str, truth: Truth) -> str:
    """A text with what it tells in another way of a number: one in eight for 12.5 percent, in its own unit, a fall."""
    first = truth.values[0]
    value = NUMBER.match(first)
    if truth.kind != "number" or len({*truth.values}) > 1 or not value:
        return said
    if re.search(r"percent|百分|\bpct\b", " ".join([asked, first, *truth.columns])):
        share = float(value[0]) * (100 if abs(float(value[0])) <= 1 and "." in value[0] else 1)
        said = SHARE.sub(lambda m: f" {share:.10g} percent " if _is_share(m, share) else m[0], said)
    if value[0][0] == "-":
        said = re.sub(rf"({FALLS})(?={value[0][1:]}(?![.\d]))", r"\1 -", said)
    return in_unit(said, unit_of(asked, first, truth.columns), asked)


def _is_said(word: str, asked: str) -> bool:
    """Whether a question says a word in any form, or a part of a Chinese one."""
    if word.isascii():
        return any(is_form(word, one[0]) for one in tokens(asked) if one[0].isascii() and len(one[0]) > 2)
    return any("".join(pair) in asked for pair in pairwise(word))


def _without_percent(said: str, asked: str, value: str) -> str:
    """A text without the value where it is a share and told as if it were one of a hundred: 0.9 is no 0.9 %."""
    is_share = value.startswith("0.") and not re.search(r"percent|百分|\bpct\b", f"{asked} {value}")
    return re.sub(rf"(?<![\d.]){re.escape(value)} percent", " ", said) if is_share else said


def _is_share(match: re.Match[str], percent: float) -> bool:
    part, whole = (int(match[n] or 0) for n in ((1, 2) if match[1] else (4, 3) if match[3] else (6, 5)))
    return bool(whole) and abs(100 * part / whole - percent) < 1e-6


def _turns(asked: str, said: str) -> bool:
    """Whether "from A to B" of the question became "from B to A", or "B first" did."""
    said = said.replace("至", "到")
    if any(SUPERLATIVE.fullmatch(b) and f"{b} first" in asked for _, _, b in WAY.findall(said)):
        return True
    ways = [(a, to.replace("至", "到"), b if to == " to " else b[: len(a)]) for a, to, b in WAY.findall(asked)]
    return any(a != b and f"{b}{to}{a}" in said for a, to, b in ways)


def _renames(asked: str, clause: str) -> bool:
    """Whether a Chinese clause begins as the question does, but for a part of the first name: 桂花小学 for 桐花小学."""
    asked, clause = re.sub(f"#[{TIMES}]", "#", ASKED.sub("#", asked.rstrip("?"))), re.sub("#+", "#", clause)
    words, told = (["^", *(token[0] for token in tokens(text)), "$"] for text in (asked, clause))
    same = next((n for n, (a, b) in enumerate(zip(words, told, strict=False)) if a != b), 0)
    for n in range(1, MAX_NAME if same else 0):
        gone, new = "".join(words[same : same + n]), "".join(told[same : same + n])
        agree = len(commonprefix([words[same + n :], told[same + n :]]))
        if ASKED.search(gone + new) or gone.isascii() or not agree:
            continue
        is_word = agree < 2 and same > 3 and told[same + n] not in "是在有由为$"  # perhaps another for the same
        if is_word or (agree < 3 and "的" in words[:same]):
            return False
        is_new = not {*new} & {*DEFINITE} and not any(new[i : i + 2] in asked for i in range(max(1, len(new) - 1)))
        is_new = is_new and FRAME.read(new) == ([], [(0, len(new))]) and SYMBOL_OF.get(gone) != new
        is_new = is_new and not same_meaning(*sorted((gone.rstrip("了"), new)))
        return is_new and gone not in clause and bool(FRAME.read(gone)[1]) and same + agree > 2
    return False


@functools.lru_cache(maxsize=1024)
def _lexicon(asked: str) -> Lexicon:
    return Lexicon([*COMMON, *parts(asked), *(match[0] for match in tokens(asked))])


def _filled(text: str, spans: Sequence[tuple[int, int] | tuple[int, int, str]], sign: str = " ") -> str:
    """The text with these spans written over."""
    chars = list(text)
    for start, end, *_ in spans:
        chars[start:end] = sign * (end - start)
    return "".join(chars)


def _weight(text: str) -> float:
    return sum(0.5 if "\u4e00" <= token[0][0] <= "\u9fff" else 1 for token in tokens(text))


def _strange_names(answer: str, asked: str, values: Sequence[str]) -> bool:
    """Whether a capitalised word inside a sentence is neither in the question nor in a value."""
    known = {*re.findall(r"[^\W\u4e00-\u9fff]+", f"{asked} {' '.join(values)} {' '.join(WORDS)}")}
    known |= KNOWN_NAMES | {*TALK.split()}
    answer = ABBREVIATED.sub(r"\1 ", re.sub(r"[*_`]|(?<=\w)['’](?=[A-Z])", "", answer))
    words = [word for word in WORD_WITHIN.findall(answer) if word[0].isupper() and not word.rstrip("s").isupper()]
    known.update(*(spell(value).split() for value in values))
    inner = {one for value in values for one in spell(value).split()[1:]}  # Pine Table for Oak Table
    words += [word for word, behind in PAIR.findall(answer) if spell(plain(behind)).strip() in inner]
    return any({*spell(plain(word)).split()} - known for word in words)


def _without_places(cells: Sequence[Cell], wanted: Sequence[Cell]) -> Sequence[Cell]:
    """Cells without the columns, not asked for, that only count the rows."""
    columns: dict[str, list[str]] = {}
    for cell in cells:
        columns.setdefault(cell.column, []).append(cell.text)
    asked = {cell.column for cell in wanted}
    counts = {name for name, texts in columns.items() if texts == [str(n) for n in range(1, len(texts) + 1)]}
    return [cell for cell in cells if cell.column not in counts - asked]


def _itemised(cells: Sequence[Cell]) -> Sequence[Cell]:
    """Cells; of one that holds a list, as "nausea, headache and rash", its items."""
    text = cells[0].text if len(cells) == 1 else ""
    items = [item.strip() for item in LISTED.split(text)] if COMMA.search(text) else []
    is_list = all(0 < len(item.split()) <= MAX_ITEM_WORDS and len(tokens(item)) <= MAX_ITEM_TOKENS for item in items)
    return [replace(cells[0], text=item) for item in items] if items and is_list else cells


def _is_value(cell: str) -> bool:
    """Whether a cell is short, or a title (half of the words have a capital), and has no mark that ends a sentence but
    at its end or within a word (a URL)."""
    text, words = plain(cell), cell.split()
    most = MAX_HAN if re.search("[\u4e00-\u9fff]", text) else MAX_CHARS
    is_short = len(words) <= MAX_WORDS or 2 * sum(word[0].isupper() for word in words) >= len(words)
    return 0 < len(text) <= most and is_short and not STOP.search(cell.strip())


def _form(value: str) -> AnswerType:
    return "date" if DATE.fullmatch(value) else "number" if MEASURE.fullmatch(value) else "name"


def _split(reference: str) -> list[str]:
    whole = plain(reference).strip(" .[]")
    values = [whole] if _form(whole) != "name" else [plain(one).strip(" .[]") for one in SEPARATOR.split(reference)]
    return list(dict.fromkeys(filter(None, values)))


def _bare(value: str) -> str:
    """A value without the titles before it."""
    value = value.strip(" .[]")
    return TITLED.sub("", value) or value


def _forms(value: str, kind: AnswerType, asked: str, said: str) -> list[str]:
    """The ways to say a value: a number without its unit, rounded (see below), a share in percent, what is in millions
    in full; a name with the given one first; a time without seconds, and a day alone where that is asked for."""
    number = NUMBER.match(value)
    is_number = number and (kind == "number" or number[0] == value)
    scales = {SCALES[word] for word in UNSCALED.findall(asked)} if is_number else ()
    in_full = [f"{float(number[0]) * scale:.15g}" for scale in scales] if number else []
    if kind == "number" and number:
        forms = [value, number[0], *in_full]
        decimals = len(number[0].partition(".")[2])
        if decimals > (1 if IS_ROUNDED.search(said) else 3):  # more are rarely written in full
            first = 0 if IS_ROUNDED.search(said) else 1
            forms += [f"{round(float(number[0]), digits):.10g}" for digits in range(first, min(decimals, 5))]
        forms += [f"{float(number[0]) * 100:.10g} percent"] if abs(float(number[0])) <= 1 and "." in number[0] else []
        if ASKS_MONTH.search(asked) and value.isdecimal() and 1 <= int(value) <= len(MONTHS):
            forms += [MONTHS[int(value) - 1], MONTHS[int(value) - 1][:3], f"{value}月", f"{value}月份"]
        return forms
    family, comma, given = value.partition(",")  # Curie, Marie
    turned = [f"{given} {family}"] if comma and not re.search(r"[\d,]", family + given) else []
    days = [value[:10]] if DATE.fullmatch(value) and WHICH_DAY.search(asked) else []
    if DATE.fullmatch(value) and value[:10] in said:  # beside which 05/03/1994 may be read
        year, month, day = value[:10].split("-")
        days += [f"{day} {month} {year}", f"{month} {day} {year}"]
    months = _months(month[1], month[2], asked) if (month := YEAR_MONTH.fullmatch(value)) else []
    days += [
        f"{name}{day[2]}" for day in WEEKDAY_ZH.finditer(value) for name in ("周", "星期", "礼拜") if day[0] == value
    ]
    if quarter := QUARTER.fullmatch(value):
        days += [f"{n}{quarter[1]}季度" for n in ("", "第")] + [f"{RANKS[int(quarter[1]) - 1]} quarter"]
    days += [day for day in DAYS.split() if value in SHORT_DAYS and day.startswith(value)]
    marked = [f"{value}s"] if value in DAYS.split() else [f"v{value}"] if re.search("version|版本", asked) else []
    return [value, SECONDS.sub(r"\1", value), *turned, *days, *months, *marked, *in_full]


def _months(year: str, month: str, asked: str) -> list[str]:
    """How to say a month of a year; without the year where the question has it."""
    n, is_told = int(month), re.search(rf"(?<!\d){year}(?!\d)", asked) is not None
    name, both = MONTHS[n - 1] if 1 <= n <= len(MONTHS) else month, (f"{year}-{n:02}", f"{year}-{n}", f"{n}-{year}")
    full = [f"{one} {of}{year}" for one in (name, name[:3]) for of in ("", "of ")]
    han = [f"{year}年{one}月{end}" for one in (n, f"{n:02}") for end in ("", "份")]
    return [*both, *full, *han, *([name, name[:3], f"{n}月", f"{n}月份"] if is_told else [])]


def _polarity(said: str, asked: str) -> bool | None:
    """What the answer says to a question of yes or no; None where it doubts, says both or speaks of something else.
    To a question that denies ("does it never stop?") a yes says the same as a sentence that denies."""
    if re.search(r"[?？]", said):
        return None
    asked = POLITE.sub(r"\1 ", NOT.sub(r"\1", asked))
    for aside in ASIDE_ZH.findall(asked):  # 初二（1）班
        asked, said = (text.replace(aside, aside.replace("、", " ")) for text in (asked, said))
    if not NEGATIVE.search(asked):
        return _verdict(_parts_of(said), asked)
    asked, clauses = NEGATIVE.sub(" ", asked), _parts_of(said)
    facts = [one for one in clauses if not LEAD.fullmatch(one)]
    leads = {not NO.match(one) for one in clauses if LEAD.fullmatch(one)}
    fact = _verdict(facts, asked) if facts else None
    told = leads | ({not fact} if fact is not None else set())
    return None if (facts and fact is None) or len(told) != 1 else told.pop()


def _parts_of(said: str) -> list[str]:
    return [one for one in map(str.strip, CLAUSE_END.split(said)) if one]


def _verdict(clauses: Sequence[str], asked: str) -> bool | None:
    """What the clauses say to a question that denies nothing."""
    verdicts: list[bool] = []
    other_way = [COMPARES.search(asked) is not None and is_other_way(asked, one) for one in clauses]
    clauses = [_without_opposites(one, asked, one) for one in clauses]
    clauses = [_denied(one) if denies else one for one, denies in zip(clauses, other_way, strict=True)]
    said = "\n".join(clauses)
    alone = {found for one in clauses if isinstance(found := _says(one, asked, after=None), bool)}
    for clause, denies in zip(clauses, other_way, strict=True):
        found = _says(clause, asked, after=verdicts[0] if verdicts else None)
        is_no = NO.match(clause) or False in verdicts  # and why, with other words for what is denied
        is_other = not (denies or is_no) and (is_exchanged(asked, clause, said) or is_turned(asked, clause))
        if found == "nothing" and len(alone) == 1 and _is_reason(clause, asked, of=True in alone):
            continue
        if found == "nothing" or _renames(asked, clause) or is_other:
            return None
        verdicts += [found] if isinstance(found, bool) else []
    return verdicts[0] if verdicts and len({*verdicts}) == 1 else None


def _is_reason(clause: str, asked: str, *, of: bool) -> bool:
    """Whether a clause beside a verdict may be why it is so: no doubt, and for a yes no denial of what is asked."""
    is_doubt = {*DOUBTS.findall(clause)} - {*DOUBTS.findall(asked)} - SIZES
    shared = _content(asked) & {stem(token[0]) for token in tokens(clause)}
    return not (is_doubt or (of and shared and (DENIALS.search(clause) or re.search(r"(?<![\d.])0(?![\d.])", clause))))


def _denied(clause: str) -> str:
    """A clause behind its yes or no with a denial more, or one less."""
    lead = YES.match(clause) or NO.match(clause)
    head, rest = (clause[: lead.end()], clause[lead.end() :]) if lead else ("", clause)
    return f"{head} {DENIALS.sub(' ', rest) if DENIALS.search(rest) else f'not {rest}'}".strip()


def _without_opposites(said: str, asked: str, shown: str) -> str:
    """A text with the question's words, denied, for their opposites in what is `shown` of it, and no double denial."""
    for start, end, word in reversed(opposites(asked, shown)):
        said = f"{said[:start].removesuffix('more ')}{'not ' if word.isascii() else '不'}{word}{said[end:]}"
    return TWICE_DENIED.sub(" ", said)


def _says(clause: str, asked: str, *, after: bool | None) -> bool | Literal["frame", "nothing"]:
    """What one clause says: yes, no, whence it is known, or nothing that can be read."""
    courtesy, strange = FRAME.read(clause)
    if len(courtesy) == 1 and not strange and courtesy[0][2].count(" ") > 3:
        return "frame"
    if IMPERATIVE.match(clause):
        return "frame"
    clause = SO.sub("", re.sub("no longer|yet to", "not", clause))
    clause = ASIDES.sub(" ", clause)
    lead = NO.match(clause) or YES.match(clause)
    lead = lead if lead and not asked.startswith(clause[: lead.end() + 1]) else None  # a name's first letters
    rest = clause[lead.end() :] if lead else clause
    if lead or after is not None:
        clause, rest = MAY.sub(" ", clause), MAY.sub(" ", rest)
    rest = re.sub(r" 1$|(?<=了)[上下起出过回进][来去]", "", rest)  # "it has one", 幸存了下来
    denied = bool({*DENIALS.findall(rest)} - {*DENIALS.findall(asked)})
    doubts = {*DOUBTS.findall(clause)} - {*DOUBTS.findall(asked.rstrip("?？"))}
    if doubts - (SIZES if lead or after is not None else set()) or (lead and denied):
        return "nothing"
    said = DENIALS.sub(" ", rest)
    if clause.isascii() and SOURCE.search(clause):
        return "frame"
    content, told = _content(asked), {stem(token[0]) for token in tokens(said)}
    _, spans = _lexicon(asked).read(said)
    strange = [one[0] for a, b in spans for one in tokens(said[a:b]) if stem(one[0]) not in content]
    words = [one[0] for one in tokens(asked) if stem(one[0]) in content]
    known = {*UNSAYING, *AUXILIARIES}
    strange = [one for one in strange if not (one in known or any(one_sense(one, other) for other in words))]
    unknown = sum(map(_weight, strange))
    is_echo = (len(told) > 1 or not said.isascii()) and bool(told) and spell(said) in spell(asked)
    is_frame = not lead and not is_echo and not FRAME.read(said)[1]
    is_done = is_echo and is_chinese_verb(said.strip())  # 招 of one character
    is_statement = (sum(map(_weight, told & content)) >= 1 - is_done / 2 and not is_frame) or bool(
        len(told) <= 3 and told <= _words() and told & AUXILIARIES
    )
    if lead and unknown <= AROUND * is_statement:
        return not NO.match(clause)
    if not lead and denied and len(told) <= 1 and DENIES.search(rest):  # "never", "unfortunately not"
        return False
    if after is False and denied and not lead:
        return "frame"  # the same again
    lacking = [stem(word) for word in re.findall(r"\bno ([a-z]{3,})", clause)]
    if after and lacking and {*lacking} <= {stem(one) for one in strange}:  # free: no booking
        return "frame"
    if after is not None and unknown and not denied and (is_statement or lead) and not NO.match(clause):
        return "frame"  # why it is so
    if not lead and is_statement and not unknown:
        return not denied
    return "nothing" if lead or denied or is_statement or unknown > AROUND else "frame"


def _content(text: str) -> set[str]:
    """What a text speaks of, without the words of any sentence."""
    return {stem(token[0]) for token in tokens(text)} - _words()


@functools.cache
def _words() -> frozenset[str]:
    return frozenset(stem(token[0]) for word in WORDS for token in tokens(word)) | AUXILIARIES | {"not", "no"}


AUXILIARIES = {*map(stem, re.findall(r"\w+", "is are was were do does did has have had can could will would should"))}
