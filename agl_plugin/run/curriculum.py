"""Which questions come next by how often each was solved: pools of difficulty, each with its share of the places.

Of each question it is known how many rollouts solved it (a reward of at least `solved_at`) out of how many, where a
rollout counts half as much every `half_life_steps` training steps. That share names its pool: new, never, hard, middle,
easy, always. A question that is never or always solved rests for `rest_steps` steps; after that it is in the pool
`rested`. The places of a step go to the pools in turn by their weights (what a pool is behind by is kept), and within a
pool to the question that was asked the longest ago. Guarantees: the next questions follow from the seed and the rewards
so far alone, and the state is JSON that reads back the same. While m questions of a file have rested, each comes again
within m * W / (w * n) + 1 steps of its rest's end (w of W: the weight of `rested` of all, n: the file's places of a
step). Several files keep their shares: pools divide a file's own places.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from foundation.rollout_keys import POOLS
from foundation.seeds import derived

NEW, NEVER, HARD, MIDDLE, EASY, ALWAYS = POOLS
RESTED = "rested"
TEACHING = (MIDDLE, HARD, EASY, NEW, RESTED)  # the order in which questions stand in for flat groups


@dataclass(frozen=True)
class CurriculumRules:
    """`weights` by pool (new, hard, middle, easy, rested); a question is never solved where its share is at most
    `edge`, and always where it is at least 1 - `edge`; hard, middle and easy are thirds of what is between.

    `probe`: how many questions are played before the first step.
    """

    weights: Mapping[str, float]
    solved_at: float
    half_life_steps: float
    rest_steps: int
    edge: float
    probe: int = 0

    def pool_of(self, share: float) -> str:
        """The pool of a question that such a share of its rollouts solved."""
        if share <= self.edge:
            return NEVER
        if share >= 1 - self.edge:
            return ALWAYS
        third = int(3 * (share - self.edge) / (1 - 2 * self.edge))
        return (HARD, MIDDLE, EASY)[min(third, 2)]


@dataclass
class Known:
    """Of one question: rollouts that solved it and those that were scored, both aged, and when it was last asked."""

    solved: float = 0.0
    scored: float = 0.0
    step: int = -1


@dataclass
class Curriculum:
    """The pools of a run. `keys` names each question of the data, `files` says the file of each, by `shares`."""

    rules: CurriculumRules
    keys: Sequence[str]
    files: Sequence[int]
    shares: Sequence[float]
    seed: object
    known: dict[str, Known] = field(default_factory=dict)
    behind: dict[str, float] = field(default_factory=dict)

    def pool(self, key: str) -> str:
        """One of POOLS."""
        record = self.known.get(key)
        return self.rules.pool_of(record.solved / record.scored) if record and record.scored else NEW

    def picks(self, n: int, *, step: int) -> list[int]:
        """The places of a step's `n` questions, of those that do not rest; of the others where they are too few."""
        waiting = self._waiting(step)
        picked: list[int] = []
        while len(picked) < n and any(waiting.values()):
            name = self._turn([name for name, members in waiting.items() if members])
            picked.append(waiting[name].pop(0))
        return picked + self._resting(step)[: n - len(picked)]

    def spare(self, *, step: int) -> list[int]:
        """Questions that stand in for flat groups, those first that are likeliest to teach."""
        waiting = self._waiting(step)
        return [
            place for pool in TEACHING for name, places in waiting.items() if name.endswith(pool) for place in places
        ]

    def learned(self, step: int, groups: Sequence[tuple[str, Sequence[float]]]) -> dict[str, float]:
        """Note the scored rewards of each question that was asked; how many questions each pool has now."""
        for key, rewards in groups:
            record = self.known.setdefault(key, Known())
            aged = 0.5 ** ((step - record.step) / self.rules.half_life_steps)
            record.solved = record.solved * aged + sum(reward >= self.rules.solved_at for reward in rewards)
            record.scored = record.scored * aged + len(rewards)
            record.step = step
        sizes = Counter(map(self.pool, self.keys))
        return {f"curriculum/{name}": float(sizes[name]) for name in POOLS} | {
            "curriculum/resting": float(len(self._resting(step + 1)))
        }

    def state(self) -> dict[str, Any]:
        """For a checkpoint, as JSON."""
        known = {key: [entry.solved, entry.scored, entry.step] for key, entry in self.known.items()}
        return {"known": known, "behind": self.behind}

    def load(self, state: Mapping[str, Any]) -> None:
        self.known = {key: Known(*entry) for key, entry in state["known"].items()}
        self.behind = dict(state["behind"])

    def _rests(self, key: str, step: int) -> bool:
        return self.pool(key) in (NEVER, ALWAYS) and step - self.known[key].step <= self.rules.rest_steps

    def _resting(self, step: int) -> list[int]:
        """Places that rest, the longest first."""
        return self._oldest([place for place, key in enumerate(self.keys) if self._rests(key, step)])

    def _oldest(self, places: list[int]) -> list[int]:
        """Asked the longest ago first; those of one step in an order of their own, which the seed decides."""

        def age(place: int) -> tuple[int, int]:
            key = self.keys[place]
            return self.known[key].step if key in self.known else -1, derived("curriculum", str(self.seed), key)

        return sorted(places, key=age)

    def _waiting(self, step: int) -> dict[str, list[int]]:
        """The places that do not rest, by "file/pool"."""
        places = {f"{file}/{pool}": list[int]() for file in range(len(self.shares)) for pool in TEACHING}
        for place in self._oldest(list(range(len(self.keys)))):
            key = self.keys[place]
            pool = self.pool(key)
            if not self._rests(key, step):
                places[f"{self.files[place]}/{pool if pool in TEACHING else RESTED}"].append(place)
        return places

    def _turn(self, names: Sequence[str]) -> str:
        """The pool that is most behind its share of the places so far."""
        weights = {name: self.rules.weights[name.partition("/")[2]] for name in names}
        of_file: dict[str, float] = defaultdict(float)
        for name, weight in weights.items():
            of_file[name.partition("/")[0]] += weight
        whole = math.fsum(self.shares[int(file)] for file in of_file)
        shares = dict[str, float]()
        for name, weight in weights.items():
            file = name.partition("/")[0]
            shares[name] = self.shares[int(file)] / whole * weight / of_file[file]
        return furthest_behind(self.behind, shares)


def furthest_behind[K](behind: dict[K, float], shares: Mapping[K, float]) -> K:
    """Who gets the next place: each falls behind by its share of it, and the one that is furthest goes back by one."""
    for name, share in shares.items():
        behind[name] = behind.get(name, 0.0) + share
    turn = max(shares, key=lambda name: round(behind[name], 9))
    behind[turn] -= 1
    return turn
