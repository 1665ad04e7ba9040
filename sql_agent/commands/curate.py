"""`agentgrpo curate ...`: chat logs and raw questions -> training questions; docs/45-curate.md tells the whole way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from foundation.command import with_flags
from foundation.files import refuse_input, write_lines
from sql_agent.curation.chats import Limits, questions, read_turns
from sql_agent.curation.leaks import Leak, find_leaks
from sql_agent.curation.near import repeats
from sql_agent.curation.pass_command import PassFlags, decide
from sql_agent.curation.rows import check_out, read_rows, write_dropped, write_rows
from sql_agent.curation.traffic import Curated, curate, read_talks


def chats(
    log: Annotated[Path, typer.Argument(help="JSON lines or list: messages, conversations, or a message a line")],
    out: Annotated[Path, typer.Argument(help="where the questions go, .jsonl")],
    min_chars: Annotated[int, typer.Option(min=1, help="shortest question")] = Limits.min_chars,
    max_chars: Annotated[int, typer.Option(min=1, help="longest question")] = Limits.max_chars,
    later_turns: Annotated[bool, typer.Option(help="later turns too, unless they lean on earlier ones")] = False,
) -> None:
    """Turn chat logs into questions without answers, in the raw format that `agentgrpo data --raw` reads.

    \b
    agentgrpo curate chats chats.jsonl questions.jsonl

    No model is asked. What is left out goes to NAME.dropped.jsonl with its reason (its text too: mind whose it is).
    """
    check_out(out, log, suffixes=[".jsonl"])
    turns, bad = read_turns(log)
    rows, dropped = questions(turns, Limits(min_chars=min_chars, max_chars=max_chars, later=later_turns))
    write_lines(out, rows)
    file = out.with_name(f"{out.stem}.dropped.jsonl")
    write_lines(file, ({"session": t.session, "turn": t.turn, "text": t.text, "why": why} for t, why in dropped))
    print(f"{len(rows)} questions of {len(turns)} turns: {out}\nleft out {len(dropped)}: {file}")
    _tell_left_out(bad, (why for _, why in dropped))


def _tell_left_out(bad: Iterable[str], whys: Iterable[str]) -> None:
    """What could not be read, the places of one reason together, and how often each reason was given."""
    places: dict[str, list[str]] = {}
    for text in bad:
        place, _, why = text.partition(": ")
        places.setdefault(why, []).append(place)
    for why, (first, *others) in places.items():
        typer.echo(f"left out: {first}{f' and {len(others)} more' if others else ''}: {why}", err=True)
    for why, n in Counter(why.partition(" (")[0] for why in whys).most_common():
        print(f"  {why} {n}")


def traffic(
    log: Annotated[Path, typer.Argument(help="what `agentgrpo serve --as-agent` wrote to serve.keep")],
    out: Annotated[Path, typer.Argument(help="folder of the files, made if need be")],
    min_chars: Annotated[int, typer.Option(min=1, help="shortest question")] = Limits.min_chars,
    max_chars: Annotated[int, typer.Option(min=1, help="longest question")] = Limits.max_chars,
) -> None:
    """Turn the conversations and the feedback of a served agent into data to learn from.

    \b
    agentgrpo curate traffic kept.jsonl traffic
    agentgrpo train --data traffic/questions.jsonl

    Writes questions.jsonl (for train), conversations.jsonl (sft), pairs.jsonl (dpo) and dropped.jsonl, each row with
    its origin. A question without feedback has no reference answer.
    """
    for made in fields(Curated):
        refuse_input(out / f"{made.name}.jsonl", log)
    talks, bad = read_talks(log)
    curated = curate(talks, Limits(min_chars=min_chars, max_chars=max_chars))
    out.mkdir(parents=True, exist_ok=True)
    n_vouched = sum(bool(row["ground_truth"]) for row in curated.questions)
    print(f"{len(talks)} conversations, {sum(talk.score != 0 for talk in talks)} with feedback")
    for name, rows in vars(curated).items():
        write_lines(out / f"{name}.jsonl", rows)
        more = f", {n_vouched} with a reference" if name == "questions" else ""
        print(f"{len(rows)} {name}{more}: {out / name}.jsonl")
    _tell_left_out(bad, (row["why"] for row in curated.dropped))


@with_flags(PassFlags)
def keep(flags: PassFlags) -> int:
    """Let an LLM choose questions by a rubric: keep or drop, with its reason.

    \b
    agentgrpo curate keep raw.jsonl kept.jsonl --language zh --max-calls 5000

    The LLM is that of TEACHER_* or JUDGE_ENDPOINTS. Answers are kept in OUT.progress: the same command goes on where it
    was stopped or killed, and asks nothing twice. Dropped rows and reasons go to NAME.dropped.jsonl. Status 1: some
    questions stay unasked (a fault, or the budget).
    """
    return decide(flags, rubric_name="keep")


@with_flags(PassFlags)
def again(flags: PassFlags) -> int:
    """Let an LLM look for faults in questions that were kept: ambiguous, of one day, guessable, beside the reference.

    \b
    agentgrpo curate again kept.jsonl kept_twice.jsonl

    As `agentgrpo curate keep`, with a stricter rubric and progress of its own. In doubt a question is dropped.
    """
    return decide(flags, rubric_name="keep_again")


def new(
    questions: Annotated[Path, typer.Argument(help="question file: .jsonl, .csv or .parquet")],
    out: Annotated[Path, typer.Argument(help="where the new questions go")],
    old: Annotated[list[Path] | None, typer.Option(help="a set that there is already; may be repeated")] = None,
) -> None:
    """Keep what is new: no question of the older sets, or of an earlier row, with other courtesy, marks or a slip.

    \b
    agentgrpo curate new new.jsonl novel.jsonl --old sql_agent/data/train.parquet

    Dropped rows go to NAME.dropped.jsonl with the question that each repeats.
    """
    check_out(out, questions, *(old or []))
    known, rows = [(path, row) for path in old or [] for row in read_rows(path)], read_rows(questions)
    places = [*known, *((questions, row) for row in rows)]
    texts = [row.text for _, row in places]
    names = [f"{path}, {row.question.id}" for path, row in places]
    dropped = {match.index - len(known): match for match in repeats(texts, n_old=len(known))}
    write_rows(out, (row for place, row in enumerate(rows) if place not in dropped))
    whys = ((rows[n], f"{m.score:.2f}: {names[m.other]}: {texts[m.other]}") for n, m in dropped.items())
    file = write_dropped(out, whys)
    print(f"new {len(rows) - len(dropped)} of {len(rows)}: {out}\nrepeated {len(dropped)}: {file}")


def leakage(
    train: Annotated[Path, typer.Argument(help="training questions")],
    held: Annotated[list[Path], typer.Argument(help="held-out question files")],
    out: Annotated[Path | None, typer.Option(help="write the training questions that leak nothing")] = None,
) -> int:
    """Look for held-out questions in the training questions: the same, a near-duplicate, inside a longer one, or with
    the same reference query or long answer.

    \b
    agentgrpo curate leakage train.jsonl val.jsonl test.jsonl --out clean.jsonl

    Each leak is a line. Status 1: there are some, and no --out.
    """
    if out:
        check_out(out, train, *held)
    rows = read_rows(train)
    guilty = set[int]()
    for path in held:
        for leak in find_leaks(rows, read_rows(path)):
            guilty.add(leak.train.number)
            print(_line(leak, train=train, held_out=path))
    if out:
        write_rows(out, (row for row in rows if row.number not in guilty))
    print(f"{len(guilty)} of {len(rows)} training questions leak" + (f"; the others: {out}" if out else ""))
    return int(bool(guilty) and not out)


def _line(leak: Leak, *, train: Path, held_out: Path) -> str:
    place, train_place = (
        f"{path}, row {row.number} ({row.question.id})" for path, row in ((held_out, leak.held), (train, leak.train))
    )
    return f"{place}: {', '.join(leak.kinds)}: {train_place}: {leak.held.text} | {leak.train.text}"
