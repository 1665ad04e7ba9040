"""Two runs on one store: the second is refused, and what a killed run left behind is cancelled."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import agentlightning as agl
import pytest

from agl_plugin.run.store_claim import StoreClaim
from foundation.errors import RunError
from foundation.net import free_port
from tests.loop.conftest import QUIET, wait_until_up

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    address = f"http://127.0.0.1:{free_port()}"
    command = [str(Path(sys.executable).parent / "agl"), "store", "--host", "127.0.0.1"]
    with (tmp_path_factory.mktemp("store") / "log").open("wb") as log:
        store = subprocess.Popen([*command, "--port", address.rpartition(":")[2]], stdout=log, stderr=log, env=QUIET)
        try:
            wait_until_up(f"{address}/v1/agl/health", store)
            yield address
        finally:
            store.terminate()
            store.wait(30)


def enqueue(address: str) -> str:
    async def work() -> str:
        client = agl.LightningStoreClient(address)
        try:
            return (await client.enqueue_rollout(input={"question": "q"}, mode="train")).rollout_id
        finally:
            await client.close()

    return asyncio.run(work())


def status(address: str, rollout_id: str) -> str:
    async def work() -> str:
        client = agl.LightningStoreClient(address)
        try:
            found = await client.get_rollout_by_id(rollout_id)
            assert found
            return found.status
        finally:
            await client.close()

    return asyncio.run(work())


@pytest.mark.long
def test_the_second_run_is_refused_until_the_first_has_ended(address: str) -> None:
    with StoreClaim(address, run="first", keep_spans=4):
        second = StoreClaim(address, run="second", keep_spans=4)
        with pytest.raises(RunError, match="serves another run, first"), second:
            pass
        left = enqueue(address)
    with StoreClaim(address, run="third", keep_spans=4):
        assert status(address, left) == "cancelled"


def test_a_process_that_is_gone_holds_nothing(address: str) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    claim = StoreClaim(address, run="killed", keep_spans=4)
    claim._me["pid"] = gone.pid
    asyncio.run(claim._report())
    with StoreClaim(address, run="next", keep_spans=4):
        pass
