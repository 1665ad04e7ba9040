"""Rows of a model that thinks, or was told not to: real episodes through a real tokenizer and chat template.

The small template does with thoughts what Qwen3's does; Qwen3's own text, with its own vocabulary, is slow to fetch.
"""

from __future__ import annotations

import asyncio
import json
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from agentlightning.types import Triplet

from agl_plugin.update.adapter import ScoredTriplets
from agl_plugin.update.batch import Batch, build_batch
from benchmarks.support.actor import actor_of, as_planned, flat_weights, one_rank, tiny_model, with_advantages
from benchmarks.support.server import openai_server
from benchmarks.support.spans import llm_call, reward_span
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import build_config
from sql_agent.records import Question
from tests.template_policy import TemplatePolicy

pytestmark = pytest.mark.filterwarnings("ignore:In CPU autocast")
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
        {{- said }}
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
TOOL = '''
def look(n: int) -> str:
    """Look a number up."""
    return f"the value of {n} is {n * n}"
'''
TALK = """
import openai

async def play(question, endpoint, tools):
    said = []
    async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key="x", max_retries=0) as client:
        for word in question.question.split():
            said.append({"role": "user", "content": word})
            reply = await client.chat.completions.create(model="m", messages=said)
            said.append({"role": "assistant", "content": reply.choices[0].message.content})
    return said[-1]["content"]
"""
THOUGHT = "<think>\nI look it up.\n</think>\n\n"
ANSWER = "That is all."


def small_tokenizer() -> Any:
    from sql_agent.tiny_policy.tokenizer import train_tokenizer

    tokenizer = train_tokenizer([SMALL, TOOL, THOUGHT, ANSWER, "look up 1 2 3 4 5 6 7 8 9"])
    tokenizer.chat_template = SMALL
    return tokenizer


def qwen_tokenizer() -> Any:
    from recipes.full_shape.vocabulary import fetch_wheels
    from recipes.full_shape.vocabulary import qwen_tokenizer as made

    return made(fetch_wheels())


@pytest.fixture(scope="module", params=["small", pytest.param("qwen3", marks=pytest.mark.slow)])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return small_tokenizer() if request.param == "small" else qwen_tokenizer()


@pytest.fixture(scope="module", autouse=True)
def rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with one_rank(tmp_path_factory.mktemp("gloo")):
        yield


def tool_calls(n_turns: int, *, thought: str) -> list[str]:
    """What the policy says in an episode of so many calls."""
    bodies = [json.dumps({"name": "look", "arguments": {"n": n}}) for n in range(n_turns - 1)]
    return [f"{thought}<tool_call>\n{body}\n</tool_call>" for body in bodies] + [thought + ANSWER]


def played(
    tokenizer: Any, texts: Sequence[str], folder: Path, *, thinks: bool, words: str = "", reward: float = 1.0
) -> list[Triplet]:
    """An episode as the adapter gives it; with `words`, which a user says one by one, an episode of one's own."""
    (folder / "tool.py").write_text(TOOL, encoding="utf-8")
    (folder / "talk.py").write_text(textwrap.dedent(TALK), encoding="utf-8")
    agent: dict[str, Any] = {"tools": [str(folder / "tool.py")], "system_prompt": "tools", "max_turns": 9}
    agent |= {} if thinks else {"chat_template_kwargs": {"enable_thinking": False}}
    agent |= {"episode": f"{folder / 'talk.py'}:play"} if words else {}
    policy = TemplatePolicy(tokenizer, texts)
    with EpisodeRunner(build_config({"agent": agent})) as runner, openai_server(policy) as server:
        question = Question(id="q", question=words or "Look them up.")
        episode = asyncio.run(runner.run(question, LLMEndpoint(server.base_url, "m")))
    assert episode.stop_reason == "answered" and len(policy.triplets) == len(texts) == episode.n_turns
    calls = [(call.prompt["token_ids"], call.response["token_ids"]) for call in policy.triplets]
    spans = [llm_call(prompt, sampled, seq=n) for n, (prompt, sampled) in enumerate(calls, start=1)]
    return ScoredTriplets().adapt([*spans, reward_span(reward, seq=99, n_calls=len(calls))])


def batch_of(rollouts: Sequence[list[Triplet]], *, merge: bool = True) -> Batch:
    """One group, whose rewards differ."""
    group = {f"r{n}": ("q", n / 4, calls) for n, calls in enumerate(rollouts)}
    limits = {"max_prompt_tokens": 4096, "max_response_tokens": 8192, "pad_id": 0}
    return build_batch(group, merge=merge, device=torch.device("cpu"), **limits)


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


def sampled(rollouts: Sequence[list[Triplet]]) -> Counter[Any]:
    """The same, of the calls."""
    tokens: Counter[Any] = Counter()
    for n, calls in enumerate(rollouts):
        for call in calls:
            prompt, said = call.prompt["token_ids"], call.response["token_ids"]
            tokens.update((f"r{n}", (*prompt, *said[:k]), said[k]) for k in range(len(said)))
    return tokens


def narrowed(rollouts: Sequence[list[Triplet]]) -> tuple[list[list[Triplet]], int]:
    """The same rollouts in as few words as they use, for a tiny model; and how many those are."""
    every = [ids for calls in rollouts for c in calls for ids in (c.prompt["token_ids"], c.response["token_ids"])]
    number = {token: n for n, token in enumerate(sorted({token for ids in every for token in ids}), start=1)}

    def renamed(ids: Any) -> dict[str, Any]:
        return {"token_ids": [number[token] for token in ids["token_ids"]]}

    made = [
        [c.model_copy(update={"prompt": renamed(c.prompt), "response": renamed(c.response)}) for c in calls]
        for calls in rollouts
    ]
    return made, len(number) + 1


def moved(rollouts: Sequence[list[Triplet]], *, merge: bool) -> torch.Tensor:
    """How verl's actor moves a tiny model in one update."""
    few, vocabulary = narrowed(rollouts)
    model = tiny_model(vocabulary=vocabulary)
    before = flat_weights(model)
    data = as_planned(with_advantages(batch_of(few, merge=merge).data))
    actor_of(model, micro_rows=2).update_policy(data=data)
    return flat_weights(model) - before


def assert_exact(rollouts: Sequence[list[Triplet]]) -> None:
    """Every sampled token once, after what the model saw; and the update of one row per call."""
    batch = batch_of(rollouts)
    assert trained(batch) == sampled(rollouts) and batch.metrics["batch/trained_over_sampled"] == 1
    together, apart = moved(rollouts, merge=True), moved(rollouts, merge=False)
    assert apart.norm() > 1e-3 and ((together - apart).norm() / apart.norm()).item() < 1e-5


def test_with_thinking_off_each_rollout_is_one_row(tokenizer: Any, tmp_path: Path) -> None:
    rollouts = [played(tokenizer, tool_calls(n, thought=""), tmp_path, thinks=False) for n in range(2, 9)]
    metrics = batch_of(rollouts).metrics
    assert metrics["batch/merged_share"] == 1.0 and metrics["batch/rows"] == 7 and metrics["batch/calls"] == 35
    first = tokenizer.decode(rollouts[0][0].prompt["token_ids"])
    assert first.endswith("<think>\n\n</think>\n\n")
    assert_exact(rollouts[:3])


def test_thoughts_since_the_question_are_kept_and_merge(tokenizer: Any, tmp_path: Path) -> None:
    rollouts = [played(tokenizer, tool_calls(n, thought=THOUGHT), tmp_path, thinks=True) for n in (2, 5, 8)]
    assert batch_of(rollouts).metrics["batch/merged_share"] == 1.0
    assert_exact(rollouts[:2])


def test_thoughts_that_are_dropped_split_the_rows_exactly(tokenizer: Any, tmp_path: Path) -> None:
    """A user who speaks again: the template forgets what was thought before."""
    words = {2: "one two", 4: "one two three four"}
    rollouts = [played(tokenizer, [THOUGHT + ANSWER] * n, tmp_path, thinks=True, words=w) for n, w in words.items()]
    metrics = batch_of(rollouts).metrics
    assert metrics["batch/rows"] == 6 and metrics["batch/unmerged_prefix_mismatch"] == 4
    assert_exact(rollouts)


def test_a_thought_may_be_left_out_in_between(tokenizer: Any, tmp_path: Path) -> None:
    calls = tool_calls(3, thought="")
    said = [[THOUGHT + calls[0], calls[1], THOUGHT + calls[2]], [calls[0], THOUGHT + calls[2]]]
    assert_exact([played(tokenizer, texts, tmp_path, thinks=True) for texts in said])
