"""The rollouts of training that a finished run left in its folder, for another run to learn from.

They come in whole groups: as many rollouts as the run played of a question, at least two of them scored. In each pass
over them a rollout is one of its own, ROLLOUT/u1, ROLLOUT/u2 and so on, in a group GROUP/u1.
Guarantees: token ids, log-probabilities, rewards and the reasons of unscored rollouts are as stored; the run's files
are only read; the order of the groups is that of the run; memory holds their names, and of rollouts those asked for.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agl_plugin.audit import schema
from agl_plugin.audit.facts import Seen
from agl_plugin.audit.schema import stored_calls, unpack
from agl_plugin.update.rows import Call
from foundation import run_folder
from foundation.errors import UserError
from foundation.grouping import grouped

USE = "/u"
ROLLOUTS = """SELECT rollout.id, group_id, rollout.agent, question.name, question.question, reference, task_type,
    unscored = '' AND reward IS NOT NULL AND n_calls > 0 AS scored
    FROM rollout JOIN verdict ON rollout_id = rollout.id JOIN question ON question.id = question_id
    WHERE mode = 'train' ORDER BY rollout.rowid"""
WITHOUT_LOG_PROBS = """SELECT count(*) FROM llm_call JOIN rollout USING (attempt_id)
    WHERE mode = 'train' AND n_sampled > 0 AND log_probs IS NULL"""


@dataclass(frozen=True)
class StoredGroup:
    """The rollouts of a question by their ids in the run; `question` as a row of data, as far as the audit has it."""

    name: str
    rollouts: tuple[str, ...]
    question: dict[str, Any]


@dataclass(frozen=True)
class StoredRollout:
    """One use of a rollout: `record` is its line of rollouts.jsonl, `seen` what the audit keeps of it."""

    record: dict[str, Any]
    seen: Seen

    @property
    def reward(self) -> float | None:
        """None where it is unscored."""
        return None if self.record["unscored"] else self.record["reward"]


def call_of(row: sqlite3.Row, prompt: list[int]) -> Call:
    """A row of the table of calls, with its whole prompt."""
    log_probs = unpack(row["log_probs"], "f")
    return Call(prompt, unpack(row["sampled_ids"]), log_probs, row["finish_reason"] or "", dict(row))


class StoredRun:
    """A finished run, named by its folder. Raises UserError where it keeps nothing that can be learned from."""

    def __init__(self, run: Path) -> None:
        self.folder = schema.audit_file(run).parent
        self._connection = schema.opened(run)
        (self._settings,) = (json.loads(row[0]) for row in self._connection.execute("SELECT settings FROM run"))
        self._check()
        self._lines = dict(_places(self.folder / run_folder.ROLLOUTS))
        self.left_out = Counter[str]()
        self.groups = list(self._complete_groups())
        if lost := {name for group in self.groups for name in group.rollouts} - self._lines.keys():
            raise UserError(
                f"{self.folder}: {run_folder.ROLLOUTS} has no line of {min(lost)}, which {run_folder.AUDIT} has; give "
                "a folder whose files are of one run"
            )
        if not self.groups:
            raise UserError(f"{self.folder}: no group of it can be learned from: {dict(self.left_out)}")

    def _check(self) -> None:
        if not (self.folder / run_folder.AUDIT_SEAL).is_file():
            raise UserError(
                f"{self.folder}: has no {run_folder.AUDIT_SEAL}, so it still trains or was killed, and only finished "
                "runs are learned from. Wait for it, or name another"
            )
        if source := self._settings.get("from_store"):
            raise UserError(f"{self.folder}: learned from the rollouts of {source['folder']} itself; name that run")

    def close(self) -> None:
        self._connection.close()

    @property
    def model(self) -> Path:
        """The model folder that the run started from, whose tokens its rollouts are made of."""
        return Path(self._settings["verl"]["actor_rollout_ref"]["model"]["path"])

    @property
    def group_size(self) -> int:
        return self._settings["verl"]["actor_rollout_ref"]["rollout"]["n"]

    @property
    def temperature(self) -> float:
        """What the stored log-probabilities are of."""
        return float(self._settings["verl"]["actor_rollout_ref"]["rollout"]["temperature"])

    @property
    def n_without_log_probs(self) -> int:
        return self._connection.execute(WITHOUT_LOG_PROBS).fetchone()[0]

    def facts(self, *, uses: int) -> dict[str, Any]:
        """What the audit of a run keeps that learns from this one, each rollout at most so often. `weights`: after how
        many updates of this run its weights had which fingerprint."""
        updates = self._connection.execute("SELECT step, weights_before, weights_after FROM policy_update").fetchall()
        weights = {before: step - 1 for step, before, _ in updates} | {after: step for step, _, after in updates}
        seal = (self.folder / run_folder.AUDIT_SEAL).read_text(encoding="utf-8").strip()
        return {"folder": str(self.folder), "sha256": seal, "uses": uses, "weights": weights}

    def _complete_groups(self) -> Iterator[StoredGroup]:
        for name, rows in grouped(self._connection.execute(ROLLOUTS), lambda row: row["group_id"]).items():
            if len(rows) != self.group_size:
                self.left_out["groups that the run did not play to the end"] += 1
            elif sum(row["scored"] for row in rows) < 2:
                self.left_out["groups with fewer than two scored rollouts"] += 1
            else:
                yield StoredGroup(name, tuple(row["id"] for row in rows), _question(rows[0]))

    def rollouts(self, places: Iterable[int], *, use: int, step: int) -> list[StoredRollout]:
        """All rollouts of the groups at these places, used for the `use`-th time, in this step of another run."""
        groups = [self.groups[place] for place in places]
        return [self._rollout(name, group, use=use, step=step) for group in groups for name in group.rollouts]

    def _rollout(self, name: str, group: StoredGroup, *, use: int, step: int) -> StoredRollout:
        mark = f"{USE}{use}"
        place = {"rollout_id": f"{name}{mark}", "group": f"{group.name}{mark}", "step": step, "resampled": False}
        record = {key: value for key, value in self._line(name).items() if key != "timeline"} | place
        attempts = self._connection.execute("SELECT * FROM attempt WHERE rollout_id = ? ORDER BY n", (name,)).fetchall()
        rows = [{**dict(row), "id": f"{row['id']}{mark}", "rollout_id": place["rollout_id"]} for row in attempts]
        calls = self._calls(attempts[-1]["id"], mark) if attempts else []
        return StoredRollout(record, Seen(place["rollout_id"], group.question, rows, calls))

    def _calls(self, attempt: str, mark: str) -> list[Call]:
        calls = [call_of(row, prompt) for row, prompt in stored_calls(self._connection, attempt)]
        return [replace(call, facts={**call.facts, "attempt_id": f"{attempt}{mark}"}) for call in calls]

    def _line(self, name: str) -> dict[str, Any]:
        with (self.folder / run_folder.ROLLOUTS).open("rb") as file:
            file.seek(self._lines[name])
            return json.loads(file.readline())


def _question(row: Any) -> dict[str, Any]:
    text = row["question"] or row["name"] or row["group_id"]
    fields = {"id": row["name"], "question": text, "answer": row["reference"], "task_type": row["task_type"]}
    return {**fields, "agent": row["agent"]}


def _places(file: Path) -> Iterator[tuple[str, int]]:
    """Where the line of each rollout begins. Raises UserError."""
    if not file.is_file():
        raise UserError(f"{file}: is not there, and a stored rollout needs its line of it; name a whole run folder")
    at = 0
    with file.open("rb") as lines:
        for line in lines:
            yield json.loads(line)["rollout_id"], at
            at += len(line)


def distances(connection: sqlite3.Connection, source: Mapping[str, Any]) -> dict[str, int]:
    """Of each trained rollout of another run: updates from the weights that answered it back to those that both runs
    had, and from there to those that it trained; {} where the runs had none in common."""
    first = connection.execute("SELECT step, weights_before FROM policy_update ORDER BY step LIMIT 1").fetchone()
    if first is None or (begin := source["weights"].get(first["weights_before"])) is None:
        return {}
    query = """SELECT rollout.id, rollout.step - ? + max(abs(weights_version - ?)) FROM rollout
        JOIN llm_call USING (attempt_id) WHERE mode = 'train' AND weights_version IS NOT NULL
        AND rollout.id IN (SELECT rollout_id FROM train_row) GROUP BY rollout.id"""
    return dict(connection.execute(query, (first["step"], begin)).fetchall())
