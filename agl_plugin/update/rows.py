"""LLM calls -> training rows: which tokens a row holds, and which of them the policy sampled.

Guarantees: the mask is 1 on exactly the tokens that the policy sampled, so the masked tokens of a rollout are the sum
of its responses. Light to import: plain lists, no tensors. agl_plugin.update.batch makes tensors of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agl_plugin.proxy.tokens import Prompt

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
class Call:
    """One LLM call: what the policy saw, and what it sampled; without tokens where the server told none.

    `log_probs` is the sampler's: one per sampled token, NaN for one that it did not tell, or empty. `finish_reason` is
    that of the chat completions API: `length` where its limit of tokens cut the answer. `facts`: response_id,
    attempt_id, weights_version, started_s, ended_s; None where unknown.
    """

    prompt: Sequence[int] = ()
    sampled: Sequence[int] = ()
    log_probs: Sequence[float] = ()
    finish_reason: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Row:
    """One training row. `mask` and `log_probs` have the length of `response`.

    `mask` is 1 where the policy sampled the token; `log_probs` is the sampler's, NaN where it is unknown. `why` tells
    what kept the row apart from the one before it in its rollout; `last` is the prompt of its last call.
    """

    prompt: list[int]
    why: str = ""
    response: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    last: Sequence[int] = field(default=(), repr=False, compare=False)

    def after(self, n: int) -> list[int]:
        """The tokens so far, without the first n."""
        return self.prompt[n:] + self.response[max(0, n - len(self.prompt)) :]

    def add(self, context: Sequence[int], call: Call) -> None:
        """Append what the environment wrote, then what the policy sampled after it."""
        self.response += [*context, *call.sampled]
        self.mask += [0] * len(context) + [1] * len(call.sampled)
        self.log_probs += [NAN] * len(context) + (list(call.log_probs) or [NAN] * len(call.sampled))
        self.last = call.prompt


def rows_of_calls(calls: Iterable[Call], *, merge: bool, limits: Limits) -> list[Row]:
    """One row per LLM call; with `merge`, calls whose prompt continues the row so far share it.

    A call starts a row of its own when its prompt does not begin with exactly the tokens so far (the chat template
    wrote the history differently from the policy), or when the row would exceed the limit. Of such a later row, the
    part of the prompt that is over the prompt's limit stands before the response, masked.
    """
    rows: list[Row] = []
    for call in calls:
        last = rows[-1] if rows and merge else None
        why = _why_apart(last, call, limits) if last else ""
        if last and not why:
            last.add(call.prompt[len(last.prompt) + len(last.response) :], call)
            continue
        head = limits.prompt_tokens if last else len(call.prompt)
        rows.append(Row(list(call.prompt[:head]), why))
        rows[-1].add(call.prompt[head:], call)
    return rows


def _why_apart(row: Row, call: Call, limits: Limits) -> str:
    """Why `call` cannot continue `row`, or an empty string."""
    so_far = len(row.prompt) + len(row.response)
    prompt = call.prompt
    # What it shares with the call before need not be compared.
    n_known = min(prompt.n_shared, so_far) if isinstance(prompt, Prompt) and prompt.before is row.last else 0
    if list(prompt[n_known:so_far]) != row.after(n_known):
        return PREFIX_MISMATCH
    longer = len(prompt) + len(call.sampled) - len(row.prompt)
    return TOO_LONG if longer > limits.response_tokens else ""
