"""How command lines end on errors that are meant for the person who typed them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from foundation.errors import UserError


@contextmanager
def shown_errors(*more: type[Exception]) -> Iterator[None]:
    """End with status 2 and the text of a UserError, OSError or one of `more`; with 130 after Ctrl-C."""
    try:
        yield
    except (UserError, OSError, *more) as exc:
        typer.echo(f"error: {exc}", err=True)
        raise typer.Exit(2) from exc
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(130) from None
