"""The tables of an evaluation, for the terminal and as Markdown, from its results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from foundation.stats import Difference, Estimate
from sql_agent.evaluation.measures import BY_TASK, OF_K, OF_SQL, PART, TESTED
from sql_agent.evaluation.results import EvalReport, Figures, TaskFigures

Cell = str | Estimate
Row = tuple[Cell, ...]
WHICH = ("best", "mean", "worst")
DIFFERENCE = "difference"
NO_TASK = "(none)"


@dataclass(frozen=True)
class Section:
    """One table with its title and a note on how to read it. On a terminal, an Estimate cell is its mean alone."""

    title: str
    note: str
    header: tuple[str, ...]
    rows: list[Row]


def sections(report: EvalReport) -> list[Section]:
    parts = (_rewards, _agents, _tasks, _of_k, _tool, _cost, _endings, _left_out)
    return [section for part in parts if (section := part(report)).rows]


def heading(report: EvalReport) -> list[str]:
    models = ", ".join(f"{name}: {shown}" for name, shown in report.labels.items())
    questions = ", ".join(f"{n} of {split}" for split, n in report.questions.items())
    lines = [
        f"Models: {models}",
        f"Questions: {questions}; sampled {report.samples} times at temperature 1, and greedily once",
        f"Judge: {report.judge}",
    ]
    if report.partial:
        lines.append(f"PARTIAL: only {report.trials.played} of {report.trials.planned} trials were played")
    return lines


def _figures(report: EvalReport) -> Iterator[tuple[str, str, str, Figures]]:
    """Split, decoding, model and its figures, the models of a key side by side."""
    for key in report.keys:
        split, _, decoding = key.rpartition("/")
        for name, by_key in report.models.items():
            if key in by_key:
                yield split, decoding, name, by_key[key]


def _by_model(
    report: EvalReport, title: str, note: str, columns: Iterable[str], cells_of: Callable[[Figures], Iterable[Cell]]
) -> Section:
    """A table with a row for each split, decoding and model that has cells."""
    cells = [(split, decoding, name, tuple(cells_of(figures))) for split, decoding, name, figures in _figures(report)]
    rows = [(split, decoding, name, *own) for split, decoding, name, own in cells if own]
    return Section(title, note, ("split", "decoding", "model", *columns), rows)


def _applicable(report: EvalReport, measures: tuple[str, ...]) -> list[str]:
    """Those of the measures that have a meaning for the agent: it had a database, or they are not about SQL."""
    return [measure for measure in measures if report.database or measure not in OF_SQL]


def _rewards(report: EvalReport) -> Section:
    rows: list[Row] = []
    parts = dict.fromkeys(m for *_, figures in _figures(report) for m in figures.measures if m.startswith(PART))
    columns = [*_applicable(report, TESTED), *parts]
    for split, decoding, name, figures in _figures(report):
        rows.append((split, decoding, name, *(str(figures.measures.get(m, "-")) for m in columns)))
        delta = report.delta.get(f"{split}/{decoding}")
        if delta is not None and name == list(report.models)[-1]:
            rows.append((split, decoding, DIFFERENCE, *(_tested(delta.get(m)) for m in columns)))
    note = (
        "Mean over questions [95 % bootstrap interval]. A difference is paired by question; p is from a two-sided "
        "sign-flip permutation test, one test per number."
    )
    title = "Reward and execution match" if report.database else "Reward"
    return Section(title, note, ("split", "decoding", "model", *columns), rows)


def _tested(difference: Difference | None) -> str:
    if difference is None or difference.p is None:
        return str(difference or "-")
    return f"{difference} p={difference.p:.4f}"


def _tasks(report: EvalReport) -> Section:
    note = "Few questions each: mind the intervals in results.md."
    deltas = report.delta_by_task
    return _by_kind(report, "By task type", note, "task type", lambda figures: figures.by_task, deltas)


def _agents(report: EvalReport) -> Section:
    return _by_kind(report, "By agent", "", "agent", lambda figures: figures.by_agent, report.delta_by_agent)


def _by_kind(
    report: EvalReport,
    title: str,
    note: str,
    what: str,
    figures_of: Callable[[Figures], Mapping[str, TaskFigures]],
    delta: Mapping[str, Mapping[str, Mapping[str, Difference]]],
) -> Section:
    """A table with a row for each kind of question; without intervals on a terminal."""
    measures = _applicable(report, BY_TASK)
    columns = [*report.models, *([DIFFERENCE] if delta else [])]
    rows: list[Row] = []
    for key in report.keys:
        split, _, decoding = key.rpartition("/")
        of_models = [figures_of(figures[key]) if key in figures else {} for figures in report.models.values()]
        sources: list[Mapping[str, Mapping[str, Estimate]]] = []
        sources += [{task: figures.measures for task, figures in by_task.items()} for by_task in of_models]
        sources += [delta.get(key, {})] if delta else []
        for task in sorted(set().union(*of_models)):
            questions = max(by_task[task].questions for by_task in of_models if task in by_task)
            cells = [source[task][m] if task in source else "-" for m in measures for source in sources]
            rows.append((split, decoding, task or NO_TASK, str(questions), *cells))
    header = ("split", "decoding", what, "questions", *(f"{m}, {name}" for m in measures for name in columns))
    return Section(title, note, header, rows)


def _of_k(report: EvalReport) -> Section:
    rows: list[Row] = []
    measures = _applicable(report, OF_K)
    for split, decoding, name, figures in _figures(report):
        of_measures = [figures.of_k.get(measure, {}) for measure in measures]
        for k in next(filter(None, of_measures), {}):
            cells = [vars(by_k[k])[which] if k in by_k else "-" for by_k in of_measures for which in WHICH]
            rows.append((split, decoding, name, str(k), *cells))
    note = "Unbiased, over questions with k samples or more."
    if report.database:
        note += " With one reference query, the best of k in execution match is pass@k."
    names = tuple(f"{which} {measure}" for measure in measures for which in WHICH)
    return Section("Best, mean and worst of k samples", note, ("split", "decoding", "model", "k", *names), rows)


def _tool(report: EvalReport) -> Section:
    all_measures = ("called the tool", "SQL validity", "SQL found rows", "malformed tool calls", "turns")
    measures = _applicable(report, all_measures)
    note = "SQL validity: the share of an episode's SQL calls that ran." if report.database else ""
    return _by_model(report, "The tool", note, measures, lambda figures: _means(figures, measures))


def _cost(report: EvalReport) -> Section:
    measures = ("prompt tokens", "completion tokens", "answer chars", "repeated text")
    note = (
        "Per episode. Tokens as the endpoint counts them, over all calls. Seconds as seen here, with as many "
        "episodes in flight as there were. Repeated text: share of the pieces of 8 characters that came before."
    )

    def cells(figures: Figures) -> list[Cell]:
        times = [figures.latency_s[unit] for unit in ("llm call", "episode")]
        return [*_means(figures, measures), *(f"{_plain(time.p50)} / {_plain(time.p95)}" for time in times)]

    columns = (*measures, "LLM call p50 / p95 s", "episode p50 / p95 s")
    return _by_model(report, "Length and time", note, columns, cells)


def _endings(report: EvalReport) -> Section:
    columns = ("trials", "stop reasons")
    return _by_model(
        report, "How episodes ended", "", columns, lambda figures: (str(figures.trials), _counts(figures.stop_reasons))
    )


def _left_out(report: EvalReport) -> Section:
    columns = ["without reward", "without execution match"] if report.database else ["without reward"]

    def cells(figures: Figures) -> list[Cell]:
        counts = [figures.unscored, figures.no_execution_match] if report.database else [figures.unscored]
        return [_counts(count) for count in counts] if any(counts) else []

    note = "Trials that are in no mean of these columns, by reason; they are not counted as 0."
    return _by_model(report, "Left out", note, columns, cells)


def _means(figures: Figures, measures: Iterable[str]) -> list[str]:
    return [_plain(figures.measures[measure].mean) for measure in measures]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items(), key=lambda item: -item[1])) or "-"


def _plain(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def markdown(report: EvalReport) -> str:
    """results.md; its headings fit below the title of a model card."""
    parts = ["## Evaluation", "\n".join(f"- {line}" for line in heading(report))]
    for section in sections(report):
        lines = [section.header, tuple("---" for _ in section.header), *section.rows]
        table = "\n".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines)
        parts += [f"### {section.title}", *([section.note] if section.note else []), table]
    return "\n\n".join(parts) + "\n"


def show(console: Console, report: EvalReport) -> None:
    """The tables on a terminal; a split or decoding is named once, above the rows that share it."""
    for line in heading(report):
        console.print(line, markup=False, style="bold red" if line.startswith("PARTIAL") else None)
    for section in sections(report):
        table = Table(title=section.title, caption=section.note, title_justify="left", caption_justify="left")
        for place, column in enumerate(section.header):
            table.add_column(column, overflow="fold", no_wrap=place < 3)
        last: Row = ()
        for row in section.rows:
            if last and row[:2] != last[:2]:
                table.add_section()
            shown = ("", "", *row[2:]) if row[:2] == last[:2] else row
            cells = [cell.brief() if isinstance(cell, Estimate) else cell for cell in shown]
            table.add_row(*cells, style="bold" if DIFFERENCE in row else None)
            last = row
        console.print()
        console.print(table)
