"""The warm start: the same seed gives the same weights, and a policy that did not learn is not handed out."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from foundation.errors import UserError
from sql_agent.tiny_policy.corpus import Corpus
from sql_agent.tiny_policy.sql_task import lesson_of
from sql_agent.tiny_policy.task import Settings
from sql_agent.tiny_policy.train import ATTEMPTS, train_policy

SHORT = Settings(echo_steps=2, query_steps=0, clean_steps=0, flawed_steps=0, echo_rows=2)
LEARNED = dataclasses.replace(SHORT, loss_max=100.0)


def weights(tokenizer: PreTrainedTokenizerFast, corpus: Corpus, seed: int) -> torch.Tensor:
    model = train_policy(tokenizer, lesson_of(corpus), seed=seed, settings=LEARNED)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.long
def test_the_same_seed_gives_the_same_weights(tokenizer: PreTrainedTokenizerFast, corpus: Corpus) -> None:
    first, again, other = (weights(tokenizer, corpus, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.long
def test_a_policy_that_did_not_learn_is_trained_anew_and_then_refused(
    tokenizer: PreTrainedTokenizerFast, corpus: Corpus
) -> None:
    first_losses: list[float] = []

    def watch(step: int, _n_steps: int, loss: float) -> None:
        if step == 1:
            first_losses.append(loss)

    with pytest.raises(UserError, match=r"seed 1 ended with the losses .*, all above 0\.3.*Give another seed"):
        train_policy(tokenizer, lesson_of(corpus), seed=1, settings=SHORT, progress=watch)
    assert len(set(first_losses)) == ATTEMPTS
