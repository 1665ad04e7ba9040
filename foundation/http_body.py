"""The body of a request, for every server: read whole, with a limit on its size and on its time.

Guarantees: at most `most_bytes` of it are kept; of a longer one READ_ON times as many are read before it is refused,
since a client that is still sending would lose the answer in a reset connection.
"""

from __future__ import annotations

import asyncio

from starlette.types import Receive

from foundation.errors import AgentGRPOError

READ_ON = 8


class BodyRefused(AgentGRPOError):
    """Why a body is not taken: `code` is a status of HTTP, the text is for people."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


async def body_of(receive: Receive, *, most_bytes: int, within_s: float) -> bytes | None:
    """The body; None where its client went away. Raises BodyRefused: 408 or 413."""
    try:
        async with asyncio.timeout(within_s):
            return await _read(receive, most_bytes)
    except TimeoutError:
        raise BodyRefused(408, f"the body did not come within {within_s:g} s: send it again") from None


async def _read(receive: Receive, most_bytes: int) -> bytes | None:
    body = bytearray()
    n_bytes = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunk, more = message.get("body", b""), message.get("more_body", False)
        n_bytes += len(chunk)
        body += chunk if n_bytes <= most_bytes else b""
        if n_bytes > most_bytes and (not more or n_bytes > READ_ON * most_bytes):
            raise too_large(n_bytes, most_bytes, more=more)
    return bytes(body)


def too_large(n_bytes: int, most_bytes: int, *, more: bool) -> BodyRefused:
    """For a body of so many bytes, or `more`."""
    size = f"{n_bytes} bytes{' or more' if more else ''}"
    return BodyRefused(413, f"the body has {size}, and is larger than {most_bytes} bytes: send less at once")
