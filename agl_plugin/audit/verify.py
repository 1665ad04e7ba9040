"""Is an audit file whole, and do its rows follow from its calls? Every step, every row, no samples.

Guarantees: a changed bit of any value shows (ledger), and of any byte once the run has ended (seal); each row, mask and
advantage is computed again by recompute.py, each rollout accounted for, and both compared with rollouts.jsonl and
metrics.jsonl where these lie beside the file. Memory holds one step at a time.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agl_plugin.audit import schema
from agl_plugin.audit.log import seal_of
from agl_plugin.audit.recompute import Call, Earned, Expected, Settings, by_row, optimizer_steps, rows_of
from agl_plugin.audit.schema import stored_calls, unpack
from agl_plugin.audit.stored import USE, distances
from foundation import run_folder
from foundation.files import read_lines
from foundation.grouping import grouped

TOLERANCE = 1e-6
MOST_PROBLEMS = 200


@dataclass
class Checked:
    """What was checked, and what is wrong with it."""

    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def expect(self, holds: bool, problem: str) -> None:
        """Keep a problem; all are counted, the first MOST_PROBLEMS are told."""
        if holds:
            return
        self.counts["problems"] += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)


def verify(run: Path) -> Checked:
    """Everything of a run's audit. Raises UserError where there is none."""
    path, checked = schema.audit_file(run), Checked()
    connection = schema.opened(run)
    try:
        _seal(path, checked)
        for row in connection.execute("PRAGMA integrity_check"):
            checked.expect(row[0] == "ok", f"SQLite: {row[0]}")
        _ledger(connection, checked)
        if not checked.problems:  # on what is damaged, whatever follows would be one story more
            _content(connection, checked, folder=path.parent)
    except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as exc:
        checked.expect(False, f"the file cannot be read: {type(exc).__name__}: {exc}")
    finally:
        connection.close()
    return checked


def _seal(path: Path, checked: Checked) -> None:
    seal = path.with_name(run_folder.AUDIT_SEAL)
    if not seal.is_file():
        checked.notes.append(f"no {seal.name}: the run goes on or was killed, and only the values are checked")
        return
    expected = seal.read_text(encoding="utf-8", errors="replace").strip()
    actual = seal_of(path)
    checked.expect(actual == expected, f"{path.name} has the SHA-256 {actual}, and {seal.name} says {expected}")


def _ledger(connection: sqlite3.Connection, checked: Checked) -> None:
    """The hash of each entry, and that no row stands outside of them."""
    previous = ""
    ends = Counter[str]()
    version = schema.version_of(connection)
    for entry in connection.execute("SELECT * FROM ledger ORDER BY n"):
        table, first, last = entry["table"], entry["first"], entry["last"]
        place = f"{table}, rows {first} to {last} (step {entry['step']})"
        if table not in schema.TABLES or first != ends[table] + 1:
            checked.expect(False, f"ledger: {place} do not follow row {ends[table]}")
            return
        rows = schema.rows_between(connection, table, first, last, version=version)
        previous = schema.digest(previous, table, rows, step=entry["step"])
        checked.expect(previous == entry["sha256"], f"{place}: what they hold is not what was written")
        previous, ends[table] = entry["sha256"], last
        checked.counts["ledger entries"] += 1
    for table in schema.TABLES:
        (n,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        checked.expect(n == ends[table], f"{table} has {n} rows, and the ledger knows {ends[table]}")


def _content(connection: sqlite3.Connection, checked: Checked, *, folder: Path) -> None:
    (run,) = connection.execute("SELECT * FROM run").fetchall()
    stored = json.loads(run["settings"])
    settings = Settings.of(stored)
    if older := stored.get("goes_on_from"):
        runs = [f"{ancestor['run']}@{ancestor['step']}" for ancestor in older]
        checked.notes.append(f"goes on from {', before that '.join(runs)}")
    steps = [row[0] for row in connection.execute("SELECT DISTINCT step FROM rollout WHERE mode = 'train' ORDER BY 1")]
    for step in steps:
        Step(connection, settings, checked, step).check()
    _verdicts(connection, checked)
    _weights(connection, checked, settings)
    if (file := folder / run_folder.ROLLOUTS).exists():
        _rollouts_file(connection, checked, file)
    if (file := folder / run_folder.METRICS).exists():
        _metrics_file(connection, checked, file)


def _verdicts(connection: sqlite3.Connection, checked: Checked) -> None:
    """A reward is the sum of its parts, and there is one or a reason."""
    for row in connection.execute("SELECT * FROM verdict"):
        checked.counts["verdicts"] += 1
        name = row["rollout_id"]
        reward = row["reward"]
        parts = json.loads(row["parts"])
        checked.expect(reward is not None or bool(row["unscored"]), f"{name}: neither reward nor reason")
        if reward is not None and parts:
            total = sum(parts.values())
            checked.expect(abs(total - reward) <= TOLERANCE, f"{name}: reward {reward}, and its parts sum to {total}")


def _weights(connection: sqlite3.Connection, checked: Checked, settings: Settings) -> None:
    """Each update begins with the weights that the last one left; calls were answered by the weights of their step, or
    in a training with `async_groups` by those or older ones, and stored ones by the weights of another run."""
    last: sqlite3.Row | None = None
    for row in connection.execute("SELECT * FROM policy_update ORDER BY step"):
        checked.counts["updates"] += 1
        if last and row["step"] == last["step"] + 1:
            same = row["weights_before"] == last["weights_after"]
            checked.expect(same, f"{row['id']} begins with weights that {last['id']} did not leave")
        last = row
    newest = "max(0, rollout.step - (mode = 'train'))"
    wrong = f"""SELECT llm_call.id, weights_version, rollout.step, mode FROM llm_call
        JOIN attempt ON attempt.id = llm_call.attempt_id JOIN rollout ON rollout.id = attempt.rollout_id
        WHERE NOT (mode = 'train' AND ?)
        AND (weights_version > {newest} OR (weights_version < {newest} AND NOT (mode = 'train' AND ?)))"""
    for call, version, step, mode in connection.execute(wrong, (bool(settings.from_store), settings.max_staleness > 0)):
        checked.expect(False, f"{call} ({mode}, step {step}) was answered by weights after {version} updates")
    if settings.from_store:
        _stored(connection, checked, settings.from_store)
    if settings.max_staleness:
        trained = {row[0] for row in connection.execute("SELECT rollout_id FROM train_row")}
        steps = [row[0] for row in connection.execute("SELECT DISTINCT step FROM train_row")]
        ages = (staleness(connection, step).items() for step in steps)
        counted = Counter(age for ages_of_step in ages for rollout, age in ages_of_step if rollout in trained)
        shown = ", ".join(f"{age}: {n}" for age, n in sorted(counted.items()))
        checked.notes.append(f"trained rollouts by staleness in updates (at most {settings.max_staleness}): {shown}")


def _stored(connection: sqlite3.Connection, checked: Checked, source: Mapping[str, Any]) -> None:
    """Where the rollouts of training were played, how far from the weights that were trained, and how often each was
    used."""
    for (rollout,) in connection.execute("SELECT id FROM rollout WHERE mode = 'train'"):
        use, most = rollout.rpartition(USE)[2], source["uses"]
        allowed = use.isdecimal() and 1 <= int(use) <= most
        checked.expect(allowed, f"{rollout}: a rollout of {source['folder']} is used {most} x at most")
    ages = Counter(distances(connection, source).values())
    shown = ", ".join(f"{age}: {n}" for age, n in sorted(ages.items()))
    known = shown or "not known: fingerprints of its weights do not tell where this run began"
    checked.notes.append(f"trained rollouts are those of {source['folder']}; by staleness in updates: {known}")


def staleness(connection: sqlite3.Connection, step: int) -> dict[str, int]:
    """Of each rollout of a training step: updates from the oldest weights that answered it to those that it trained."""
    query = """SELECT rollout.id, rollout.step - 1 - min(weights_version) FROM rollout JOIN llm_call USING (attempt_id)
        WHERE rollout.step = ? AND mode = 'train' AND weights_version IS NOT NULL GROUP BY rollout.id"""
    return dict(connection.execute(query, (step,)).fetchall())


def _rollouts_file(connection: sqlite3.Connection, checked: Checked, file: Path) -> None:
    """The same rollouts as in rollouts.jsonl."""
    query = """SELECT rollout.id, step, mode, agent, reward, unscored
        FROM rollout JOIN verdict ON rollout_id = rollout.id"""
    in_audit = {row[0]: tuple(row)[1:] for row in connection.execute(query)}
    in_file = {
        row["rollout_id"]: (row["step"], row["mode"], row.get("agent") or "", row.get("reward"), row["unscored"])
        for row in read_lines(file)
    }
    for rollout in sorted(in_audit.keys() | in_file.keys()):
        same = in_audit.get(rollout) == in_file.get(rollout)
        checked.expect(same, f"{rollout}: {in_file.get(rollout)} in {file.name}, {in_audit.get(rollout)} here")


def _metrics_file(connection: sqlite3.Connection, checked: Checked, file: Path) -> None:
    """The same updates as in metrics.jsonl."""
    norms = {row[0]: row[1] for row in connection.execute("SELECT step, grad_norm FROM policy_update")}
    for row in read_lines(file):
        if row["kind"] == "train":
            in_file, in_audit = row.get("actor/grad_norm"), norms.get(row["step"])
            same = in_file == in_audit
            checked.expect(same, f"step {row['step']}: gradient norm {in_file} in {file.name}, {in_audit} here")


# Rollouts with a call that ended at its limit of tokens.
CUT_SHORT = """SELECT DISTINCT rollout.id FROM rollout JOIN llm_call USING (attempt_id)
    WHERE rollout.step = ? AND finish_reason = 'length'"""


class Step:
    def __init__(self, connection: sqlite3.Connection, settings: Settings, checked: Checked, step: int) -> None:
        self.connection, self.settings, self.checked, self.step = connection, settings, checked, step
        self.expect = checked.expect
        rows = self._all("SELECT * FROM train_row WHERE step = ? ORDER BY row_number")
        self.rows = grouped(rows, lambda row: str(row["rollout_id"]))
        self.cut_short = {row[0] for row in self._all(CUT_SHORT)}
        ages = staleness(connection, step) if settings.max_staleness else {}
        self.too_old = {rollout for rollout, age in ages.items() if age > settings.max_staleness}

    def _all(self, query: str) -> Iterator[sqlite3.Row]:
        return self.connection.execute(query, (self.step,))

    def check(self) -> None:
        """Who is in the batch, rows, advantages, and the place of each row in the update."""
        left_out = {row["rollout_id"]: row["why"] for row in self._all("SELECT * FROM left_out WHERE step = ?")}
        if not self.rows and not left_out and self.step == 0:
            return  # a probe (data.curriculum.probe): nothing is learned from it
        if not self.rows and not left_out:
            self.checked.notes.append(f"step {self.step} has rollouts and no update: the run ended in it")
            return
        query = """SELECT rollout.*, reward, unscored FROM rollout JOIN verdict ON verdict.rollout_id = rollout.id
            WHERE step = ? AND mode = 'train'"""
        rollouts = {row["id"]: row for row in self._all(query)}
        self._membership(rollouts, left_out)
        earned: dict[str, Earned] = {}
        for rollout, rows in self.rows.items():
            if (played := rollouts.get(rollout)) is None or played["reward"] is None:
                self.expect(False, f"{rollout} has training rows, and no reward in step {self.step}")
                return
            earned[rollout] = self._rows(played, rows)
        numbers = sorted(row["row_number"] for rows in self.rows.values() for row in rows)
        self.expect(numbers == list(range(len(numbers))), f"step {self.step}: rows are missing, or there twice")
        values = by_row(earned, self.settings)
        for rollout, rows in self.rows.items():
            for row, value in zip(rows, values[rollout], strict=False):
                self._fate(row, value)
        self._optimizer_steps()

    def _membership(self, rollouts: dict[str, sqlite3.Row], left_out: dict[str, str]) -> None:
        """Each rollout is in the batch, or is left out for the reason that holds."""
        both = self.rows.keys() & left_out.keys()
        missing = rollouts.keys() ^ (self.rows.keys() | left_out.keys())
        self.expect(not both and not missing, f"step {self.step}: unclear what became of {sorted(both | missing)}")
        young = (row for row in rollouts.values() if row["id"] not in self.too_old)
        scored = Counter(row["group_id"] for row in young if not row["unscored"])
        for rollout, why in left_out.items():
            row = rollouts.get(rollout)
            if row is None:
                continue
            allowed = ["group_replaced"]
            if row["unscored"]:
                allowed = ["unscored"]
            elif rollout in self.too_old:
                allowed = ["too_old", "group_replaced"]
            elif scored[row["group_id"]] < 2:
                allowed = ["group_too_small", "group_replaced"]
            self.expect(why in allowed, f"{rollout} was left out as {why}, and it should be {allowed[0]}")
        for rollout in self.rows:
            self.expect(rollout not in self.too_old, f"{rollout} is in the batch, and is too old for it")
            alone = rollout in rollouts and scored[rollouts[rollout]["group_id"]] < 2
            self.expect(not alone, f"{rollout} is in the batch, and has no other scored rollout in its group")

    def _rows(self, rollout: sqlite3.Row, rows: list[sqlite3.Row]) -> Earned:
        """Tokens and masks of one rollout; the stored rows must equal those that its calls give."""
        expected = list(rows_of(self._calls(rollout["attempt_id"]), self.settings))
        same = len(expected) == len(rows)
        self.expect(same, f"{rollout['id']} has {len(rows)} rows, and its calls give {len(expected)}")
        for row, wanted in zip(rows, expected, strict=False):
            self._row(row, wanted)
        each = [sum(wanted.mask) for wanted in expected]
        return Earned(rollout["group_id"], rollout["reward"], sum(each), each, self._tools(rollout["id"]))

    def _tools(self, rollout: str) -> list[tuple[int, str, str, bool]]:
        query = "SELECT turn, name, arguments, outcome FROM tool_call WHERE rollout_id = ? ORDER BY n"
        calls = self.connection.execute(query, (rollout,))
        return [(turn, name, text, outcome in ("ok", "cut")) for turn, name, text, outcome in calls]

    def _calls(self, attempt: str) -> list[Call]:
        calls: list[Call] = []
        for row, prompt in stored_calls(self.connection, attempt):
            calls.append((prompt, unpack(row["sampled_ids"])))
            n_given = len(unpack(row["log_probs"], "f"))
            self.expect(n_given in (0, len(calls[-1][1])), f"{attempt}: {n_given} log-probabilities")
            self.checked.counts["calls"] += 1
        return calls

    def _row(self, row: sqlite3.Row, expected: Expected) -> None:
        prompt, response, mask = unpack(row["prompt_ids"]), unpack(row["response_ids"]), unpack(row["mask"], "B")
        name = row["id"]
        self.checked.counts["rows"] += 1
        self.checked.counts["tokens"] += len(prompt) + len(response)
        self.expect(prompt == expected.prompt, f"{name}: its prompt is not what its calls give")
        self.expect(response == expected.response, f"{name}: its response is not what its calls give")
        self.expect(mask == expected.mask, f"{name}: its mask is not 1 on exactly what was sampled")
        numbers = (row["n_prompt"], row["n_response"], row["n_trained"])
        self.expect(numbers == (len(prompt), len(response), sum(mask)), f"{name}: its counts are not its tokens'")
        dropped = "" if any(expected.mask) else "nothing_sampled"
        if expected.too_long:
            dropped = "prompt_too_long"
        recorded = row["why_not"] if row["why_not"] in ("prompt_too_long", "nothing_sampled") else ""
        self.expect(
            recorded == dropped, f"{name}: dropped as {recorded or 'nothing'}, and it should be {dropped or 'kept'}"
        )

    def _fate(self, row: sqlite3.Row, advantage: float) -> None:
        """The advantage of a row, and whether it was learned from for the reason that holds."""
        name, stored, why = row["id"], row["advantage"], row["why_not"]
        if stored is None:
            self.expect(not row["used"], f"{name} was learned from without an advantage")
            return
        close = abs(stored - advantage) <= TOLERANCE * max(1.0, abs(advantage))
        self.expect(close, f"{name}: advantage {stored}, and its group gives {advantage}")
        rules = self.settings.rules
        overlong = bool(rules.get("overlong_filter")) and row["rollout_id"] in self.cut_short
        left_out = overlong or (bool(rules.get("positive_only")) and stored <= 0)
        fate = f"{why or 'learned from'}, and the recipe {'leaves it out' if left_out else 'keeps it'}"
        self.expect((why == "left_out_by_recipe") == left_out, f"{name}: {fate} (advantage {stored})")
        idle = self.settings.advantage_decides and advantage == 0
        self.expect(not (row["used"] and idle), f"{name} was learned from with advantage 0")
        self.expect(bool(row["used"]) == (not why), f"{name}: used = {row['used']}, and the reason is {why!r}")
        self.expect(why != "no_advantage" or idle, f"{name} was left out, and its advantage is {advantage}")

    def _optimizer_steps(self) -> None:
        """The seed decides which optimizer step a row belongs to."""
        updated = [row for rows in self.rows.values() for row in rows if row["advantage"] is not None]
        places = optimizer_steps([row["row_number"] for row in updated], self.settings, step=self.step)
        for row in updated:
            expected = places[row["row_number"]] if row["used"] else None
            recorded = row["optimizer_step"]
            self.expect(recorded == expected, f"{row['id']}: optimizer step {recorded}, and the seed gives {expected}")
