"""Keep the questions that an older set, and the file itself, do not ask yet. `--help` says how."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from foundation.command import shown_errors
from sql_agent.curation.near import repeats
from sql_agent.curation.rows import check_out, read_rows, write_dropped, write_rows

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    questions: Annotated[Path, typer.Argument(help="question file, .jsonl or .parquet")],
    out: Annotated[Path, typer.Argument(help="where the new questions go")],
    old: Annotated[list[Path] | None, typer.Option(help="a set that there is already; may be repeated")] = None,
) -> None:
    """Keep what is new: no question of the older sets, or of an earlier row, with other courtesy, marks or a slip.

    \b
    python utils/filter_new_question.py new.jsonl novel.jsonl --old sql_agent/data/train.parquet

    Dropped rows go to NAME.dropped.jsonl with the question that each repeats.
    """
    with shown_errors():
        check_out(out, questions, *(old or []))
        known = [(path, row) for path in old or [] for row in read_rows(path)]
        rows = read_rows(questions)
        texts = [row.text for _, row in known] + [row.text for row in rows]
        dropped = {match.index - len(known): match for match in repeats(texts, n_old=len(known))}
        write_rows(out, (row for place, row in enumerate(rows) if place not in dropped))
        names = [
            *(f"{path}, {row.question.id}" for path, row in known),
            *(f"{questions}, {r.question.id}" for r in rows),
        ]
        whys = ((rows[n], f"{m.score:.2f}: {names[m.other]}: {texts[m.other]}") for n, m in dropped.items())
        file = write_dropped(out, whys)
    print(f"new {len(rows) - len(dropped)} of {len(rows)}: {out}\nrepeated {len(dropped)}: {file}")


if __name__ == "__main__":
    app()
