"""How many tokens a conversation may have: what verl's server is started with, and what is said before the run."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.openai.cli_args import make_arg_parser
from vllm.entrypoints.serve.utils.api_utils import get_max_tokens
from vllm.utils.argparse_utils import FlexibleArgumentParser

from foundation.errors import UserError
from foundation.marks import model_marks
from sql_agent.agent.toolset import Toolset
from sql_agent.config import TrainConfig, build_config, load_recipe
from sql_agent.records import Question
from sql_agent.serving.server import server_command
from sql_agent.tiny_policy.build import ensure_tiny_policy
from sql_agent.training.context import EpisodeTokens, compare, measure

QUESTIONS = [Question(id="1", question="问" * 40, answer="高血压；心绞痛" * 10)]


def test_a_server_samples_as_the_request_says_and_not_as_the_model_is_recommended(tmp_path: Path) -> None:
    """vLLM's own reading of the command: Qwen2.5's file would bend greedy answers too, which training does not."""
    for file in ensure_tiny_policy(1).iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "generation_config.json").unlink()
    recommended = {"repetition_penalty": 1.1, "top_k": 20, "min_p": 0.1, "temperature": 0.7, "eos_token_id": [1, 2]}
    (tmp_path / "generation_config.json").write_text(json.dumps(recommended))
    command = server_command(tmp_path, TrainConfig(), name="policy", port=1, cpu=True)
    flags = command[command.index("--model") :]
    args: Any = make_arg_parser(FlexibleArgumentParser()).parse_args(flags)
    model = AsyncEngineArgs.from_cli_args(args).create_model_config()
    assert model.get_diff_sampling_param() == {"max_tokens": TrainConfig().rollout.max_response_tokens}
    assert model.try_get_generation_config()["eos_token_id"] == [1, 2]  # what ends a turn is read still


@pytest.mark.parametrize(("prompt_tokens", "answer_tokens"), [(100, 768), (5000, 768), (5400, 744), (6143, 1)])
def test_a_call_without_a_limit_gets_the_longest_answer_or_what_is_left(prompt_tokens: int, answer_tokens: int) -> None:
    """vLLM's own arithmetic: with max_tokens = 768 it would refuse all prompts above 5,376 tokens."""
    limits = {"max_tokens": TrainConfig().rollout.max_response_tokens}
    held = TrainConfig().rollout.context_tokens
    assert get_max_tokens(held, None, prompt_tokens, limits) == answer_tokens


@pytest.mark.parametrize("recipe", ["qwen3_0_6b", "qwen3_5_0_8b", "qwen2_5_7b", "qwen2_5_7b_lora"])
def test_the_recipes_hold_an_ordinary_episode(recipe: str, caplog: pytest.LogCaptureFixture) -> None:
    """Counted with 0.65 tokens a character, what large vocabularies need for Chinese."""
    config = build_config(load_recipe(recipe))
    prompt = Path("sql_agent/prompts/system_zh.txt").read_text(encoding="utf-8")
    tokens = measure(
        config,
        QUESTIONS,
        answer_tokens=config.rollout.max_response_tokens,
        system_prompt=prompt,
        offered=Toolset(config).offered,
        count=lambda text: -(-len(text) * 65 // 100),
    )
    assert config.agent.max_turns == 6 and 650 <= tokens.result < 660
    with caplog.at_level(logging.WARNING):
        compare(config.agent, config.rollout, tokens, window=config.rollout.context_tokens)
    assert caplog.text == ""


def test_the_sum_is_what_an_episode_holds() -> None:
    config = build_config({"agent": {"max_turns": 3}, "database": {"max_chars": 500}})
    offered = Toolset(config).offered
    tokens = measure(config, QUESTIONS, answer_tokens=768, system_prompt="甲" * 100, offered=offered, count=len)
    schema = [[tool.name, tool.description, tool.parameters] for tool in offered]
    first = 100 + len(json.dumps(schema, ensure_ascii=False)) + 40 + 64
    assert tokens == EpisodeTokens(first, 500, first + 2 * (128 + 500) + 768)


def test_the_first_prompt_is_counted_with_the_keys_of_the_template() -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools | tojson }}{{ '思' * thoughts }}"
    given: dict[str, Any] = {"system_prompt": "甲" * 100, "count": len, "template": template, "answer_tokens": 768}
    config = build_config({"agent": {"chat_template_kwargs": {"thoughts": 30}}})
    offered = Toolset(config).offered
    schema = json.dumps([tool.spec for tool in offered], ensure_ascii=False)
    assert measure(config, QUESTIONS, offered=offered, **given).first == 100 + 40 + len(schema) + 30
    # A template that refuses: the estimate.
    given["template"] = "{{ raise_exception('no') }}"
    assert measure(config, QUESTIONS, offered=offered, **given).first > 100 + 40 + 64


def test_what_does_not_fit_is_said_before_the_run(caplog: pytest.LogCaptureFixture) -> None:
    config = build_config()
    with pytest.raises(UserError, match="take about 2100 tokens.*rollout.max_prompt_tokens = 2048"):
        compare(config.agent, config.rollout, EpisodeTokens(2100, 500, 5000), window=6144)
    with pytest.raises(UserError, match="of the 2000 tokens"):
        compare(config.agent, config.rollout, EpisodeTokens(1500, 500, 1900), window=2000)
    with caplog.at_level(logging.WARNING):
        compare(config.agent, config.rollout, EpisodeTokens(1000, 900, 6145), window=6144)
    assert "needs about 6145 tokens" in caplog.text and "holds 6144" in caplog.text


def test_a_context_beyond_a_training_row_is_refused() -> None:
    with pytest.raises(UserError, match="rollout.max_model_len = 6145 must not exceed the 6144 tokens"):
        build_config({"rollout": {"max_model_len": 6145}})
    assert build_config({"rollout": {"level": "transition"}}).rollout.context_tokens == 2048 + 768


def test_a_model_whose_tokens_could_be_forged_is_told(tmp_path: Path) -> None:
    tokens = [{"content": content, "special": True} for content in ("<|im_end|>", "<tool_call>", "§turn§", "«»")]
    tokens.append({"content": " WHERE ", "special": False})
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": tokens}), encoding="utf-8")
    assert model_marks(tmp_path).forgeable() == ["«»"]
    assert model_marks(ensure_tiny_policy(1)).forgeable() == []
