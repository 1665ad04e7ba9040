"""foundation/background.py: whatever work raises, its waiter is told, and the loop and its other work go on."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from foundation import command
from foundation.background import Exited, LoopThread, contained, contained_call
from sql_agent.config import ROOT

RAISED = [
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    asyncio.CancelledError("mine"),
    concurrent.futures.CancelledError(),
    StopAsyncIteration(),
    BaseExceptionGroup("both", [SystemExit(4)]),
]
by_name = pytest.mark.parametrize("raised", RAISED, ids=lambda exc: type(exc).__name__)


def test_ctrl_c_within_work_ends_the_process_and_not_the_work() -> None:
    async def works() -> None:
        signal.raise_signal(signal.SIGINT)

    async def plays() -> None:
        await contained(works())

    before = signal.signal(signal.SIGINT, command._interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(plays())
        command._interrupted_at_s.clear()
        with pytest.raises(KeyboardInterrupt):
            contained_call(signal.raise_signal, signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
        command._interrupted_at_s.clear()


SLOW_END = """
import time
from foundation.command import prepare, shown_errors
prepare()
with shown_errors():
    try:
        print("up", flush=True)
        time.sleep(600)
    finally:
        print("ends", flush=True)
        time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_what_ends_slowly(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", SLOW_END], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"up\n"
        process.send_signal(number)
        assert process.stdout.readline() == b"ends\n"
        time.sleep(1.2 * command.AGAIN_S)
        process.send_signal(number)
        assert process.wait(timeout=300) == 130


TWICE = """
import signal
from foundation.command import prepare, shown_errors
prepare()
with shown_errors():
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.raise_signal(signal.SIGTERM)
        print("tidied", flush=True)
"""


def test_a_signal_that_is_sent_twice_does_not_end_the_ending() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], cwd=ROOT, capture_output=True, timeout=300, check=False)
    assert done.stdout == b"tidied\n"


SWALLOWED = """
import signal
from foundation.command import prepare, shown_errors
prepare()
with shown_errors():
    try:
        signal.raise_signal(signal.SIGTERM)
    except BaseException as exc:
        raise ValueError(f"Error building the schema: {exc!r}")
"""


def test_an_interrupt_that_a_library_turns_into_an_error_is_one() -> None:
    """As pydantic does while it builds a schema: it was told as a defect of this program."""
    done = subprocess.run([sys.executable, "-c", SWALLOWED], cwd=ROOT, capture_output=True, text=True)
    assert "ValueError" not in done.stderr and done.stderr.startswith("interrupted\n"), done.stderr


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    made = LoopThread("test")
    yield made
    assert asyncio.run(made.call(_give("alive"), timeout_s=5)) == "alive"
    made.close()
    assert made.loop.is_closed()


async def _give(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


async def _raise(exc: BaseException) -> None:
    raise exc


def _raise_now(exc: BaseException) -> None:
    raise exc


async def _in_a_task(exc: BaseException) -> None:
    await asyncio.create_task(_raise(exc))


def test_an_exception_keeps_its_own_cause(loop: LoopThread) -> None:
    lost = ConnectionError("reset")
    raised = ValueError("no answer")
    raised.__cause__ = lost
    with pytest.raises(ValueError) as told:
        asyncio.run(loop.call(_raise(raised), timeout_s=5))
    assert told.value is raised and told.value.__cause__ is lost


@by_name
@pytest.mark.parametrize("work", [_raise, _in_a_task])
def test_what_a_coroutine_raises_reaches_its_waiter_by_name_and_leaves_the_loop_running(
    loop: LoopThread, work: Any, raised: BaseException
) -> None:
    with pytest.raises(Exited, match=type(raised).__name__):
        asyncio.run(loop.call(work(raised), timeout_s=5))


@pytest.mark.parametrize("raised", [*RAISED, StopIteration(1)], ids=lambda exc: type(exc).__name__)
def test_what_a_call_raises_reaches_its_waiter_by_name(raised: BaseException) -> None:
    with pytest.raises(Exited, match=type(raised).__name__):
        contained_call(_raise_now, raised)


def test_an_exception_whose_words_cannot_be_had_is_named(loop: LoopThread) -> None:
    class Nasty(BaseException):
        def __repr__(self) -> str:
            raise SystemExit(5)

    with pytest.raises(Exited, match="Nasty"):
        asyncio.run(loop.call(_raise(Nasty()), timeout_s=5))


def test_work_that_stops_its_loop_or_cancels_itself_disturbs_nobody(loop: LoopThread) -> None:
    async def stops() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        return "went on"

    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task
        task.cancel()
        await asyncio.sleep(1)

    async def leaves_a_callback() -> str:
        asyncio.get_running_loop().call_soon(_raise_now, KeyboardInterrupt())
        await asyncio.sleep(0.01)
        return "went on"

    assert asyncio.run(loop.call(stops(), timeout_s=5)) == "went on"
    assert asyncio.run(loop.call(leaves_a_callback(), timeout_s=5)) == "went on"
    with pytest.raises(Exited, match="CancelledError"):
        asyncio.run(loop.call(cancels_itself(), timeout_s=5))


def test_a_waiter_that_is_cancelled_itself_is_cancelled() -> None:
    async def main() -> None:
        task = asyncio.create_task(contained(asyncio.sleep(5)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await contained(asyncio.sleep(5))

    asyncio.run(main())
