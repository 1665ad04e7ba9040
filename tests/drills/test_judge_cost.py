"""What judging with an LLM costs: time over its lower bound under every kind of limit, and tokens per answer by mode.

    .venv/bin/python -m pytest -s tests/drills/test_judge_cost.py          prints the figures of docs/20-reward.md

The endpoint is a process of its own with log-normal latencies. The bound of N verdicts is the largest of the longest
call, N x mean call / calls in flight, and N / calls a minute.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import random
import re
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from reward_client import JudgeEndpoint, JudgeItem, LLMJudge, Mode, grade_group
from sql_agent.config import data_path
from sql_agent.data.dataset import load_questions
from sql_agent.records import Question
from tests.server import chat_reply, error_reply, openai_server

pytestmark = pytest.mark.slow

LARGEST_RATIO = 1.3  # 1.15 on an idle machine
REASON = "要点与参考答案一致，缺少一项禁忌，表述清楚，没有编造的内容。"
VERDICT = {"accuracy": 0.9, "completeness": 0.7, "clarity": 1, "professionalism": 1, "reason": REASON}
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Case:
    """N verdicts by `processes` with `concurrency` calls in flight in all; the endpoint's limits (rpm 0: any)."""

    n: int = 640
    concurrency: int = 16
    processes: int = 1
    busy_share: float = 0.0
    places: int = 1000
    rpm: int = 0


CASES = {
    "plain": Case(),
    "random 429s": Case(busy_share=0.02),
    "16 places, asked with 24": Case(places=16, concurrency=24),
    "600 a minute": Case(rpm=600, n=120),
    "4 processes": Case(places=16, processes=4),
}


class Endpoint:
    """The endpoint's side: how long its calls took, and who is refused."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.latencies_s: list[float] = []
        self.n_refused = 0
        self._random = random.Random(7)
        self._lock = threading.Lock()
        self._open = 0
        self._starts: list[float] = []

    def __call__(self, _request: dict[str, Any]) -> Any:
        """A verdict after its latency, or a 429 at once."""
        case, now = self._case, time.monotonic()
        with self._lock:
            self._starts = [at for at in self._starts if at > now - 6.0]
            crowded = case.rpm and len(self._starts) >= case.rpm / 10 + 1  # over the last 6 s
            if self._open >= case.places or crowded or self._random.random() < case.busy_share:
                self.n_refused += 1
                return error_reply(429, "slow down")
            latency_s = 0.3 * self._random.lognormvariate(-0.125, 0.5)
            self._starts.append(now)
            self._open += 1
        time.sleep(latency_s)
        with self._lock:
            self._open -= 1
            self.latencies_s.append(time.monotonic() - now)
        return chat_reply(json.dumps(VERDICT, ensure_ascii=False))


def serve(case: Case, pipe: Any) -> None:
    endpoint = Endpoint(case)
    with openai_server(endpoint) as server:
        pipe.send(server.base_url)
        pipe.recv()
    pipe.send((endpoint.latencies_s, endpoint.n_refused))


@contextmanager
def served(case: Case) -> Iterator[tuple[str, Callable[[], tuple[list[float], int]]]]:
    """The endpoint's address, and what ends it and gives its latencies and 429s."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=serve, args=(case, theirs))
    process.start()

    def end() -> tuple[list[float], int]:
        ours.send("end")
        return ours.recv()

    try:
        yield ours.recv(), end
    finally:
        process.join(10)
        process.kill()


def judge_at(url: str, folder: Path, **options: Any) -> LLMJudge:
    endpoint = JudgeEndpoint(api_key=SecretStr("none"), base_url=url, model="local")
    return LLMJudge(endpoint, folder=folder, timeout_s=120.0, **options)


def judge_share(url: str, folder: Path, case: Case, share: int) -> None:
    """Grade every `case.processes`-th item."""
    logging.getLogger("reward_client").setLevel(logging.ERROR)  # each 429 is a warning

    async def run() -> None:
        judge = judge_at(url, folder, concurrency=case.concurrency, rpm=case.rpm)
        numbers = range(share, case.n, case.processes)
        await asyncio.gather(*(judge.grade(JudgeItem(question="问题？", answer=f"回答 {n}")) for n in numbers))

    asyncio.run(run())


def ratio_of(case: Case, folder: Path) -> tuple[float, int]:
    """Wall time over its bound, and 429s."""
    with served(case) as (url, end):
        judge_share(url, folder / "warm", replace(case, n=1, rpm=0), 0)
        children = [
            FORK.Process(target=judge_share, args=(url, folder / "judge", case, share))
            for share in range(case.processes)
        ]
        started_s = time.perf_counter()
        for child in children:
            child.start()
        for child in children:
            child.join()
        wall_s = time.perf_counter() - started_s
        (_, *latencies_s), n_refused = end()
    assert len(latencies_s) == case.n, f"{len(latencies_s)} calls for {case.n} verdicts"
    in_flight = case.n * statistics.fmean(latencies_s) / min(case.concurrency, case.places)
    bound_s = max(max(latencies_s), in_flight, 60 * case.n / case.rpm if case.rpm else 0.0)
    return wall_s / bound_s, n_refused


@pytest.mark.parametrize("name", CASES)
def test_judging_is_near_its_lower_bound(name: str, tmp_path: Path) -> None:
    ratio, n_refused = min(ratio_of(CASES[name], tmp_path / str(n)) for n in range(2))
    print(f"{name}: {ratio:.2f} times the bound, {n_refused} refused")
    assert ratio < LARGEST_RATIO


def n_tokens(text: str) -> int:
    """Chinese characters and words."""
    return len(re.findall(r"[\u3400-\u9fff]|\w+|[^\w\s]", text))


def counting(request: dict[str, Any]) -> dict[str, Any]:
    """A judge that answers in the form asked for and counts tokens."""
    n_answers = request["messages"][1]["content"].count("<<<BEGIN ANSWER_")
    ranking = {"ranking": [[n] for n in range(1, n_answers + 1)], "reason": REASON}
    forms = {"verdict": VERDICT, "comparison": {"better": 1, "reason": REASON}, "ranking": ranking}
    content = json.dumps(forms[request["response_format"]["json_schema"]["name"]], ensure_ascii=False)
    prompt_tokens = sum(n_tokens(message["content"]) for message in request["messages"])
    return {**chat_reply(content), "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": n_tokens(content)}}


async def group_tokens(judge: LLMJudge, question: Question, n: int, mode: Mode) -> int:
    """Tokens of judging n different answers of about the reference's length."""
    evidence, reference = [item.quote for item in question.evidence], question.answer
    told = [f"根据查询结果，{reference[: max(4, len(reference) - 2 * k)]}。以上第 {k} 条供参考。" for k in range(n)]
    item = JudgeItem(question=question.question, reference=reference, evidence=evidence, answer="")
    verdict = await grade_group(judge, item, told, mode=mode)
    assert not verdict.fell_back
    return verdict.usage.tokens


@pytest.mark.parametrize("n", [4, 8, 16])
def test_a_ranking_takes_fewer_tokens_than_a_grade_each(n: int, tmp_path: Path) -> None:
    questions = load_questions(data_path("data/test.parquet"))
    chosen = questions[:: len(questions) // 8][:8]
    used: dict[Mode, float] = {}
    modes: tuple[Mode, ...] = ("pointwise", "groupwise", "pairwise")
    with openai_server(counting) as server:
        for mode in modes:
            judges = [judge_at(server.base_url, tmp_path / f"{mode}-{q.id}") for q in chosen]
            groups = zip(judges, chosen, strict=True)
            used[mode] = statistics.fmean(asyncio.run(group_tokens(judge, q, n, mode)) for judge, q in groups)
    groupwise, pairwise = used["groupwise"] / used["pointwise"], used["pairwise"] / used["pointwise"]
    print(f"group of {n}: groupwise {groupwise:.2f}, pairwise {pairwise:.1f} times the tokens of pointwise")
    assert groupwise < 1.2 / n**0.75 and pairwise > n / 2
