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

# Who reads which keys. Of a key's own name and the sections around it the longest one decides.
READ: tuple[tuple[set[str], str], ...] = (
    (set(COMMANDS), "recipe"),
    (TRAINERS, "method data.train_files data.from_store data.from_store_uses data.seed trainer logging"),
    (TRAINERS | {OPTIMIZE}, "data.train_file"),
    (TRAINERS | {TRY}, "trainer.runs_dir"),
    (TRAINERS | ANSWERERS | {SERVE}, "trainer.device trainer.seed"),
    (ROLLOUTS, "agent.min_turns data rollout optim health logging.audit trainer.n_gpus trainer.epochs"),
    (ROLLOUTS, "trainer.max_steps trainer.validate_every trainer.validate_first trainer.best_over trainer.early_stop"),
    (ROLLOUTS, " ".join(f"verl.actor_rollout_ref.actor.{name}" for name in ("clip_ratio_c", "ppo_epochs", "optim"))),
    (ROLLOUTS | {OPTIMIZE}, "data.val_file"),
    (ANSWERERS | TUNING, "agent agent.reader agents python"),
    (ANSWERERS | TUNING | {SERVE}, "agent.chat_template_kwargs model"),
    (ANSWERERS | TUNING | {MCP}, "agent.tool_description database"),
    (ANSWERERS, "agent.llm_timeout_s agent.repeat_limit"),
    (ANSWERERS | {SERVE}, "rollout.max_model_len rollout.max_prompt_tokens rollout.max_response_tokens"),
    (ANSWERERS | {SERVE}, "rollout.tool_parser"),
    (ANSWERERS - ROLLOUTS, "rollout.evaluation"),
    (PLAYERS, "agent.match agent.command_env agent.agl_python agent.env_map agent.episode_timeout_s"),
    (PLAYERS, "rollout.level rollout.trajectory_max_response_tokens"),
    (PLAYERS | TUNING, "agent.context_tokens agent.keep_results agent.train_summaries"),
    (PLAYERS | {JUDGE}, "reward"),
    (ROLLOUTS | {EVALUATE, OPTIMIZE}, "rollout.rollout_timeout_s"),
    (SERVERS, "rollout.max_num_seqs rollout.gpu_memory_utilization"),
    ({GRPO}, "store verl trainer.offload trainer.sequence_parallel trainer.n_nodes rollout.n_runners rollout.gateways"),
    ({GRPO}, "rollout.runner_concurrency rollout.tensor_parallel rollout.proxy rollout.poll_interval_s"),
    ({GRPO}, "rollout.calls_per_engine rollout.plain_spans rollout.async_groups rollout.max_staleness"),
    ({LOCAL}, "local"),
    ({SFT}, "sft"),
    ({DPO}, "dpo"),
    ({SERVE_AGENT}, "serve"),
)
READERS = {key: commands for commands, keys in READ for key in keys.split()}


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
