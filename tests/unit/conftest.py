"""What several unit tests start from."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest
from transformers import PreTrainedTokenizerFast

from sql_agent.data.build import build_bundled
from sql_agent.tiny_policy.corpus import Corpus, load_corpus
from sql_agent.tiny_policy.sql_task import lesson_of
from sql_agent.tiny_policy.tokenizer import train_tokenizer
from tests.servers import HealthyStore


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return load_corpus()


@pytest.fixture(scope="session")
def tokenizer(corpus: Corpus) -> PreTrainedTokenizerFast:
    return train_tokenizer(lesson_of(corpus).texts)


@pytest.fixture
def offline_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundled data, and no endpoint of a judge in the environment."""
    build_bundled()
    for name in ("TEACHER_API_KEY", "TEACHER_MODEL", "TEACHER_BASE_URL", "JUDGE_ENDPOINTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def store() -> Iterator[str]:
    """The address of what answers as a store does."""
    with ThreadingHTTPServer(("127.0.0.1", 0), HealthyStore) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A process group of one, which the update needs."""
    from tests.actor import one_rank

    with one_rank(tmp_path_factory.mktemp("gloo")):
        yield
