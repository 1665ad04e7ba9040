"""The tables of an evaluation, for the terminal and as Markdown, from the tree of results.json."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from sql_agent.eval_stats import Difference, Estimate

Row = tuple[str, ...]
Tree = dict[str, Any]
MAIN = ("reward", "answer score", "execution match", "executed SQL")
TASK = ("reward", "execution match")
DIFFERENCE = "difference"
NO_TASK = "(none)"


@dataclass(frozen=True)
class Section:
    """One table with its title and a note on how to read it."""

    title: str
    note: str
    header: Row
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
    rows: list[Row] = []
    for key, split, decoding, name, found in _cells(tree):
        for task, figures in found["by_task"].items():
            values = [str(_estimate(figures[measure])) for measure in TASK]
            rows.append((split, decoding, task or NO_TASK, str(figures["questions"]), name, *values))
        if key in tree["delta_by_task"] and name == list(tree["models"])[-1]:
            for task, figures in tree["delta_by_task"][key].items():
                values = [str(_estimate(figures[measure])) for measure in TASK]
                rows.append((split, decoding, task or NO_TASK, "", DIFFERENCE, *values))
    keys = {key: place for place, key in enumerate(tree["keys"])}
    rows.sort(key=lambda row: (keys[f"{row[0]}/{row[1]}"], row[2]))
    header = ("split", "decoding", "task type", "questions", "model", *TASK)
    return Section("By task type", "Differences without a test: there are many of them.", header, rows)


def _of_k(tree: Tree) -> Section:
    rows: list[Row] = []
    for _, split, decoding, name, found in _cells(tree):
        rewards, matches = (found["of_k"].get(measure, {}) for measure in TASK)
        for k in rewards or matches:
            values = [
                str(_estimate(of[k][which])) if k in of else "-"
                for of in (rewards, matches)
                for which in ("best", "mean", "worst")
            ]
            rows.append((split, decoding, name, k, *values))
    note = "Unbiased, over questions with k samples. The best of k in execution match is pass@k."
    names = tuple(f"{which} {measure}" for measure in TASK for which in ("best", "mean", "worst"))
    return Section("Best, mean and worst of k samples", note, ("split", "decoding", "model", "k", *names), rows)


def _tool(tree: Tree) -> Section:
    measures = ("called the tool", "SQL validity", "SQL found rows", "malformed tool calls", "turns")
    rows = [
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
    rows = [
        (split, decoding, name, str(found["trials"]), _counts(found["stop_reasons"]))
        for _, split, decoding, name, found in _cells(tree)
    ]
    return Section("How episodes ended", "", ("split", "decoding", "model", "trials", "stop reasons"), rows)


def _left_out(tree: Tree) -> Section:
    rows = [
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
        table = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
        parts += [f"### {section.title}", *([section.note] if section.note else []), table]
    return "\n\n".join(parts) + "\n"


def show(console: Console, tree: Tree) -> None:
    """The tables on a terminal; a split or decoding is named once, above the rows that share it."""
    for line in heading(tree):
        console.print(line, markup=False, style="bold red" if line.startswith("PARTIAL") else None)
    for section in sections(tree):
        table = Table(title=section.title, caption=section.note, title_justify="left", caption_justify="left")
        for column in section.header:
            table.add_column(column, overflow="fold")
        last: Row = ()
        for row in section.rows:
            if last and row[:2] != last[:2]:
                table.add_section()
            shown = ("", "", *row[2:]) if row[:2] == last[:2] else row
            table.add_row(*shown, style="bold" if DIFFERENCE in row else None)
            last = row
        console.print()
        console.print(table)
