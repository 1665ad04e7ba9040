"""vLLM's packed linear layer on a CPU: its weight can be changed and packed again, as often as the trainer's is."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agl_plugin.cpu.linear import keeping_weights

pytest.importorskip("vllm")
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")


def layer_of(weight: torch.Tensor) -> Any:
    return SimpleNamespace(weight=torch.nn.Parameter(weight.clone(), requires_grad=False), bias=None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_computes_with_the_weights_that_came_last(dtype: torch.dtype) -> None:
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm as found

    pack = inspect.unwrap(found)  # vLLM may have loaded the patch in this process

    generator = torch.Generator().manual_seed(1)
    first, second, x = (torch.randn(64, 64, generator=generator).to(dtype) for _ in range(3))
    layer, dropped = layer_of(first), layer_of(first)
    pack(dropped, True)
    assert dropped.weight.numel() == 0  # else this patch has no reason any more
    for weight in (first, second):
        layer.weight.data.copy_(weight)
        keeping_weights(pack)(layer, remove_weight=True)
        torch.testing.assert_close(layer.cpu_linear(x, layer.weight, None), x @ weight.t(), rtol=2e-2, atol=1e-2)
    torch.testing.assert_close(layer.weight.data, second)
