"""Linear layers of vLLM on a CPU, whose weights change.

vLLM hands them to oneDNN, packed, and drops what it packed. Here the weight stays beside its packed copy, so that later
weights can be loaded; verl then calls for the packing again (`process_weights_after_loading`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def keeping_weights(dispatch: Callable[..., None]) -> Callable[..., None]:
    """vLLM's `dispatch_cpu_unquantized_gemm`, which never removes a weight."""

    @functools.wraps(dispatch)
    def dispatch_cpu_unquantized_gemm(layer: Any, remove_weight: bool) -> None:
        dispatch(layer, remove_weight=False)

    return dispatch_cpu_unquantized_gemm
