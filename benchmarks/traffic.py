"""What an LLM call costs on its way: agent-lightning's own proxy, the gateway, and no proxy.

  .venv/bin/python -m benchmarks.traffic [--seconds 5] [--path gateway ...] [--in-flight 1024 ...] [--delay-ms 2000 ...]
  .venv/bin/python -m benchmarks.traffic --path gateway --soak 100000

For each path, number of calls in flight and model (by default one that answers at once, and one that takes 500 ms):
calls per second, CPU of the proxy and of the store in ms per call, calls that failed, and calls whose span the store
has not got. `stock` is agentlightning.LLMProxy as it comes, with `agl store`; `gateway` is this project's, with the
store that lasts; `direct` calls the model server (support/model_server.py). `--soak` makes so many calls, at 64 in
flight. Everything is on this machine, the client too: calls per second say what is possible beside it, CPU per call is
what a path costs. All callers begin at once, which takes a share of a short time. Run it on an idle machine.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer

from benchmarks.support.load import cpu_s, server
from benchmarks.support.model_server import MODEL, model_server
from foundation.environment import COMMON_ENV
from foundation.net import free_port

PATHS = ("stock", "gateway", "direct")
IN_FLIGHT, DELAYS_MS = (1, 16, 64, 256), (0, 500)
N_ATTEMPTS, CALLS_PER_ENGINE = 64, 2**14
HEADER = "path     model ms in flight    calls   calls/s  proxy ms  store ms  failed  no span"
PROMPT = {"system": "你是一位医学数据库助手。" * 20, "user": "甲药的适应症是什么？"}
MESSAGES = [{"role": role, "content": text} for role, text in PROMPT.items()]
Proxied = tuple[list[str], int]  # an address of calls for each attempt, and the process id of the proxy
BODY = {"model": MODEL, "messages": MESSAGES, "temperature": 1.0, "top_p": 1.0}


@contextmanager
def store_process(path: str) -> Iterator[tuple[str, int]]:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        agl = [str(Path(sys.executable).parent / "agl"), "store", "--host", "127.0.0.1"]
        own = [sys.executable, "-m", "agl_plugin.store", "--path", f"{folder}/store.db", "--log-level", "WARNING"]
        command = [*(agl if path == "stock" else own), "--port", str(port)]
        with server(command, f"{address}/v1/agl/health") as pid:
            yield address, pid


def make_proxy(path: str, store: Any) -> Any:
    from agl_plugin.proxy.gate import Gate

    port = free_port()
    if path == "stock":
        from agentlightning import LLMProxy

        keyless = {"general_settings": {"dangerously_permit_weak_or_unset_master_key": True}}
        return LLMProxy(host="127.0.0.1", port=port, model_list=[], store=store, litellm_config=keyless)
    from agl_plugin.proxy.gateway import Gateway

    return Gateway(port, store=store, gate=Gate(), log_probs=True, plain_spans=False, calls_per_engine=CALLS_PER_ENGINE)


@asynccontextmanager
async def proxy(path: str, store: Any, model_url: str) -> AsyncIterator[Proxied]:
    """A started proxy; 0 stands for the process of none."""
    if path == "direct":
        yield [f"{model_url}/chat/completions"], 0
        return
    llm_proxy = make_proxy(path, store)
    params = {"model": f"hosted_vllm/{MODEL}", "api_base": f"{model_url}/"}
    llm_proxy.update_model_list([{"model_name": MODEL, "litellm_params": params}])
    await llm_proxy.start()
    try:
        rollouts = [await store.start_rollout(None) for _ in range(N_ATTEMPTS)]
        resource = llm_proxy.as_resource()
        places = [resource.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id) for rollout in rollouts]
        yield [f"{place}/v1/chat/completions" for place in places], llm_proxy.server_launcher._proc.pid
    finally:
        await llm_proxy.stop()


async def load(urls: list[str], *, in_flight: int, go_on: Callable[[int], bool]) -> tuple[int, int, float]:
    """Calls with so many in flight while `go_on` says so of their number: answered, failed, and seconds."""
    begun = answered = failed = 0

    async def caller(number: int) -> None:
        nonlocal begun, answered, failed
        while go_on(begun):
            begun += 1
            try:
                async with http.post(urls[number % len(urls)], json=BODY) as reply:
                    text = await reply.text()
                    good = reply.status == 200 and '"choices"' in text
            except aiohttp.ClientError:
                good = False
            answered, failed = answered + good, failed + (not good)

    timeout, connector = aiohttp.ClientTimeout(total=600), aiohttp.TCPConnector(limit=0, keepalive_timeout=2)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
        started = time.monotonic()
        await asyncio.gather(*(caller(number) for number in range(in_flight)))
        return answered, failed, time.monotonic() - started


async def at_rest(pid: int) -> None:
    """Until the store has nothing to do: the spans come after the answers."""
    before = -1.0
    while cpu_s(pid) - before > 0.02:
        before = cpu_s(pid)
        await asyncio.sleep(0.5)


async def n_spans(store: Any, urls: list[str]) -> int:
    """How many spans of calls the store has of these attempts; without a proxy they are nobody's."""
    from agl_plugin.proxy.spans import CALL_SPAN

    rollout_ids = [url.split("/rollout/")[1].split("/")[0] for url in urls if "/rollout/" in url]
    results = [await store.query_spans(rollout_id, name=CALL_SPAN, limit=1) for rollout_id in rollout_ids]
    return sum(result.total for result in results)


async def measure(proxied: Proxied, store: Any, store_pid: int, *, in_flight: int, seconds: float, soak: int) -> str:
    """The figures of a row, after a call on each connection."""
    urls, pid = proxied
    await load(urls, in_flight=in_flight, go_on=lambda n: n < in_flight)
    await at_rest(store_pid)
    spans_before, proxy_s, store_s = await n_spans(store, urls), cpu_s(pid), cpu_s(store_pid)
    until = time.monotonic() + seconds
    go_on: Callable[[int], bool] = (lambda n: n < soak) if soak else (lambda _: time.monotonic() < until)
    answered, failed, took_s = await load(urls, in_flight=in_flight, go_on=go_on)
    await at_rest(store_pid)
    calls = max(1, answered + failed)
    proxy_ms, store_ms = 1000 * (cpu_s(pid) - proxy_s) / calls, 1000 * (cpu_s(store_pid) - store_s) / calls
    n_missing = answered - (await n_spans(store, urls) - spans_before) if pid else 0
    return f"{calls:9}{answered / took_s:10.1f}{proxy_ms:10.2f}{store_ms:10.2f}{failed:8}{n_missing:9}"


async def measured(paths: list[str], loads: list[tuple[int, int]], *, model: str, seconds: float, soak: int) -> None:
    """Print all cells, with a fresh store for each path; `loads` are milliseconds of a call, and calls in flight."""
    from agentlightning import LightningStoreClient

    typer.echo(HEADER)
    for path in paths:
        with store_process(path) as (address, pid):
            store = LightningStoreClient(address)
            for delay_ms, in_flight in loads:
                time_s = 2 * seconds if delay_ms else seconds
                async with proxy(path, store, f"{model}/{delay_ms}/v1") as proxied:
                    row = await measure(proxied, store, pid, in_flight=in_flight, seconds=time_s, soak=soak)
                typer.echo(f"{path:9}{delay_ms:8}{in_flight:10}{row}")
            await store.close()


def main(
    path: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(PATHS)} (default: all)")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="time of each measurement")] = 5.0,
    soak: Annotated[int, typer.Option(min=0, help="so many calls at 64 in flight instead")] = 0,
    in_flight: Annotated[list[int] | None, typer.Option(min=1, help=f"calls in flight (default: {IN_FLIGHT})")] = None,
    delay_ms: Annotated[list[int] | None, typer.Option(min=0, help=f"of the model (default: {DELAYS_MS})")] = None,
) -> None:
    """Measure what an LLM call costs on each path; about six minutes for all."""
    paths = path or [*PATHS]
    if strangers := set(paths) - {*PATHS}:
        typer.echo(f"error: --path {', '.join(sorted(strangers))}: must be of {', '.join(PATHS)}", err=True)
        raise typer.Exit(2)
    for name, value in COMMON_ENV.items():
        os.environ.setdefault(name, value)
    with model_server() as model:
        usual = ((0,), (64,)) if soak else (DELAYS_MS, IN_FLIGHT)
        loads = [*itertools.product(delay_ms or usual[0], in_flight or usual[1])]
        asyncio.run(measured(paths, loads, model=model, seconds=seconds, soak=soak))


if __name__ == "__main__":
    typer.run(main)
