"""Private data in a text: phone, card, identity and account numbers, mail and web addresses, and who says their name.

Guarantees: a pure function; numbers are checked by their plans and check digits (phonenumbers, python-stdnum), so that
doses, laboratory values and approval numbers stay. Not covered: names that names.py misses, postal and IP
addresses, phone numbers of other countries than REGIONS without +, and numbers without a check digit or a word
(account, passport) before them.
"""

from __future__ import annotations

import re
import unicodedata

import phonenumbers
from stdnum import iban, luhn
from stdnum.br import cpf
from stdnum.cl import rut
from stdnum.cn import ric
from stdnum.es import dni, nie
from stdnum.fr import nir
from stdnum.in_ import aadhaar, pan
from stdnum.it import codicefiscale
from stdnum.kr import rrn
from stdnum.mx import curp
from stdnum.pl import pesel
from stdnum.tr import tckimlik
from stdnum.us import ssn

from sql_agent.curation.names import names_someone

SHORTEST = 7  # digits of a phone number
REGIONS = ("CN", "US", "GB", "DE", "FR", "IN", "JP", "KR", "BR", "AU", "ES", "IT", "MX", "RU")
MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.]+")
WEB = re.compile(r"https?://|www\.", re.I)
# A Chinese character beside a number is no part of it: ASCII.
CARD = re.compile(r"(?<![\w.])(?:2[2-7]|[3-6]\d)(?:[ .-]?\d){11,17}(?![\w.]\d|\w)", re.A)
IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b", re.I | re.A)
IDENTITY = (
    (re.compile(r"(?<!\d)\d{17}[\dXx](?!\w)"), ric.is_valid),
    (re.compile(r"(?<![\d-])\d{3}-\d{2}-\d{4}(?![\d-])"), ssn.is_valid),
    (re.compile(r"(?<!\d)\d{3}\.\d{3}\.\d{3}-\d{2}(?!\d)"), cpf.is_valid),
    (
        re.compile(r"(?<!\w)\d{2}\.?\d{3}\.?\d{3}-?[A-Za-z](?!\w)", re.A),
        lambda written: dni.is_valid(written.replace(".", "")),
    ),
    (re.compile(r"(?<!\w)[XYZ]-?\d{7}-?[A-Z](?!\w)", re.A), nie.is_valid),
    (re.compile(r"(?<!\w)\d{1,2}\.\d{3}\.\d{3}-[\dK](?!\w)", re.A), rut.is_valid),
    (re.compile(r"(?<!\w)[A-Z]{4}\d{6}[A-Z]{6}\w\d(?!\w)", re.A), curp.is_valid),
    (re.compile(r"(?<!\w)[A-Z]{5}\d{4}[A-Z](?!\w)", re.A), pan.is_valid),
    (re.compile(r"(?<!\d)[12](?: ?\d){14}(?!\d)"), nir.is_valid),
    (re.compile(r"(?<!\w)[A-Za-z]{6}\w{10}(?!\w)", re.A), codicefiscale.is_valid),
    (re.compile(r"(?<!\d)\d{6}-\d{7}(?!\d)"), rrn.is_valid),
    (re.compile(r"(?<![\d.])\d{11}(?![\d.]\d|\d)"), lambda digits: pesel.is_valid(digits) or tckimlik.is_valid(digits)),
    (re.compile(r"(?<!\d)\d{4} \d{4} \d{4}(?! ?\d)"), aadhaar.is_valid),
)
ACCOUNT = re.compile(
    r"(?:\b(?:account|acct|passport|ssn|social security|(?:member|patient) id|iban|konto|nhs|aadhaar|bsn|cpf|snils|mrn|"
    r"medical record|medicare|driv(?:er'?s?|ing) licen[cs]e|"
    r"(?-i:PAN|TFN|SIN|HKID|NI number|My Number|Personalausweis))\b"
    r"|账号|帐号|账户|银行卡|卡号|护照|身份[证證]|身分證|医保卡|社保号|驾驶证|病历号|住院号|\bQQ|マイナンバー|паспорт|СНИЛС)"
    r"[^\d\n]{0,20}?(?!\d{4}[-./]\d\d?[-./]\d\d?\b)(?:[A-Z]{0,3}\d(?:[ .-]?[A-Z]?\d){5,})",
    re.I | re.A,
)
SECRET = re.compile(
    r"\b(?:sk-|gh[op]_|xox[abp]-|AKIA|AIza|hf_|eyJ)[\w-]{16,}"
    r"|(?:(?i:password|passwd)|密码)(?: is|是|[:：=])\s*(?=[!-~]{0,40}\d)[!-~]{6,}",
    re.A,
)
WECHAT = re.compile(
    r"(?:微信|wechat)(?:号| ?id)?(?: is|是|为)?[:： ]{0,2}(?=[\w-]{0,19}[\d_])[a-z][\w-]{5,19}", re.I | re.A
)
SAID_DIGITS = re.compile("[〇零一二三四五六七八九幺]{7,}")
DIGITS = str.maketrans("〇零一二三四五六七八九幺", "001234567891")
CALLED = re.compile(
    r"(?:\b(?:phone|tel|telephone|mobile|cell|whatsapp|call|reach|text|fax)\b"
    r"|电话|手机|微信|致电|联系)[^\d+\n]{0,25}$",
    re.I,
)
NAME = re.compile(
    r"\b(?i:my name(?:'s| is)) [^\W\d_]|\b(?:I am|I'm|This is) (?:called )?[A-Z][a-z]+ [A-Z][a-z]+\b"
    r"|\b(?:Mr|Mrs|Ms|Miss|Dr|Prof|Herr|Frau|Monsieur|Madame|[Ss]eñora?|[Ss]ignora?)\.? [A-Z][^\W\d_]+"
    r"|我叫(?!做?什么)[\u4e00-\u9fff]{2,4}"
    r"|我的?名字(?:是|叫)|(?:我|本人)姓[\u4e00-\u9fff]"
)


def private(text: str) -> str:
    """What private data the text holds, or ""."""
    text = SAID_DIGITS.sub(lambda digits: digits[0].translate(DIGITS), unicodedata.normalize("NFKC", text))
    if MAIL.search(text):
        return "a mail address"
    if WEB.search(text):
        return "a web address"
    if SECRET.search(text):
        return "a key or password"
    if any(iban.is_valid(match[0]) for match in IBAN.finditer(text)):
        return "an account number"
    if any(valid(match[0]) for pattern, valid in IDENTITY for match in pattern.finditer(text)):
        return "an identity number"
    if any(luhn.is_valid(re.sub(r"\D", "", match[0])) for match in CARD.finditer(text)):
        return "a card number"
    regions = REGIONS if len(re.findall(r"\d", text)) >= SHORTEST else ()
    numbers = (match for region in regions for match in phonenumbers.PhoneNumberMatcher(text, region))
    if any(_rings(text, match) for match in numbers):
        return "a phone number"
    if ACCOUNT.search(text) or WECHAT.search(text):
        return "an account number"
    return "a name" if NAME.search(text) or names_someone(text) else ""


def _rings(text: str, match: phonenumbers.PhoneNumberMatch) -> bool:
    # A bare row of digits is an approval number more often: a phone has its +, 0 or blanks, or a word before it.
    raw, digits = match.raw_string, re.sub(r"\D", "", match.raw_string)
    before = text[: match.start]
    if re.search(r"[A-Za-z准.]$|[A-Za-z]-$|\b[A-Z]{3,}:? $", before) and not CALLED.search(before):
        return False
    if re.fullmatch(r"\d(?: \d)+|\d{1,3}(?:\.\d{1,3}){3}", raw):  # counting, and addresses of computers
        return False
    written = raw[0] in "+(" or (len(digits) >= 9 and (raw[0] == "0" or re.search(r"\d[ .()-]+\d", raw) is not None))
    mobile = re.fullmatch(r"1[3-9]\d{9}", digits) is not None
    return bool(written or mobile or CALLED.search(before))
