"""One POST of JSON and its whole answer, for the clients of the judge and of the reward model.

Guarantees: nothing waits longer than its time limit, slow bodies included; at most `max_bytes` of an answer are read,
and at most so many unpacked; coded twice or in another way than gzip or deflate, it is refused. The token is in the
request header and nowhere else: text comes in here alone, and nothing that is handed on, of an answer or of an error,
shows the token or a proxy's password. Loopback addresses ignore proxy variables; redirects are not followed, so the
token goes to no other host. Calls under way in one event loop share their connections, which are closed with the last
call.
Not covered: streaming, SOCKS proxies.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import re
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

import aiohttp
import certifi

from foundation.errors import AgentGRPOError
from foundation.net import is_loopback
from foundation.redaction import keep_secret, redacted, redacted_tree

ANY_HEADER = 32 + zlib.MAX_WBITS  # zlib's name for: of gzip or of deflate
IDLE_S = 1.0  # servers close idle connections after a few seconds, and a request on a closing one is lost


class BadBody(AgentGRPOError):
    """The body of an answer is too long or cannot be unpacked; the text says which."""


class NoAnswer(AgentGRPOError):
    """The address, the proxy or the connection cannot be used; the text tells no token and no password."""


class NoConnection(NoAnswer):
    """Nobody answers at the address."""


@dataclass(frozen=True)
class Response:
    """An answer, without secrets. Names of headers are read in any case."""

    status: int
    _headers: Mapping[str, str] = field(repr=False)
    _body: bytes = field(repr=False)  # unpacked

    def header(self, name: str) -> str:
        """The header of this name, or ""."""
        return redacted(self._headers.get(name, ""))

    @functools.cached_property
    def text(self) -> str:
        """The body as it came, for people."""
        return redacted(self._body.decode(json.detect_encoding(self._body), errors="replace"))

    def tree(self) -> Any:
        """The body as JSON. Raises ValueError and RecursionError."""
        return redacted_tree(json.loads(self._body))


@dataclass
class _Pool:
    session: aiohttp.ClientSession
    n_calls: int = 0


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()


async def post_json(url: str, body: Any, *, token: str, timeout_s: float, max_bytes: int) -> Response:
    """Raises TimeoutError, NoAnswer and BadBody."""
    keep_secret(token)
    headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = json.dumps(body, ensure_ascii=False).encode()
    async with asyncio.timeout(timeout_s), _session() as session:
        try:
            post = session.post(url, data=data, headers=headers, proxy=_proxy(url), allow_redirects=False)
            async with post as response:
                return Response(response.status, response.headers, await _body(response, max_bytes))
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            # The text alone is kept: the exception carries the request, and with it the token.
            text = re.sub(r"//[^/@\s]*@", "//***@", redacted(" ".join(f"{type(exc).__name__}: {exc}".split())))
            kind = NoConnection if isinstance(exc, aiohttp.ClientConnectorError) else NoAnswer
            raise kind(text) from None


@contextlib.asynccontextmanager
async def _session() -> AsyncIterator[aiohttp.ClientSession]:
    """The connections of this event loop, for as long as a call is under way in it: no loop outlives them."""
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop) or _pools.setdefault(loop, _Pool(_open()))
    pool.n_calls += 1
    try:
        yield pool.session
    finally:
        pool.n_calls -= 1
        if not pool.n_calls:
            del _pools[loop]
            await pool.session.close()


def _open() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=_tls(), keepalive_timeout=IDLE_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    )


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for this address. aiohttp's own look would add passwords of ~/.netrc."""
    parts = urlsplit(url)
    if is_loopback(url) or proxy_bypass(parts.hostname or ""):
        return None
    named = getproxies()
    proxy = named.get(parts.scheme) or named.get("all")
    if not proxy:
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if urlsplit(proxy).scheme not in ("http", "https") or not urlsplit(proxy).hostname:
        raise ValueError("the proxy variable of this address must name an http:// or https:// proxy")
    keep_secret(unquote(urlsplit(proxy).password or ""))
    return proxy


async def _body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    data = bytearray()
    try:
        async for chunk in response.content.iter_any():
            data += chunk
            if len(data) > max_bytes:
                raise BadBody(f"the answer is longer than {max_bytes} bytes")
        return _unpacked(bytes(data), response.headers.get("Content-Encoding", "").strip().lower(), max_bytes)
    except BadBody:
        if response.status // 100 == 2:  # else the status says enough
            raise
        return b""


def _unpacked(data: bytes, coding: str, max_bytes: int) -> bytes:
    if coding in ("", "identity"):
        return data
    if coding not in ("gzip", "deflate"):
        raise BadBody(f"the answer is coded as {redacted(coding)[:50]!r}, where gzip and deflate, once, can be read")
    try:
        whole = zlib.decompressobj(ANY_HEADER).decompress(data, max_bytes + 1)
    except zlib.error as exc:
        raise BadBody(f"the answer says that it is {coding} and is not ({exc})") from None
    if len(whole) > max_bytes:
        raise BadBody(f"the answer is longer than {max_bytes} bytes when it is unpacked")
    return whole


@functools.cache
def _tls() -> ssl.SSLContext:
    """Made once: loading the certificates costs tens of milliseconds. SSL_CERT_FILE and SSL_CERT_DIR name others."""
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    return ssl.create_default_context(cafile=file or (None if folder else certifi.where()), capath=folder)
