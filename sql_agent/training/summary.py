"""summary.json: what a run did, in numbers, from metrics.jsonl and rollouts.jsonl; and the same as a table for people.

A mean is over scored rollouts; what was not scored is counted by reason.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from agl_plugin.run.time_split import PHASES
from foundation import run_folder
from foundation.console import duration
from foundation.files import read_lines, whole_lines
from foundation.grouping import grouped
from foundation.rollout_keys import told_tools
from foundation.stats import estimate
from sql_agent.records import RunRecord, by_agent
from sql_agent.training.ancestry import ancestors_text


def _total(rows: list[dict[str, Any]], name: str) -> int:
    return int(sum(row.get(name) or 0 for row in rows))


def _validation(row: dict[str, Any], everything: list[RunRecord]) -> dict[str, Any]:
    figures = {"step": row["step"], "reward_mean": row.get("val/reward_mean"), "scored": row.get("val/scored")}
    validated = [record for record in everything if record.mode == "val" and record.step == row["step"]]
    agents = {name: reward_of(rows) for name, rows in by_agent(validated).items()}
    return {**figures, "by_agent": agents} if agents else figures


def _best(run_dir: Path, everything: list[RunRecord]) -> dict[str, Any]:
    """The best checkpoint and the reward of the validations that say so; {} where there is none."""
    file = run_dir / run_folder.CHECKPOINTS / run_folder.BEST
    if not file.is_file():
        return {}
    note = json.loads(file.read_text(encoding="utf-8"))
    validated = [row for row in everything if row.mode == "val" and row.step in note["over"]]
    best = {"step": note["step"], "validated_at": note["over"], "reward_mean": note["reward"]}
    return {**best, "ended": note["ended"], **reward_of(validated)}


def reward_of(rollouts: list[RunRecord]) -> dict[str, Any]:
    """The mean over questions, with its 95 % interval."""
    scored = grouped((row for row in rollouts if not row.unscored), lambda row: row.question_id)
    rewards = [[row.reward for row in rows if row.reward is not None] for rows in scored.values()]
    estimated = estimate([statistics.fmean(of_question) for of_question in rewards if of_question])
    if not estimated.n:
        return {}
    return {"questions": estimated.n, "reward_mean": estimated.mean, "reward_ci95": [estimated.low, estimated.high]}


def _loss(row: dict[str, Any]) -> float | None:
    return row.get("actor/pg_loss", row.get("train/loss"))


def build_summary(run_dir: Path, *, total_s: float, peak_memory_gib: float, facts: dict[str, Any]) -> dict[str, Any]:
    """The tree of summary.json. `facts` (model, data, status ...) is taken over as it is; times are seconds."""
    metrics = read_lines(run_dir / run_folder.METRICS)
    everything = [RunRecord.model_validate_json(line) for line in whole_lines(run_dir / run_folder.ROLLOUTS)]
    rollouts = [r for r in everything if r.mode == "train"]
    train = [row for row in metrics if row["kind"] == "train"]
    vals = [row for row in metrics if row["kind"] == "val"]
    scored = [r for r in rollouts if not r.unscored]
    parts: dict[str, list[float]] = defaultdict(list)
    for row in scored:
        for name, value in row.reward_parts.items():
            parts[name].append(value)
    rewards = [r.reward for r in scored if r.reward is not None]
    moved = [row.get("actor/weights_changed_share") for row in train]
    return {
        **facts,
        "steps": len(train),
        "last_step": train[-1]["step"] if train else 0,
        "rollouts": len(rollouts),
        "scored": len(scored),
        "unscored": dict(Counter(r.unscored for r in rollouts if r.unscored)),
        "first_unscored": next((f"{r.unscored}: {r.reason:.300}" for r in rollouts if r.unscored and r.reason), ""),
        "broken_tools": told_tools(r.model_dump() for r in rollouts if r.unscored),
        "late_calls": {fate: _total(metrics, f"rollout/late_calls/{fate}") for fate in ("aborted", "refused")},
        "too_old": _total(train, "rollout/too_old"),
        "triplets": sum(len(r.response_tokens) for r in scored),
        "reward_mean": statistics.fmean(rewards) if rewards else None,
        "reward_parts": {name: statistics.fmean(values) for name, values in parts.items()},
        "reward_last_step": train[-1].get("rollout/reward_mean") if train else None,
        "zero_variance_groups": _total(train, "rollout/zero_variance_groups"),
        "groups": _total(train, "rollout/groups"),
        "grad_norm": train[-1].get("actor/grad_norm") if train else None,
        "loss": _loss(train[-1]) if train else None,
        "loss_first_step": _loss(train[0]) if train else None,
        "weights_changed": any(m for m in moved if m),
        "warnings": [text for row in train for text in row.get("warnings", [])],
        "judge_usage": judge_usage(everything),
        "validation": [_validation(row, everything) for row in vals],
        "best": _best(run_dir, everything),
        "seconds": _seconds(metrics, total_s=total_s),
        "peak_memory_gib": round(peak_memory_gib, 2),
    }


def judge_usage(rollouts: list[RunRecord]) -> dict[str, float]:
    """What the LLM judge cost for these rollouts, validation included: calls, cache hits, tokens, money."""
    names = ("calls", "cache_hits", "prompt_tokens", "completion_tokens", "cost")
    return {name: round(sum(row.judge_usage.get(name, 0) for row in rollouts), 6) for name in names}


def _judge(summary: dict[str, Any]) -> str:
    usage = summary["judge_usage"]
    if not usage["calls"] and not usage["cache_hits"]:
        return summary["judge"]
    tokens = usage["prompt_tokens"] + usage["completion_tokens"]
    cost = f", cost {usage['cost']:.4g}" if usage["cost"] else ""
    return f"{summary['judge']}: {usage['calls']} calls, {usage['cache_hits']} from the cache, {tokens} tokens{cost}"


def _seconds(metrics: list[dict[str, Any]], *, total_s: float) -> dict[str, float]:
    by_kind = {kind: sum(r["seconds"] for r in metrics if r["kind"] == kind) for kind in ("train", "val", "checkpoint")}
    train = [row for row in metrics if row["kind"] == "train"]
    phases = {name: sum(row.get(f"time/{name}", 0.0) for row in train) for name in PHASES}
    phases["other"] = by_kind["train"] - sum(phases.values()) + phases["other"]
    counted = sum(by_kind.values())
    seconds = {**phases, "validation": by_kind["val"], "checkpoint": by_kind["checkpoint"]}
    return {k: round(v, 2) for k, v in {**seconds, "start_and_stop": total_s - counted, "total": total_s}.items()}


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in counts.items() if n)


def _validations_by_agent(validation: list[dict[str, Any]]) -> dict[str, str]:
    """The reward at each validated step with its interval, by agent."""
    texts: dict[str, list[str]] = defaultdict(list)
    for entry in validation:
        for name, figures in entry.get("by_agent", {}).items():
            low, high = figures.get("reward_ci95", (None, None))
            mean = number(figures.get("reward_mean"))
            texts[name].append(f"step {entry['step']}: {mean} [{number(low)}, {number(high)}]")
    return {f"validation: {name}": ", ".join(parts) for name, parts in texts.items()}


def best_text(best: dict[str, Any]) -> str:
    low, high = best.get("reward_ci95", (None, None))
    steps = " and ".join(map(str, best["validated_at"]))
    ended = "; the run ended because it got no better (trainer.early_stop)" if best["ended"] else ""
    mean = f"{number(best['reward_mean'])} [{number(low)}, {number(high)}]"
    over = "mean over the validations" if len(best["validated_at"]) > 1 else "validated"
    return f"step {best['step']}: {mean}, {over} at step {steps}{ended}"


def told(summary: dict[str, Any]) -> dict[str, str]:
    """The summary as people read it, line by line."""
    if "tokens" in summary:
        own, time = _of_files(summary), duration(summary["seconds"]["total"])
    else:
        own, time = _of_rollouts(summary), _time(summary["seconds"])
    return {
        "steps": f"{summary['steps']} of {summary['total_steps']}",
        **own,
        "model": summary["model"]["path"],
        "time": time,
        "peak memory": f"{summary['peak_memory_gib']} GiB",
    }


def _time(seconds: dict[str, float]) -> str:
    parts = ", ".join(f"{name} {duration(value)}" for name, value in seconds.items() if name != "total" and value >= 1)
    return f"{duration(seconds['total'])} ({parts})"


def _of_rollouts(summary: dict[str, Any]) -> dict[str, str]:
    unscored, late = _counted(summary["unscored"]) or "none", _counted(summary["late_calls"])
    parts = " + ".join(f"{k} {v:.3f}" for k, v in summary["reward_parts"].items())
    notes = {
        "tools broke": summary.get("broken_tools"),
        "too old": summary.get("too_old"),
        "calls after a step's end": late,
    }
    counts = f"{summary['rollouts']}, scored {summary['scored']}, unscored: {unscored}"
    rows = {"rollouts": "; ".join([counts, *(f"{name}: {note}" for name, note in notes.items() if note)])}
    if first := summary.get("first_unscored"):
        rows["first unscored"] = f"{first} (all: {run_folder.ROLLOUTS})"
    validations = ", ".join(f"step {v['step']}: {number(v['reward_mean'])}" for v in summary["validation"])
    rows |= {
        "reward": f"{number(summary['reward_mean'])} = {parts}" if parts else "-",
        "validation": validations or "-",
        **_validations_by_agent(summary["validation"]),
    }
    if summary["best"]:
        rows["best checkpoint"] = best_text(summary["best"])
    if summary.get("goes_on_from"):
        rows["goes on from"] = ancestors_text(summary["goes_on_from"])
    return rows | {
        "triplets": str(summary["triplets"]),
        "groups": f"{summary['groups']}, without variance {summary['zero_variance_groups']} (no update from these)",
        "update": f"loss {number(summary['loss'])}, {_update(summary)}",
        "judge": _judge(summary),
    }


def _of_files(summary: dict[str, Any]) -> dict[str, str]:
    data, tokens = summary["data"]["train"], summary["tokens"]
    left_out = ", ".join(f"{n} x {reason}" for reason, n in data["left_out"].items())
    return {
        "data": f"{data['rows']} of {data['source']}" + (f"; left out: {left_out}" if left_out else ""),
        "tokens": f"{tokens['all']}, supervised {tokens['supervised']}",
        "loss": f"{number(summary['loss_first_step'])} at first, {number(summary['loss'])} at last",
        "update": _update(summary),
    }


def _update(summary: dict[str, Any]) -> str:
    changed = "changed" if summary["weights_changed"] else "NOT changed"
    return f"gradient norm {number(summary['grad_norm'])}, weights {changed}"


def summary_table(summary: dict[str, Any]) -> Table:
    """The summary for the console."""
    table = Table("", "", title=f"run {summary['status']}", show_header=False, title_justify="left")
    table.columns[1].overflow = "fold"  # a path that is cut off is of no use
    for name, text in told(summary).items():
        table.add_row(name, escape(text))
    if summary.get("error"):
        table.add_row("error", escape(summary["error"]), style="bold red")
    if summary.get("goes_on"):
        table.add_row("goes on", escape(summary["goes_on"]))
    return table
