"""From a run's data to the page: what the templates in templates/ get, and the page's text.

Guarantees: every value is escaped, control characters and marks that turn the direction of text are written out; the
page loads nothing, and its content security policy would forbid it. A chart without data is left out.
"""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import pygments
from markupsafe import Markup
from pygments.formatters import HtmlFormatter
from pygments.lexers import SqlLexer

from foundation.console import duration
from sql_agent.agent.view import clean
from sql_agent.run_report import cases, facts, health, measures, plots
from sql_agent.run_report.folder import RunData
from sql_agent.run_report.headline import Headline, headlines, measure_rows
from sql_agent.run_report.measures import Estimate, Series
from sql_agent.run_report.plain import cut

TEMPLATES = Path(__file__).resolve().parent / "templates"
PNGS = ("reward.png", "parts.png", "time.png", "health.png")
BONUS_TOP = 1.1  # the reward's usual maximum: the scale of the bars


@dataclass(frozen=True)
class Chart:
    """A picture with its words: what it shows, how to read its colours, and its numbers as a table."""

    name: str
    title: str
    about: str
    legend: list[tuple[str, str]]  # CSS variable of the colour, name
    svg: dict[str, str]
    columns: list[str]
    rows: list[list[str]]
    draw: plots.Draw


@dataclass(frozen=True)
class Panel:
    """A health measure with its small picture."""

    series: Series
    svg: str

    @property
    def first(self) -> str:
        return self.series.shown(self.series.values[0])

    @property
    def last(self) -> str:
        return self.series.shown(self.series.values[-1])

    @property
    def limit(self) -> str:
        return "" if self.series.limit is None else self.series.shown(self.series.limit)

    @property
    def range(self) -> str:
        return f"{self.series.shown(min(self.series.values))} to {self.series.shown(max(self.series.values))}"


@dataclass(frozen=True)
class Page:
    """All that the templates show."""

    run: RunData
    charts: dict[str, Chart] = field(default_factory=dict)
    panels: list[Panel] = field(default_factory=list)


def build(run: RunData) -> Page:
    """The charts of a run."""
    charts = [chart for chart in (_reward(run), _parts(run), _time(run)) if chart]
    panels = [
        Panel(series, plots.small(plots.line(series), name=f"health{n}")) for n, series in enumerate(health.health(run))
    ]
    return Page(run, {chart.name: chart for chart in charts}, panels)


def write_pngs(page: Page, folder: Path) -> list[Path]:
    """The same pictures as files, for a slide or a paper; those of an older report go."""
    folder.mkdir(exist_ok=True)
    for name in PNGS:
        (folder / name).unlink(missing_ok=True)
    for chart in page.charts.values():
        plots.png(chart.draw, path=folder / f"{chart.name}.png", title=chart.title)
    if page.panels:
        plots.png_grid([(p.series.title, plots.line(p.series)) for p in page.panels], path=folder / "health.png")
    return sorted(folder.glob("*.png"))


def _reward(run: RunData) -> Chart | None:
    train, held_out = measures.training_reward(run), measures.validations(run)
    if not train.steps and not held_out:
        return None
    told = []
    if train.steps:
        told.append(f"The training reward goes from {train.values[0]:.3f} at step {train.steps[0]}")
        told[-1] += f" to {train.values[-1]:.3f} at step {train.steps[-1]}."
    if held_out:
        told.append("Held out: " + "; ".join(f"{found} at step {step}" for step, found in _ends(held_out)) + ".")
    draw = plots.reward(train, held_out)
    trained, measured = dict(zip(train.steps, train.values, strict=True)), dict(held_out)
    rows = [
        [str(step), _three(trained.get(step)), str(measured[step]) if step in measured else ""]
        for step in sorted({*trained, *measured})
    ]
    legend = [("--c1", "training (dots: per step, line: moving mean)"), ("--c2", "held out, with 95 % interval")]
    columns = ["step", "training reward", "held out [95 %]"]
    return _chart("reward", "Reward", " ".join(told), legend, draw, columns=columns, rows=rows)


def _ends(held_out: list[tuple[int, Estimate]]) -> list[tuple[int, Estimate]]:
    return held_out if len(held_out) <= 4 else [*held_out[:1], *held_out[-1:]]


def _parts(run: RunData) -> Chart | None:
    series = list(measures.reward_parts(run).values())
    if not series:
        return None
    about = "; ".join(f"{s.title}: {s.values[0]:.3f} at first, {s.values[-1]:.3f} at last" for s in series) + "."
    by_step = [dict(zip(s.steps, s.values, strict=True)) for s in series]
    steps = sorted({step for s in series for step in s.steps})
    rows = [[str(step), *(_three(found.get(step)) for found in by_step)] for step in steps]
    columns = ["step", *(s.title for s in series)]
    return _chart(
        "parts", "Parts of the reward", about, _legend(columns[1:]), plots.parts(series), columns=columns, rows=rows
    )


def _time(run: RunData) -> Chart | None:
    steps, seconds = measures.phase_seconds(run)
    if not seconds:
        return None
    total = math.fsum(math.fsum(values) for values in seconds.values())
    means = {title: math.fsum(values) / len(steps) for title, values in seconds.items()}
    split = ", ".join(f"{title} {mean:.1f} s" for title, mean in means.items())
    about = f"A step takes {total / len(steps):.1f} s on average: {split}."
    rows = [[str(step), *(f"{values[n]:.1f}" for values in seconds.values())] for n, step in enumerate(steps)]
    rows.append(
        ["share", *(f"{100 * math.fsum(values) / total:.0f} %" if total else "" for values in seconds.values())]
    )
    columns = ["step", *seconds]
    draw = plots.phases(steps, seconds)
    legend = [(f"--c{measures.PHASE_COLOR[title] + 1}", title) for title in seconds]
    return _chart("time", "Seconds per step", about, legend, draw, columns=columns, rows=rows)


def _legend(names: list[str]) -> list[tuple[str, str]]:
    return [(f"--c{n % len(plots.LIGHT_SERIES) + 1}", name) for n, name in enumerate(names)]


def _chart(
    name: str,
    title: str,
    about: str,
    legend: list[tuple[str, str]],
    draw: plots.Draw,
    *,
    columns: list[str],
    rows: list[list[str]],
) -> Chart:
    return Chart(name, title, about, legend, plots.pictures(draw, name=name), columns, rows, draw)


def _three(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def health_table(panels: list[Panel]) -> tuple[list[str], list[list[str]]]:
    """All health values by step."""
    by_step = [dict(zip(p.series.steps, p.series.values, strict=True)) for p in panels]
    steps = sorted({step for found in by_step for step in found})
    rows = [
        [str(step), *(p.series.shown(v[step]) if step in v else "" for p, v in zip(panels, by_step, strict=True))]
        for step in steps
    ]
    return ["step", *(p.series.title for p in panels)], rows


def sql(value: str) -> Markup:
    """A query with coloured words; pygments escapes its text."""
    return Markup(pygments.highlight(clean(value), SqlLexer(stripnl=False), HtmlFormatter(nowrap=True)).rstrip("\n"))


def interval(found: Estimate | None, *, sign: bool = False) -> str:
    """0.412 [0.350, 0.470]; the mean alone where there is no interval."""
    if found is None:
        return ""
    form = "{:+.3f}" if sign else "{:.3f}"
    both = [form.format(v) for v in (found.low, found.high) if not math.isnan(v)]
    return form.format(found.mean) + (f" [{', '.join(both)}]" if both else "")


def scale(found: list[Headline]) -> float:
    """The right end of the bars."""
    values = [v for h in found for e in (h.before, h.after) if e for v in (e.mean, e.high) if not math.isnan(v)]
    return max([BONUS_TOP, *values])


def percent(value: float, top: float) -> str:
    """A place on a bar."""
    return f"{min(100.0, max(0.0, 100 * value / top)):.2f}%"


def _shown(value: Any) -> Any:
    return clean(value) if type(value) is str else value


def environment() -> jinja2.Environment:
    """Templates that escape everything, and fail on a name that is missing."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {"sql": sql, "interval": interval, "percent": percent, "duration": duration, "cut": cut}
    env.tests["nan"] = math.isnan
    return env


def render(page: Page, *, pngs: list[str]) -> str:
    """The whole page."""
    run = page.run
    found = headlines(run)
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    improved, worst = cases.standings(run)
    settings = facts.settings(run)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            run=run,
            name=run.folder.resolve().name,
            status=facts.status(run),
            error=facts.error(run),
            steps=facts.steps(run),
            facts=facts.facts(run),
            spent=facts.seconds(run),
            versions=facts.versions(run),
            settings=settings,
            changed=[setting for rows in settings.values() for setting in rows if setting.default is not None],
            headlines=found,
            top=scale([*found, *(task for h in found for task in h.tasks)]),
            measure_rows=measure_rows(run.results),
            charts=page.charts,
            panels=page.panels,
            health_table=health_table(page.panels),
            warnings=health.warnings(run),
            unscored=measures.counted(run, "rollout/unscored/"),
            stops=measures.counted(run, "rollout/stop/"),
            compared=cases.sides(run)[0],
            pairs=cases.pairs(run),
            groups=cases.groups(run),
            improved=improved,
            worst=worst,
            pngs=pngs,
            style=Markup(style),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )
