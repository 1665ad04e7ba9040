"""The section [verl]: each row of the documented table is set, and arrives at verl or is refused as the table says."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agl_plugin.update.composed import OWN
from foundation.errors import UserError
from sql_agent.config import ROOT, TrainConfig, build_config, known_keys, parse_assignment
from sql_agent.training.preflight import check_resume
from sql_agent.training.verl_config import flatten, verl_overrides
from sql_agent.training.verl_keys import check_verl, composed_base, problems_of, vllm_flags
from sql_agent.training.verl_rules import ACTOR, OPEN_SECTIONS, ROLLOUT, RULES, VLLM, Rule, rule_of

PAGE = (ROOT / "docs" / "10-configuration.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("<!-- generated: verl -->")[2].partition("<!-- end: verl -->")[0]
ROWS = {
    key: (how, why) for key, how, why in re.findall(r"^\| `verl\.(\S+)` \| ([\w ]+) \| .*? \| (.+) \|$", TABLE, re.M)
}
RULE = {rule.key + "*" * rule.key.endswith("."): rule for rule in RULES}
BASE = composed_base(resolve=True)
KNOWN = flatten(BASE)


def config_of(*settings: str, **tree: Any) -> TrainConfig:
    return build_config({"trainer": {"device": "cpu"}}, *map(parse_assignment, settings), tree)


def overrides_of(config: TrainConfig) -> dict[str, Any]:
    return flatten(verl_overrides(config, model_path="/m", run_dir=Path("/run"), total_steps=10))


def samples_of(rule: Rule) -> dict[str, Any]:
    """Keys and values that fall under the rule: its sample, or verl's own values."""
    if rule.how == "passed on":
        return flatten({rule.key.rstrip("."): rule.sample}) if rule.key in OPEN_SECTIONS else {rule.key: rule.sample}
    keys = [key for key in KNOWN if rule_of(key) is rule] or [rule.key]
    return {key: "x" if KNOWN.get(key) is None else KNOWN[key] for key in keys}


def problems(*settings: str, **verl: Any) -> list[str]:
    return list(problems_of(config_of(*settings, **({"verl": verl} if verl else {})), BASE))


def test_the_table_holds_every_rule() -> None:
    assert ROWS.keys() == RULE.keys()


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_table_is_true(row: str) -> None:
    """Set as a user does; what is passed on is found in what agent-lightning gets, the rest in an error."""
    (how, why), rule = ROWS[row], RULE[row]
    for key, value in samples_of(rule).items():
        settings = [f"verl.{key}={json.dumps(value)}"]
        if how == "passed on":
            settings += rule.need.settings if rule.need else ()
            assert problems(*settings) == []
            assert overrides_of(config_of(*settings))[key] == value
        else:
            reason = f"set {rule.own}, from" if how == "own key" else f"refused: {rule.why}"
            (problem,) = [text for text in problems(*settings) if text.startswith(f"{key} = ")] or [""]
            assert value == {} or reason in problem
            assert (rule.own if how == "own key" else rule.why) in why


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.need], ids=lambda rule: rule.key)
def test_a_key_that_could_not_work_is_refused(rule: Rule) -> None:
    assert rule.need
    (text,) = problems(f"verl.{rule.key}={json.dumps(rule.sample)}", *rule.need.unmet)
    assert "works only with" in text and rule.why in text


def test_every_key_of_verl_has_a_rule_and_every_rule_a_key() -> None:
    used = {id(rule_of(key)) for key in KNOWN}
    idle = {rule.key for rule in RULES if id(rule) not in used}
    assert {key for key in idle if not key.startswith(OPEN_SECTIONS)} == set()
    assert {rule.own for rule in RULES if rule.how == "own key"} <= known_keys().keys()


def test_what_is_passed_on_fits_verls_own_classes() -> None:
    """omegaconf compares each value with the type of its field."""
    from omegaconf import OmegaConf
    from verl.utils.config import omega_conf_to_dataclass

    base = OmegaConf.create(composed_base())
    for rule in RULES:
        if rule.how != "passed on" or not rule.key.startswith((ACTOR, ROLLOUT)):
            continue
        settings = [
            *(rule.need.settings if rule.need else ()),
            f"verl.{rule.key.rstrip('.')}={json.dumps(rule.sample)}",
        ]
        tree = verl_overrides(config_of(*settings), model_path="/m", run_dir=Path("/run"), total_steps=10)
        merged: Any = OmegaConf.merge(base, OmegaConf.create(tree))
        OmegaConf.resolve(merged)
        omega_conf_to_dataclass(merged["actor_rollout_ref"]["actor" if rule.key.startswith(ACTOR) else "rollout"])


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (f"{ACTOR}clip_ratio_d=3.0", f"did you mean verl.{ACTOR}clip_ratio_c?"),
        ("trainer.balance_batches=true", "did you mean verl.trainer.balance_batch?"),
        ("actor_rollout_ref.actor=3", "is a section"),
        (f"{ROLLOUT}engine_kwargs.vllm=3", "is a section"),
        (f"{ROLLOUT}max_num_batched_tokens=1.5", "must be of the type int"),
        (f"{ROLLOUT}max_num_batched_tokens=0", "must be 1 or more"),
        (f"{ACTOR}clip_ratio_c=true", "must be of the type float"),
        (f"{ACTOR}clip_ratio_c=1", "must be above 1"),
        (f"{ACTOR}optim.betas=[0.9, 1]", "must be two numbers in [0, 1)"),
        (f"{ROLLOUT}load_format=pickle", "must be dummy or auto or safetensors"),
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
    assert composed_base() == theirs | OWN


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


def test_a_resumed_run_has_the_same_section(tmp_path: Path) -> None:
    """A key that was taken back counts too."""
    checkpoint = tmp_path / "checkpoints" / "global_step_1"
    checkpoint.mkdir(parents=True)
    plain, other = config_of(), config_of(f"verl.{ACTOR}ppo_epochs=2")
    key = rf"verl\.{re.escape(ACTOR)}ppo_epochs: "
    for old, new, change in ((plain, other, "None -> 2"), (other, plain, "2 -> None")):
        (tmp_path / "config.json").write_text(json.dumps(old.model_dump()))
        check_resume(old, checkpoint, steps=2)
        with pytest.raises(UserError, match=key + change):
            check_resume(new, checkpoint, steps=2)
