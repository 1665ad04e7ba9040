"""Losses that verl does not have, and those of the user: the loss of each token, from what a policy said of it.

Guarantees: a loss here is a function of single tokens, so it cannot depend on how rows were cut into micro batches;
weighing, masking and averaging are done for all of them alike (agl_plugin.update.policy_loss). Exact in float64.
Imports torch alone: `python -m agl_plugin.update.losses MODULE:FUNCTION` tries a loss out before anything is started,
in a process of its own, and prints what is wrong with it.
Formulas: CISPO, MiniMax 2025 (MiniMax-M1, 3.1); MINIRL as AgentCPM-Explore trains with it (OpenBMB 2026).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch

from foundation.modules import import_module

# exp of more would overflow; verl's own losses have the same bound.
MAX_LOG_RATIO = 20.0
# Before what the command line found, after whatever the user's module prints.
FOUND = "problem of the loss: "


@dataclass(frozen=True)
class Tokens:
    """Sampled tokens, each tensor rows x tokens: what the policy says now (with a gradient), what it said before this
    step's updates, and what their rollout was worth. `mask` is False where nothing was sampled."""

    log_probs: torch.Tensor
    old_log_probs: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor
    clip_low: float
    clip_high: float

    @property
    def ratio(self) -> torch.Tensor:
        """How much likelier each token became."""
        return (self.log_probs - self.old_log_probs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()

    @property
    def beyond(self) -> torch.Tensor:
        """Where the ratio is over the bound towards which the advantage would take it further."""
        ratio = self.ratio.detach()
        gain = self.advantages
        return ((ratio > 1 + self.clip_high) & (gain > 0)) | ((ratio < 1 - self.clip_low) & (gain < 0))


TokenLoss = Callable[[Tokens], torch.Tensor]


def kl_penalty(logprob: torch.Tensor, ref_logprob: torch.Tensor, kl_penalty: str) -> torch.Tensor:
    """Each token's estimate of the KL divergence to the reference model, as docs/15 has it and as TRL computes its k3.

    Not bounded: a bound takes the gradient from those tokens that went furthest. Clipping its norm limits it instead.
    """
    d = ref_logprob - logprob
    estimators = {"k1": lambda: -d, "k2": lambda: d.square() / 2, "k3": lambda: d.exp() - 1 - d, "abs": lambda: d.abs()}
    return estimators[kl_penalty]()


def cispo(tokens: Tokens) -> torch.Tensor:
    """The policy gradient, weighed by a clipped ratio that has no gradient of its own: no token is left out."""
    weight = tokens.ratio.detach().clamp(1 - tokens.clip_low, 1 + tokens.clip_high)
    return -weight * tokens.advantages * tokens.log_probs


def minirl(tokens: Tokens) -> torch.Tensor:
    """The policy gradient, weighed by the ratio, without the tokens that PPO would clip."""
    weight = tokens.ratio.detach() * ~tokens.beyond
    return -weight * tokens.advantages * tokens.log_probs


def load(name: str) -> TokenLoss:
    """The function that "module:function" names. Raises ValueError with what is wrong."""
    where, _, function = name.rpartition(":")
    try:
        module = import_module(where)
    except Exception as exc:  # the user's own module may fail in any way
        raise ValueError(f"cannot be imported ({exc!r:.300}). Give an installed module, or a .py file") from exc
    loss: Any = getattr(module, function, None)
    if callable(loss):
        return cast(TokenLoss, loss)
    raise ValueError(f"{where} has no function {function!r}")


def problem_of(name: str) -> str:
    """What is wrong with the user's loss, tried out on two short rows; "" when it gives what a loss must."""
    mask = torch.tensor([[True, True, True], [True, False, False]])
    log_probs = torch.full((2, 3), -1.0).where(mask, 0.0).requires_grad_()
    old = log_probs.detach() - 0.25
    advantages = torch.tensor([[1.0], [-1.0]]) * mask
    try:
        losses = load(name)(Tokens(log_probs, old, advantages, mask, clip_low=0.2, clip_high=0.3))
    except ValueError as exc:
        return str(exc)
    except Exception as exc:  # the user's own function may fail in any way
        return f"raises {exc!r:.300} on two rows of three tokens"
    if not isinstance(losses, torch.Tensor) or losses.shape != log_probs.shape:
        shape = tuple(losses.shape) if isinstance(losses, torch.Tensor) else type(losses).__name__
        return f"gives {shape} for two rows of three tokens; it must give the loss of each token, a tensor of (2, 3)"
    if not losses[mask].isfinite().all():
        return "gives a loss that is not finite"
    return "" if losses.requires_grad else "gives a loss without a gradient; use tokens.log_probs, and no detach of it"


if __name__ == "__main__":
    print(f"{FOUND}{problem_of(sys.argv[1])}")
