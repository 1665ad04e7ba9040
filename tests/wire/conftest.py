"""One small reward model and one running scoring API for all wire tests: starting them takes longer than the tests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import Browser, chromium
from tests.reward_api import Api, serve

LIMITS = ("--max-items", "8", "--max-chars", "400", "--max-body-mib", "1")


@pytest.fixture(scope="session")
def reward_model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh model with a scale that needs a reference."""
    from reward_model.folder import weights_fingerprint
    from tests.reward_models import make_model

    folder = make_model(tmp_path_factory.mktemp("models") / "reward")
    scale = {"logits": [-50.0, 50.0], "rewards": [0.0, 1.0], "n_rows": 50, "needs_reference": True, "mean_error": 0.1}
    known = {"weights_sha256": weights_fingerprint(folder), **scale}
    (folder / "reward_scale.json").write_text(json.dumps(known))
    return folder


@pytest.fixture(scope="session")
def api(reward_model_folder: Path) -> Iterator[Api]:
    """It takes 8 items, 400 characters a text and 1 MiB a request."""
    with serve(reward_model_folder, *LIMITS) as running:
        yield running


@pytest.fixture
def no_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """No judge, reward model or model of the environment that runs the tests."""
    for name in os.environ:
        if name.startswith(("TEACHER_", "JUDGE_", "REWARD_MODEL_", "OPENAI_")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A Chromium, where there is one."""
    with chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started
