"""How likely Chinese text is, by how often its words are written; makes frequency.txt.gz from jieba's dictionary:
`python -m sql_agent.curation.frequency /usr/lib/python3/dist-packages/jieba/dict.txt` (of python3-jieba).

Guarantees: the same file from the same dictionary; a pure function of the text. A line is how often, as a power of two,
and the words of that. Not covered: how words follow each other; what is not there is as seldom as its characters.
"""

from __future__ import annotations

import functools
import gzip
import math
import sys
from pathlib import Path

OUT = Path(__file__).parent / "frequency.txt.gz"
SELDOM = 20  # times in jieba's corpus; what is seldomer is left out
LONGEST = 4  # characters of a word


def main(dictionary: Path) -> None:
    """Writes the file."""
    words: dict[int, list[str]] = {}
    for line in dictionary.read_text(encoding="utf-8").splitlines():
        word, times, *_ = line.split(" ")
        if len(word) <= LONGEST and int(times) >= (1 if len(word) == 1 else SELDOM) and not word.isascii():
            words.setdefault(int(times).bit_length(), []).append(word)
    text = "\n".join(f"{power} {' '.join(sorted(members))}" for power, members in sorted(words.items()))
    OUT.write_bytes(gzip.compress(text.encode(), mtime=0))


@functools.cache
def _powers() -> dict[str, int]:
    lines = gzip.decompress(OUT.read_bytes()).decode().splitlines()
    return {word: int(power) for power, *words in map(str.split, lines) for word in words}


def frequent(power: int) -> list[str]:
    """The words that are written at least 2 ** (power - 1) times in jieba's corpus, sorted."""
    return sorted(word for word, times in _powers().items() if times >= power)


@functools.cache
def _log_total() -> float:
    """How often any word is written, as a power of two."""
    return math.log2(sum(2.0**power for power in _powers().values()))


@functools.lru_cache(maxsize=65536)
def likelihood(text: str) -> float:
    """The logarithm to base two of how likely the text is, in the words that make it likeliest."""
    best = [0.0]
    for end in range(1, len(text) + 1):
        words = ((start, text[start:end]) for start in range(max(0, end - LONGEST), end))
        best.append(
            max(
                best[at] + _powers().get(word, 0) - _log_total()
                for at, word in words
                if len(word) == 1 or word in _powers()
            )
        )
    return best[-1]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
