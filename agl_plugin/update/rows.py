"""LLM calls -> training rows: which tokens a row holds, and which of them the policy sampled.

Guarantees: the mask is 1 on exactly the tokens that the policy sampled, so the masked tokens of a rollout are the sum
of its responses. Light to import: plain lists, no tensors. agl_plugin.update.batch makes tensors of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

NAN = math.nan

# Why a call did not share the row of the call before it.
PREFIX_MISMATCH = "prefix_mismatch"
TOO_LONG = "too_long"


@dataclass(frozen=True)
class Limits:
    """The widest row: tokens of the prompt, and tokens after it."""

    prompt_tokens: int
    response_tokens: int


@dataclass(frozen=True)
class Turn:
    """One LLM call: what the policy saw, and what it sampled. `log_probs` is the sampler's; NaN where it gave none.

    `finish_reason` is that of the chat completions API: `length` where its limit of tokens cut the answer. So many
    first tokens of the prompt as `n_known` says are known to be those that the turn before it saw and sampled.
    """

    prompt: Sequence[int]
    sampled: list[int]
    log_probs: list[float]
    finish_reason: str = ""
    n_known: int = 0


@dataclass
class Row:
    """One training row. `mask` and `log_probs` have the length of `response`.

    `mask` is 1 where the policy sampled the token; `log_probs` is the sampler's, NaN where it is unknown. `why` tells
    what kept the row apart from the one before it in its rollout.
    """

    prompt: list[int]
    why: str = ""
    response: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)

    def after(self, n: int) -> list[int]:
        """The tokens so far, without the first n."""
        return self.prompt[n:] + self.response[max(0, n - len(self.prompt)) :]

    def add(self, context: Sequence[int], turn: Turn) -> None:
        """Append what the environment wrote, then what the policy sampled after it."""
        self.response += [*context, *turn.sampled]
        self.mask += [0] * len(context) + [1] * len(turn.sampled)
        self.log_probs += [NAN] * len(context) + turn.log_probs


def rows_of_turns(turns: Iterable[Turn], *, merge: bool, limits: Limits) -> list[Row]:
    """One row per LLM call; with `merge`, calls whose prompt continues the row so far share it.

    A call starts a row of its own when its prompt does not begin with exactly the tokens so far (the chat template
    wrote the history differently from the policy), or when the row would exceed the limit. Of such a later row, the
    part of the prompt that is over the prompt's limit stands before the response, masked.
    """
    rows: list[Row] = []
    for turn in turns:
        last = rows[-1] if rows and merge else None
        why = _why_apart(last, turn, limits) if last else ""
        if last and not why:
            last.add(turn.prompt[len(last.prompt) + len(last.response) :], turn)
            continue
        head = limits.prompt_tokens if last else len(turn.prompt)
        rows.append(Row(list(turn.prompt[:head]), why))
        rows[-1].add(turn.prompt[head:], turn)
    return rows


def _why_apart(row: Row, turn: Turn, limits: Limits) -> str:
    """Why `turn` cannot continue `row`, or an empty string."""
    so_far = len(row.prompt) + len(row.response)
    n_known = min(turn.n_known, so_far)
    if list(turn.prompt[n_known:so_far]) != row.after(n_known):
        return PREFIX_MISMATCH
    longer = len(turn.prompt) + len(turn.sampled) - len(row.prompt)
    return TOO_LONG if longer > limits.response_tokens else ""
