"""How close judging comes to its lower bound, what groups save, and what a verdict from the cache costs.

  .venv/bin/python benchmarks/judge.py [--out judge.json]

wall     wall time of N verdicts over max(longest call, N x mean call / places), against an endpoint in a process of its
         own with log-normal latencies; plain, and asked with more calls than it has places. Medians of --rounds
cpu      milliseconds of processor time per verdict
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
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import SecretStr

from foundation.files import write_json
from reward_client import JudgeEndpoint, JudgeItem, LLMJudge, Mode, grade_group
from sql_agent.config import data_path
from sql_agent.data.dataset import load_questions
from sql_agent.testing.server import chat_reply, error_reply, openai_server

REASON = "要点与参考答案一致，缺少一项禁忌，表述清楚，没有编造的内容。"
VERDICT = {"accuracy": 0.9, "completeness": 0.7, "clarity": 1, "professionalism": 1, "reason": REASON}
GROUP_SIZES = (4, 8, 16)
MEAN_S, SIGMA = 0.3, 0.5  # of the latency
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Case:
    """So many verdicts with `concurrency` calls in flight, of which the endpoint refuses what is above its `places`."""

    n: int = 640
    concurrency: int = 16
    places: int = 1000


CASES = {"plain": Case(), "16 places, asked with 24": Case(places=16, concurrency=24)}


class Endpoint:
    """The endpoint's side: how long its calls took, and who is refused."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.latencies_s: list[float] = []
        self.n_refused = 0
        self._random = random.Random(7)
        self._lock = threading.Lock()
        self._open = 0

    def answer(self, _request: dict[str, Any]) -> Any:
        """A verdict after its latency, or a 429 at once."""
        with self._lock:
            if self._open >= self._case.places:
                self.n_refused += 1
                return error_reply(429, "slow down")
            latency_s = MEAN_S * self._random.lognormvariate(-(SIGMA**2) / 2, SIGMA)
            self._open += 1
        started_s = time.monotonic()
        time.sleep(latency_s)
        with self._lock:
            self._open -= 1
            self.latencies_s.append(time.monotonic() - started_s)
        return chat_reply(json.dumps(VERDICT, ensure_ascii=False))

    def figures(self) -> tuple[list[float], int]:
        """Latencies, and how many calls were refused."""
        return self.latencies_s, self.n_refused


def judge_at(url: str, folder: Path, **options: Any) -> LLMJudge:
    """A judge with a folder of its own."""
    endpoint = JudgeEndpoint(api_key=SecretStr("none"), base_url=url, model="local")
    return LLMJudge(endpoint, folder=folder, timeout_s=120.0, **options)


@contextmanager
def own_process(endpoint: Endpoint) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The address of an endpoint in a process of its own, and what ends it and gives the figures it has there."""
    ours, theirs = FORK.Pipe()

    def serve() -> None:
        with openai_server(endpoint.answer, keep_alive=True) as server:
            theirs.send(server.base_url)
            theirs.recv()
        theirs.send(endpoint.figures())

    process = FORK.Process(target=serve)
    process.start()

    def end() -> Any:
        ours.send("end")
        return ours.recv()

    try:
        yield ours.recv(), end
    finally:
        process.kill()
        process.join(10)


def grade_all(url: str, folder: Path, case: Case) -> None:
    """The verdicts of a case."""

    async def run() -> None:
        judge = judge_at(url, folder, concurrency=case.concurrency)
        items = [JudgeItem(question="问题？", answer=f"回答 {n}") for n in range(case.n)]
        await asyncio.gather(*(judge.grade(item) for item in items))

    asyncio.run(run())


def wall(case: Case) -> dict[str, float]:
    """One round: wall time, bound and their ratio; milliseconds of processor time per verdict."""
    with own_process(Endpoint(case)) as (url, end), tempfile.TemporaryDirectory() as folder:
        child = FORK.Process(target=grade_all, args=(url, Path(folder) / "judge", case))
        cpu_s, started_s = _children_cpu_s(), time.perf_counter()
        child.start()
        child.join()
        wall_s = time.perf_counter() - started_s
        cpu_s = _children_cpu_s() - cpu_s
        latencies_s, n_refused = end()
    assert len(latencies_s) == case.n, f"{len(latencies_s)} calls for {case.n} verdicts"
    places = min(case.concurrency, case.places)
    bound_s = max(max(latencies_s), case.n * statistics.fmean(latencies_s) / places)
    return {
        **{"wall_s": wall_s, "bound_s": bound_s, "ratio": wall_s / bound_s},
        **{"refused": n_refused, "cpu_ms": 1000 * cpu_s / case.n},
    }


def _children_cpu_s() -> float:
    """Of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of each figure."""
    return {name: round(statistics.median(row[name] for row in rounds), 3) for name in rounds[0]}


def n_tokens(text: str) -> int:
    """Chinese characters and words."""
    return len(re.findall(r"[\u3400-\u9fff]|\w+|[^\w\s]", text))


def counting(request: dict[str, Any]) -> dict[str, Any]:
    """A judge that answers in the form asked for and counts tokens."""
    text = request["messages"][1]["content"]
    n_answers = text.count("<<<BEGIN ANSWER_")
    name = request["response_format"]["json_schema"]["name"]
    ranking = {"ranking": [[n] for n in range(1, n_answers + 1)], "reason": REASON}
    said = {"verdict": VERDICT, "comparison": {"better": 1, "reason": REASON}, "ranking": ranking}[name]
    content = json.dumps(said, ensure_ascii=False)
    prompt_tokens = sum(n_tokens(message["content"]) for message in request["messages"])
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": n_tokens(content)}
    return {**chat_reply(content), "usage": usage}


def answers_of(reference: str, n: int) -> list[str]:
    """n different answers of about the length of the reference."""
    return [f"根据查询结果，{reference[: max(4, len(reference) - 2 * k)]}。以上第 {k} 条供参考。" for k in range(n)]


def tokens(n_questions: int = 8) -> dict[str, dict[str, float]]:
    """Mean tokens per answer of each mode, and ratios, by group size."""
    questions = load_questions(data_path("data/test.parquet"))
    chosen = questions[:: max(1, len(questions) // n_questions)][:n_questions]
    table: dict[str, dict[str, float]] = {}
    modes: Sequence[Mode] = ("pointwise", "groupwise", "pairwise")
    with openai_server(counting) as server:
        for n in GROUP_SIZES:
            per_answer: dict[str, float] = {}
            for mode in modes:
                with tempfile.TemporaryDirectory() as folder:
                    judge = judge_at(server.base_url, Path(folder))
                    used = [asyncio.run(_group_tokens(judge, question, n, mode)) for question in chosen]
                per_answer[mode] = round(statistics.fmean(used) / n, 1)
            ratios = {f"{mode}_ratio": round(per_answer[mode] / per_answer["pointwise"], 3) for mode in modes[1:]}
            table[str(n)] = {**per_answer, **ratios}
    return table


async def _group_tokens(judge: LLMJudge, question: Any, n: int, mode: Mode) -> int:
    evidence = [item.quote for item in question.evidence]
    item = JudgeItem(question=question.question, reference=question.answer, evidence=evidence, answer="")
    verdict = await grade_group(judge, item, answers_of(question.answer, n), mode=mode)
    assert not verdict.fell_back
    return verdict.usage.tokens


def cache_hit_ms(n: int = 500) -> float:
    """What a verdict costs that needs no call."""
    question = load_questions(data_path("data/test.parquet"))[0]
    item = JudgeItem(question=question.question, reference=question.answer, answer=question.answer * 3)

    async def hits(judge: LLMJudge) -> float:
        await judge.grade(item)
        started_s = time.perf_counter()
        for _ in range(n):
            assert (await judge.grade(item)).cached
        return (time.perf_counter() - started_s) / n * 1000

    with openai_server(counting) as server, tempfile.TemporaryDirectory() as folder:
        return round(asyncio.run(hits(judge_at(server.base_url, Path(folder)))), 3)


def main(
    out: Annotated[Path | None, typer.Option(help="write the figures there as JSON")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="runs of each wall time case; the median counts")] = 3,
    only: Annotated[str, typer.Option(help="only the wall time cases with this in their names")] = "",
) -> None:
    """Measure the judge client; about two minutes on an idle machine."""
    cases = {name: case for name, case in CASES.items() if only in name}
    walls = {name: medians([wall(case) for _ in range(rounds)]) for name, case in cases.items()}
    figures: dict[str, Any] = {"wall": walls}
    for name, row in walls.items():
        line = "{ratio:.2f} times the bound, {cpu_ms:.2f} ms of processor time, {refused:.0f} refused"
        typer.echo(f"{name}: {line.format(**row)}")
    if not only:
        figures |= {"tokens_per_answer": tokens(), "cache_hit_ms": cache_hit_ms()}
        saved = ", ".join(f"n={n} {row['groupwise_ratio']:.2f}" for n, row in figures["tokens_per_answer"].items())
        typer.echo(f"groupwise over pointwise tokens: {saved}; cache hit {figures['cache_hit_ms']:.2f} ms")
    if out:
        write_json(out, figures)


if __name__ == "__main__":
    typer.run(main)
