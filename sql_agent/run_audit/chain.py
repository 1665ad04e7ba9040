"""Why a rollout got its reward, and what that did: the whole chain of one rollout in words, with all ids.

Texts of models, judges and databases come out as they are stored: whoever prints them cleans them (agent/view.py).
"""

from __future__ import annotations

import json
import sqlite3
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agl_plugin.audit.schema import unpack
from agl_plugin.audit.stored import USE
from agl_plugin.audit.verify import distances
from sql_agent.run_audit.search import why_left_out

SHOWN_CHARS = 400
WHY_NOT = {
    "unscored": "it has no reward, and what is unscored is never learned from",
    "group_too_small": "no other rollout of its question was scored, so there is nothing to compare it with",
    "group_replaced": "all rollouts of its question earned the same, and another question took their place",
    "prompt_too_long": "its prompt is longer than rollout.max_prompt_tokens",
    "nothing_sampled": "what the policy sampled lies beyond the longest row",
    "left_out_by_recipe": "the recipe leaves such rollouts out of the loss",
    "no_advantage": "it earned what its group earned on average: advantage 0 moves no weight",
    "no_update": "the step ended without an update",
}


class Chain:
    def __init__(self, connection: sqlite3.Connection, rollout: str, *, folder: Path) -> None:
        self._connection, self._folder = connection, folder
        (self.run,) = connection.execute("SELECT * FROM run").fetchall()
        self.rollout = self._row("SELECT * FROM rollout WHERE id = ?", rollout)
        self.verdict = self._row("SELECT * FROM verdict WHERE rollout_id = ?", rollout)
        self.question = self._row("SELECT * FROM question WHERE id = ?", self.rollout["question_id"])
        self.rows = self._all("SELECT * FROM train_row WHERE rollout_id = ? ORDER BY row_number")

    def _row(self, query: str, key: str) -> sqlite3.Row:
        return self._connection.execute(query, (key,)).fetchone()

    def _all(self, query: str) -> list[sqlite3.Row]:
        return self._connection.execute(query, (self.rollout["id"],)).fetchall()

    def lines(self) -> Iterator[str]:
        for part in (self._asked, self._played, self._tools, self._judged, self._compared, self._learned, self._moved):
            yield from part()
            yield ""

    def _asked(self) -> Iterator[str]:
        row, question = self.rollout, self.question
        what = "training" if row["mode"] == "train" else "validation"
        yield f"run        {self.run['id']}"
        yield f"question   {question['id']} ({question['name']}): {short(question['question'])}"
        if question["reference"]:
            yield f"           reference: {short(question['reference'])}"
        if row["agent"]:
            yield f"           played by the agent {short(row['agent'])}"
        resampled = ", of a question that took another's place" if row["resampled"] else ""
        yield f"rollout    {row['id']}: {what}, step {row['step']}, group {row['group_id']}, {row['status']}{resampled}"

    def _stored(self) -> Iterator[str]:
        """Where a stored rollout was played, and how far its weights were from those that it trained."""
        source = json.loads(self.run["settings"]).get("from_store")
        if not source or self.rollout["mode"] != "train":
            return
        name, _, use = self.rollout["id"].rpartition(USE)
        away = distances(self._connection, source).get(self.rollout["id"])
        updates = "an unknown number of" if away is None else away
        yield f"stored     {name} of {source['folder']}, use {use}"
        yield f"           answered {updates} updates away from the weights that it trained"

    def _played(self) -> Iterator[str]:
        yield from self._stored()
        for attempt in self._all("SELECT * FROM attempt WHERE rollout_id = ? ORDER BY n"):
            seconds = (attempt["ended_s"] or attempt["started_s"]) - attempt["started_s"]
            counts = "" if attempt["id"] == self.rollout["attempt_id"] else "; a later attempt counts"
            yield f"attempt    {attempt['id']}: number {attempt['n']}, {attempt['status']}, {seconds:.1f} s{counts}"
            query = "SELECT * FROM llm_call WHERE attempt_id = ? ORDER BY n"
            for call in self._connection.execute(query, (attempt["id"],)):
                yield f"LLM call   {call['id']}: {_call_in_words(call)}"
        if self.rollout["answer"]:
            yield f"answer     {short(self.rollout['answer'])}"
        if self.rollout["stop_reason"]:
            yield f"           the episode ended with: {self.rollout['stop_reason']}"

    def _tools(self) -> Iterator[str]:
        calls = self._all("SELECT * FROM tool_call WHERE rollout_id = ? ORDER BY n")
        if not calls:
            yield "tool calls none"
        for call in calls:
            yield f"tool call  {call['id']}: turn {call['turn']}, {call['name']}: {short(call['arguments'])}"
            rows = "" if call["n_rows"] is None else f", {call['n_rows']} rows"
            yield f"           {call['outcome']}{rows}: {short(call['error'] or call['result'])}"

    def _judged(self) -> Iterator[str]:
        verdict = self.verdict
        by = f", by {verdict['judge']}" if verdict["judge"] else ""
        if verdict["unscored"]:
            yield f"verdict    unscored: {verdict['unscored']}{by}. No reward, not even 0; it counts in no mean"
        else:
            parts = " + ".join(f"{name} {value:g}" for name, value in json.loads(verdict["parts"]).items())
            total = f"{verdict['reward']:g} = {parts}" if parts else f"{verdict['reward']:g}"
            yield f"verdict    reward {total}{by}"
        if verdict["reason"]:
            yield f"           reason: {short(verdict['reason'])}"

    def _compared(self) -> Iterator[str]:
        """The rewards that an advantage is made of."""
        if self.rollout["mode"] != "train" or self.verdict["unscored"]:
            return
        query = """SELECT rollout_id, reward FROM rollout JOIN verdict ON rollout_id = rollout.id
            WHERE group_id = ? AND step = ? AND unscored = '' ORDER BY reward DESC"""
        group = self._connection.execute(query, (self.rollout["group_id"], self.rollout["step"])).fetchall()
        rewards = [row["reward"] for row in group]
        spread = f", standard deviation {statistics.stdev(rewards):.4f}" if len(rewards) > 1 else ""
        yield f"group      {len(rewards)} scored, mean {statistics.fmean(rewards):.4f}{spread}"
        for row in group:
            mark = "  (this one)" if row["rollout_id"] == self.rollout["id"] else ""
            yield f"           {row['reward']:.4f}  {row['rollout_id']}{mark}"

    def _learned(self) -> Iterator[str]:
        if not self.rows:
            why = why_left_out(self._connection, self.rollout["id"])
            nothing = "validation is not learned from" if self.rollout["mode"] != "train" else "no update was recorded"
            yield f"learned    nothing: {WHY_NOT.get(why, why) or nothing}"
        for row in self.rows:
            yield f"row        {row['id']}: number {row['row_number']} of step {row['step']}, {_row_in_words(row)}"
            yield f"           {_fate_in_words(row)}"

    def _moved(self) -> Iterator[str]:
        """The update of the step, whether this rollout was in it or not."""
        if self.rollout["mode"] != "train":
            return
        update = self._row("SELECT * FROM policy_update WHERE step = ?", self.rollout["step"])
        if not update:
            yield "update     none was recorded for this step"
            return
        counts = f"{update['n_used']} of {update['n_rows']} rows, {update['n_tokens']} trained tokens"
        numbers = {"loss": update["loss"], "gradient norm": update["grad_norm"], "learning rate": update["lr"]}
        figures = ", ".join(f"{name} {value:.6g}" for name, value in numbers.items() if value is not None)
        yield f"update     {update['id']}: {counts}; {figures}"
        yield f"           weights {update['weights_before'] or '?'} -> {update['weights_after'] or '?'}"
        checkpoint = self._row("SELECT path FROM checkpoint WHERE update_id = ?", update["id"])
        if checkpoint:
            gone = "" if any((self._folder / checkpoint["path"]).glob("actor/*.pt")) else " (no longer there)"
            yield f"checkpoint {checkpoint['path']}{gone}"
        else:
            yield "checkpoint none of this step (trainer.save_every)"


def short(value: str | None) -> str:
    line = " ".join((value or "").split())
    return line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]}…"


def _call_in_words(call: sqlite3.Row) -> str:
    if not call["n_sampled"]:
        return "no token ids"
    log_probs: list[Any] = unpack(call["log_probs"], "f")
    mean = f", mean log-probability {statistics.fmean(log_probs):.3f}" if log_probs else ""
    weights = "" if call["weights_version"] is None else f", weights after {call['weights_version']} updates"
    seconds = (call["ended_s"] or 0) - (call["started_s"] or 0)
    return (
        f"{call['n_prompt']} tokens seen, {call['n_sampled']} sampled ({call['finish_reason'] or 'end not told'})"
        f"{mean}{weights}, {seconds:.1f} s"
    )


def _row_in_words(row: sqlite3.Row) -> str:
    apart = f"; a row of its own for {row['apart']}" if row["apart"] else ""
    return f"{row['n_prompt']} tokens of prompt, {row['n_response']} after it, {row['n_trained']} trained{apart}"


def _fate_in_words(row: sqlite3.Row) -> str:
    if not row["used"]:
        return f"not learned from: {WHY_NOT.get(row['why_not'], row['why_not'])}"
    place = f"advantage {row['advantage']:+.6g} in update {row['update_id']}, optimizer step {row['optimizer_step']}"
    if not row["advantage"]:
        return f"{place}: only the terms of the loss without a reward (KL, entropy) moved its tokens"
    return f"{place}, which made its tokens {'more' if row['advantage'] > 0 else 'less'} likely"
