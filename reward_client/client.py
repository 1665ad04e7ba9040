"""One chat completion from an OpenAI-compatible server. The retry loop around it is in chain.py.

Guarantees: every failure is a JudgeFault; of a reply at most MAX_BODY_BYTES are read, also unpacked; what a server says
of tokens never costs a verdict. Time, key and redirects: see transport.py. Not covered: streaming, tool calls.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from pydantic import BaseModel

from reward_client.errors import JudgeFault, JudgeRejected, JudgeUnparsable, JudgeUnreachable
from reward_client.schema import JudgeEndpoint, Usage
from reward_client.transport import BadBody, NoAnswer, Response, post_json

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
    """HTTP 2xx with something else than a chat completion: a web page, another API."""


class ChatReply(BaseModel):
    """The text of a completion, why it ended, and what the server says about it."""

    text: str
    finish_reason: str = ""
    usage: Usage = Usage()
    model: str = ""


async def post_chat(endpoint: JudgeEndpoint, payload: dict[str, Any], *, timeout_s: float) -> ChatReply:
    """Ask once. `payload` is the request without `model`.

    Raises JudgeUnreachable (no answer within `timeout_s`, 5xx, 429), JudgeRejected (other 3xx and 4xx) and
    JudgeUnparsable (2xx without a completion).
    """
    url, request = f"{endpoint.base_url}/chat/completions", {"model": endpoint.model, **payload}
    token = endpoint.api_key.get_secret_value()
    try:
        response = await post_json(url, request, token=token, timeout_s=timeout_s, max_bytes=MAX_BODY_BYTES)
    except BadBody as exc:
        raise JudgeNoCompletion(f"judge {endpoint}: {exc}") from None
    except TimeoutError:
        raise JudgeUnreachable(f"judge {endpoint}: no complete answer within {timeout_s:.3g} s") from None
    except NoAnswer as exc:
        problem = _redact(endpoint, str(exc))
        raise JudgeUnreachable(
            f"judge {endpoint}: no connection ({problem}). Check TEACHER_BASE_URL and that the server runs"
        ) from None
    if response.status // 100 != 2:
        raise _fault(endpoint, response)
    return _read_reply(endpoint, response)


def _fault(endpoint: JudgeEndpoint, response: Response) -> JudgeFault:
    status, headers, body = response
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


def _read_reply(endpoint: JudgeEndpoint, response: Response) -> ChatReply:
    try:
        data = json.loads(response.body)
        choice = data["choices"][0]
        finish_reason = str(choice.get("finish_reason") or "")
        reply = ChatReply(
            text=_text(choice["message"].get("content")),
            finish_reason=finish_reason,
            usage=_usage(data.get("usage")),
            model=str(data.get("model") or ""),
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        excerpt = " ".join(_redact(endpoint, response.body.decode("utf-8", errors="replace")).split())
        raise JudgeNoCompletion(
            f"judge {endpoint}: HTTP {response.status}, but the body is no chat completion: {excerpt[:EXCERPT_CHARS]!r}"
            ". Check that TEACHER_BASE_URL is an OpenAI-compatible API and not a web page"
        ) from None
    if not reply.text.strip():
        fault = JudgeUnparsable(f"judge {endpoint}: empty answer (finish_reason {finish_reason or 'not given'})")
        fault.usage = reply.usage
        raise fault
    return reply


def _text(content: Any) -> str:
    """What the model said: a text, or a list of parts of which those of type text count."""
    if not isinstance(content, list):
        return content or ""
    return "".join(part["text"] for part in content if part["type"] == "text")


def _usage(said: Any) -> Usage:
    """The counts of tokens; none where one of them is no count."""
    try:
        counts = {name: said[name] or 0 for name in ("prompt_tokens", "completion_tokens")}
        return Usage.model_validate(counts, strict=True)
    except (ValueError, TypeError, KeyError):
        return Usage()
