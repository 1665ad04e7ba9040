"""The section [verl]: each row of its rules is set, and arrives at verl or is refused as the row says."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agl_plugin.update import composed
from foundation.errors import UserError
from sql_agent.config import ROOT, TrainConfig, build_config, known_keys, parse_assignment
from sql_agent.training.preflight import check_resume
from sql_agent.training.verl_config import flatten, verl_overrides
from sql_agent.training.verl_keys import check_verl, composed_base, problems_of, vllm_flags
from sql_agent.training.verl_rules import (
    ACTOR,
    COSINE,
    FITS,
    FSDP2,
    GPU,
    LORA,
    MODEL,
    NEW_LORA,
    OPEN_SECTIONS,
    OWN,
    PASSED_ON,
    PPO,
    REFUSED,
    ROLLOUT,
    ROWS,
    VLLM,
    row_of,
)

# One way to fulfil each need, and one not to, where the defaults do.
SETTINGS = {
    GPU: ("trainer.device=cuda",),
    PPO: ("optim.loss=grpo",),
    COSINE: ("optim.lr_schedule=cosine",),
    LORA: ("model.lora_rank=8",),
    NEW_LORA: ("model.lora_rank=8",),
    FSDP2: ("trainer.device=cuda", f"verl.{ACTOR}strategy=fsdp2"),
}
UNMET = {PPO: ("optim.loss=gspo",)}
# Of free-form sections, and of keys whose default says nothing.
SAMPLES = {
    f"{ACTOR}optim.override_optimizer_config.eps": 1e-6,
    f"{MODEL}override_config.attention_dropout": 0.0,
    f"{VLLM}seed": 3,
    f"{ROLLOUT}cudagraph_capture_sizes": [1, 8, 64],
    f"{MODEL}exclude_modules": "lm_head",
    f"{ACTOR}strategy": "fsdp2",
}
BASE = composed_base(resolve=True)
KNOWN = flatten(BASE)


def config_of(*settings: str, **tree: Any) -> TrainConfig:
    return build_config({"trainer": {"device": "cpu"}}, *map(parse_assignment, settings), tree)


def overrides_of(config: TrainConfig) -> dict[str, Any]:
    return flatten(verl_overrides(config, model_path="/m", run_dir=Path("/run"), total_steps=10))


def samples_of(row: str) -> dict[str, Any]:
    """Keys and values that fall under the row: a sample, or verl's own values."""
    known = {key: value for key, value in (KNOWN | SAMPLES).items() if value != {} and f"{key}." not in OPEN_SECTIONS}
    given = {key: value for key, value in known.items() if row_of(key) == row} or {row: None}
    return {key: "x" if value is None else value for key, value in given.items()}


def problems(*settings: str, **verl: Any) -> list[str]:
    return list(problems_of(config_of(*settings, **({"verl": verl} if verl else {})), BASE))


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_true(row: str) -> None:
    """Set as a user does; what is passed on is found in what agent-lightning gets, the rest in an error."""
    for key, value in samples_of(row).items():
        settings = [f"verl.{key}={json.dumps(value)}"]
        if row in PASSED_ON:
            settings += SETTINGS.get(PASSED_ON[row][1], ())
            assert problems(*settings) == []
            assert value == {} or overrides_of(config_of(*settings))[key] == value
        else:
            reason = f"set {OWN[row]}, from" if row in OWN else f"refused: {REFUSED[row]}"
            (problem,) = [text for text in problems(*settings) if text.startswith(f"{key} = ")] or [""]
            assert value == {} or reason in problem


@pytest.mark.parametrize("key", [key for key, (_, need) in PASSED_ON.items() if need])
def test_a_key_that_could_not_work_is_refused(key: str) -> None:
    why, need = PASSED_ON[key]
    ((name, value),) = samples_of(key).items()
    (text,) = problems(f"verl.{name}={json.dumps(value)}", *UNMET.get(need, ()))
    assert "works only with" in text and why in text


def test_every_key_of_verl_falls_under_a_row_and_every_row_has_a_key() -> None:
    used = {row_of(key) for key in KNOWN}
    assert {row for row in ROWS if row not in used and not row.startswith(OPEN_SECTIONS)} == set()
    assert len(ROWS) == len(set(ROWS))
    assert set(OWN.values()) <= known_keys().keys()


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("clip_ratio_c", 0.5, "above 1"),
        ("optim.betas", [0.9], "two numbers"),
        ("optim.betas", [0.9, "x"], "two numbers"),
        ("ppo_epochs", 0, "1 or more"),
        ("strategy", "megatron", "one of fsdp, fsdp2"),
    ],
)
def test_a_value_that_makes_no_update_is_refused(key: str, value: Any, rule: str) -> None:
    (text,) = problems(f"verl.{ACTOR}{key}={json.dumps(value)}", "trainer.device=cuda")
    assert text.startswith(f"{ACTOR}{key} = ") and f"must be {rule}" in text


def test_each_value_rule_is_of_a_key_that_is_passed_on() -> None:
    assert FITS.keys() <= PASSED_ON.keys() & KNOWN.keys() and all(
        may_be(KNOWN[key]) for key, (_, may_be) in FITS.items()
    )


@pytest.mark.long
def test_what_is_passed_on_fits_verls_own_classes() -> None:
    """omegaconf compares each value with the type of its field."""
    from omegaconf import OmegaConf
    from verl.utils.config import omega_conf_to_dataclass

    base = OmegaConf.create(composed_base())
    for row, (_, need) in PASSED_ON.items():
        if not row.startswith((ACTOR, ROLLOUT)):
            continue
        samples = [f"verl.{key}={json.dumps(value)}" for key, value in samples_of(row).items()]
        settings = [*samples, *SETTINGS.get(need, ())]
        tree = verl_overrides(config_of(*settings), model_path="/m", run_dir=Path("/run"), total_steps=10)
        merged: Any = OmegaConf.merge(base, OmegaConf.create(tree))
        OmegaConf.resolve(merged)
        omega_conf_to_dataclass(merged["actor_rollout_ref"]["actor" if row.startswith(ACTOR) else "rollout"])


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (f"{ACTOR}clip_ratio_d=3.0", f"did you mean verl.{ACTOR}clip_ratio_c?"),
        ("trainer.balance_batches=true", "did you mean verl.trainer.balance_batch?"),
        ("actor_rollout_ref.actor=3", "is a section"),
        (f"{ROLLOUT}engine_kwargs.vllm=3", "is a section"),
        (f"{ROLLOUT}max_num_batched_tokens=1.5", "must be of the type int"),
        (f"{ACTOR}clip_ratio_c=true", "must be of the type float"),
        (f"{ROLLOUT}enable_chunked_prefill=no", "must be of the type bool"),
        ("trainer.balance_batch.x=1", "verl has no such key"),
        (f"{VLLM}kv_cash_dtype=fp8", f"did you mean verl.{VLLM}kv_cache_dtype?"),
        (f"{VLLM}enable_prefix_caching=false", "verl leaves a false out"),
        (f"{VLLM}speculative_config.method=ngram", "write speculative_config as JSON text"),
    ],
)
def test_a_wrong_key_or_value_is_explained(setting: str, expected: str) -> None:
    (text,) = problems(f"verl.{setting}")
    assert text.startswith(setting.partition("=")[0]) and expected in text


def test_all_that_is_wrong_is_said_at_once_before_the_run() -> None:
    check_verl(config_of())
    wrong = config_of(f"verl.{ACTOR}optim.lr=1e-5", "verl.critic.strategy=fsdp2")
    with pytest.raises(UserError, match=r"(?s)verl\.actor_.* set optim\.lr, .*verl\.critic\.strategy = .*no critic"):
        check_verl(wrong)


def test_a_quoted_name_with_dots_means_the_same() -> None:
    config = config_of(verl={f"{ACTOR}optim": {"betas": [0.9, 0.95]}, "trainer": {}})
    assert overrides_of(config)[f"{ACTOR}optim.betas"] == [0.9, 0.95] and not list(problems_of(config, BASE))
    assert not [key for key in verl_overrides(config, model_path="", run_dir=Path(), total_steps=1) if "." in key]


def test_the_section_wins_over_what_the_project_sets_of_itself() -> None:
    key = f"{ROLLOUT}max_num_batched_tokens"
    before, after = overrides_of(config_of()), overrides_of(config_of(f"verl.{key}=4096"))
    assert before[key] == 8192 and after == before | {key: 4096}


def test_what_is_composed_from_files_is_what_verl_composes() -> None:
    from hydra import compose, initialize
    from omegaconf import OmegaConf

    with initialize(version_base=None, config_path="pkg://verl/trainer/config"):
        theirs: Any = OmegaConf.to_container(compose(config_name="ppo_trainer"), resolve=False)
    assert composed_base() == theirs | composed.OWN


def test_the_flags_read_from_vllm_are_those_it_has() -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    assert {field.name for field in dataclasses.fields(AsyncEngineArgs)} <= vllm_flags()


def test_checking_loads_nothing_heavy() -> None:
    code = (
        "import sys; from sql_agent.config import build_config; from sql_agent.training.verl_keys import check_verl;"
        "check_verl(build_config({'trainer': {'device': 'cpu'}}));"
        "print(*[m for m in ('torch', 'ray', 'vllm', 'verl', 'agentlightning', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


@pytest.mark.parametrize(
    ("setting", "absent"), [(f"verl.{ACTOR}ppo_epochs=2", "None"), ("trainer.seed=2", "1"), ("agent.max_turns=2", "6")]
)
def test_a_resumed_run_has_the_same_settings(tmp_path: Path, setting: str, absent: str) -> None:
    """A key that was taken back counts too."""
    checkpoint = tmp_path / "checkpoints" / "global_step_1"
    checkpoint.mkdir(parents=True)
    plain, other = config_of(), config_of(setting)
    key = re.escape(setting.removesuffix("=2")) + ": "
    for old, new, change in ((plain, other, f"{absent} -> 2"), (other, plain, f"2 -> {absent}")):
        (tmp_path / "config.json").write_text(json.dumps(old.model_dump()))
        check_resume(old, checkpoint, steps=2)
        with pytest.raises(UserError, match=key + change):
            check_resume(new, checkpoint, steps=2)


def test_a_resumed_run_may_take_more_steps(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints" / "global_step_1"
    checkpoint.mkdir(parents=True)
    (tmp_path / "config.json").write_text(json.dumps(config_of("trainer.max_steps=1").model_dump()))
    check_resume(config_of("trainer.max_steps=9", "trainer.save_every=3"), checkpoint, steps=9)
