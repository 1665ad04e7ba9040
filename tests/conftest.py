"""What holds for all tests."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is no mistake in the code.
settings.register_profile("project", deadline=None)
settings.load_profile("project")


def pytest_configure() -> None:
    """Say that there is no current event loop.

    Where nothing was said, asyncio makes one when pytest-asyncio first asks for it, and the next `asyncio.run` drops it
    unclosed: a ResourceWarning in whichever test the garbage collector happens to run.
    """
    asyncio.set_event_loop(None)


def is_smoke(item: pytest.Item) -> bool:
    """Whether a test runs the whole job, and so needs the tiny policy."""
    return "smoke" in item.path.parts


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The whole job comes last: by then its model is built."""
    items.sort(key=is_smoke)


@pytest.fixture(scope="session", autouse=True)
def policy_build(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes] | None]:
    """The tiny policy's build, minutes long in a fresh clone, beside the tests that do not need it."""
    if not any(is_smoke(item) for item in request.session.items):
        yield None
        return
    command = [sys.executable, "-m", "sql_agent.tiny_policy.build"]
    root = Path(__file__).resolve().parents[1]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        threading.Thread(target=process.wait, daemon=True).start()  # no zombie among the children that tests look at
        yield process
        process.terminate()
