"""Fit the map from a reward model's raw logits to [0, 1], and keep it beside the model.

    agentgrpo reward-model scale --model DIR --labelled labelled.jsonl
    agentgrpo reward-model scale --model DIR --rollouts runs/RUN

A labelled line has prompt, response, label in [0, 1] and perhaps reference; of a run, the judge's value of each answer
is the label. A share of the prompts is held out: the printed error is measured there, then the map is fitted on all.
Writes reward_scale.json and reward_scale.png into the model folder.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from matplotlib.figure import Figure

from foundation.errors import Unusable, UserError
from foundation.files import write_text
from reward_model.folder import check_reward_model, weights_fingerprint
from reward_model.pairs import Item, Skipped, in_unit_range, judged, parsed_lines, rollouts_file, split_by_key
from reward_model.scale import SCALE_FILE, RewardScale, check_enough, fit
from reward_model.scoring import load_scorer

HELD_SHARE = 0.2
CURVE_BINS = 10


@dataclass
class Labelled:
    """A response with its true value, and the model's logit once it is known."""

    item: Item
    label: float
    logit: float = 0.0


def _labelled(row: dict[str, Any]) -> Labelled:
    """Raises Unusable."""
    prompt, response, reference = row.get("prompt"), row.get("response"), row.get("reference") or ""
    if not isinstance(prompt, str) or not isinstance(response, str) or not isinstance(reference, str):
        raise Unusable("prompt, response or reference is not a text")
    if not in_unit_range(row.get("label")):
        raise Unusable("label is not a number in [0, 1]")
    return Labelled(Item(prompt=prompt, response=response, reference=reference), float(row["label"]))


def _of_rollout(row: dict[str, Any]) -> Labelled:
    """Raises Unusable."""
    return Labelled(*judged(row))


def fit_rows(rows: Sequence[Labelled], *, weights_sha256: str) -> RewardScale:
    """The map of these rows; it needs a reference where all of them had one."""
    return fit(
        [row.logit for row in rows],
        [row.label for row in rows],
        weights_sha256=weights_sha256,
        needs_reference=all(row.item.reference for row in rows),
    )


def held_out_error(rows: list[Labelled], *, seed: int) -> float:
    """Mean distance of reward and label on held-out prompts, by a map of the others."""
    fitted, held_out = split_by_key(rows, [row.item.prompt for row in rows], share=HELD_SHARE, seed=seed)
    scale = fit_rows(fitted, weights_sha256="")
    return statistics.fmean(abs(scale(row.logit) - row.label) for row in held_out)


def plot(scale: RewardScale, rows: Sequence[Labelled], path: Path) -> None:
    """The map over the labelled points, and the calibration curve."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.scatter([row.logit for row in rows], [row.label for row in rows], s=6, alpha=0.3, label="labelled")
    left.plot(scale.logits, scale.rewards, color="black", label="map")
    left.set(xlabel="raw logit", ylabel="reward", title=f"{scale.n_rows} rows")
    bins: list[list[Labelled]] = [[] for _ in range(CURVE_BINS)]
    for row in rows:
        bins[min(CURVE_BINS - 1, int(scale(row.logit) * CURVE_BINS))].append(row)
    points = [(statistics.fmean(scale(r.logit) for r in b), statistics.fmean(r.label for r in b)) for b in bins if b]
    right.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    right.plot(*zip(*points, strict=True), "o-", label="mean label by reward")
    right.set(xlabel="reward", ylabel="mean label", title="calibration")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=110)


def main(
    model_path: Annotated[Path, typer.Option("--model", help="folder of the reward model")],
    labelled: Annotated[Path | None, typer.Option(help="JSONL: prompt, response, label, reference")] = None,
    rollouts: Annotated[Path | None, typer.Option(help="a run, or its rollouts.jsonl")] = None,
    seed: Annotated[int, typer.Option(help="seed of the held-out share")] = 1,
) -> None:
    """Fit the map from raw logits to [0, 1]."""
    if (labelled is None) == (rollouts is None):
        raise UserError("give either --labelled or --rollouts")
    check_reward_model(model_path)
    skipped = Skipped()
    source, parse = (rollouts_file(rollouts), _of_rollout) if rollouts else (labelled or Path(), _labelled)
    rows = [row for _, row in parsed_lines(source, parse, skipped)]
    if skipped.counts:
        typer.echo(f"skipped:\n{skipped}", err=True)
    check_enough(len(rows))
    for row, result in zip(rows, load_scorer(model_path).score([row.item for row in rows]), strict=True):
        row.logit = result.score
    scale = fit_rows(rows, weights_sha256=weights_fingerprint(model_path))
    error = held_out_error(rows, seed=seed)
    write_text(model_path / SCALE_FILE, scale.model_dump_json(indent=1) + "\n")
    plot(scale, rows, (model_path / SCALE_FILE).with_suffix(".png"))
    typer.echo(
        f"{model_path / SCALE_FILE}: {len(scale.logits)} knots from {scale.n_rows} rows; mean distance to the label "
        f"{error:.3f} on held-out prompts ({scale.mean_error:.3f} on all)"
    )
