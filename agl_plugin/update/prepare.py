"""What happens to a batch between its advantages and the optimizer, on the trainer's side.

Guarantees: the sampler is compared with the trainer, and corrected where the recipe says so, in the update's own pass
where no other is needed (`needs_pass`), and over the rows that are computed then; rows that the recipe
leaves out of the loss have no trained token, and count in no divisor; the rows are spread over optimizer steps and
ranks (agl_plugin.update.plan), and those that cannot change a weight are not computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from verl import DataProto
from verl.utils.metric import reduce_metrics

from agl_plugin.update import sampler_gap
from agl_plugin.update.batch import ROW_NUMBER, TRUNCATED
from agl_plugin.update.losses import kl_penalty
from agl_plugin.update.plan import moving, optimizer_steps, planned
from agl_plugin.update.rules import (
    GRAD_NORMS,
    OF_THE_AUDIT,
    PLAN,
    SCORES,
    STATE,
    WEIGHTS_AFTER,
    WEIGHTS_BEFORE,
    Plan,
    Updated,
    UpdatedRow,
    UpdateRules,
)


@dataclass(frozen=True)
class Prepared:
    """A batch for the workers, with its Plan; metrics of the preparation; what becomes of each row, by row number."""

    data: DataProto
    metrics: dict[str, Any]
    rows: Mapping[int, UpdatedRow]


def needs_pass(batch: DataProto, rules: UpdateRules, *, epochs: int) -> bool:
    """Whether log-probabilities before the update need a pass of their own. `batch` has advantages.

    The only pass of an update gives them too; with several optimizer steps the later ones need them, and without any
    nothing else would tell entropy and gap.
    """
    return rules.n_updates * epochs > 1 or not moving(filtered(batch, rules)[0], rules).any()


def prepare(batch: DataProto, rules: UpdateRules, *, step: int, n_ranks: int = 1) -> Prepared:
    """The rows that an update learns from. `batch` has advantages, and `old_log_probs` unless the update gives them."""
    only_pass = "old_log_probs" not in batch.batch.keys()  # noqa: SIM118  # pyright: ignore[reportOptionalMemberAccess]
    metrics = {} if only_pass else compared(batch, rules)
    used, left_out = filtered(batch, rules)
    data = planned(used, rules, n_ranks=n_ranks, step=step, only_pass=only_pass)
    metrics |= left_out | {
        "batch/rows_left_out": int((~moving(used, rules)).sum()),
        "actor/updates_without_signal": data.meta_info[PLAN].sizes.count(0),
    }
    return Prepared(data, metrics, updated_rows(batch, used, rules, step=step))


def result(prepared: Prepared, worker_metrics: Sequence[Mapping[str, Any]]) -> tuple[dict[str, float], Updated]:
    """The metrics of an update, and what the audit keeps of it. `worker_metrics`: of its share, each worker's."""
    by_name = {
        name: [value for worker in worker_metrics for value in worker.get(name, [])]
        for name in {key for worker in worker_metrics for key in worker}
    }
    metrics = prepared.metrics | told_scores(prepared.data, by_name.get(SCORES, []))
    norms = list(worker_metrics[0][GRAD_NORMS])
    before, after = ("-".join(by_name[name]) for name in (WEIGHTS_BEFORE, WEIGHTS_AFTER))
    state = by_name[STATE][0]
    plain: Any = {name: values for name, values in by_name.items() if not name.startswith(OF_THE_AUDIT)}
    reduced = {name: float(value) for name, value in reduce_metrics(plain).items()}
    return reduced | metrics, Updated(prepared.rows, norms, before, after, state)


def compared(batch: DataProto, rules: UpdateRules) -> dict[str, float]:
    """What `old_log_probs` and `entropys` (popped), rows x response, tell of the policy before the update."""
    tensors: Any = batch.batch
    entropy = tensors.pop("entropys", None)
    metrics = {} if entropy is None else {"actor/entropy_loss": entropy[tensors["response_mask"] == 1].mean().item()}
    return metrics | sampler_gap.correct(batch, rules) | kl_to_reference(batch, rules)


def told_scores(data: DataProto, scores: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, float]:
    """The same of an update's own pass: `scores` of each rank's share of `data`. What only fills up does not count."""
    if not scores:
        return {}
    plan: Plan = data.meta_info[PLAN]
    log_probs, entropy = (torch.cat(parts).float() for parts in zip(*scores, strict=True))
    rows = DataProto(data.batch.clone(recurse=False))  # pyright: ignore[reportOptionalMemberAccess]
    rows.batch.update({"old_log_probs": log_probs, "entropys": entropy})  # pyright: ignore[reportOptionalMemberAccess]
    return compared(rows, replace(plan.rules, correction="off"))


def filtered(batch: DataProto, rules: UpdateRules) -> tuple[DataProto, dict[str, int]]:
    """The batch without trained tokens in the rows that the recipe leaves out of the loss, and how many those are."""
    tensors: Any = batch.batch
    why: dict[str, torch.Tensor] = {}
    if rules.overlong_filter:
        why["batch/rows_overlong"] = tensors[TRUNCATED]
    if rules.positive_only:
        why["batch/rows_not_positive"] = ~(tensors["advantages"] > 0).any(dim=1)
    if not why:
        return batch, {}
    keep = ~torch.stack(list(why.values())).any(dim=0)[:, None]
    masked = tensors.clone(recurse=False)
    for name in ("response_mask", "advantages"):
        masked[name] = tensors[name] * keep
    return DataProto(masked, batch.non_tensor_batch, batch.meta_info), {k: int(rows.sum()) for k, rows in why.items()}


def updated_rows(whole: DataProto, used: DataProto, rules: UpdateRules, *, step: int) -> dict[int, UpdatedRow]:
    """What becomes of each row of a batch in the update, by row number; `used` is the batch after `filtered`."""
    tensors: Any = whole.batch
    used_tensors: Any = used.batch
    numbers, advantages = tensors[ROW_NUMBER].tolist(), tensors["advantages"]
    places = optimizer_steps(numbers, rules, step=step)
    first = tensors["response_mask"].argmax(dim=1, keepdim=True)  # the advantage is that of all trained tokens
    values = advantages.gather(1, first)[:, 0].tolist()
    trained = used_tensors["response_mask"].sum(dim=1).tolist()
    computed = moving(used, rules).tolist()
    columns = zip(numbers, values, trained, computed, strict=True)
    return {n: UpdatedRow(value, int(n_trained), moves, places[n]) for n, value, n_trained, moves in columns}


def kl_to_reference(batch: DataProto, rules: UpdateRules) -> dict[str, float]:
    """Mean k3 estimate, per sampled token, of the KL divergence to the start model or the teacher; {} without one."""
    tensors = batch.batch
    if tensors is None or "ref_log_prob" not in tensors:
        return {}
    mask = tensors["response_mask"] == 1
    kl = kl_penalty(tensors["old_log_probs"], tensors["ref_log_prob"], "k3")
    name = "actor/kl_to_teacher" if rules.teacher else "actor/kl_to_start"
    return {name: torch.masked_select(kl, mask).mean().item()}
