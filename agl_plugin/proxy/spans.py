"""What stands in the span of an LLM call, and the order of the spans of an attempt."""

from __future__ import annotations

import time

CALL_SPAN = "raw_gen_ai_request"  # the span of the LLM proxy that holds a call


LOG_PROBS = "log_probs"  # of a choice in it: one number per sampled token (agl_plugin.proxy.llm_proxy)


def next_sequence_id() -> int:
    """Microseconds since 1970: above all earlier ones, and exact in JSON readers that know only floats."""
    return time.time_ns() // 1000
