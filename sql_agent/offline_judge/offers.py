"""Offers at an answer's end: what the speaker may do next, or what the reader may want, and nothing of the value.

Guarantees: pure functions, linear in the text. One with a number, a denial, a doubt or another answer in it stays. Not
covered: an offer before the value; another value in an offer's own words ("I can also list barley").
"""

from __future__ import annotations

import re

from sql_agent.offline_judge.doubts import DENIALS, DOUBTS
from sql_agent.offline_judge.values import plain

PIECE = re.compile(r"[^.!?\n。！？]*[.!?\n。！？]+[\s*_]*|[^.!?\n。！？]+")
ASIDE = re.compile(r"[,，;；](?=\s{0,2}(?:如需|如果?您?还?需要?|if you(?:'d)? (?:need|want|like)\b))", re.I)
BEGINS = re.compile(  # "let me know if you need anything else"
    r"[\s*_]*(?:(?:please |i |just )?"
    r"(?:let me know|feel free|is there|if|would you|do you|want me|hope|happy to)\b"
    r"|(?:shall|should|can|may) (?:i|we)\b"
    r"|(?:i|we)(?:['’](?:d|ll)| can| could| would| will) (?:also|gladly|be|help|provide|list|show|break"
    r"|go|walk|explain|expand|dig|share|look)\b"
    r"|[如若希欢随]|[您你]?(?:是否|是不是|要不要|还有|还?[需想]要?)|有?需要|请[问随]|我[还也]?可以)",
    re.I,
)
ACTS = re.compile(
    r"\b(?:else|help|assist|question|further|more|additional|detail|want|would you like|just let me know"
    r"|(?:can|shall|should|may|could|will|would) (?:i|we|also)|(?:i|we) (?:can|could|will|would)|like (?:me )?to"
    r"|if (?:that|it)(?:['’]s| is| would be)? \w)"
    r"|帮|告[诉知]|[提疑]问|问题|联系|了解|[要我]再?(?:进1步|[把将为给查列导])|我来?[也还]?可以"
    r"|[查察][看询]|其[他它]|可以再",
)
FIXES = re.compile(  # the answer itself: "should I say rye?"
    r"\b(?:say|(?<!would )be|mean|answer\w*|count|call|name|(?<!of )use|take|put|add|include|make it|correct|fix|change"
    r"|replace|redo|recheck|re-?run|verify|confirm|double)\b"
    r"|(?<!是不)(?<!您)是(?![否不])|[改换说答填写选指重]|当作|算[作成]|核[实对]|确认"
)
DOUBTFUL = {"if", "or", "about", "could", "可以", "如果", "或", "疑", "?"}  # as every offer may be
CHOICE = re.compile(r"要不要|是不是|是否|进1步|\b(?:csv|excel|json|pdf|sql)\b", re.I)  # and in what form


def cut_offers(answer: str) -> tuple[str, str]:
    """An answer without the offers at its end, and these."""
    pieces, offers = PIECE.findall(ASIDE.sub("。", answer)), list[str]()
    while pieces and BEGINS.match(pieces[-1]):
        offer = plain(pieces[-1])
        bare = CHOICE.sub(" ", offer)
        is_own = ACTS.search(offer) and not FIXES.search(bare)
        if not is_own or re.search(r"\d", bare) or DENIALS.search(bare) or not {*DOUBTS.findall(bare)} <= DOUBTFUL:
            break
        offers.append(CHOICE.sub(" ", pieces.pop().strip(" *_\n")[1:]))
    return "".join(pieces), "\n".join(offers)
