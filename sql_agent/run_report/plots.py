"""The curves of a run, for the page (SVG, wide and narrow) and as PNG files.

Guarantees: what a model, a judge or a scorer's author wrote is never drawn into an SVG; in a PNG a name is reduced to
plain ASCII and never read as mathematics. Matplotlib is imported when the first figure is drawn: it takes a second.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sql_agent.run_report import svg
from sql_agent.run_report.measures import PHASE_COLOR, Estimate, Series

# Wide and narrow in points; the page shows one of both.
SIZES = {"wide": (760, 270), "narrow": (370, 265)}
SMALL = (300, 120)
PNG_SIZE = (900, 380)
SMOOTH = 0.15  # share of the steps in the window of the moving mean
LIGHT = {"ink": "#1b2330", "muted": "#596475", "grid": "#dde2ea", "surface": "#ffffff"}
LIGHT_SERIES = ["#0b62c4", "#b8500b", "#0f7a3d", "#7a3fd0", "#bb2244", "#0b7285", "#8a6100", "#5b6676", "#a2248f"]
LIGHT_SERIES += ["#8390a3"]


@dataclass(frozen=True)
class Ink:
    """The colours that a figure is drawn with."""

    ink: str
    muted: str
    grid: str
    surface: str
    series: list[str]


SCREEN = Ink(svg.INK, svg.MUTED, svg.GRID, svg.SURFACE, svg.SERIES)
PAPER = Ink(**LIGHT, series=LIGHT_SERIES)
Draw = Callable[[Any, Ink, svg.Tips], None]
DOTS = {"linestyle": "none", "marker": "o", "markeredgewidth": 0}


def plain(name: str) -> str:
    """A name that any font can draw."""
    return re.sub(r"[^ -~]", "?", name)[:40]


@contextmanager
def settings() -> Iterator[None]:
    """Text stays text in SVG, ids are the same for the same figure, nothing is parsed as mathematics."""
    import matplotlib

    with matplotlib.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": "report", "text.parse_math": False, "font.size": 10}
    ):
        yield


def figure(size: tuple[int, int], *, dpi: int = 72) -> Any:
    """An empty figure of so many points."""
    from matplotlib.figure import Figure

    return Figure(figsize=(size[0] / 72, size[1] / 72), dpi=dpi, layout="constrained")


def pictures(draw: Draw, *, name: str) -> dict[str, str]:
    """The SVG elements of a figure by size."""
    return {size: picture(draw, points, name=f"{name}-{size}") for size, points in SIZES.items()}


def picture(draw: Draw, points: tuple[int, int], *, name: str) -> str:
    """A figure of so many points as an SVG element."""
    with settings():
        drawn, tips = figure(points), svg.Tips()
        draw(drawn.subplots(), SCREEN, tips)
        return svg.inline(drawn, name=name, tips=tips)


def png(draw: Draw, *, path: Any, title: str) -> None:
    """The figure as a PNG file, on white."""
    with settings():
        drawn = figure(PNG_SIZE, dpi=144)
        axes = drawn.subplots()
        draw(axes, PAPER, svg.Tips())
        axes.set_title(plain(title), loc="left", color=PAPER.ink, fontsize=12)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        drawn.savefig(path, format="png", facecolor=PAPER.surface)


def png_grid(draws: list[tuple[str, Draw]], *, path: Any) -> None:
    """Several small figures in one PNG file, each under its title."""
    columns = min(3, len(draws))
    rows = -(-len(draws) // columns)
    with settings():
        drawn = figure((columns * 300, rows * 150), dpi=144)
        grid = drawn.subplots(rows, columns, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(draws):
                axes.set_axis_off()
                continue
            title, draw = draws[place]
            draw(axes, PAPER, svg.Tips())
            axes.set_title(plain(title), loc="left", color=PAPER.ink, fontsize=10)
        drawn.savefig(path, format="png", facecolor=PAPER.surface)


def style(axes: Any, ink: Ink, *, steps: list[int]) -> None:
    """Light axes: a horizontal grid, no frame, whole steps."""
    from matplotlib.ticker import MaxNLocator

    axes.set_facecolor("none")
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=ink.grid, linewidth=0.8)
    axes.tick_params(colors=ink.muted, length=0, pad=5)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(ink.grid)
    few = axes.figure.get_size_inches()[0] < 6
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5 if few else 10, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    if len(set(steps)) == 1:
        axes.set_xlim(steps[0] - 1, steps[0] + 1)


def from_zero(axes: Any, values: list[float]) -> None:
    """Let the vertical axis start at 0 where nothing is below."""
    if min(values) >= 0:
        axes.set_ylim(bottom=0)


def moving_mean(values: list[float]) -> list[float]:
    """The mean over a centred window of SMOOTH of the steps, narrower at both ends."""
    reach = max(1, round(len(values) * SMOOTH / 2))
    windows = [values[max(0, i - reach) : i + reach + 1] for i in range(len(values))]
    return [math.fsum(window) / len(window) for window in windows]


def reward(train: Series, held_out: list[tuple[int, Estimate]]) -> Draw:
    """Training reward with its moving mean, and the held-out points with their intervals."""

    def draw(axes: Any, ink: Ink, tips: svg.Tips) -> None:
        if train.steps:
            axes.plot(train.steps, train.values, color=ink.series[0], linewidth=1, alpha=0.35)
            points = {"gid": "train", "label": "training, per step", "alpha": 0.55}
            axes.plot(train.steps, train.values, color=ink.series[0], markersize=3.5, **DOTS, **points)
            tips["train"] = [f"step {s}: {v:.3f}" for s, v in zip(train.steps, train.values, strict=True)]
        if len(train.steps) > 4:
            smooth = moving_mean(train.values)
            axes.plot(train.steps, smooth, color=ink.series[0], linewidth=2.4, label="training, moving mean")
        _held_out(axes, ink, tips, held_out)
        style(axes, ink, steps=[*train.steps, *(step for step, _ in held_out)])
        from_zero(axes, [*train.values, *(v for _, e in held_out for v in (e.mean, e.low) if not math.isnan(v))])
        axes.set_xlabel("step", color=ink.muted)

    return draw


def _held_out(axes: Any, ink: Ink, tips: svg.Tips, held_out: list[tuple[int, Estimate]]) -> None:
    for step, reward in held_out:
        if not math.isnan(reward.low):
            axes.plot([step, step], [reward.low, reward.high], color=ink.series[1], linewidth=2, alpha=0.8)
    if held_out:
        steps, means = [step for step, _ in held_out], [reward.mean for _, reward in held_out]
        shape = {"linestyle": "none", "marker": "D", "markersize": 7, "markeredgewidth": 0}
        axes.plot(steps, means, color=ink.series[1], linewidth=1.2, linestyle=(0, (4, 3)))
        axes.plot(steps, means, color=ink.series[1], gid="val", label="held out, 95 % interval", **shape)
        tips["val"] = [f"held out at step {step}: {reward}" for step, reward in held_out]


def parts(series: list[Series]) -> Draw:
    """The parts of the reward on top of each other where none is negative, else as lines."""

    def draw(axes: Any, ink: Ink, tips: svg.Tips) -> None:
        steps = series[0].steps
        stackable = all(s.steps == steps and min(s.values) >= 0 for s in series) and len(steps) > 1
        bottom = [0.0] * len(steps)
        for n, part in enumerate(series):
            color = ink.series[n % len(ink.series)]
            values = [b + v for b, v in zip(bottom, part.values, strict=True)] if stackable else part.values
            if stackable:
                axes.fill_between(steps, bottom, values, color=color, alpha=0.28, linewidth=0)
                bottom = values
            axes.plot(part.steps, values, color=color, linewidth=1.8)
            axes.plot(part.steps, values, color=color, gid=f"part{n}", label=plain(part.title), markersize=3.5, **DOTS)
            tips[f"part{n}"] = [f"step {s}: {v:.3f}" for s, v in zip(part.steps, part.values, strict=True)]
        style(axes, ink, steps=steps)
        from_zero(axes, [value for part in series for value in part.values])
        axes.set_xlabel("step", color=ink.muted)

    return draw


def phases(steps: list[int], seconds: dict[str, list[float]]) -> Draw:
    """A bar per step, made up of its phases."""

    def draw(axes: Any, ink: Ink, tips: svg.Tips) -> None:
        gap = min((b - a for a, b in zip(steps, steps[1:], strict=False)), default=1)
        bottom = [0.0] * len(steps)
        for title, values in seconds.items():
            n = PHASE_COLOR[title]
            color = ink.series[n]
            bars = axes.bar(steps, values, bottom=bottom, width=0.82 * gap, color=color, label=title, linewidth=0)
            for place, bar in enumerate(bars):
                bar.set_gid(f"bar{n}-{place}")
                tips[f"bar{n}-{place}"] = [f"step {steps[place]}, {title}: {values[place]:.1f} s"]
            bottom = [b + v for b, v in zip(bottom, values, strict=True)]
        style(axes, ink, steps=steps)
        axes.set_xlabel("step", color=ink.muted)
        axes.set_ylabel("seconds", color=ink.muted)

    return draw


def line(series: Series) -> Draw:
    """One health measure."""

    def draw(axes: Any, ink: Ink, tips: svg.Tips) -> None:
        scale = 100.0 if series.unit == "percent" else 1.0
        values = [scale * v for v in series.values]
        axes.plot(series.steps, values, color=ink.series[0], linewidth=1.8)
        axes.plot(series.steps, values, color=ink.series[0], gid="line", markersize=3, **DOTS)
        tips["line"] = [f"step {s}: {series.shown(v)}" for s, v in zip(series.steps, series.values, strict=True)]
        axes.fill_between(series.steps, values, min(0.0, *values), color=ink.series[0], alpha=0.10, linewidth=0)
        style(axes, ink, steps=series.steps)
        from_zero(axes, values)
        if not any(values):
            axes.set_ylim(0, 1)
        axes.yaxis.get_major_locator().set_params(nbins=3)
        if series.limit is not None and scale * series.limit <= 1.4 * max(values):
            axes.axhline(scale * series.limit, color=ink.series[4], linewidth=1.2, linestyle=(0, (4, 3)))
        if series.unit == "percent":
            axes.yaxis.set_major_formatter("{x:g} %")

    return draw
