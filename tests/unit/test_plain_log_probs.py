"""The short form of log-probabilities: who gets it, what it holds, and how the proxy writes either form down.

vLLM's chat server is replaced by a module of the same names (importing vLLM takes half a minute); that the real one
asks this way is seen in the smoke test of a training step.
"""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from agl_plugin.patches.plain_log_probs import answer_plainly, numbers
from agl_plugin.proxy.llm_proxy import HAS_LOG_PROBS, with_plain_log_probs


def step(**log_probs: float) -> dict[int, Any]:
    return {int(token[1:]): SimpleNamespace(logprob=value) for token, value in log_probs.items()}


def server() -> Any:
    class LogProbs(dict[str, Any]):
        @classmethod
        def model_construct(cls, **values: Any) -> Any:
            return cls(values)

    class Chat:
        def _create_chat_logprobs(self, *_: Any) -> str:
            return "long form"

    module = SimpleNamespace(OpenAIServingChat=Chat, ChatCompletionLogProbs=LogProbs)
    answer_plainly(module)
    return Chat()


STEPS = [step(_5=-0.5, _7=-9.0), step(_6=-1.25)]


def test_numbers_are_those_of_the_sampled_tokens() -> None:
    assert numbers([5, 6], STEPS) == [-0.5, -1.25]
    assert numbers([7, 6], STEPS) == [-9.0, -1.25]
    assert numbers([5, 8], [step(_5=-math.inf), None]) == [-9999.0, -9999.0]
    assert numbers([], []) == []
    with pytest.raises(ValueError, match="zip"):
        numbers([5], STEPS)


def test_only_who_asks_for_the_short_form_gets_it() -> None:
    named = {"token_ids": [5, 6], "top_logprobs": STEPS, "tokenizer": None}
    short = server()._create_chat_logprobs(**named, num_output_top_logprobs=0, return_as_token_id=True)
    assert short == {"content": None, "token_log_probs": [-0.5, -1.25]}
    for top, as_ids in ((0, None), (0, False), (3, True)):
        answer = server()._create_chat_logprobs(**named, num_output_top_logprobs=top, return_as_token_id=as_ids)
        assert answer == "long form"


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
