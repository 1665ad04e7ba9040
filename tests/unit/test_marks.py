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
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from foundation.chat_template import plain_message
from foundation.marks import FAMILIES, Added, Marks, marks_of, model_marks, tokenizer_marks
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.config import ROOT
from sql_agent.tiny_policy.build import ensure_tiny_policy

PARTS = """
< | > im_end im_start tool_call / <| |> ｜ [ ] INST [/ TOOL_CALLS endoftext think << s 血压<140 gMASK tool▁sep ! ＜ ＜＜
［ = \\
"""
PIECES = [*PARTS.split(), " ", "\n"]
TEXTS = st.lists(st.sampled_from([*PIECES, *FAMILIES]) | st.text(max_size=3), max_size=30).map("".join)
# What others write and no tokenizer knows.
WORDS = "x<3 <system> <s> <<SYS>> [CAPS] List<String> </html> <|> <||>"
PLAIN = ["血压 < 140 且 > 90", "a[0], [1], [x]", "Ann <ann@x.org>", "<p class='a'>b</p>", "[ERROR] [注意] [WARN]"]
PLAIN += ["vector<int> f(std::map<K, V>)", *WORDS.split()]


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
    added += [("<table>", False), ("<|file_sep|>", False), ("«»", True)]
    marks = marks_of([Added(text, special) for text, special in added], "{{ '<|odd|>' }}<b>")
    assert set(marks.tokens) >= {"<|im_end|>", "§turn§", "<think>", "<|odd|>", "<|file_sep|>"}
    assert not {" WHERE ", "<table>"} & set(marks.tokens) and marks.forgeable() == ["«»"]
    assert marks.hidden("§turn§ <table>") == "§ｔurn§ <table>" and marks.shown("§ｔurn§") == "§turn§"
    assert marks.sealed("<think>＜|im_end|><|im_end|>") == "<think>＜|im_end|>＜|im_end|>"
    assert model_marks(ROOT / "no-such-folder") == Marks()


TEXT = ["<table>", "<td>", "\n\n"]
# Tokenizers in the manner of other families: special tokens, other added ones, a normalizer.
MANNERS: dict[str, tuple[list[str], list[str], Any]] = {
    "gemma": (["<bos>", "<start_of_turn>", "<end_of_turn>"], TEXT, normalizers.Replace(" ", "▁")),
    "llama": (["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"], [], None),
    "mistral": (["<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[TOOL_RESULTS]"], [], None),
    "code_llama": (["▁<PRE>", "▁<EOT>", "§turn§"], [], None),
    "nfkc": (["<|im_start|>", "<|im_end|>"], ["<tool_call>"], normalizers.NFKC()),
    "lower": (["[SEP]", "<|END|>"], [], normalizers.Lowercase()),
}
AS_IT_STANDS = (
    "{% for m in messages %}{{ m.role }}:{{ m.name or '' }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}\n"
    "{{ m.tool_calls or '' }}\n{{ (m.parts or ['']) | first }}\n{{ m.reasoning_content or '' }}\n{% endfor %}"
    "{{ tools or '' }}\n{{ date or '' }}"
)


def tokenizer_in_the_manner_of(name: str) -> Any:
    special, others, normalizer = MANNERS[name]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: n for n, letter in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    if normalizer:
        made.normalizer = normalizer
    normalized = name in ("nfkc", "lower")
    made.add_special_tokens([AddedToken(text, special=True, normalized=normalized) for text in special])
    made.add_tokens([AddedToken(text, normalized=normalized) for text in others])
    found = PreTrainedTokenizerFast(tokenizer_object=made)
    found.chat_template = AS_IT_STANDS
    return found


@pytest.mark.parametrize("name", MANNERS)
def test_no_token_of_another_family_can_be_forged(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With a template that writes all that a message says, as the tokenizer itself reads it."""
    tokenizer, folder = tokenizer_in_the_manner_of(name), tmp_path_factory.mktemp(name)
    special, others, _ = MANNERS[name]
    tokenizer.save_pretrained(folder)
    marks = model_marks(folder)
    assert set(marks.tokens) == set(tokenizer_marks(tokenizer).tokens) == {*special, *others} - set(TEXT)
    llm = LLMEndpoint("http://127.0.0.1:1/v1", "m", marks=marks)
    variants = [text for one in marks.tokens for text in (one, one.lower(), one.upper(), one[:2], one[2:])]
    variants += [one.replace("<", "＜").replace(">", "＞").replace("[", "［") for one in marks.tokens]

    def read(asked: dict[str, Any]) -> set[int]:
        told = tokenizer.apply_chat_template(
            asked["messages"], tools=asked.get("tools"), tokenize=False, **asked.get("chat_template_kwargs", {})
        )
        return set(tokenizer(told, add_special_tokens=False)["input_ids"])

    @given(st.lists(st.sampled_from([*PIECES, *variants, "ﬁ", "\\u003c", "\\u005b"]), max_size=8))
    def forged(pieces: list[str]) -> None:
        text = "".join(pieces)
        parts = [{"type": "text", "text": piece} for piece in pieces]
        said = [
            {"role": "user", "name": text, "content": parts, "parts": [text]},
            {"role": "tool", "tool_call_id": "c", "content": text},
        ]
        tool = {"type": "function", "function": {"name": "look", "description": text, "parameters": {text: {}}}}
        asked = llm.request({"messages": said, "tools": [tool], "chat_template_kwargs": {"date": text}})
        assert not read(asked) & set(tokenizer.convert_tokens_to_ids([*marks.tokens]))
        call = {"id": text, "type": "function", "function": {"name": text, "arguments": json.dumps({text: [text]})}}
        own = {"role": "assistant", "content": text, "reasoning_content": text, "tool_calls": [call]}
        asked = llm.request({"messages": [{"role": "system", "content": text}, own]})
        said_in_call = asked["messages"][1]["tool_calls"][0]["function"]
        said_in_call["arguments"] = json.loads(said_in_call["arguments"])  # as vLLM does
        assert not read(asked) & set(tokenizer.convert_tokens_to_ids(special))
        assert marks.normal or marks.shown(marks.hidden(text)) == text

    forged()


@pytest.mark.parametrize("name", ["tiny", *(pytest.param(n, marks=pytest.mark.slow) for n in ("qwen2_5", "qwen3"))])
def test_no_turn_can_be_forged(name: str) -> None:
    """With the real template and tokenizer: texts of others bring no control token into the prompt."""
    tokenizer = tokenizer_of(name)
    marks = tokenizer_marks(tokenizer)
    llm = LLMEndpoint("http://127.0.0.1:1/v1", "m", marks=marks)
    control = {tokenizer.convert_tokens_to_ids(token) for token in marks.tokens} - {tokenizer.unk_token_id, None}
    assert marks.forgeable() == [] and len(control) >= 3

    special = {tokenizer.convert_tokens_to_ids(token) for token in marks.special}

    def counted(text: str, own: str = "x") -> Counter[int]:
        tool = {"name": "look", "description": text, "parameters": {"type": "object", "properties": {text: {}}}}
        call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": json.dumps({"a": own})}}
        said = [
            {"role": "system", "content": f"Be brief. {own}"},
            {"role": "user", "content": [{"type": "text", "text": text[:at]} for at in (3, None)]},
            {"role": "assistant", "content": own, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": text},
        ]
        asked = llm.request({"model": "m", "messages": said, "tools": [{"type": "function", "function": tool}]})
        asked = {**asked, "messages": [plain_message(one) for one in asked["messages"]]}
        told = tokenizer.apply_chat_template(
            asked["messages"], tools=asked["tools"], tokenize=False, add_generation_prompt=True
        )
        return Counter(i for i in tokenizer(told, add_special_tokens=False)["input_ids"] if i in control)

    usual = counted("x")
    assert usual

    @given(st.lists(st.sampled_from([*PIECES, *marks.tokens, "\\u003c"]), max_size=12).map("".join))
    def forged(text: str) -> None:
        assert counted(f"a {text} b") == usual
        of_turns = {i: n for i, n in counted("x", own=f"a {text} b").items() if i in special}
        assert of_turns == {i: n for i, n in usual.items() if i in special}

    forged()
