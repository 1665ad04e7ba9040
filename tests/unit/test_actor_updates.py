"""The real worker on a tiny model: each trained token counts once, whatever rows and micro batches it came in."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agl_plugin.update import worker
from agl_plugin.update.batch import build_batch
from agl_plugin.update.plan import micro_batches
from agl_plugin.update.prepare import needs_pass
from agl_plugin.update.rows import NAN, Call
from agl_plugin.update.rules import UpdateRules
from agl_plugin.update.token_scores import logits_at
from agl_plugin.update.worker import PlannedEngine
from tests import updates
from tests.actor import actor_of, as_planned, flat_weights, tiny_model, with_advantages
from tests.gpu.test_recipes import report

pytestmark = pytest.mark.usefixtures("rank")

Rollouts = dict[str, tuple[str, float, list[Call]]]


def call(prompt: list[int], response: list[int]) -> Call:
    return Call(prompt, response, [NAN] * len(response))


def talk(first: list[int], *turns: tuple[list[int], list[int]]) -> list[Call]:
    calls, so_far = [], first
    for added, sampled in turns:
        calls.append(call(so_far + added, sampled))
        so_far = so_far + added + sampled
    return calls


ROLLOUTS: Rollouts = {
    "a": ("q", 1.0, talk([1, 2, 3], ([], [4, 5]), ([6, 7], [8]), ([9], [10, 11]))),
    "b": ("q", 0.0, talk([3, 2], ([], [5]), ([4], [6, 7, 8, 9, 10]))),
    "c": ("q", 0.25, talk([3], ([], [7]))),
    "d": ("p", 0.5, talk([2, 2, 2], ([], [1, 5, 9]), ([4], [6]))),
    "e": ("p", 0.6, talk([2, 2, 2], ([1], [1]))),
}


def data_of(rollouts: Rollouts, *, merge: bool = True) -> Any:
    limits: dict[str, Any] = {"max_prompt_tokens": 30, "max_response_tokens": 30, "pad_id": 0}
    return with_advantages(build_batch(rollouts, merge=merge, **limits).data)


def with_log_probs(data: Any) -> Any:
    """The batch with the log-probabilities of the policy before its update."""
    data.meta_info |= {"micro_batch_size": 9}
    data.batch["old_log_probs"], _ = actor_of(tiny_model(), micro_rows=9).compute_log_prob(data)
    return data


def step_of(
    data: Any, *, micro_rows: int, n_updates: int = 1, leave_out: bool = False, **more: Any
) -> tuple[torch.Tensor, dict[str, Any]]:
    """How the weights move in one update, and the actor's metrics. `more` are keys of verl's actor."""
    model = tiny_model()
    before = flat_weights(model)
    share = as_planned(data, n_updates=n_updates, leave_out=leave_out)
    metrics = actor_of(model, micro_rows=micro_rows, **more).update_policy(data=share)
    return flat_weights(model) - before, metrics


def exact_step(data: Any) -> torch.Tensor:
    """Minus the gradient of -sum(A log pi) / tokens, in one pass."""
    model, batch = tiny_model(), data.batch
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "position_ids")}
    width = batch["responses"].shape[1]
    log_probs = torch.log_softmax(model(**inputs).logits[:, -width - 1 : -1], dim=-1)
    chosen = log_probs.gather(-1, batch["responses"][:, :, None])[:, :, 0]
    (-(chosen * batch["advantages"].double()).sum() / batch["response_mask"].sum()).backward()
    return -torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    assert b.norm() > 1e-3
    return ((a - b).norm() / b.norm()).item()


@pytest.mark.parametrize("micro_rows", [1, 2, 3, 8])
def test_an_update_is_the_mean_over_tokens_whatever_the_micro_batches(micro_rows: int) -> None:
    moved, metrics = step_of(data_of(ROLLOUTS), micro_rows=micro_rows)
    assert distance(moved, exact_step(data_of(ROLLOUTS))) < 1e-5
    assert metrics["actor/updates"] == [1] and metrics["actor/updates_skipped"] == [0]


def test_merged_and_unmerged_rows_give_the_same_update() -> None:
    """Through verl's own loss and micro batches, with twice as many rows as a mini batch plans for."""
    merged, _ = step_of(data_of(ROLLOUTS), micro_rows=2)
    apart, metrics = step_of(data_of(ROLLOUTS, merge=False), micro_rows=2)
    assert len(data_of(ROLLOUTS, merge=False)) == 9 and metrics["actor/updates"] == [1]
    assert distance(apart, merged) < 1e-5


def test_the_reported_loss_is_that_of_the_update() -> None:
    """With log pi_old = log pi the loss is minus the mean advantage of the trained tokens."""
    _, metrics = step_of(data_of(ROLLOUTS), micro_rows=2)
    batch = data_of(ROLLOUTS).batch
    expected = -(batch["advantages"].sum() / batch["response_mask"].sum()).item()
    assert metrics["actor/pg_loss"] == [pytest.approx(expected, rel=1e-5)]


FLAT: Rollouts = {f"flat{i}": ("r", 0.3, talk([4, 4], ([], [1] * n), ([2], [3, 9]))) for i, n in enumerate((2, 7, 5))}


def updated(rollouts: Rollouts, **rules: Any) -> tuple[torch.Tensor, dict[str, Any], list[int]]:
    """How AdamW moves the weights after it has momentum, all metrics, and the rows that were computed."""
    model = tiny_model()
    actor, seen = actor_of(model, micro_rows=2), []
    actor.engine.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    actor.update_policy(data=as_planned(data_of(ROLLOUTS)))
    weights = flat_weights(model)

    def update(batch: Any) -> Any:
        seen.append(int(batch.batch["response_mask"].any(dim=1).sum()))
        return actor.update_policy(data=batch)

    given = UpdateRules(**{"n_updates": 1, "cap": 2.0, **rules})
    metrics, _ = updates.step(update, with_log_probs(data_of(rollouts)), given)
    return flat_weights(model) - weights, metrics, seen


@pytest.mark.parametrize("n_updates", [1, 2, 3])
def test_rows_that_teach_nothing_are_left_out_and_each_step_is_the_same(n_updates: int) -> None:
    """Eight rollouts, three of them in a group without variance; AdamW sees the same gradients in the same steps."""
    rollouts = {"flat": FLAT["flat0"], **ROLLOUTS, **FLAT}
    some, metrics, seen = updated(rollouts, n_updates=n_updates)
    every, theirs, all_seen = updated(rollouts, n_updates=n_updates, has_entropy=True)
    assert seen == [5] and all_seen == [9] and metrics["batch/rows_left_out"] == 4
    assert metrics["actor/updates"] == theirs["actor/updates"] == [n_updates]
    assert distance(some, every) < 1e-5


def test_a_step_that_teaches_nothing_is_not_made() -> None:
    """With a gradient of 0 AdamW's momentum would move the weights, whatever its weight decay."""
    moved, metrics, seen = updated(FLAT, n_updates=2)
    assert not moved.any() and seen == [0]
    assert metrics["actor/updates"] == [0] and metrics["actor/updates_without_signal"] == 2
    assert (metrics["actor/grad_norm"], metrics["actor/pg_loss"]) == ([0.0], [0.0])
    by_momentum, with_entropy, _ = updated(FLAT, n_updates=1, has_entropy=True)
    assert by_momentum.norm() > 1e-3 and with_entropy["actor/updates_without_signal"] == 0


def test_planned_steps_share_the_rows() -> None:
    _, metrics = step_of(data_of(ROLLOUTS, merge=False), n_updates=3, micro_rows=1)
    assert metrics["actor/updates"] == [3] and len(metrics["actor/grad_norm"]) == 3


@pytest.mark.parametrize("micro_rows", [1, 2, 4, 8])
def test_every_token_of_a_training_step_weighs_the_same(micro_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With weights that stay, the gradients of its optimizer steps have the whole batch's as their mean."""
    model, gradients = tiny_model(), []
    actor = actor_of(model, micro_rows=micro_rows)

    def note() -> None:
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))

    monkeypatch.setattr(actor.engine.optimizer, "step", note)
    data = with_log_probs(data_of(ROLLOUTS, merge=False))
    actor.update_policy(data=as_planned(data, n_updates=4))
    assert len(gradients) == 4
    assert distance(-torch.stack(gradients).mean(dim=0), exact_step(data)) < 1e-5


@pytest.mark.parametrize("mode", ["seq-mean-token-mean", "seq-mean-token-sum"])
def test_every_row_weighs_the_same_where_the_loss_is_a_mean_over_rows(mode: str) -> None:
    data = data_of(ROLLOUTS)
    together, _ = step_of(data, micro_rows=5, loss_agg_mode=mode)
    for micro_rows in (1, 2, 4):
        apart, _ = step_of(data, micro_rows=micro_rows, loss_agg_mode=mode)
        assert distance(apart, together) < 1e-5


def test_weights_of_the_correction_scale_the_tokens() -> None:
    """What update.prepare puts into the batch reaches the loss: weights of 0.5 halve the step."""
    data = data_of(ROLLOUTS)
    data.batch["rollout_is_weights"] = torch.full_like(data.batch["advantages"], 0.5)
    moved, _ = step_of(data, micro_rows=2)
    whole, _ = step_of(data_of(ROLLOUTS), micro_rows=2)
    assert distance(moved, 0.5 * whole) < 1e-5


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_update_that_is_not_finite_changes_no_weight_and_is_counted(
    value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    data = data_of(ROLLOUTS)
    data.batch["advantages"][0, 0] = value
    moved, metrics = step_of(data, micro_rows=2)
    assert not moved.any()
    assert metrics["actor/updates_skipped"] == [1] and metrics["actor/weights_changed_share"] == [0.0]
    assert math.isnan(metrics["actor/grad_norm"][0]) and "grad_norm is not finite" in capsys.readouterr().out


def test_a_finite_step_after_a_skipped_one_is_still_made() -> None:
    data = with_log_probs(data_of(ROLLOUTS))
    data.batch["advantages"][0, 0] = math.nan
    moved, metrics = step_of(data, n_updates=2, micro_rows=1)
    assert moved.any() and torch.isfinite(moved).all()
    assert (metrics["actor/updates"], metrics["actor/updates_skipped"]) == ([2], [1])
    assert len(metrics["actor/grad_norm"]) == 1 and math.isfinite(metrics["actor/grad_norm"][0])


def test_logits_that_nobody_reads_are_not_computed_and_change_nothing() -> None:
    model, data, seen = tiny_model(), data_of(ROLLOUTS), []
    model.lm_head.register_forward_hook(lambda _head, inputs, _output: seen.append(inputs[0].shape[:2].numel()))
    actor = actor_of(model, micro_rows=5)
    data.meta_info |= {"micro_batch_size": 5, "temperature": 0.5}
    log_probs, entropies = actor.compute_log_prob(data, calculate_entropy=True)
    width = log_probs.size(1)
    assert seen == [int(data.batch["response_mask"].sum())]
    mask = data.batch["response_mask"] == 1
    with torch.no_grad():
        ids, positions = data.batch["input_ids"], data.batch["position_ids"]
        logits = model(input_ids=ids, attention_mask=data.batch["attention_mask"], position_ids=positions).logits
    expected = torch.log_softmax(logits / 0.5, dim=-1)[:, -width - 1 : -1]
    tokens = data.batch["responses"][..., None]
    torch.testing.assert_close(log_probs[mask], expected.gather(-1, tokens)[..., 0][mask].to(log_probs.dtype))
    assert entropies is not None
    torch.testing.assert_close(entropies[mask], -(expected.exp() * expected).sum(-1)[mask].to(entropies.dtype))
    assert model(input_ids=ids[:, :3]).logits.size(1) == 3  # later calls are whole again


def test_an_update_computes_logits_of_its_trained_tokens_alone() -> None:
    model, data, seen = tiny_model(), data_of(ROLLOUTS), []
    model.lm_head.register_forward_hook(lambda _head, inputs, _output: seen.append(inputs[0].shape[:2].numel()))
    actor_of(model, micro_rows=5).update_policy(data=as_planned(data))
    assert seen == [int(data.batch["response_mask"].sum())] and seen[0] < data.batch["attention_mask"].sum()


def test_rows_without_a_trained_token_move_nothing_and_break_nothing() -> None:
    data, same = data_of(ROLLOUTS), data_of(ROLLOUTS)
    data.batch["response_mask"][0] = same.batch["response_mask"][0] = 0
    alone, metrics = step_of(data, micro_rows=1)  # one micro batch has nothing to learn from
    together, _ = step_of(same, micro_rows=5)
    assert distance(alone, together) < 1e-5 and metrics["actor/updates_skipped"] == [0]


def test_a_model_without_a_known_head_is_noticed() -> None:
    with pytest.raises(ValueError, match="Linear names no layer"), logits_at(torch.nn.Linear(2, 2), torch.ones(1, 2)):
        pass


def sampled(rollouts: Rollouts, rules: UpdateRules) -> Any:
    """A batch whose sampler said something else, and not of every token; with a reference model's log-probabilities."""
    data = data_of(rollouts)
    own, mask = with_log_probs(data_of(rollouts)).batch["old_log_probs"], data.batch["response_mask"] == 1
    noise = torch.randn(own.shape, generator=torch.Generator().manual_seed(1), dtype=own.dtype)
    data.batch["rollout_log_probs"] = torch.where(mask, own + noise, 0.0)
    data.batch["rollout_log_probs"][mask.nonzero()[::7].unbind(1)] = math.nan
    data.batch["ref_log_prob"] = torch.where(mask, own - noise.abs(), 0.0)
    return data


@pytest.mark.parametrize("correction", ["off", "truncated", "masked"])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_the_only_pass_of_an_update_is_the_pass_before_it(correction: Any, level: Any) -> None:
    rules = UpdateRules(n_updates=1, cap=2.0, correction=correction, level=level, positive_only=True)
    found = []
    for has_pass in (True, False):
        data, model = sampled(ROLLOUTS, rules), tiny_model()
        actor, before = actor_of(model, micro_rows=2), flat_weights(model)
        if has_pass:
            data = data[(data.batch["advantages"] > 0).any(dim=1)]  # the rows that the update computes
            scores = actor.compute_log_prob(data, calculate_entropy=True)
            data.batch.update(dict(zip(("old_log_probs", "entropys"), scores, strict=True)))
        else:
            data.batch.pop("old_log_probs")
        metrics, _ = updates.step(actor.update_policy, data, rules)
        found.append((flat_weights(model) - before, metrics))
    (apart, told), (once, told_once) = found
    assert distance(once, apart) < 1e-5
    names = {name for name in told if name.startswith(("sampler/", "actor/entropy", "actor/kl_to"))}
    assert len(names) == 9 and {n: told_once[n] for n in names} == pytest.approx({n: told[n] for n in names}, rel=1e-5)


def test_an_update_that_computes_no_row_needs_the_pass_before_it() -> None:
    one, several = UpdateRules(n_updates=1, cap=2.0), UpdateRules(n_updates=2, cap=2.0)
    assert not needs_pass(data_of(ROLLOUTS), one, epochs=1)
    assert needs_pass(data_of(FLAT), one, epochs=1)
    assert needs_pass(data_of(ROLLOUTS), one, epochs=2) and needs_pass(data_of(ROLLOUTS), several, epochs=1)


@pytest.mark.parametrize("limit", [1, 16, 24, 1000])
def test_micro_batches_by_tokens_make_the_same_update(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []
    engine: Any = PlannedEngine
    forward = engine.forward_step

    def note(self: Any, micro_batch: Any, *args: Any) -> Any:
        sizes.append((len(micro_batch), int(micro_batch["attention_mask"].sum(dim=1).max())))
        return forward(self, micro_batch, *args)

    monkeypatch.setattr(engine, "forward_step", note)
    data, model = data_of(ROLLOUTS, merge=False), tiny_model()
    actor, before = actor_of(model, micro_rows=3), flat_weights(model)
    rules = UpdateRules(n_updates=1, cap=2.0, micro_batch_tokens=limit)
    updates.step(actor.update_policy, data, rules)
    assert distance(flat_weights(model) - before, exact_step(data)) < 1e-5
    assert sum(n for n, _ in sizes) == len(data) and all(n * width <= limit or n == 1 for n, width in sizes)
    assert len(sizes) == {1: 9, 1000: 1}.get(limit, len(sizes)) and sizes == sorted(sizes, key=lambda size: size[1])


def test_rows_are_cut_where_the_next_would_not_fit() -> None:
    assert micro_batches([2, 3, 3, 5, 9, 30], 10) == (3, 1, 1, 1)
    assert micro_batches([5, 5], 10) == (2,) and micro_batches([], 10) == (0,)


def test_the_memory_of_a_gpu_is_told_under_the_names_that_its_tests_print(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert worker.gpu_memory() == {}
    gpu = SimpleNamespace(max_memory_allocated=lambda: 3 << 30, max_memory_reserved=lambda: 5 << 29)
    monkeypatch.setattr(worker, "get_device_name", lambda: "cuda")
    monkeypatch.setattr(worker, "get_torch_device", lambda: gpu)
    told = {name: value for name, (value,) in worker.gpu_memory().items()}
    report("small", told | dict.fromkeys(("sampler/log_prob_diff_mean", "batch/merged_share", "actor/grad_norm"), 0.5))
    assert "GPU memory 3.0 GiB allocated, 2.5 reserved" in capsys.readouterr().out
