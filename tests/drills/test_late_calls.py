"""A rollout that plays on over the ends of steps: the weights change without it, and nothing of the old ones is used.

vLLM's cache holds the keys and values of the prompt that all questions share. Were it kept, the next step's sampler
would say other log-probabilities than the trainer, who computes them anew.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from agl_plugin.proxy.gate import GONE
from foundation.net import free_port
from sql_agent.config import build_config
from sql_agent.serving.server import serve_model
from sql_agent.tiny_policy.build import ensure_tiny_policy
from tests.drills.conftest import START_S, Training, training, until

pytestmark = pytest.mark.slow
N_STEPS = 5
MOVED = ["--set", "rollout.group_size=8", "--set", "optim.lr=0.003", "--set", "trainer.save_every=-1"]
LARGEST_GAP = 1e-4


def long_call(client: httpx.Client, url: str, model: str) -> httpx.Response:
    """One that takes vLLM seconds."""
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "?"}]}
    return client.post(url, json={**body, "max_tokens": 900, "min_tokens": 900})


class LateRollout(threading.Thread):
    """Calls the run's proxy without a pause; `answers` counts statuses and finish reasons."""

    def __init__(self, proxy_port: int, run: Training) -> None:
        super().__init__(daemon=True)
        self.answers = Counter[str]()
        self._address, self._run = f"http://127.0.0.1:{proxy_port}", run

    def run(self) -> None:
        """Until the run's end."""
        model = str(ensure_tiny_policy(1))
        with httpx.Client(trust_env=False, timeout=START_S) as client:
            while self._run.process.poll() is None:
                try:
                    url = f"{self._address}/rollout/late/attempt/at/v1/chat/completions"
                    reply = long_call(client, url, model)
                except httpx.TransportError:
                    time.sleep(0.2)
                    continue
                reason = reply.json()["choices"][0]["finish_reason"] if reply.is_success else ""
                self.answers[f"{reply.status_code} {reason}".strip()] += 1
                time.sleep(0.05)


def test_a_rollout_over_the_ends_of_steps_leaves_nothing_of_the_old_weights(tmp_path: Path) -> None:
    ensure_tiny_policy(1)
    port = free_port()
    settings = [*MOVED, "--set", f"trainer.max_steps={N_STEPS}", "--set", f"store.proxy_port={port}"]
    with training(tmp_path / "runs", *settings) as run:
        late = LateRollout(port, run)
        late.start()
        text = run.end()
        assert run.process.returncode == 0, text
        steps, counts = run.metrics("train"), run.summary()["late_calls"]
    gaps = [step["sampler/log_prob_diff_mean"] for step in steps]
    print(late.answers, counts, gaps, [step["actor/weights_changed_share"] for step in steps])
    assert counts["aborted"] >= N_STEPS and late.answers[str(GONE)] >= counts["refused"] > 0
    assert "calls after a step's end" in text
    assert sum(step["actor/weights_changed_share"] > 0.5 for step in steps[:-1]) >= 2
    assert max(gaps) < LARGEST_GAP


def test_vllm_says_where_it_keeps_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the patch it answers 200 all the same."""
    monkeypatch.setenv("VLLM_SERVER_DEV_MODE", "1")  # which offers what verl calls under an address
    with serve_model(ensure_tiny_policy(1), build_config({}), cpu=True) as server:
        root = server.base_url.removesuffix("/v1")
        with httpx.Client(trust_env=False, timeout=START_S) as client:
            call = threading.Thread(
                target=long_call, args=(client, f"{server.base_url}/chat/completions", server.model), daemon=True
            )
            call.start()
            until(lambda: "vllm:num_requests_running{" in (text := client.get(f"{root}/metrics").text)
                  and not text.split("vllm:num_requests_running{")[1].split("\n")[0].endswith(" 0.0"))  # fmt: skip
            while_it_runs = client.post(f"{root}/reset_prefix_cache").status_code
            call.join()
            assert (while_it_runs, client.post(f"{root}/reset_prefix_cache").status_code) == (500, 200)
