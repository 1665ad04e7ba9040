"""Twelve look-ups within 1,024 tokens: kept, with dropped results, from notes. Tokens are a real tokenizer's.

The policy knows nothing but what it is shown: it says how far it is before each look-up, and adds up what came back.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from agl_plugin.update.advantage import over_rollouts
from agl_plugin.update.rows import Call
from foundation.errors import UserError
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.agent.episode import EpisodeRunner
from sql_agent.agent.long_context import ASK, DROPPED, History
from sql_agent.config import build_config
from sql_agent.errors import LLMFault
from sql_agent.records import Episode, Question
from sql_agent.testing.server import Answer, Handler, chat_reply, error_reply, openai_server
from tests.exact_rows import assert_exact, batch_of, qwen_tokenizer, sampled, small_tokenizer, trained
from tests.template_policy import prompt_ids

pytestmark = [pytest.mark.filterwarnings("ignore:In CPU autocast"), pytest.mark.usefixtures("rank")]
LOOKUPS, LIMIT, ANSWER_TOKENS = 12, 1024, 64
TOTAL = sum(n * n for n in range(1, LOOKUPS + 1))
TOOL = '''
def look(n: int) -> str:
    """Look a number up."""
    return f"the value of {n} is {n * n}. " + "more words that say nothing at all. " * {SPREAD}
'''
STATE = re.compile(r"(\d+) done, sum (\d+)")


@pytest.fixture(scope="module", params=["small", pytest.param("qwen3", marks=pytest.mark.slow)])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return (
        small_tokenizer(TOOL, ASK, DROPPED, "7 done, sum 140", "Sum up.")
        if request.param == "small"
        else qwen_tokenizer()
    )


class LookupPolicy:
    """A model server that holds LIMIT tokens; `calls` are its calls."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.calls = tokenizer, list[Call]()

    def __call__(self, request: dict[str, Any]) -> Answer:
        prompt = prompt_ids(self.tokenizer, request["messages"], request.get("tools"))
        if len(prompt) + request["max_tokens"] > LIMIT:
            return error_reply(400, f"This model's maximum context length is {LIMIT} tokens")
        words, call = says(request["messages"])
        arguments = json.dumps({"n": call})
        text = words + (f'\n<tool_call>\n{{"name": "look", "arguments": {arguments}}}\n</tool_call>' if call else "")
        sampled = [*self.tokenizer(text).input_ids, self.tokenizer.eos_token_id]
        assert len(sampled) <= request["max_tokens"]
        self.calls.append(Call(prompt, sampled))
        made = {"id": f"c{call}", "type": "function", "function": {"name": "look", "arguments": arguments}}
        extra: dict[str, Any] = {"tool_calls": [made]} if call else {}
        reply = chat_reply(words, **extra)
        counted = {"prompt_tokens": len(prompt), "completion_tokens": len(sampled)}
        return {**reply, "usage": {**counted, "total_tokens": sum(counted.values())}}


def says(messages: list[dict[str, Any]]) -> tuple[str, int]:
    """The words, and the number to look up; 0 for none."""
    texts = [str(one.get("content") or "") for one in messages]
    done, total = max(((int(a), int(b)) for a, b in STATE.findall("\n".join(texts))), default=(0, 0))
    for value in re.findall(r"the value of (\d+) is (\d+)", "\n".join(texts)):
        if int(value[0]) == done + 1:
            done, total = done + 1, total + int(value[1])
    if texts[-1] == ASK or done < LOOKUPS:
        return f"{done} done, sum {total}", 0 if texts[-1] == ASK else done + 1
    return f"The sum is {total}.", 0


def played(
    policy: Handler, folder: Path, kind: str, *, spread: int = 9, untrained: Handler | None = None, **agent: Any
) -> Episode:
    tool = folder / f"tool{spread}.py"
    tool.write_text(TOOL.replace("{SPREAD}", str(spread)), encoding="utf-8")
    settings = {"tools": [str(tool)], "system_prompt": "tools", "max_turns": 20, "context": kind, **agent}
    rollout = {"max_model_len": LIMIT, "max_response_tokens": ANSWER_TOKENS}
    config = build_config({"agent": settings, "rollout": rollout})
    with EpisodeRunner(config) as runner, openai_server(policy) as server, openai_server(untrained or policy) as beside:
        llm = LLMEndpoint(server.base_url, "m", max_tokens=ANSWER_TOKENS, untrained_url=beside.base_url)
        return asyncio.run(runner.run(Question(id="q", question="Sum up the values of 1 to 12."), llm))


@pytest.mark.long
def test_kept_histories_overflow(tokenizer: Any, tmp_path: Path) -> None:
    rng = random.Random(1)
    ends = [played(LookupPolicy(tokenizer), tmp_path, "keep", spread=rng.randint(6, 14)) for _ in range(6)]
    assert sum(one.stop_reason == "context_overflow" for one in ends) / len(ends) >= 0.8


@pytest.mark.long
@pytest.mark.parametrize("kind", ["drop_results", "summarise"])
def test_shortened_histories_finish_and_are_trained_exactly(tokenizer: Any, tmp_path: Path, kind: str) -> None:
    rng, rollouts = random.Random(1), list[list[Call]]()
    for _ in range(6):
        policy = LookupPolicy(tokenizer)
        episode = played(policy, tmp_path, kind, spread=rng.randint(6, 14))
        assert (episode.stop_reason, episode.final_answer) == ("answered", f"The sum is {TOTAL}.")
        assert len(policy.calls) == episode.n_turns >= LOOKUPS + 1
        rollouts.append(policy.calls)
    batch = batch_of(rollouts)
    assert len(rollouts) < batch.metrics["batch/rows"] < batch.metrics["batch/calls"]
    assert batch.metrics["batch/trained_over_sampled"] == 1 and trained(batch) == sampled(rollouts)
    tensors: Any = batch.data.batch
    advantages = over_rollouts(
        "group", tensors["token_level_scores"], tensors["response_mask"], batch.data.non_tensor_batch["data_id_list"]
    )
    shared: dict[str, set[float]] = {}
    for name, row, mask in zip(
        batch.data.non_tensor_batch["rollout_id_list"], advantages, tensors["response_mask"].bool(), strict=True
    ):
        shared.setdefault(name, set()).update(row[mask].tolist())
    assert len(shared) == 6 and all(len(values) == 1 for values in shared.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["drop_results", "summarise"])
def test_segments_make_the_update_of_one_row_per_call(tokenizer: Any, tmp_path: Path, kind: str) -> None:
    policies = [LookupPolicy(tokenizer) for _ in range(3)]
    for spread, policy in zip((6, 9, 12), policies, strict=True):
        played(policy, tmp_path, kind, spread=spread)
    assert_exact([policy.calls for policy in policies])


@pytest.mark.long
def test_notes_that_are_not_trained_are_written_beside(tokenizer: Any, tmp_path: Path) -> None:
    policy, writer = LookupPolicy(tokenizer), LookupPolicy(tokenizer)
    episode = played(policy, tmp_path, "summarise", untrained=writer, train_summaries=False)
    assert episode.final_answer == f"The sum is {TOTAL}."
    assert len(writer.calls) == episode.n_untrained_calls > 0
    assert len(policy.calls) == episode.n_turns - episode.n_untrained_calls


@pytest.mark.long
def test_a_writer_that_is_down_is_a_fault(tokenizer: Any, tmp_path: Path) -> None:
    down = error_reply(500, "the model server broke")
    with pytest.raises(LLMFault, match="the model server broke"):
        played(LookupPolicy(tokenizer), tmp_path, "summarise", untrained=lambda _: down, train_summaries=False)


@pytest.mark.long
def test_without_counted_tokens_a_refused_prompt_is_shortened_and_asked_again(tokenizer: Any, tmp_path: Path) -> None:
    policy = LookupPolicy(tokenizer)

    def silent(request: dict[str, Any]) -> Answer:
        answer = policy(request)
        return {k: v for k, v in answer.items() if k != "usage"} if isinstance(answer, dict) else answer

    episode = played(silent, tmp_path, "drop_results", context_tokens=100_000)
    assert episode.final_answer == f"The sum is {TOTAL}." and len(policy.calls) == LOOKUPS + 1


@pytest.mark.long
def test_what_cannot_be_shortened_overflows(tokenizer: Any, tmp_path: Path) -> None:
    refused = error_reply(400, f"This model's maximum context length is {LIMIT} tokens")
    for kind in ("drop_results", "summarise"):
        assert played(lambda _: refused, tmp_path, kind).stop_reason == "context_overflow"


def test_the_history_keeps_question_and_last_round() -> None:
    def of(call: str) -> list[dict[str, Any]]:
        return [
            {"type": "function_call", "call_id": call},
            {"type": "function_call_output", "call_id": call, "output": "x"},
        ]

    history = History([{"role": "user", "content": "q"}, *of("a"), *of("b"), *of("c")])
    assert history.results() == ["a", "b", "c"] and (history.last_rounds(1), history.last_rounds(2)) == (5, 3)
    history.dropped |= {"a"}
    assert [one.get("output") for one in history.view()] == [None, None, DROPPED, None, "x", None, "x"]
    history.begin_at(history.last_rounds(1))
    assert history.last_rounds(1) == 5 and history.last_rounds(9) == 5
    assert history.view()[0]["content"].endswith("2 earlier tool calls are left out）") and len(history.view()) == 3


def test_an_episode_of_ones_own_shortens_its_history_itself() -> None:
    with pytest.raises(UserError, match="agent.context = summarise shortens the history of this project's own loop"):
        build_config({"agent": {"context": "summarise", "command": "true"}})
