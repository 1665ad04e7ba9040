"""The summary of a run with TRL as a table for people; its numbers are made by sql_agent.training.summary."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table

from foundation.console import duration
from sql_agent.training.summary import number


def tuning_table(summary: dict[str, Any]) -> Table:
    """The summary as people read it."""
    table = Table(title=f"run {summary['status']}", show_header=False, title_justify="left")
    data, tokens = summary["data"]["train"], summary["tokens"]
    left_out = ", ".join(f"{n} x {reason}" for reason, n in data["left_out"].items())
    rows = {
        "steps": f"{summary['steps']} of {summary['total_steps']}",
        "data": f"{data['rows']} of {data['source']}" + (f"; left out: {left_out}" if left_out else ""),
        "tokens": f"{tokens['all']}, supervised {tokens['supervised']}",
        "loss": f"{number(summary['loss_first_step'])} at first, {number(summary['loss'])} at last",
        "update": f"gradient norm {number(summary['grad_norm'])}, "
        f"weights {'changed' if summary['weights_changed'] else 'NOT changed'}",
        "model": summary["model"]["path"],
        "time": duration(summary["seconds"]["total"]),
        "peak memory": f"{summary['peak_memory_gib']} GiB",
    }
    for name, text in rows.items():
        table.add_row(name, escape(text))
    if summary.get("error"):
        table.add_row("error", escape(summary["error"]), style="bold red")
    return table
