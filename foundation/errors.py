"""The one tree of exceptions. Each text is for people: which value broke which rule, and what to do.

AgentGRPOError              every exception of this project; `status` is what a command that it ends exits with
 |-- UserError          2   wrong input: something that the user can mend
 |-- RunError           1   a run cannot go on: PatchError, BudgetSpent, EpisodesSpent, TrainingFailed
 |-- Fault              1   something broke around the policy, so an episode has no meaning (sql_agent/errors.py)
 |-- JudgeFault         1   something broke around the judge, so an answer has no value (reward_client/errors.py)
 +-- a defect           -   the others: words between two modules of one room, which none of them lets out

Not in the tree: what a child process raises that may import nothing of ours (sql_worker, the sandbox of Python code).
"""

from __future__ import annotations

from collections.abc import Iterable


class AgentGRPOError(Exception):
    """Of this project. `status` is the exit status of a command that it ends; None: it is no text for people."""

    status: int | None = None


class RunError(AgentGRPOError):
    """The run cannot go on. Command lines print its text without a traceback and exit with 1."""

    status = 1


class UserError(AgentGRPOError):
    """Wrong input from the user. Command lines print its text, without a traceback, and exit with 2."""

    status = 2


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of an error about an unknown name: the nearest known one, or ""."""
    from rapidfuzz import process  # not for `--help`

    near = process.extractOne(name, list(names), score_cutoff=60)
    return f"; did you mean {near[0]}?" if near else ""
