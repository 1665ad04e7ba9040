"""What command lines print without a traceback."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can mend; its text says value, rule and remedy. Command lines exit with status 2."""
