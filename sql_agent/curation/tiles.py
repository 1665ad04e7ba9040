"""What two questions have in common in another order: blocks of tokens, as long as they go (greedy string tiling).

Guarantees: pure functions. A question whose parts stand in another order can be put into the other's order; where two
short blocks alone changed places around a word that is no conjunction ("from A to B", "A 比 B 贵"), they changed roles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sql_agent.curation.wording import STOP

# What stands between two things that may change places.
JOINS = (STOP - {"to", "for", "on", "of", "about", "is", "are", "does", "do"}) | frozenset(
    ["and", "or", "nor", "vs", "versus", ",", "/", "&", "和", "与", "跟", "及", "或", "同", "、", "是", "的", "还"]
)
ROLE = 6  # tokens of what has a role
MOST = 80  # tokens; longer ones are compared in their order alone


@dataclass(frozen=True)
class Tile:
    """`size` tokens from `at` in the one that stand from `there` in the other."""

    at: int
    there: int
    size: int


def tiles(new: Sequence[str], old: Sequence[str]) -> list[Tile]:
    """The blocks that stand in both, the longest taken first, in the order of the new one."""
    if max(len(new), len(old)) > MOST:
        return []
    free, open_ = [True] * len(new), [True] * len(old)
    blocks: list[Tile] = []
    while best := _longest(new, old, free, open_):
        for n in range(best.size):
            free[best.at + n] = open_[best.there + n] = False
        blocks.append(best)
    return sorted(blocks, key=lambda tile: tile.at)


def _longest(new: Sequence[str], old: Sequence[str], free: list[bool], open_: list[bool]) -> Tile | None:
    """The longest common block of what is left; of several the one that moves least."""
    best: tuple[int, int, int, int] | None = None
    ends: dict[int, int] = {}
    for at, token in enumerate(new):
        now: dict[int, int] = {}
        for there, other in enumerate(old):
            if free[at] and open_[there] and token == other:
                size = now[there] = ends.get(there - 1, 0) + 1
                best = max(best or (0, 0, 0, 0), (size, -abs(at - there), at - size + 1, there - size + 1))
        ends = now
    return Tile(best[2], best[3], best[0]) if best else None


def rearranged(new: Sequence[str], old: Sequence[str], blocks: Sequence[Tile]) -> tuple[str, ...]:
    """The new one's tokens in the old one's order, and what only it has beside a gap of the old one's."""
    taken = {tile.there + n for tile in blocks for n in range(tile.size)}
    starts = [0]
    for block, following in pairwise(blocks):
        follows = block.there + block.size < len(old) and block.there + block.size not in taken
        starts.append(
            following.at if follows or following.there == 0 or following.there - 1 in taken else block.at + block.size
        )
    ends = [*starts[1:], len(new)]
    order = sorted(range(len(blocks)), key=lambda n: blocks[n].there)
    return tuple(token for n in order for token in new[starts[n] : ends[n]])


def change_roles(new: Sequence[str], blocks: Sequence[Tile]) -> bool:
    """Whether two short blocks around a third changed places, and nothing else did."""
    places = sorted(tile.there for tile in blocks)
    ranks = [places.index(tile.there) for tile in blocks]
    moved = [n for n, rank in enumerate(ranks) if n != rank]
    if len(moved) != 2 or moved[1] - moved[0] < 2:
        return False
    first, last = moved
    between = [token for tile in blocks[first + 1 : last] for token in new[tile.at : tile.at + tile.size]]
    return max(blocks[first].size, blocks[last].size) <= ROLE and any(token not in JOINS for token in between)
