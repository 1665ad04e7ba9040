"""A run with the gateway loads no LiteLLM: neither where it starts, nor in its trainer's process, nor in runners."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agl_plugin.patches.replacements import LLMProxy, nameable_proxy
from foundation.errors import RunError
from sql_agent.config import ROOT, build_config

# In the order of a run, up to where it would start Ray; what Ray's workers import follows.
RUN = """
import sys
from sql_agent.config import build_config
from sql_agent.training import assembly, job
config = build_config({{"rollout": {{"proxy": "{proxy}"}}, "trainer": {{"device": "cpu"}}}})
job.prepare_stack(cpu=True, offline=True, lora=False, gateway="{proxy}" == "gateway")
import agl_plugin.run.store_claim
assembly.make_trainer(config.rollout, config.store, role="runner", algorithm=None, run_dir=None)
from sql_agent.training.lit_agent import SqlAgent
SqlAgent(config, run="r")
from agl_plugin import algorithm, daemon, trainer
from agl_plugin.options import DaemonOptions
from agl_plugin.proxy.gate import Gate
import agentlightning as agl
options = DaemonOptions(poll_interval_s=1, rollout_timeout_s=1, stall_s=1, proxy="{proxy}")
proxy = daemon._make_proxy(options, agl.InMemoryLightningStore(), Gate())
print(type(proxy).__name__, *sorted(name for name in sys.modules if name in ("litellm", "litellm.proxy")))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("proxy", "loaded"), [("gateway", ["Gateway"]), ("litellm", ["RunProxy", "litellm", "litellm.proxy"])]
)
def test_only_a_run_with_litellm_loads_it(proxy: str, loaded: list[str]) -> None:
    command = [sys.executable, "-W", "ignore", "-c", RUN.format(proxy=proxy)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1].split() == loaded


def test_the_gateway_is_the_default() -> None:
    assert build_config({}).rollout.proxy == "gateway"


def test_the_stand_in_says_how_to_get_the_real_one() -> None:
    assert nameable_proxy("agentlightning.llm_proxy").LLMProxy is LLMProxy
    with pytest.raises(RunError, match='rollout.proxy = "litellm"'):
        LLMProxy(port=1)
