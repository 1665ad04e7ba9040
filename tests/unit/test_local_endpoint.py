"""The policy behind an address: what is sampled is the policy's own, and whoever waits at the end holds nothing up."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from contextlib import suppress
from typing import Any

import pytest
import torch

from agl_plugin.update.rows import Turn
from foundation.rollout_keys import AWAITS_GROUP
from sql_agent.local.endpoint import Call, Drawn, PolicyEndpoint, Sampled
from sql_agent.local.rollouts import _keys  # pyright: ignore[reportPrivateUsage]
from sql_agent.local.sampling import Sampler
from tests.fsdp_shards import policy


@pytest.mark.parametrize("drawn", [Drawn(), Drawn(1.0)])
def test_the_folders_sampling_does_not_bend_what_is_drawn(drawn: Drawn, tokenizer: Any) -> None:
    """Qwen2.5's generation_config.json has a repetition_penalty of 1.1 and a top_k of 20."""
    model = policy(len(tokenizer))

    def sampled() -> list[tuple[list[int], bool]]:
        torch.manual_seed(1)
        call: Any = Call("r", tokenizer("用法用量", add_special_tokens=False)["input_ids"], 24, drawn, answer=None)  # pyright: ignore
        return Sampler(model, tokenizer, max_batch=1).answers([call])

    expected = sampled()
    model.generation_config.update(repetition_penalty=1.9, no_repeat_ngram_size=1, top_k=2, min_p=0.99, do_sample=True)
    assert sampled() == expected


def test_an_error_leaves_the_block_while_a_call_waits(tokenizer: Any) -> None:
    def ask(address: str) -> None:
        body = json.dumps({"messages": [{"role": "user", "content": "?"}]}).encode()
        with suppress(OSError):
            urllib.request.urlopen(f"{address}/chat/completions", body)

    with (
        pytest.raises(RuntimeError, match="out of memory"),
        PolicyEndpoint(tokenizer, context_tokens=512, max_tokens=8) as endpoint,
    ):
        threading.Thread(target=ask, args=(endpoint.of_rollout("r").base_url,), daemon=True).start()
        while not endpoint.take(playing=1):
            time.sleep(0.01)
        raise RuntimeError("out of memory")


def test_a_rollout_that_its_group_will_judge_has_not_failed() -> None:
    of = {
        why: _keys("r", 0, Sampled([Turn([1], [2], [0.0])]), {"unscored": why}, 1, "train")["status"]
        for why in ("", AWAITS_GROUP, "llm_fault")
    }
    assert list(of.values()) == ["succeeded", "succeeded", "failed"]
