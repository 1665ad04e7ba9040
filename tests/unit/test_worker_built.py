"""The worker as a run builds it: the precision of each part, the clipping, an adapter under the names of PEFT.

In a process of its own for each: a process group and FSDP stay in a process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from sql_agent.config import ROOT
from sql_agent.tiny_policy.build import ensure_tiny_policy

CODE = """
import json, os, sys
from pathlib import Path
from foundation.environment import prepare_environment
prepare_environment(cpu=True, offline=True)
from sql_agent.config import build_config, load_recipe, parse_assignment
from sql_agent.training.verl_config import verl_overrides
from agl_plugin.update.composed import verl_config
model, *settings = sys.argv[1:]
config = build_config(load_recipe("smoke_cpu"), *map(parse_assignment, settings))
verl = verl_config(verl_overrides(config, model_path=model, run_dir=Path("/none"), total_steps=2))
os.environ |= {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
from agl_plugin.audit.replay import _worker
found = {}
for role in ("actor", "ref"):
    worker = _worker(verl, role=role)
    engine = (worker.actor or worker.ref).engine
    found[role] = {
        "weights": sorted({str(p.dtype) for p in engine.module.parameters()}),
        "passes": str(engine._autocast_dtype),
        "mixed": str(engine.module.mixed_precision.param_dtype),
    }
    if role == "actor":
        found["clip"] = engine.optimizer_config.clip_grad
        sent, _ = engine.get_per_tensor_param(layered_summon=False, base_sync_done=True)
        sent = dict(sent)
        found["sent"] = sorted(sent)
        found["dtypes"] = sorted({str(value.dtype) for value in sent.values()})
if config.model.lora_rank:
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
    from transformers import AutoModelForCausalLM
    base = AutoModelForCausalLM.from_pretrained(model)
    adapter = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    found["peft"] = sorted(get_peft_model_state_dict(get_peft_model(base, adapter)))
print(json.dumps(found), file=sys.__stdout__)
"""


def built(*settings: str) -> dict[str, Any]:
    model = str(ensure_tiny_policy(1)).rstrip("/")
    command = [sys.executable, "-W", "ignore", "-c", CODE, model, *settings]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long
@pytest.mark.parametrize(("precision", "passes"), [("float32", "torch.float32"), ("bfloat16", "torch.bfloat16")])
def test_passes_have_the_precision_of_the_run_and_weights_are_float32(precision: str, passes: str) -> None:
    """Of both the policy and the reference model; verl alone would make bfloat16 of a float32 run's passes."""
    found = built(f"trainer.precision={precision}", "optim.grad_clip=0.5", "optim.kl_coef=0.1")
    part = {"weights": ["torch.float32"], "passes": passes, "mixed": passes}
    assert (found["actor"], found["ref"]) == (part, part)
    assert found["clip"] == 0.5 and found["dtypes"] == ["torch.float32"]
    assert "model.embed_tokens.weight" in found["sent"]


@pytest.mark.long
def test_vllm_gets_an_adapter_under_the_names_of_peft() -> None:
    """verl's own way finds no weight of one that FSDP holds, and vLLM's engine would end."""
    found = built("model.lora_rank=4")
    assert found["sent"] == found["peft"] and len(found["sent"]) > 8
