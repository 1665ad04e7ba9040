"""The one tree of exceptions. Each text is for people: which value broke which rule, and what to do.

AgentGRPOError              every exception of this project; `status` is what a command that it ends exits with
 |-- UserError          2   wrong input: something that the user can mend
 |-- RunError           1   a run cannot go on
 |    +-- PatchError, BudgetSpent, EpisodesSpent, TrainingFailed, NotFinite
 |-- Fault              1   something broke around the policy, so an episode has no meaning (sql_agent/errors.py)
 |    +-- LLMFault, DatabaseFault, ReaderFault, ToolFault, EpisodeFault
 |-- JudgeFault         1   something broke around the judge, so an answer has no value (reward_client/errors.py)
 |    +-- JudgeUnreachable (JudgeBusy), JudgeRejected (JudgeBadRequest),
 |        JudgeUnparsable (JudgeNoCompletion), JudgeBudgetSpent, JudgeFolderFault
 +-- a word             -   between two modules of one room, which none of them lets out
      |-- of processes      Gone, Garbage, Died, Exited, Overdue
      |-- of requests       NotAllowed, CallError, Refused, Unsaid, BadBody, BodyRefused, NoReply,
      |                     NoAnswer (NoConnection), _Refused, _Gone, Overloaded, ModelFailed
      |-- of rows           BadLine, Unusable, _NoPlace
      +-- of episodes       UnusableSQL, Forbidden, _Unfinished, BadArguments, ToolFailed, EpisodeStopped, Stopped,
                            MathFault

Not in the tree, as a child process may import nothing of ours: Unusable of sql_worker.py, Refused, Flood and Unconfined
of the sandbox, _TimeUp of own_child.py; and, as no `except Exception` may catch it, Interrupted. tests/test_layers.py
looks that each exception stands here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class AgentGRPOError(Exception):
    """Of this project. `status` is the exit status of a command that it ends; None: it is no text for people."""

    status: int | None = None


class Interrupted(KeyboardInterrupt):
    """A person or a supervisor ends this process, by Ctrl-C or SIGTERM: whatever runs then, it did not raise this."""


class RunError(AgentGRPOError):
    """The run cannot go on. Command lines print its text without a traceback and exit with 1."""

    status = 1


class UserError(AgentGRPOError):
    """Wrong input from the user. Command lines print its text, without a traceback, and exit with 2."""

    status = 2


class Unusable(AgentGRPOError):
    """Why a row of data gives nothing, in words that do not vary with its content."""


def first_of(lines: Sequence[str], *, most: int = 10) -> list[str]:
    """The first of many lines, and how many more there are."""
    return [*lines[:most], *([f"and {len(lines) - most} more"] if len(lines) > most else [])]


def problems_of(exc: ValidationError, *, most: int | None = None, whole: str = "") -> str:
    """What pydantic refuses, each as `place: why`, and at most so many; `whole` is the place of what has no name."""
    problems = exc.errors(include_url=False, include_input=False)[:most]
    places = (".".join(map(str, problem["loc"])) or whole for problem in problems)
    whys = (problem["msg"].removeprefix("Value error, ") for problem in problems)
    return "; ".join(f"{place}: {why}" if place else why for place, why in zip(places, whys, strict=True))


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of an error about an unknown name: the nearest known one, or ""."""
    from rapidfuzz import process  # not for `--help`

    near = process.extractOne(name, list(names), score_cutoff=60)
    return f"; did you mean {near[0]}?" if near else ""
