"""Products of bfloat16 matrices through float32: the same to a rounding as those of kernels for bfloat16."""

from __future__ import annotations

import pytest
import torch
from pytorch_optimizer.optimizer.utils import zero_power_via_newton_schulz_5

from sql_agent.tiny_policy.products import WideProducts


@pytest.mark.parametrize("shape", [(8, 8), (24, 8), (3, 8, 24)])
def test_an_update_of_muon_is_the_same_to_a_rounding(shape: tuple[int, ...]) -> None:
    gradient = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    plain = zero_power_via_newton_schulz_5(gradient)
    with WideProducts():
        wide = zero_power_via_newton_schulz_5(gradient)
    assert wide.dtype is torch.bfloat16
    torch.testing.assert_close(wide, plain, rtol=2**-6, atol=2**-7)


def test_a_product_is_rounded_once_and_written_where_it_is_wanted() -> None:
    left, right = torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(2)).bfloat16()
    exact = left.float() @ right.float()
    wanted = torch.empty_like(left)
    with WideProducts():
        assert torch.equal(torch.mm(left, right), exact.bfloat16())
        assert torch.addmm(left, left, right, beta=2, alpha=0.5, out=wanted) is wanted
        assert torch.mm(left.float(), right.float()).dtype is torch.float32
    assert torch.equal(wanted, (2 * left.float() + 0.5 * exact).bfloat16())
