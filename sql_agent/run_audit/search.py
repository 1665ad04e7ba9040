"""Rollouts of an audit file by what is odd about them, an overview, and where a rollout's rows and update are.

Every query goes through an index: below 1 s over 100,000 rollouts.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from agl_plugin.audit.schema import opened
from foundation import run_folder
from foundation.errors import UserError
from foundation.rollout_keys import DEFAULT_AGENT

Row = dict[str, Any]
ANY = "any"
FOUND = """SELECT rollout.id AS rollout, rollout.step, mode, rollout.agent, question.name AS question, reward, unscored,
  (SELECT max(outcome != 'ok') FROM tool_call WHERE tool_call.rollout_id = rollout.id) AS tool_error,
  (SELECT count(*) FROM train_row WHERE train_row.rollout_id = rollout.id AND used) AS rows_used,
  (SELECT advantage FROM train_row WHERE train_row.rollout_id = rollout.id LIMIT 1) AS advantage,
  coalesce((SELECT why FROM left_out WHERE left_out.rollout_id = rollout.id),
    (SELECT why_not FROM train_row WHERE train_row.rollout_id = rollout.id AND NOT used LIMIT 1), '') AS why_not
  FROM rollout JOIN verdict ON verdict.rollout_id = rollout.id JOIN question ON question.id = rollout.question_id"""
STEPS = """SELECT rollout.step, mode, count(*) AS rollouts, count(*) - sum(unscored != '') AS scored,
  avg(CASE WHEN unscored = '' THEN reward END) AS reward_mean, loss, grad_norm, n_rows, n_used, weights_after, path
  FROM rollout JOIN verdict ON verdict.rollout_id = rollout.id
  LEFT JOIN policy_update ON policy_update.step = rollout.step AND mode = 'train'
  LEFT JOIN checkpoint ON checkpoint.update_id = policy_update.id
  GROUP BY rollout.step, mode ORDER BY rollout.step, mode"""
REASONS = "SELECT unscored, count(*) AS n FROM verdict WHERE unscored > '' GROUP BY unscored ORDER BY n DESC"
BAD_TOOL = "tool_call.outcome IN ('error', 'timeout', 'bad_arguments')"
# What can be asked for, by the name of its value.
CONDITIONS = {
    "min_reward": "reward >= :min_reward AND unscored = ''",
    "max_reward": "reward <= :max_reward AND unscored = ''",
    "any_reason": "unscored > ''",
    "unscored": "unscored = :unscored",
    "question": "rollout.question_id IN (SELECT id FROM question WHERE name = :question OR id = :question "
    "OR instr(lower(question.question), lower(:question)))",
    "tool_error": f"rollout.id IN (SELECT rollout_id FROM tool_call WHERE {BAD_TOOL})",
    "step": "rollout.step = :step",
    "mode": "mode = :mode",
    "agent": "agent = :agent",
}


def values_of(**conditions: Any) -> Row:
    """The values of a query by the names of CONDITIONS; what is None, "" or False asks for nothing.

    `unscored` is a reason, or `any`; `question` an id, or a part of its text; `agent` a name of [agents], or `default`.
    """
    values = {name: value for name, value in conditions.items() if value not in (None, "") and value is not False}
    if values.get("unscored") == ANY:
        values["any_reason"] = values.pop("unscored")
    if values.get("agent") == DEFAULT_AGENT:
        values["agent"] = ""
    return values


def condition(values: Row) -> str:
    return " AND ".join(CONDITIONS[name] for name in values) or "1"


def find(connection: sqlite3.Connection, values: Row, *, limit: int) -> list[Row]:
    """The first rollouts of these values, in the order of the steps."""
    query = f"{FOUND} WHERE {condition(values)} ORDER BY rollout.step, rollout.rowid LIMIT :limit"
    return [dict(row) for row in connection.execute(query, values | {"limit": limit})]


def steps(connection: sqlite3.Connection) -> list[Row]:
    return [dict(row) for row in connection.execute(STEPS)]


def reasons(connection: sqlite3.Connection) -> dict[str, int]:
    return {row["unscored"]: row["n"] for row in connection.execute(REASONS)}


def rollout_id(connection: sqlite3.Connection, beginning: str) -> str:
    """The whole id, or the only one with this beginning. Raises UserError."""
    query = "SELECT id FROM rollout WHERE substr(id, 1, length(:id)) = :id ORDER BY id != :id LIMIT 2"
    ids = [row["id"] for row in connection.execute(query, {"id": beginning})]
    if not ids or (len(ids) > 1 and ids[0] != beginning):
        what = "begins no rollout's id" if not ids else "begins the ids of several rollouts"
        raise UserError(f"{beginning[:80]!r} {what} in this run: `find` prints ids, and rollouts.jsonl holds them")
    return ids[0]


def why_left_out(connection: sqlite3.Connection, rollout: str) -> str:
    """Why a rollout has no training row; "" where nothing says so."""
    row = connection.execute("SELECT why FROM left_out WHERE rollout_id = ?", (rollout,)).fetchone()
    return row["why"] if row else ""


def trail(connection: sqlite3.Connection, rollout: str) -> str:
    """A rollout's rows and update in one line."""
    rows = connection.execute("SELECT * FROM train_row WHERE rollout_id = ? ORDER BY row_number", (rollout,)).fetchall()
    if not rows:
        return f"rollout {rollout}: not learned from ({why_left_out(connection, rollout) or 'no training rollout'})"
    return f"rollout {rollout}: {', '.join(map(_row_in_words, rows))}"


def _row_in_words(row: sqlite3.Row) -> str:
    name = row["id"].rpartition("/")[2]
    if not row["used"]:
        return f"row {name} not used ({row['why_not']})"
    return f"row {name} with advantage {row['advantage']:+.3f} in update {row['update_id']}"


def trail_in(folder: Path, rollout: str) -> str:
    """The trail of a rollout in a run's folder; "" without an audit that knows it, or with a damaged one."""
    if not rollout or not (folder / run_folder.AUDIT).is_file():
        return ""
    try:
        with closing(opened(folder)) as connection:
            known = connection.execute("SELECT 1 FROM rollout WHERE id = ?", (rollout,)).fetchone()
            return trail(connection, rollout) if known else ""
    except (UserError, sqlite3.Error, ValueError, TypeError):
        return ""
