"""vLLM's packed layers on a CPU: their weights can be changed and packed again, as often as the trainer's are."""

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
    # Else this patch has no reason any more; not every CPU packs bfloat16.
    assert dropped.weight.numel() == 0 or dtype == torch.bfloat16
    for weight in (first, second):
        layer.weight.data.copy_(weight)
        keeping_weights(pack)(layer, remove_weight=True)
        torch.testing.assert_close(layer.cpu_linear(x, layer.weight, None), x @ weight.t(), rtol=2e-2, atol=1e-2)
    torch.testing.assert_close(layer.weight.data, second)


def test_a_convolution_is_that_of_the_weights_that_came_last() -> None:
    """With AMX it is packed in its place, and what comes later would not fit."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    pack, generator = inspect.unwrap(dispatch_cpu_unquantized_gemm), torch.Generator().manual_seed(1)
    weights = [torch.randn(64, 1, 4, generator=generator).to(torch.bfloat16) for _ in range(3)]
    layer = layer_of(weights[0])
    layer.weight.weight_loader = lambda parameter, loaded: parameter.data.copy_(loaded)
    keeping_weights(pack)(layer, remove_weight=True)
    for weight in weights[1:]:
        layer.weight.weight_loader(layer.weight, weight)
        for _ in range(2):  # packed again where nothing came
            keeping_weights(pack)(layer, remove_weight=True)
        alone = layer_of(weight)
        pack(alone, True)
        assert torch.equal(layer.weight.data, alone.weight.data)
