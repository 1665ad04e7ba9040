"""A PostgreSQL server behind a slow wire: a process in between hands on what it gets after so many milliseconds."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg.conninfo
import uvloop

from foundation.processes import die_with_parent


async def _hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    while data := await reader.read(2**16):
        loop.call_later(delay_s, writer.write, data)
    loop.call_later(delay_s, writer.close)


async def _serve(host: str, port: int, delay_s: float, ready: Any) -> None:
    async def both_ways(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_file, file = host.startswith("/"), f"{host}/.s.PGSQL.{port}"
        opening = asyncio.open_unix_connection(file) if is_file else asyncio.open_connection(host, port)
        answers, server = await opening
        await asyncio.gather(_hand_on(reader, server, delay_s), _hand_on(answers, writer, delay_s))

    listening = await asyncio.start_server(both_ways, "127.0.0.1", 0)
    ready.send(listening.sockets[0].getsockname()[1])
    await listening.serve_forever()


def _forward(host: str, port: int, delay_s: float, ready: Any) -> None:
    die_with_parent()
    uvloop.run(_serve(host, port, delay_s, ready))


@contextmanager
def distant(address: str, delay_ms: float) -> Iterator[str]:
    """The address of the same database, to which and from which each message takes so long; for 0 the same."""
    if not delay_ms:
        yield address
        return
    keys, forked = psycopg.conninfo.conninfo_to_dict(address), multiprocessing.get_context("fork")
    here, there = forked.Pipe()
    place = str(keys.get("host") or "/var/run/postgresql"), int(keys.get("port") or 5432)
    process = forked.Process(target=_forward, args=(*place, delay_ms / 1000, there))
    process.start()
    try:
        yield psycopg.conninfo.make_conninfo(address, host="127.0.0.1", port=here.recv())
    finally:
        process.terminate()
        process.join()
