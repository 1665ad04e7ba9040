"""What holds for all tests."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from foundation.environment import CPU_PLATFORM

# LiteLLM would look for its price list on the network, for twelve seconds.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
if not shutil.which("nvidia-smi"):
    # verl asks once, when it is imported, what machine this is.
    os.environ.setdefault("VERL_PLATFORM", CPU_PLATFORM)
    os.environ.setdefault("VERL_USE_EXTERNAL_MODULES", "agl_plugin.cpu.platform")

# A busy machine is no mistake in the code.
settings.register_profile("project", deadline=None)
settings.load_profile("project")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server; the test is skipped where none is installed."""
    from tests.postgres import server

    with server() as address:
        yield address


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Path]:
    """The socket of a MariaDB server; the test is skipped where none is installed."""
    from tests.mariadb import server

    with server() as socket:
        yield socket


@pytest.fixture(scope="module")
def nursery() -> Iterator[None]:
    """What own tools are forked from, one for all tests: it takes a second to load."""
    from sql_agent.agent.own_remote import Nurseries

    Nurseries.take()
    yield
    Nurseries.leave()


def pytest_configure() -> None:
    """Say that there is no current event loop.

    Where nothing was said, asyncio makes one when pytest-asyncio first asks for it, and the next `asyncio.run` drops it
    unclosed: a ResourceWarning in whichever test the garbage collector happens to run.
    """
    asyncio.set_event_loop(None)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """A report can be sent whatever text a test failed on: half a surrogate pair would end the whole run."""
    return _sendable((yield))


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _sendable(part) for key, part in value.items()}
    return type(value)(map(_sendable, value)) if isinstance(value, list | tuple) else value


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The whole job comes last: it has both cores then, and no test that measures time beside it."""
    items.sort(key=lambda item: "smoke" in item.path.parts)
