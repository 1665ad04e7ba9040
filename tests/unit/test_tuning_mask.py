"""What is supervised is what GRPO trains: rows of recorded rollouts against the batch of the same rollouts' spans.

The episodes are played by the real agent against a local server, through the tiny policy's chat template and vLLM's
tool parser; their spans go through the adapter and the batch of GRPO, and their records through rollouts.jsonl's form.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from agl_plugin.update.adapter import scored_calls
from agl_plugin.update.batch import build_batch
from foundation.errors import UserError
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.sql_tool import QUERY
from sql_agent.config import TrainConfig, build_config, data_path
from sql_agent.data.dataset import load_questions
from sql_agent.records import Question, Reward, rollout_record
from sql_agent.testing.server import openai_server
from sql_agent.tuning.agent_chats import AgentChats
from sql_agent.tuning.chats import chat_of
from sql_agent.tuning.encoding import Encoded, Encoder
from tests.spans import llm_call, reward_span
from tests.template_policy import TemplatePolicy

Tokens = list[tuple[list[int], list[int]]]  # ids and mask of each row
QUICK, WHOLE = 60, 500


@pytest.fixture(scope="module")
def config() -> TrainConfig:
    return build_config({"agent": {"system_prompt": "system_short", "max_turns": 6}})


def call(sql: str) -> str:
    arguments = json.dumps({"sql": sql}, ensure_ascii=False)
    return f'<tool_call>\n{{"name": "{QUERY}", "arguments": {arguments}}}\n</tool_call>'


def script(question: Question, rng: random.Random) -> list[str]:
    """What a policy may say: no call, one, several, one that fails, two at once, words before a call."""
    sql = question.sql[0]
    more = [call("SELECT med_name FROM drugs_info LIMIT 2"), call("SELEC 1"), call(f"{sql} LIMIT 1")]
    kinds = [[], [call(sql)], [rng.choice(more), call(sql)], rng.sample(more, 3)]
    kinds += [[f"先查询。\n{call(sql)}"], [f"{call(sql)}\n{rng.choice(more)}"], [call("")]]
    return [*rng.choice(kinds), question.answer]


def played(config: TrainConfig, tokenizer: Any, n: int) -> Iterator[tuple[TemplatePolicy, dict[str, Any]]]:
    """The policy of each episode with what it saw and said, and the line of rollouts.jsonl."""
    rng = random.Random(3)
    questions = load_questions(data_path(config.data.train_file))[:n]
    policies = {q.question: TemplatePolicy(tokenizer, script(q, rng)) for q in questions}

    def answer(request: dict[str, Any]) -> Any:
        return policies[request["messages"][1]["content"]](request)

    async def play_all(runner: EpisodeRunner, llm: LLMEndpoint) -> list[dict[str, Any]]:
        episodes = [await runner.run(question, llm) for question in questions]
        reward = Reward(total=1.0, parts={"answer": 1.0})
        return [rollout_record(e.question, e, reward).model_dump(mode="json") for e in episodes]

    with EpisodeRunner(config) as runner, openai_server(answer) as server:
        records = asyncio.run(play_all(runner, LLMEndpoint(base_url=server.base_url, model="fake-model")))
    assert len(records) == n
    yield from zip(policies.values(), records, strict=True)


def grpo_rows(policy: TemplatePolicy, *, merge: bool) -> Tokens:
    """Rows of the batch that GRPO makes of the rollout's spans."""
    calls = [(list(call.prompt), list(call.sampled)) for call in policy.calls]
    spans = [llm_call(prompt, sampled, seq=n + 1) for n, (prompt, sampled) in enumerate(calls)]
    spans.append(reward_span(1.0, seq=len(spans) + 1, n_calls=len(spans)))
    rollout = ("q", 1.0, scored_calls(spans))
    limits: dict[str, Any] = {"max_prompt_tokens": 4096, "max_response_tokens": 4096, "pad_id": 0}
    data = build_batch({"r": rollout}, merge=merge, **limits).data.batch
    assert data is not None
    rows = []
    for n in range(len(data)):
        there = data["attention_mask"][n].bool()
        mask = torch.cat([torch.zeros_like(data["prompts"][n]), data["response_mask"][n]])
        rows.append((data["input_ids"][n][there].tolist(), mask[there].tolist()))
    return rows


def compare(config: TrainConfig, tokenizer: Any, n: int) -> int:
    """Compare n transcripts at both row levels; returns the supervised tokens."""
    encoder, tokens, lengths = Encoder(tokenizer), 0, set()
    with AgentChats(config) as agent:
        for policy, record in played(config, tokenizer, n):
            chat = agent.of_rollout(record)
            for merge in (True, False):
                mine = [Encoded.of(row) for row in encoder.rows(chat, merge=merge)]
                assert [(row.ids, row.mask) for row in mine] == grpo_rows(policy, merge=merge), record["question"]
            tokens += sum(sum(row.mask) for row in encoder.rows(chat))
            lengths.add(len(policy.calls))
    assert lengths == {1, 2, 3, 4}
    return tokens


@pytest.mark.long
def test_the_supervised_tokens_are_those_of_grpos_mask(config: TrainConfig, tokenizer: Any) -> None:
    assert compare(config, tokenizer, QUICK) > 20 * QUICK


@pytest.mark.slow
def test_the_supervised_tokens_of_500_transcripts_are_those_of_grpos_mask(config: TrainConfig, tokenizer: Any) -> None:
    tokens = compare(config, tokenizer, WHOLE)
    print(f"\n{WHOLE} transcripts, {tokens} supervised tokens, all as in response_mask")
    assert tokens > 20 * WHOLE


ASK = [{"role": "user", "content": "问"}]
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]}


def test_turns_of_a_template_that_rewrites_its_history_are_rows_of_their_own(tokenizer: Any) -> None:
    """As templates do that drop earlier thoughts: the first answer is shown in short once it is history."""
    template = tokenizer.chat_template
    rewriting = template.replace(
        "(message.content or '') -}}", "(message.content or '')[:1 if not loop.last else 99] -}}", 1
    )
    assert rewriting != template
    tokenizer.chat_template = rewriting
    try:
        chat = chat_of([*ASK, {"role": "assistant", "content": "第一"}, *ASK, {"role": "assistant", "content": "第二"}])
        first, second = (Encoded.of(row) for row in Encoder(tokenizer).rows(chat))
    finally:
        tokenizer.chat_template = template
    said = [tokenizer.decode([i for i, on in zip(row.ids, row.mask, strict=True) if on]) for row in (first, second)]
    assert said == ["第一<|im_end|>", "第二<|im_end|>"]
    assert "第一" not in tokenizer.decode(second.ids)


def test_a_template_that_does_not_continue_its_prompt_is_refused(tokenizer: Any) -> None:
    template = tokenizer.chat_template
    tokenizer.chat_template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}" + (
        "{% if add_generation_prompt %}<answer>{% endif %}"
    )
    try:
        with pytest.raises(UserError, match="Use a template whose answers begin with its generation prompt"):
            Encoder(tokenizer).rows(chat_of([*ASK, {"role": "assistant", "content": "答"}]))
    finally:
        tokenizer.chat_template = template


def test_only_the_assistant_is_supervised(tokenizer: Any) -> None:
    tool = {"role": "tool", "content": '{"status": "success"}'}
    chat = chat_of([*ASK, CALL, tool, {"role": "assistant", "content": "答"}])
    (row,) = (Encoded.of(row) for row in Encoder(tokenizer).rows(chat))
    said = tokenizer.decode([i for i, on in zip(row.ids, row.mask, strict=True) if on])
    assert said == '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call><|im_end|>答<|im_end|>'


def test_a_message_of_weight_0_is_read_and_not_supervised(tokenizer: Any) -> None:
    first, second = ({"role": "assistant", "content": text} for text in ("错", "答"))
    chat = chat_of([*ASK, {**first, "weight": 0}, *ASK, second])
    (row,) = (Encoded.of(row) for row in Encoder(tokenizer).rows(chat))
    assert "错" in tokenizer.decode(row.ids)
    assert tokenizer.decode([i for i, on in zip(row.ids, row.mask, strict=True) if on]) == "答<|im_end|>"
