"""Pick the questions that stand alone out of chat logs. `--help` says how."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from foundation.command import shown_errors
from foundation.files import write_lines
from sql_agent.curation.chats import Limits, questions, read_turns
from sql_agent.curation.rows import check_out

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    log: Annotated[
        Path, typer.Argument(help="JSON lines, or a JSON list: messages, conversations, or a message a line")
    ],
    out: Annotated[Path, typer.Argument(help="where the questions go, .jsonl")],
    min_chars: Annotated[int, typer.Option(min=1, help="shortest question")] = Limits.min_chars,
    max_chars: Annotated[int, typer.Option(min=1, help="longest question")] = Limits.max_chars,
    later_turns: Annotated[bool, typer.Option(help="later turns too, unless they lean on earlier ones")] = False,
) -> None:
    """Turn chat logs into questions without answers, in the raw format that `sql_agent.data.build --raw` reads.

    \b
    python utils/chat_session_filter.py chats.jsonl questions.jsonl

    No model is asked. What is left out goes to NAME.dropped.jsonl with its reason (its text too: mind whose it is).
    """
    with shown_errors():
        check_out(out, log)
        turns, bad = read_turns(log)
        rows, dropped = questions(turns, Limits(min_chars=min_chars, max_chars=max_chars, later=later_turns))
        write_lines(out, rows)
        file = out.with_name(f"{out.stem}.dropped.jsonl")
        write_lines(file, ({"session": t.session, "turn": t.turn, "text": t.text, "why": why} for t, why in dropped))
    for text in bad:
        typer.echo(f"left out: {text}", err=True)
    print(f"{len(rows)} questions of {len(turns)} turns: {out}\nleft out {len(dropped)}: {file}")
    for why, n in Counter(why.partition(" (")[0] for _, why in dropped).most_common():
        print(f"  {why} {n}")


if __name__ == "__main__":
    app()
