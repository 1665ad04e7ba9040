"""The same question again in ten ways, and other questions beside it: English and Chinese, drawn by a seed.

The fourth of four generators with nothing in common but the kinds; what docs/45-curate.md says of the other three, and
of the first look at this one, was written before anything was mended after it.
"""

# ruff: noqa: E501
from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

Change = Callable[[str, random.Random], str]


@dataclass(frozen=True)
class Language:
    """Patterns of questions, what stands in them, and how each kind of noise changes them."""

    patterns: tuple[str, ...]
    things: tuple[str, ...]
    others: tuple[str, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    synonyms: dict[str, str]
    abbreviations: dict[str, str]
    switched: dict[str, str]
    contracted: dict[str, str]
    denied: dict[str, str]
    orders: tuple[tuple[str, str], ...]
    numbers: Callable[[int], str]


ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
]
ONES += ["seventeen", "eighteen", "nineteen"]
TENS = ["", "", *["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]]
CHARS = "零一二三四五六七八九"


def in_english(n: int) -> str:
    if n >= 100:
        return f"{ONES[n // 100]} hundred" + (f" and {in_english(n % 100)}" if n % 100 else "")
    return ONES[n] if n < 20 else TENS[n // 10] + (f"-{ONES[n % 10]}" if n % 10 else "")


def in_chinese(n: int) -> str:
    if n >= 100:
        rest = n % 100
        return (
            CHARS[n // 100]
            + "百"
            + ("" if not rest else f"{'零' * (rest < 10)}{'一' * (10 <= rest < 20)}{in_chinese(rest)}")
        )
    if n < 10:
        return CHARS[n]
    return ("" if n < 20 else CHARS[n // 10]) + "十" + (CHARS[n % 10] if n % 10 else "")


ENGLISH = Language(
    patterns=(
        "What are the risks of {t} for the kidneys of older patients?",
        "Is it okay to take {t} with {n} ml of milk?",
        "How quickly does {t} lower a fever of {n} degrees?",
        "Do I need a new prescription for {t} every {n} weeks?",
        "Which vaccine protects children against {o}?",
        "Can someone with {o} eat before an operation?",
        "What is the usual treatment for {o}?",
        "Why does {t} cause headaches and nausea?",
        "Is {t} cheaper than {u}?",
        "How often should blood sugar be measured during {n} days of {t}?",
        "What happens when {t} is not stopped before surgery for {o}?",
        "A worker earns {n} dollars in {m} hours. How many dollars does he earn in one hour?",
        "How many students of the school are older than {n} years and have {o}?",
        "A box holds {n} pencils and {m} pens. How many more pencils than pens are in it?",
        "What's the fastest way to recover from {o}?",
        "Who should not use {t}?",
    ),
    things=tuple(
        ["alfuzosin", "bisacodyl", "cabergoline", "darunavir", "etodolac", "flecainide", "guaifenesin", "ibandronate", "lurasidone", "minoxidil", "naltrexone", "oxybutynin", "perindopril", "quazepam", "roflumilast", "sumatriptan", "tadalafil", "vardenafil", "zafirlukast", "zonisamide"]
    ),
    others=tuple(
        ["anthrax", "blepharitis", "candidiasis", "diphtheria", "erysipelas", "folliculitis", "giardiasis", "hydrocephalus", "ileus", "ketosis", "listeriosis", "mononucleosis", "narcolepsy", "osteomyelitis", "pertussis", "rosacea", "sciatica", "tinnitus"]
    ),
    before=("Hello doctor, ", "Good evening! ", "Please, ", "Can you tell me: ", "I'd like to ask: ", "Sorry, quick question: ", "I was wondering: "),
    after=(" Thanks.", " Thank you so much!", " Thanks in advance for your answer.", " I appreciate it.", " Please help!"),
    synonyms={
        "risks": "dangers", "older": "elderly", "okay": "safe", "quickly": "fast", "lower": "reduce", "need": "require", "children": "kids",
        "operation": "surgery", "someone": "a person", "usual": "typical", "treatment": "therapy", "cause": "trigger", "headaches": "head pain",
        "cheaper": "less expensive", "How often": "How frequently", "measured": "checked", "stopped": "discontinued", "worker": "employee",
        "earns": "makes", "students": "pupils", "holds": "contains", "fastest": "quickest", "way": "method", "recover": "get well", "use": "take",
    },
    abbreviations={
        "patients": "pts", "ml": "milliliters", "degrees": "deg", "prescription": "Rx", "weeks": "wks", "with": "w/", "operation": "op",
        "blood sugar": "BG", "hours": "hrs", "hour": "hr", "years": "yrs", "dollars": "USD", "days": "d", "treatment": "tx",
    },
    switched={
        "risks": "风险", "kidneys": "肾脏", "milk": "牛奶", "fever": "发烧", "prescription": "处方", "vaccine": "疫苗", "children": "儿童", "operation": "手术",
        "treatment": "治疗", "headaches": "头痛", "blood sugar": "血糖", "days": "天", "surgery": "手术", "hours": "小时", "students": "学生", "older": "老年",
    },
    contracted={"What is": "What's", "What are": "What're", "What's": "What is", "is not": "isn't", "should not": "shouldn't", "Why does": "Why's"},
    denied={"Is it": "Isn't it", "Is ": "Isn't ", "Do I": "Don't I", "Can ": "Can't ", "is not": "is", "should not": "should", "Why does": "Why doesn't",
            "protects": "does not protect", "have ": "do not have ", "does he earn": "does he not earn", "need a": "need no", "often should": "often should not"},
    orders=(
        (r"^(.+) (with .+|of older patients|every .+|against .+|before an operation|during .+|before surgery.*|in one hour)[?]$", r"\2, \1?"),
        (r"^(.+)[.] (.+)[?]$", r"\2? \1."),
        (r"^What (is|are) the (.+) (for|of) (.+)[?]$", r"\3 \4, what \1 the \2?"),
        (r"^(.+) (to recover from .+)[?]$", r"\2, \1?"),
        (r"^Why does (.+) cause (.+) and (.+)[?]$", r"Why does \1 cause \3 and \2?"),
    ),
    numbers=in_english,
)  # fmt: skip
CHINESE = Language(
    patterns=(
        "{t}对老年患者的肾脏有什么风险？",
        "可以用{n}ml牛奶送服{t}吗？",
        "{t}多快能把{n}度的发烧降下来？",
        "每{n}周都要重新开{t}的处方吗？",
        "哪种疫苗能保护儿童不得{o}？",
        "{o}患者手术前能吃东西吗？",
        "{o}通常怎么治疗？",
        "为什么{t}会引起头痛和恶心？",
        "{t}比{u}便宜吗？",
        "连续{n}天使用{t}时应该多久测一次血糖？",
        "{o}手术前没有停用{t}会怎么样？",
        "工人{m}小时挣{n}元，一小时挣多少元？",
        "学校里有{o}并且超过{n}岁的学生有多少名？",
        "盒子里有{n}支铅笔和{m}支钢笔，铅笔比钢笔多几支？",
        "怎样才能最快从{o}中恢复？",
        "哪些人不能使用{t}？",
    ),
    things=tuple(
        ["阿夫唑嗪", "比沙可啶", "卡麦角林", "达芦那韦", "依托度酸", "氟卡尼", "愈创甘油醚", "伊班膦酸钠", "鲁拉西酮", "米诺地尔", "纳曲酮", "奥昔布宁", "培哚普利", "夸西泮", "罗氟司特", "舒马曲坦", "他达拉非", "伐地那非", "扎鲁司特", "唑尼沙胺"]
    ),
    others=tuple(["炭疽", "睑缘炎", "念珠菌病", "白喉", "丹毒", "毛囊炎", "贾第虫病", "脑积水", "肠麻痹", "酮症", "李斯特菌病", "单核细胞增多症", "发作性睡病", "百日咳", "酒渣鼻", "坐骨神经痛", "耳鸣"]),
    before=("您好，请问", "大夫，", "请教各位，", "麻烦问下，", "我想问一下，", "不好意思打扰您，", "谁能告诉我，"),
    after=("谢谢大夫！", "非常感谢。", "麻烦您了！", "盼回复，谢谢！", "万分感谢！"),
    synonyms={
        "老年患者": "老年病人", "风险": "危险", "可以": "能", "发烧": "发热", "儿童": "小孩", "患者": "病人", "吃东西": "进食", "通常": "一般", "怎么": "如何", "治疗": "医治",
        "引起": "导致", "便宜": "廉价", "使用": "服用", "测": "检测", "停用": "停止使用", "工人": "员工", "挣": "赚", "超过": "大于", "怎样": "如何", "恢复": "康复", "头痛": "头疼",
    },
    abbreviations={"ml": "毫升", "小时": "h", "血糖": "BG", "处方": "Rx", "手术": "OP", "儿童": "儿", "患者": "患", "不能使用": "禁用", "老年患者": "老患", "连续": "连", "岁": "y"},
    switched={"肾脏": "kidney", "风险": "risk", "牛奶": " milk", "发烧": "fever", "处方": "prescription", "疫苗": "vaccine", "儿童": "children", "手术": "surgery",
              "治疗": "treatment", "头痛": "headache", "恶心": "nausea", "血糖": "blood sugar", "学生": "student", "患者": "patient", "便宜": "cheap"},
    contracted={"什么": "啥", "怎么样": "咋样", "怎么": "咋", "怎样": "咋样", "没有": "没", "不能": "不可", "为什么": "为啥", "多少": "几", "可以": "可", "哪些人": "谁"},
    denied={"可以": "不可以", "都要": "都不要", "不得": "得", "能吃": "不能吃", "会引起": "不会引起", "便宜吗": "不便宜吗", "应该": "不应该", "没有停用": "停用", "不能": "能",
            "有什么": "没有什么", "怎么治疗": "怎么不治疗"},
    orders=(
        (r"^(.+)(对.+的肾脏)(有什么风险)？", r"\2，\1\3？"),
        (r"^(.+)患者(手术前)(.+)？", r"\2，\1患者\3？"),
        (r"^(.+)(通常)(怎么治疗)？", r"\2\1\3？"),
        (r"^为什么(.+)会引起头痛和恶心？", r"\1为什么会引起恶心和头痛？"),
        (r"^(连续.+时)(.+)？", r"\2，\1？"),
        (r"^(.+)，(.+)？", r"\2？\1"),
        (r"^(哪些人)(不能使用.+)？", r"\2，\1？"),
        (r"^(怎样才能)(最快)(从.+中)(恢复)？", r"\3\1\2\4？"),
        (r"^(哪种疫苗)(.+)？", r"\2，\1？"),
    ),
    numbers=in_chinese,
)  # fmt: skip
KINDS = (
    "case",
    "typo",
    "order",
    "politeness",
    "synonym",
    "number",
    "abbreviation",
    "punctuation",
    "switch",
    "contraction",
)


def asked(language: Language, n: int, dice: random.Random) -> list[str]:
    """`n` different questions."""
    found: dict[str, None] = {}
    while len(found) < n:
        t, u = dice.sample(language.things, 2)
        numbers = {
            "n": dice.choice((3, 4, 6, 9, 11, 24, 50, 75, 120, 250)),
            "m": dice.choice((5, 7, 8, 12, 13, 36, 90)),
        }
        found[dice.choice(language.patterns).format(t=t, u=u, o=dice.choice(language.others), **numbers)] = None
    return list(found)


def _word(table: dict[str, str], text: str, dice: random.Random) -> str:
    """The text with one of the table's words exchanged, or as it is."""
    there = [key for key in table if re.search(rf"(?<![a-z]){re.escape(key)}(?![a-z])", text)]
    return text.replace(key := dice.choice(there), table[key], 1) if there else text


def _typo(text: str, dice: random.Random) -> str:
    chinese = any("\u4e00" <= char <= "\u9fff" for char in text)
    places = [m.start() + 1 for m in re.finditer(r"[\u4e00-\u9fff]{3}" if chinese else r"(?<=[a-z])[a-z]{4}", text)]
    at = dice.choice(places)
    swapped = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    wrong = text[:at] + dice.choice("伹亊冐叧夨" if chinese else "qxzjv") + text[at + 1 :]
    return dice.choice((text[:at] + text[at + 1 :], text[:at] + text[at] + text[at:], swapped, wrong))


def _marks(text: str, dice: random.Random) -> str:
    bare = text.rstrip("?？。.")
    return dice.choice((bare, f"{bare}?!", f"({text})", f"{bare} . . .", text.replace(" ", "   "), f"** {text} **"))


def changed(language: Language, kind: str, text: str, dice: random.Random) -> str:
    """The text with noise of one kind, or as it is where the kind finds nothing to change."""
    if kind == "case":
        return dice.choice((text.upper(), text.lower(), text.swapcase()))
    if kind == "order":
        return next((new for old, by in language.orders if (new := re.sub(old, by, text)) != text), text)
    if kind == "politeness":
        return dice.choice((f"{dice.choice(language.before)}{text}", f"{text}{dice.choice(language.after)}"))
    if kind == "number":
        return re.sub(r"(?<![A-Z])\d+", lambda m: language.numbers(int(m[0])), text)
    if kind in ("typo", "punctuation"):
        return (_typo if kind == "typo" else _marks)(text, dice)
    tables = {"synonym": language.synonyms, "abbreviation": language.abbreviations, "switch": language.switched}
    return _word({**tables, "contraction": language.contracted}[kind], text, dice)


def others(language: Language, text: str, dice: random.Random) -> list[str]:
    """Questions that differ in one number, in one name, or by a denial."""
    found = [_word(language.denied, text, dice)]
    if numbers := list(re.finditer(r"(?<![A-Z])\d+", text)):
        at = dice.choice(numbers)
        found.append(f"{text[: at.start()]}{int(at[0]) + dice.choice((1, 2, 10))}{text[at.end() :]}")
    for names in (language.things, language.others):
        there = [name for name in names if name in text]
        if there:
            found.append(text.replace(there[0], dice.choice([name for name in names if name not in text]), 1))
    return [one for one in found if one != text]


def planted(language: Language, *, n: int, each: int, seed: int) -> tuple[list[str], list[tuple[str, int, str]]]:
    """`n` questions; and new ones with the place of the question that each repeats, -1 for none, and its kind."""
    dice = random.Random(seed)
    old, new = asked(language, n, dice), []
    known = {"".join(sorted(text)) for text in old}
    for kind in KINDS:
        found = [(changed(language, kind, old[at], dice), at, kind) for at in dice.sample(range(n), n)]
        new += [one for one in found if one[0] not in old][:each]
    for text in dice.sample(old, n):
        # Two names may stand the other way round in a question that is there.
        if free := [one for one in others(language, text, dice) if "".join(sorted(one)) not in known]:
            new.append((dice.choice(free), -1, "other"))
    return old, new
