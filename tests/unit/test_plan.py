"""Which rows make which optimizer step: as planned, in even parts, whatever the rewards, the ranks and the order."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict
from verl import DataProto

from agl_plugin.update.plan import partition, planned
from agl_plugin.update.rules import PLAN, Plan, UpdateRules

WIDTH = 6
N_ROWS, N_UPDATES, N_RANKS = st.integers(1, 200), st.integers(1, 8), st.integers(1, 2)


def rules(*, n_updates: int, **more: Any) -> UpdateRules:
    return UpdateRules(n_updates=n_updates, cap=2.0, **more)


def batch_of(n_rows: int, *, seed: int = 0, teaching: float = 1.0) -> DataProto:
    """Rows that hold their number, of 1 to 6 tokens, some with an advantage; shuffled as agent-lightning does."""
    rng = random.Random(seed)
    lengths = [rng.randint(1, WIDTH) for _ in range(n_rows)]
    mask = torch.tensor([[int(place < length) for place in range(WIDTH)] for length in lengths])
    signal = torch.tensor([float(rng.random() < teaching) for _ in range(n_rows)])
    tensors = {
        "row_number": torch.arange(n_rows),
        "attention_mask": mask,
        "response_mask": mask.clone(),
        "advantages": signal[:, None] * mask,
    }
    data = DataProto(batch=TensorDict(tensors, batch_size=n_rows))  # pyright: ignore[reportArgumentType]
    order = list(range(n_rows))
    random.shuffle(order)
    return data.select_idxs(order)


def steps_of(data: DataProto, *, n_ranks: int) -> list[list[list[int]]]:
    """Per rank and optimizer step that is made, the numbers of its rows; -1 for a row that only fills up."""
    found = []
    for share in data.chunk(n_ranks):
        ends = list(itertools.accumulate(share.meta_info[PLAN].sizes))
        parts = [share[start:end] for start, end in zip([0, *ends], ends, strict=False) if start < end]
        found.append([[n if on else -1 for n, on in rows(part)] for part in parts])
    return found


def rows(part: Any) -> list[tuple[int, bool]]:
    return list(zip(part.batch["row_number"].tolist(), part.batch["response_mask"].any(dim=1).tolist(), strict=True))


@settings(deadline=None)
@given(n_rows=N_ROWS, n_updates=N_UPDATES)
def test_parts_hold_each_row_once_and_differ_by_one_row_at_most(n_rows: int, n_updates: int) -> None:
    parts = partition(n_rows, n_updates=n_updates, seed="1/1")
    assert len(parts) == n_updates and sorted(row for part in parts for row in part) == list(range(n_rows))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@settings(deadline=None)
@given(n_rows=N_ROWS, n_updates=N_UPDATES, n_ranks=N_RANKS, teaching=st.sampled_from([0.0, 0.02, 0.4, 1.0]))
def test_ranks_share_the_planned_parts_evenly_and_lose_no_row(
    n_rows: int, n_updates: int, n_ranks: int, teaching: float
) -> None:
    batch = batch_of(n_rows, seed=n_rows, teaching=teaching)
    data = planned(batch, rules(n_updates=n_updates), n_ranks=n_ranks, step=3)
    plan: Plan = data.meta_info[PLAN]
    steps = steps_of(data, n_ranks=n_ranks)
    made = [size for size in plan.sizes if size]
    assert len(plan.sizes) == n_updates and all([len(part) for part in share] == made for share in steps)
    taught = set(batch.batch["row_number"][batch.batch["advantages"].any(dim=1)].tolist())
    parts = [set(part) & taught for part in partition(n_rows, n_updates=n_updates, seed="0/3")]
    together = [{row for share in steps for row in share[i] if row >= 0} for i in range(len(made))]
    assert together == [part for part in parts if part]
    assert sum(row >= 0 for share in steps for part in share for row in part) == len(taught)
    assert plan.tokens * n_ranks == batch.batch["response_mask"].sum() and plan.rows * n_ranks == n_rows


@settings(deadline=None, max_examples=30)
@given(n_rows=N_ROWS, n_updates=N_UPDATES)
def test_rewards_and_order_change_no_part(n_rows: int, n_updates: int) -> None:
    """Rows without an advantage are left out of their part; the others stay in theirs."""
    some, same, all_rows = (
        planned(batch, rules(n_updates=n_updates), n_ranks=1, step=3)
        for batch in (batch_of(n_rows, seed=5, teaching=0.5), batch_of(n_rows, seed=5, teaching=0.5), batch_of(n_rows))
    )
    assert steps_of(some, n_ranks=1) == steps_of(same, n_ranks=1)
    whole = [set(part) for part in steps_of(all_rows, n_ranks=1)[0]]
    assert all(any(set(part) <= one for one in whole) for part in steps_of(some, n_ranks=1)[0])


def test_33_rows_in_8_steps_are_no_step_of_one_row() -> None:
    """Rounded up to micro batches of 4 they would be 8, 8, 8, 8 and 1, and AdamW makes each step as large as any."""
    data = planned(batch_of(33), rules(n_updates=8), n_ranks=1, step=1)
    assert sorted(data.meta_info[PLAN].sizes) == [4] * 7 + [5]


def test_seed_and_step_decide_the_parts() -> None:
    one, same, other_step, other_seed = (
        steps_of(planned(batch_of(40), rules(n_updates=4, seed=seed), n_ranks=1, step=step), n_ranks=1)
        for seed, step in ((1, 1), (1, 1), (1, 2), (2, 1))
    )
    assert one == same and one != other_step and one != other_seed


def test_rows_of_a_step_are_in_order_of_length_and_ranks_take_turns() -> None:
    data = planned(batch_of(41, seed=2), rules(n_updates=2), n_ranks=2, step=1)
    for share in data.chunk(2):
        for part in (share[:11], share[11:]):
            lengths = part.batch["attention_mask"].sum(dim=1).tolist()
            assert len(lengths) in (10, 11) and lengths == sorted(lengths)
    first, second = (share[:11].batch["attention_mask"].sum() for share in data.chunk(2))
    assert abs(int(first - second)) <= WIDTH


@pytest.mark.parametrize("more", [{"has_reference": True}, {"has_entropy": True}])
def test_all_rows_are_computed_where_they_may_count(more: dict[str, Any]) -> None:
    data = planned(batch_of(10, teaching=0.0), rules(n_updates=2, **more), n_ranks=2, step=1)
    assert len(data) == 12 and data.meta_info[PLAN].sizes == (3, 3)  # two parts of five rows, filled up


def test_a_batch_that_teaches_nothing_is_sent_with_no_step_to_make() -> None:
    """Each rank gets a row, since verl cannot send none, and its schedule of learning rates goes on."""
    data = planned(batch_of(10, teaching=0.0), rules(n_updates=2), n_ranks=2, step=1)
    assert len(data) == 2 and data.meta_info[PLAN].sizes == (0, 0) and steps_of(data, n_ranks=2) == [[], []]
    assert data.batch["response_mask"].sum() == 0
