"""Errors of a training run whose text is meant for the user: what happened, the usual causes, what to do."""

from __future__ import annotations

from collections.abc import Iterable

from rapidfuzz import process


class RunError(Exception):
    """The run cannot go on. Command lines print its text without a traceback and exit with 1."""


class UserError(Exception):
    """Wrong input from the user. Command lines print its text, without a traceback, and exit with 2."""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of an error about an unknown name: the nearest known one, or ""."""
    near = process.extractOne(name, list(names), score_cutoff=60)
    return f"; did you mean {near[0]}?" if near else ""
