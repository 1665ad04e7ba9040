"""The machinery of the command line: commands that are imported when they are called, one end for every error.

Guarantees: help and completion of a `Door` import none of its commands; whatever a command raises ends it with one of
the STATUSES and one text; a defect's traceback goes to a file, without the secrets of this process. Limit: what a
command prints, and where, is its own.
"""

from __future__ import annotations

import errno
import importlib
import inspect
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from foundation.environment import HOME
from foundation.errors import AgentGRPOError, Interrupted

STATUSES = "Exit status of every command: 0 done; 1 it failed; 2 wrong input; 130 interrupted (Ctrl-C, SIGTERM)."
# Names that flags have in scripts of before and of others, behind the names of today.
OF_BEFORE = {
    "--model": "--model-path",
    "--data": "--dataset --input --train-file",
    "--val-data": "--val-file",
    "--out": "--output-dir --output",
    "--lora": "--use-lora",
    "--lora-rank": "--lora-r",
    "--epochs": "--num-epochs --total-epochs",
    "--lr": "--learning-rate",
    "--group-size": "--samples-per-prompt",
    "--max-tokens": "--max-new-tokens",
    "--resume": "--resume-checkpoint",
    "--store": "--external-store-address",
}
OLD_NAMES = {old: today for today, names in OF_BEFORE.items() for old in names.split()}
FOR_WORDS = ("--question", "--data", "--model")  # what a word without a flag is most likely for, in this order
OF_FILES = {
    errno.ENOSPC: "its disk is full: free some space, or name a folder on another disk",
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "name a path that this user may use"),
}
ClickException: Any = typer.BadParameter.mro()[2]  # of click, or of the copy that Typer brings
AGAIN_S = 0.5
_interrupted_at_s: list[float] = []
LATEST = "PATH|latest"  # the metavar of an option that may stand alone
type Table = Mapping[str, tuple[str | Table, str]]


@contextmanager
def shown_errors() -> Iterator[None]:
    """End with the text and the status of an error; with 130 after Ctrl-C; a defect's traceback goes to a file."""
    try:
        yield
    except (typer.Exit, typer.Abort, ClickException):
        raise
    except (KeyboardInterrupt, Exception) as exc:
        if _interrupted_at_s or isinstance(exc, KeyboardInterrupt):  # which compiled libraries turn into their errors
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None
        text, status = _text_and_status(exc)
        typer.echo(f"error: {_visible(text)}", err=True)
        raise typer.Exit(status) from exc


def _visible(text: str) -> str:
    """What a model, a server or a file wrote may hold anything."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def _text_and_status(exc: Exception) -> tuple[str, int]:
    """What a person is told of an exception, and the exit status."""
    if isinstance(exc, AgentGRPOError) and exc.status is not None:
        return str(exc), exc.status
    if isinstance(exc, ModuleNotFoundError):
        return f"{exc}; run `make setup`, or install the extra that has it (docs/00-install.md)", 1
    if isinstance(exc, OSError):
        remedy = OF_FILES.get(exc.errno or 0, "name another path" if exc.filename else "")
        return f"{exc}{remedy and f'; {remedy}'}", 2
    return f"{type(exc).__name__}: {exc}. This is a defect; its traceback: {_save_traceback(exc)}", 1


def _save_traceback(exc: Exception) -> str:
    from foundation.redaction import redacted

    descriptor, name = tempfile.mkstemp(prefix="agentgrpo-", suffix=".txt")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write(redacted("".join(traceback.format_exception(exc))))
    return name


class Command(TyperCommand):
    """One command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """An option that may stand alone means `latest` there; one that is none may be a setting."""
        alone = {flag for param in self.params if getattr(param, "metavar", "") == LATEST for flag in param.opts}
        pairs = zip(args, [*args[1:], "-"], strict=False)
        words = [f"{a}=latest" if a in alone and b.startswith("-") else a for a, b in pairs]
        self._check_words(ctx, words)
        try:
            return super().parse_args(ctx, words)
        except ClickException as exc:
            if hasattr(exc, "possibilities") and "--set" in flags_of(self):
                exc.message += "; a setting is given as --set SECTION.KEY=VALUE (--set trainer.max_steps=5)"
            if "extra argument" in exc.message and (flag := next((f for f in FOR_WORDS if f in flags_of(self)), "")):
                exc.message += f"; it needs a flag before it, most likely {flag}"
            raise

    def _check_words(self, ctx: Any, words: list[str]) -> None:
        """No flag is taken for the value of another, and no two names of one option are given, of which one would win.

        Raises BadParameter.
        """
        params: dict[str, Any] = {flag: param for param in self.params for flag in [*param.opts, *param.secondary_opts]}
        given: dict[Any, str] = {}
        for word, following in zip(words, [*words[1:], ""], strict=False):
            if word == "--":
                break
            flag, equals, _ = word.partition("=")
            if not flag.startswith("-") or (param := params.get(flag)) is None:
                continue
            if not equals and not param.is_flag and following in params:
                text = f"a value is missing: {following} is a flag of its own"
                raise typer.BadParameter(text, ctx=ctx, param=param)
            if given.setdefault(param.name, flag) != flag:
                raise typer.BadParameter(f"{given[param.name]} and {flag} set the same; give one", ctx, param)

    def invoke(self, ctx: Any) -> Any:
        """Exit with what the function returns."""
        with shown_errors():
            raise typer.Exit(super().invoke(ctx) or 0)


class Door(TyperGroup):
    """A group whose commands stand in `table`: name -> "module:function" or a table, and a line of help."""

    table: Table = {}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command for lists: its name and its line."""
        if cmd_name not in self.table:
            return None
        line = self.table[cmd_name][1]
        return TyperCommand(cmd_name, short_help=line, hidden=not line)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command itself."""
        self.commands = dict.fromkeys(self.table)  # pyright: ignore[reportAttributeAccessIssue]  for "did you mean"
        name, command, rest = super().resolve_command(ctx, args)
        return name, loaded(self.table, name or "") if command else None, rest

    def invoke(self, ctx: Any) -> Any:
        """Importing a command may fail too."""
        with shown_errors():
            return super().invoke(ctx)


def group(table: Table, *, help: str, add_completion: bool = False, epilog: str | None = None) -> typer.Typer:
    """The commands of a table as one."""
    app = typer.Typer(cls=type("Door", (Door,), {"table": table}), add_completion=add_completion, **PLAIN)
    app.callback(help=help, epilog=epilog)(lambda: None)
    return app


PLAIN: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 120},
}


def loaded(table: Table, name: str) -> Any:
    """A command or a group of a table, imported."""
    command = typer.main.get_command(loaded_app(table, name))
    command.name = name
    return command


def loaded_app(table: Table, name: str) -> typer.Typer:
    """The same, as an application of its own."""
    where, line = table[name]
    if not isinstance(where, str):
        return group(where, help=line)
    module, _, function = where.partition(":")
    return single(getattr(importlib.import_module(module), function))


def single(function: Callable[..., Any]) -> typer.Typer:
    """A function with Typer's annotations, or one `with_flags`, as a command; it may bring `context_settings`."""
    app = typer.Typer(add_completion=False, **PLAIN)
    settings = {**PLAIN["context_settings"], **getattr(function, "context_settings", {})}
    app.command(cls=Command, epilog=STATUSES, context_settings=settings)(function)
    return app


def with_flags[F: Callable[..., Any]](flags: type[Any]) -> Callable[[F], F]:
    """A command of one argument: a dataclass, whose fields are annotated as Typer's parameters are."""

    def decorate(function: F) -> F:
        def command(**given: Any) -> Any:
            return function(flags(**given))

        command.__doc__, command.__module__, command.__name__ = function.__doc__, function.__module__, function.__name__
        vars(command)["__signature__"] = inspect.signature(flags, eval_str=True).replace(return_annotation=None)
        return command  # pyright: ignore[reportReturnType]

    return decorate


def prepare() -> None:
    """What a process needs before its command line is read: .env, and a SIGTERM that ends it in order, as Ctrl-C."""
    from dotenv import load_dotenv

    load_dotenv(HOME / ".env")
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, _interrupt)


def _interrupt(*_: Any) -> None:
    """Python's own handler would do, but asyncio.run replaces that one by a handler which waits for the loop.

    A second signal ends at once, as a kill does, what takes its time to end in order. Some (`timeout`) send one signal
    twice: raised a second time, it would end the ending, and leave an event loop that waits forever.
    """
    _interrupted_at_s.append(time.monotonic())
    if len(_interrupted_at_s) == 1:
        raise Interrupted
    if _interrupted_at_s[-1] - _interrupted_at_s[0] > AGAIN_S:
        os._exit(130)


def renamed(words: Sequence[str], known: Collection[str]) -> list[str]:
    """A command line with older names of flags -> one with those of a command that has the flags `known`."""
    words_today: list[str] = []
    for word in words:
        flag, equals, value = word.partition("=")
        dashed = flag.replace("_", "-")
        today = OLD_NAMES.get(dashed, dashed)
        words_today.append(f"{today}{equals}{value}" if flag.startswith("--") and today in known else word)
    return words_today


def run_old(table: Table, words: Sequence[str]) -> None:
    """Run `agentgrpo WORDS` as a script of before does: older names of flags are taken too."""
    prepare()
    name, *rest = words
    where, _ = table[name]
    if not isinstance(where, str):
        return run_old(where, rest)
    _run(loaded(table, name), rest, name=f"agentgrpo {name}")


def alias(function: Callable[..., Any]) -> None:
    """Run a command's function as the script of its module does: older names of flags are taken too."""
    prepare()
    _run(typer.main.get_command(single(function)), sys.argv[1:], name=None)


def _run(command: Any, words: Sequence[str], *, name: str | None) -> None:
    command.main(args=renamed(words, flags_of(command)), prog_name=name)


def given(context: typer.Context, *, but: Collection[str]) -> str:
    """The flags that stand on the command line, for a message; without those of these parameters."""
    others = [param for param in context.command.params if param.name not in but]
    sources = {"/".join(param.opts): context.get_parameter_source(param.name or "") for param in others}
    return ", ".join(sorted(flag for flag, source in sources.items() if getattr(source, "name", "") == "COMMANDLINE"))


def flags_of(command: Any) -> set[str]:
    """What may stand on the line of a command: {"--model", "-m", ...}."""
    return {flag for param in command.params for flag in [*param.opts, *param.secondary_opts]}
