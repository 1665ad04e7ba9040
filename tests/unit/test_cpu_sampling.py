"""Sampling on a CPU: the distribution, the seeds of requests, and vLLM's own sampler with it in place."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from transformers import Qwen3Config

from agl_plugin.cpu.sampling import PER_DRAW, Draws, forward_cpu, sample_by_inversion, with_own_draws
from agl_plugin.patches.register import SAMPLER
from foundation.seeds import derived
from sql_agent.config import ROOT


def test_tokens_come_as_often_as_they_are_likely() -> None:
    torch.manual_seed(0)
    probs = torch.tensor([0.5, 0.2, 0.0, 0.2, 0.0999, 0.0001])
    tokens = sample_by_inversion(probs.expand(50_000, -1), {})
    counts = torch.bincount(tokens, minlength=6)
    assert counts[2] == 0
    kept = probs > 0
    assert chisquare(counts[kept], 50_000 * (probs[kept] / probs.sum())).pvalue > 1e-3


@given(st.lists(st.sampled_from([0.0, 1e-30, 0.3, 1.0, 7.0]), min_size=1, max_size=40).filter(any), st.integers(0, 99))
def test_an_impossible_token_is_never_drawn(weights: list[float], seed: int) -> None:
    torch.manual_seed(seed)
    tokens = sample_by_inversion(torch.tensor([weights] * 20), {})
    assert tokens.shape == (20,) and all(weights[token] > 0 for token in tokens)


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2**-53, 1.0])
def test_the_ends_of_the_range_are_tokens(monkeypatch: pytest.MonkeyPatch, uniform: float) -> None:
    monkeypatch.setattr(torch, "rand", lambda *shape, **_kwargs: torch.full(shape, uniform, dtype=torch.float64))
    probs = torch.tensor([[0.0, 0.1, 0.2, 0.0], [0.0, 1.0, 0.0, 0.0]])
    assert sample_by_inversion(probs, {}).tolist() == ([1, 1] if uniform == 0 else [2, 1])


def test_a_request_with_a_seed_gets_the_same_tokens_beside_any_others() -> None:
    probs = torch.softmax(torch.randn(4, 500), dim=-1)

    def drawn(seed: int) -> int:
        return int(sample_by_inversion(probs, {2: Draws(seed)})[2])

    assert [drawn(seed) for seed in range(20)] == [drawn(seed) for seed in range(20)]
    assert len({drawn(seed) for seed in range(20)}) > 5


def test_tokens_of_seeds_come_as_often_as_they_are_likely() -> None:
    """Over the calls of a place, and over the places of a call."""
    probs = torch.tensor([0.5, 0.2, 0.0, 0.2, 0.0999, 0.0001])
    draws = [Draws(derived(n)) for n in range(2_000)]
    rounds = [sample_by_inversion(probs.expand(2_000, -1), dict(enumerate(draws))) for _ in range(25)]
    for tokens in (rounds[0], rounds[24], torch.cat(rounds), torch.stack(rounds)[:, :400].flatten()):
        counts, kept = torch.bincount(tokens, minlength=6), probs > 0.01
        assert counts[2] == 0
        shares = probs[kept].double() / probs[kept].double().sum()
        assert chisquare(counts[kept], counts[kept].sum() * shares).pvalue > 1e-3


def test_a_request_that_vllm_reads_in_parts_draws_the_same() -> None:
    """What its worker does with a draw that does not count, which torch's generator of a CPU refuses."""
    state: Any = importlib.import_module("vllm.v1.worker.gpu_input_batch").CachedRequestState
    made = {name: None for name in ("mm_features", "sampling_params", "pooling_params")}
    whole, parts = (
        state(req_id=name, prompt_token_ids=[1], generator=torch.Generator().manual_seed(5), block_ids=([],),
              num_computed_tokens=0, output_token_ids=[], **made)
        for name in "ab"
    )  # fmt: skip
    for one in (whole, parts):
        with_own_draws(lambda _state: None)(one)
    with pytest.raises(RuntimeError, match="does not use offset"):
        torch.Generator().get_offset()
    parts.generator.next()
    parts.generator.set_offset(parts.generator.get_offset() - PER_DRAW)
    assert [parts.generator.next() for _ in range(5)] == [whole.generator.next() for _ in range(5)]


ENGINE = """
import json, os, sys
from foundation.environment import prepare_environment
prepare_environment(cpu=True, offline=True)
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
model, most_tokens, without = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
from agl_plugin.patches import install
install.PATCHES = tuple(patch for patch in install.PATCHES if patch.name not in without)
from vllm import LLM, SamplingParams
engine = LLM(
    model, dtype="float32", load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, max_model_len=256,
    max_num_seqs=4, max_num_batched_tokens=most_tokens, enable_chunked_prefill=True, disable_log_stats=True,
)
asked = SamplingParams(max_tokens=12, temperature=1.0, seed=5, detokenize=False)
(answer,) = engine.generate([{"prompt_token_ids": list(range(20, 120))}], asked, use_tqdm=False)
print(json.dumps(list(answer.outputs[0].token_ids)), file=sys.__stdout__)
"""


@pytest.mark.slow
def test_an_engine_that_reads_a_prompt_with_a_seed_in_parts_ends_without_the_patch(tmp_path: Path) -> None:
    Qwen3Config(
        vocab_size=200, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=512, architectures=["Qwen3ForCausalLM"],
    ).save_pretrained(tmp_path)  # fmt: skip

    def answered(*settings: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "ignore", "-c", ENGINE, str(tmp_path), *settings]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)

    with ThreadPoolExecutor() as pool:
        whole, parts, without = pool.map(lambda s: answered(*s), (["256"], ["32"], ["32", "seeds_that_turn_back"]))
    assert len(json.loads(whole.stdout.splitlines()[-1])) == 12, whole.stderr[-3000:]
    assert whole.stdout.splitlines()[-1] == parts.stdout.splitlines()[-1], parts.stderr[-3000:]
    assert without.returncode != 0 and "CPU Generator does not use offset" in without.stderr


@pytest.mark.parametrize("k", [None, 2])
def test_vllms_sampler_uses_it_and_keeps_its_limits(monkeypatch: pytest.MonkeyPatch, k: int | None) -> None:
    module = importlib.import_module(SAMPLER)
    monkeypatch.setattr(module, "random_sample", sample_by_inversion)
    monkeypatch.setattr(module.TopKTopPSampler, "forward_cpu", forward_cpu)
    torch.manual_seed(0)
    sampler = module.TopKTopPSampler()
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0]]).repeat(2000, 1)
    limit = None if k is None else torch.full((2000,), k)
    tokens, _ = sampler.forward(logits, {}, limit, None)
    assert set(tokens.tolist()) == ({0, 1, 2, 3} if k is None else {2, 3})
