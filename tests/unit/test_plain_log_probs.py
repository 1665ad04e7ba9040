"""The short form of log-probabilities: who gets it, what it holds, and how the proxy writes either form down.

vLLM's chat server is the real one; that a training run asks it this way is seen in the smoke test of a step.
"""

from __future__ import annotations

import inspect
import json
import math
from typing import Any

import pytest

from agl_plugin.patches.plain_log_probs import answering_plainly, numbers
from agl_plugin.proxy.llm_proxy import HAS_LOG_PROBS, with_plain_log_probs


@pytest.fixture(scope="module")
def chat() -> Any:
    """vLLM's chat server, as far as wording log-probabilities needs it."""
    serving = pytest.importorskip("vllm.entrypoints.openai.serving_chat")
    server = serving.OpenAIServingChat.__new__(serving.OpenAIServingChat)
    server.return_tokens_as_token_ids = False
    return server


class Tokenizer:
    """Words of a vocabulary of letters."""

    def decode(self, token: int) -> str:
        return chr(97 + token)


def step(**log_probs: float) -> dict[int, Any]:
    """vLLM's own record of one sampled token and its alternatives."""
    logprob = pytest.importorskip("vllm.logprobs").Logprob
    return {int(token[1:]): logprob(value, 1, "") for token, value in log_probs.items()}


def steps() -> list[dict[int, Any]]:
    return [step(_5=-0.5, _7=-9.0), step(_6=-1.25)]


def test_numbers_are_those_of_the_sampled_tokens() -> None:
    assert numbers([5, 6], steps()) == [-0.5, -1.25]
    assert numbers([7, 6], steps()) == [-9.0, -1.25]
    assert numbers([5, 8], [step(_5=-math.inf), None]) == [-9999.0, -9999.0]
    assert numbers([], []) == []
    with pytest.raises(ValueError, match="zip"):
        numbers([5], steps())


def test_only_who_asks_for_the_short_form_gets_it(chat: Any) -> None:
    theirs = inspect.unwrap(type(chat)._create_chat_logprobs)  # vLLM's own, were the plugin loaded here
    ours = answering_plainly(theirs)
    named = {"token_ids": [5, 6], "top_logprobs": steps(), "tokenizer": Tokenizer()}
    short = ours(chat, **named, num_output_top_logprobs=0, return_as_token_id=True)
    assert json.loads(short.model_dump_json()) == {"content": None, "token_log_probs": [-0.5, -1.25]}
    long = theirs(chat, **named, num_output_top_logprobs=0, return_as_token_id=True)
    assert short.token_log_probs == [token.logprob for token in long.content]
    for top, as_ids in ((0, None), (0, False), (1, True)):
        asked = {**named, "num_output_top_logprobs": top, "return_as_token_id": as_ids}
        assert ours(chat, **asked) == theirs(chat, **asked)


def completion(logprobs: Any) -> str:
    return json.dumps({"id": "c", "choices": [{"index": 0, "logprobs": logprobs, "token_ids": [5, 6]}]})


@pytest.mark.parametrize(
    "logprobs",
    [
        {"content": None, "token_log_probs": [-0.5, -1.25]},
        {"content": [{"token": "a", "logprob": -0.5, "bytes": [1]}, {"token": "b", "logprob": -1.25, "bytes": None}]},
    ],
)
def test_the_span_holds_numbers_in_either_form(logprobs: dict[str, Any]) -> None:
    text = completion(logprobs)
    assert HAS_LOG_PROBS.search(text)
    (choice,) = json.loads(with_plain_log_probs(text))["choices"]
    assert choice == {"index": 0, "token_ids": [5, 6], "log_probs": [-0.5, -1.25]}


def test_an_answer_without_log_probabilities_is_not_touched() -> None:
    assert not HAS_LOG_PROBS.search(completion(None))
