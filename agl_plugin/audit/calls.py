"""The LLM calls of an attempt as the audit keeps them, with their whole prompts."""

from __future__ import annotations

import sqlite3

from agl_plugin.audit.schema import unpack


def stored_calls(connection: sqlite3.Connection, attempt: str) -> list[tuple[sqlite3.Row, list[int]]]:
    """The rows of an attempt's calls in order, and the prompt of each. Raises ValueError for one that cannot be had."""
    rows = connection.execute("SELECT * FROM llm_call WHERE attempt_id = ? ORDER BY n", (attempt,)).fetchall()
    waiting = {row["n"]: row for row in rows}
    whole = dict[int, tuple[list[int], list[int]]]()
    while waiting:
        before = len(waiting)
        for n, row in list(waiting.items()):
            follows = row["follows"] if "follows" in row.keys() else None  # noqa: SIM118
            if follows is not None and follows not in whole:
                continue
            shared = [] if follows is None else sum(whole[follows], start=[])[: row["n_shared"]]
            prompt = shared + unpack(waiting.pop(n)["prompt_ids"])
            whole[n] = prompt, unpack(row["sampled_ids"])
            if len(prompt) != row["n_prompt"]:
                raise ValueError(f"{row['id']}: {len(prompt)} tokens in its prompt, and it saw {row['n_prompt']}")
        if len(waiting) == before:
            raise ValueError(f"{attempt}: calls {sorted(waiting)} go on from calls that are not there")
    return [(row, whole[row["n"]][0]) for row in rows]
