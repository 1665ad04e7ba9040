"""vLLM computes with the trainer's weights after each hand-over: each tensor, packed copies too, and an adapter's.

The worker of a run hands its weights to the engine of a run, by verl's way between the processes; both are in one
process here, of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from sql_agent.config import ROOT
from sql_agent.tiny_policy.build import ensure_tiny_policy

pytest.importorskip("vllm")
CODE = """
import asyncio, json, os, sys, threading
from pathlib import Path
from foundation.environment import prepare_environment
lora = sys.argv[2:] != []
prepare_environment(cpu=True, offline=True, lora=lora)
os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VERL_RAY_JOB_ID": f"test-{os.getpid()}"}
os.environ |= {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
import torch
from agl_plugin.audit.replay import _worker
from agl_plugin.update.composed import verl_config
from sql_agent.config import build_config, load_recipe, parse_assignment
from sql_agent.training.verl_config import ALONE, verl_overrides
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender
model = sys.argv[1]
config = build_config(load_recipe("smoke_cpu"), *map(parse_assignment, sys.argv[2:]))
verl = verl_config(verl_overrides(config, model_path=model, run_dir=Path("/none"), total_steps=2))
trainer = _worker(verl, role="actor").actor.engine
torch.distributed.destroy_process_group()
from vllm import LLM
engine = LLM(
    model, dtype="float32", load_format="dummy" if not lora else "safetensors", enforce_eager=True, max_model_len=256,
    enable_lora=lora, max_lora_rank=8, distributed_executor_backend=ALONE, disable_log_stats=True,
    worker_extension_cls="verl.workers.rollout.vllm_rollout.utils.vLLMColocateWorkerExtension",
)
worker = engine.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
told = {"differs": [], "packed": [], "changed": 0.0, "tensors": 0}
"""
CHANGE = """
def changed(step):
    torch.manual_seed(step)
    for parameter in trainer.module.parameters():
        if parameter.requires_grad:
            parameter.data.add_(torch.randn_like(parameter) * 0.02)
def hand_over(base_sync_done):
    weights, adapter = trainer.get_per_tensor_param(layered_summon=False, base_sync_done=base_sync_done)
    sender = BucketedWeightSender(worker._get_zmq_handle(), bucket_size_mb=2, use_shm=True)
    thread = threading.Thread(target=lambda: asyncio.run(sender.async_send_weights(weights)))
    thread.start()
    engine.collective_rpc("update_weights_from_ipc", kwargs={
        "peft_config": adapter, "base_sync_done": base_sync_done, "use_shm": True})
    thread.join()
"""
WHOLE = """
PARTS = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
def expected(name, sent):
    whole = next((w for w in PARTS if w in name), None)
    return torch.cat([sent[name.replace(whole, part)] for part in PARTS[whole]]) if whole else sent[name]
for step in (1, 2):
    changed(step)
    hand_over(True)
    sent = {name: weight.clone() for name, weight in trainer.get_per_tensor_param()[0]}
    for name, weight in worker.model_runner.model.named_parameters():
        wanted = expected(name, sent)
        told["tensors"] += 1
        if not torch.equal(weight.data[: len(wanted)], wanted):
            told["differs"].append((step, name))
    for name, layer in worker.model_runner.model.named_modules():
        if hasattr(layer, "cpu_linear"):
            wanted = expected(f"{name}.weight".replace("lm_head", "model.embed_tokens"), sent)
            x = torch.randn(5, wanted.shape[1])
            given = layer.cpu_linear(x, layer.weight, None)[:, : len(wanted)]
            told["packed"].append(float((given - x @ wanted.t()).abs().max()))
print(json.dumps(told), file=sys.__stdout__)
"""
ADAPTER = """
from vllm import SamplingParams
from vllm.lora.request import LoRARequest
from verl.workers.rollout.vllm_rollout.utils import VLLM_LORA_INT_ID, VLLM_LORA_NAME, VLLM_LORA_PATH
hand_over(False)
prompt = list(range(20, 60))
def of_vllm():
    request = LoRARequest(VLLM_LORA_NAME, VLLM_LORA_INT_ID, VLLM_LORA_PATH)
    asked = SamplingParams(max_tokens=1, prompt_logprobs=1, temperature=0)
    engine.reset_prefix_cache()
    (answer,) = engine.generate([{"prompt_token_ids": prompt}], asked, lora_request=request, use_tqdm=False)
    return torch.tensor([p[t].logprob for p, t in zip(answer.prompt_logprobs[1:], prompt[1:])])
def of_trainer():
    with torch.no_grad():
        scores = trainer.module(input_ids=torch.tensor([prompt])).logits[0, :-1].float().log_softmax(-1)
    return scores.gather(1, torch.tensor(prompt[1:])[:, None])[:, 0]
before = None
for step in (1, 2):
    changed(step)
    hand_over(True)
    given = of_vllm()
    told["packed"].append(float((given - of_trainer()).abs().max()))
    told["changed"] = 0.0 if before is None else float((given - before).abs().max())
    before = given
print(json.dumps(told), file=sys.__stdout__)
"""


def told(code: str, *settings: str) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-c", CODE + CHANGE + code, str(ensure_tiny_policy(1)), *settings]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long
def test_each_tensor_is_the_trainer_s_after_each_hand_over() -> None:
    found = told(WHOLE)
    assert found["differs"] == [] and found["tensors"] > 20
    assert len(found["packed"]) > 10 and max(found["packed"]) < 1e-4


@pytest.mark.long
def test_an_adapter_is_the_trainer_s_after_each_hand_over() -> None:
    found = told(ADAPTER, "model.lora_rank=8")
    assert max(found["packed"]) < 1e-3 < found["changed"]
