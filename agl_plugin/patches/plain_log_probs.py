"""Log-probabilities of a chat completion as plain numbers, for who asks vLLM for nothing else.

vLLM writes an object per token (text, bytes, alternatives), which the server, the LLM proxy and its log convert again
and again: +34 % of the proxy's CPU for an answer of 160 tokens. A request with `logprobs`, `top_logprobs` 0 and vLLM's
own `return_tokens_as_token_ids` gets `choices[].logprobs.token_log_probs` instead, one number per sampled token. Every
other request is answered as OpenAI's API says. Where vLLM runs without this, the proxy reads the long form.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

TOKEN_LOG_PROBS = "token_log_probs"
DIGITS = 7
LOWEST = -9999.0  # vLLM's own stand-in for minus infinity, which JSON lacks


def numbers(token_ids: Sequence[int], steps: Sequence[Mapping[int, Any] | None]) -> list[float]:
    """The log-probability of each sampled token; `steps` are vLLM's, token id -> object with `logprob`."""
    found = [step.get(token) if step else None for token, step in zip(token_ids, steps, strict=True)]
    return [round(max(one.logprob, LOWEST), DIGITS) if one else LOWEST for one in found]


def answering_plainly(long_form: Callable[..., Any]) -> Callable[..., Any]:
    """The step of vLLM's chat server that words log-probabilities, in the short form for who asks for it."""

    @functools.wraps(long_form)
    def create(
        self: Any,
        token_ids: Sequence[int],
        top_logprobs: Sequence[Mapping[int, Any] | None],
        tokenizer: Any,
        num_output_top_logprobs: int | None = None,
        return_as_token_id: bool | None = None,
    ) -> Any:
        if num_output_top_logprobs or not return_as_token_id:
            return long_form(self, token_ids, top_logprobs, tokenizer, num_output_top_logprobs, return_as_token_id)
        from vllm.entrypoints.openai.protocol import ChatCompletionLogProbs

        plain: dict[str, Any] = {TOKEN_LOG_PROBS: numbers(token_ids, top_logprobs)}
        # Not validated: vLLM would warn of the unknown field, once per answer.
        return ChatCompletionLogProbs.model_construct(content=None, **plain)

    return create
