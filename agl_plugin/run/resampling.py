"""Dynamic sampling: what stands in for groups whose rollouts all earned the same.

Such a group has no advantage and teaches nothing. As in DAPO (Yu et al. 2025, 3.2) another question takes its place,
within the same step, because the same question mostly gives the same rewards again; agl_plugin.run.question_order says
which. Guarantees: none is one of the step's own; there are no more rounds than the recipe says; a group with fewer than
two scored rollouts is not replaced, since more load does not mend an outage.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agl_plugin.update.rules import in_reward_steps

Groups = Mapping[str, Sequence[float]]  # question (data id) -> the rewards of its scored rollouts


def is_flat(rewards: Sequence[float]) -> bool:
    """True when at least two rollouts are scored, and all of them alike."""
    return len(rewards) > 1 and not teaches(rewards)


def teaches(rewards: Sequence[float]) -> bool:
    """True when the rewards of scored rollouts differ, in the steps in which advantages are computed."""
    return len(set(map(in_reward_steps, rewards))) > 1


def key_of(question: Mapping[str, Any]) -> str:
    """What tells two questions of a dataset apart."""
    return str(question.get("id") or sorted((k, str(v)) for k, v in question.items() if k not in ("data_id", "index")))


class SpareQuestions:
    """Further questions of the training set for one step: its rows at `places`, in their order. Each is used up."""

    def __init__(self, dataset: Sequence[Mapping[str, Any]], places: Iterable[int]) -> None:
        self._dataset, self._places = dataset, iter(places)

    def draw(self, n: int, *, used: set[str]) -> list[dict[str, Any]]:
        """Up to `n` questions whose keys are not in `used`."""
        rows = map(self._dataset.__getitem__, self._places)
        return list(itertools.islice((dict(row) for row in rows if key_of(row) not in used), n))


class Places:
    """The places of a step's batch: each holds one group, at first those of the step's own questions."""

    def __init__(self, groups: Sequence[str]) -> None:
        self._held = {group: group for group in groups}
        self.tried = 0
        self.replaced = 0

    def flat(self, groups: Groups) -> list[str]:
        return [place for place, held in self._held.items() if is_flat(groups.get(held, ()))]

    def fill(self, substitutes: Mapping[str, str], groups: Groups) -> None:
        """Let each substitute (place -> new group) that teaches take its place."""
        self.tried += len(substitutes)
        for place, group in substitutes.items():
            if teaches(groups.get(group, ())):
                self._held[place] = group
                self.replaced += 1

    @property
    def in_batch(self) -> set[str]:
        return set(self._held.values())
