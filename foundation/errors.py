"""Errors of a training run whose text is meant for the user: what happened, the usual causes, what to do."""

from __future__ import annotations


class RunError(Exception):
    """The run cannot go on. Command lines print its text without a traceback and exit with 1."""


class UserError(Exception):
    """Wrong input from the user. Command lines print its text, without a traceback, and exit with 2."""
