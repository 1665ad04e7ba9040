"""The training questions of each step, and those that stand in for flat groups: for both back ends.

Guarantees: without a curriculum they are made of (data.seed, step) and the files' weights, and of nothing else; with
one, of the rewards so far too, and a checkpoint keeps what is known. So a run that stops after any step and goes on
sees the questions that it would have seen. Rows of several files tell theirs in the column `file`.
One file is passed once per epoch. Of several each has its share (weight / sum of weights) of every stretch of places,
to within one place or so; an epoch has as many places as all files have questions, and a file of which it takes fewer
or more goes on in the next epoch where it was left, so that no question comes twice before all came once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agl_plugin.run.curriculum import Curriculum, CurriculumRules, furthest_behind
from agl_plugin.run.resampling import SpareQuestions, is_flat, key_of
from foundation.files import write_json

STATE = "curriculum.json"  # in a checkpoint's folder
Groups = Sequence[tuple[Mapping[str, Any], Sequence[float]]]  # questions that were asked, with their scored rewards


class QuestionOrder:
    """The order of a run: `n` questions a step. `weights`: those of several files, [] for one."""

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        *,
        n: int,
        seed: int,
        weights: Sequence[float] = (),
        curriculum: CurriculumRules | None = None,
    ) -> None:
        assert len(rows) >= n, f"{len(rows)} questions make no step of {n}"
        self._rows, self._n, self._seed, self._weights = rows, n, seed, list(weights)
        self._files = [int(row.get("file") or 0) if weights else 0 for row in rows]
        shares = self._weights or [1.0]
        keys = list(map(key_of, rows)) if curriculum else []
        self.curriculum = Curriculum(curriculum, keys, self._files, shares, seed) if curriculum else None

    def of_step(self, step: int) -> list[int]:
        """The places of a step's questions; without a curriculum each epoch has an order of its own."""
        if self.curriculum:
            return self.curriculum.picks(self._n, step=step)
        epoch, at = divmod(step - 1, len(self._rows) // self._n)
        places = order(self._files, self._weights, seed=self._seed, epoch=epoch)
        return places[at * self._n : (at + 1) * self._n]

    def use(self, step: int) -> int:
        """Which use of its questions a step makes, from 1; without a curriculum each epoch has each once at most."""
        return 1 + (step - 1) // (len(self._rows) // self._n)

    def spare(self, step: int) -> SpareQuestions:
        """What stands in for groups of this step that are flat; with a curriculum after `of_step`."""
        if self.curriculum:
            return SpareQuestions(self._rows, self.curriculum.spare(step=step))
        return SpareQuestions(self._rows, order(self._files, self._weights, seed=f"{self._seed}/{step}", epoch=0)[::-1])

    @property
    def to_probe(self) -> list[int]:
        """The places of the questions that are played before the first step."""
        n = self.curriculum.rules.probe if self.curriculum else 0
        return order(self._files, self._weights, seed=f"{self._seed}/probe", epoch=0)[:n]

    def learned(self, step: int, groups: Groups) -> dict[str, float]:
        """Note what the questions of a step earned, those included that stood in; the metrics of the pools."""
        if not self.curriculum:
            return {}
        return self.curriculum.learned(step, [(key_of(question), rewards) for question, rewards in groups])

    def probed(self, groups: Groups) -> dict[str, float]:
        """The same before the first step, and how many groups were flat, of those with two scored rollouts."""
        compared = [rewards for _, rewards in groups if len(rewards) > 1]
        flat = {"probe/groups": float(len(compared)), "probe/flat": float(sum(map(is_flat, compared)))}
        return self.learned(0, groups) | flat

    def save(self, folder: Path) -> None:
        """Keep what is known in a checkpoint's folder; without a curriculum there is nothing."""
        if self.curriculum:
            write_json(folder / STATE, self.curriculum.state())

    def load(self, folder: Path) -> None:
        """Go to where a checkpoint was; one without a curriculum knows of no question."""
        if self.curriculum and (folder / STATE).is_file():
            self.curriculum.load(json.loads((folder / STATE).read_text(encoding="utf-8")))


def order(files: Sequence[int], weights: Sequence[float], *, seed: object, epoch: int) -> list[int]:
    """The questions of an epoch, as places in `files`, which says the file of each; no `weights`: one file."""
    if not weights:
        return _shuffled(list(range(len(files))), f"{seed}/{epoch}")
    rows = [[n for n, file in enumerate(files) if file == number] for number in range(len(weights))]
    turns = _file_of_each_place(
        len(files), [weight if file_rows else 0.0 for weight, file_rows in zip(weights, rows, strict=True)]
    )
    return _questions_of_turns(turns, rows, seed=seed, epoch=epoch)


def _questions_of_turns(turns: Sequence[int], rows: Sequence[list[int]], *, seed: object, epoch: int) -> list[int]:
    """A question for each turn: each file goes on where the epochs before left it."""
    taken = [epoch * turns.count(number) for number in range(len(rows))]
    passes: dict[tuple[int, int], list[int]] = {}
    places = []
    for number in turns:
        n_pass, at = divmod(taken[number], len(rows[number]))
        if (number, n_pass) not in passes:
            passes[number, n_pass] = _shuffled(rows[number], f"{seed}/{number}/{n_pass}")
        places.append(passes[number, n_pass][at])
        taken[number] += 1
    return places


def _file_of_each_place(n: int, weights: Sequence[float]) -> list[int]:
    """The number of the file that fills each of `n` places: the one that is furthest behind its share."""
    total, behind = sum(weights), dict[int, float]()
    shares = {number: weight / total for number, weight in enumerate(weights)}
    return [furthest_behind(behind, shares) for _ in range(n)]


def _shuffled(numbers: Sequence[int], seed: str) -> list[int]:
    shuffled = list(numbers)
    random.Random(seed).shuffle(shuffled)
    return shuffled
