"""One POST of JSON and its whole answer, for the clients of the judge and of the reward model.

Guarantees: nothing waits longer than its time limit, slow bodies included; at most `max_bytes` of an answer are read,
and at most so many unpacked; coded twice or in another way than gzip or deflate, it is refused. The token is in the
request header and nowhere else; loopback addresses ignore proxy variables; redirects are not followed, so the token
goes to no other host. Not covered: streaming.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
import zlib
from typing import Any, NamedTuple

import httpx

from foundation.net import is_loopback

ANY_HEADER = 32 + zlib.MAX_WBITS  # zlib's name for: of gzip or of deflate


class BadBody(Exception):
    """The body of an answer is too long or cannot be unpacked; the text says which."""


class Response(NamedTuple):
    """An answer. `body` is unpacked."""

    status: int
    headers: httpx.Headers
    body: bytes


async def post_json(url: str, body: Any, *, token: str, timeout_s: float, max_bytes: int) -> Response:
    """Raises TimeoutError, BadBody, and whatever httpx raises for an address or a connection."""
    headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {token}"} if token else {})
    # One client per request: every rollout runs its own event loop, and a connection pool belongs to one loop.
    async with (
        asyncio.timeout(timeout_s),
        httpx.AsyncClient(verify=_tls(), trust_env=not is_loopback(url), timeout=None) as http,
        http.stream("POST", url, json=body, headers=headers) as response,
    ):
        try:
            text = await _body(response, max_bytes)
        except BadBody:
            if response.is_success:  # else the status says enough
                raise
            text = b""
        return Response(response.status_code, response.headers, text)


async def _body(response: httpx.Response, max_bytes: int) -> bytes:
    data = bytearray()
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) > max_bytes:
            raise BadBody(f"the answer is longer than {max_bytes} bytes")
    return _unpacked(bytes(data), response.headers.get("Content-Encoding", "").strip().lower(), max_bytes)


def _unpacked(data: bytes, coding: str, max_bytes: int) -> bytes:
    if coding in ("", "identity"):
        return data
    if coding not in ("gzip", "deflate"):
        raise BadBody(f"the answer is coded as {coding[:50]!r}, where gzip and deflate, once, can be read")
    try:
        whole = zlib.decompressobj(ANY_HEADER).decompress(data, max_bytes + 1)
    except zlib.error as exc:
        raise BadBody(f"the answer says that it is {coding} and is not ({exc})") from None
    if len(whole) > max_bytes:
        raise BadBody(f"the answer is longer than {max_bytes} bytes when it is unpacked")
    return whole


@functools.cache
def _tls() -> ssl.SSLContext:
    """Made once: loading the certificates costs tens of milliseconds, and a client is made per request."""
    return httpx.create_ssl_context()
