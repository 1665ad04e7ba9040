"""Clauses that doubt or deny more than the question does, or tell the value of somebody else, or of another time.

A limit that the question sets may be told in other words ("more than 24" for "longer than 24"), and a bound that it
asks for too ("at most 12"). Guarantees: linear in the text. Not covered: a doubt in words of no list.
"""

from __future__ import annotations

import re

from sql_agent.offline_judge.doubts import DENIALS, DOUBTS
from sql_agent.offline_judge.slots import stem
from sql_agent.offline_judge.typed.sentences import content_of
from sql_agent.offline_judge.typed.truths import Truth
from sql_agent.offline_judge.units import NAMES
from sql_agent.words.meanings import is_chinese_word

LACKS = re.compile(r"\b(?:lack\w*|missing|without|closed?|shut|yet to)\b|[缺闭]")  # as good as a denial
DENIED_WORD = re.compile(
    r"(?:[不没未无]有?|\b(?:not?|without|never) (?:(?:have|had|been|be|an?|any|the) )*)([\u4e00-\u9fff]{2}|[a-z]{3,})"
)
DENIED_SIGN = re.compile("[不没未无]有?([\u4e00-\u9fff])")
DENIED_VALUE = re.compile(r"\b(?:not|never) (?:[a-z]+ly )?(?:(?:the|an?|on|in|by|at|for) )*#|(?:不是|并非|[不非没])#")
OR = re.compile(r"# (?:or|nor) (?:the |an? )?#|#或者?#")
SENTENCE_END = re.compile(r"[.。!;\n]|,(?=[^\x00-\x7f])")
# Doubts only beside a truth: "under the direction of", "boarded or left".
NEAR = {"or", "或", "about", "around", "over", "under", "between", "above", "below", "before", "after"}
AT_VALUE = re.compile(rf"(?:\b(?:{'|'.join(NEAR)}) (?:the |an? |some )*|或者?|^或)[#\d]|# *(?:or\b|或)|^(?:or\b|或)")
ROUNDED = {"about", "around", "approximately", "roughly", "约", "大约", "大概", "大致", "左右"}
MANY_DIGITS = 5  # of a number that is told as a rough one
PERMITS = re.compile(r"\b(?:can|may|allowed|permitted)\b")
NO_OTHERS = re.compile(r"\bno (?:other|1 else|further)\b|\bnobody else\b|没有?(?:任何)?(?:其他|其它|别的)")  # is more
SIGN_OF_WORD = re.compile(r"[绝无非莫][\u4e00-\u9fff]")  # 绝育 denies nothing
COUNTS = re.compile(r"\bhow many (?!percent)|[多几]少?[个名位只台辆条本件]")  # no share
PERCENT = re.compile(r"\bpercent|百分")
MEASURED = re.compile(rf"# ?(?:{NAMES}|euros?|dollars?|[元只件名人次台辆])(?![a-z])")
CHANGE = re.compile(r"\bstart\w* (?:at|from) #|[涨降增减升跌省][加少了长]{0,2}#")  # of a number, or where it begins
ASKS_CHANGE = re.compile(r"\bstart|[涨降增减升跌省]")
OF_VALUE = re.compile(  # somebody else: "her brother"
    r"# s (?!the\b|an?\b|in\b)(\w+)"
    r"|(?:[由被]|的[^\W\d]{1,4}[是为])#+的(学生|徒弟|老师|师[父傅]|[儿孙]子|女儿|妻子|丈夫|[哥弟]{2}|[姐妹]{2}|父亲|母亲"
    r"|朋友|助[手理]|同[事学]|对手)"
)
RANKS = MOST, _ = (  # what is most is no answer to what is least
    re.compile(r"\b(?:most|maximum|(?:larg|high|bigg|great|long|old|busi)est)\b|最[多大高长久重]"),
    re.compile(r"\b(?:least|minimum|(?:few|small|low|rar|short|young)est)\b|最[少小低短轻]"),
)
OTHER_RANK = re.compile(r"(?:\b(?:former|deputy|vice|acting|interim|ex)[ -]|副|前任)([a-z]+|[\u4e00-\u9fff]{2})")
PLACE = re.compile(
    r"\b(?:came|comes?|finish\w*|plac\w+|rank\w*|is|was|were) (?:in )?(?:the )?(second|third|fourth|fifth)\b"
    r"|排[名在]?第([2-9])|第([2-9])[名位多大高长低小少]"
)
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
MORE = "more|longer|greater|higher|larger|older|later|taller|heavier|bigger|further|deeper"
LESS = "less|fewer|shorter|lower|smaller|younger|earlier|cheaper|lighter"
NONE_MORE = re.compile(  # nobody gave more than #
    rf"\b(?:nobody|nothing|nowhere|none|no (?:1\b|other\b)?)(?=[^#]* (?!(?:{LESS})\b)[a-z]+(?:er|re) (?:[^#]* )?than #)"
)
UNIT = r"(?: ?[a-z]+| ?[\u4e00-\u9fff]{0,2}?)"
LIMITS = (  # of what a question speaks of, before a number or behind it
    (rf"\b(?:(?:{MORE}) than|over|above|exceed(?:s|ing|ed)?|after)|超过|[高大多长晚]于|逾|过了", "$^"),
    (rf"\b(?:(?:{LESS}) than|under|below|before)|[低小少短早]于|不到|不足|未满", "$^"),
    (
        r"\b(?:at least|not? (?:less|fewer|lower|younger) than|from)|至少|不[低小少]于|起码",
        rf"{UNIT} or (?:{MORE}|above|over)\b|{UNIT}及?以上",
    ),
    (
        r"\b(?:at most|not? more than|up to)|至多|不[高大多]于|不超过",
        rf"{UNIT} or (?:{LESS}|below|under)\b|{UNIT}(?:及?以下|[以之]内)",
    ),
)
AGAINST = ((1, 3), (0, 2), (1,), (0,))  # of the limits, by their places


def denials(text: str) -> list[str]:
    """What denies in a text; what is closed or lacking is denied."""
    return DENIALS.findall(LACKS.sub(" no ", text))


def new_doubts(clause: str, question: str) -> set[str]:
    return {*DOUBTS.findall(clause)} - {*DOUBTS.findall(question.rstrip("?？"))}


class Doubts:
    """What speaks against a value in the clauses of an answer, with # for the values."""

    def __init__(self, truth: Truth, question: str) -> None:
        self._words = [word for word in SIGN_OF_WORD.findall(question) if is_chinese_word(word)]
        self._truth, self._question = truth, self._without_words(question)
        question = self._question
        self._is_negative = bool(denials(question))
        self._denied_words = DENIED_WORD.findall(LACKS.sub(" no ", question))
        self._own = {*DOUBTS.findall(question.rstrip("?？")), *denials(question)}
        is_long = (
            re.search(r"\.\d\d", truth.values[0]) or len(re.sub(r"\D", "", truth.values[0]).rstrip("0")) >= MANY_DIGITS
        )
        self._own |= {"may"} if PERMITS.search(question) else set()
        self._own |= ROUNDED if truth.kind == "number" and is_long else set()

    def _without_words(self, text: str) -> str:
        for word in self._words:
            text = text.replace(word, "")
        return text

    def are_in(self, clause: str) -> bool:
        clause = self._without_words(NO_OTHERS.sub(" ", clause))
        clause = NONE_MORE.sub(" ", clause) if MOST.search(self._question) else clause
        clause = self._without_bounds(without_limits(clause, self._question))
        if self._denies(clause) or self._is_of_another(clause):
            return True
        clause = OR.sub("# #", clause.replace("not find", "")) if self._is_negative else clause
        return bool({*DOUBTS.findall(clause)} - (set() if AT_VALUE.search(clause) else NEAR) - self._own)

    def affirm(self, clause: str) -> bool:
        """Whether a clause says what the question denies."""
        return not denials(clause) and any(word in clause for word in self._denied_words)

    def deny_twice(self, said: str) -> bool:
        """Whether a sentence denies once more than a question that denies."""
        return self._is_negative and any(len(denials(sentence)) > 1 for sentence in SENTENCE_END.split(said))

    def _denies(self, clause: str) -> bool:
        """Of who lacks one, "have no room" is an answer; without a value or that word a denial denies the answer."""
        if not self._is_negative:
            return bool({*denials(clause)} - self._own)
        denied = [*map(stem, self._denied_words), *DENIED_SIGN.findall(clause)]
        speaks_of_it = "#" in clause or any(word in clause and word in self._question for word in denied)
        return bool(DENIALS.search(clause)) and not (speaks_of_it and not DENIED_VALUE.search(clause))

    def _is_of_another(self, clause: str) -> bool:
        """Whether it is somebody of the value's, the second, a share of what is counted, or what a number grew by."""
        persons = {stem(word) for words in OF_VALUE.findall(clause) for word in words if word}
        if self._truth.kind == "name" and not persons <= content_of(self._question):
            return True
        if any(rank[1] in self._question and rank[0] not in self._question for rank in OTHER_RANK.finditer(clause)):
            return True
        asks_share = PERCENT.search(self._question) is not None
        if "# percent" in clause and COUNTS.search(self._question) and not asks_share:
            return True
        if asks_share and MEASURED.search(clause) and self._truth.kind == "number":
            return True
        if self._truth.kind == "number" and CHANGE.search(clause) and not ASKS_CHANGE.search(self._question):
            return True
        ours, theirs = ({rank for rank in RANKS if rank.search(text)} for text in (self._question, clause))
        if "#" in clause and self._truth.n_values == 1 and ours and theirs and not ours & theirs:
            return True
        places = {*PLACE.findall(clause)} - {*PLACE.findall(self._question)}
        return bool(places) and "#" in clause and len(self._truth.rows) == 1

    def _without_bounds(self, clause: str) -> str:
        for asks, says in BOUNDS:
            clause = re.sub(says, " ", clause) if re.search(asks, self._question) else clause
        return clause


def without_limits(clause: str, question: str) -> str:
    """A clause without what bounds a number of the question as the question bounds it."""
    for before, behind in LIMITS:
        for numbers in re.findall(rf"(?:{before}) ?(\d[\d.]*)|(\d[\d.]*)(?:{behind})", question):
            number = re.escape("".join(numbers))
            clause = re.sub(rf"(?:{before}) ?(?:the )?(?={number}(?![\d.]))", " ", clause)
            clause = re.sub(rf"(?<![\d.])({number})(?:{behind})", r"\1", clause)
    return clause


def with_asked_limits(clause: str, question: str) -> str:
    """A clause that bounds a number of the question by the question's words: 不足4 for 低于4, 不低于4 for 超过4."""
    for n, (before, _) in enumerate(LIMITS):
        for asked, number in re.findall(rf"(?<!不)({before}) ?(\d[\d.]*)", question):
            other = "|".join(LIMITS[one][0] for one in AGAINST[n])
            denied = f"不{asked}" if not asked.isascii() else f"not {asked}"
            for limit, says in ((other, denied), (before, asked)):
                clause = re.sub(rf"(?<!不)(?:{limit}) ?(?={re.escape(number)}(?![\d.]))", f"{says} ", clause)
    return clause
