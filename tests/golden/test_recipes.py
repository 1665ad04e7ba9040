"""Every folder of recipes/: it parses, its README is true to the command line, and verl accepts what it composes to
(TRL's arguments are stored; tests/unit/test_tuning_run.py makes its configurations of them).

A changed default shows here as a difference to recipes.json, which holds BASES whole and of the other recipes what
differs; UPDATE_GOLDEN=1 writes it anew. Needs no GPU, no model: what verl only checks with the model at hand (attention
heads against tensor parallelism) is not covered.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from agl_plugin.patches.install import install
from sql_agent.config import RECIPES, TrainConfig, build_config, known_keys, load_recipe, parse_assignment
from sql_agent.training.verl_config import flatten, verl_overrides
from sql_agent.training.verl_keys import composed_base
from sql_agent.tuning.arguments import trl_arguments
from tests.typed import params

GOLDEN = Path(__file__).with_name("recipes.json")
# Sections in which verl reads keys that its base configuration leaves out.
FREE = (
    *("actor_rollout_ref.rollout.engine_kwargs.", "actor_rollout_ref.model.override_config.", "data.sampler."),
    *(f"actor_rollout_ref.{part}.fsdp_config.mixed_precision." for part in ("actor", "ref")),
)
BASES, MISSING = {"grpo": "smoke_cpu", "trl": "sft_cpu"}, "(not set)"
FOLDERS = [path for path in RECIPES.iterdir() if path.is_dir() and not path.name.startswith((".", "_"))]
# A recipe of `python -m recipes.new` has a test of its own, and no stored file: its settings are the user's.
NAMES = sorted(path.name for path in FOLDERS)
STORED = sorted(path.name for path in FOLDERS if not (path / "test_recipe.py").exists())
# Method of a recipe -> its command.
COMMANDS = {"grpo": "train", "sft": "sft", "dpo": "dpo"}
COMMAND_BLOCK = re.compile(r"```bash\n(.*?)```", re.DOTALL)
ASSIGNMENT = re.compile(r"--set ('[^']+'|[^\s`]+)")


def config_of(name: str, *trees: dict[str, Any]) -> TrainConfig:
    return build_config(load_recipe(name), *trees)


def overrides_of(config: TrainConfig) -> dict[str, Any]:
    run_dir = Path("/runs/run")
    if config.method != "grpo":
        return trl_arguments(config.tune, config.trainer, config.logging, run_dir=run_dir, steps=100)
    return verl_overrides(config, model_path="/models/policy", run_dir=run_dir, total_steps=100)


@pytest.fixture(scope="module")
def base() -> dict[str, Any]:
    """verl's own composed configuration; importing verl and agent-lightning for it takes half a minute."""
    return composed_base()


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[name for name in NAMES if load_recipe(name).get("method", "grpo") == "grpo"])
def verl_name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_the_composed_overrides_are_the_golden_ones() -> None:
    composed = {name: flatten(overrides_of(config_of(name))) for name in STORED}
    text = json.dumps({name: different(name, composed) for name in STORED}, indent=1, sort_keys=True) + "\n"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(text, encoding="utf-8")
    stored = GOLDEN.read_text(encoding="utf-8")
    diff = "\n".join(difflib.unified_diff(stored.splitlines(), text.splitlines(), "stored", "composed", lineterm=""))
    assert stored == text, f"{diff}\nIf this is meant: UPDATE_GOLDEN=1 python -m pytest {Path(__file__).name}"


def different(name: str, composed: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the recipe sets otherwise than the base of its method; of a base everything. MISSING: it does not set it."""
    base = BASES["grpo" if "trainer.device" in composed[name] else "trl"]
    if name == base:
        return composed[name]
    keys = composed[name].keys() | composed[base].keys()
    pairs = {key: (composed[name].get(key, MISSING), composed[base].get(key, MISSING)) for key in keys}
    return {key: ours for key, (ours, theirs) in pairs.items() if ours != theirs}


def test_verl_knows_every_key(verl_name: str, base: dict[str, Any]) -> None:
    assert unknown(config_of(verl_name), base) == []


def unknown(config: TrainConfig, base: dict[str, Any]) -> list[str]:
    return [key for key in flatten(overrides_of(config)) if key not in flatten(base) and not key.startswith(FREE)]


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
def test_verl_accepts_the_configuration(verl_name: str, base: dict[str, Any]) -> None:
    """verl's own checks and dataclasses, on what agent-lightning would hand to it."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    install("cpu")  # it looks for vLLM by its name
    config = config_of(verl_name)
    merged: Any = OmegaConf.merge(OmegaConf.create(base), OmegaConf.create(overrides_of(config)))
    OmegaConf.resolve(merged)
    assert not need_critic(merged)
    validate_config(merged, use_reference_policy=config.optim.kl_coef > 0, use_critic=False)
    actor = omega_conf_to_dataclass(merged["actor_rollout_ref"]["actor"])
    rollout = omega_conf_to_dataclass(merged["actor_rollout_ref"]["rollout"])
    assert (actor.clip_ratio_low, actor.clip_ratio_high) == (config.optim.clip_low, config.optim.clip_high)
    assert actor.optim.lr == config.optim.lr and rollout.n == config.rollout.group_size
    assert actor.optim.lr_scheduler_type == config.optim.lr_schedule
    assert rollout.engine_kwargs["vllm"]["tool_call_parser"] == config.rollout.tool_parser


def test_what_bf16_samples_is_weighed_and_shares_passes_by_its_tokens(verl_name: str) -> None:
    config = config_of(verl_name)
    assert not config.trainer.in_bf16 or config.optim.importance_correction == "truncated"
    assert config.trainer.device == "cpu" or config.optim.micro_batch_tokens >= config.rollout.row_tokens


def test_kl_brings_the_reference_model(base: dict[str, Any]) -> None:
    tree = flatten(overrides_of(config_of("qwen3_0_6b", {"optim": {"kl_coef": 0.01}})))
    assert tree["actor_rollout_ref.actor.use_kl_loss"] is True
    assert tree["actor_rollout_ref.actor.kl_loss_coef"] == 0.01
    assert unknown(config_of("qwen3_0_6b", {"model": {"lora_rank": 8, "lora_adapter_path": "/a"}}), base) == []


def readme_commands(name: str, command: str) -> list[list[str]]:
    """Arguments of each call of the command in the README's command blocks."""
    text = (RECIPES / name / "README.md").read_text(encoding="utf-8")
    lines = "\n".join(COMMAND_BLOCK.findall(text)).replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines if line.startswith(f"agentgrpo {command} ")]
    return [line[2:] for line in words]


def test_the_readme_holds_the_command(name: str) -> None:
    command = COMMANDS[config_of(name).method]
    commands = readme_commands(name, command)
    assert commands, f"recipes/{name}/README.md has no ```bash block that calls agentgrpo {command}"
    assert [params(command, *arguments)["recipe"] for arguments in commands] == [name] * len(commands)


def test_the_readme_names_only_settings_that_work(name: str) -> None:
    """Each inline code of the README may hold several --set; together they must give a valid configuration."""
    text = (RECIPES / name / "README.md").read_text(encoding="utf-8")
    for code in re.findall(r"`([^`]+)`", COMMAND_BLOCK.sub("", text)):
        trees = [parse_assignment(value.strip("'")) for value in ASSIGNMENT.findall(code)]
        assert {key for tree in trees for key in flatten(tree)} <= known_keys().keys()
        build_config(load_recipe(name), *trees)


def test_the_documented_defaults_are_the_defaults() -> None:
    tree = flatten(overrides_of(TrainConfig()))
    expected = {
        "algorithm.adv_estimator": "group_rollouts",
        "actor_rollout_ref.actor.policy_loss.loss_mode": "vanilla",
        "actor_rollout_ref.actor.loss_agg_mode": "token-mean",
        "algorithm.use_kl_in_reward": False,
        "actor_rollout_ref.actor.use_kl_loss": False,
        "actor_rollout_ref.rollout.n": 4,
        "actor_rollout_ref.actor.clip_ratio_low": 0.2,
        "actor_rollout_ref.actor.clip_ratio_high": 0.3,
        "actor_rollout_ref.actor.optim.lr": 1e-6,
        "data.max_prompt_length": 2048,
        "data.max_response_length": 768,
        "actor_rollout_ref.rollout.engine_kwargs.vllm.tool_call_parser": "hermes",
        "trainer.total_epochs": 2,
        "trainer.save_freq": 20,
        "trainer.test_freq": 20,
        "trainer.max_actor_ckpt_to_keep": 2,
        "trainer.logger": ["console", "wandb"],
    }
    assert {key: tree[key] for key in expected} == expected
