"""The GPU's way at full shape on a CPU: Qwen's real vocabulary and templates, and one whole step of each shape.

`make full-shape` builds a model (recipes/full_shape) and runs this; without any all is skipped, so that nothing here
waits for a network. What is found is printed.
"""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiktoken import Encoding
from tiktoken.load import load_tiktoken_bpe
from vllm.tool_parsers.qwen3_engine_tool_parser import Qwen3EngineToolParser

from agl_plugin.patches.replacements import keeping_thoughts
from agl_plugin.update.rows import PREFIX_MISMATCH, Limits, Row, rows_of_calls
from foundation import run_folder
from foundation.files import read_lines
from recipes.full_shape.model import FOLDERS, Shape, n_layers_of
from recipes.full_shape.vocabulary import RANKS, WHEELS, qwen_tokenizer
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.config import ROOT, build_config, data_path, load_recipe
from sql_agent.data.dataset import load_questions
from sql_agent.testing.server import openai_server
from tests.gpu.test_recipes import gpu_recipes
from tests.template_policy import TemplatePolicy, prompt_ids

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not any(map(n_layers_of, FOLDERS.values())), reason="no model of full shape is built: `make full-shape`"
    ),
]
CONFIG = build_config({"agent": {"system_prompt": "system_zh"}})
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
STEP_S = 2400.0
SQL = "SELECT precautions FROM drugs_info WHERE med_name = '瑞舒伐他汀'"
THOUGHT = "<think>\n先查询。\n</think>\n\n"
ANSWER = "定期监测肝功能。"


def tool_call(**style: Any) -> str:
    """As Qwen writes one; `style` goes to json.dumps."""
    body = {"name": "query_database_by_sql", "arguments": {"sql": SQL}}
    return f"<tool_call>\n{json.dumps(body, ensure_ascii=False, **style)}\n</tool_call>"


# As Qwen3.5 writes one.
XML = f"<tool_call>\n<function=query_database_by_sql>\n<parameter=sql>\n{SQL}\n</parameter>\n</function>\n</tool_call>"


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Any]:
    names = ("qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_5_nothink", "qwen3_5_think")
    return {name: qwen_tokenizer(WHEELS, template=name) for name in names}


@pytest.fixture(autouse=True)
def thoughts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process of vLLM (agl_plugin/patches)."""
    extract = Qwen3EngineToolParser.extract_tool_calls
    monkeypatch.setattr(Qwen3EngineToolParser, "extract_tool_calls", keeping_thoughts(extract))


def test_ids_are_those_of_tiktoken(tokenizers: dict[str, Any]) -> None:
    tokenizer, ranks = tokenizers["qwen3"], load_tiktoken_bpe(str(WHEELS / RANKS))
    other = Encoding("qwen", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    paths = [*(ROOT / "sql_agent").rglob("*.yaml"), *(ROOT / "foundation").rglob("*.py"), *ROOT.glob("*.md")]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    plain = [text for text in texts if not any(mark in text for mark in tokenizer.get_added_vocab())]
    assert len(plain) > len(texts) // 2
    for text in plain:
        ids = tokenizer(text).input_ids
        assert ids == other.encode(text, disallowed_special=()) and tokenizer.decode(ids) == text
    assert tokenizer("Hello world 你好<think></tool_response><|im_end|>").input_ids == [
        *(9707, 1879, 220, 108386, 151667, 151666, 151645)
    ]


@pytest.mark.parametrize("recipe", gpu_recipes())
def test_the_first_prompt_fits(recipe: str, tokenizers: dict[str, Any]) -> None:
    limit = gpu_recipes()[recipe].rollout.max_prompt_tokens
    of_recipe = {"qwen3_0_6b": "qwen3", "qwen3_5_0_8b": "qwen3_5_nothink"}
    tokenizer = tokenizers[of_recipe.get(recipe, "qwen2_5")]
    with (
        EpisodeRunner(CONFIG) as runner,
        openai_server(TemplatePolicy(tokenizer, [ANSWER])) as server,
    ):
        questions = load_questions(data_path(CONFIG.data.train_file))
        llm = LLMEndpoint(base_url=server.base_url, model="fake-model")
        asyncio.run(runner.run(questions[0], llm))
        system = {"role": "system", "content": runner.prompt_for()}
    tools = server.requests[0].json["tools"]
    users = [{"role": "user", "content": question.question} for question in questions]
    lengths = [len(prompt_ids(tokenizer, [system, user], tools)) for user in users]
    print(f"\n{recipe}: first prompts of {min(lengths)} to {max(lengths)} tokens, limit {limit}")
    assert max(lengths) < limit


# template, keys of the template, what the policy says, rows of the rollout
MERGES: dict[str, tuple[str, dict[str, Any], list[str], int]] = {
    "qwen3 thinks": ("qwen3", {}, [THOUGHT + tool_call(), THOUGHT + ANSWER], 1),
    "qwen3 may think and does not": ("qwen3", {}, [tool_call(), ANSWER], 1),
    "qwen3, two calls at once": ("qwen3", {}, [THOUGHT + tool_call() + "\n" + tool_call(), THOUGHT + ANSWER], 1),
    "qwen2.5": ("qwen2_5", {}, [tool_call(), ANSWER], 1),
    "qwen3 2507": ("qwen3_instruct_2507", {}, [tool_call(), ANSWER], 1),
    "qwen3 with enable_thinking=false": ("qwen3", {"enable_thinking": False}, [tool_call(), ANSWER], 1),
    "qwen3.5 without thoughts": ("qwen3_5_nothink", {"enable_thinking": False}, [XML, ANSWER], 1),
    "qwen3.5 thinks": ("qwen3_5_think", {}, [THOUGHT.removeprefix("<think>\n") + XML, ANSWER], 1),
    # JSON is written anew, in the template's spacing.
    "qwen3, compact JSON": ("qwen3", {}, [THOUGHT + tool_call(separators=(",", ":")), THOUGHT + ANSWER], 2),
    "qwen2.5, words before the call": ("qwen2_5", {}, ["先查询。\n" + tool_call(), ANSWER], 1),
    "qwen3, words before the call": ("qwen3", {}, [THOUGHT + "先查询。\n" + tool_call(), THOUGHT + ANSWER], 1),
}


@pytest.mark.parametrize("case", MERGES)
def test_what_the_templates_let_merge(case: str, tokenizers: dict[str, Any]) -> None:
    """A case that comes to merge fails here too: then mend the table of recipes/full_shape/README.md."""
    template, kwargs, texts, n_rows = MERGES[case]
    parser = "qwen3_coder" if template.startswith("qwen3_5") else "hermes"
    policy = TemplatePolicy(tokenizers[template], texts, parser=parser)
    config = build_config(CONFIG.model_dump(), {"agent": {"chat_template_kwargs": kwargs}})
    question = load_questions(data_path(CONFIG.data.train_file))[0]
    with (
        EpisodeRunner(config) as runner,
        openai_server(policy) as server,
    ):
        llm = LLMEndpoint(base_url=server.base_url, model="fake-model")
        episode = asyncio.run(runner.run(question, llm))
    assert episode.stop_reason == "answered" and len(policy.calls) == 2
    rows: list[Row] = rows_of_calls(policy.calls, merge=True, limits=Limits(2048, 4096))
    print(f"\n{case}: {len(rows)} row(s) for 2 calls")
    assert len(rows) == n_rows and [row.why for row in rows[1:]] == [PREFIX_MISMATCH] * (n_rows - 1)


# What Qwen3.5 needs beside its model, as recipes/qwen3_5_0_8b has it.
ONLY_TEXT = "verl.actor_rollout_ref.rollout.engine_kwargs.vllm.language_model_only=true"
MORE: dict[Shape, list[str]] = {
    "qwen3": [],
    "qwen3_5": ["--set", "rollout.tool_parser=qwen3_coder", "--set", ONLY_TEXT],
}


@pytest.mark.parametrize("shape", FOLDERS)
def test_a_step_at_full_shape(shape: Shape, tmp_path: Path) -> None:
    if not n_layers_of(FOLDERS[shape]):
        pytest.skip(f"no model of this shape is built: `make full-shape SHAPE={shape}`")
    runs, recipe = tmp_path / "runs", build_config(load_recipe("full_shape"))
    settings = ["--recipe", "full_shape", "--model", str(FOLDERS[shape]), "--set", f"trainer.runs_dir={runs}"]
    command = [
        sys.executable,
        "-m",
        "sql_agent",
        "train",
        *settings,
        *MORE[shape],
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=STEP_S, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    (folder,) = runs.iterdir()
    summary = json.loads((folder / run_folder.SUMMARY).read_text())
    (metrics,) = [row for row in read_lines(folder / run_folder.METRICS) if row["kind"] == "train"]
    print(
        f"\n{shape}, {n_layers_of(FOLDERS[shape])} layers: peak memory {summary['peak_memory_gib']:.1f} GiB, "
        f"{summary['seconds']['total']:.0f} s; sampler gap {metrics['sampler/log_prob_diff_mean']:.4f} mean, "
        f"{metrics['sampler/log_prob_diff_max']:.3f} max; "
        f"entropy {metrics['actor/entropy_loss']:.2f} of {math.log(151_936):.2f} nats"
    )
    assert summary["steps"] == 1 and summary["scored"] == 4 and summary["zero_variance_groups"] < 2
    assert summary["weights_changed"] is True and summary["grad_norm"] > 0
    assert metrics["sampler/log_prob_diff_mean"] < recipe.health.sampler_gap_max
    assert 0.9 * math.log(151_936) < metrics["actor/entropy_loss"] < math.log(151_936)
