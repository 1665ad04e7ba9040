"""vLLM's hooks on vLLM's own functions, and its start with a register that does not fit.

What needs the order in which a real process loads things runs in a process of its own.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from subprocess import PIPE
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from agl_plugin.patches.vllm_engine import leaving_a_core, resolving_once, with_thoughts

from agl_plugin.patches.install import WITHOUT
from sql_agent.config import ROOT

pytest.importorskip("vllm")
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}{{ add_generation_prompt }}"


LORA = """
import verl
from vllm.entrypoints.openai.serving_chat import OpenAIServingChat
from vllm.entrypoints.openai.serving_engine import OpenAIServing
from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID, VLLM_LORA_NAME, VLLM_LORA_PATH
server = OpenAIServingChat.__new__(OpenAIServingChat)
server.models = type("Models", (), {"lora_requests": {}, "base_model_paths": [], "is_base_model": lambda *_: True})()
server._is_model_supported = lambda _name: True
request = type("Request", (), {"model": "policy"})()
found = server._maybe_get_adapters(request, supports_default_mm_loras=True) if %s else \
    server._maybe_get_adapters(request)
print(found and (found.lora_name, found.lora_int_id, found.lora_path) == (VLLM_LORA_NAME, VLLM_LORA_INT_ID,
                                                                       VLLM_LORA_PATH))
"""
VERL_FIRST = {"VERL_USE_EXTERNAL_MODULES": "agl_plugin.patches.verl_hook"}
# Name -> code and environment of a process; each takes ten seconds of imports, so all begin at once.
PROCESSES = {
    "lora": (LORA % True, {**VERL_FIRST, "AGENTGRPO_LORA": "1"}),
    "base": (LORA % False, {**VERL_FIRST, "AGENTGRPO_LORA": "0"}),
    "refused": (
        "from vllm.engine.arg_utils import EngineArgs; EngineArgs(model='none'); print('started')",
        {WITHOUT: "policy_adapter"},
    ),
}
Process = subprocess.Popen[str]


@pytest.fixture(scope="module", autouse=True)
def started() -> Iterator[dict[str, Process]]:
    with ExitStack() as stack:
        processes: dict[str, Process] = {}
        for name, (code, environment) in PROCESSES.items():
            env = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", **environment}
            processes[name] = stack.enter_context(
                subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=PIPE, stderr=PIPE, text=True, env=env)
            )
            stack.callback(processes[name].kill)
        yield processes


def tokenizer() -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")))


def test_a_template_is_looked_through_once_and_the_answer_stays_the_same() -> None:
    from vllm.entrypoints.chat_utils import resolve_chat_template_kwargs as theirs

    asked: list[str] = []

    def counted(*given: Any) -> dict[str, Any]:
        asked.append(given[1])
        return theirs(*given)

    ours, words = resolving_once(counted), tokenizer()
    keywords = {"tools": 1, "add_generation_prompt": True, "chat_template": "x", "thinking": 2}
    for template, kwargs in [(TEMPLATE, keywords), (TEMPLATE, keywords), (TEMPLATE, {"thinking": 5}), ("", keywords)]:
        assert ours(words, template, kwargs) == theirs(words, template, kwargs)
    assert asked == [TEMPLATE, TEMPLATE, ""]


def test_the_thought_of_an_earlier_answer_reaches_the_template() -> None:
    """vLLM's own parsing; the thought of another role than the assistant's does not count."""
    from vllm.entrypoints.chat_utils import _parse_chat_message_content as theirs  # pyright: ignore

    said = {"content": "a", "reasoning_content": "\n"}
    parse = with_thoughts(inspect.unwrap(theirs))
    tracker: Any = SimpleNamespace(create_parser=lambda: SimpleNamespace(mm_placeholder_storage=dict))
    (answer,), (question,) = (parse({**said, "role": role}, tracker, "string", False) for role in ("assistant", "user"))
    assert answer == {**said, "role": "assistant"} and "reasoning_content" not in question


def test_the_engine_leaves_a_core_and_gives_it_back() -> None:
    """vLLM's worker, up to where it asks its model runner for the first thing."""
    from vllm.v1.worker.gpu_worker import Worker

    seen: list[int] = []

    def first_thing(_tokens: int) -> int:
        seen.append(torch.get_num_threads())
        raise RuntimeError("no")

    worker: Any = Worker.__new__(Worker)
    worker.model_runner = SimpleNamespace(_get_num_input_tokens=first_thing)
    execute = leaving_a_core(inspect.unwrap(Worker.execute_model))  # vLLM's own, were the plugin loaded here
    before = torch.get_num_threads()
    try:
        for n_threads in (3, 1):
            torch.set_num_threads(n_threads)
            with pytest.raises(RuntimeError, match="no"):
                execute(worker, SimpleNamespace(total_num_scheduled_tokens=1))
            assert torch.get_num_threads() == n_threads
    finally:
        torch.set_num_threads(before)
    assert seen == [2, 1]


@pytest.mark.parametrize(("name", "expected"), [("lora", "True"), ("base", "None")])
def test_a_run_with_lora_answers_with_the_adapter(started: dict[str, Process], name: str, expected: str) -> None:
    """verl is loaded first, as in the process of its server; without LoRA vLLM's own answer is the base model."""
    out, err = started[name].communicate(timeout=300)
    assert out.split()[-1:] == [expected], err[-3000:]


def test_a_patch_that_cannot_be_made_ends_vllms_start(started: dict[str, Process]) -> None:
    """As AsyncEngineArgs of the server does it: the plugin is found by its entry point, and raises."""
    out, err = started["refused"].communicate(timeout=300)
    assert started["refused"].returncode and "started" not in out
    assert f"PatchError: {WITHOUT}=policy_adapter: only patches made for speed" in err
