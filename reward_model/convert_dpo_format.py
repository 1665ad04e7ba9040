"""Turn raw preference data into the pairs that `agentgrpo reward-model train` takes.

    agentgrpo reward-model convert --data raw.jsonl --out converted.jsonl

Three raw forms, told apart line by line: {prompt, chosen, rejected} with texts, and dialogues {chosen, rejected} or
{messages, rejected_messages}, of which the user's and the assistant's turns with text are kept (system prompts, tool
calls and tool results are not). Guarantees: every line ends up in the output or in a count with its reason; pairs that
occur twice are kept once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from foundation.chat_request import text_parts
from foundation.command import alias
from foundation.errors import Unusable, UserError
from foundation.files import refuse_input, write_lines
from reward_model.pairs import Pair, Skipped, make_pair, parsed_lines

KEPT_ROLES = ("user", "assistant")


def convert_file(path: Path) -> tuple[list[Pair], Skipped]:
    """The pairs of a raw file, and what was left out. Raises UserError when it cannot be read."""
    pairs = dict[str, Pair]()
    skipped = Skipped()
    for number, pair in parsed_lines(path, convert_row, skipped):
        if pairs.setdefault(pair.model_dump_json(), pair) is not pair:
            skipped.add("the same pair as an earlier line", number)
    return [*pairs.values()], skipped


def convert_row(row: dict[str, Any]) -> Pair:
    """One raw line as a pair. Raises Unusable or ValidationError."""
    if isinstance(row.get("chosen"), list):
        return Pair.model_validate({side: _turns(row, side) for side in ("chosen", "rejected")})
    if "messages" in row or "rejected_messages" in row:
        return Pair.model_validate({"chosen": _turns(row, "messages"), "rejected": _turns(row, "rejected_messages")})
    prompt, chosen, rejected = (_text(row, key) for key in ("prompt", "chosen", "rejected"))
    return make_pair(prompt, chosen, rejected)


def _text(row: dict[str, Any], key: str) -> str:
    if key not in row:
        raise Unusable(f"no key {key} (nor messages)")
    value = row[key]
    if not isinstance(value, str):
        raise Unusable(f"{key} is not a text")
    if not value.strip():
        raise Unusable(f"{key} is empty")
    return value


def _turns(row: dict[str, Any], key: str) -> list[dict[str, str]]:
    """The user's and the assistant's turns that say something."""
    value = row.get(key)
    if not isinstance(value, list) or not all(isinstance(turn, dict) for turn in value):
        raise Unusable(f"{key} is missing or no list of turns")
    spoken: list[dict[str, str]] = []
    for turn in value:
        if turn.get("role") not in KEPT_ROLES:
            continue
        parts = text_parts(turn.get("content"))
        if parts is None:
            raise Unusable(f"{key} has a turn whose content is not text")
        content = "".join(parts)
        if content.strip():
            spoken.append({"role": turn["role"], "content": content})
    if not spoken or spoken[-1]["role"] != "assistant":
        raise Unusable(f"{key} does not end with an answer of the assistant")
    return spoken


def main(
    input: Annotated[Path, typer.Option("--data", help="raw JSONL file")],
    output: Annotated[Path, typer.Option("--out", help="JSONL file to write")],
) -> None:
    """Convert raw preference data to {chosen: [turns], rejected: [turns]}."""
    refuse_input(output, input)
    pairs, skipped = convert_file(input)
    if skipped.counts:
        typer.echo(f"skipped {skipped.counts.total()} lines:\n{skipped}", err=True)
    if not pairs:
        raise UserError(
            f"{input}: no line could be converted. A line is {{prompt, chosen, rejected}} with texts, or "
            "{chosen, rejected} or {messages, rejected_messages} with lists of turns"
        )
    write_lines(output, (pair.model_dump(include={"chosen", "rejected"}) for pair in pairs))
    typer.echo(f"{len(pairs)} pairs written to {output}")


if __name__ == "__main__":
    alias(main)
