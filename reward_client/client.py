"""One chat completion from an OpenAI-compatible server. The retry loop around it is in chain.py.

Guarantees: every failure is a JudgeFault; of a reply at most MAX_BODY_BYTES are read, also unpacked; what a server says
of tokens never costs a verdict; a reply that the server calls an error, a refusal, a call of a tool, or ended by
anything but the model is none. Time, key and redirects: see transport.py. Not covered: streaming.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from pydantic import BaseModel

from reward_client.errors import JudgeFault, JudgeRejected, JudgeUnparsable, JudgeUnreachable
from reward_client.schema import JudgeEndpoint, Usage
from reward_client.transport import BadBody, NoAnswer, Response, post_json

MAX_BODY_BYTES = 1 << 20
EXCERPT_CHARS = 200
RETRYABLE_STATUS = {408, 409, 425}
# How a server says that the model ended by itself: OpenAI's word, and Anthropic's, which some gateways pass on. Some
# servers say nothing; a JSON object that is whole was not cut.
ENDED = {"stop", "end_turn", ""}
OTHER_REPLIES = ("refusal", "tool_calls", "function_call")
THOUGHTS = {"thinking", "reasoning", "redacted_thinking"}
REMEDIES = {
    401: "the key must be valid for this address. Set TEACHER_API_KEY (in .env), or mend the file JUDGE_ENDPOINTS",
    403: "the key must be allowed to use this model. Set TEACHER_API_KEY or TEACHER_MODEL, or mend JUDGE_ENDPOINTS",
    404: "this address must serve /chat/completions and know this model. Set TEACHER_MODEL or TEACHER_BASE_URL, "
    "or mend JUDGE_ENDPOINTS",
}


class JudgeBadRequest(JudgeRejected):
    """HTTP 400 and its kin: this request is refused; another one may pass. `detail` is the server's text."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class JudgeBusy(JudgeUnreachable):
    """HTTP 429, or another status with Retry-After. `retry_after_s` is how long the server asks to wait."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class JudgeNoCompletion(JudgeUnparsable):
    """HTTP 2xx with something else than a chat completion: a web page, another API."""


class ChatReply(BaseModel):
    """The text of a completion, and what the server says about it."""

    text: str
    usage: Usage = Usage()
    model: str = ""


async def post_chat(endpoint: JudgeEndpoint, payload: dict[str, Any], *, timeout_s: float) -> ChatReply:
    """Ask once. `payload` is the request without `model`.

    Raises JudgeUnreachable (no answer within `timeout_s`, 5xx, 429), JudgeRejected (other 3xx and 4xx) and
    JudgeUnparsable (2xx without a completion).
    """
    url = f"{endpoint.base_url}/chat/completions"
    request = {"model": endpoint.model, **payload}
    token = endpoint.api_key.get_secret_value()
    try:
        response = await post_json(url, request, token=token, timeout_s=timeout_s, max_bytes=MAX_BODY_BYTES)
    except BadBody as exc:
        raise JudgeNoCompletion(f"judge {endpoint}: {exc}") from None
    except TimeoutError:
        raise JudgeUnreachable(f"judge {endpoint}: no complete answer within {timeout_s:.3g} s") from None
    except NoAnswer as exc:
        raise JudgeUnreachable(
            f"judge {endpoint}: no connection ({exc}). Check TEACHER_BASE_URL and that the server runs"
        ) from None
    if response.status // 100 != 2:
        raise _fault(endpoint, response)
    return _read_reply(endpoint, response)


def _fault(endpoint: JudgeEndpoint, response: Response) -> JudgeFault:
    status, detail = response.status, response.text
    excerpt = _excerpt(response)
    text = f"judge {endpoint}: HTTP {status}"
    wait_s = retry_after_s(response.header("Retry-After"))
    if status == 429 or (wait_s and status >= 500):
        message = f"{text}, asks to wait {wait_s:g} s" if wait_s else text
        return JudgeBusy(f"{message}. Server: {excerpt}", wait_s)
    if status in RETRYABLE_STATUS or status >= 500:
        return JudgeUnreachable(f"{text}. Server: {excerpt}")
    if status in REMEDIES:
        return JudgeRejected(f"{text}: {REMEDIES[status]}. Server: {excerpt}")
    if 300 <= status < 400:
        target = response.header("Location").partition("?")[0] or "an address that it does not name"
        return JudgeRejected(f"{text}: redirected to {target}; set TEACHER_BASE_URL to the final address")
    return JudgeBadRequest(f"{text}: the server refuses this request. Server: {excerpt}", detail)


def _excerpt(response: Response) -> str:
    return " ".join(response.text.split())[:EXCERPT_CHARS]


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
        data = response.tree()
        if data.get("error"):
            raise JudgeNoCompletion(f"judge {endpoint}: an error with HTTP {response.status}: {_excerpt(response)}")
        choice = data["choices"][0]
        why_none = _why_none(choice)
        text = "" if why_none else _text(choice["message"].get("content"))
        reply = ChatReply(text=text, usage=_usage(data.get("usage")), model=str(data.get("model") or endpoint.model))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise JudgeNoCompletion(
            f"judge {endpoint}: HTTP {response.status}, but the body is no chat completion: {_excerpt(response)!r}"
            ". Check that TEACHER_BASE_URL is an OpenAI-compatible API and not a web page"
        ) from None
    if not reply.text.strip():
        fault = JudgeUnparsable(f"judge {endpoint}: {why_none or 'empty answer'}")
        fault.usage = reply.usage
        raise fault
    return reply


def _why_none(choice: Any) -> str:
    """Why what the model said is not its answer, or ""."""
    message = choice["message"]
    ended = str(choice.get("finish_reason") or "")
    if error := choice.get("error"):
        return f"an error in place of an answer: {error!r:.200}"
    if other := next((name for name in OTHER_REPLIES if message.get(name)), ""):
        return f"a {other} in place of an answer: {message[other]!r:.200}"
    if ended.lower() == "length":
        return f"the answer was cut (finish_reason length): {str(message.get('content'))[:120]!r}"
    return "" if ended.lower() in ENDED else f"the answer did not end by itself (finish_reason {ended[:80]!r})"


def _text(content: Any) -> str:
    """What the model said: a text, or a list of parts, which are text or thoughts. Raises ValueError for others."""
    if not isinstance(content, list):
        return content or ""
    if unknown := {part["type"] for part in content} - {"text", *THOUGHTS}:
        raise ValueError(unknown)
    return "".join(part["text"] for part in content if part["type"] == "text")


def _usage(reported: Any) -> Usage:
    """The counts of tokens; none where one of them is no count."""
    try:
        counts = {name: reported[name] or 0 for name in ("prompt_tokens", "completion_tokens")}
        return Usage.model_validate(counts, strict=True)
    except (ValueError, TypeError, KeyError):
        return Usage()
