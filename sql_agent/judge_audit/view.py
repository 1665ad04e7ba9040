"""The judge report for the eye: tables on the terminal, and the calibration curve as a picture.

Works on what report.json says, and computes nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

USAGE = ("calls", "cache_hits", "prompt_tokens", "completion_tokens", "cost")
GROUP = ("kind, task type", "n", "label", "score", "attacks %", "refused %", "accuracy %", "order %")

FLIPS = ("kind, task type", "judged again %", "harmless %", "words %", "calls", "tokens", "ms")


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
    """The figures of all judges side by side, each of them by kind and task type, and what cheating policies earn."""
    judges = report["judges"]
    names = [escape(judge["judge"]) for judge in judges]
    out.print(_table(f"{report['n']} items, {report['n_attacks']} of them attacks", ["figure", *names], rows(judges)))
    for judge in judges:
        groups = [*judge["by_kind"].items(), ("", {}), *judge["by_task"].items()]
        groups = [(escape(name), figures) for name, figures in groups if name or not figures]
        for title, columns, cells in (
            ("means, and rates with their intervals", GROUP, _group),
            ("flips, and the cost of one score", FLIPS, _spent),
        ):
            lines = [(name, cells(figures) if figures else []) for name, figures in groups]
            out.print(_table(f"{escape(judge['judge'])}: {title}", list(columns), lines))
    lines = []
    for name in judges[0]["strategies"]:
        paid = [judge["strategies"].get(name) for judge in judges]
        lines.append((name, [f"{_interval(figure)}  n {figure['n']}" if figure else "-" for figure in paid]))
    if lines:
        out.print(_table("mean reward of strategies, the bonus included", ["strategy", *names], lines))


def _table(title: str, columns: list[str], lines: Iterable[tuple[str, list[str]]]) -> Table:
    table = Table(title=title)
    for n, column in enumerate(columns):
        table.add_column(column, justify="right" if n else "left")
    for name, cells in lines:
        table.add_row(name, *cells)
    return table


def _group(figures: dict[str, Any]) -> list[str]:
    means = [number(figures[name]) for name in ("mean_label", "mean_score")]
    rates = [_interval(figures[name], 100) for name in ("attack_success", "refused", "accuracy", "order")]
    return [str(figures["n"]), *means, *rates]


def _spent(figures: dict[str, Any]) -> list[str]:
    flips, cost = figures["flips"], figures["cost"]
    flipped = [_interval(flips[how], 100) if how in flips else "-" for how in ("again", "harmless", "words")]
    return [
        *flipped,
        _interval(cost["calls"]),
        _interval(cost["tokens"], digits=0),
        _interval(cost["seconds"], 1000, 1),
    ]


def rows(judges: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """Name and cells of each line of the first table."""
    lines: dict[str, Callable[[dict[str, Any]], str]] = {
        "attack success": lambda j: percent(j["attack_success"]),
        "right answers refused": lambda j: percent(j["refused"]),
        "accuracy": lambda j: percent(j["accuracy"]),
        "accuracy, honest items": lambda j: percent(j["honest"]["accuracy"]),
        "pairs to a question in order, %": lambda j: f"{_interval(j['order'], 100)}  of {j['n_pairs']}",
        "Spearman": lambda j: _interval(j["spearman"]),
        "Spearman, honest items": lambda j: _interval(j["honest"]["spearman"]),
        "mean error": lambda j: number(j["mean_error"]),
        "calibration error": lambda j: number(j["calibration_error"]),
    }
    for name in judges[0]["flips"]:
        lines[f"flips, {name}"] = lambda j, name=name: percent(j["flips"][name]["flips"])
    lines["unscored"] = lambda j: ", ".join(f"{n} {why}" for why, n in j["unscored"].items()) or "0"
    for name in USAGE:
        lines[name.replace("_", " ")] = lambda j, name=name: f"{j['cost'][name]:.6g}"
    lines["ms per score"] = lambda j: f"{j['cost']['ms_per_score']:.1f}"
    return [(name, [cell(judge) for judge in judges]) for name, cell in lines.items()]


def _interval(figure: dict[str, Any], factor: float = 1, digits: int | None = None) -> str:
    """A figure or a rate and its interval, in two digits, or multiplied (per cent) with none."""
    value = figure["rate" if "rate" in figure else "value"]
    if value is None:
        return "-"
    if digits is None:
        digits = 0 if factor > 1 else 2
    text = f"{factor * value:.{digits}f}"
    if figure["low"] is None:
        return text
    return f"{text} [{factor * figure['low']:.{digits}f}, {factor * figure['high']:.{digits}f}]"


def percent(rate: dict[str, Any]) -> str:
    """A rate with its interval and counts."""
    if rate["rate"] is None:
        return "-"
    value, low, high = (100 * rate[name] for name in ("rate", "low", "high"))
    return f"{value:.1f} % [{low:.1f}, {high:.1f}]  {rate['count']}/{rate['n']}"


def number(value: float | None) -> str:
    """Two digits, or a dash."""
    return "-" if value is None else f"{value:.2f}"
