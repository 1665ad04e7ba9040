"""The map from logits to rewards: never falls, stays in [0, 1], belongs to one model, and is refused otherwise."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foundation.errors import UserError
from reward_model import inference, scale_command
from reward_model.scale import MIN_ROWS, RewardScale, fit, load_scale
from sql_agent.config import ROOT
from tests.reward_models import make_model

ROWS = st.lists(st.tuples(st.floats(-20, 20, allow_subnormal=False), st.floats(0, 1)), min_size=MIN_ROWS, max_size=80)


def fitted(rows: list[tuple[float, float]]) -> RewardScale:
    return fit([x for x, _ in rows], [y for _, y in rows], weights_sha256="w", needs_reference=True)


@given(ROWS, st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
@settings(deadline=None)
def test_a_scale_never_falls_and_stays_in_range(rows: list[tuple[float, float]], logits: list[float]) -> None:
    try:
        scale = fitted(rows)
    except UserError:
        assume(False)
        return
    rewards = [scale(logit) for logit in sorted(logits)]
    assert rewards == sorted(rewards) and rewards[0] >= 0 and rewards[-1] <= 1
    assert RewardScale.model_validate_json(scale.model_dump_json()) == scale


def test_it_finds_the_curve_behind_noisy_labels() -> None:
    rng = random.Random(1)
    rows = [(x, float(rng.random() < 1 / (1 + 2.718281828**-x))) for x in (rng.uniform(-5, 5) for _ in range(5000))]
    scale = fitted(rows)
    assert [scale(x) for x in (-3, 0, 3)] == pytest.approx([0.047, 0.5, 0.953], abs=0.06)


def test_logits_between_the_outer_centres_stay_in_order() -> None:
    """Ties would take the differences from a GRPO group that plain isotonic regression cannot tell apart."""
    scale = fitted([(x / 10, float(x > 0)) for x in range(-50, 50)])
    rewards = [scale(x / 10) for x in range(-20, 20)]
    assert len(set(rewards)) == len(rewards)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(0.0, 1.0)] * (MIN_ROWS - 1), "a scale needs 20"),
        ([(float(x), 0.5) for x in range(40)], "say nothing about their labels"),
        ([(float(x), float(-x) / 100 + 0.5) for x in range(40)], "say nothing about their labels"),
        ([(1.0, float(x % 2)) for x in range(40)], "say nothing about their labels"),
    ],
)
def test_rows_that_give_no_scale(rows: list[tuple[float, float]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        fitted(rows)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights_sha256": "other"}, "other weights"),
        ({"rewards": [0.9, 0.1]}, "must not fall"),
        ({"rewards": [0.0, 1.5]}, "lie in"),
        ({"logits": [1.0, 1.0]}, "must rise"),
        ({"logits": [0.0]}, "not a reward scale"),
        ({"logits": [0.0, float("nan")]}, "finite"),
        ({"extra": 1}, "not a reward scale"),
    ],
)
def test_a_scale_file_is_checked(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    known = {"weights_sha256": "w", "logits": [-1.0, 1.0], "rewards": [0.0, 1.0], "n_rows": 50, "mean_error": 0.1}
    path = tmp_path / "reward_scale.json"
    path.write_text(json.dumps({**known, "needs_reference": False, **changes}))
    with pytest.raises(UserError, match=message):
        load_scale(path, weights_sha256="w")


@pytest.mark.parametrize("command", ["scale", "score", "pairs"])
def test_wrong_input_is_told_before_the_model_is_loaded(command: str, tmp_path: Path) -> None:
    model, rows = make_model(tmp_path / "model"), tmp_path / "rows.jsonl"
    (model / "model.safetensors").write_bytes(b"no weights")
    rows.write_text('{"prompt": "p", "response": "r", "label": 1}\n' * 3 + "{}\n")
    with pytest.raises(UserError, match=r"3 labelled rows|every line must|no line is a pair"):
        if command == "scale":
            scale_command.main(model, labelled=rows)
        elif command == "score":
            inference.main(model, input=rows, output=tmp_path / "out.jsonl")
        else:
            inference.main(model, pairs=rows)


@pytest.mark.long
def test_the_command_fits_saves_and_plots(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    labels = tmp_path / "labelled.jsonl"
    items = [{"prompt": f"问{n}", "reference": "对", "response": "答" * n, "label": n / 60} for n in range(1, 60)]
    lines = [*items, {"prompt": "问", "response": "答", "label": 7}, {"prompt": "问"}]
    labels.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = [sys.executable, "utils/reward_scale.py", "--model_path", str(model), "--labelled", str(labels)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "label is not a number in [0, 1] (line 60)" in done.stderr and "held-out prompts" in done.stdout
    scale = RewardScale.model_validate_json((model / "reward_scale.json").read_text())
    assert scale.n_rows == 59 and scale.needs_reference
    assert (model / "reward_scale.png").read_bytes()[:4] == b"\x89PNG"
