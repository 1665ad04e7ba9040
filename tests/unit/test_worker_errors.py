"""What a failed worker of Ray is told by: its own error, and not the tracebacks of the calls between."""

from __future__ import annotations

import pytest
from ray.exceptions import RayTaskError

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
