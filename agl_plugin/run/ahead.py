"""Asynchronous sampling: more groups play than a step trains, and the others go on over the change of weights.

A step trains the groups that are complete, the one that was asked first before the others. The staleness of a rollout
is how many updates the weights that are trained are ahead of the oldest ones that answered a call of it; above the
bound it is left out. Guarantees: a question is trained once for each time that it is drawn: one of which fewer than two
rollouts are young enough is asked again; where a run goes on from a checkpoint, what was in flight there is asked
again, since its rollouts belong to a store that may be gone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agl_plugin.run.question_order import QuestionOrder
from agl_plugin.run.resampling import key_of
from agl_plugin.update.rows import Call
from foundation.files import write_json
from foundation.grouping import grouped

STATE = "in_flight.json"  # in a checkpoint's folder
Question = dict[str, Any]


@dataclass
class Finished:
    """A rollout that has finished: its reward, or why it has none (yet), and its calls, where they can be trained."""

    reward: float | None
    unscored: str
    calls: Sequence[Call]

    def staleness(self, *, weights: int) -> int:
        """Updates from the oldest weights that answered a call of it to these; 0 without calls to train."""
        return weights - min((call.facts["weights_version"] for call in self.calls), default=weights)


@dataclass
class InFlight:
    """Rollouts in flight: their questions by rollout id and, of the finished ones, what came of them."""

    questions: dict[str, Question] = field(default_factory=dict)
    finished: dict[str, Finished] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)

    @property
    def pending(self) -> set[str]:
        return self.questions.keys() - self.finished.keys()

    @property
    def groups(self) -> dict[str, list[str]]:
        """The rollouts of each group, in the order in which they were asked."""
        return grouped(self.questions, lambda rollout: self.questions[rollout]["data_id"])

    def of(self, groups: set[str], *, others: bool = False) -> InFlight:
        """What belongs to these groups, or to all others."""

        def belongs(rollout: str) -> bool:
            return (self.questions[rollout]["data_id"] in groups) is not others

        return InFlight(
            {i: question for i, question in self.questions.items() if belongs(i)},
            {i: rollout for i, rollout in self.finished.items() if belongs(i)},
            [row for row in self.rows if belongs(row["rollout_id"])],
            [seen for seen in self.seen if belongs(seen.rollout_id)],
        )

    def with_more(self, others: InFlight) -> InFlight:
        return InFlight(
            self.questions | others.questions,
            self.finished | others.finished,
            self.rows + others.rows,
            self.seen + others.seen,
        )

    def too_old(self, *, weights: int, bound: int) -> set[str]:
        """Rollouts that these weights may not be trained with."""
        return {i for i, rollout in self.finished.items() if rollout.staleness(weights=weights) > bound}

    def complete(self, *, weights: int, bound: int) -> tuple[list[str], list[str]]:
        """Groups of which no rollout plays: those to train, and those in which too few are young enough."""
        old = self.too_old(weights=weights, bound=bound)
        whole = {name: set(members) for name, members in self.groups.items() if self.finished.keys() >= set(members)}
        young = {name: {i for i in members - old if self.finished[i].calls} for name, members in whole.items()}
        lost = [name for name, members in whole.items() if members & old and len(young[name]) < 2]
        return [name for name in whole if name not in lost], lost


class QuestionLine:
    """What is asked in each step, so that `ahead` groups more are in flight than the `n` that it trains."""

    def __init__(self, order: QuestionOrder, rows: Sequence[Question], *, n: int, ahead: int, n_steps: int) -> None:
        self._order, self._rows, self._n, self._ahead, self._n_steps = order, rows, n, ahead, n_steps
        self._drawn = 0
        self._again = list[Question]()
        self.dropped = list[str]()  # rollouts that were in flight where the run goes on from

    def of_step(self, step: int, *, n_open: int) -> list[Question]:
        """The questions to ask where `n_open` groups are in flight; never more than the steps that are left train."""
        again, self._again = self._again, []
        wanted = min(self._n + self._ahead, (self._n_steps - step + 1) * self._n) - n_open - len(again)
        first, upto = self._drawn // self._n, self._drawn + max(0, wanted)
        places = [at for past in range(first, -(-upto // self._n)) for at in self._order.of_step(past + 1)]
        fresh = places[self._drawn - first * self._n : upto - first * self._n]
        self._drawn = upto
        return again + [self._rows[at] for at in fresh]

    def save(self, folder: Path, in_flight: InFlight) -> None:
        """Keep what is in flight in a checkpoint's folder."""
        groups = [{"key": key_of(in_flight.questions[i[0]]), "rollouts": i} for i in in_flight.groups.values()]
        write_json(folder / STATE, {"drawn": self._drawn, "groups": groups})

    def load(self, folder: Path, *, step: int) -> None:
        """Go to where a checkpoint was; what was in flight there is asked again."""
        self._drawn = step * self._n
        if not (folder / STATE).is_file():
            return
        state: Mapping[str, Any] = json.loads((folder / STATE).read_text(encoding="utf-8"))
        by_key = {key_of(row): row for row in self._rows}
        self._drawn = state["drawn"]
        self._again = [by_key[group["key"]] for group in state["groups"] if group["key"] in by_key]
        self.dropped = [rollout for group in state["groups"] for rollout in group["rollouts"]]
