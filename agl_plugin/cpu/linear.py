"""Linear layers and convolutions of vLLM on a CPU, whose weights change.

vLLM hands linear layers to oneDNN, packed, and drops what it packed. Here the weight stays beside its packed copy, so
that later weights can be loaded; verl then calls for the packing again (`process_weights_after_loading`). Short
convolutions (Qwen3.5's) it packs in their place, where the CPU has AMX: they get their shape back as weights come.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def keeping_weights(dispatch: Callable[..., None]) -> Callable[..., None]:
    """vLLM's `dispatch_cpu_unquantized_gemm`, after which weights can be loaded."""

    @functools.wraps(dispatch)
    def dispatch_cpu_unquantized_gemm(layer: Any, remove_weight: bool) -> None:
        shape, shape_to_load = layer.weight.shape, getattr(layer.weight, "shape_to_load", None)
        if shape_to_load is not None and shape != shape_to_load:
            return  # it is packed, and nothing came since
        dispatch(layer, remove_weight=False)
        if shape_to_load is None and layer.weight.shape != shape:
            layer.weight.shape_to_load = shape
            layer.weight.weight_loader = _unpacking(layer.weight.weight_loader, shape)

    return dispatch_cpu_unquantized_gemm


def _unpacking(load: Callable[..., None], shape: Any) -> Callable[..., None]:
    def load_unpacked(parameter: Any, loaded: Any, *args: Any, **kwargs: Any) -> None:
        if parameter.shape != shape:
            parameter.data = parameter.data.new_empty(shape)
        load(parameter, loaded, *args, **kwargs)

    return load_unpacked
