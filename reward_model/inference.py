"""Score without a server: one response, a pair, or a file.

    agentgrpo reward-model score --model DIR --prompt TEXT --response TEXT [--rejected TEXT]
    agentgrpo reward-model score --model DIR --data items.jsonl --out scored.jsonl
    agentgrpo reward-model score --model DIR --pairs held_out.jsonl

Prints JSON with the keys of the API. A line of --data has prompt, response and perhaps reference; the output keeps its
other keys. --pairs prints the pair accuracy of a file in the converted format.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from foundation.command import alias
from foundation.errors import UserError
from foundation.files import refuse_input, write_lines
from reward_model.api import pair_score
from reward_model.api_types import Score
from reward_model.inference_api import load_served
from reward_model.pairs import Item, Skipped, parsed_lines, read_pairs
from reward_model.scoring import pair_accuracy


def read_items(path: Path) -> list[tuple[dict[str, Any], Item]]:
    """The lines of a file, each with its item. Raises UserError when a line is no item."""
    skipped = Skipped()
    rows = [row for _, row in parsed_lines(path, _with_item, skipped)]
    if skipped.counts or not rows:
        # Left-out lines would shift the scores against the file.
        raise UserError(f"{path}: every line must have prompt and response as texts. Mend or remove:\n{skipped}")
    return rows


def _with_item(row: dict[str, Any]) -> tuple[dict[str, Any], Item]:
    return row, Item.model_validate({key: row[key] for key in Item.model_fields if key in row})


def main(
    model_path: Annotated[Path, typer.Option("--model", help="folder of the reward model")],
    prompt: Annotated[str, typer.Option(help="the question")] = "",
    response: Annotated[str | None, typer.Option(help="the answer to score")] = None,
    rejected: Annotated[str | None, typer.Option(help="another answer, to compare")] = None,
    reference: Annotated[str, typer.Option(help="reference answer")] = "",
    input: Annotated[Path | None, typer.Option("--data", help="JSONL: prompt, response, perhaps reference")] = None,
    output: Annotated[Path | None, typer.Option("--out", help="scored JSONL (with --data)")] = None,
    pairs: Annotated[Path | None, typer.Option(help="pairs in the converted format: prints the accuracy")] = None,
) -> None:
    """Score one response, a pair or a file."""
    if sum(source is not None for source in (response, input, pairs)) != 1 or (input is None) != (output is None):
        raise UserError("give one of --response, --pairs, or --data together with --out")
    if input is not None and output is not None:
        refuse_input(output, input)
    rows = read_items(input) if input else []
    held_out = read_pairs(pairs)[0] if pairs else []
    served = load_served(model_path)

    def scored(items: list[Item]) -> list[Score]:
        return served.as_scores(served.scorer.score(items), items)

    if output is not None:
        scores = scored([item for _, item in rows])
        write_lines(output, (row | score.model_dump() for (row, _), score in zip(rows, scores, strict=True)))
        typer.echo(f"{len(rows)} responses scored: {output}")
    elif pairs is not None:
        typer.echo(json.dumps(pair_accuracy(served.scorer, held_out), indent=1))
    else:
        texts = [text for text in (response, rejected) if text is not None]
        scores = scored([Item(prompt=prompt, response=text, reference=reference) for text in texts])
        typer.echo((pair_score(*scores) if len(scores) == 2 else scores[0]).model_dump_json())


if __name__ == "__main__":
    alias(main)
