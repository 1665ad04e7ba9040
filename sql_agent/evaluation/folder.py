"""The folder of an evaluation: what was asked, every trial as it ends, and the results.

    plan.json       what was asked and what it was asked of; --resume starts from it
    trials.jsonl    one line per trial, appended and flushed; the last line of a trial counts
    results.json    all figures        results.md    the tables        inspect/    logs of inspect-ai

Guarantees: a killed evaluation keeps every finished trial; a resumed one plays none of them again, and refuses to mix
trials of different questions, models, databases or judges.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from foundation.errors import UserError
from foundation.files import append_lines, jsonable, whole_lines, write_json
from sql_agent.records import TrialKey, TrialRecord
from sql_agent.scoring.scorers import BAD_QUERY, NO_DATABASE, NO_LLM_JUDGE, NO_REFERENCE, NO_REWARD_MODEL

PLAN, TRIALS, RESULTS, TABLES, INSPECT = "plan.json", "trials.jsonl", "results.json", "results.md", "inspect"
# Reasons that playing again would not change. All others are faults of a moment.
LASTING = {"", NO_REFERENCE, NO_LLM_JUDGE, NO_REWARD_MODEL, NO_DATABASE, BAD_QUERY}


def start(folder: Path, plan: dict[str, Any]) -> None:
    """Make the folder and write the plan. Raises UserError when another evaluation is there."""
    if (folder / TRIALS).exists() or (folder / RESULTS).exists():
        raise UserError(
            f"--out {folder}: holds an evaluation; name a new folder, or continue it with --resume "
            f"{shlex.quote(str(folder))}"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / PLAN, plan)
    except OSError as exc:
        raise UserError(f"--out {folder}: cannot be written ({exc}); name another folder") from exc


def read_plan(folder: Path) -> dict[str, Any]:
    """The plan of an evaluation to continue. Raises UserError."""
    try:
        plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        return {"asked": dict(plan["asked"]), "facts": dict(plan["facts"])}
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise UserError(
            f"--resume {folder}: no {PLAN} that can be read ({type(exc).__name__}); give the folder that an evaluation "
            "printed in its last line"
        ) from exc


def check_same(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise UserError naming the facts that changed since the evaluation began."""
    now = json.loads(json.dumps(jsonable(now)))
    changed = [f"  {key}: {before.get(key)!r} -> {now.get(key)!r}" for key in now if before.get(key) != now.get(key)]
    if changed:
        text = "\n".join(changed)
        raise UserError(f"--resume {folder}: it began with something else:\n{text}\nStart a new evaluation instead")


def finished(folder: Path) -> dict[TrialKey, TrialRecord]:
    """The trials that need not be played again. A line that was cut off is removed: the next one must stand alone."""
    path = folder / TRIALS
    if path.exists():
        data = path.read_bytes()
        if not data.endswith(b"\n"):
            path.write_bytes(data[: data.rfind(b"\n") + 1])
    records: dict[TrialKey, TrialRecord] = {}
    for number, line in enumerate(whole_lines(path), start=1):
        try:
            record = TrialRecord.model_validate_json(line)
        except ValidationError:
            raise UserError(f"{path}: line {number} is no trial; remove it, and its trial is played again") from None
        records[record.key] = record
    return {key: record for key, record in records.items() if record.unscored in LASTING}


def keep(folder: Path, record: TrialRecord) -> None:
    append_lines(folder / TRIALS, [record.model_dump()])
