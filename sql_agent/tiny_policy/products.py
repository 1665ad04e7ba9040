"""Products of bfloat16 matrices, which Muon takes, through float32 where the CPU has none of its own (AVX2 alone).

torch computes them there one number at a time, four fifths of a tiny policy's warm start. Guarantees: a product is
summed in float32 and rounded once, as kernels for bfloat16 do; only the order of the sum may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

PRODUCTS = {torch.mm, torch.bmm, torch.addmm, torch.baddbmm}


class WideProducts(TorchFunctionMode):
    """Within it, products of bfloat16 matrices are computed in float32."""

    def __torch_function__(
        self, func: Callable[..., Any], _types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in PRODUCTS or args[0].dtype is not torch.bfloat16:
            return func(*args, **kwargs)
        out = kwargs.pop("out", None)
        product = func(*(factor.float() for factor in args), **kwargs)
        return product.bfloat16() if out is None else out.copy_(product)


def fast_products() -> AbstractContextManager[object]:
    """For a block that multiplies bfloat16 matrices on this CPU."""
    return nullcontext() if "AVX512" in torch.backends.cpu.get_cpu_capability() else WideProducts()
