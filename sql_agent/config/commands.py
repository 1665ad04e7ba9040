"""Which command reads which configuration key: the one table.

A key that a recipe sets for another command is no mistake, as commands share recipes; one that stands on the command
line of a command that does not read it is refused, with the commands that do. Guarantee: `readers` answers for every
key (a test walks the tree against tests/golden/readers/keys.json, so a new key needs a decision). Limit: whether a key
that is read has an effect together with others is for the rules of config/tree.py and local/arguments.py to say.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from foundation.errors import UserError
from sql_agent.config.build import anchored, flatten, merge, parse_assignment, recipe_path

NAMES = ("train", "train --backend local", "sft", "dpo", "evaluate", "prompt", "ask", "judge-report", "mcp", "serve")
NAMES += ("serve --as-agent",)
COMMANDS = tuple(f"agentgrpo {name}" for name in NAMES)
GRPO, LOCAL, SFT, DPO, EVALUATE, OPTIMIZE, TRY, JUDGE, MCP, SERVE, SERVE_AGENT = COMMANDS

ROLLOUTS = {GRPO, LOCAL}
TUNING = {SFT, DPO}
TRAINERS = ROLLOUTS | TUNING
PLAYERS = {*ROLLOUTS, EVALUATE, OPTIMIZE, TRY}
ANSWERERS = {*PLAYERS, SERVE_AGENT}
SERVERS = {GRPO, EVALUATE, OPTIMIZE, TRY, SERVE, SERVE_AGENT}  # which start vLLM

# The longest name that is a key's own, or a section around it, decides.
READERS: dict[str, set[str]] = {
    "recipe": set(COMMANDS),
    "method": set(TRAINERS),
    "agent": ANSWERERS | TUNING,
    "agent.min_turns": ROLLOUTS,
    "agent.chat_template_kwargs": ANSWERERS | TUNING | {SERVE},
    **{f"agent.{name}": PLAYERS for name in ("match", "command_env", "agl_python", "env_map")},
    "agent.episode_timeout_s": PLAYERS,
    **{f"agent.{name}": ANSWERERS for name in ("llm_timeout_s", "repeat_limit")},
    **{f"agent.{name}": PLAYERS | TUNING for name in ("context_tokens", "keep_results", "train_summaries")},
    "agent.reader": ANSWERERS | TUNING,
    "agent.tool_description": ANSWERERS | TUNING | {MCP},
    "agents": ANSWERERS | TUNING,
    "database": ANSWERERS | TUNING | {MCP},
    "python": ANSWERERS | TUNING,
    "data": ROLLOUTS,
    "data.train_file": TRAINERS | {OPTIMIZE},
    "data.train_files": TRAINERS,
    "data.from_store": TRAINERS,
    "data.from_store_uses": TRAINERS,
    "data.val_file": ROLLOUTS | {OPTIMIZE},
    "data.seed": TRAINERS,
    "reward": PLAYERS | {JUDGE},
    "model": ANSWERERS | TUNING | {SERVE},
    "rollout": ROLLOUTS,
    "rollout.evaluation": {EVALUATE, OPTIMIZE, TRY, SERVE_AGENT},
    "rollout.max_model_len": ANSWERERS | {SERVE},
    "rollout.max_prompt_tokens": ANSWERERS | {SERVE},
    "rollout.max_response_tokens": ANSWERERS | {SERVE},
    "rollout.level": PLAYERS,
    "rollout.trajectory_max_response_tokens": PLAYERS,
    "rollout.tool_parser": ANSWERERS | {SERVE},
    "optim": ROLLOUTS,
    "sft": {SFT},
    "dpo": {DPO},
    "local": {LOCAL},
    "health": ROLLOUTS,
    "trainer": TRAINERS,
    "trainer.offload": {GRPO},
    "trainer.sequence_parallel": {GRPO},
    "trainer.n_nodes": {GRPO},
    "trainer.device": TRAINERS | ANSWERERS | {SERVE},
    "trainer.seed": TRAINERS | ANSWERERS | {SERVE},
    "trainer.runs_dir": TRAINERS | {TRY},
    "trainer.n_gpus": ROLLOUTS,
    "trainer.epochs": ROLLOUTS,
    "trainer.max_steps": ROLLOUTS,
    "trainer.validate_every": ROLLOUTS,
    "trainer.validate_first": ROLLOUTS,
    "trainer.best_over": ROLLOUTS,
    "trainer.early_stop": ROLLOUTS,
    "store": {GRPO},
    "serve": {SERVE_AGENT},
    "logging": TRAINERS,
    "logging.audit": ROLLOUTS,
    "verl": {GRPO},
    **{f"verl.actor_rollout_ref.actor.{name}": ROLLOUTS for name in ("clip_ratio_c", "ppo_epochs", "optim")},
}
# Engine and processes of `agentgrpo train` and, where they say so, of the servers.
READERS |= {
    f"rollout.{name}": {GRPO}
    for name in (
        *("n_runners", "runner_concurrency", "tensor_parallel", "proxy", "poll_interval_s", "calls_per_engine"),
        *("plain_spans", "gateways", "async_groups", "max_staleness"),
    )
}
READERS |= {f"rollout.{name}": SERVERS for name in ("max_num_seqs", "gpu_memory_utilization")}


def readers(key: str) -> set[str]:
    """The commands that read this dotted key. KeyError for one that nobody decided on."""
    parts = key.split(".")
    for n in range(len(parts), 0, -1):
        if (reader := READERS.get(".".join(parts[:n]))) is not None:
            return reader
    raise KeyError(key)


def command_tree(command: str, texts: Iterable[str], *, recipe: str = "", flags: dict[str, Any]) -> dict[str, Any]:
    """The tree of a command line: its flags, then --set, with the files of the recipe's folder found there.

    Raises UserError for keys that the command does not read.
    """
    tree = functools.reduce(merge, map(parse_assignment, texts), flags)
    check_read(command, tree)
    return anchored(tree, recipe_path(recipe).parent, at_hand=True) if recipe else tree


def check_read(command: str, tree: dict[str, Any]) -> None:
    """Raise UserError for keys of a command line that the command does not read. Unknown ones are told later."""
    wrong: list[str] = []
    for key, value in flatten(tree).items():
        if key.split(".")[0] in READERS and command not in (by := readers(key)):
            wrong.append(f"  {key} = {value!r:.80}: read by {', '.join(name for name in COMMANDS if name in by)}")
    if wrong:
        raise UserError(
            f"{command} does not read what the command line sets; leave it out, or call a command that does:\n"
            + "\n".join(wrong)
        )
