"""What several unit tests of the tiny policy start from."""

from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerFast

from sql_agent.tiny_policy.corpus import Corpus, load_corpus
from sql_agent.tiny_policy.tokenizer import train_tokenizer


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return load_corpus()


@pytest.fixture(scope="session")
def tokenizer(corpus: Corpus) -> PreTrainedTokenizerFast:
    return train_tokenizer(corpus.texts)
