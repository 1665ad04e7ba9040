"""What the report says of the run itself: status, facts, configuration with what differs from the defaults."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from foundation.console import duration
from sql_agent.config import flatten, known_keys
from sql_agent.run_report.folder import RunData
from sql_agent.run_report.plain import Tree, cut, number, text, tree
from sql_agent.training.probe import FieldProbe, findings
from sql_agent.training.summary import told

VALUE_CHARS, ERROR_CHARS, MOST_KEYS = 300, 4000, 400
COLOR = re.compile(r"\x1b\[[\d;]*m")
Fact = tuple[str, str]


@dataclass(frozen=True)
class Setting:
    """One configuration key; `default` is set where the value differs from it."""

    key: str
    value: str
    default: str | None


def status(run: RunData) -> str:
    """finished, interrupted, failed or running; `unfinished` for a run that left no summary."""
    return text(run.summary.get("status"))[:40] or "unfinished"


def steps(run: RunData) -> tuple[int, int]:
    """Steps done, and steps planned (0: not known)."""
    train = run.rows("train")
    planned = number(run.summary.get("total_steps")) or max((r.get("of_steps", 0) for r in train), default=0)
    # A resumed run's rows begin where it went on.
    return max((int(row["step"]) for row in train), default=0), int(planned)


def error(run: RunData) -> str:
    """The error's text, empty for none; Ray colours its tracebacks for a terminal."""
    return cut(COLOR.sub("", text(run.summary.get("error"))), ERROR_CHARS)


def facts(run: RunData) -> list[Fact]:
    """What was run and what came of it, as the console told it; [] where the summary is not one of these runs."""
    summary = run.summary
    try:
        fields = [FieldProbe.model_validate(field) for field in summary.get("probe", [])]
        data = {f"{name} data": _data(about) for name, about in summary["data"].items()}
        lines = {"recipe": summary["recipe"], "device": summary["device"], **told(summary)}
        lines |= {"probe": "; ".join(findings(fields)), **data}
    except (LookupError, TypeError, ValueError, AttributeError):
        return []
    return [(cut(name, 80), cut(value, VALUE_CHARS)) for name, value in lines.items() if value]


def _data(about: Tree) -> str:
    counted = f"{about['questions']} questions, " if "questions" in about else ""
    return f"{counted}fingerprint {about['fingerprint']}" if "fingerprint" in about else ""


def seconds(run: RunData) -> list[Fact]:
    """The time of the whole run by what it was spent on, from the summary; at least a second each."""
    spent = {str(k).replace("_", " "): number(v) for k, v in tree(run.summary.get("seconds")).items()}
    return [(name[:80], duration(value)) for name, value in list(spent.items())[:40] if value and value >= 1]


def versions(run: RunData) -> list[Fact]:
    return [(str(k)[:80], cut(v, 80)) for k, v in list(tree(run.summary.get("versions")).items())[:60]]


def settings(run: RunData) -> dict[str, list[Setting]]:
    defaults = {key: field.default for key, field in known_keys().items()}
    by_section: dict[str, list[Setting]] = {}
    for key, value in list(flatten(run.config).items())[:MOST_KEYS]:
        changed = key in defaults and defaults[key] != value
        setting = Setting(cut(key, 100), _written(value), _written(defaults[key]) if changed else None)
        by_section.setdefault(cut(key.rpartition(".")[0], 100) or "run", []).append(setting)
    return by_section


def _written(value: Any) -> str:
    return cut(json.dumps(value, ensure_ascii=False), VALUE_CHARS)
