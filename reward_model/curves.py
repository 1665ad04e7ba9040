"""Loss, pair accuracy and margin over the steps of a training, as one picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

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
