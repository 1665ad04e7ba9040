"""What in the JSON of a model folder makes a loader import code, of the folder or from the hub.

Guarantees: keys are found at any depth of each file that transformers, PEFT and vLLM read; `auto_map` and its kin,
trust in remote code, and implementations that are not the libraries' own are refused by kind.
Not covered: pickled weights, and faults of the loaders themselves.
"""

from __future__ import annotations

import re
from typing import Any

# The files of a model folder that loaders of transformers and vLLM read, and the keys in them that import code.
LOADED = ("config.json", "generation_config.json", "tokenizer_config.json", "processor_config.json")
LOADED += ("preprocessor_config.json", "video_preprocessor_config.json", "adapter_config.json")
IMPORTS = re.compile(
    r"auto_map|remote_code|custom_(generate|pipeline|code|module)|kernel_config|use_kernels|megatron_config"
)
OWN_IMPLEMENTATIONS = (
    *(None, "", "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", "grouped_mm"),
)
# A class in a repository, as auto_map writes it: "owner/name--module.Class".
REPOSITORY, CLASS = re.compile(r"[\w./-]+"), re.compile(r"[\w.]+\.[A-Za-z_]\w*")


def code_key(value: Any, key: str = "") -> str:
    """The first key at any depth of a model's JSON that makes a loader import code; "" where there is none.

    Refused by kind, since each release of the loaders knows more: what maps to classes of the folder or the hub, what
    switches trust on, and an implementation that is not one of the libraries' own.
    """
    if value not in (None, False) and IMPORTS.search(key):
        return key
    if isinstance(value, dict):
        # {"text_config": "sdpa"} under an implementation names one for each part.
        inherited = key if "_implementation" in key else ""
        inner_keys = (code_key(branch, inherited or str(name)) for name, branch in value.items())
        return next(filter(None, inner_keys), "")
    if isinstance(value, list):
        return next(filter(None, (code_key(branch, key) for branch in value)), "")
    if "_implementation" in key and value not in OWN_IMPLEMENTATIONS:
        return key
    repository, _, name = value.rpartition("--") if isinstance(value, str) else ("", "", "")
    return key if REPOSITORY.fullmatch(repository) and CLASS.fullmatch(name) else ""
