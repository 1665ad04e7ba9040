"""Tokenizer and chat template of the tiny policy: names, round trips, and prompts that continue one another."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from sql_agent.tiny_policy.corpus import Corpus
from sql_agent.tiny_policy.demos import TOOL_NAME, TOOLS, Message
from sql_agent.tiny_policy.sql_task import lesson_of
from sql_agent.tiny_policy.tokenizer import SQL_FRAMES, TOOL_MARKS, cjk_inventory, train_tokenizer

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
MANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def encode(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def render(tokenizer: PreTrainedTokenizerFast, messages: list[Message], *, prompt: bool = False) -> str:
    tools: list[Any] = TOOLS
    return str(tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=prompt, tokenize=False))


def call_message(arguments: Any) -> Message:
    call = {"type": "function", "function": {"name": TOOL_NAME, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def test_every_bundled_character_column_and_frame_is_one_token(
    corpus: Corpus, tokenizer: PreTrainedTokenizerFast
) -> None:
    columns = [column for table in corpus.tables for column in [table.table, table.key, *table.labels]]
    pieces = [*cjk_inventory(corpus.texts), *columns, *TOOL_MARKS, *SQL_FRAMES]
    assert [piece for piece in pieces if len(encode(tokenizer, piece)) != 1] == []


def test_sizes_stay_small(corpus: Corpus, tokenizer: PreTrainedTokenizerFast) -> None:
    assert len(tokenizer) < 3500
    assert len(encode(tokenizer, corpus.system_prompt)) <= 35


def test_training_twice_gives_the_same_tokenizer(corpus: Corpus, tokenizer: PreTrainedTokenizerFast) -> None:
    again = train_tokenizer(lesson_of(corpus).texts)
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()


@MANY
@given(text=TEXTS)
def test_any_text_survives_encoding(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(encode(tokenizer, text)) == text


@MANY
@given(sql=TEXTS)
def test_a_later_prompt_continues_what_the_policy_emitted(tokenizer: PreTrainedTokenizerFast, sql: str) -> None:
    asked: list[Message] = [{"role": "system", "content": "依据查询结果作答。"}, {"role": "user", "content": "剂型？"}]
    arguments = json.dumps({"sql": sql}, ensure_ascii=False)
    emitted = f'<tool_call>\n{{"name": "{TOOL_NAME}", "arguments": {arguments}}}\n</tool_call><|im_end|>'
    spoken = encode(tokenizer, render(tokenizer, asked, prompt=True) + emitted)
    result = {"role": "tool", "content": '{"status": "success", "records": [], "count": 0}'}
    # vLLM parses the arguments before it renders, transformers leaves them as text.
    for sent in (arguments, {"sql": sql}):
        later = render(tokenizer, [*asked, call_message(sent), result], prompt=True)
        assert encode(tokenizer, later)[: len(spoken)] == spoken


def test_template_covers_system_tools_results_and_answers(tokenizer: PreTrainedTokenizerFast) -> None:
    two_results = [{"role": "tool", "content": "甲"}, {"role": "tool", "content": "乙"}]
    messages = [{"role": "user", "content": "问"}, call_message({"sql": "SELECT 1"}), *two_results]
    assert render(tokenizer, [*messages, {"role": "assistant", "content": "答"}]) == (
        "<|im_start|>system\n\n工具：query_database_by_sql(sql)<|im_end|>\n"
        "<|im_start|>user\n问<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "query_database_by_sql", "arguments": {"sql": "SELECT 1"}}\n'
        "</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n甲\n</tool_response>\n<tool_response>\n乙\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n答<|im_end|>\n"
    )
