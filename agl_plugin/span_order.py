"""Sequence ids of spans.

agent-lightning asks the store for each one, which costs a request per LLM call and per rollout: half of what the store
has to do. An attempt's spans are made one after the other, so that the clock orders them as well.
"""

from __future__ import annotations

import time


def next_sequence_id() -> int:
    """Microseconds since 1970: above all earlier ones, and exact in JSON readers that know only floats."""
    return time.time_ns() // 1000
