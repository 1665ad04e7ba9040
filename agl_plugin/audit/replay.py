"""An update once more: the stored rows of a step, and the weights before it, through the actor of training; no vLLM.

Guarantees: model, optimizer, passes before the update, plan and update are verl's worker and this project's code, in
this process and as one rank; the rows are those of the audit, and nothing is sampled. Needs the weights before the
step: the checkpoint of the step before, or, for the first step of a run, what the run began with.
Compared are gradient norms, the change of the weights, AdamW's moments and what the optimizer stepped by.
Not covered: runs on several GPUs, whose checkpoints are in as many parts. Another device than the run's, or another
number of threads, computes the same in other roundings, which SAME leaves room for.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from agl_plugin.audit import schema
from agl_plugin.audit.recompute import Settings
from agl_plugin.audit.schema import stored_calls, unpack
from agl_plugin.audit.stored import call_of
from agl_plugin.update.fingerprint import MOMENTS
from agl_plugin.update.rules import Updated, UpdateRules
from foundation import run_folder
from foundation.errors import UserError

# What the same update may differ by: float32 sums in another order give gradients that differ by some 1e-6 (relative),
# and AdamW divides by the gradient's own size, so that elements whose gradient is all but 0 may step either way.
# Of gradient norms relative above 1; of the samples the norm of the difference over the norm.
SAME = {"grad_norms": 1e-5, "change of the weights": 1e-3, "exp_avg": 1e-4, "exp_avg_sq": 1e-4}


@dataclass(frozen=True)
class Replayed:
    """An update as stored and as repeated, each with its state."""

    stored: Updated
    repeated: Updated

    @property
    def differences(self) -> list[str]:
        """What is not the same, with its figure; [] for the same update."""
        problems = [
            f"{name} differs by {gap:.2g} (at most {SAME[name]:g})"
            for name, gap in self.gaps.items()
            if not gap <= SAME[name]
        ]
        if self.stored.weights_before != self.repeated.weights_before:
            problems.append("it begins with other weights")
        then, now = self.stored.state["settings"], self.repeated.state["settings"]
        return problems + [
            f"{name} was {then.get(name)}, and is {now[name]}" for name in now if then.get(name) != now[name]
        ]

    @property
    def gaps(self) -> dict[str, float]:
        """How far each part of SAME differs."""
        then, now = _parts(self.stored.state), _parts(self.repeated.state)
        norms = _norm_gap(self.stored.grad_norms, self.repeated.grad_norms)
        return {"grad_norms": norms, **{name: _gap(then[name], now[name]) for name in then}}


def _norm_gap(stored: list[float], repeated: list[float]) -> float:
    """The largest; infinite where their numbers differ, or only one is not finite."""
    if len(stored) != len(repeated):
        return math.inf
    pairs = [(a, b) for a, b in zip(stored, repeated, strict=True) if math.isfinite(a) or math.isfinite(b)]
    gaps = [abs(a - b) / max(abs(a), 1.0) for a, b in pairs]
    return max((gap if math.isfinite(gap) else math.inf for gap in gaps), default=0.0)


def _parts(state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    change = state["weights_after"].double() - state["weights_before"].double()
    return {"change of the weights": change, **{name: state[name].double() for name in MOMENTS}}


def _gap(stored: torch.Tensor, repeated: torch.Tensor) -> float:
    if stored.shape != repeated.shape:
        return math.inf
    difference = (stored - repeated).norm().item()
    size = stored.norm().item()
    if not size:
        return math.inf if difference else 0.0
    return difference / size


def replay(run: Path, step: int) -> Replayed:
    """Repeat the update of a step. `prepare_environment` must have been called. Raises UserError."""
    with closing(schema.opened(run)) as connection:
        (about,) = connection.execute("SELECT settings FROM run").fetchall()
        settings = json.loads(about["settings"])
        update = connection.execute("SELECT * FROM policy_update WHERE step = ?", (step,)).fetchone()
        if update is None:
            raise UserError(f"step {step} has no update in this run: `show` lists the steps")
        if settings.get("trainer"):
            raise UserError(
                f"{run}: was trained in one process, and only updates of verl's workers are repeated; "
                "`verify` computes the rest"
            )
        start = weights_before(schema.audit_file(run).parent, connection, settings["verl"], step)
        norms = [math.nan if norm is None else norm for norm in json.loads(update["grad_norms"])]
        state = kept_state(connection, update["id"])
        stored = Updated({}, norms, update["weights_before"], update["weights_after"], state)
        repeated = _repeat(connection, settings, step=step, start=start)
    return Replayed(stored, repeated)


def kept_state(connection: sqlite3.Connection, update_id: str) -> dict[str, Any]:
    """What the run kept of weights and optimizer. Raises UserError."""
    row = connection.execute("SELECT * FROM update_state WHERE id = ?", (update_id,)).fetchone()
    if row is None:
        raise UserError(
            f"update_state has no row {update_id!r}, which every update writes: see what `agentgrpo audit verify` says"
        )
    names = ("weights_before", "weights_after", *MOMENTS)
    return {"settings": json.loads(row["settings"]), **{n: torch.tensor(unpack(row[n], "f")) for n in names}}


def weights_before(folder: Path, connection: sqlite3.Connection, verl: Mapping[str, Any], step: int) -> Path | None:
    """The checkpoint that a step began with; None where it began with the start model. Raises UserError."""
    n_ranks = verl["trainer"]["nnodes"] * verl["trainer"]["n_gpus_per_node"]
    if n_ranks != 1:
        raise UserError(f"the run had {n_ranks} GPUs, and its checkpoints as many parts: only runs on one are repeated")
    checkpoint = folder / run_folder.CHECKPOINTS / f"global_step_{step - 1}"
    # Pickled: of this project's runs alone.
    if any(checkpoint.glob("actor/*.pt")) and (folder / run_folder.CONFIG).is_file():
        return checkpoint
    (first,) = connection.execute("SELECT min(step) FROM policy_update").fetchone()
    if step != first:
        raise UserError(
            f"step {step} began with the weights of {checkpoint}, which is not there. Repeat a step after a "
            "checkpoint, or train with trainer.save_every = 1 (and a higher trainer.keep_checkpoints)"
        )
    resumed = verl["trainer"].get("resume_from_path")
    if resumed and not Path(resumed).is_dir():
        raise UserError(f"the run went on from {resumed}, which is not there any more")
    return Path(resumed) if resumed else None


def _repeat(connection: sqlite3.Connection, settings: Mapping[str, Any], *, step: int, start: Path | None) -> Updated:
    from agl_plugin.update.composed import verl_config
    from agl_plugin.update.passes import Passes
    from agl_plugin.update.prepare import prepare, result

    rules = UpdateRules(**settings["rules"])
    config = verl_config(dict(settings["verl"]))
    if rules.teacher or rules.imitation:
        source = "a teacher" if rules.teacher else "what succeeded beside failures"
        raise UserError(f"the run learned from {source}: such updates are not repeated; `verify` computes the rest")
    batch = stored_batch(connection, Settings.of(settings), step=step)
    os.environ |= {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    with tempfile.TemporaryDirectory() as place:
        os.environ["DIST_INIT_METHOD"] = f"file://{place}/rendezvous"
        actor = Passes(_worker(config, role="actor", start=start), config)
        batch = actor.log_probs(batch[~batch.batch["is_drop_mask"]], rules)
        if rules.has_reference:
            reference = actor if actor.has_adapter else Passes(_worker(config, role="ref"), config)
            batch = reference.reference_log_probs(batch, rules)
        prepared = prepare(batch, rules, step=step)
        _, updated = result(prepared, actor.update(prepared.data))
        torch.distributed.destroy_process_group()
    return updated


def stored_batch(connection: sqlite3.Connection, settings: Settings, *, step: int) -> Any:
    """A step's batch as it came to the passes before the update, from its stored calls, rewards and advantages.

    Raises UserError where the calls give other rows than are stored.
    """
    from agl_plugin.update.batch import build_batch
    from agl_plugin.update.rows import Call

    query = """SELECT rollout_id, group_id, reward, attempt_id, max(train_row.advantage) AS advantage FROM train_row
        JOIN rollout ON rollout.id = train_row.rollout_id JOIN verdict USING (rollout_id)
        WHERE train_row.step = ? GROUP BY rollout_id ORDER BY min(row_number)"""
    rollouts: dict[str, tuple[str, float, list[Call]]] = {}
    for row in connection.execute(query, (step,)).fetchall():
        calls = [call_of(call, prompt) for call, prompt in stored_calls(connection, row["attempt_id"])]
        rollouts[row["rollout_id"]] = row["group_id"], row["reward"], calls
    batch = build_batch(
        rollouts,
        merge=settings.merge,
        max_prompt_tokens=settings.prompt_tokens,
        max_response_tokens=settings.response_tokens,
        pad_id=0,
    )
    stored = connection.execute("SELECT * FROM train_row WHERE step = ? ORDER BY row_number", (step,)).fetchall()
    cut = settings.response_tokens
    for (rollout, row), stored_row in zip(batch.rows, stored, strict=True):
        rebuilt = rollout, row.prompt[: settings.prompt_tokens], row.response[:cut], row.mask[:cut]
        ids = (unpack(stored_row["prompt_ids"]), unpack(stored_row["response_ids"]), unpack(stored_row["mask"], "B"))
        if rebuilt != (stored_row["rollout_id"], *ids):
            raise UserError(f"{stored_row['id']} is not what its calls give: `verify` tells more")
    advantages = torch.tensor([[row["advantage"] or 0.0] for row in stored], dtype=torch.float32)
    batch.data.batch["advantages"] = advantages * batch.data.batch["response_mask"]
    return batch.data


def _worker(config: Any, *, role: str, start: Path | None = None) -> Any:
    """The worker of training in this process, with the weights, moments and learning rate of a checkpoint."""
    from omegaconf import OmegaConf

    from agl_plugin.update.worker import GrpoWorker

    OmegaConf.set_struct(config.actor_rollout_ref, False)
    worker: Any = GrpoWorker(config.actor_rollout_ref, role)
    worker.init_model()
    if start:
        worker.load_checkpoint(str(start / "actor"))
    return worker
