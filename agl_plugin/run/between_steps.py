"""The change of weights between two steps: no call is under way.

What still plays after the step's end (a call whose runner gave up waiting, an episode that ignores its limit) would
run on a sleeping engine, or leave keys and values of the old weights in its prefix cache. `drain` closes the proxy's
gate and aborts what the engines run, until nothing is in flight; agl_plugin.patches.vllm_engine makes verl's drop of
the cache, which follows, fail where it is refused.
Not covered: requests that reach an engine past the proxy; those are aborted, but may come again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray

from agl_plugin.proxy.gate import Gate
from foundation.errors import RunError

DRAIN_LIMIT_S = 30.0


def drain(gate: Gate, abort: Callable[[], int], *, limit_s: float = DRAIN_LIMIT_S) -> int:
    """Close the gate, `abort` until no call is in flight, and tell how many were aborted. RunError after `limit_s`."""
    gate.close()
    deadline, n_aborted = time.monotonic() + limit_s, 0
    while n_left := gate.in_flight:
        n_aborted += abort()
        if time.monotonic() > deadline:
            raise RunError(
                f"{n_left} calls to the model server did not end within {limit_s:.0f} s of the step's end, although "
                "they were aborted: with other weights it would answer them wrongly. Look for what vLLM and the LLM "
                "proxy wait for (train.log), then continue with --resume_checkpoint latest"
            )
        time.sleep(0.02)
    return n_aborted + abort()


def abort_all(servers: Sequence[Any]) -> int:
    """Abort every request in the engines of verl's servers; how many these were."""
    return sum(ray.get([server.__ray_call__.remote(_abort) for server in servers]))


def _abort(server: Any) -> int:
    """In the process of a server, where ray runs it in a thread beside the event loop."""
    loop = server._server_task.get_loop()
    return asyncio.run_coroutine_threadsafe(_aborted(server.engine), loop).result(DRAIN_LIMIT_S)


async def _aborted(engine: Any) -> int:
    left = list(engine.output_processor.request_states)
    await engine.abort(left)
    return len(left)
