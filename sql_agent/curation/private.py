"""Private data in a text: phone, card, identity and account numbers, mail and web addresses, and who says their name.

Guarantees: a pure function; numbers are checked by their plans and check digits (phonenumbers, python-stdnum), so that
doses, laboratory values and approval numbers stay. Not covered: names that names.py misses, postal
addresses, phone numbers of other countries than REGIONS without +, and numbers without a check digit or a word
(account, passport) before them.
"""

from __future__ import annotations

import re

import phonenumbers
from stdnum import iban, luhn
from stdnum.br import cpf
from stdnum.cn import ric
from stdnum.es import dni
from stdnum.fr import nir
from stdnum.in_ import aadhaar
from stdnum.it import codicefiscale
from stdnum.kr import rrn
from stdnum.pl import pesel
from stdnum.tr import tckimlik
from stdnum.us import ssn

from sql_agent.curation.names import names_someone

REGIONS = ("CN", "US", "GB", "DE", "FR", "IN", "JP", "KR", "BR", "AU", "ES", "IT", "MX", "RU")
MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.]+")
WEB = re.compile(r"https?://|www\.", re.I)
CARD = re.compile(r"(?<![\w.])[2-6]\d(?:[ -]?\d){11,17}(?![\w.]\d|\w)")
IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b", re.I)
IDENTITY = (
    (re.compile(r"(?<!\d)\d{17}[\dXx](?!\w)"), ric.is_valid),
    (re.compile(r"(?<![\d-])\d{3}-\d{2}-\d{4}(?![\d-])"), ssn.is_valid),
    (re.compile(r"(?<!\d)\d{3}\.\d{3}\.\d{3}-\d{2}(?!\d)"), cpf.is_valid),
    (re.compile(r"(?<!\w)\d{8}-?[A-Za-z](?!\w)"), dni.is_valid),
    (re.compile(r"(?<!\d)[12](?: ?\d){14}(?!\d)"), nir.is_valid),
    (re.compile(r"(?<!\w)[A-Za-z]{6}\w{10}(?!\w)"), codicefiscale.is_valid),
    (re.compile(r"(?<!\d)\d{6}-\d{7}(?!\d)"), rrn.is_valid),
    (re.compile(r"(?<![\d.])\d{11}(?![\d.]\d|\d)"), lambda digits: pesel.is_valid(digits) or tckimlik.is_valid(digits)),
    (re.compile(r"(?<!\d)\d{4} \d{4} \d{4}(?! ?\d)"), aadhaar.is_valid),
)
ACCOUNT = re.compile(
    r"(?:\b(?:account|acct|passport|ssn|social security|member id|iban)\b"
    r"|账号|帐号|账户|银行卡|卡号|护照|身份证|医保卡)"
    r"[^\d\n]{0,20}[A-Z]{0,3}\d(?:[ -]?\d){5,}",
    re.I,
)
CALLED = re.compile(
    r"(?:\b(?:phone|tel|telephone|mobile|cell|whatsapp|call|reach|text|fax)\b"
    r"|电话|手机|微信|致电|联系)[^\d+\n]{0,25}$",
    re.I,
)
NAME = re.compile(
    r"\b[Mm]y name(?:'s| is) [^\W\d_]|\b(?:I am|I'm|This is) (?:called )?[A-Z][a-z]+ [A-Z][a-z]+\b"
    r"|\b(?:Mr|Mrs|Ms|Miss|Dr|Prof)\.? [A-Z][a-z]+|我叫(?!做?什么)[\u4e00-\u9fff]{2,4}"
    r"|我的?名字(?:是|叫)|(?:我|本人)姓[\u4e00-\u9fff]"
)


def private(text: str) -> str:
    """What private data the text holds, or ""."""
    if MAIL.search(text):
        return "a mail address"
    if WEB.search(text):
        return "a web address"
    if any(iban.is_valid(match[0]) for match in IBAN.finditer(text)):
        return "an account number"
    if any(valid(match[0]) for pattern, valid in IDENTITY for match in pattern.finditer(text)):
        return "an identity number"
    if any(luhn.is_valid(re.sub(r"\D", "", match[0])) for match in CARD.finditer(text)):
        return "a card number"
    numbers = (match for region in REGIONS for match in phonenumbers.PhoneNumberMatcher(text, region))
    if any(_rings(text, match) for match in numbers):
        return "a phone number"
    if ACCOUNT.search(text):
        return "an account number"
    return "a name" if NAME.search(text) or names_someone(text) else ""


def _rings(text: str, match: phonenumbers.PhoneNumberMatch) -> bool:
    # A bare row of digits is an approval number more often: a phone has its +, 0 or blanks, or a word before it.
    raw, digits = match.raw_string, re.sub(r"\D", "", match.raw_string)
    if re.search(r"[A-Za-z准.]$", text[: match.start]):
        return False
    written = raw[0] in "+(" or len(digits) >= 9 and (raw[0] == "0" or re.search(r"\d[ .()-]+\d", raw) is not None)
    mobile = re.fullmatch(r"1[3-9]\d{9}", digits) is not None
    return bool(written or mobile or CALLED.search(text[: match.start]))
