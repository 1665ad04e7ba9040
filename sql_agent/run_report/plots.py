"""The curves of a run, for the page (SVG, wide and narrow) and as PNG files.

An SVG stands inside the page: no style sheet, link or metadata of matplotlib's is left in it, its ids are its own, and
its colours are the page's CSS variables, so one picture serves the light and the dark theme.

Guarantees: what a model, a judge or a scorer's author wrote is never drawn into an SVG; in a PNG a name is reduced to
plain ASCII and never read as mathematics. Matplotlib is imported when the first figure is drawn: it takes a second.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sql_agent.run_report.measures import PHASE_COLOR, Estimate, Series

# Wide and narrow in points; the page shows one of both.
SIZES = {"wide": (760, 270), "narrow": (370, 265)}
SMALL, SMALL_PNG = (300, 120), (300, 150)
PNG_SIZE = (900, 380)
SMOOTH = 0.15  # share of the steps in the window of the moving mean
PAPER_SERIES = ["#0b62c4", "#b8500b", "#0f7a3d", "#7a3fd0", "#bb2244", "#0b7285", "#8a6100", "#5b6676", "#a2248f"]
PAPER_SERIES += ["#8390a3"]
FONT = re.compile(r"font-family: [^;\"]*; ")
IDS = re.compile(r'( id="|href="#|url\(#)')


@dataclass(frozen=True)
class Ink:
    ink: str
    muted: str
    grid: str
    series: list[str]


# On a screen colours stand for CSS variables while matplotlib draws.
SCREEN = Ink("#fe0001", "#fe0002", "#fe0003", [f"#fe00{n:02x}" for n in range(0x11, 0x1B)])
VARIABLES = {SCREEN.ink: "--ink", SCREEN.muted: "--muted", SCREEN.grid: "--grid"}
VARIABLES |= {color: f"--c{n}" for n, color in enumerate(SCREEN.series, start=1)}
PAPER = Ink("#1b2330", "#596475", "#dde2ea", PAPER_SERIES)
Draw = Callable[[Any, Ink], None]


def plain(name: str) -> str:
    """A name that any font can draw."""
    return re.sub(r"[^ -~]", "?", name)[:40]


@contextmanager
def figure(size: tuple[int, int], *, dpi: int = 72) -> Iterator[Any]:
    """An empty figure of so many points. Text stays text in SVG, the same figure has the same ids, and nothing is
    parsed as mathematics."""
    import matplotlib
    from matplotlib.figure import Figure

    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "report", "text.parse_math": False, "font.size": 10}
    with matplotlib.rc_context(settings):
        yield Figure(figsize=(size[0] / 72, size[1] / 72), dpi=dpi, layout="constrained")


def picture(draw: Draw, points: tuple[int, int], *, name: str) -> str:
    with figure(points) as drawn:
        draw(drawn.subplots(), SCREEN)
        return inline(drawn, name=name)


def inline(figure: Any, *, name: str) -> str:
    """The figure as an <svg> element, with ids that begin with `name`."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    drawn = text[text.index("<g ") :].replace("xlink:href", "href")  # what stands before says nothing of the picture
    drawn = FONT.sub("", IDS.sub(rf"\1{name}-", drawn))
    for color, variable in VARIABLES.items():
        drawn = drawn.replace(color, f"var({variable})")
    width, height = 72 * figure.get_size_inches()
    return f'<svg viewBox="0 0 {width:g} {height:g}" aria-hidden="true" focusable="false">{drawn}'


def png(draws: list[tuple[str, Draw]], *, path: Any, size: tuple[int, int] = PNG_SIZE) -> None:
    """Figures of so many points, each under its title, as one PNG file on white."""
    columns = min(3, len(draws))
    rows = -(-len(draws) // columns)
    with figure((columns * size[0], rows * size[1]), dpi=144) as drawn:
        grid = drawn.subplots(rows, columns, squeeze=False).flat
        for axes, (title, draw) in zip(grid, draws, strict=False):
            draw(axes, PAPER)
            axes.set_title(plain(title), loc="left", color=PAPER.ink, fontsize=11)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        for axes in grid[len(draws) :]:
            axes.set_axis_off()
        drawn.savefig(path, format="png", facecolor="white")


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
    if min(values) >= 0:
        axes.set_ylim(bottom=0)


def moving_mean(values: list[float]) -> list[float]:
    """The mean over a centred window of SMOOTH of the steps, narrower at both ends."""
    reach = max(1, round(len(values) * SMOOTH / 2))
    windows = [values[max(0, i - reach) : i + reach + 1] for i in range(len(values))]
    return [math.fsum(window) / len(window) for window in windows]


def reward(train: Series, held_out: list[tuple[int, Estimate]]) -> Draw:
    """Training reward with its moving mean, and the held-out points with their intervals."""

    def draw(axes: Any, ink: Ink) -> None:
        training_color, held_out_color = ink.series[:2]
        if train.steps:
            dots = {"marker": "o", "markersize": 3.5, "label": "training, per step"}
            axes.plot(train.steps, train.values, color=training_color, linewidth=1, alpha=0.5, **dots)
        if len(train.steps) > 4:
            smooth = moving_mean(train.values)
            axes.plot(train.steps, smooth, color=training_color, linewidth=2.4, label="training, moving mean")
        steps, means = [step for step, _ in held_out], [reward.mean for _, reward in held_out]
        bounds = [(step, e.low, e.high) for step, e in held_out if not math.isnan(e.low)]
        for step, low, high in bounds:
            axes.plot([step, step], [low, high], color=held_out_color, linewidth=2, alpha=0.8)
        if held_out:
            diamonds = {"marker": "D", "markersize": 7, "label": "held out, 95 % interval"}
            axes.plot(steps, means, color=held_out_color, linewidth=1.2, linestyle=(0, (4, 3)), **diamonds)
        style(axes, ink, steps=[*train.steps, *steps])
        from_zero(axes, [*train.values, *means, *(low for _, low, _ in bounds)])
        axes.set_xlabel("step", color=ink.muted)

    return draw


def parts(series: list[Series]) -> Draw:
    """The parts of the reward on top of each other where none is negative, else as lines."""

    def draw(axes: Any, ink: Ink) -> None:
        steps = series[0].steps
        stackable = all(s.steps == steps and min(s.values) >= 0 for s in series) and len(steps) > 1
        bottom = [0.0] * len(steps)
        for n, part in enumerate(series):
            color = ink.series[n % len(ink.series)]
            values = [b + v for b, v in zip(bottom, part.values, strict=True)] if stackable else part.values
            if stackable:
                axes.fill_between(steps, bottom, values, color=color, alpha=0.28, linewidth=0)
                bottom = values
            axes.plot(part.steps, values, color=color, marker="o", markersize=3.5, label=plain(part.title))
        style(axes, ink, steps=steps)
        from_zero(axes, [value for part in series for value in part.values])
        axes.set_xlabel("step", color=ink.muted)

    return draw


def phases(steps: list[int], seconds: dict[str, list[float]]) -> Draw:
    def draw(axes: Any, ink: Ink) -> None:
        gap = min((b - a for a, b in zip(steps, steps[1:], strict=False)), default=1)
        bottom = [0.0] * len(steps)
        for title, values in seconds.items():
            color = ink.series[PHASE_COLOR[title]]
            axes.bar(steps, values, bottom=bottom, width=0.82 * gap, color=color, label=title, linewidth=0)
            bottom = [b + v for b, v in zip(bottom, values, strict=True)]
        style(axes, ink, steps=steps)
        axes.set_xlabel("step", color=ink.muted)
        axes.set_ylabel("seconds", color=ink.muted)

    return draw


def line(series: Series) -> Draw:

    def draw(axes: Any, ink: Ink) -> None:
        scale = 100.0 if series.unit == "percent" else 1.0
        values = [scale * v for v in series.values]
        axes.plot(series.steps, values, color=ink.series[0], marker="o", markersize=3)
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
