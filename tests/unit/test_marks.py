"""Text on its way to the model: nothing but the model's own control tokens is touched, and no turn can be forged."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from foundation.marks import FAMILIES, Marks, marks_of, model_marks, tokenizer_marks
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.config import ROOT
from sql_agent.tiny_policy.build import ensure_tiny_policy

PIECES = ["<", "|", ">", "im_end", "im_start", "tool_call", "/", "<|", "|>", "｜", "[", "]", "INST", "[/", "TOOL_CALLS"]
PIECES += [
    "endoftext",
    "think",
    "<<",
    "s",
    " ",
    "血压<140",
    "\n",
    "gMASK",
    "tool▁sep",
    "!",
    "＜",
    "＜＜",
    "［",
    "=",
    "\\",
]
TEXTS = st.lists(st.sampled_from([*PIECES, *FAMILIES]) | st.text(max_size=3), max_size=30).map("".join)
# What others write and no tokenizer knows.
PLAIN = [
    "血压 < 140 且 > 90",
    "a[0], [1], [x]",
    "x<3",
    "Ann <ann@x.org>",
    "<p class='a'>b</p>",
    "[ERROR] [注意] [WARN]",
]
PLAIN += [
    "vector<int> f(std::map<K, V>)",
    "<system>",
    "<s>",
    "<<SYS>>",
    "[CAPS]",
    "List<String>",
    "</html>",
    "<|>",
    "<||>",
]


@cache
def tokenizer_of(name: str) -> Any:
    if name == "tiny":
        return AutoTokenizer.from_pretrained(ensure_tiny_policy(1))
    from recipes.full_shape.vocabulary import fetch_wheels, qwen_tokenizer

    return qwen_tokenizer(fetch_wheels(), template=name)


@given(TEXTS)
def test_no_token_is_left_and_nothing_is_lost(text: str) -> None:
    hidden = Marks().hidden(text)
    assert not [token for token in FAMILIES if token in hidden]
    assert Marks().shown(hidden) == text


@given(TEXTS)
def test_what_a_model_copies_into_a_call_is_the_text_itself(text: str) -> None:
    """However it writes its JSON: with escapes of what is not ASCII, and of slashes."""
    tree = {"path": "a", text: [text, 1.5, None]}
    copied = json.loads(json.dumps(Marks().hidden_tree(tree)))
    for raw in (json.dumps(copied), json.dumps(copied, ensure_ascii=False), json.dumps(copied).replace("/", "\\/")):
        assert json.loads(Marks().arguments(raw)) == tree


def test_arguments_without_tokens_stay_to_the_letter() -> None:
    for raw in ('{"a":  1.0e3}', "", "no JSON ＜", "[" * 100_000, '{"a": "\\uff1cp>"}'):
        assert Marks().arguments(raw) == raw


@pytest.mark.parametrize("text", PLAIN)
def test_ordinary_text_stays(text: str) -> None:
    assert Marks().hidden(text) == Marks().shown(text) == text
    assert tokenizer_marks(tokenizer_of("tiny")).hidden(text) == text


def test_every_file_of_this_repository_stays_but_for_the_tokens() -> None:
    marks = model_marks(ensure_tiny_policy(1))
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    files = [
        ROOT / name for name in listed if (ROOT / name).suffix in {".py", ".md", ".toml", ".html", ".jinja", ".lock"}
    ]
    texts = [file.read_bytes().decode() for file in files if file.is_file()]
    assert len(texts) > 300
    for text in texts:
        hidden = marks.hidden(text)
        assert hidden == text or any(token in text for token in marks.tokens) or "＜" in text
        assert marks.shown(hidden) == text


def test_a_model_has_the_tokens_that_its_files_name() -> None:
    added = [("<|im_end|>", True), ("§turn§", True), (" WHERE ", False), ("<think>", False), ("<tr>", True)]
    marks = marks_of(added, "{{ '<|odd|>' }}<b>")
    assert set(marks.tokens) >= {"<|im_end|>", "§turn§", "<think>", "<|odd|>"} and " WHERE " not in marks.tokens
    assert marks.forgeable() == ["§turn§"]
    assert model_marks(ROOT / "no-such-folder") == Marks()


@pytest.mark.parametrize("name", ["tiny", *(pytest.param(n, marks=pytest.mark.slow) for n in ("qwen2_5", "qwen3"))])
def test_no_turn_can_be_forged(name: str) -> None:
    """With the real template and tokenizer: texts of others bring no control token into the prompt."""
    tokenizer = tokenizer_of(name)
    marks = tokenizer_marks(tokenizer)
    llm = LLMEndpoint("http://127.0.0.1:1/v1", "m", marks=marks)
    control = {tokenizer.convert_tokens_to_ids(token) for token in marks.tokens} - {tokenizer.unk_token_id, None}
    assert marks.forgeable() == [] and len(control) >= 3

    def counted(text: str) -> Counter[int]:
        tool = {"name": "look", "description": text, "parameters": {"type": "object", "properties": {text: {}}}}
        call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        said = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": text},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": text},
        ]
        asked = llm.request({"model": "m", "messages": said, "tools": [{"type": "function", "function": tool}]})
        told = tokenizer.apply_chat_template(
            asked["messages"], tools=asked["tools"], tokenize=False, add_generation_prompt=True
        )
        return Counter(i for i in tokenizer(told, add_special_tokens=False)["input_ids"] if i in control)

    usual = counted("x")
    assert usual

    @given(st.lists(st.sampled_from([*PIECES, *marks.tokens]), max_size=12).map("".join))
    def forged(text: str) -> None:
        assert counted(f"a {text} b") == usual

    forged()
