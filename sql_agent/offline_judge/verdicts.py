"""Yes or no: whether a question asks for it, which of them its reference says, and which an answer says.

The reference's own word decides; else whether the clause that answers denies where the question does not. It says
nothing where that clause has a number or a limit of its own, and where clauses disagree.
Guarantees: pure functions on text in normal form, linear in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache

from sql_agent.offline_judge.doubts import NO, YES
from sql_agent.offline_judge.lexicon import DENYING, spell, tokens
from sql_agent.offline_judge.slots import COMMON, LIGHT, is_form, stem

CLAUSES = r"[,;:、。.!?|\n]"
ASKS = re.compile(
    r"吗$|是否|[能可]否|([\u4e00-\u9fff])[不没]\1"
    r"|^(?:is|are|was|were|do|does|did|can|could|may|might|must|should|shall|will|would|has|have)"
    r"(?! you\b| (?:i|we) (?:ask|get|have|know|see)\b) "
)
CHOOSES = re.compile(r"什么|哪|多少|怎|如何|几|谁|还是|或|\b(?:or|what|where|how|why)\b")
SENTENCE_END = re.compile(r"[?。]|\.(?!\d)")
FIRST = re.compile(r";|,? and (?=why|what|how|which)|[,、](?=.{0,4}(?:为什么|为何|原因|怎|如何|什么|哪))")
SAYS = (
    r"(?:(?:所以|因此|因而|故)[;,]?)?(?:答案|结论)[是为]?|所以|因此|因而|故"
    r"|(?:(?:so|thus|therefore|hence),? )?(?:the |my )?(?:final )?(?:answer|conclusion) is|so|thus|therefore|hence"
)
MAY = "允许|需要?|要|应该?|必须|适[合宜]|推荐|建议"
VERDICT = re.compile(
    rf"(?:^|(?<={CLAUSES})) ?(?:(?:{SAYS}) ?:? ?)?"
    rf"(?:(yes(?![a-z])|是的|(?:{YES.pattern}|{MAY})(?= ?(?:{CLAUSES}|$)))"
    rf"|(?:{NO.pattern}|不(?:{MAY}|必|用|宜)|无[需须]|禁止)(?= ?(?:{CLAUSES}|$)))"
)
LEAD = re.compile(  # at the beginning of a sentence, with a word or two behind it
    rf"(?:^|(?<=[.。!\n])) ?(?:(?:{SAYS}) ?:? ?)?"
    rf"(?:一般|通常)?(?:(可以|能够?|会|需要?|应该?|适[合宜]|推荐|建议)|不(?:可以?|能|会|{MAY}|必|用|宜|得|在)|无[需须])"
    rf"(?!的)[\u4e00-\u9fff]{{0,4}}(?= ?(?:{CLAUSES}|$))"
)
DENIES = re.compile(rf"{DENYING.pattern}|cannot|[禁忌]|避免|\bavoid")
STOPS = re.compile(  # what is turned round without a denial
    r"[停止慎]|继续|\b(?:stop|continue|caution|out of)"
)
CLAUSE_END = re.compile(
    r"[,;:。.!?\n]+(?!\d)"
    r"|\b(?:and|but) (?=(?:can(?:not)?|may|must|should|do|does|is|are|will|not|never|requires?|needs?)(?![a-z]))"
)
ASKED = re.compile(  # what asks which
    r"哪1?[两2]?[个种款位者类]?|谁|^is it\b"
    r"|\bwhich\b(?: one\b)?(?: of (?:the |these )?(?:two\b)?(?: [a-z]+(?=,))?)?"
)
CONDITION = re.compile(r"\W*(?:\b(?:if|when|unless|after|before|discard)\b|[若如])")
CLAUSE = re.compile(r"(?:[^,;:、。.!?\n|]|(?<=\d)[.,](?=\d))+(?=[,;:、。.!\n|]|$)")
INTERROGATIVE = re.compile(r"[是能可] ?否|吗|([\u4e00-\u9fff]) ?[不没] ?\1|什么|^ ?(?:if|whether|why|what|how|when)\b")
PERMITS = re.compile(
    r"[能可会宜行准允得许]|需要|应该|适合|推荐|\b(?:can(?:not)?|may|must|should|might|would|will|needs?|needed|requires?|required"
    r"|allowed|permitted|possible|recommended|suitable|all right|okay|ok|do|does|is|are|was|were)\b"
)
UNSURE = re.compile(r"可能|[也或]许|大概|恐怕|\b(?:perhaps|maybe|possibly|probably|likely|might|could)\b")
OPEN = re.compile(r"是否|尚[不未]|不[明详清]|\b(?:whether|unknown|not known)\b")
MANY = 2  # denials, of which one may be a part of a name (不耐受)
SAID = (
    "not allowed permitted possible recommended required needed necessary suitable can cannot may must should would"
    " might don doesn t so therefore thus hence no never all right okay ok"
)
SAYING = (
    LIGHT
    | COMMON
    | frozenset("不允许可以适合推荐建议需要必属于能会宜行准得应该用吃服使做这样因此所以故而则再也就都还您你")
    | {*map(stem, re.findall(r"\w+", SAID))}
)
VAGUE = frozenset("的了人者是有在和用") | {
    *re.findall("[a-z]+", "a an the of in on to be is are do does for at by it its with")
}


@lru_cache(maxsize=1024)
def is_asked(question: str) -> bool:
    """Whether yes or no answers the question, or the first thing that its first sentence asks behind what it tells."""
    clauses = (clause.strip() for clause in FIRST.split(SENTENCE_END.split(question)[0]))
    asking = next((clause for clause in clauses if ASKS.search(clause) or CHOOSES.search(clause)), "")
    return bool(asking) and not CHOOSES.search(asking)


def told(text: str, *, leads: bool = False) -> Iterator[tuple[int, int, bool]]:
    """(start, end, whether it is a yes) of each verdict that is a clause of its own, or else `leads` a sentence."""
    if leads and not VERDICT.search(text):
        yield from ((found.start(), found.end(), found[1] is not None) for found in LEAD.finditer(text))
    yield from ((found.start(), found.end(), found[1] is not None) for found in VERDICT.finditer(text))


def repeated(text: str, question: str) -> Iterator[tuple[int, int, bool]]:
    """(start, end, whether it is a yes) of each clause that says what the question asks, or the opposite of that, in
    its words and those that permit alone: so they may not."""
    asked = {stem(one[0]) for one in tokens(question)} | SAYING
    asks = len(DENIES.findall(INTERROGATIVE.sub("", question))) % MANY
    for found in CLAUSE.finditer(text):
        clause = found[0]
        words = {stem(one[0]) for one in tokens(clause)}
        is_yes = len(DENIES.findall(clause)) % MANY == asks
        is_echo = is_yes and text.startswith(":", found.end())
        is_sure = PERMITS.search(clause) and not (INTERROGATIVE.search(clause) or UNSURE.search(clause) or is_echo)
        if is_sure and words <= asked:
            yield *found.span(), is_yes


def alone(question: str, reference: str) -> bool | None:
    """The yes or no that is all the reference of such a question says."""
    said = [(found.end() - found.start(), found[1] is not None) for found in VERDICT.finditer(reference)]
    is_bare = len(said) == 1 and said[0][0] == len(reference.rstrip(" .。!,;\n"))
    return said[0][1] if is_bare and is_asked(question) else None


def wanted(question: str, reference: str, names: Collection[str]) -> bool | None:
    """What the reference says; `names` are no part of what is asked of them."""
    own = {is_yes for *_, is_yes in told(reference, leads=True)}
    is_whole = is_asked(question)
    own = own or ({is_yes for *_, is_yes in repeated(reference, question)} if is_whole else own)
    if own:
        return own.pop() if len(own) == 1 else None
    question = next((one for one in FIRST.split(SENTENCE_END.split(question)[0]) if ASKS.search(one.strip())), question)
    question = ASKED.sub(" ", re.sub(r"是否|吗$|([\u4e00-\u9fff])[不没]\1", r"\1", question))
    asked = [one[0] for one in tokens(question) if one[0] not in VAGUE]
    for name in names:
        question = question.replace(name, " ")
    asked = [one for one in asked if f" {one} " in spell(question)]
    clauses = [
        one for one in CLAUSE_END.split(reference) if one.strip() and not (CONDITION.match(one) or OPEN.search(one))
    ]
    tail = asked[-1:] if re.search("[a-z]", "".join(asked[-1:])) else asked[-2:]
    half = [clause for clause in clauses if 2 * sum(_has(one, clause) for one in {*asked}) >= len({*asked})]
    about = [one for one in (half if is_whole else clauses) if tail and _has("".join(tail), one)]
    about = about or [clause for clause in clauses if {*STOPS.findall(clause)} & {*STOPS.findall(question)}]
    about = about or half
    about = about or clauses * (len(clauses) == 1)
    shares = [sum(_has(one, clause) for one in {*asked}) for clause in about]
    best = [clause for clause, n in zip(about, shares, strict=True) if n and 2 * n >= max(shares)]
    asks = len(DENIES.findall(question))
    best = [one for one in best if asks + len(DENIES.findall(one)) < MANY] if len(best) > 1 else best
    said = {len(DENIES.findall(clause)) % 2 == asks % 2 for clause in best}
    is_open = any(bool(STOPS.search(one)) != bool(STOPS.search(question)) or _numbers(one, question) for one in best)
    return None if is_open or len(said) != 1 else said.pop()


def _has(word: str, clause: str) -> bool:
    """Whether a clause has a word, an English one in any form."""
    return spell(word) in spell(clause) or (
        word.isascii() and any(is_form(word, one[0]) for one in tokens(clause) if one[0].isascii())
    )


def _numbers(clause: str, question: str) -> bool:
    """Whether the question has numbers, and the clause has others."""
    ours, theirs = ({one[0] for one in tokens(text) if one[0][0].isdecimal()} for text in (clause, question))
    return bool(theirs) and ours != theirs
