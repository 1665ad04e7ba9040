"""What the report says of the run itself: status, facts, configuration with what differs from the defaults."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from foundation.console import duration
from sql_agent.config import known_keys
from sql_agent.run_report.folder import RunData
from sql_agent.run_report.plain import Tree, cut, number, text, tree

PAID = 0.25  # what a constant may earn of 1 before it is named
VALUE_CHARS, ERROR_CHARS, MOST_KEYS, DEEPEST = 300, 4000, 400, 5
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
    """What was run, as lines of a table; what is not known is left out."""
    s = run.summary
    done, planned = steps(run)
    data = tree(s.get("data"))
    lines = [
        ("recipe", text(s.get("recipe")) or text(run.config.get("recipe"))),
        ("steps", f"{done} of {planned}" if planned else str(done)),
        ("model", text(tree(s.get("model")).get("path"))),
        ("device", text(s.get("device"))),
        ("judge", text(s.get("judge"))),
        ("constants that pay", _constants(s.get("probe"))),
        ("best checkpoint", _best(tree(s.get("best")))),
        ("goes on from", _ancestors(s.get("goes_on_from"))),
        ("rollouts", _rollouts(s)),
        ("groups", _groups(s)),
        ("triplets", _figure(s.get("triplets"))),
        ("weights", _weights(s) if done else ""),
        ("judging", _judging(tree(s.get("judge_usage")))),
        ("peak memory", _figure(s.get("peak_memory_gib"), " GiB")),
        *((f"{name} data", _data(tree(about))) for name, about in data.items()),
    ]
    return [(name[:80], cut(value, VALUE_CHARS)) for name, value in lines[:40] if value]


def _constants(probe: Any) -> str:
    """The fields where one answer for all questions earned above PAID, as the probe before the run found them."""
    fields = [tree(entry) for entry in probe] if isinstance(probe, list) else []
    paid = [(number(tree(entry.get("paid")).get("a constant")) or 0.0, text(entry.get("field"))) for entry in fields]
    high = [f"{field} {value:.2f}" for value, field in sorted(paid, reverse=True) if value > PAID]
    return "; ".join(high) or (f"none above {PAID}" if fields else "")


def _best(best: Tree) -> str:
    reward, ends = number(best.get("reward_mean")), best.get("reward_ci95")
    low, high = map(number, ends) if isinstance(ends, list) and len(ends) == 2 else (None, None)
    interval = f" [{low:.3f}, {high:.3f}]" if low is not None and high is not None else ""
    return "" if reward is None else f"step {number(best.get('step')) or 0:.0f}, validation {reward:.3f}{interval}"


def _ancestors(listed: Any) -> str:
    runs = [tree(entry) for entry in listed] if isinstance(listed, list) else []
    return ", before that ".join(f"{text(entry.get('run'))}@{number(entry.get('step')) or 0:.0f}" for entry in runs)


def _rollouts(summary: Tree) -> str:
    n = number(summary.get("rollouts"))
    return "" if n is None else f"{n:.0f}, scored {number(summary.get('scored')) or 0:.0f}"


def _weights(summary: Tree) -> str:
    moved = summary.get("weights_changed")
    return ("changed" if moved else "NOT changed") if isinstance(moved, bool) else ""


def _groups(summary: Tree) -> str:
    n, flat = number(summary.get("groups")), number(summary.get("zero_variance_groups"))
    return "" if not n else f"{n:.0f}, without variance {flat or 0:.0f}"


def _judging(usage: Tree) -> str:
    names = {"calls": "calls", "cache_hits": "from the cache", "prompt_tokens": "tokens in"}
    names |= {"completion_tokens": "tokens out", "cost": "cost"}
    return ", ".join(f"{value:.6g} {name}" for key, name in names.items() if (value := number(usage.get(key))))


def _data(about: Tree) -> str:
    questions = number(about.get("questions"))
    parts = [f"{questions:.0f} questions"] if questions is not None else []
    return ", ".join([*parts, *(["fingerprint " + text(about["fingerprint"])] if about.get("fingerprint") else [])])


def _figure(value: Any, unit: str = "") -> str:
    figure = number(value)
    return "" if figure is None else f"{figure:.6g}{unit}"


def seconds(run: RunData) -> list[Fact]:
    """The time of the whole run by what it was spent on, from the summary; at least a second each."""
    spent = {str(k).replace("_", " "): number(v) for k, v in tree(run.summary.get("seconds")).items()}
    return [(name[:80], duration(value)) for name, value in list(spent.items())[:40] if value and value >= 1]


def versions(run: RunData) -> list[Fact]:
    """Package and version, as the run recorded them."""
    return [(str(k)[:80], cut(v, 80)) for k, v in list(tree(run.summary.get("versions")).items())[:60]]


def settings(run: RunData) -> dict[str, list[Setting]]:
    """The configuration by section, in the order of the file."""
    defaults = {key: field.default for key, field in known_keys().items()}
    by_section: dict[str, list[Setting]] = {}
    for key, value in list(_leaves(run.config))[:MOST_KEYS]:
        changed = key in defaults and defaults[key] != value
        setting = Setting(cut(key, 100), _written(value), _written(defaults[key]) if changed else None)
        by_section.setdefault(cut(key.rpartition(".")[0], 100) or "run", []).append(setting)
    return by_section


def _leaves(node: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, dict) and value and prefix.count(".") < DEEPEST:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _written(value: Any) -> str:
    return cut(json.dumps(value, ensure_ascii=False), VALUE_CHARS)
