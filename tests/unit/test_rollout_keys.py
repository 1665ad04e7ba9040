"""The gateway of a rollout, where there are several."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from foundation.rollout_keys import MAIN_LLM, OTHER_LLM, resources_of

TWO = {MAIN_LLM: "here", f"{OTHER_LLM}10.0.0.2": "there", "prompt": "p"}


@given(st.text())
def test_one_gateway_is_every_rollouts_and_what_else_there_is_stays(rollout_id: str) -> None:
    assert resources_of(rollout_id, {MAIN_LLM: "here", "prompt": "p"}) == {MAIN_LLM: "here", "prompt": "p"}
    assert resources_of(rollout_id, {"prompt": "p"}) == {"prompt": "p"}


def test_of_two_gateways_each_has_half_of_the_rollouts_and_keeps_them() -> None:
    ids = [f"ro-{UUID(int=n)}" for n in range(1000)]
    chosen = [resources_of(name, TWO) for name in ids]
    assert chosen == [resources_of(name, dict(reversed(TWO.items()))) for name in ids]
    assert all(set(resources) == {MAIN_LLM, "prompt"} for resources in chosen)
    assert 450 < Counter(resources[MAIN_LLM] for resources in chosen)["here"] < 550
