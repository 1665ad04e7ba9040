"""What explains a trained model: its card (made from what, how good, not for what) and the curves of its training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from foundation.files import write_text

CARD = """---
library_name: transformers
pipeline_tag: text-classification
tags: [reward-model, trl]
---
# Reward model

Scores a response to a prompt with one raw logit; higher is better. {form}

- Base: `{base}`
- Pairs: `{data}`, {pairs[train]} for training, {pairs[validation]} for validation; no prompt is on both sides
- Steps: {steps}
- Left out: {left_out}

## Validation

Pair accuracy {validation[accuracy]:.3f} (95 % interval {validation[interval][0]:.3f} to {validation[interval][1]:.3f},
{validation[n]} pairs), mean margin {validation[mean_margin]:.2f} logits.

| wrong side | pairs | accuracy |
|---|---|---|
{kinds}

![loss, accuracy and margin](curves.png)

## Use and limits

- A logit is no reward: its zero and its unit are arbitrary. `agentgrpo reward-model scale` fits what makes it one.
- It prefers what resembles the chosen sides of its pairs. For other questions, languages and ways to be wrong, the
  figures above say nothing; measure first.
- Pairs made by this project show the reference answer in the prompt; such a model needs it when it scores.
- It does not check facts beyond its prompt, and is no medical device: do not use scores for decisions about health.
"""


def write_card(path: Path, metrics: dict[str, Any], *, base: str, data: str, lora: bool) -> None:
    """Write the card from the metrics of a training."""
    left_out = [f"{count} x {reason}" for counts in metrics["skipped"].values() for reason, count in counts.items()]
    kinds = metrics["validation"]["kinds"].items()
    text = CARD.format(
        form="A LoRA adapter: `agentgrpo reward-model merge` makes it one to serve."
        if lora
        else "All weights were trained.",
        base=Path(base).name if Path(base).is_absolute() else base,
        data=Path(data).name,
        left_out="; ".join(left_out) or "nothing",
        kinds="\n".join(f"| {kind} | {row['n']} | {row['accuracy']:.3f} |" for kind, row in kinds),
        **metrics,
    )
    write_text(path, text)


PANELS = (("loss", "loss"), ("accuracy", "pair accuracy"), ("margin", "margin (logits)"))


def plot_curves(log: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the training and the validation curve of each figure from the trainer's log."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    for axes, (name, title) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        for key, label, style in ((name, "training", "-"), (f"eval_{name}", "validation", "o-")):
            points = [(entry["step"], entry[key]) for entry in log if key in entry and "step" in entry]
            if points:
                axes.plot(*zip(*points, strict=True), style, label=label, markersize=4)
        axes.set(xlabel="step", title=title)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=110)
