"""`optim.loss` and its neighbours: presets under explicit keys, and what cannot work is refused before the start."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agl_plugin.update import losses
from foundation.errors import UserError
from sql_agent.config import ROOT, TrainConfig, build_config, load_recipe, parse_assignment
from sql_agent.config.losses import CLIPPED, FIXED, PRESETS
from sql_agent.training import preflight
from sql_agent.training.preflight import check_loss
from sql_agent.training.verl_config import flatten, update_rules, verl_overrides

ACTOR = "actor_rollout_ref.actor."


def config_of(*settings: str) -> TrainConfig:
    return build_config({"trainer": {"device": "cpu"}}, *map(parse_assignment, settings))


def keys_of(*settings: str) -> dict[str, Any]:
    return flatten(verl_overrides(config_of(*settings), model_path="/m", run_dir=Path("/run"), total_steps=200))


@pytest.mark.parametrize("loss", PRESETS)
def test_a_preset_sets_what_nobody_gave(loss: str) -> None:
    optim, plain = config_of(f"optim.loss={loss}").optim.model_dump(), config_of().optim.model_dump()
    assert optim == plain | PRESETS[loss] | {"loss": loss}
    assert keys_of(f"optim.loss={loss}")[f"{ACTOR}policy_loss.loss_mode"] == ("vanilla" if loss in CLIPPED else loss)


def test_the_documented_table_is_the_presets() -> None:
    page = (ROOT / "docs" / "15-training.md").read_text(encoding="utf-8")
    lines = page.partition("| `optim.loss` |")[2].partition("\n\n")[0].splitlines()
    names = re.findall(r"`(\w+)`", lines[0])
    rows = {line.split("`")[1]: [cell.strip() for cell in line.split("|")[2:-1]] for line in lines[2:]}
    assert rows.keys() == PRESETS.keys()
    for loss, cells in rows.items():
        optim = config_of(f"optim.loss={loss}").optim.model_dump()
        assert cells == [str(optim[name]).lower() for name in names]


def test_an_explicit_key_wins_over_the_preset_and_survives_the_run_folder() -> None:
    config = config_of("optim.clip_high=0.3", "optim.loss=gspo")
    assert (config.optim.clip_low, config.optim.clip_high) == (3e-4, 0.3)
    assert build_config(config.model_dump()) == config


def test_the_default_is_what_it_was() -> None:
    """Given and not given, grpo is the same update."""
    assert keys_of() == keys_of("optim.loss=grpo", "optim.advantage=group", "optim.loss_aggregation=token-mean")
    assert update_rules(config_of()) == update_rules(config_of("optim.loss=grpo"))
    assert update_rules(config_of()).advantage_decides


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("optim.loss=grop", r"optim\.loss = 'grop' must be one of grpo, dapo, .* module:function; did you mean grpo"),
        ("optim.advantage=gae", r"optim\.advantage = 'gae': .*'rloo'"),
        ("optim.loss=gspo optim.loss_aggregation=token-mean", r"token-mean must be seq-mean-token-mean .* = gspo: its"),
        (
            "optim.loss=gpg optim.clip_high=0.4",
            r"clip_high = 0\.4 must be 0\.3 with optim\.loss = gpg: .* Leave it out",
        ),
        ("optim.kl_estimator=k1", r"kl_estimator = 'k1' has nothing to do: set optim\.kl_coef, or leave"),
        ("optim.kl_estimator=k4 optim.kl_coef=0.1", r"optim\.kl_estimator = 'k4'"),
        (
            "optim.loss=gspo optim.importance_correction=masked",
            r"importance_correction = masked with optim\.loss = gspo needs optim\.importance_level = sequence",
        ),
        ("optim.importance_level=sequence", r"nothing to do: set optim\.importance_correction"),
        ("optim.warmup=2.5", r"optim\.warmup = 2\.5 must be a whole number"),
        ("optim.warmup=-1", r"optim\.warmup = -1"),
        (
            "optim.advantage=reinforce++ rollout.resample_flat_groups=2",
            r"resample_flat_groups = 2 needs optim\.advantage = group or .*leave rollout\.resample_flat_groups out",
        ),
        ("rollout.async_groups=4", r"async_groups = 4 needs optim\.importance_correction = truncated or masked"),
        ("rollout.async_groups=4 rollout.proxy=litellm", r"async_groups = 4 needs rollout\.proxy = gateway"),
        ("rollout.async_groups=4 rollout.resample_flat_groups=1", r"needs rollout\.resample_flat_groups = 0"),
        ("rollout.async_groups=4 data.curriculum.on=true", r"needs data\.curriculum\.on = false"),
        ("data.from_store=a", r"from_store = a needs optim\.importance_correction = truncated or masked"),
        ("data.from_store=a data.curriculum.on=true", r"needs data\.curriculum\.on = false"),
        ("data.from_store=a rollout.resample_flat_groups=1", r"needs rollout\.resample_flat_groups = 0"),
        (
            "data.from_store=a optim.importance_correction=masked rollout.async_groups=1",
            r"needs rollout\.async_groups = 0",
        ),
        (
            "data.from_store=a optim.importance_correction=masked optim.teacher=http://a/v1 optim.kl_coef=1",
            r"needs optim\.teacher = empty",
        ),
        ("data.from_store=a method=sft sft.dataset=b", r"needs sft\.dataset = empty"),
        ("data.from_store_uses=2", r"from_store_uses = 2 has nothing to do: set data\.from_store"),
        ("rollout.max_staleness=3", r"max_staleness = 3 has nothing to do: set rollout\.async_groups"),
        ("optim.teacher=http://a/v1", r"optim\.teacher = 'http://a/v1' has nothing to do: set optim\.kl_coef"),
        ("optim.imitated_from=0.9", r"imitated_from = 0\.9 has nothing to do: set optim\.imitation_coef"),
        (
            "optim.teacher=http://a/v1 optim.kl_coef=1 rollout.temperature=0.7",
            r"at temperature 1, and rollout\.temperature = 0\.7: set that to 1",
        ),
        ("optim.credit=phases", r"optim\.credit = phases needs rollout\.level = transition: turns get"),
        ("optim.turn_shaping=0.1", r"optim\.turn_shaping = 0\.1 needs rollout\.level = transition"),
        (
            "optim.credit=phases rollout.level=transition agent.episode=a.py:play agent.match=x",
            r"optim\.credit = phases needs agent\.match = empty",
        ),
        (
            "optim.credit=phases rollout.level=transition optim.advantage=reinforce++",
            r"optim\.credit = phases needs optim\.advantage = group or",
        ),
        (
            "optim.importance_correction=masked rollout.sampler_logprobs=false",
            r"importance_correction = masked needs rollout\.sampler_logprobs = true: it reads what vLLM says",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_its_remedy(settings: str, expected: str) -> None:
    with pytest.raises(UserError, match=f"(?s){expected}"):
        config_of(*settings.split())


def test_what_a_loss_does_not_read_is_a_key_of_the_section() -> None:
    for loss, (keys, _) in FIXED.items():
        assert loss in PRESETS and set(keys.split()) <= config_of().optim.model_dump().keys()


@pytest.mark.parametrize(("value", "steps"), [("0", 0), ("1", 1), ("30", 30), ("0.1", 20), ("0.004", 0)])
def test_the_warm_up_is_in_steps_or_a_share_of_the_run(value: str, steps: int) -> None:
    assert keys_of(f"optim.warmup={value}")[f"{ACTOR}optim.lr_warmup_steps"] == steps


@pytest.mark.parametrize(("level", "tokens"), [("trajectory", 4096), ("transition", 768)])
def test_the_constant_divisor_is_the_room_of_a_row(level: str, tokens: int) -> None:
    assert update_rules(config_of(f"rollout.level={level}")).row_tokens == tokens


GOOD = "def f(tokens):\n    print('hello')\n    return -tokens.ratio * tokens.advantages\n"
HEAVY = "import sys\nassert not {'verl', 'ray', 'vllm', 'agentlightning'} & sys.modules.keys()\n"


@pytest.mark.long
def test_a_file_is_found_from_the_recipes_folder_and_by_every_worker(tmp_path: Path) -> None:
    (tmp_path / "my_loss.py").write_text(HEAVY + GOOD)
    (tmp_path / "config.toml").write_text('[optim]\nloss = "my_loss.py:f"\n[trainer]\ndevice = "cpu"\n')
    config = build_config(load_recipe(str(tmp_path)))
    keys = flatten(verl_overrides(config, model_path="/m", run_dir=Path("/run"), total_steps=9))
    assert keys[f"{ACTOR}policy_loss.loss_mode"] == f"{tmp_path / 'my_loss.py'}:f"
    assert not update_rules(config).advantage_decides  # a token without an advantage may have a gradient
    check_loss(config.optim.loss)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import nowhere_at_all", "cannot be imported"),
        ("g = 3", "has no function 'f'"),
        ("def f(tokens):\n    return tokens.nothing", "raises AttributeError"),
        ("def f(tokens):\n    return tokens.log_probs.mean()", r"gives \(\) for two rows of three tokens"),
        ("def f(tokens):\n    return 0.5", "gives float for two rows"),
        ("def f(tokens):\n    return tokens.log_probs.detach()", "without a gradient"),
        ("def f(tokens):\n    return tokens.log_probs / 0", "not finite"),
        (GOOD, ""),
    ],
)
def test_what_is_wrong_with_a_loss_of_ones_own_is_said(tmp_path: Path, source: str, expected: str) -> None:
    file = tmp_path / "my_loss.py"
    file.write_text(source)
    assert bool(re.search(expected, problem := losses.problem_of(f"{file}:f"))) and bool(problem) == bool(expected)


def test_the_documented_loss_works(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "15-training.md").read_text(encoding="utf-8")
    (source,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def sigmoid" in code]
    (tmp_path / "my_loss.py").write_text(source)
    assert losses.problem_of(f"{tmp_path / 'my_loss.py'}:sigmoid") == ""


def test_a_bad_loss_ends_the_run_before_ray(tmp_path: Path) -> None:
    file = tmp_path / "my_loss.py"
    file.write_text("import os\nos._exit(3)\n")
    with pytest.raises(UserError, match=r"optim\.loss = .*my_loss\.py:f': ends the process that tries it: .*docs/15"):
        check_loss(f"{file}:f")


def test_a_named_loss_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_args, **_more: pytest.fail("started"))
    check_loss("minirl")


def test_a_loss_that_hangs_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "LOSS_LIMIT_S", 1.0)
    file = tmp_path / "hangs.py"
    file.write_text("import time\ntime.sleep(600)\n")
    with pytest.raises(UserError, match="did not end within 1 s .* must not wait for anything when it is imported"):
        check_loss(f"{file}:f")
