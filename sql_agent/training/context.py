"""Does an episode fit into the model server's context? Told before the run, by counting with the model's tokenizer.

The policy's own words may overflow the context: that is the policy's doing, and trained as it is (context_overflow).
What the set-up writes must fit beside them: prompt, tools, question, and a full result for each query. Estimates: a
query takes QUERY_TOKENS, a result's characters weigh as those of the reference answers, chat templates add MARK_TOKENS.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from foundation.chat_template import read_template, rendered
from foundation.errors import UserError
from foundation.marks import model_marks
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.sql_tool import QUERY
from sql_agent.agent.tool import Tool
from sql_agent.config import AgentConfig, AgentTree, RolloutConfig, agents_of
from sql_agent.records import Question
from sql_agent.serving.server import context_tokens

logger = logging.getLogger(__name__)

QUERY_TOKENS = 128
MARK_TOKENS = 64
SAMPLED_ANSWERS = 200
Count = Callable[[str], int]


@dataclass(frozen=True)
class EpisodeTokens:
    """Tokens of an episode: the first prompt, one full result, and all of it with short queries and one full answer."""

    first: int
    result: int
    episode: int


def measure(
    config: AgentTree,
    questions: Sequence[Question],
    *,
    answer_tokens: int,
    system_prompt: str,
    offered: Sequence[Tool],
    count: Count,
    template: str = "",
) -> EpisodeTokens:
    """Count what the set-up puts into an episode of agent.max_turns calls.

    A call is answered in at most `answer_tokens`. With the chat `template` the first prompt is counted as it will be;
    without one, or where it refuses, estimated.
    """
    tools = [[tool.name, tool.description, tool.parameters] for tool in offered]
    longest = max((question.question for question in questions), key=len)
    messages = [{"role": "system", "content": system_prompt}, {"role": "user", "content": longest}]
    specs = [tool.spec for tool in offered]
    if prompt := rendered(template, messages, specs, config.agent.chat_template_kwargs):
        first = count(prompt)
    else:
        first = sum(map(count, (system_prompt, json.dumps(tools, ensure_ascii=False), longest))) + MARK_TOKENS
    sample = "".join(str(question.answer) for question in questions[:SAMPLED_ANSWERS]) or longest
    names = {tool.name for tool in offered}
    max_query = config.database.max_chars if QUERY in names else 0
    max_chars = max(max_query, config.agent.tool_max_chars if names - {QUERY} else 0)
    result = math.ceil(max_chars * count(sample) / len(sample))
    turns = (config.agent.max_turns - 1) * (QUERY_TOKENS + result)
    return EpisodeTokens(first, result, first + turns + answer_tokens)


def check_context(config: AgentTree, model: Path, questions: Sequence[Question]) -> None:
    """Raise UserError when not even the first call fits; warn when an ordinary episode of all turns does not."""
    tokenizer = model / "tokenizer.json"
    if not tokenizer.is_file():
        return
    from tokenizers import Tokenizer

    encode = Tokenizer.from_file(str(tokenizer)).encode
    if forged := model_marks(model).forgeable():
        logger.warning(
            "results of tools could forge %d of the model's special tokens (%s): they are no markers that this project "
            "takes out. Let the tools leave them out, or choose another model",
            *(len(forged), ", ".join(forged[:5])),
        )

    with EpisodeRunner(config) as runners:
        for name, settings in agents_of(config).items():
            if of_agent := [question for question in questions if question.agent == name]:
                runner = runners.of(name)
                prompts = [runner.prompt_for(db_id) for db_id in {question.db_id for question in of_agent}]
                tokens = measure(
                    settings,
                    of_agent,
                    answer_tokens=config.rollout.max_response_tokens,
                    system_prompt=max(prompts, key=len),
                    offered=runner.toolset.offered,
                    count=lambda text: len(encode(text).ids),
                    template=read_template(model),
                )
                window = context_tokens(model, config.rollout)
                compare(settings.agent, config.rollout, tokens, window=window, name=name)


def compare(agent: AgentConfig, rollout: RolloutConfig, tokens: EpisodeTokens, *, window: int, name: str = "") -> None:
    """`window`: tokens the model server holds of one conversation; `name` is the agent's where it is of several."""
    who = f"agent {name}: " if name else ""
    if tokens.first > rollout.max_prompt_tokens or tokens.first + rollout.max_response_tokens > window:
        raise UserError(
            f"{who}system prompt, tools and the longest question take about {tokens.first} tokens, which must not "
            f"exceed rollout.max_prompt_tokens = {rollout.max_prompt_tokens}, nor leave less than "
            f"rollout.max_response_tokens = {rollout.max_response_tokens} of the {window} tokens of a conversation. "
            "Raise rollout.max_prompt_tokens and rollout.max_model_len, or shorten agent.system_prompt"
        )
    if tokens.episode > window and agent.context == "keep":
        logger.warning(
            "%san episode of agent.max_turns = %d needs about %d tokens (%d before the first answer, %d for a full "
            "result), but a conversation holds %d: it would end as context_overflow, through no fault of the policy. "
            "Raise rollout.trajectory_max_response_tokens and rollout.max_model_len, or lower database.max_chars or "
            "agent.max_turns",
            *(who, agent.max_turns, tokens.episode, tokens.first, tokens.result, window),
        )
