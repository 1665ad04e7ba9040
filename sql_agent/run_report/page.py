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

from foundation.console import clean
from foundation.rollout_keys import POOLS
from sql_agent.run_report import cases, facts, health, measures, plots
from sql_agent.run_report.folder import RunData
from sql_agent.run_report.headline import Headline, headlines, measure_rows
from sql_agent.run_report.measures import Series
from sql_agent.run_report.plain import cut

TEMPLATES = Path(__file__).resolve().parent / "templates"
PNGS = ("reward.png", "parts.png", "pools.png", "loss.png", "time.png", "health.png")
BONUS_TOP = 1.1  # the reward's usual maximum: the scale of the bars


@dataclass(frozen=True)
class Chart:
    """A picture with its words: what it shows, how to read its colours, and its numbers as a table."""

    name: str
    title: str
    about: str
    legend: list[tuple[str, str]]  # CSS variable of the colour, name
    draw: plots.Draw
    columns: list[str]
    rows: list[list[str]]

    @property
    def svg(self) -> dict[str, str]:
        sizes = plots.SIZES.items()
        return {size: plots.picture(self.draw, points, name=f"{self.name}-{size}") for size, points in sizes}


@dataclass(frozen=True)
class Page:
    """All that the templates show; `panels` are health measures, each with its small picture."""

    run: RunData
    charts: dict[str, Chart] = field(default_factory=dict)
    panels: list[tuple[Series, str]] = field(default_factory=list)


def build(run: RunData) -> Page:
    charts = [chart for chart in (_reward(run), _parts(run), _pools(run), _loss(run), _time(run)) if chart]
    panels = [
        (series, plots.picture(plots.line(series), plots.SMALL, name=f"health{n}"))
        for n, series in enumerate(health.health(run))
    ]
    return Page(run, {chart.name: chart for chart in charts}, panels)


def write_pngs(page: Page, folder: Path) -> list[Path]:
    """The same pictures as files, for a slide or a paper; those of an older report go."""
    folder.mkdir(exist_ok=True)
    for name in PNGS:
        (folder / name).unlink(missing_ok=True)
    for chart in page.charts.values():
        plots.png([(chart.title, chart.draw)], path=folder / f"{chart.name}.png")
    if page.panels:
        draws = [(series.title, plots.line(series)) for series, _ in page.panels]
        plots.png(draws, path=folder / "health.png", size=plots.SMALL_PNG)
    return sorted(folder.glob("*.png"))


def _reward(run: RunData) -> Chart | None:
    train, held_out = measures.training_reward(run), measures.validations(run)
    if not train.steps and not held_out:
        return None
    sentences = []
    if train.steps:
        first, last = (f"{train.values[n]:.3f} at step {train.steps[n]}" for n in (0, -1))
        sentences.append(f"The training reward goes from {first} to {last}.")
    if held_out:
        shown = held_out if len(held_out) <= 4 else [held_out[0], held_out[-1]]
        sentences.append("Held out: " + "; ".join(f"{reward} at step {step}" for step, reward in shown) + ".")
    draw = plots.reward(train, held_out)
    trained = dict(zip(train.steps, train.values, strict=True))
    measured = dict(held_out)
    rows = [
        [str(step), f"{trained[step]:.3f}" if step in trained else "", str(measured.get(step, ""))]
        for step in sorted({*trained, *measured})
    ]
    legend = [
        ("--c1", f"training (dots:{measures.per(run)}, line: moving mean)"),
        ("--c2", "held out, with 95 % interval"),
    ]
    columns = ["step", "training reward", "held out [95 %]"]
    return Chart("reward", "Reward", " ".join(sentences), legend, draw, columns, rows)


def _parts(run: RunData) -> Chart | None:
    series = measures.reward_parts(run)
    if not series:
        return None
    about = "; ".join(f"{s.title}: {s.values[0]:.3f} at first, {s.values[-1]:.3f} at last" for s in series) + "."
    return Chart("parts", "Parts of the reward", about, _legend(series), plots.parts(series), *by_step(series))


def _legend(series: list[Series]) -> list[tuple[str, str]]:
    return [(f"--c{n % len(plots.PAPER_SERIES) + 1}", s.title) for n, s in enumerate(series)]


def _pools(run: RunData) -> Chart | None:
    """How many questions are in each pool of the curriculum, but for those that were never asked."""
    rows = run.rows("probe") + run.rows("train")
    pools = [Series(name, name, "", "count", *measures.over_steps(rows, f"curriculum/{name}")) for name in POOLS]
    if not pools[0].steps:
        return None
    counts = ", ".join(f"{pool.title} {pool.shown(pool.values[-1])}" for pool in pools)
    about = f"Questions by how often their rollouts solved them. After step {pools[0].steps[-1]}: {counts}."
    for row in run.rows("probe"):
        from scipy.stats import binomtest  # loading it takes a second or two

        flat, groups = int(row["probe/flat"]), int(row["probe/groups"])
        if groups:
            low, high = binomtest(flat, groups).proportion_ci(method="wilson")
            about += f" Played before the first step: {flat} of {groups} groups were flat, which forecasts"
            about += f" {100 * low:.0f} to {100 * high:.0f} % of those to come, while the policy is the same."
    visited = pools[1:]
    return Chart("pools", "Pools of questions", about, _legend(visited), plots.parts(visited), *by_step(pools))


def _loss(run: RunData) -> Chart | None:
    """How a run that learns from files gets on; GRPO's loss says nothing of that."""
    steps, values = measures.over_steps(run.rows("train"), "train/loss")
    if not steps:
        return None
    series = [Series("loss", "loss", "", "number", steps, values)]
    about = f"Loss: {values[0]:.4f} at step {steps[0]}, {values[-1]:.4f} at step {steps[-1]}."
    legend = [("--c1", f"loss{measures.per(run)}")]
    return Chart("loss", "Loss", about, legend, plots.parts(series), *by_step(series))


def _time(run: RunData) -> Chart | None:
    steps, seconds = measures.phase_seconds(run)
    if not seconds:
        return None
    means = {title: math.fsum(values) / len(steps) for title, values in seconds.items()}
    split = ", ".join(f"{title} {mean:.1f} s" for title, mean in means.items())
    about = f"A step takes {math.fsum(means.values()):.1f} s on average: {split}."
    rows = [[str(step), *(f"{values[n]:.1f}" for values in seconds.values())] for n, step in enumerate(steps)]
    legend = [(f"--c{measures.PHASE_COLOR[title] + 1}", title) for title in seconds]
    return Chart("time", "Seconds per step", about, legend, plots.phases(steps, seconds), ["step", *seconds], rows)


def by_step(series: list[Series]) -> tuple[list[str], list[list[str]]]:
    values = [dict(zip(s.steps, s.values, strict=True)) for s in series]
    rows = [
        [str(step), *(s.shown(v[step]) if step in v else "" for s, v in zip(series, values, strict=True))]
        for step in sorted({step for s in series for step in s.steps})
    ]
    return ["step", *(s.title for s in series)], rows


def sql(value: str) -> Markup:
    """A query with coloured words; pygments escapes its text."""
    return Markup(pygments.highlight(clean(value), SqlLexer(stripnl=False), HtmlFormatter(nowrap=True)).rstrip("\n"))


def scale(shown: list[Headline]) -> float:
    values = [v for h in shown for e in (h.before, h.after) if e for v in (e.mean, e.high) if not math.isnan(v)]
    return max([BONUS_TOP, *values])


def percent(value: float, top: float) -> str:
    return f"{min(100.0, max(0.0, 100 * value / top)):.2f}%"


def environment() -> jinja2.Environment:
    """Templates that escape everything, and fail on a name that is missing."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=lambda value: clean(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {"sql": sql, "percent": percent, "cut": cut, "sha256": _sha256}
    env.tests["nan"] = math.isnan
    return env


def filled(template: str, **values: Any) -> str:
    return environment().get_template(template).render(values)


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def render(page: Page, *, pngs: list[str], live: str = "") -> str:
    """The whole page; `live` is the version of a page that follows its run (live.py)."""
    run = page.run
    lines = headlines(run)
    scripts = [(TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.js", *(["live.js"] if live else []))]
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    improved, worst = cases.standings(run)
    settings = facts.settings(run)
    return filled(
        "report.html.j2",
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
        headlines=lines,
        top=scale([*lines, *(task for h in lines for task in h.tasks)]),
        measure_rows=measure_rows(run.results),
        charts=page.charts,
        panels=page.panels,
        health_table=by_step([series for series, _ in page.panels]),
        warnings=health.warnings(run),
        unscored=measures.reason_counts(run, "rollout/unscored/"),
        stops=measures.reason_counts(run, "rollout/stop/"),
        compared=cases.sides(run)[0],
        pairs=cases.pairs(run),
        groups=cases.groups(run),
        improved=improved,
        worst=worst,
        pngs=pngs,
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
        live=live,
    )
