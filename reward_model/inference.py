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
from foundation.files import write_lines
from reward_model.api import pair_score
from reward_model.api_types import ScoreRequest
from reward_model.evaluation import pair_accuracy
from reward_model.inference_api import load_served
from reward_model.pairs import Skipped, json_lines, parsed, read_pairs
from reward_model.scoring import Item

KEYS = ("prompt", "response", "reference")


def read_items(path: Path) -> tuple[list[dict[str, Any]], list[Item]]:
    """The lines of a file and the items in them. Raises UserError when a line is no item."""
    skipped = Skipped()
    read = [entry for _, entry in parsed(json_lines(path, skipped), _item, skipped)]
    if skipped.counts or not read:
        # Left-out lines would shift the scores against the file.
        raise UserError(f"{path}: every line must have prompt and response as texts. Mend or remove:\n{skipped}")
    return [row for row, _ in read], [item for _, item in read]


def _item(row: dict[str, Any]) -> tuple[dict[str, Any], Item]:
    request = ScoreRequest.model_validate({key: row[key] for key in KEYS if key in row})
    return row, Item(request.prompt, request.response, request.reference)


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
    served = load_served(model_path)
    if input is not None and output is not None:
        rows, items = read_items(input)
        scores = served.as_scores(served.scorer.score(items), items)
        write_lines(output, ({**row, **result.model_dump()} for row, result in zip(rows, scores, strict=True)))
        typer.echo(f"{len(rows)} responses scored: {output}")
    elif pairs is not None:
        held_out, _ = read_pairs(pairs)
        typer.echo(json.dumps(pair_accuracy(served.scorer, held_out), indent=1))
    else:
        texts = [text for text in (response, rejected) if text is not None]
        items = [Item(prompt, text, reference) for text in texts]
        scores = served.as_scores(served.scorer.score(items), items)
        typer.echo((pair_score(*scores) if len(scores) == 2 else scores[0]).model_dump_json())


if __name__ == "__main__":
    alias(main)
