"""The scoring API's command in processes of its own, for tests.

Processes are forked from a server that has the libraries loaded (multiprocessing's forkserver), so that a start costs a
second and not ten; each runs the command's own `main`. One test starts the documented command itself.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx

from foundation.net import free_port

START_S = 180.0
END_S = 60.0


@dataclass
class Api:
    """A running server. `log` is the file with what it prints; `http` is a client with connections of its own."""

    url: str
    process: BaseProcess
    log: Path
    http: httpx.Client

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return self.http.post(path, json=body, **options)

    def signal(self, number: int) -> None:
        assert self.process.pid
        os.kill(self.process.pid, number)

    def ended(self) -> str:
        """What it printed, once it has ended."""
        self.process.join(END_S)
        assert self.process.exitcode is not None, "the server did not end"
        return self.log.read_text(encoding="utf-8")


def run_command(arguments: list[str], environment: dict[str, str], log: str) -> None:
    """The command with these arguments, in this process."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.environ.update(environment)
    sys.argv = ["inference_api.py", *arguments]
    from reward_model import inference_api

    inference_api.typer.run(inference_api.main)


@contextmanager
def serve(model: Path, *flags: str, token: str = "", port: int = 0) -> Iterator[Api]:
    """The server, ready to answer, until the block ends."""
    port = port or free_port()
    log = model.parent / f"api-{port}-{time.monotonic_ns()}.log"
    # Set to nothing, so that no .env of this checkout can fill it.
    environment = {"REWARD_API_TOKEN": token, "OMP_NUM_THREADS": "1"}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["reward_model.inference_api"])
    arguments = ["--model", str(model), "--port", str(port), *flags]
    process = context.Process(target=run_command, args=(arguments, environment, str(log)), daemon=True)
    process.start()
    url = f"http://127.0.0.1:{port}"
    # Without certificates: loading them takes longer than a score.
    with httpx.Client(base_url=url, trust_env=False, verify=False, timeout=END_S) as http:
        api = Api(url, process, log, http)
        try:
            _wait(api)
            yield api
        finally:
            process.kill()
            process.join(END_S)


def _wait(api: Api) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        assert api.process.is_alive(), api.log.read_text(encoding="utf-8")
        with contextlib.suppress(httpx.TransportError):
            if api.http.get("/readyz").status_code == 200:
                return
        time.sleep(0.05)
    raise TimeoutError("the server did not start")
