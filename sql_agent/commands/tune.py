"""`agentgrpo sft` and `agentgrpo dpo`: learning from files, with TRL."""

from __future__ import annotations

import subprocess
from pathlib import Path

from foundation import console
from foundation.command import with_flags
from foundation.console import log_warnings
from sql_agent.config import COMMAND
from sql_agent.run_report.file import report_line
from sql_agent.tuning.job import run_tuning
from sql_agent.tuning.options import DpoFlags, Flags, Method, SftFlags, resolve_config


@with_flags(SftFlags)
def sft(flags: SftFlags) -> int:
    """Teach a model from conversations: supervised fine-tuning.

    \b
    agentgrpo sft --data chats.jsonl                   rows with messages, tool calls included
    agentgrpo sft --data runs/RUN --best-of 1          the best rollout of each question of a run
    agentgrpo sft --data runs/evaluations/TIME         the same of an evaluation with --samples 8
    agentgrpo sft --model Qwen/Qwen2.5-0.5B --data gsm8k --epochs 3 --out FOLDER

    Only what the assistant says is learned, token for token what GRPO would train. Without --data the training
    questions are shown with their reference SQL and answer; without a GPU and without --model the tiny policy learns.
    The run folder is that of `agentgrpo train`: report, export and evaluate take it. docs/16-sft-and-preferences.md has
    the formats. The last line is `run: FOLDER`.
    """
    return _tune("sft", flags)


@with_flags(DpoFlags)
def dpo(flags: DpoFlags) -> int:
    """Teach a model from preferences: DPO, IPO or KTO.

    \b
    agentgrpo dpo --data runs/RUN                      pairs of a run's rollouts, by reward
    agentgrpo dpo --data runs/evaluations/TIME --margin 0.3
    agentgrpo dpo --data converted.jsonl --model MODEL pairs as `agentgrpo reward-model convert` writes them

    Two rollouts of one question are a pair when their rewards differ by --margin or more; unscored ones never are. Only
    what the assistant says counts, tool results do not. The run folder is that of `agentgrpo train`.
    docs/16-sft-and-preferences.md has the formats. The last line is `run: FOLDER`.
    """
    return _tune("dpo", flags)


def _tune(method: Method, flags: Flags) -> int:
    log_warnings(debug=flags.debug)
    terminal = console.own_terminal()
    config = resolve_config(method, flags)
    status, run_dir = run_tuning(config, terminal)
    if status == 0 and (out := config.tune.output_dir):
        command = [*COMMAND, "export", str(run_dir), str(Path(out).expanduser().absolute())]
        status = int(subprocess.run(command, check=False).returncode != 0)
    terminal.print(f"{report_line(run_dir)}\nrun: {run_dir}", markup=False)
    return status
