"""One chat completion from an OpenAI-compatible server. The retry loop around it is in chain.py.

Guarantees: every failure is a JudgeFault; nothing waits longer than its time limit, slow bodies included; at most
MAX_BODY_BYTES of a reply are read; the key is in the request header and nowhere else; loopback addresses ignore proxy
variables. Redirects are not followed, so the key goes to no other host.
Not covered: streaming, tool calls.
"""

from __future__ import annotations

import asyncio
import functools
import json
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
from pydantic import BaseModel

from foundation.net import is_loopback
from reward_client.errors import JudgeFault, JudgeRejected, JudgeUnparsable, JudgeUnreachable
from reward_client.schema import JudgeEndpoint, Usage

MAX_BODY_BYTES = 1 << 20
EXCERPT_CHARS = 200
MIN_SECRET_CHARS = 5
RETRYABLE_STATUS = {408, 409, 425}
REMEDIES = {
    401: "the key must be valid for this address. Set TEACHER_API_KEY (in .env), or mend the file JUDGE_ENDPOINTS",
    403: "the key must be allowed to use this model. Set TEACHER_API_KEY or TEACHER_MODEL, or mend JUDGE_ENDPOINTS",
    404: "this address must serve /chat/completions and know this model. Set TEACHER_MODEL or TEACHER_BASE_URL, "
    "or mend JUDGE_ENDPOINTS",
}


class JudgeBadRequest(JudgeRejected):
    """HTTP 400 and its kin: this request is refused; another one may pass. `detail` is the server's text."""

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.detail = detail


class JudgeBusy(JudgeUnreachable):
    """HTTP 429, or another status with Retry-After. `retry_after_s` is how long the server asks to wait."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class JudgeNoCompletion(JudgeUnparsable):
    """HTTP 200 with something else than a chat completion: a web page, another API."""


class ChatReply(BaseModel):
    """The text of a completion, why it ended, and what the server says about it."""

    text: str
    finish_reason: str = ""
    usage: Usage = Usage()
    model: str = ""


async def post_chat(endpoint: JudgeEndpoint, payload: dict[str, Any], *, timeout_s: float) -> ChatReply:
    """Ask once. `payload` is the request without `model`.

    Raises JudgeUnreachable (no answer within `timeout_s`, 5xx, 429), JudgeRejected (other 3xx and 4xx) and
    JudgeUnparsable (status 200 without a completion).
    """
    try:
        async with asyncio.timeout(timeout_s):
            status, headers, body = await _post(endpoint, payload)
    except (TimeoutError, httpx.TimeoutException):
        raise JudgeUnreachable(f"judge {endpoint}: no complete answer within {timeout_s:.3g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError, ImportError) as exc:
        # ValueError, ImportError: a proxy variable that httpx cannot use. The text alone is kept: httpx exceptions
        # carry the request, and with it the key.
        problem = _redact(endpoint, f"{type(exc).__name__}: {exc}")
        raise JudgeUnreachable(
            f"judge {endpoint}: no connection ({problem}). Check TEACHER_BASE_URL and that the server runs"
        ) from None
    if status != 200:
        raise _fault(endpoint, status=status, headers=headers, body=body)
    return _read_reply(endpoint, body)


@functools.cache
def _tls() -> ssl.SSLContext:
    """Made once: loading the certificates costs tens of milliseconds, and a client is made per request."""
    return httpx.create_ssl_context()


async def _post(endpoint: JudgeEndpoint, payload: dict[str, Any]) -> tuple[int, httpx.Headers, bytes]:
    # One client per request: every rollout runs its own event loop, and a connection pool belongs to one loop.
    async with httpx.AsyncClient(verify=_tls(), trust_env=not is_loopback(endpoint.base_url), timeout=None) as http:
        headers = {"Authorization": f"Bearer {endpoint.api_key.get_secret_value()}"}
        url, body = f"{endpoint.base_url}/chat/completions", {"model": endpoint.model, **payload}
        async with http.stream("POST", url, json=body, headers=headers) as response:
            data = bytearray()
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) > MAX_BODY_BYTES:
                    raise JudgeNoCompletion(f"judge {endpoint}: the answer is longer than {MAX_BODY_BYTES} bytes")
            return response.status_code, response.headers, bytes(data)


def _fault(endpoint: JudgeEndpoint, *, status: int, headers: httpx.Headers, body: bytes) -> JudgeFault:
    detail = _redact(endpoint, body.decode("utf-8", errors="replace"))
    excerpt = " ".join(detail[:EXCERPT_CHARS].split())
    text = f"judge {endpoint}: HTTP {status}"
    wait_s = retry_after_s(headers.get("Retry-After", ""))
    if status == 429 or (wait_s and status >= 500):
        message = f"{text}, asks to wait {wait_s:g} s" if wait_s else text
        return JudgeBusy(f"{message}. Server: {excerpt}", wait_s)
    if status in RETRYABLE_STATUS or status >= 500:
        return JudgeUnreachable(f"{text}. Server: {excerpt}")
    if status in REMEDIES:
        return JudgeRejected(f"{text}: {REMEDIES[status]}. Server: {excerpt}")
    if 300 <= status < 400:
        target = _redact(endpoint, headers.get("Location", "?"))
        return JudgeRejected(f"{text}: redirected to {target}; set TEACHER_BASE_URL to the final address")
    return JudgeBadRequest(f"{text}: the server refuses this request. Server: {excerpt}", detail)


def _redact(endpoint: JudgeEndpoint, text: str) -> str:
    """Some servers repeat the key in their error text. A very short key is no secret and may be part of a word."""
    key = endpoint.api_key.get_secret_value()
    return text.replace(key, "***") if len(key) >= MIN_SECRET_CHARS else text


def retry_after_s(value: str) -> float:
    """The seconds of a Retry-After header, a number or a date (RFC 9110, 10.2.3); 0 where it is neither."""
    try:
        if value.strip().isdecimal():
            return float(value)
        date = parsedate_to_datetime(value)
        return max(0.0, (date.astimezone(UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _read_reply(endpoint: JudgeEndpoint, body: bytes) -> ChatReply:
    try:
        data = json.loads(body)
        choice = data["choices"][0]
        text, usage = choice["message"].get("content"), data.get("usage") or {}
        finish_reason = str(choice.get("finish_reason") or "")
        counts = {name: usage.get(name) or 0 for name in ("prompt_tokens", "completion_tokens")}
        reply = ChatReply(
            text=text or "", finish_reason=finish_reason, usage=Usage(**counts), model=str(data.get("model") or "")
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        excerpt = " ".join(_redact(endpoint, body.decode("utf-8", errors="replace")).split())
        raise JudgeNoCompletion(
            f"judge {endpoint}: HTTP 200, but the body is no chat completion: {excerpt[:EXCERPT_CHARS]!r}. "
            "Check that TEACHER_BASE_URL is an OpenAI-compatible API and not a web page"
        ) from None
    if not reply.text.strip():
        fault = JudgeUnparsable(f"judge {endpoint}: empty answer (finish_reason {finish_reason or 'not given'})")
        fault.usage = reply.usage
        raise fault
    return reply
