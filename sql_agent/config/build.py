"""Trees -> TrainConfig: defaults < recipe TOML < command line, with errors that name key, value and rule."""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from foundation.errors import UserError, did_you_mean
from sql_agent.config.agent import AgentConfig, McpConfig
from sql_agent.config.agents import SECTIONS, unknown_agent
from sql_agent.config.data import FileConfig
from sql_agent.config.database import DatabaseConfig
from sql_agent.config.paths import RECIPES, ROOT, carried_prompt, prompt_text, resolve_path
from sql_agent.config.reward import TermConfig
from sql_agent.config.tree import AgentTree, TrainConfig


def known_keys(model: type[BaseModel] = TrainConfig, prefix: str = "") -> dict[str, Any]:
    """All dotted keys of the tree with their field descriptions, in order."""
    keys: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys |= known_keys(field.annotation, f"{prefix}{name}.")
        else:
            keys[f"{prefix}{name}"] = field
    return keys


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """A new tree: `over` wins, sections are merged key by key."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def parse_assignment(text: str) -> dict[str, Any]:
    """Turn `a.b=value` into a tree. The value is JSON or TOML (`{command = "python"}`) where it parses, else text.

    Raises UserError when there is no `=`.
    """
    key, sep, raw = text.partition("=")
    if not sep or not key.strip():
        raise UserError(f"--set {text!r}: expected KEY=VALUE, for example --set optim.lr=2e-6")
    return nested({key.strip(): _value(raw)})


def nested(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The tree of dotted keys: {"a.b": 1, "a.c": 2} is {"a": {"b": 1, "c": 2}}."""
    tree: dict[str, Any] = {}
    for key, value in keys.items():
        for name in reversed(key.split(".")):
            value = {name: value}
        tree = merge(tree, value)
    return tree


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The dotted keys of a tree; empty sections count as values."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, f"{name}.") if isinstance(value, dict) and value else {name: value}
    return flat


def _value(raw: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(raw)
    if raw.lstrip()[:1] in ("{", "["):  # numbers, dates and quotes of TOML stay what they always were: text
        with suppress(tomllib.TOMLDecodeError, RecursionError):
            return tomllib.loads(f"value = {raw}")["value"]
    return raw


def recipe_path(name: str) -> Path:
    """The TOML file of a recipe: a folder name of recipes/, a folder, or a file.

    Raises UserError naming the recipes there are.
    """
    for path in (RECIPES / name / "config.toml", Path(name) / "config.toml", Path(name)):
        if path.is_file():
            return path
    names = sorted(p.parent.name for p in RECIPES.glob("*/config.toml"))
    raise UserError(
        f"--recipe {name!r}: no such recipe or TOML file. Recipes: {', '.join(names)}{did_you_mean(name, names)}"
    )


def load_recipe(name: str) -> dict[str, Any]:
    """The tree of a recipe, with `recipe` set to its name. Raises UserError when it is not TOML."""
    path = recipe_path(name)
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as exc:
        raise UserError(f"{path}: not valid TOML ({exc})") from exc
    return {**anchored(tree, path.parent), "recipe": path.parent.name if path.name == "config.toml" else path.stem}


OF_AN_AGENT = re.compile(r"agents\.[^.]*\.")
# Keys that name files, alone, as one of a list, or before a colon.
FILES = (
    *("agent.tools", "agent.episode", "agent.agl_class", "agent.agl_python", "agent.system_prompt"),
    *("data.train_file", "data.val_file", "database.path"),
    "model.tiny",
    *("reward.scorer_modules", "reward.default_scorer", "reward.judge.prompt"),
    *("agent.mcp.*.command", "agent.mcp.*.args", "optim.loss", "data.train_files.file", "data.val_files.file"),
)


def anchored(tree: dict[str, Any], folder: Path, *, at_hand: bool = False) -> dict[str, Any]:
    """The tree with what stands in the recipe's folder named by its absolute path; `at_hand`: unless it stands in the
    folder that the program runs in."""

    def placed(name: str, exists: Callable[[Path], bool]) -> str:
        is_there = name and exists(folder / name) and not (at_hand and exists(Path(name)))
        # Not resolved: a virtual environment's python is a link, and works under this name alone.
        return os.path.abspath(folder / name) if is_there else name

    def absolute(value: Any) -> Any:
        if isinstance(value, list):
            return [absolute(item) for item in value]
        if not isinstance(value, str):
            return value
        name, colon, rest = value.partition(":")
        return f"{placed(name, Path.is_file)}{colon}{rest}"

    def line(value: Any) -> Any:
        with suppress(ValueError, TypeError, AttributeError):
            words = shlex.split(value)
            anchored_words = absolute(words)
            return value if anchored_words == words else shlex.join(anchored_words)
        return value

    def visit(node: Any, prefix: str) -> Any:
        if isinstance(node, list) and any(isinstance(item, dict) for item in node):
            return [visit(item, prefix) for item in node]
        if not isinstance(node, dict):
            key = OF_AN_AGENT.sub("", prefix)
            if key == "agent.command":
                return line(node)
            if key == "database.folder":
                return placed(node, Path.is_dir) if isinstance(node, str) else node
            return absolute(node) if any(fnmatch(key, name) for name in FILES) else node
        return {key: visit(value, f"{prefix}.{key}" if prefix else key) for key, value in node.items()}

    return visit(tree, "")


def build_config(*trees: dict[str, Any]) -> TrainConfig:
    """Validate the merged trees, the last one winning, and each agent of them. Raises UserError listing each bad key,
    value and rule.
    """
    merged: dict[str, Any] = {}
    for tree in trees:
        merged = merge(merged, tree)
    config = _validated(TrainConfig, merged)
    for name in config.agents:
        agent_config(config, name)
    return config


def _validated[T: AgentTree](kind: type[T], tree: dict[str, Any], *, prefix: str = "") -> T:
    try:
        return kind.model_validate(tree)
    except ValidationError as exc:
        raise UserError("configuration:\n" + "\n".join(_explain(error, prefix) for error in exc.errors())) from exc


def agent_config(config: AgentTree, name: str) -> AgentTree:
    """One agent alone; that of [agent] for "". Raises UserError for a name that there is not."""
    if name and name not in config.agents:
        raise UserError(f"agent {name!r}: {unknown_agent(name, config.agents)}")
    sections: dict[str, Any] = {section: getattr(config, section) for section in (*SECTIONS, "rollout")}
    for section, keys in config.agents.get(name, {}).items():
        sections[section] = merge(sections[section].model_dump(), keys)
    return _validated(AgentTree, sections, prefix=f"agents.{name}.")


def agents_of(config: AgentTree) -> dict[str, AgentTree]:
    """All agents of a run by name, "" being [agent] itself."""
    return {name: agent_config(config, name) for name in ("", *config.agents)}


INNER: dict[str, type[BaseModel]] = {
    "reward.terms.": TermConfig,
    "agent.mcp.": McpConfig,
    "data.train_files.": FileConfig,
    "data.val_files.": FileConfig,
}


def _leaf(key: str, value: Any) -> tuple[str, Any]:
    """The first key in a table and its value, which is how keys are known: rolout.group_size of `rolout`."""
    while isinstance(value, dict) and value:
        first, value = next(iter(value.items()))
        key = f"{key}.{first}"
    return key, value


def _explain(error: Any, prefix: str = "") -> str:
    key = ".".join(str(part) for part in error["loc"])
    if not key or error["type"] == "value_error":
        where = f"{prefix.rstrip('.')}: " if prefix else ""
        return f"  {where}{error['msg'].removeprefix('Value error, ')}"
    if error["type"] == "extra_forbidden":
        inner = next((node for start, node in INNER.items() if key.startswith(start)), None)
        leaf, value = _leaf(key, error["input"])
        hint = did_you_mean(error["loc"][-1], inner.model_fields) if inner else did_you_mean(leaf, known_keys())
        hint = hint or "; docs/10-configuration.md lists all keys"
        return f"  {prefix}{leaf} = {value!r}: unknown key{hint}"
    return f"  {prefix}{key} = {error['input']!r}: {error['msg']}{_form(prefix, key, error)}"


def _form(prefix: str, key: str, error: Any) -> str:
    """An example of what the key takes, where another type was given: the words as a list, or the default."""
    if error["type"] == "list_type":
        example = [word.strip(" '\"") for word in str(error["input"]).strip("[] ").split(",")]
    elif error["type"].endswith("_parsing") and key in (known := known_keys()):
        example = known[key].default
    else:
        return ""
    return f"; for example --set {shlex.quote(f'{prefix}{key}={json.dumps(example, ensure_ascii=False)}')}"


def resolve_system_prompt(config: TrainConfig, *, tiny: bool) -> TrainConfig:
    """The same configuration with agent.system_prompt "auto" replaced for each agent: by the prompt in the model's
    folder, which an export wrote there, else by the one that fits policy and database.

    Raises UserError when a prompt does not exist, or is no text.
    """
    folder = resolve_path(config.model.path, ROOT / "sql_agent", ROOT) if config.model.path else None
    prompts = {
        name: _prompt_for(one.agent, one.database, folder and carried_prompt(folder, name), tiny=tiny)
        for name, one in agents_of(config).items()
    }
    return with_prompts(config, prompts)


def with_prompts[T: AgentTree](config: T, prompts: dict[str, str]) -> T:
    """The same with these system prompts of agents, "" being [agent] itself."""
    trees = {name: {"agent": {"system_prompt": prompt}} for name, prompt in prompts.items()}
    return config.but(**trees.pop("", {})).model_copy(update={"agents": merge(config.agents, trees)})


def _prompt_for(agent: AgentConfig, database: DatabaseConfig, carried: Path | None, *, tiny: bool) -> str:
    named = agent.system_prompt
    if named == "auto" and carried and carried.is_file():
        if carried.is_symlink():
            raise UserError(f"{carried}: a link, which may show a model any file. Copy it, or name agent.system_prompt")
        named = str(carried)
    if named != "auto":
        prompt_text(named)
        return named
    if "sql" not in agent.tools:
        return "tools"
    if database.tables != DatabaseConfig().tables:
        return "generic_zh"
    return "system_short" if tiny else "system_zh"
