"""Name every training question that gives a held-out one away. `--help` says how."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from foundation.command import shown_errors
from sql_agent.curation.leaks import Leak, find_leaks
from sql_agent.curation.rows import check_out, read_rows, write_rows

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    train: Annotated[Path, typer.Argument(help="training questions")],
    held: Annotated[list[Path], typer.Argument(help="held-out question files")],
    out: Annotated[Path | None, typer.Option(help="write the training questions that leak nothing")] = None,
) -> None:
    """Look for held-out questions in the training questions: the same, a near-duplicate, inside a longer one, or with
    the same reference query or long answer.

    \b
    python utils/check_leakage.py train.jsonl val.jsonl test.jsonl --out clean.jsonl

    Each leak is a line. Exit status: 0 none is left, 1 there are some and no --out, 2 wrong input.
    """
    with shown_errors():
        if out:
            check_out(out, train, *held)
        rows, guilty = read_rows(train), set[int]()
        for path in held:
            for leak in find_leaks(rows, read_rows(path)):
                guilty.add(leak.train.number)
                print(line(leak, train=train, held=path))
        if out:
            write_rows(out, (row for row in rows if row.number not in guilty))
    print(f"{len(guilty)} of {len(rows)} training questions leak" + (f"; the others: {out}" if out else ""))
    raise typer.Exit(int(bool(guilty) and not out))


def line(leak: Leak, *, train: Path, held: Path) -> str:
    """One leak with both rows."""
    places = [f"{path}, row {row.number} ({row.question.id})" for path, row in ((held, leak.held), (train, leak.train))]
    return f"{places[0]}: {', '.join(leak.kinds)}: {places[1]}: {leak.held.text} | {leak.train.text}"


if __name__ == "__main__":
    app()
