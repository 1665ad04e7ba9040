"""The tables of an evaluation, for the terminal and as Markdown, from the tree of results.json."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from sql_agent.evaluation.stats import Difference, Estimate

Cell = str | Estimate
Row = tuple[Cell, ...]
Tree = dict[str, Any]
MAIN = ("reward", "answer score", "execution match", "executed SQL")
TASK = ("reward", "execution match")
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


def sections(tree: Tree) -> list[Section]:
    """All tables that have rows."""
    made = [_rewards(tree), _tasks(tree), _of_k(tree), _tool(tree), _cost(tree), _endings(tree), _left_out(tree)]
    return [section for section in made if section.rows]


def heading(tree: Tree) -> list[str]:
    """What was measured, in a few lines."""
    models = ", ".join(f"{name}: {shown}" for name, shown in tree["labels"].items())
    questions = ", ".join(f"{n} of {split}" for split, n in tree["questions"].items())
    played = f"{tree['trials']['played']} of {tree['trials']['planned']}"
    lines = [
        f"Models: {models}",
        f"Questions: {questions}; sampled {tree['samples']} times at temperature 1, and greedily once",
        f"Judge: {tree['judge']}",
    ]
    return lines + [f"PARTIAL: only {played} trials were played"] * tree["partial"]


def _cells(tree: Tree) -> Iterator[tuple[str, str, str, str, Tree]]:
    """key, split, decoding, model and its figures, the models of a key side by side."""
    for key in tree["keys"]:
        split, _, decoding = key.rpartition("/")
        for name, found in tree["models"].items():
            if key in found:
                yield key, split, decoding, name, found[key]


def _estimate(figures: Tree) -> Estimate:
    return Difference(**figures) if "p" in figures else Estimate(**figures)


def _rewards(tree: Tree) -> Section:
    rows: list[Row] = []
    for key, split, decoding, name, found in _cells(tree):
        values = [str(_estimate(found["measures"][measure])) for measure in MAIN]
        rows.append((split, decoding, name, *values))
        if key in tree["delta"] and name == list(tree["models"])[-1]:
            rows.append((split, decoding, DIFFERENCE, *(_tested(tree["delta"][key][m]) for m in MAIN)))
    note = (
        "Mean over questions [95 % bootstrap interval]. A difference is paired by question; p is from a two-sided "
        "sign-flip permutation test, one test per number."
    )
    return Section("Reward and execution match", note, ("split", "decoding", "model", *MAIN), rows)


def _tested(figures: Tree) -> str:
    p = figures["p"]
    return f"{_estimate(figures)} {f'p={p:.4f}' if p is not None else ''}".strip()


def _tasks(tree: Tree) -> Section:
    """One row per task type; without intervals on a terminal."""
    models = list(tree["models"])
    columns = [*models, DIFFERENCE] if tree["delta_by_task"] else models
    rows: list[Row] = []
    for key in tree["keys"]:
        split, _, decoding = key.rpartition("/")
        sources = [tree["models"][name].get(key, {}).get("by_task", {}) for name in models]
        sources += [tree["delta_by_task"].get(key, {})] if tree["delta_by_task"] else []
        for task in sorted(set().union(*sources)):
            questions = max(source[task].get("questions", 0) for source in sources if task in source)
            cells = [_estimate(source[task][m]) if task in source else "-" for m in TASK for source in sources]
            rows.append((split, decoding, task or NO_TASK, str(questions), *cells))
    header = ("split", "decoding", "task type", "questions", *(f"{m}, {name}" for m in TASK for name in columns))
    return Section("By task type", "Few questions each: mind the intervals in results.md.", header, rows)


def _of_k(tree: Tree) -> Section:
    rows: list[Row] = []
    for _, split, decoding, name, found in _cells(tree):
        rewards, matches = (found["of_k"].get(measure, {}) for measure in TASK)
        for k in rewards or matches:
            cells = [_estimate(of[k][which]) if k in of else "-" for of in (rewards, matches) for which in WHICH]
            rows.append((split, decoding, name, k, *cells))
    note = (
        "Unbiased, over questions with k samples or more. With one reference query, the best of k in execution "
        "match is pass@k."
    )
    names = tuple(f"{which} {measure}" for measure in TASK for which in WHICH)
    return Section("Best, mean and worst of k samples", note, ("split", "decoding", "model", "k", *names), rows)


def _tool(tree: Tree) -> Section:
    measures = ("called the tool", "SQL validity", "SQL found rows", "malformed tool calls", "turns")
    rows: list[Row] = [
        (split, decoding, name, *(_plain(found["measures"][measure]["mean"]) for measure in measures))
        for _, split, decoding, name, found in _cells(tree)
    ]
    note = "SQL validity: the share of an episode's SQL calls that ran."
    return Section("The tool", note, ("split", "decoding", "model", *measures), rows)


def _cost(tree: Tree) -> Section:
    measures = ("prompt tokens", "completion tokens", "answer chars", "repeated text")
    rows: list[Row] = []
    for _, split, decoding, name, found in _cells(tree):
        means = [_plain(found["measures"][measure]["mean"]) for measure in measures]
        times = [
            f"{_plain(found['latency_s'][of]['p50'])} / {_plain(found['latency_s'][of]['p95'])}"
            for of in ("llm call", "episode")
        ]
        rows.append((split, decoding, name, *means, *times))
    note = (
        "Per episode. Tokens as the endpoint counts them, over all calls. Seconds as seen here, with as many "
        "episodes in flight as there were. Repeated text: share of the pieces of 8 characters that came before."
    )
    header = ("split", "decoding", "model", *measures, "LLM call p50 / p95 s", "episode p50 / p95 s")
    return Section("Length and time", note, header, rows)


def _endings(tree: Tree) -> Section:
    rows: list[Row] = [
        (split, decoding, name, str(found["trials"]), _counts(found["stop_reasons"]))
        for _, split, decoding, name, found in _cells(tree)
    ]
    return Section("How episodes ended", "", ("split", "decoding", "model", "trials", "stop reasons"), rows)


def _left_out(tree: Tree) -> Section:
    rows: list[Row] = [
        (split, decoding, name, _counts(found["unscored"]), _counts(found["no_execution_match"]))
        for _, split, decoding, name, found in _cells(tree)
        if found["unscored"] or found["no_execution_match"]
    ]
    note = "Trials that are in no mean of these columns, by reason; they are not counted as 0."
    return Section("Left out", note, ("split", "decoding", "model", "without reward", "without execution match"), rows)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items(), key=lambda item: -item[1])) or "-"


def _plain(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def markdown(tree: Tree) -> str:
    """results.md; its headings fit below the title of a model card."""
    parts = ["## Evaluation", "\n".join(f"- {line}" for line in heading(tree))]
    for section in sections(tree):
        lines = [section.header, tuple("---" for _ in section.header), *section.rows]
        table = "\n".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines)
        parts += [f"### {section.title}", *([section.note] if section.note else []), table]
    return "\n\n".join(parts) + "\n"


def show(console: Console, tree: Tree) -> None:
    """The tables on a terminal; a split or decoding is named once, above the rows that share it."""
    for line in heading(tree):
        console.print(line, markup=False, style="bold red" if line.startswith("PARTIAL") else None)
    for section in sections(tree):
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
