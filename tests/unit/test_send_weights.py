"""Weights that no model server takes, and servers that die: who is gone, or that all live, is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayTaskError

from agl_plugin.run import workers
from agl_plugin.run.workers import Workers
from foundation.errors import RunError


@pytest.mark.parametrize(
    ("lives", "limit_s", "told"),
    [
        (False, 1800.0, r"the model server 127.0.0.1:1 is gone: .* after 3 updates"),
        (True, 0.0, r"the model servers live and did not take the weights after 3 updates within 0 s: .*--resume"),
    ],
)
def test_weights_that_nobody_takes_end_the_run(
    monkeypatch: pytest.MonkeyPatch, lives: bool, limit_s: float, told: str
) -> None:
    asked = Workers.__new__(Workers)
    asked._group = SimpleNamespace(update_weights=lambda **_: ["never done"])  # pyright: ignore[reportAttributeAccessIssue]
    asked._replicas = [SimpleNamespace(server_address="127.0.0.1:1")]
    ray: Any = SimpleNamespace(wait=lambda pending, **_: ([], pending), get=lambda done: done)
    monkeypatch.setattr(workers, "ray", ray)
    monkeypatch.setattr(workers, "is_well", lambda _: lives)
    monkeypatch.setattr(workers, "MOST_S", limit_s)
    with pytest.raises(RunError, match=told):
        asked.send_weights(step=3)


@pytest.mark.parametrize("what", ["abort", "sleep"])
@pytest.mark.parametrize(
    ("lives", "told"),
    [(False, "^the model server 127.0.0.1:1 is gone: .*--resume"), (True, "did not .*: no room. .*--resume")],
)
def test_a_server_that_breaks_between_steps_is_told(
    monkeypatch: pytest.MonkeyPatch, what: str, lives: bool, told: str
) -> None:
    async def breaks() -> None:
        raise RayTaskError("abort_all_requests", "Traceback", RuntimeError("no room")).as_instanceof_cause()

    asked = Workers.__new__(Workers)
    server = SimpleNamespace(server_address="127.0.0.1:1", abort_all_requests=breaks, sleep=breaks)
    asked._replicas = [server]
    monkeypatch.setattr(workers, "is_well", lambda _: lives)
    with pytest.raises(RunError, match=told):
        getattr(asked, what)()
