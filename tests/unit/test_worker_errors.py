"""What a failed worker of Ray is told by: its own error, and not the tracebacks of the calls between."""

from __future__ import annotations

import pytest
from ray.exceptions import NodeDiedError, RayError, RayTaskError, WorkerCrashedError

from agl_plugin.algorithm import what_broke
from foundation.errors import RunError


def through_ray(cause: Exception, *, calls: int = 2) -> RayTaskError:
    """The error as it arrives from a worker that a worker called."""
    for n in range(calls):
        cause = RayTaskError(f"call_{n}", "Traceback\n" + "  a line\n" * 60, cause).as_instanceof_cause()
    assert isinstance(cause, RayTaskError)
    return cause


@pytest.mark.parametrize("cause", [RuntimeError("PytorchStreamReader failed"), RunError("the model server is gone")])
def test_a_worker_s_error_is_told_by_itself(cause: Exception) -> None:
    told = what_broke(through_ray(cause))
    assert (type(told), str(told)) == (type(cause), str(cause))


@pytest.mark.parametrize("error", [NodeDiedError("use `ray list nodes`"), WorkerCrashedError()])
def test_a_process_of_ray_that_is_gone_is_told_with_a_remedy(error: RayError) -> None:
    told = what_broke(error)
    assert isinstance(told, RunError) and str(told).startswith("a process of Ray") and "--resume" in str(told)
    assert type(error).__name__ in str(told) and "ray list" not in str(told)
