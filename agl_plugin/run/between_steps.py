"""The change of weights between two steps: no call is under way, and each engine samples with a seed of its own.

What still plays after the step's end (a call whose runner gave up waiting, an episode that ignores its limit) would
run on a sleeping engine, or leave keys and values of the old weights in its prefix cache. `drain` closes the proxy's
gate and aborts what the engines run, until nothing is in flight; agl_plugin.patches.vllm_engine makes verl's drop of
the cache, which follows, fail where it is refused.
Not covered: requests that reach an engine past the proxy; those are aborted, but may come again.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
import torch

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


def seed_of(seed: int, *, step: int, rank: int) -> int:
    """The sampler's seed in a step, for the engine `rank`."""
    return random.Random(f"{seed}/{step}/{rank}").getrandbits(63)


def seed_samplers(replicas: Sequence[Any], *, seed: int, step: int) -> None:
    """Seed the engines of verl's `replicas`, awake: verl's own seed is the same in each run, and in a resumed one.

    A request has none: on a GPU vLLM would draw for each by itself. All ranks of an engine must draw alike.
    """
    seeds = [seed_of(seed, step=step, rank=rank) for rank in range(len(replicas))]
    workers = [(worker, seed) for replica, seed in zip(replicas, seeds, strict=True) for worker in replica.workers]
    ray.get([worker.__ray_call__.remote(_seed, seed) for worker, seed in workers])


def _seed(_worker: Any, seed: int) -> None:
    """In the process of a worker, where vLLM samples; verl gives the update its own random state back."""
    torch.manual_seed(seed)
