"""The section [verl]: checked against what verl itself composes, before anything is started.

Guarantees: a key is passed on to verl, or refused by an error that says why and names the nearest key or the one of
this project that sets it. Takes half a second: hydra reads the YAML files of verl and agent-lightning where they lie,
and neither is imported. Which keys are passed on stands in verl_rules.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rapidfuzz import fuzz, process

from agl_plugin.patches.install import wrong_versions
from agl_plugin.update.composed import base_config
from foundation.errors import UserError
from sql_agent.config import TrainConfig, flatten
from sql_agent.training.verl_rules import FITS, NEEDS, OPEN_SECTIONS, OWN, PASSED_ON, REFUSED, VLLM, row_of

# Files with the classes whose fields are the flags of `vllm serve`.
VLLM_FLAGS = ("engine/arg_utils.py", "entrypoints/openai/cli_args.py")


def check_verl(config: TrainConfig) -> None:
    """Raise UserError for each key of the section that does not reach verl, and where verl is another than expected."""
    if wrong := wrong_versions("worker"):
        raise UserError(wrong)
    problems = list(problems_of(config, composed_base(resolve=True)))
    if problems:
        raise UserError("configuration:\n" + "\n".join(f"  verl.{problem}" for problem in problems))


def composed_base(*, resolve: bool = False) -> dict[str, Any]:
    """What a run is composed of before any override; `resolve` fills in what refers to other keys."""
    from omegaconf import OmegaConf

    base = OmegaConf.to_container(base_config(), resolve=resolve)
    assert isinstance(base, dict)
    return {str(key): value for key, value in base.items()}


def problems_of(config: TrainConfig, base: dict[str, Any]) -> Iterator[str]:
    """`KEY = VALUE: what is wrong` for each key of the section that does not reach verl as it is."""
    keys = flatten(base)
    section = {key: value for key, value in flatten(config.verl).items() if value != {}}
    met = {name for name, is_met in NEEDS.items() if is_met(config, section)}
    for key, value in section.items():
        problem = _unknown(key, keys) or _misfit(key, value, keys.get(key)) or _unmet(key, met)
        if problem:
            yield f"{key} = {value!r}: {problem}"


def _unknown(key: str, keys: dict[str, Any]) -> str:
    """Why verl, or vLLM, has no such key; "" when it has."""
    if key.startswith(VLLM):
        flag, _, inner = key.removeprefix(VLLM).partition(".")
        if inner:
            return f"write {flag} as JSON text: verl makes it a flag of `vllm serve`"
        return "" if flag in vllm_flags() else f"vLLM has no such flag{_hint(flag, vllm_flags(), prefix=VLLM)}"
    if key.startswith(OPEN_SECTIONS):
        return ""
    if f"{key}." in OPEN_SECTIONS or any(name.startswith(f"{key}.") for name in keys):
        return "is a section; name a key in it"
    return "" if key in keys else f"verl has no such key{_hint(key, keys)}"


def _misfit(key: str, value: Any, default: Any) -> str:
    """Why the value is not passed on; "" when it is."""
    row = row_of(key)
    if row in OWN:
        return f"set {OWN[row]}, from which this key follows"
    if row in REFUSED:
        return f"refused: {REFUSED[row]}"
    if row == VLLM and value is False:
        return "verl leaves a false out; give the flag that switches it off"
    if row in OPEN_SECTIONS or default is None:
        return ""
    kind = type(default)
    fits = isinstance(value, int | float if kind is float else kind) and isinstance(value, bool) == (kind is bool)
    if not fits:
        return f"must be of the type {kind.__name__}, as verl's default {default!r}"
    rule, may_be = FITS.get(key, ("", bool))
    return "" if not rule or may_be(value) else f"must be {rule}"


def _unmet(key: str, met: set[str]) -> str:
    why, need = PASSED_ON[row_of(key)]
    return f"works only with {need.replace('`', '')} ({why})" if need and need not in met else ""


def _hint(key: str, names: Any, *, prefix: str = "") -> str:
    near = process.extractOne(key, list(names), scorer=fuzz.ratio, score_cutoff=60)
    return f"; did you mean verl.{prefix}{near[0]}?" if near else "; docs/10-configuration.md says where to look"


def vllm_flags() -> set[str]:
    """The flags of `vllm serve`, read from vLLM's sources: importing them takes many seconds."""
    trees = [ast.parse((_folder("vllm") / name).read_text(encoding="utf-8")) for name in VLLM_FLAGS]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    fields = [field for node in classes for field in node.body if isinstance(field, ast.AnnAssign)]
    return {field.target.id for field in fields if isinstance(field.target, ast.Name)}


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.origin:
        raise UserError(f"the package {package} is not installed: run `make setup`")
    return Path(spec.origin).parent
