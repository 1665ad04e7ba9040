"""Command lines of `agentgrpo`, typed in this process: as its commands read them, and run."""

from __future__ import annotations

from typing import Any

import pytest
import typer
import typer.main

from foundation.command import Table, flags_of, loaded, loaded_app, renamed
from sql_agent import api
from sql_agent.api import jobs
from sql_agent.api.calls import Done
from sql_agent.cli import COMMANDS, app
from sql_agent.config import TrainConfig
from sql_agent.training import options
from sql_agent.tuning import options as tuning


def app_of(command: str) -> typer.Typer:
    """A command alone, for a CliRunner."""
    return loaded_app(COMMANDS, command)


def params(command: str, *words: str) -> dict[str, Any]:
    """The parameters that a command gets."""
    return loaded(COMMANDS, command).make_context(command, list(words)).params


def as_script(command: str, *words: str) -> dict[str, Any]:
    """The same, where a script of before has the line: older names of flags are taken too."""
    return params(command, *renamed(words, flags_of(loaded(COMMANDS, command))))


def train_flags(*words: str) -> options.Flags:
    """Those of `agentgrpo train`."""
    return options.Flags(**params("train", *words))


def tune_flags(method: tuning.Method, *words: str) -> tuning.Flags:
    """Those of `agentgrpo sft` or `dpo`."""
    return (tuning.SftFlags if method == "sft" else tuning.DpoFlags)(**params(method, *words))


def status_of(*words: str) -> int:
    """Run `agentgrpo WORDS` here; its exit status."""
    try:
        typer.main.get_command(app).main(args=list(words), prog_name="agentgrpo")
    except SystemExit as end:
        return int(end.code or 0)
    raise AssertionError("a command line ends with a status")


def every_command(table: Table = COMMANDS, above: str = "") -> dict[str, Any]:
    """All commands by name, imported: "train", "curate keep"."""
    found: dict[str, Any] = {}
    for name, (where, _) in table.items():
        if isinstance(where, str):
            found[above + name] = loaded(table, name)
        else:
            found |= every_command(where, f"{above}{name} ")
    return found


def train_call(**given: Any) -> TrainConfig:
    """The configuration of a call of api.train, which trains nothing here."""
    configs: list[TrainConfig] = []

    def run_job(_function: str, *, config: TrainConfig, quiet: bool) -> Done:
        configs.append(config)
        return Done(1, [str(quiet)])

    with pytest.MonkeyPatch.context() as patch, pytest.raises(api.TrainingFailed):
        patch.setattr(jobs, "run_job", run_job)
        api.train(**given)
    return configs[0]
