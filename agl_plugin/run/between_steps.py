"""The change of weights between two steps: no call is under way.

What still plays after the step's end would run on a sleeping engine, or leave keys and values of the old weights in its
prefix cache. verl's abort drops the cache, and leaves the engines paused until they have new weights. Where rollouts go
on over the change (`rollout.async_groups`) each call is answered by one version of the weights.
Not covered: requests that reach an engine past the proxy; those are aborted, but may come again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from agl_plugin.proxy.gate import Gate
from foundation.errors import RunError

if TYPE_CHECKING:
    from agl_plugin.run.node_gateways import NodeGateways

DRAIN_LIMIT_S = 30.0


def hold(gate: Gate | NodeGateways, lives: Callable[[], bool], *, limit_s: float) -> None:
    """Hold the gate, and wait until no call is in flight, the proxy has ended, or `limit_s` are over."""
    gate.hold()
    deadline = time.monotonic() + limit_s
    while gate.in_flight and lives() and time.monotonic() < deadline:
        time.sleep(0.02)


def drain(
    gate: Gate | NodeGateways, abort: Callable[[], int], *, held: bool = False, limit_s: float = DRAIN_LIMIT_S
) -> int:
    """Close the gate, unless it is `held`, `abort` until no call is in flight, and tell how many were aborted.

    RunError after `limit_s`.
    """
    if not held:
        gate.close()
    deadline = time.monotonic() + limit_s
    n_aborted = 0
    while n_left := gate.in_flight:
        n_aborted += abort()
        if time.monotonic() > deadline:
            raise RunError(
                f"{n_left} calls to the model server did not end within {limit_s:.0f} s of the step's end, although "
                "they were aborted: with other weights it would answer them wrongly. Look for what vLLM and the LLM "
                "proxy wait for (train.log), then continue with --resume"
            )
        time.sleep(0.02)
    return n_aborted + abort()
