"""One update of the tiny model in float32 on the device that there is; writes the weights' moves and the metrics.

    python -m tests.gpu.one_update FILE      the CPU's where VERL_PLATFORM says so (tests/gpu/test_update.py)

The model, its seed and the batch are always the same, so two devices can be compared.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from verl.utils.device import get_device_name

from agl_plugin.update.batch import build_batch
from agl_plugin.update.rows import NAN, Call
from tests.actor import actor_of, as_planned, flat_weights, one_rank, tiny_model, with_advantages


def call(prompt: list[int], sampled: list[int]) -> Call:
    return Call(prompt, sampled, [NAN] * len(sampled))


ROLLOUTS = {
    "a": ("q", 1.0, [call([1, 2, 3], [4, 5]), call([1, 2, 3, 4, 5, 6], [8])]),
    "b": ("q", 0.0, [call([3, 2], [5, 6, 7, 8, 9, 10])]),
    "c": ("p", 0.5, [call([2, 2, 2], [1, 5, 9])]),
    "d": ("p", 0.75, [call([2, 2, 2], [7])]),
}


def main(out: Path) -> None:
    """Make the update, with rows of several lengths and one of two turns."""
    limits: dict[str, Any] = {"max_prompt_tokens": 30, "max_response_tokens": 30, "pad_id": 0}
    data = as_planned(with_advantages(build_batch(ROLLOUTS, merge=True, **limits).data))
    model = tiny_model().float().to(get_device_name())
    before = flat_weights(model)
    with tempfile.TemporaryDirectory() as folder, one_rank(Path(folder)):
        metrics = actor_of(model, micro_rows=2).update_policy(data=data)
    moved = (flat_weights(model) - before).cpu()
    torch.save({"device": get_device_name(), "moved": moved, "loss": metrics["actor/pg_loss"]}, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
