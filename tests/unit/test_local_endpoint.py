"""The policy behind an address: what is sampled is the policy's own, and whoever waits at the end holds nothing up."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

from agl_plugin.update import rows
from foundation.rollout_keys import AWAITS_GROUP
from foundation.seeds import derived
from sql_agent.agent.endpoint import Drawn
from sql_agent.local.endpoint import QUIET_S, Call, Generated, PolicyEndpoint
from sql_agent.local.rollouts import _keys  # pyright: ignore[reportPrivateUsage]
from sql_agent.local.sampling import Sampler
from tests.fsdp_shards import policy
from tests.unit.test_qwen3_5 import TEXT, VISION

FREE = Drawn(temperature=1.0)


def call_of(tokenizer: Any, text: str, *, seed: int = 1, sampling: Drawn = FREE, max_tokens: int = 24) -> Call:
    nobody: Any = None
    return Call("r", tokenizer(text, add_special_tokens=False)["input_ids"], max_tokens, sampling, seed, nobody)


def ids_of(answers: list[Generated]) -> list[list[int]]:
    return [one.ids for one in answers]


def ask(address: str) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "?"}]}).encode()
    with suppress(OSError):
        urllib.request.urlopen(f"{address}/chat/completions", body)


def asking(address: str) -> None:
    threading.Thread(target=ask, args=(address,), daemon=True).start()


@pytest.mark.parametrize("drawn", [Drawn(), Drawn(temperature=1.0)])
def test_the_folders_sampling_does_not_bend_what_is_drawn(drawn: Drawn, tokenizer: Any) -> None:
    """Qwen2.5's generation_config.json has a repetition_penalty of 1.1 and a top_k of 20."""
    model = policy(len(tokenizer))

    def sampled() -> list[list[int]]:
        return ids_of(Sampler(model, tokenizer, max_batch=1).answers([call_of(tokenizer, "用法用量", sampling=drawn)]))

    expected = sampled()
    model.generation_config.update(repetition_penalty=1.9, no_repeat_ngram_size=1, top_k=2, min_p=0.99, do_sample=True)
    assert sampled() == expected


def test_an_error_leaves_the_block_while_a_call_waits(tokenizer: Any) -> None:
    with (
        pytest.raises(RuntimeError, match="out of memory"),
        PolicyEndpoint(tokenizer, context_tokens=512, max_tokens=8) as endpoint,
    ):
        endpoint.begin(["r"])
        asking(endpoint.of_rollout("r").base_url)
        while not endpoint.take()[0]:
            time.sleep(0.01)
        raise RuntimeError("out of memory")


def test_a_rollout_that_its_group_will_judge_has_not_failed() -> None:
    of = {
        why: _keys("r", [rows.Call([1], [2], [0.0])], {"unscored": why}, {})["status"]
        for why in ("", AWAITS_GROUP, "llm_fault")
    }
    assert list(of.values()) == ["succeeded", "succeeded", "failed"]


def test_a_call_draws_the_same_whatever_is_sampled_beside_it(tokenizer: Any) -> None:
    """Other prompts, lengths, seeds and kinds of sampling beside it, and torch's own numbers."""
    sampler = Sampler(policy(len(tokenizer)), tokenizer, max_batch=3)
    one = call_of(tokenizer, "用法用量", max_tokens=6)
    asked = [(n, Drawn(temperature=0.5 * (n % 2), top_k=7)) for n in range(1, 4)]
    others = [call_of(tokenizer, "用法" * n, seed=n, sampling=how, max_tokens=5) for n, how in asked]
    alone = ids_of(sampler.answers([one]))
    torch.manual_seed(1)
    assert ids_of(sampler.answers([*others, one]))[-1:] == ids_of(sampler.answers([one, *others]))[:1] == alone
    assert ids_of(sampler.answers([call_of(tokenizer, "用法用量", seed=2, max_tokens=6)])) != alone


def of_delta_nets(vocabulary: int) -> Any:
    torch.manual_seed(0)
    config = Qwen3_5Config(
        text_config={**TEXT, "vocab_size": vocabulary}, vision_config=VISION, tie_word_embeddings=True
    )
    return Qwen3_5ForConditionalGeneration(config).float()


@pytest.mark.long
@pytest.mark.parametrize("made", [policy, of_delta_nets])
def test_prompts_of_a_group_are_read_once_and_rows_that_ended_are_dropped(made: Any, tokenizer: Any) -> None:
    model, texts = made(len(tokenizer)), ("用法用量", "不良反应", "储藏条件是什么")
    calls = [
        call_of(tokenizer, text, seed=10 * seed + len(text), max_tokens=40 if seed == 3 else 4 + seed)
        for seed in range(4)
        for text in texts
    ]
    rows = list[int]()
    hook = model.get_input_embeddings().register_forward_hook(lambda _module, _args, output: rows.append(len(output)))
    together = Sampler(model, tokenizer, max_batch=12, log_probs=True).answers(calls)
    assert rows[0] == len(texts) and rows[1] == len(calls) and rows[-1] <= len(texts)
    hook.remove()
    for answer, call in zip(together, calls, strict=True):
        (alone,) = Sampler(model, tokenizer, max_batch=1, log_probs=True).answers([call])
        assert (answer.ids, answer.ended) == (alone.ids, alone.ended) and len(answer.ids) == len(answer.log_probs)
        assert answer.log_probs == pytest.approx(alone.log_probs, abs=1e-4)


def test_first_tokens_come_as_often_as_they_are_likely(tokenizer: Any) -> None:
    model, sampling = policy(len(tokenizer)), Drawn(temperature=0.7, top_p=0.9, top_k=8)
    calls = [call_of(tokenizer, "用法", seed=derived(n), sampling=sampling, max_tokens=1) for n in range(3000)]
    answers = Sampler(model, tokenizer, max_batch=3000, log_probs=True).answers(calls)
    found = [one.ids[0] for one in answers]
    with torch.no_grad():
        logits = model(torch.tensor([calls[0].prompt])).logits[0, -1].double() / 0.7
    kept = torch.topk(logits, 8)
    probs = kept.values.softmax(-1)
    probs = probs[: int((probs.cumsum(-1) < 0.9).sum()) + 1]
    counts = torch.tensor([found.count(int(token)) for token in kept.indices[: len(probs)]])
    assert counts.sum() == 3000 and chisquare(counts, 3000 * probs / probs.sum()).pvalue > 1e-3
    likely = dict(zip(kept.indices.tolist(), (probs / probs.sum()).log().tolist(), strict=False))
    assert [one.log_probs for one in answers] == [[pytest.approx(likely[token], abs=1e-4)] for token in found]


def test_penalties_lower_what_was_sampled_and_not_the_prompt(tokenizer: Any) -> None:
    """Against OpenAI's formula, token by token, on a model of its own logits."""
    model, how = policy(len(tokenizer)), Drawn(presence_penalty=0.7, frequency_penalty=0.9)
    call = call_of(tokenizer, "用法用量", sampling=how, max_tokens=12)
    (answer,) = Sampler(model, tokenizer, max_batch=1).answers([call])
    for place, token in enumerate(answer.ids):
        with torch.no_grad():
            logits = model(torch.tensor([[*call.prompt, *answer.ids[:place]]])).logits[0, -1]
        for said in set(answer.ids[:place]):
            logits[said] -= 0.7 + 0.9 * answer.ids[:place].count(said)
        assert int(logits.argmax()) == token
    plain = call_of(tokenizer, "用法用量", sampling=Drawn(), max_tokens=12)
    assert ids_of(Sampler(model, tokenizer, max_batch=1).answers([plain])) != [answer.ids]


def waiting(endpoint: PolicyEndpoint, n: int) -> list[str]:
    """Until `n` calls wait."""
    while len(endpoint._waiting) < n:
        time.sleep(0.005)
    return [call.rollout for call in endpoint._waiting]


def test_calls_are_answered_in_rounds_in_the_order_of_the_rollouts(tokenizer: Any) -> None:
    with PolicyEndpoint(tokenizer, context_tokens=512, max_tokens=8) as endpoint:
        endpoint.begin(["a", "b", "c"])
        asking(endpoint.of_rollout("c").base_url)
        waiting(endpoint, 1)
        asking(endpoint.of_rollout("a").base_url)
        assert waiting(endpoint, 2) == ["c", "a"] and endpoint.take() == ([], True)  # b may still ask
        asking(endpoint.of_rollout("b").untrained_url)
        waiting(endpoint, 3)
        taken, _ = endpoint.take()
        assert [(call.rollout, call.trained) for call in taken] == [("a", True), ("b", False), ("c", True)]
        assert endpoint.take() == ([], False)


def test_nobody_waits_for_a_rollout_that_is_over_and_it_gets_no_answer(tokenizer: Any) -> None:
    with PolicyEndpoint(tokenizer, context_tokens=512, max_tokens=8) as endpoint:
        endpoint.begin(["a", "b"])
        for rollout in ("a", "b"):
            asking(endpoint.of_rollout(rollout).base_url)
        waiting(endpoint, 2)
        endpoint.over("a")
        assert [call.rollout for call in endpoint.take()[0]] == ["b"]
        with pytest.raises(urllib.error.HTTPError, match="410"):
            body = json.dumps({"messages": [{"role": "user", "content": "?"}]}).encode()
            urllib.request.urlopen(f"{endpoint.of_rollout('a').base_url}/chat/completions", body)


def test_without_patience_those_that_ask_are_answered(tokenizer: Any) -> None:
    with PolicyEndpoint(tokenizer, context_tokens=512, max_tokens=8) as endpoint:
        endpoint.begin(["hangs", "asks"])
        asking(endpoint.of_rollout("asks").base_url)
        waiting(endpoint, 1)
        assert endpoint.take() == ([], True)
        time.sleep(QUIET_S)
        assert [call.rollout for call in endpoint.take(all_of_them=False)[0]] == ["asks"]
