"""What holds for all tests."""

from __future__ import annotations

import asyncio


def pytest_configure() -> None:
    """Say that there is no current event loop.

    Where nothing was said, asyncio makes one when pytest-asyncio first asks for it, and the next `asyncio.run` drops it
    unclosed: a ResourceWarning in whichever test the garbage collector happens to run.
    """
    asyncio.set_event_loop(None)
