"""Throughput of the scoring API against plain transformers: `python benchmarks/scoring.py --model_path DIR`.

All figures of one run, on one machine, with one set of items (prompts and answers of mixed length):
  plain      items/s of a transformers loop: tokenize, pad, forward, in batches of --batch-size in the given order
  batch      items/s of /score-batch, one client, --max-items items a request
  single     items/s of the same loop with one item at a time
  clients    items/s of 32 clients that send /score one by one; `unbatched` is the same with --batch-size 1
Ratios: batch / plain (at least 0.9 is wanted), clients / single, clients / unbatched.
Wall-clock times: run it on an idle machine. The server and its clients share the processor with nothing else to do.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import httpx
import torch
import typer
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from benchmarks.support.load import server, work_on
from foundation.files import write_json
from foundation.net import free_port
from reward_model.pairs import grounded

N_CLIENTS = 32
WORDS = "头痛发热高血压糖尿病禁忌适应症用法用量每日一次口服注射过敏孕妇慎用监测肝功能"


def make_items(n: int) -> list[dict[str, str]]:
    """Prompts, references and answers of 5 to 200 characters."""
    rng = random.Random(1)

    def text(most: int) -> str:
        return "".join(rng.choices(WORDS, k=rng.randint(5, most)))

    return [{"prompt": text(40), "reference": text(120), "response": text(200)} for _ in range(n)]


class Plain:
    """The loop that one would write without a server."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._model = AutoModelForSequenceClassification.from_pretrained(
            folder, dtype=torch.float32, use_safetensors=True, local_files_only=True
        )
        self._model.eval().to("cuda" if torch.cuda.is_available() else "cpu")

    @torch.inference_mode()
    def __call__(self, items: list[dict[str, str]], *, batch_size: int) -> list[float]:
        scores: list[float] = []
        for start in range(0, len(items), batch_size):
            chats = [
                [
                    {"role": "user", "content": grounded(item["prompt"], item["reference"])},
                    {"role": "assistant", "content": item["response"]},
                ]
                for item in items[start : start + batch_size]
            ]
            texts = self._tokenizer.apply_chat_template(chats, tokenize=False)
            batch: Any = self._tokenizer(texts, add_special_tokens=False, padding=True, return_tensors="pt")
            scores += self._model(**batch.to(self._model.device)).logits[:, 0].float().tolist()
        return scores


@contextmanager
def serve(folder: Path, *, batch_size: int) -> Iterator[str]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "reward_model.inference_api", "--model_path", str(folder)]
    command += ["--port", str(port), "--batch-size", str(batch_size)]
    with server(command, f"{url}/readyz", REWARD_API_TOKEN=""):
        yield url


def batch_scores(client: httpx.Client, items: list[dict[str, str]], max_items: int) -> list[float]:
    """Scores by /score-batch, one request after the other."""
    scores: list[float] = []
    for start in range(0, len(items), max_items):
        answer = client.post("/score-batch", json={"items": items[start : start + max_items]}).raise_for_status()
        scores += [score["score"] for score in answer.json()["results"]]
    return scores


async def client_scores(url: str, items: list[dict[str, str]]) -> list[float]:
    """Scores by /score, from N_CLIENTS clients that each send one item at a time."""
    scores = [0.0] * len(items)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=N_CLIENTS)) as session:

        async def ask(place: int) -> None:
            async with session.post(f"{url}/score", json=items[place]) as answer:
                scores[place] = (await answer.json())["score"]

        await work_on(ask, range(len(items)), N_CLIENTS)
    return scores


def rates(runs: dict[str, Callable[[], list[float]]], n_items: int, rounds: int) -> dict[str, list[float]]:
    """items/s of each run in each round; taking turns, so that a busy moment hits all of them."""
    for run in runs.values():
        run()
    measured: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            started_s = time.perf_counter()
            run()
            measured[name].append(n_items / (time.perf_counter() - started_s))
    return measured


def measure(folder: Path, *, n_items: int, batch_size: int, max_items: int, rounds: int) -> dict[str, Any]:
    items = make_items(n_items)
    plain = Plain(folder)
    with (
        serve(folder, batch_size=batch_size) as url,
        serve(folder, batch_size=1) as unbatched_url,
        httpx.Client(base_url=url, trust_env=False, timeout=600) as client,
    ):
        runs: dict[str, Callable[[], list[float]]] = {
            "plain": lambda: plain(items, batch_size=batch_size),
            "batch": lambda: batch_scores(client, items, max_items),
            "single": lambda: plain(items, batch_size=1),
            "clients": lambda: asyncio.run(client_scores(url, items)),
            "unbatched": lambda: asyncio.run(client_scores(unbatched_url, items)),
        }
        furthest = max(abs(a - b) for a, b in zip(runs["plain"](), runs["batch"](), strict=True))
        by_round = rates(runs, n_items, rounds)
    per_s = {name: statistics.median(values) for name, values in by_round.items()}
    over = [("batch", "plain"), ("clients", "single"), ("clients", "unbatched")]
    return {
        "items_per_s": {name: round(rate, 1) for name, rate in per_s.items()},
        "ratio": {
            # The median of the rounds' own ratios: both halves of each were measured within seconds.
            f"{a}/{b}": round(statistics.median(x / y for x, y in zip(by_round[a], by_round[b], strict=True)), 3)
            for a, b in over
        },
        "largest_score_difference": furthest,
        "n_items": n_items,
        "rounds": rounds,
        "device": str(plain._model.device),
        "threads": torch.get_num_threads(),
    }


def main(
    model_path: Annotated[Path, typer.Option("--model_path", "--model-path", help="folder of the reward model")],
    out: Annotated[Path | None, typer.Option(help="write the figures there as JSON")] = None,
    n_items: Annotated[int, typer.Option(min=32, help="items per round")] = 512,
    batch_size: Annotated[int, typer.Option(min=1, help="items per forward pass, in server and loop")] = 32,
    max_items: Annotated[int, typer.Option(min=1, help="items of one /score-batch")] = 256,
    rounds: Annotated[int, typer.Option(min=1, help="repetitions; the median counts")] = 5,
) -> None:
    """Measure the scoring API against a plain transformers loop."""
    figures = measure(model_path, n_items=n_items, batch_size=batch_size, max_items=max_items, rounds=rounds)
    if out:
        write_json(out, figures)
    rate = ", ".join(f"{name} {value:.0f}" for name, value in figures["items_per_s"].items())
    ratio = ", ".join(f"{name} x{value:.2f}" for name, value in figures["ratio"].items())
    typer.echo(f"items/s: {rate}; {ratio}; largest score difference {figures['largest_score_difference']:.1e}")


if __name__ == "__main__":
    typer.run(main)
