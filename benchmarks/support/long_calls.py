"""What many calls of a growing history cost in both forms of spans: gateway, store, reading and audit.

Rollouts of so many calls, the last of which sees so many tokens, go through a gateway and a store in processes of their
own; what they left is read by the code of the trainer, made rows and written for an audit. The audit of the plain form
keeps whole prompts, as files up to version 3 do.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
from agentlightning.types import Attempt, Rollout

from agl_plugin.audit import schema
from agl_plugin.audit.facts import Seen, rollout_rows
from agl_plugin.audit.spans import seen_rollout
from agl_plugin.proxy.spans import CALL_SPAN
from agl_plugin.update.adapter import read_calls
from agl_plugin.update.rows import Call, Limits, rows_of_calls
from benchmarks.support.load import work_on
from benchmarks.support.model_server import MODEL

AT_ONCE, LETTERS = 4, 4  # rollouts that play together; letters of text a token


async def play_all(urls: list[str], *, calls: int, tokens: int) -> None:
    """A rollout at each address, a few at a time."""
    await work_on(partial(play, calls=calls, tokens=tokens), urls, AT_ONCE)


async def play(url: str, *, calls: int, tokens: int) -> None:
    """One rollout: each call sends the whole history."""
    step = LETTERS * tokens // calls
    messages: list[dict[str, str]] = []
    async with aiohttp.ClientSession() as http:
        for n in range(calls):
            for role in ("user", "assistant"):
                messages.append({"role": role, "content": f"{n} " + "x" * (step // 2)})
            async with http.post(url, json={"model": MODEL, "messages": messages, "temperature": 1.0}) as reply:
                reply.raise_for_status()
                await reply.read()


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and its CPU seconds."""
    began = time.process_time()
    result = work()
    return result, time.process_time() - began


async def read(store: Any, rollout_ids: list[str], *, limits: Limits) -> tuple[dict[str, float], list[Any], list[Seen]]:
    """CPU seconds of fetching spans, of reading them and of making rows; the rows, and what the audit gets."""
    began = time.process_time()
    spans = [list(await store.query_spans(rollout_id, name=CALL_SPAN)) for rollout_id in rollout_ids]
    fetch_s = time.process_time() - began
    calls, read_s = timed(lambda: [read_calls(of_rollout)[0] for of_rollout in spans])
    rows, rows_s = timed(lambda: [rows_of_calls(of_rollout, merge=True, limits=limits) for of_rollout in calls])
    seen = [seen_by_audit(*pair) for pair in zip(rollout_ids, calls, strict=True)]
    return {"fetch_s": fetch_s, "read_s": read_s, "rows_s": rows_s}, rows, seen


def seen_by_audit(rollout_id: str, calls: list[Call]) -> Seen:
    attempt = Attempt(attempt_id=rollout_id, rollout_id=rollout_id, sequence_id=1, start_time=0.0)
    rollout = Rollout(rollout_id=rollout_id, input={}, start_time=0.0)
    own_calls = [replace(call, facts={**call.facts, "attempt_id": rollout_id}) for call in calls]
    return seen_rollout(rollout, [attempt], [], own_calls)


def audited(seen: list[Seen], *, whole: bool) -> dict[str, float]:
    """Bytes of the calls in an audit file, of them those of token ids, and CPU seconds."""
    records = {rollout.rollout_id: {} for rollout in seen}
    with TemporaryDirectory() as folder, closing(sqlite3.connect(Path(folder) / "audit.db")) as file:
        schema.make(file)
        rows, took_s = timed(lambda: rollout_rows(seen, records, run_id="run"))
        if whole:
            prompts = [list(call.prompt) for rollout in seen for call in rollout.calls]
            packed, took_s = timed(lambda: [schema.pack(prompt) for prompt in prompts])
            for row, prompt in zip(rows["llm_call"], packed, strict=True):
                row |= {"prompt_ids": prompt, "follows": None, "n_shared": 0}
        _, written_s = timed(lambda: schema.add(file, {"llm_call": rows["llm_call"]}, step=1))
        file.commit()
        file.execute("VACUUM")
        size = (Path(folder) / "audit.db").stat().st_size
    ids = sum(len(row[name]) for row in rows["llm_call"] for name in ("prompt_ids", "sampled_ids"))
    return {"audit_bytes": size, "audit_id_bytes": ids, "audit_s": took_s + written_s}
