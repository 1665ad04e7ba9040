"""The mixed recipe: its tiny policy is taught what the agents send, by the teachers of both tasks."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from transformers import PreTrainedTokenizerFast

from recipes.math_cpu.tiny import TOOLS as MATH
from recipes.mixed_cpu.tiny import TASK
from sql_agent.config import agents_of, build_config, load_recipe, prompt_file, resolve_system_prompt
from sql_agent.tiny_policy import shipped
from sql_agent.tiny_policy.demos import TOOLS as SQL
from sql_agent.tiny_policy.task import load_task
from sql_agent.tiny_policy.tokenizer import train_tokenizer


def rendered(tokenizer: PreTrainedTokenizerFast, chat: list[dict[str, Any]], tools: list[Any] | None) -> str:
    text = tokenizer.apply_chat_template(chat, tools=tools, tokenize=False)
    assert isinstance(text, str)
    return text


def test_demonstrations_begin_as_the_agents_episodes_do() -> None:
    """System prompt and tools of each agent, as the chat template writes them, and nothing else."""
    config = resolve_system_prompt(build_config(load_recipe("mixed_cpu")), tiny=True)
    lesson = load_task(config.model.tiny).learn()
    tokenizer = train_tokenizer(lesson.texts, lesson.frames)
    teacher = lesson.teacher(random.Random(1), False)
    chats = [teacher.demonstrate() for _ in range(400)]
    heads = Counter(rendered(tokenizer, chat[:1], lesson.tools) for chat in chats)
    wanted = {
        rendered(tokenizer, [{"role": "system", "content": prompt_file(prompt).read_text("utf-8").strip()}], tools)
        for name, tools in (("sql", SQL), ("math", MATH))
        for prompt in [agents_of(config)[name].agent.system_prompt]
    }
    assert heads.keys() == wanted and all(100 < n < 300 for n in heads.values())
    assert all(len(tokenizer.encode(frame, add_special_tokens=False)) == 1 for frame in lesson.frames)


def test_the_shipped_weights_are_of_these_sources() -> None:
    assert shipped.is_shipped(1, TASK), "run python -m sql_agent.tiny_policy.build --recipe mixed_cpu --seed 1 --ship"
    assert shipped.shipped_file(1, TASK).stat().st_size < 3_000_000
