"""The tiny policy's tokenizer: byte-level BPE, trained in a second on a task's texts.

Guarantees: every CJK character of the texts is one token, whatever stands beside it, so that a name has the same tokens
in the question, in the SQL, in the JSON result and in the answer (a tiny model can copy only then); `<tool_call>` and
its like are single tokens that decoding keeps. Any other character falls back to bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CHAT_TEMPLATE = Path(__file__).parent / "chat_template.jinja"
MAX_TOKENS = 4096
PAD, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
TOOL_MARKS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
# The fixed parts of canonical SQL calls and results, one token each: an episode costs a third of the tokens, and nearly
# every sampled token carries a decision. They end where a name or a fact begins, so they never merge with one.
SQL_FRAMES = [
    *('\n{"name": "query_database_by_sql", "arguments": {"sql": "', '"}}\n'),
    *("SELECT ", " FROM drugs_info", " FROM disease", " WHERE ", " = '", " IN ('", "', '", "')", " LIKE '%", "%'"),
    *("COUNT(*)", ", ", " AND ", " OR "),
    *('\n{"status": "success", "records": [', '{"', '": "', '": ', '", "', '"}, {"', '"}', '], "count": ', "}\n"),
]
# One CJK character, digit, space or mark at a time; only runs of Latin letters may merge.
SPLIT = r"[A-Za-z_]+|[\s\S]"
CJK = re.compile("[\u4e00-\u9fff]")
# A bound that is never reached: merging stops when no pair is left that occurs twice.
VOCABULARY_LIMIT = 6000


def cjk_inventory(texts: Iterable[str]) -> list[str]:
    """The CJK characters of the texts, sorted."""
    return sorted({char for text in texts for char in CJK.findall(text)})


def train_tokenizer(texts: list[str], frames: list[str] = SQL_FRAMES) -> PreTrainedTokenizerFast:
    """A tokenizer for texts like these, `frames` as one token each, with the chat template. Decided by both alone."""
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(BPE(byte_fallback=False))
    core.pre_tokenizer = Sequence(
        [Split(Regex(SPLIT), behavior="isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    core.decoder = ByteLevelDecoder()
    # A character that occurs once must still become a token: every character is fed twice more.
    rare = cjk_inventory(texts) * 2
    trainer = BpeTrainer(
        vocab_size=VOCABULARY_LIMIT,
        min_frequency=2,
        initial_alphabet=ByteLevel.alphabet(),
        special_tokens=[PAD, IM_START, IM_END],
        show_progress=False,
    )
    core.train_from_iterator([*texts, *rare], trainer)
    core.add_tokens([AddedToken(text, normalized=False, special=False) for text in [*TOOL_MARKS, *frames]])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=IM_END,
        pad_token=PAD,
        model_max_length=MAX_TOKENS,
        chat_template=CHAT_TEMPLATE.read_text(encoding="utf-8"),
        clean_up_tokenization_spaces=False,
        # Qwen3 takes no token_type_ids; `model.generate(**tokenizer(...))` would fail.
        model_input_names=["input_ids", "attention_mask"],
    )
