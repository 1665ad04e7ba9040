"""How close judging comes to its lower bound, what groups save, and what a verdict from the cache costs.

  .venv/bin/python benchmarks/judge.py

wall     wall time of N verdicts over max(longest call, N x mean call / concurrency), against an endpoint in a process
         of its own with log-normal latencies, plain and where it refuses calls above its places, and with 64 in flight
         of one latency. Medians of --rounds. Targets: at most 1.15; with answers of 0.2 s 1.6
cpu      milliseconds of processor time per verdict, beside the endpoint's own
tokens   prompt and completion tokens of one group of n answers, groupwise and pairwise over pointwise; a Chinese
         character or a word counts as one token; questions and evidence are the bundled ones
cached   ms per verdict from the cache
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import re
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import SecretStr

from reward_client import JudgeEndpoint, JudgeItem, LLMJudge, Mode, grade_group
from sql_agent.config import data_path
from sql_agent.data.dataset import load_questions
from sql_agent.records import Question
from sql_agent.testing.server import chat_reply, error_reply, openai_server

REASON = "要点与参考答案一致，缺少一项禁忌，表述清楚，没有编造的内容。"
VERDICT = {"accuracy": 0.9, "completeness": 0.7, "clarity": 1, "professionalism": 1, "reason": REASON}
GROUP_SIZES, N_QUESTIONS = (4, 8, 16), 8
MODES: tuple[Mode, ...] = ("pointwise", "groupwise", "pairwise")
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Case:
    """N verdicts with so many calls in flight, and the endpoint's places and latency."""

    n: int = 640
    concurrency: int = 16
    places: int = 1000
    mean_s: float = 0.3
    sigma: float = 0.5


CASES = {
    "plain": Case(),
    "16 places, asked with 24": Case(places=16, concurrency=24),
    "64 in flight, 1 s": Case(n=1600, concurrency=64, mean_s=1.0, sigma=0),
    "64 in flight, 0.2 s": Case(n=3200, concurrency=64, mean_s=0.2, sigma=0),
}


def serve(case: Case, line: Connection) -> None:
    """The endpoint: it sends its address and, told to end, the latencies of its calls and how many it refused.

    A call gets its verdict after a latency, or a 429 at once where all places are taken.
    """
    rng, lock = random.Random(7), threading.Lock()
    latencies_s: list[float] = []
    n_open = n_refused = 0

    def answer(_request: dict[str, Any]) -> Any:
        nonlocal n_open, n_refused
        started_s = time.monotonic()
        with lock:
            if n_open >= case.places:
                n_refused += 1
                return error_reply(429, "slow down")
            n_open += 1
            latency_s = case.mean_s * rng.lognormvariate(-(case.sigma**2) / 2, case.sigma)
        time.sleep(latency_s)
        with lock:
            n_open -= 1
            latencies_s.append(time.monotonic() - started_s)
        return chat_reply(json.dumps(VERDICT, ensure_ascii=False))

    with openai_server(answer, keep_alive=True) as server:
        line.send(server.base_url)
        line.recv()
    line.send((latencies_s, n_refused))


def judge_at(url: str, folder: Path, **options: Any) -> LLMJudge:
    endpoint = JudgeEndpoint(api_key=SecretStr("none"), base_url=url, model="local")
    return LLMJudge(endpoint, folder=folder, timeout_s=120.0, **options)


def wall(case: Case) -> dict[str, float]:
    """One round: wall time over its bound, refused calls, and milliseconds of processor time per verdict."""

    async def grade_all(judge: LLMJudge) -> None:
        items = [JudgeItem(question="问题？", answer=f"回答 {n}") for n in range(case.n)]
        await asyncio.gather(*(judge.grade(item) for item in items))

    line, its_line = FORK.Pipe()
    FORK.Process(target=serve, args=(case, its_line), daemon=True).start()
    url = line.recv()
    with tempfile.TemporaryDirectory() as folder:
        cpu_s, started_s = time.process_time(), time.perf_counter()
        asyncio.run(grade_all(judge_at(url, Path(folder), concurrency=case.concurrency)))
        wall_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_s
    line.send("end")
    latencies_s, n_refused = line.recv()
    assert len(latencies_s) == case.n, f"{len(latencies_s)} calls for {case.n} verdicts"
    bound_s = max(max(latencies_s), sum(latencies_s) / min(case.concurrency, case.places))
    return {"ratio": wall_s / bound_s, "refused": n_refused, "cpu_ms": 1000 * cpu_s / case.n}


def n_tokens(text: str) -> int:
    """Chinese characters and words."""
    return len(re.findall(r"[\u3400-\u9fff]|\w+|[^\w\s]", text))


def counting(request: dict[str, Any]) -> dict[str, Any]:
    """A judge that answers in the form asked for and counts tokens."""
    text = request["messages"][1]["content"]
    n_answers = text.count("<<<BEGIN ANSWER_")
    replies = {
        "verdict": VERDICT,
        "comparison": {"better": 1, "reason": REASON},
        "ranking": {"ranking": [[n] for n in range(1, n_answers + 1)], "reason": REASON},
    }
    content = json.dumps(replies[request["response_format"]["json_schema"]["name"]], ensure_ascii=False)
    prompt_tokens = sum(n_tokens(message["content"]) for message in request["messages"])
    return chat_reply(content) | {"usage": {"prompt_tokens": prompt_tokens, "completion_tokens": n_tokens(content)}}


def tokens() -> dict[int, dict[Mode, float]]:
    """Mean tokens per answer of each mode, by group size."""
    questions = load_questions(data_path("data/test.parquet"))
    chosen = questions[:: len(questions) // N_QUESTIONS][:N_QUESTIONS]
    table: dict[int, dict[Mode, float]] = defaultdict(dict)
    with openai_server(counting) as server:
        for n, mode in product(GROUP_SIZES, MODES):
            with tempfile.TemporaryDirectory() as folder:
                judge = judge_at(server.base_url, Path(folder))
                used = [asyncio.run(_group_tokens(judge, question, n, mode)) for question in chosen]
            table[n][mode] = statistics.fmean(used) / n
    return table


async def _group_tokens(judge: LLMJudge, question: Question, n: int, mode: Mode) -> int:
    """The tokens that judging a group of `n` different answers takes; they are about as long as the reference."""
    evidence = [item.quote for item in question.evidence]
    item = JudgeItem(question=question.question, reference=question.answer, evidence=evidence, answer="")
    text = question.answer
    answers = [f"根据查询结果，{text[: max(4, len(text) - 2 * k)]}。以上第 {k} 条供参考。" for k in range(n)]
    verdict = await grade_group(judge, item, answers, mode=mode)
    assert not verdict.fell_back
    return verdict.usage.tokens


def cached_ms() -> float:
    """What a verdict costs that needs no call."""
    question = load_questions(data_path("data/test.parquet"))[0]
    item = JudgeItem(question=question.question, reference=question.answer, answer=question.answer * 3)

    async def hits(judge: LLMJudge, n: int) -> float:
        await judge.grade(item)
        started_s = time.perf_counter()
        for _ in range(n):
            assert (await judge.grade(item)).usage.cache_hits
        return (time.perf_counter() - started_s) / n * 1000

    with openai_server(counting) as server, tempfile.TemporaryDirectory() as folder:
        return round(asyncio.run(hits(judge_at(server.base_url, Path(folder)), 500)), 3)


def main(
    rounds: Annotated[int, typer.Option(min=1, help="runs of each wall time case; the median counts")] = 3,
) -> None:
    """Measure the judge client; about four minutes on an idle machine."""
    by_round = {name: [wall(case) for _ in range(rounds)] for name, case in CASES.items()}
    for name, rows in by_round.items():
        median = {figure: statistics.median(row[figure] for row in rows) for figure in rows[0]}
        line = "{ratio:.2f} times the bound, {cpu_ms:.2f} ms of processor time, {refused:.0f} refused"
        typer.echo(f"{name}: {line.format(**median)}")
    table = tokens()
    for mode in MODES[1:]:
        saved = ", ".join(f"n={n} {row[mode] / row[MODES[0]]:.2f}" for n, row in table.items())
        typer.echo(f"{mode} over pointwise tokens: {saved}")
    typer.echo(f"cache hit {cached_ms():.2f} ms")


if __name__ == "__main__":
    typer.run(main)
