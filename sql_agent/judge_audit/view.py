"""The judge report for the eye: two tables on the terminal, and the calibration curve as a picture.

Works on what report.json says, and computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sql_agent.judge_audit.metrics import Rate

TOKENS = ("prompt_tokens", "completion_tokens")


def draw_calibration(path: Path, judges: list[dict[str, Any]]) -> None:
    """Mean label over mean score, a line for each judge; the area of a dot is the number of its items."""
    from matplotlib.figure import Figure  # takes a second to import

    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="grey", linestyle="--", linewidth=1, label="score = label")
    for judge in judges:
        bins = judge["calibration"]
        x, y = [b["mean_score"] for b in bins], [b["mean_label"] for b in bins]
        (line,) = axes.plot(x, y, label=judge["judge"])
        axes.scatter(x, y, s=[4 * b["n"] for b in bins], color=line.get_color(), alpha=0.5)
    axes.set(xlabel="mean score", ylabel="mean label", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), title="Calibration")
    axes.legend(loc="upper left")
    figure.savefig(path, dpi=120)


def show(out: Console, report: dict[str, Any]) -> None:
    """The figures of all judges side by side, then what each of them scores too high or too low, by kind."""
    table = Table(title=f"{report['n']} items, {report['n_attacks']} of them attacks")
    table.add_column("figure")
    for judge in report["judges"]:
        table.add_column(escape(judge["judge"]), justify="right")
    for name, cells in rows(report["judges"]):
        table.add_row(name, *cells)
    out.print(table)
    kinds = Table(title="too high / too low by more than the margin")
    for column in ("kind", "items", "mean label", *(escape(j["judge"]) for j in report["judges"])):
        kinds.add_column(column, justify="left" if column == "kind" else "right")
    for kind in dict.fromkeys(kind for judge in report["judges"] for kind in judge["by_kind"]):
        found = [judge["by_kind"].get(kind) for judge in report["judges"]]
        first = next(f for f in found if f)
        cells = [f"{f['mean_score']:.2f}   {f['too_high']:>2} / {f['too_low']:<2}" if f else "" for f in found]
        kinds.add_row(escape(kind), str(first["n"]), f"{first['mean_label']:.2f}", *cells)
    out.print(kinds)


def rows(judges: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Name and cells of each line of the first table."""

    def line(name: str, cell: Callable[[dict[str, Any]], str]) -> tuple[str, list[str]]:
        return name, [cell(judge) for judge in judges]

    lines = [
        line("attack success", lambda j: percent(j["attack_success"])),
        line("accuracy", lambda j: percent(j["agreement"]["accuracy"])),
        line("accuracy, honest items", lambda j: percent(j["agreement_honest"]["accuracy"])),
        line("Spearman", lambda j: number(j["agreement"]["spearman"])),
        line("Spearman, honest items", lambda j: number(j["agreement_honest"]["spearman"])),
        line("mean error", lambda j: number(j["agreement"]["mean_error"])),
        line("calibration error", lambda j: number(j["agreement"]["calibration_error"])),
    ]
    for name in judges[0]["flips"]:
        lines.append(line(f"flips, {name}", lambda j, name=name: percent(j["flips"][name]["flips"])))
    return [
        *lines,
        line("unscored", lambda j: ", ".join(f"{n} {why}" for why, n in j["unscored"].items()) or "0"),
        line("calls", lambda j: str(j["cost"]["calls"])),
        line("tokens in / out", lambda j: " / ".join(str(j["cost"][name]) for name in TOKENS)),
        line("ms per score", lambda j: f"{j['cost']['ms_per_score']:.1f}"),
    ]


def percent(found: dict[str, Any]) -> str:
    """A rate with its interval and counts."""
    r = Rate.model_validate(found)
    if r.rate is None or r.low is None or r.high is None:
        return "-"
    return f"{100 * r.rate:.1f} % [{100 * r.low:.1f}, {100 * r.high:.1f}]  {r.count}/{r.n}"


def number(value: float | None) -> str:
    """Two digits, or a dash."""
    return "-" if value is None else f"{value:.2f}"
