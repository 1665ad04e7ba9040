"""A rollout that plays on over the ends of steps: the weights change without it, and nothing of the old ones is used.

vLLM's cache holds the keys and values of the prompt that all questions share. Were it kept, the next step's sampler
would say other log-probabilities than the trainer, who computes them anew: by 2e-3 to 1e-2 a token instead of 1e-6.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections import Counter
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from agentlightning import LightningStoreClient
from vllm import AsyncEngineArgs, RequestOutput, SamplingParams
from vllm.inputs import TokensPrompt
from vllm.v1.engine.async_llm import AsyncLLM

from agl_plugin.patches.replacements import version_of_vllm
from agl_plugin.proxy.gate import GONE
from agl_plugin.proxy.spans import CALL_SPAN, WEIGHTS
from foundation import run_folder
from foundation.environment import COMMON_ENV, CPU_ENV
from foundation.files import read_lines
from sql_agent.tiny_policy.build import ensure_tiny_policy
from tests.drills.conftest import START_S, Training, training

pytestmark = pytest.mark.slow
N_STEPS, N_MET = 6, 3  # of the steps, and of those whose end meets a late call under way: not each one does
N_TOKENS = 500  # of a late call; vLLM answers none longer than rollout.max_response_tokens
MOVED = [
    *("--set", "rollout.group_size=8", "--set", "optim.lr=0.003", "--set", "trainer.save_every=-1"),
    *("--set", f"rollout.max_response_tokens={N_TOKENS}", "--set", f"store.keep_spans={N_STEPS}"),
    # The shared prompt of the tiny policy is shorter than the 128 tokens of a block on CPUs.
    *("--set", "verl.actor_rollout_ref.rollout.engine_kwargs.vllm.block_size=16"),
]
LARGEST_GAP = 1e-4


def long_call(client: httpx.Client, url: str, model: str) -> httpx.Response:
    """One that may take vLLM seconds: at the highest temperature that it takes the end of a turn seldom comes."""
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "?"}]}
    return client.post(url, json={**body, "max_tokens": N_TOKENS, "temperature": 2.0})


def address_of(store: subprocess.Popen[bytes]) -> str:
    """Where a store listens that the test started."""
    command: Any = store.args
    return f"http://127.0.0.1:{command[command.index('--port') + 1]}"


def url_of_a_rollout(run: Training) -> str:
    """Where one of the first step calls the model; spans of a made-up one the store would refuse, with all others."""
    assert run.store is not None
    address = address_of(run.store)
    rollout_id = read_lines(run.folder / run_folder.ROLLOUTS)[0]["rollout_id"]

    async def found() -> tuple[Any, Any]:
        store = LightningStoreClient(address)
        try:
            return await store.get_latest_resources(), await store.get_latest_attempt(rollout_id)
        finally:
            await store.close()

    resources, attempt = asyncio.run(found())
    proxy = resources.resources["main_llm"].endpoint
    return f"{proxy}/rollout/{rollout_id}/attempt/{attempt.attempt_id}/v1/chat/completions"


class LateRollout(threading.Thread):
    """Calls the run's proxy without a pause; `answers` counts statuses and finish reasons."""

    def __init__(self, run: Training) -> None:
        super().__init__(daemon=True)
        self.answers = Counter[str]()
        self._run = run

    def run(self) -> None:
        """Until the run's end."""
        url, model = url_of_a_rollout(self._run), str(ensure_tiny_policy(1))
        with httpx.Client(trust_env=False, timeout=START_S) as client:
            while self._run.process.poll() is None:
                try:
                    reply = long_call(client, url, model)
                except httpx.TransportError:
                    time.sleep(0.2)
                    continue
                reason = reply.json()["choices"][0]["finish_reason"] if reply.is_success else ""
                self.answers[f"{reply.status_code} {reason}".strip()] += 1
                if not reply.is_success:
                    time.sleep(0.05)


def test_a_rollout_over_the_ends_of_steps_leaves_nothing_of_the_old_weights(tmp_path: Path) -> None:
    ensure_tiny_policy(1)
    with training(tmp_path / "runs", *MOVED, "--set", f"trainer.max_steps={N_STEPS}") as run:
        run.wait_for("train", 1)
        late = LateRollout(run)
        late.start()
        run.wait_for("train", N_STEPS)
        assert "run: " in run.end() and run.process.returncode == 0
        steps, counts = run.metrics("train"), run.summary()["late_calls"]
        rows = read_lines(run.folder / run_folder.ROLLOUTS)[1:]  # the first is the late one
        rows = [row for row in rows if row["mode"] == "train"]
        assert run.store and asyncio.run(weights_of(run.store, rows)) == [{row["step"] - 1} for row in rows]
    gaps = [step["sampler/log_prob_diff_mean"] for step in steps]
    print(late.answers, counts, gaps, [step["actor/weights_changed_share"] for step in steps])
    assert sum(step["actor/weights_changed_share"] > 0.5 for step in steps[:-1]) >= 2
    assert max(gaps) < LARGEST_GAP
    assert counts["aborted"] >= N_MET and late.answers[str(GONE)] >= counts["refused"] > 0


async def weights_of(store: subprocess.Popen[bytes], rows: list[dict[str, Any]]) -> list[set[Any]]:
    """For each rollout the versions of the weights that answered it, as its spans say."""
    client = LightningStoreClient(address_of(store))
    try:
        spans = [await client.query_spans(row["rollout_id"], name=CALL_SPAN) for row in rows]
    finally:
        await client.close()
    return [{span.attributes[WEIGHTS] for span in of_one} for of_one in spans]


async def test_vllm_is_left_by_all_and_keeps_nothing_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's abort on vLLM alone, which is what `drain` asks of each server."""
    monkeypatch.setattr(metadata, "version", version_of_vllm(metadata.version))
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

    for name, value in {**COMMON_ENV, **CPU_ENV}.items():
        monkeypatch.setenv(name, value)
    model = str(ensure_tiny_policy(1))
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(model, dtype="float32", enforce_eager=True, max_num_seqs=4))

    async def asked(name: str, *, n_tokens: int) -> RequestOutput:
        sampling = SamplingParams(max_tokens=n_tokens, ignore_eos=True)
        prompt = TokensPrompt(prompt_token_ids=[*range(5, 305)])
        return [output async for output in engine.generate(prompt, sampling, name)][-1]

    try:
        assert (await asked("first", n_tokens=1)).num_cached_tokens == 0
        assert (await asked("like the first", n_tokens=1)).num_cached_tokens
        late = asyncio.create_task(asked("late", n_tokens=N_TOKENS))
        await asyncio.sleep(0.5)
        server: Any = SimpleNamespace(engine=engine, node_rank=0, _admitting=0, _resume_event=asyncio.Event())
        assert (await vLLMHttpServer.abort_all_requests(server))["aborted_count"] == 1
        assert (await late).outputs[0].finish_reason == "abort"
        await engine.resume_generation()
        assert (await asked("with other weights", n_tokens=1)).num_cached_tokens == 0
    finally:
        engine.shutdown()
        engine.engine_core.resources.ctx.destroy()  # pyright: ignore[reportAttributeAccessIssue]
