"""What one row per rollout saves over one row per call: tokens of the batch and seconds of the update.

  .venv/bin/python -m tests.credit [--out credit.json] [--turns 2 --turns 4 --turns 8]

Rollouts of as many LLM calls as there are turns, all but the last of them queries, are rendered by the tiny policy's
chat template from made-up demonstrations, written as spans, read by the adapter and made into rows twice: merged
(`rollout.level = "trajectory"`) and unmerged ("transition", the baseline). The worker of training
then updates the tiny policy with each batch, as a training step on a CPU does.
tokens      of the batch, padding left out
update_s    seconds of the update; the two take turns, and the best of --rounds counts
grad_norm   of the update: both rows give the same gradient
`ratio` is merged over unmerged.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer

from foundation.environment import COMMON_ENV, CPU_ENV, VERL_HOOK

os.environ.update(COMMON_ENV | CPU_ENV | {"VERL_USE_EXTERNAL_MODULES": VERL_HOOK})

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer, Qwen3ForCausalLM

from agl_plugin.update.adapter import scored_calls
from agl_plugin.update.batch import Rollouts, build_batch
from foundation.files import write_json
from foundation.processes import keep_freed_memory
from sql_agent.config import load_recipe
from sql_agent.tiny_policy.build import ensure_tiny_policy
from sql_agent.tiny_policy.corpus import load_corpus
from sql_agent.tiny_policy.demos import TOOLS, Demonstrator, Message
from sql_agent.tiny_policy.tokenizer import IM_END
from tests.actor import actor_of, as_planned, one_rank, with_advantages
from tests.spans import llm_call, reward_span

MICRO_ROWS = load_recipe("demo_cpu")["optim"]["micro_batch_rows"]
LIMITS: dict[str, Any] = {"max_prompt_tokens": 8192, "max_response_tokens": 8192}
KINDS = {"merged": True, "unmerged": False}


def conversation(demonstrator: Demonstrator, n_calls: int) -> list[Message]:
    """A question, n_calls - 1 queries with their results, and an answer."""
    demonstrations = [demonstrator.demonstrate() for _ in range(n_calls - 1)]
    queries = [message for one in demonstrations for message in one[2:4]]
    return [*demonstrations[0][:2], *queries, demonstrations[0][4]]


def calls_of(tokenizer: Any, messages: list[Message]) -> list[tuple[list[int], list[int]]]:
    """Prompt and sampled tokens of each LLM call of a conversation."""

    def ids(some: list[Message], **how: Any) -> list[int]:
        return tokenizer.apply_chat_template(some, tools=TOOLS, return_dict=False, **how)

    calls = []
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            prompt = ids(messages[:place], add_generation_prompt=True)
            sampled = ids(messages[: place + 1])[len(prompt) :]
            end = sampled.index(tokenizer.convert_tokens_to_ids(IM_END))
            calls.append((prompt, sampled[: end + 1]))
    return calls


def rollouts_of(tokenizer: Any, *, n_questions: int, group_size: int, n_calls: int) -> Rollouts:
    """Groups of rollouts, through the adapter."""
    rng = random.Random(1)
    demonstrator = Demonstrator(load_corpus(), rng)
    rollouts: dict[str, Any] = {}
    for n in range(n_questions * group_size):
        calls, reward = calls_of(tokenizer, conversation(demonstrator, n_calls)), rng.random()
        spans = [llm_call(*call, seq=seq) for seq, call in enumerate(calls)]
        spans.append(reward_span(reward, seq=n_calls, n_calls=n_calls))
        rollouts[f"r{n}"] = (f"q{n // group_size}", reward, scored_calls(spans))
    return rollouts


def update(model_path: Path, data: Any) -> tuple[float, float]:
    """Seconds and gradient norm of one update of the policy by the worker of training."""
    model = Qwen3ForCausalLM.from_pretrained(model_path, dtype=torch.float32, attn_implementation="sdpa")
    with redirect_stdout(StringIO()):  # verl prints its settings
        actor = actor_of(model, micro_rows=MICRO_ROWS)
    actor.engine.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    started_s = time.perf_counter()
    metrics = actor.update_policy(data=data)
    return time.perf_counter() - started_s, metrics["actor/grad_norm"][0]


def measure(model_path: Path, rollouts: Rollouts, *, rounds: int) -> dict[str, Any]:
    """Figures of both kinds of rows for the same rollouts."""
    pad_id = AutoTokenizer.from_pretrained(model_path).pad_token_id
    batches, planned, updates = {}, {}, {kind: [] for kind in KINDS}
    for kind, merge in KINDS.items():
        batches[kind] = build_batch(rollouts, merge=merge, pad_id=pad_id, **LIMITS)
        planned[kind] = as_planned(with_advantages(batches[kind].data))
    for _ in range(rounds):
        for kind, found in updates.items():
            found.append(update(model_path, planned[kind]))
    table: dict[str, Any] = {
        kind: {
            "rows": batch.metrics["batch/rows"],
            "tokens": batch.metrics["batch/tokens"],
            "trained_tokens": batch.metrics["batch/trained_tokens"],
            "update_s": round(min(seconds for seconds, _ in updates[kind]), 3),
            "grad_norm": round(updates[kind][0][1], 6),
        }
        for kind, batch in batches.items()
    }
    merged, unmerged = table["merged"], table["unmerged"]
    assert merged["rows"] == len(rollouts) and merged["trained_tokens"] == unmerged["trained_tokens"]
    ratio = {name: round(merged[name] / unmerged[name], 3) for name in ("rows", "tokens", "update_s")}
    return {**table, "ratio": ratio}


def table_of(turns: dict[str, dict[str, Any]]) -> Table:
    """The figures for people."""
    columns = ("turns", "tokens, merged", "unmerged", "ratio", "seconds, merged", "unmerged", "ratio")
    table = Table(*columns, title="one row per rollout over one row per call", title_justify="left")
    for n, one in turns.items():
        cells = [
            text
            for name in ("tokens", "update_s")
            for text in (str(one["merged"][name]), str(one["unmerged"][name]), f"{one['ratio'][name]:.2f}")
        ]
        table.add_row(n, *cells)
    return table


def main(
    out: Annotated[Path | None, typer.Option(help="write the figures there as JSON")] = None,
    turns: Annotated[list[int] | None, typer.Option(min=2, help="LLM calls per rollout (default: 2, 4 and 8)")] = None,
    n_questions: Annotated[int, typer.Option(min=1, help="groups in a batch")] = 4,
    group_size: Annotated[int, typer.Option(min=2, help="rollouts of a group")] = 8,
    rounds: Annotated[int, typer.Option(min=1, help="updates of each kind; the best counts")] = 3,
) -> None:
    """Measure merged against unmerged rows; about two minutes on two cores."""
    warnings.filterwarnings("ignore", message="In CPU autocast")
    keep_freed_memory()
    model_path = ensure_tiny_policy(1)
    tokenizer = AutoTokenizer.from_pretrained(model_path)
    with tempfile.TemporaryDirectory() as folder, one_rank(Path(folder)):
        found = {
            str(n): measure(
                model_path,
                rollouts_of(tokenizer, n_questions=n_questions, group_size=group_size, n_calls=n),
                rounds=rounds,
            )
            for n in turns or (2, 4, 8)
        }
    about = {"rollouts": n_questions * group_size, "rounds": rounds, "threads": torch.get_num_threads()}
    if out:
        figures = {**about, "load": round(os.getloadavg()[0], 2), "turns": found}
        write_json(out, figures)
    Console().print(table_of(found))


if __name__ == "__main__":
    typer.run(main)
