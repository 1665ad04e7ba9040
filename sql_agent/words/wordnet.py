"""Makes wordnet.txt.gz from WordNet 3.0: `python -m sql_agent.words.wordnet /usr/share/wordnet` (of wordnet-base).

Guarantees: the same file from the same WordNet. One synset a line: its words of common English, and the lines of like
adjectives, of derived forms, and of the verbs above it and of its group, and behind a ! of its opposites; behind them
one irregular form a line, one verb a line that first means to say, to think or to feel, and one word a line with its
marks, where it is of talk, an adjective, an adverb, a person or a plain verb. The words are those of up to three common
ones, in their eight most common senses. Of nouns nothing above is taken: a mother is a parent, and another question.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from spellchecker import SpellChecker

OUT = Path(__file__).parent / "wordnet.txt.gz"
COMMON = 200  # times in the dictionary's corpus
SENSES, WORDS = 8, 3
SPEECH = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
LINKS = {"&", "^", "$", "*", "+"}  # like, see also, verb group, entails, derived
SAID, THOUGHT, FELT = "32", "31", "37"  # the files of verbs: lexnames(5WN)
# Of talk are what is said, written, thought of, searched and shown (noun.cognition, noun.communication, verb.cognition,
# verb.communication, verb.perception), but not what is below these: senses, languages, rules, arts, and what permits.
TALK = {"n": {"09", "10"}, "v": {"31", "32", "39"}}
NO_TALK = {
    "n": """music software signal indication natural_language code agreement award show discipline ability belief
        cognitive_process cognitive_state attitude sense symbol symptom sensation doctrine law method structure
        punishment legal_document order approval permission license drama film
        fiction falsehood fabrication lie myth legend joke hearsay gossip rumor story theory hypothesis guess fantasy
        imagination nonsense humor insult misinformation error fairytale fairy_tale""",
    "v": """permit order request promise accept criticize challenge persuade authorize agree forbid refuse deny reject
        encode sign punish declare dispute suppress forget evaluate decide plan sound make_noise season hurt ache smell
        taste hear hide radiate experience feel undergo listen disguise vanish glow blind itch expose subject stimulate
        glitter change_taste change_intensity cause_to_be_perceived perceive suffer
        prescribe insure name elect code lie misinform joke guess speculate
        imagine suppose doubt distrust mistake retract""",
}
IS_SHOWN = "show examine look see watch search inspect spy detect"  # below one of those
TALK_SHARE = 0.4
PLAIN = {"18": "p", "35": "w", "38": "w", "40": "w", "41": "w", "42": "w"}  # persons; what one does with anything

Key = tuple[str, str]


def main(folder: Path) -> None:
    common = SpellChecker().word_frequency.dictionary
    words: dict[Key, set[str]] = {}
    for key, lemma in _senses(folder):
        if len(lemma.split()) <= WORDS and all(common[word] >= COMMON for word in lemma.split()):
            words.setdefault(key, set()).add(lemma)
    links = {
        key: {(sign, other) for sign, other in others if other in words}
        for key, others in _links(folder)
        if key in words
    }
    linked = {key for key, others in links.items() if others} | {other for some in links.values() for _, other in some}
    place = {key: n for n, key in enumerate(sorted(key for key in words if key in linked or len(words[key]) > 1))}
    out = [
        "|".join(
            [",".join(sorted(words[key])), *(f"{sign}{n}" for sign, n in sorted((s, place[o]) for s, o in links[key]))]
        )
        for key in place
    ]
    out += sorted({form for form in _irregular(folder) if all(common[word] >= COMMON for word in form.split(">"))})
    out += sorted(f"{verb}!" for verb in _said(folder) if verb.isalpha() and common[verb] >= COMMON)
    out += sorted(f"{word}~{marks}" for word, marks in _of_talk(folder) if word.isalpha() and common[word] >= COMMON)
    OUT.write_bytes(gzip.compress("\n".join(out).encode(), mtime=0))


def lines(file: Path) -> Iterator[list[str]]:
    """The fields of each line of a file of WordNet."""
    return (line.split(" | ")[0].split() for line in file.read_text().splitlines() if not line.startswith(" "))


def _senses(folder: Path) -> Iterator[tuple[Key, str]]:
    for name, speech in SPEECH.items():
        for lemma, _, _, pointers, *rest in lines(folder / f"index.{name}"):
            for offset in rest[int(pointers) + 2 :][:SENSES]:
                yield (speech, offset), re.sub("[_-]", " ", lemma)


def _links(folder: Path) -> Iterator[tuple[Key, set[tuple[str, Key]]]]:
    """Of each synset "!" with an opposite of a word of it, and "" with those that are near it."""
    for name, speech in SPEECH.items():
        for fields in lines(folder / f"data.{name}"):
            key = speech, fields[0]
            at = 4 + 2 * int(fields[3], 16)
            pointers = zip(*(fields[at + n : at + 4 * int(fields[at]) : 4] for n in (1, 2, 3)), strict=True)
            wanted = LINKS | {"!"} | ({"@"} if speech == "v" else set())
            yield (
                key,
                {
                    (sign if sign == "!" else "", (other.replace("s", "a"), offset))
                    for sign, offset, other in pointers
                    if sign in wanted
                },
            )


def _said(folder: Path) -> Iterator[str]:
    """The verbs whose first sense is to say, to think or to feel."""
    files = {fields[0]: fields[1] for fields in lines(folder / "data.verb")}
    for lemma, _, _, pointers, *rest in lines(folder / "index.verb"):
        if files[rest[int(pointers) + 2]] in (SAID, THOUGHT, FELT):
            yield lemma


def _of_talk(folder: Path) -> Iterator[tuple[str, str]]:
    """Words and what they are: t of talk by all their uses, v as a verb, n as no verb; a an adjective or an adverb, p a
    person, w a verb of what one does with anything, by those of their uses that are not of talk."""
    files, barred, counts = {}, set[Key](), Counter[tuple[str, str, str]]()
    for name, speech in SPEECH.items():
        files |= {(speech, fields[0]): fields[1] for fields in lines(folder / f"data.{name}")}
        barred |= _below(folder, name, NO_TALK.get(speech, "")) - _below(folder, name, IS_SHOWN * (speech == "v"))
    for line in (folder / "cntlist.rev").read_text().splitlines():
        sense, place, n = line.split()
        lemma, _, kind = sense.partition("%")
        counts[lemma, " nvara"[int(kind[0])], place] = int(n)
    uses: dict[str, Counter[str]] = {}
    for name, speech in SPEECH.items():
        for lemma, _, _, pointers, *rest in lines(folder / f"index.{name}"):
            for n, offset in enumerate(rest[int(pointers) + 2 :], 1):
                key = speech, offset
                is_talk = files[key] in TALK.get(speech, ()) and key not in barred
                kind = "a" if speech in "ar" else speech.upper() if is_talk else PLAIN.get(files[key], speech)
                uses.setdefault(lemma, Counter())[kind] += 10 * counts[lemma, speech, str(n)] + (5 if n == 1 else 1)
    for word, of in uses.items():
        shares = {"t": (of["N"] + of["V"], of.total()), "v": (of["V"], of["V"] + of["v"] + of["w"])}
        shares |= {"n": (of["N"], of["N"] + of["n"] + of["p"] + of["a"])}
        marks = "".join(mark for mark, (part, whole) in shares.items() if part and part >= TALK_SHARE * whole)
        marks += "".join(mark for mark in "apw" if of[mark] and 2 * of[mark] >= of.total() - of["N"] - of["V"])
        if marks:
            yield word, marks


def _below(folder: Path, name: str, roots: str) -> set[Key]:
    """The synsets of these words that are of talk, and all below them."""
    speech, below, found = SPEECH[name], dict[Key, list[Key]](), set[Key]()
    for fields in lines(folder / f"data.{name}") if roots else ():
        key, at = (speech, fields[0]), 4 + 2 * int(fields[3], 16)
        if fields[4] in roots.split() and fields[1] in TALK[speech]:
            found.add(key)
        for n in range(at + 1, at + 4 * int(fields[at]), 4):
            if fields[n] in ("@", "@i"):
                below.setdefault((speech, fields[n + 1]), []).append(key)
    left = [*found]
    while left:
        left += (new := [key for key in below.get(left.pop(), ()) if key not in found])
        found |= {*new}
    return found


def _irregular(folder: Path) -> Iterator[str]:
    for name in SPEECH:
        forms = lines(folder / f"{name}.exc")
        yield from (">".join(fields[:2]) for fields in forms if len(fields) == 2 or name == "noun")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
