"""What a step needs besides the model, and what runs out first: the model of cost behind docs/70-scale.md.

    python -m benchmarks.scale                                       256 rollouts, 3 calls, 1,000 tokens
    python -m benchmarks.scale --rollouts 4096 --calls 50 --tokens 8000 --step-s 600

One rollout of this shape goes through the code of a run: its spans as the gateway writes them, read, made rows and
written for the audit; its CPU time, bytes and memory are measured, and taken times the rollouts. The CPU of gateway and
store per call and per operation are options: `benchmarks.traffic` and `benchmarks.store` measure them. A part runs out
where the one core that it has is busy for the whole step.
"""

from __future__ import annotations

import functools
import json
import random
import time
import timeit
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from agentlightning.types import Attempt, Rollout, Span
from rich.console import Console
from rich.table import Table

from agl_plugin.audit.facts import rollout_rows
from agl_plugin.audit.spans import seen_rollout
from agl_plugin.proxy.answers import Request
from agl_plugin.proxy.spans import CALL_SPAN
from agl_plugin.proxy.tokens import Packer
from agl_plugin.update.adapter import read_calls
from agl_plugin.update.rows import Limits, rows_of_calls

VOCABULARY, SYSTEM_TOKENS, REPEATS = 150_000, 400, 3
STORE_OPERATIONS = 6  # of a rollout besides its calls


@dataclass(frozen=True)
class Shape:
    """A step: how many rollouts, with how many calls, of which the last sees so many tokens and each samples some."""

    rollouts: int
    calls: int
    tokens: int
    sampled: int

    @property
    def read(self) -> int:
        """Tokens of all prompts of a rollout: each call sees what was before it."""
        return sum(self.prompt(n) for n in range(self.calls))

    def prompt(self, n: int) -> int:
        """Tokens that the nth call sees."""
        first = min(SYSTEM_TOKENS, self.tokens)
        return first + (self.tokens - first) * n // max(1, self.calls - 1)


@dataclass(frozen=True)
class Part:
    """What one process does for a step: seconds of its core, GiB that it writes or holds; what would relieve it."""

    name: str
    seconds: float
    gib: float
    relief: str
    is_memory: bool = False

    def share(self, step_s: float, memory_gib: float) -> float:
        """Of its core's time in the step, or of the machine's memory: 1 is all."""
        return max(self.seconds / step_s, self.gib / memory_gib if self.is_memory else 0)


def spans_of(shape: Shape) -> list[Span]:
    rng = random.Random(1)
    pack = functools.partial(Packer().packed, "at")
    spans: list[Span] = []
    ids: list[int] = []
    for n in range(shape.calls):
        ids += [rng.randrange(VOCABULARY) for _ in range(shape.prompt(n) - len(ids))]  # what tools said
        sampled = [rng.randrange(VOCABULARY) for _ in range(shape.sampled)]
        log_probs = {"content": [{"logprob": -rng.random()} for _ in sampled]}
        choice = {"index": 0, "finish_reason": "stop", "token_ids": sampled, "logprobs": log_probs}
        answer: dict[str, Any] = {"id": f"call-{n}", "prompt_token_ids": ids[:], "choices": [choice]}
        ids += sampled
        text = "x" * 4 * len(ids)  # about four letters a token
        body = {"messages": [{"role": "user", "content": text}]}
        notes = Request(body, log_probs=True, pack=pack).notes(answer)
        spans.append(
            Span.from_attributes(
                name=CALL_SPAN, attributes=notes, sequence_id=n, rollout_id="ro", attempt_id="at", start_time=float(n)
            )
        )
    return spans


def cpu_s(work: Callable[[], Any]) -> float:
    """The least CPU time of REPEATS runs, in seconds."""
    return min(timeit.repeat(work, timer=time.process_time, number=1, repeat=REPEATS))


def held_bytes(work: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        result = work()  # held until it is counted
        return tracemalloc.get_traced_memory()[0] if result else 0
    finally:
        tracemalloc.stop()


def parts_of(shape: Shape, *, gateway_ms: float, store_ms: float, operation_ms: float) -> list[Part]:
    spans, limits = spans_of(shape), Limits(shape.tokens, shape.tokens + shape.calls * shape.sampled)
    calls, _ = read_calls(spans)
    assert len(calls) == shape.calls
    attempt = Attempt(attempt_id="at", rollout_id="ro", sequence_id=1, start_time=0.0, status="succeeded")
    rollout = Rollout(rollout_id="ro", input={}, start_time=0.0, status="succeeded")
    seen = seen_rollout(rollout, [attempt], spans, calls)

    def audit() -> list[bytes]:
        rows = rollout_rows([seen], {"ro": {}}, run_id="run")["llm_call"]
        return [value for row in rows for value in row.values() if isinstance(value, bytes)]

    written = sum(len(span.model_dump_json()) for span in spans)
    n, gib = shape.rollouts, shape.rollouts / 2**30
    per_call_s = shape.calls * n / 1000
    return [
        Part("gateway: calls", per_call_s * gateway_ms, 0.0, "fewer calls a rollout; longer steps"),
        Part(
            "store: rollouts and spans",
            per_call_s * store_ms + STORE_OPERATIONS * operation_ms * n / 1000 + n * cpu_s(lambda: _through(spans)),
            written * gib,
            "`store.keep_spans` lower: the file holds so many steps",
        ),
        Part(
            "trainer: reading spans",
            n * cpu_s(lambda: read_calls(spans)),
            held_bytes(lambda: read_calls(spans)) * gib,
            "shorter histories (`agent.context`), fewer calls",
            is_memory=True,
        ),
        Part(
            "trainer: rows",
            n * cpu_s(lambda: rows_of_calls(calls, merge=True, limits=limits)),
            held_bytes(lambda: rows_of_calls(calls, merge=True, limits=limits)) * gib,
            "fewer rollouts a step",
            is_memory=True,
        ),
        Part("audit: calls", n * cpu_s(audit), sum(map(len, audit())) * gib, "`logging.audit = false`"),
    ]


def _through(spans: list[Span]) -> None:
    """What a store does at least with a span: read its text, and write it."""
    for span in spans:
        json.dumps(json.loads(span.model_dump_json()))


def main(
    rollouts: Annotated[int, typer.Option(min=1, help="of a step")] = 256,
    calls: Annotated[int, typer.Option(min=1, help="of a rollout")] = 3,
    tokens: Annotated[int, typer.Option(min=1, help="that its last call sees")] = 1000,
    sampled: Annotated[int, typer.Option(min=1, help="tokens that each call samples")] = 60,
    step_s: Annotated[float, typer.Option(min=1, help="a step's seconds with this model and these GPUs")] = 60.0,
    memory_gib: Annotated[float, typer.Option(min=1, help="of the trainer's machine")] = 64.0,
    gateway_ms: Annotated[float, typer.Option(help="CPU of the gateway per call (benchmarks.traffic)")] = 0.42,
    store_ms: Annotated[float, typer.Option(help="CPU of the store per call's span of a few tokens")] = 0.18,
    operation_ms: Annotated[float, typer.Option(help="CPU of the store per operation (benchmarks.store)")] = 0.45,
) -> None:
    """What a step needs besides the model, and at how many rollouts each part runs out."""
    shape = Shape(rollouts, calls, tokens, sampled)
    parts = parts_of(shape, gateway_ms=gateway_ms, store_ms=store_ms, operation_ms=operation_ms)
    table = Table(title=f"{rollouts} rollouts of {calls} calls, {tokens} tokens: {shape.read * rollouts:,} tokens read")
    table.add_column("part")
    for head in ("CPU s a step", "GiB a step", "most rollouts in a step"):
        table.add_column(head, justify="right")
    table.add_column("what relieves it")
    shares = {part: part.share(step_s, memory_gib) for part in parts}
    ranked = sorted(parts, key=lambda part: -shares[part])
    for part in ranked:
        gib = f"{part.gib:.2f} {'held' if part.is_memory else 'written'}" if part.gib else ""
        table.add_row(part.name, f"{part.seconds:.1f}", gib, f"{rollouts / shares[part]:,.0f}", part.relief)
    console = Console(width=150)
    console.print(table)
    percent = 100 * shares[ranked[0]]
    console.print(f"runs out first: {ranked[0].name}, at {percent:.0f} % of a step of {step_s:g} s or of memory")


if __name__ == "__main__":
    typer.run(main)
