"""The one normal form in which the offline judge reads questions, references, evidence and answers.

Guarantees: a pure function, linear in the text's length. What a reader does not see is gone; tags of HTML are layout;
traditional characters are simplified (OpenCC), Chinese numerals are digits (cn2an), Chinese units symbols; brackets,
quotation marks and marks of Markdown are blanks. Not covered: synonyms, and one amount in two units (0.5g, 500mg).
"""

from __future__ import annotations

import functools
import html
import re
import unicodedata
from itertools import pairwise

import cn2an
import opencc

from sql_agent.offline_judge.lexicon import LATIN

SYMBOLS = "千克=kg 公斤=kg 克=g 毫克=mg 微克=μg 升=l 毫升=ml 厘米=cm 毫米=mm 摄氏度=°c 毫米汞柱=mmhg 小时=h"
SYMBOL_OF: dict[str, str] = dict(re.findall(r"(\S+)=(\S+)", SYMBOLS))
UNITS = "|".join(sorted({*SYMBOL_OF, *SYMBOL_OF.values()}, key=len, reverse=True))
UNIT = re.compile(rf"(?<=[\d/])[ \t]*({UNITS})(?![a-z])")
# The mark of an item is layout: ①, (1) and 1. before something that is no digit; at a line's start before anything.
ITEM_MARK = re.compile(
    r"[\u2460-\u2473]|^[ \t]*[-*+][ \t]+\[[ xX]\][ \t]+(?=\S)"
    r"|(?:^(?:[ \t]*[-+*•·][ \t]+)?|(?<=[;；。:：,，|])|(?<=[.;:,!?。；：|] ))"
    r"(?:[(（](?:\d{1,2}|[一二三四五六七八九十]{1,3})[)）]|\d{1,2}[.．)）、])(?:[ \t]*(?=[^\s\d])|[ \t]+(?=\S))"
    r"|(?:^[ \t]*|(?<=[.;:,!?。；：，|] ))(?:[a-j][)）]|[(（](?:[a-j]|[ivx]{1,4})[)）])(?=[ \t]*\S)"
    r"|^[ \t]*(?:\d{1,2}[.．)）、]|[-+•·])[ \t]+(?=\S)"
    r"|^[ \t]*[(（]\d{1,2}[)）](?=[ \t]*\S)"
    r"|^[ \t]*[•·◦●▪■□◆‣][ \t]*(?=\S)"
    r"|^[ \t]*[A-Ha-h][.．、][ \t]+(?=\S)"
    r"|^[ \t]*(?:[*_]{2})?(?:[(（][一二三四五六七八九十]{1,3}[)）]|[一二三四五六七八九十]{1,3}[、.．])"
    r"|(?<=[:：。；;])[一二三四五六七八九十]{1,3}、(?=\S)"
    r"|(?<=[\u4e00-\u9fff)）] )(?:\d{1,2}[.．]|[一二三四五六七八九十]{1,3}、|[(（][一二三四五六七八九十\d]{1,2}[)）])"
    r"[ \t]*(?=[\u4e00-\u9fff])",
    re.MULTILINE,
)
CONNECTIVE = re.compile(  # before a sentence it counts like a mark
    r"(?:^|(?<=[。；;：:\n]))其[一二三四五六七八九十][，,、：:]|(?<=[，,。；;：:\n])[一二三四五六](?:是|则是|、)(?=[^\W\d]{2})"
    r"|(?:^|(?<=[.;:!?] ))(?:first|second|third|next|final|last)(?:ly)?, "
    r"|(?:^|(?<=[.;:!?] ))(?:also|moreover|furthermore|besides|in addition|additionally), ",
    re.MULTILINE | re.IGNORECASE,
)
SECTION = re.compile(  # 2.1, 2.2
    r"((?:^|(?<=[.:;] ))[ \t]*(?:[#*|]+[ \t]*)?)(\d{1,2})\.(\d{1,2})[.、]?[ \t]+(?=[^\W\d])", re.MULTILINE
)
QUOTED = re.compile(r"^[ \t]*(?:>[ \t]?)+", re.MULTILINE)  # Markdown's
HASHES = re.compile(r"^[ \t]*#{1,6}[ \t]+", re.MULTILINE)  # of a heading
FENCE = re.compile(r"^[ \t]*(?:`{3}|~{3})(?:[ \t]*(?:json|ya?ml|xml|html|markdown|md|te?xt))?[ \t]*$", re.M | re.I)
IS_JSON = re.compile(r"[{\[]\s*\"")
ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([nrt])|([\"\\/]))")
# Pictures are decoration, but those that judge.
PICTURE = re.compile("(?![❌❎✖✗✘❓❔❕❗⛔🚫👎])[\u25a0-\u25ff\u2600-\u27bf\u2b50\U0001f000-\U0001faff\ufe0f]")
LABEL_NOTE = re.compile(r"[(（]([^()（）\n]{1,30})[)）](?=[ \t]*[:：])")  # common (1 to 10 %):
MAX_GROWTH = 100  # characters
COUNTED = r"(?:(?:方面|项目?|aspect|item|point|row) ?)?\d{1,2}"  # of a row that has no other name
ROW_NUMBER = re.compile(rf"(?<=^\|)[ \t]*(?:{COUNTED}|no\.?)[ \t]*(?=\|[ \t]*[^\s|])", re.M | re.I)
# Bounded: the time that cn2an takes grows with the square of the length.
NUMERAL = re.compile(r"[零〇一二两三四五六七八九十百千万亿]{1,20}(?:点[零一二三四五六七八九]{1,9})?")
PARENTHESES = str.maketrans("()", "、、")  # what stands in them is an item of its own
MARKS = re.compile(r"[*#`\[\]{}《》「」『』〔〕\"'“”‘’]+")
ENTITY = re.compile(r"(&#)0*([0-9]{8})[0-9]*")  # of no character, and longer than int() reads
# Tags by name, so that "<90" is none; what is struck through or not shown is not as if it were plain.
ATTRIBUTES = r"(?![^<>]*(?:line-through|display:\s*none))(?:\s[^<>]*)?/?>"
INLINE = re.compile(
    rf"</?(?:span|b|strong|i|em|u|sup|sub|font|a|code|kbd|samp|var|tt|mark|small|big|q|cite|abbr|label){ATTRIBUTES}"
    r"|<!--(?:(?!<!--).)*?-->",
    re.I | re.S,
)
BLOCK = re.compile(
    r"</?(?:p|div|br|li|ul|ol|d[ltd]|tr|t[dh]|table|thead|tbody|tfoot|col|colgroup|caption|h[1-6]|hr|section|article|aside"
    rf"|header|footer|main|nav|blockquote|figure|figcaption|pre|center|img){ATTRIBUTES}",
    re.I,
)
UNSEEN = re.compile(  # what a page strikes through or does not show, with its tags; a comment is one too
    r"(?<!~)~~(?![\s~])(?:(?!~~).)+~~(?!~)|^ {0,3}\[[^\]\n]*\]: *#[^\n]*"
    r"|<(del|s|strike|script|style|template)\b[^<>]*>(?:(?!</?\1\b).)*</\1>"
    r"|<(span|div|p|b|i|em|strong|font|li|td|a|u)(?=[^<>]*?(?:\shidden\b|line-through"
    r"|(?:display|visibility):\s*(?:none|hidden)|font-size:\s*0|opacity:\s*0[;\"']))[^<>]*>(?:(?!</?\2\b).)*</\2>",
    re.I | re.M | re.S,
)
HEADING = re.compile(r"</h[1-6]>(?:\s|<[^<>/]*>)*|[:：]?】[:：]?", re.I)
BOLD_HEADING = re.compile(  # a block or a line of its own before a list, a table or text
    r"(?:^|(?<=[>\n]))[ \t]*<(strong|b)\b[^<>]*>([^<>]{1,40})</\1>\s*(?:</(?:p|div)>\s*)?"
    r"(?=<(?:ul|ol|dl|table|div|p|br)\b(?![^<>]*>\s*(?:<(?:strong|b|br)\b|$)))",
    re.I,
)
TABLE_NUMBER = re.compile(r"(<tr\b[^<>]*>\s*<t[dh]\b[^<>]*>)\s*\d{1,2}[.、]?\s*(?=</t[dh]>\s*<t[dh]\b)", re.I)
LINE = re.compile(  # between the layout before and behind it; what follows
    r"(?:^|(?<=\n)|(?<=<p>)|(?<=<br>)|(?<=<div>)|(?<=</p>)|(?<=<br/>))([^<>\n]{2,48})(?=(?:\n|<br\s*/?>|</p>)\s*(?:<(?:p|div)>)?([^<>\n]*))",
    re.I,
)
BOLD_LINE = re.compile(  # Markdown's: **Storage**, **Storage.** Keep dry.
    r"^[ \t]*(?:\*\*|__)([^*_\n:：.。]{1,40})(?:[:：]?(?:\*\*|__)[:：]?[ \t]*$|[.。](?:\*\*|__)(?=[ \t]*\S))", re.M
)
MAX_HEADING_WORDS = 6
RANGE = re.compile(r"(?<=\d)[ \t]*[~–—至到-][ \t]*(?=\d)")
EACH = re.compile(r"每(?=[次日天][ \t]*\d)")  # 每日3次 is 一日3次
POWER = re.compile(r"(?<=\d)\^(?=\d)")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
DASH = re.compile(r"(?<=\w) [-–—]+ (?=[^\W\d])")  # between words, and none within one
BLANKS = re.compile(r"[^\S\n]+")
BLANK = re.compile(rf"(?<![{LATIN}]) | (?![{LATIN}])")  # others part words of letters, or numbers
_simplify = opencc.OpenCC("t2s")


def flat(text: str, between: str = "") -> str:
    """A cell whose tags were taken out, with this in their place."""
    return BLOCK.sub(between, INLINE.sub("", html.unescape(ENTITY.sub(r"\1\2", text))))


def with_headings(text: str) -> str:
    """A cell with a colon behind each line that is a heading: short, without a mark, before one that says more; where
    two such lines begin blocks, all that do. One such line alone is none."""
    text = BOLD_LINE.sub(r"\1:", text)
    lines = [*LINE.finditer(text)]
    headings = [line for line in lines if _is_heading(line)]
    begins = sum(text[: line.start()].endswith("<p>") for line in headings) > 1
    blocks = [line for line in lines if begins and _is_short(line[1]) and text[: line.start()].endswith("<p>")]
    ends = sorted({line.end() for line in (*headings, *blocks)}) if len(headings) > 1 else []
    return "".join(f"{text[a:b]}:" for a, b in pairwise([0, *ends])) + text[ends[-1] if ends else 0 :]


def _is_heading(line: re.Match[str]) -> bool:
    return _is_short(line[1]) and re.search(r"[,;，；。、]|\.(?!\d)", line[2]) is not None


def _is_short(line: str) -> bool:
    size = len(line.split()) if line.isascii() else len(line) / 2
    has_mark = re.search(r"[,;:!?，；：。！？、|]|[.．](?![\d\s])|[.．]$", line.strip())
    is_item = re.match(r"\s*(?:[(（]?\d{1,2}[)）]|\d{1,2}[.、](?!\d)|[-•·*])", line)
    return size <= MAX_HEADING_WORDS and not (has_mark or is_item) and re.search(r"[^\W\d]", line) is not None


def unfolded(text: str) -> str:
    """The compatibility form of Unicode (NFKC); not of a text that it makes twice as long or more: ﷺ is 18 letters."""
    form = unicodedata.normalize("NFKC", text)
    return form if len(form) <= 2 * len(text) + MAX_GROWTH else text


@functools.lru_cache(maxsize=4096)
def normalise(text: str) -> str:
    """One form for all ways to write a text."""
    text = ESCAPED.sub(_unescaped, text) if IS_JSON.search(text) else text
    text = TABLE_NUMBER.sub(r"\1", html.unescape(ENTITY.sub(r"\1\2", FENCE.sub("", text))))
    text = BLANKS.sub(" ", HEADING.sub(":\n", BOLD_HEADING.sub(r"\2:", text)))
    text = BLOCK.sub("\n", INLINE.sub("", text)).replace("【", "\n")
    text = _without_section_numbers(HASHES.sub("", QUOTED.sub("", PICTURE.sub(" ", text))))
    text = ROW_NUMBER.sub("", CONNECTIVE.sub("\n", ITEM_MARK.sub("\n", LABEL_NOTE.sub(r" \1", text))))
    text = unfolded(text.replace("，", ";"))
    text = "".join(char for char in text if unicodedata.category(char) not in ("Cf", "Cs")).lower()
    text = NUMERAL.sub(_in_digits, _simplify.convert(text))
    text = EACH.sub(" 1", POWER.sub("", text))
    text = RANGE.sub("-", MARKS.sub(" ", THOUSANDS.sub("", text.translate(PARENTHESES))))
    text = UNIT.sub(lambda match: SYMBOL_OF.get(match[1], match[1]), text)
    text = "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())
    text = DASH.sub(" · ", text)
    return BLANK.sub("", text)


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else "\n" if match[2] else match[3]


def _without_section_numbers(text: str) -> str:
    """Without 1.1, 1.2 at the beginnings of lines, where they count."""
    found = {(match[2], int(match[3])) for match in SECTION.finditer(text)}
    chapters = {*re.findall(r"^[ \t]*(?:[#*]+[ \t]*)?(\d{1,2})[.、]?[ \t]+[^\s\d]", text, re.MULTILINE)}
    counting = {major for major, minor in found if minor == 1 and ((major, 2) in found or major in chapters)}
    return SECTION.sub(lambda match: match[1] if match[2] in counting else match[0], text)


def _in_digits(match: re.Match[str]) -> str:
    numeral, text = match[0], match.string
    before, after = (
        " " if char.isdecimal() else ""
        for char in (text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1])
    )
    for unit in ("", "千") if numeral.endswith("千") else ("",):  # thirty kilowatts: 三十千瓦
        try:
            digits = cn2an.cn2an(numeral.removesuffix(unit).replace("两", "二").replace("〇", "零"), "smart")
        except (ValueError, KeyError):  # characters of a numeral in an order that makes none
            continue
        return f"{before}{digits}{unit}{after}"
    return numeral
