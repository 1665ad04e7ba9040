"""wandb (offline), SwanLab (local) and TensorBoard get the same numbers through verl's own Tracking, in the run folder.

What is logged is what GrpoTrainer's step returns: the workers' metrics, the daemon's counts. Not covered: uploads.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from foundation.errors import UserError
from sql_agent.config import ROOT
from sql_agent.training.preflight import TRACKER_PACKAGES, check_trackers

VERL = {"actor/grad_norm": 0.5, "actor/pg_loss": 6.25}
COUNTS = {"rollouts": 96, "reward_mean": 0.4375, "unscored/llm_fault": 2, "stop/answered": 94}
EXPECTED = {**VERL, **{f"rollout/{name}": value for name, value in COUNTS.items()}, "health/entropy": 0.5}
# Two steps of a trainer whose update is left out; everything after it is the code of a run.
SCRIPT = """
import json, sys, types
from collections import Counter
from pathlib import Path
from foundation.environment import prepare_environment, prepare_trackers
folder = Path(sys.argv[1])
prepare_environment(cpu=False, offline=True)
prepare_trackers(folder)
from verl.utils.tracking import Tracking
from agl_plugin.notes import Notes
from agl_plugin.proxy.gate import Gate
from agl_plugin.trainer import GrpoTrainer
verl, counts = json.loads(sys.argv[2])
trainer = GrpoTrainer.__new__(GrpoTrainer)
trainer.step, trainer.line = 0, None
nothing = types.SimpleNamespace(rows=[], warnings=[], asked_groups=[])
parts = {"rollouts": nothing, "gateway_watch": nothing, "outcome": nothing, "gate": Gate(), "batched": None}
trainer.daemon = types.SimpleNamespace(stats=counts, step=0, **parts)
trainer.order = types.SimpleNamespace(spare=lambda _step: [], learned=lambda _step, _groups: {})
trainer._n_aborted, trainer._late_calls = 0, Counter()
tracking = Tracking("AgentGRPO", "test", json.loads(sys.argv[3]), config={"trainer": {}})
health = types.SimpleNamespace(after_step=lambda *_: {"health/entropy": 0.5}, stop="")
about = {"health": health, "tracking": tracking, "counted": trainer._new_late_calls}
trainer.notes = Notes(folder, n_steps=2, audit=None, **about)
trainer._step = lambda: (dict(verl), None)
for step in (1, 2):
    trainer.step = step
    trainer._train()
tracking.finish()
"""
Numbers = dict[str, dict[int, float]]


def run_of(folder: Path, trackers: list[str]) -> subprocess.CompletedProcess[str]:
    unset = ("WANDB_", "SWANLAB_", "TENSORBOARD_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
    home = folder.parent / "home"
    home.mkdir()
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), json.dumps([VERL, COUNTS]), json.dumps(trackers)],
        env={**env, "HOME": str(home), "PYTHONPATH": str(ROOT)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=600,
    )


def of_tensorboard(folder: Path) -> Numbers:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {tag: {e.step: e.value for e in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def of_swanlab(folder: Path) -> Numbers:
    with sqlite3.connect(folder / "swanlog" / "runs.swanlab") as database:
        tags = database.execute("SELECT name, folder FROM tag WHERE system = 0").fetchall()
    database.close()
    found: Numbers = defaultdict(dict)
    for name, tag in tags:
        for file in (folder / "swanlog").glob(f"run-*/logs/{tag}/*.log"):
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            found[name] |= {row["index"]: row["data"] for row in rows}
    return dict(found)


def of_wandb(folder: Path) -> Numbers:
    from wandb.proto import wandb_internal_pb2 as wandb
    from wandb.sdk.internal.datastore import DataStore

    (file,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    store = DataStore()
    store.open_for_scan(str(file))
    found: Numbers = defaultdict(dict)
    try:
        while data := store.scan_data():
            record: Any = wandb.Record()  # pyright: ignore[reportAttributeAccessIssue] made at import
            record.ParseFromString(data)
            items = {(item.key or "/".join(item.nested_key)): item.value_json for item in record.history.item}
            for name, value in items.items():
                if not name.startswith("_"):
                    found[name][int(items["_step"])] = json.loads(value)
    finally:
        store.close()
    return dict(found)


@pytest.mark.long
def test_all_trackers_get_the_same_numbers_in_the_run_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    done = run_of(folder, ["wandb", "swanlab", "tensorboard"])
    assert done.returncode == 0, done.stderr
    for read in (of_tensorboard, of_swanlab, of_wandb):
        found = {name: by_step for name, by_step in read(folder).items() if not name.startswith(("time/", "timing_s/"))}
        assert found == {name: {1: value, 2: value} for name, value in EXPECTED.items()}, read.__name__
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [EXPECTED.items() <= row.items() for row in rows] == [True, True]
    # Nothing beside the run folder; wandb's own debug log goes to the user's cache.
    home = tmp_path / "home"
    stray = [path.relative_to(home) for path in home.rglob("*") if path.is_file()]
    assert [path for path in stray if path.parts[0] != ".cache"] == []


def test_a_missing_package_is_named_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRACKER_PACKAGES, "swanlab", ["json", "no_such_board"])
    check_trackers(["console", "wandb", "tensorboard"])
    with pytest.raises(UserError, match=r"'swanlab', but its package no_such_board is not installed.*make setup"):
        check_trackers(["console", "swanlab"])


@pytest.mark.slow
def test_a_run_in_one_process_ends_wandb_before_its_service(tmp_path: Path) -> None:
    """The command's last line is the run's, with nothing of a service that died after it."""
    sets = [
        "sft.max_steps=1",
        "sft.max_samples=2",
        'logging.trackers=["console","wandb"]',
        f"trainer.runs_dir={tmp_path}",
    ]
    command = [sys.executable, str(ROOT / "sql_agent" / "train_sft.py"), *(w for one in sets for w in ("--set", one))]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0 and done.stdout.splitlines()[-1].startswith("run: "), done.stdout
    assert list(tmp_path.glob("*/wandb/*/run-*.wandb"))
