"""verl's real actor on a tiny model: each trained token counts once, whatever rows and micro batches it came in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from agentlightning.types import Triplet
from hypothesis import given, settings
from hypothesis import strategies as st
from verl.utils import torch_functional

import agl_plugin.update.actor
from agl_plugin.update.actor import rows_per_update
from agl_plugin.update.batch import build_batch
from agl_plugin.update.prepare import ENTROPY, prepared
from agl_plugin.update.rules import MEASURE_CAP, N_UPDATES, UpdateRules
from agl_plugin.update.sampler_gap import compare, hide
from tests.verl_actor import actor_of, flat_weights, one_rank, tiny_model, with_advantages

pytestmark = pytest.mark.filterwarnings("ignore:In CPU autocast")

Rollouts = dict[str, tuple[str, float, list[Triplet]]]


@pytest.fixture(scope="module", autouse=True)
def rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_rank(tmp_path_factory.mktemp("gloo")):
        yield


def call(prompt: list[int], response: list[int]) -> Triplet:
    return Triplet(prompt={"token_ids": prompt}, response={"token_ids": response}, reward=None)


def talk(first: list[int], *turns: tuple[list[int], list[int]]) -> list[Triplet]:
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
    limits = {"max_prompt_tokens": 30, "max_response_tokens": 30, "pad_id": 0, "device": torch.device("cpu")}
    return with_advantages(build_batch(rollouts, merge=merge, **limits).data)


def step_of(data: Any, *, mini_rows: int, micro_rows: int) -> tuple[torch.Tensor, dict[str, Any]]:
    """How the weights move in one update, and the actor's metrics."""
    model = tiny_model()
    before = flat_weights(model)
    metrics = actor_of(model, mini_rows=mini_rows, micro_rows=micro_rows).update_policy(data=data)
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
    moved, metrics = step_of(data_of(ROLLOUTS), mini_rows=24, micro_rows=micro_rows)
    assert distance(moved, exact_step(data_of(ROLLOUTS))) < 1e-5
    assert metrics["actor/updates"] == [1] and metrics["actor/updates_skipped"] == [0]


def test_merged_and_unmerged_rows_give_the_same_update() -> None:
    """Through verl's own loss and micro batches, with twice as many rows as a mini batch plans for."""
    merged, _ = step_of(data_of(ROLLOUTS), mini_rows=6, micro_rows=2)
    apart, metrics = step_of(data_of(ROLLOUTS, merge=False), mini_rows=6, micro_rows=2)
    assert len(data_of(ROLLOUTS, merge=False)) == 9 and metrics["actor/updates"] == [1]
    assert distance(apart, merged) < 1e-5


def test_left_over_rows_make_no_step_of_their_own() -> None:
    """verl alone would make a second step, at the full rate, of the one row above its mini batch."""
    data = data_of(ROLLOUTS)
    del data.meta_info[N_UPDATES]
    _, plain = step_of(data, mini_rows=4, micro_rows=2)
    _, even = step_of(data_of(ROLLOUTS), mini_rows=4, micro_rows=2)
    assert (plain["actor/updates"], even["actor/updates"]) == ([2], [1])


def test_the_reported_loss_is_that_of_the_update() -> None:
    """With log pi_old = log pi the loss is minus the mean advantage of the trained tokens."""
    _, metrics = step_of(data_of(ROLLOUTS), mini_rows=6, micro_rows=2)
    batch = data_of(ROLLOUTS).batch
    expected = -(batch["advantages"].sum() / batch["response_mask"].sum()).item()
    assert metrics["actor/pg_loss"] == [pytest.approx(expected, rel=1e-5)]


FLAT: Rollouts = {f"flat{i}": ("r", 0.3, talk([4, 4], ([], [1] * n), ([2], [3, 9]))) for i, n in enumerate((2, 7, 5))}


@pytest.mark.parametrize("one_pass", [True, False])
@pytest.mark.parametrize("n_ranks", [1, 3])
def test_rows_that_teach_nothing_are_left_out_and_the_step_is_the_same(one_pass: bool, n_ranks: int) -> None:
    """Eight rollouts, three of them in a group without variance; of these, ranks of three rows each need one."""
    rollouts = {"flat": FLAT["flat0"], **ROLLOUTS, **FLAT}
    model, data = tiny_model(), data_of(rollouts)
    actor = actor_of(model, mini_rows=9, micro_rows=2)
    data.meta_info |= {"micro_batch_size": 9, "use_dynamic_bsz": False}
    data.batch["rollout_log_probs"], entropies = actor.compute_log_prob(data, calculate_entropy=True)
    given, weights, seen = data_of(rollouts), flat_weights(model), []
    given.batch["rollout_log_probs"] = data.batch["rollout_log_probs"]

    def update(batch: Any) -> Any:
        seen.append(len(batch))
        return SimpleNamespace(meta_info={"metrics": actor.update_policy(data=batch)})

    rules = UpdateRules(n_updates=1, correct=False, cap=2.0, measure=one_pass)
    metrics = prepared(update, rules, n_ranks=n_ranks)(given).meta_info["metrics"]
    assert seen == [5 if n_ranks == 1 else 6] and metrics["batch/rows_left_out"] == 9 - seen[0]
    assert distance(flat_weights(model) - weights, exact_step(data_of(rollouts))) < 1e-5
    if one_pass:
        mask, kept = data.batch["response_mask"] == 1, data.batch["advantages"].any(dim=1)
        kept[0] |= n_ranks == 3
        parts = torch.where(kept[:, None], entropies, -data.batch["rollout_log_probs"])
        assert metrics[ENTROPY] == pytest.approx(parts[mask].mean().item(), rel=1e-5)


@pytest.mark.parametrize("rules", [{"has_reference": True}, {"has_entropy": True}, {"measure": True}])
def test_all_rows_are_computed_where_they_may_count_or_their_entropy_is_not_known(rules: dict[str, Any]) -> None:
    seen = []

    def update(batch: Any) -> Any:
        seen.append(len(batch))
        return SimpleNamespace(meta_info={"metrics": {}})

    prepared(update, UpdateRules(n_updates=1, correct=False, cap=2.0, **rules))(data_of({**ROLLOUTS, **FLAT}))
    assert seen == [8]


def test_a_step_that_teaches_nothing_still_is_one() -> None:
    """The optimizer goes on, with a gradient of 0, as it would with all rows."""
    model, data = tiny_model(), data_of(FLAT)
    actor, seen = actor_of(model, mini_rows=3, micro_rows=2), []

    def update(batch: Any) -> Any:
        seen.append(len(batch))
        return SimpleNamespace(meta_info={"metrics": actor.update_policy(data=batch)})

    metrics = prepared(update, UpdateRules(n_updates=1, correct=False, cap=2.0))(data).meta_info["metrics"]
    assert seen == [1] and metrics["actor/updates"] == [1] and metrics["actor/grad_norm"] == [0.0]


def test_planned_steps_share_the_rows() -> None:
    data = data_of(ROLLOUTS, merge=False)
    data.meta_info[N_UPDATES] = 3
    _, metrics = step_of(data, mini_rows=2, micro_rows=1)
    assert metrics["actor/updates"] == [3] and len(metrics["actor/grad_norm"]) == 3


@settings(deadline=None)
@given(n_rows=st.integers(1, 500), n_updates=st.integers(1, 8), micro_rows=st.integers(1, 32))
def test_rows_per_update_are_whole_micro_batches_and_never_one_step_too_many(
    n_rows: int, n_updates: int, micro_rows: int
) -> None:
    rows = rows_per_update(n_rows, n_updates=n_updates, micro_rows=micro_rows)
    assert rows % micro_rows == 0 and rows > 0
    assert math.ceil(n_rows / rows) <= n_updates


def test_weights_of_the_correction_scale_the_tokens() -> None:
    """What update.prepared puts into the batch reaches the loss: weights of 0.5 halve the step."""
    data = data_of(ROLLOUTS)
    data.batch["rollout_is_weights"] = torch.full_like(data.batch["advantages"], 0.5)
    moved, _ = step_of(data, mini_rows=6, micro_rows=2)
    whole, _ = step_of(data_of(ROLLOUTS), mini_rows=6, micro_rows=2)
    assert distance(moved, 0.5 * whole) < 1e-5


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_an_update_that_is_not_finite_changes_no_weight_and_is_counted(
    value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    data = data_of(ROLLOUTS)
    data.batch["advantages"][0, 0] = value
    moved, metrics = step_of(data, mini_rows=6, micro_rows=2)
    assert not moved.any()
    assert metrics["actor/updates_skipped"] == [1] and metrics["actor/weights_changed_share"] == [0.0]
    assert math.isnan(metrics["actor/grad_norm"][0]) and "grad_norm is not finite" in capsys.readouterr().out


def test_a_finite_step_after_a_skipped_one_is_still_made() -> None:
    data = data_of(ROLLOUTS)
    data.batch["advantages"][0, 0] = math.nan
    data.meta_info[N_UPDATES] = 2
    moved, metrics = step_of(data, mini_rows=3, micro_rows=1)
    assert moved.any() and torch.isfinite(moved).all()
    assert (metrics["actor/updates"], metrics["actor/updates_skipped"]) == ([2], [1])
    assert len(metrics["actor/grad_norm"]) == 1 and math.isfinite(metrics["actor/grad_norm"][0])


@pytest.mark.parametrize("micro_rows", [1, 2, 5])
def test_an_update_measures_in_its_own_pass_what_a_pass_before_it_would(micro_rows: int) -> None:
    data = data_of(ROLLOUTS)
    model = tiny_model()
    before = actor_of(model, mini_rows=5, micro_rows=micro_rows)
    data.meta_info |= {"micro_batch_size": micro_rows, "use_dynamic_bsz": False}
    log_probs, entropies = before.compute_log_prob(data, calculate_entropy=True)
    sampler = torch.where(torch.rand(log_probs.shape) < 0.2, torch.nan, log_probs - 0.1 * torch.rand(log_probs.shape))
    expected = compare(log_probs, sampler, data.batch["response_mask"], cap=2.0)
    plain, _ = step_of(data, mini_rows=5, micro_rows=micro_rows)

    data.batch["rollout_log_probs"] = sampler
    hide(data)
    data.meta_info[MEASURE_CAP] = 2.0
    moved, metrics = step_of(data, mini_rows=5, micro_rows=micro_rows)
    assert torch.equal(moved, plain)
    mask = data.batch["response_mask"] == 1
    assert metrics["actor/entropy_loss"] == [pytest.approx(entropies[mask].mean().item(), rel=1e-6)]
    assert {name: metrics[name] for name in expected} == {k: [pytest.approx(v, rel=1e-4)] for k, v in expected.items()}
    assert "sampler/log_prob_diff_mean" in expected


def test_measured_entropy_has_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    with_graph: list[bool] = []
    entropy = torch_functional.entropy_from_logits

    def spy(logits: torch.Tensor) -> torch.Tensor:
        with_graph.append(torch.is_grad_enabled())
        return entropy(logits)

    monkeypatch.setattr(torch_functional, "entropy_from_logits", spy)
    data = data_of(ROLLOUTS)
    data.meta_info[MEASURE_CAP] = 2.0
    step_of(data, mini_rows=5, micro_rows=5)
    assert with_graph == [False] and torch_functional.entropy_from_logits is spy


@pytest.mark.parametrize("own_head", [True, False])
def test_logits_that_nobody_reads_are_not_computed_and_change_nothing(
    monkeypatch: pytest.MonkeyPatch, own_head: bool
) -> None:
    if not own_head:  # a model whose head is not known gives all logits
        monkeypatch.setattr(agl_plugin.update.actor, "output_head", lambda _model: None)
    model, data, seen = tiny_model(), data_of(ROLLOUTS), []
    model.lm_head.register_forward_hook(lambda _head, inputs, _output: seen.append(inputs[0].shape[:2].numel()))
    actor = actor_of(model, mini_rows=5, micro_rows=5)
    data.meta_info |= {"micro_batch_size": 5, "use_dynamic_bsz": False, "temperature": 0.5}
    log_probs, entropies = actor.compute_log_prob(data, calculate_entropy=True)
    width = log_probs.size(1)
    n_response_tokens = int(data.batch["attention_mask"][:, -width:].sum())
    assert seen == [n_response_tokens if own_head else data.batch["input_ids"].numel()]
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
    actor_of(model, mini_rows=5, micro_rows=5).update_policy(data=data)
    assert seen == [int(data.batch["response_mask"].sum())] and seen[0] < data.batch["attention_mask"].sum()


def test_rows_without_a_trained_token_move_nothing_and_break_nothing() -> None:
    data, same = data_of(ROLLOUTS), data_of(ROLLOUTS)
    data.batch["response_mask"][0] = same.batch["response_mask"][0] = 0
    alone, metrics = step_of(data, mini_rows=5, micro_rows=1)  # one micro batch has nothing to learn from
    together, _ = step_of(same, mini_rows=5, micro_rows=5)
    assert distance(alone, together) < 1e-5 and metrics["actor/updates_skipped"] == [0]


def test_a_model_without_a_known_head_is_noticed() -> None:
    head = agl_plugin.update.actor.output_head
    assert head(tiny_model()) is not None and head(torch.nn.Linear(2, 2)) is None


def test_an_update_that_is_not_asked_measures_nothing() -> None:
    _, metrics = step_of(data_of(ROLLOUTS), mini_rows=5, micro_rows=2)
    assert not [name for name in metrics if name.startswith("sampler/") or name == "actor/entropy_loss"]
