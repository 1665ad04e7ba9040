"""The OpenAI-compatible endpoint that a person names: checked before it is asked, and explained when it fails.

Guarantees: an error states value, rule and remedy, and never shows the key. Covers http and https without client
certificates; the endpoint of training comes from the LLM proxy and does not pass here.
"""

from __future__ import annotations

from dataclasses import dataclass

import httpx
import httpx2
import openai
from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails

from foundation.errors import UserError
from foundation.net import is_loopback
from foundation.redaction import keep_secret, redacted
from reward_client.schema import JudgeEndpoint
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.errors import Fault, LLMFault

LIST_TIMEOUT_S = 10.0
SHOWN_MODELS = 8
NO_ANSWER = "{} {}: no usable answer. It must be an OpenAI-compatible API, and mostly ends in /v1"


@dataclass(frozen=True)
class Words:
    """How a command line names the parts of an endpoint; messages use these words."""

    base_url: str = "--base-url"
    api_key: str = "--api-key"
    model: str = "--model"
    give_key: str = "with --api-key or OPENAI_API_KEY"
    give_model: str = "with --model or OPENAI_MODEL"


FLAGS = Words()


def checked_endpoint(
    base_url: str, *, model: str, api_key: str, temperature: float, max_tokens: int | None, words: Words = FLAGS
) -> LLMEndpoint:
    """An endpoint in normal form. Without a model the only one that the endpoint offers is taken.

    Raises UserError for a malformed address or key, and when the model to take is not clear.
    """
    try:
        # The judge's endpoint has the same rules.
        checked = JudgeEndpoint(base_url=base_url, api_key=SecretStr(api_key or "EMPTY"), model=model or "?")
    except ValidationError as exc:
        raise UserError("; ".join(_explain_field(error, base_url, words) for error in exc.errors())) from None
    if not model:
        model = _only_model(checked.base_url, api_key, words)
    return LLMEndpoint(
        base_url=checked.base_url,
        model=model,
        api_key=checked.api_key.get_secret_value(),
        temperature=temperature,
        max_tokens=max_tokens,
    )


def _explain_field(error: ErrorDetails, base_url: str, words: Words) -> str:
    field = str(error["loc"][0])
    # An address with a password in it is refused, and must not be repeated.
    shown = f" {base_url!r}" if field == "base_url" and "@" not in base_url else ""
    return f"{getattr(words, field)}{shown}: {error['msg'].removeprefix('Value error, ')}"


def _only_model(base_url: str, api_key: str, words: Words) -> str:
    names = offered_models(base_url, api_key, words=words)
    if len(names) == 1:
        return names[0]
    offered = f"the endpoint offers {_listed(names)}" if names else "the endpoint names none"
    raise UserError(f"{words.model} is not given, and {offered}. Choose one {words.give_model}")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN_MODELS} more" if len(names) > SHOWN_MODELS else ""
    return ", ".join(names[:SHOWN_MODELS]) + more


def check_reachable(llm: LLMEndpoint, *, words: Words = FLAGS) -> None:
    """Raise UserError when nothing answers at the address, or it refuses the key. No list of models is needed."""
    try:
        offered_models(llm.base_url, llm.api_key, words=words)
    except UserError as exc:
        answer = getattr(exc.__cause__, "response", None)
        if isinstance(exc.__cause__, httpx.ConnectError) or (answer is not None and answer.status_code in (401, 403)):
            raise


def offered_models(base_url: str, api_key: str, *, words: Words = FLAGS) -> list[str]:
    """The model names of GET /models. Raises UserError when there is no such list to be had."""
    headers = {"Authorization": f"Bearer {api_key or 'EMPTY'}"}
    url = f"{base_url}/models"
    try:
        answer = httpx.get(url, headers=headers, timeout=LIST_TIMEOUT_S, trust_env=not is_loopback(url))
        answer.raise_for_status()
        return [str(model["id"]) for model in answer.json()["data"]]
    except httpx.HTTPStatusError as exc:
        status = exc.response.status_code
        remedy = f"give the right key {words.give_key}" if status in (401, 403) else f"name it {words.give_model}"
        raise UserError(
            f"{words.base_url} {base_url}: its list of models cannot be read (status {status}); {remedy}"
        ) from exc
    except httpx.HTTPError as exc:
        raise UserError(f"{words.base_url} {base_url}: {_unreached(exc)}") from exc
    except (ValueError, KeyError, TypeError) as exc:
        raise UserError(
            f"{words.base_url} {base_url}: it answers, but not as an OpenAI-compatible API does. Such an address "
            "mostly ends in /v1"
        ) from exc


def is_final(fault: Fault) -> bool:
    """True when the next question would fail in the same way: wrong key, model or address, or nobody listens."""
    cause = fault.__cause__ if isinstance(fault, LLMFault) else None
    if isinstance(cause, openai.AuthenticationError | openai.PermissionDeniedError | openai.NotFoundError):
        return True
    return isinstance(cause, openai.APIConnectionError) and isinstance(cause.__cause__, httpx2.ConnectError)


def explain_fault(fault: LLMFault, llm: LLMEndpoint, *, timeout_s: float, words: Words = FLAGS) -> str:
    """What failed, by which rule, and what helps; with the server's own words, without the key."""
    cause = fault.__cause__
    server_words = server_message(cause) or str(fault)
    text = _rule(cause, llm, timeout_s=timeout_s, words=words) or NO_ANSWER.format(words.base_url, llm.base_url)
    text += f"\nit said: {server_words[:500]}" if server_words else ""
    keep_secret(llm.api_key)
    return redacted(text)


def _rule(cause: BaseException | None, llm: LLMEndpoint, *, timeout_s: float, words: Words) -> str:
    address = f"{words.base_url} {llm.base_url}"
    match cause:
        case openai.AuthenticationError() | openai.PermissionDeniedError():
            refused = f"the endpoint refuses the key (status {cause.status_code})"
            return f"{address}: {refused}. Give the right one {words.give_key}"
        case openai.NotFoundError():
            return f"{words.model} {llm.model}: {llm.base_url} does not know it (status 404). {_known_models(llm)}"
        case openai.APITimeoutError():
            return (
                f"{address}: no answer within agent.llm_timeout_s = {timeout_s:g} s. Try again, or "
                f"--set agent.llm_timeout_s={2 * timeout_s:g}"
            )
        case openai.APIConnectionError():
            return f"{address}: {_unreached(cause.__cause__ or cause)}"
        case openai.RateLimitError():
            return f"{address}: rate limit (status 429). Wait, or ask fewer questions with --limit"
        case openai.BadRequestError() if "tool" in str(cause):
            return (
                f"{words.model} {llm.model}: the endpoint refuses tool calls (status 400). Start vLLM with "
                "--enable-auto-tool-choice --tool-call-parser hermes, or use a model that calls tools"
            )
        case openai.APIStatusError():
            return f"{address}: the endpoint failed (status {cause.status_code}). Look at its log"
    return ""


def _unreached(exc: BaseException) -> str:
    """Why no answer came at all, and what helps."""
    if "CERTIFICATE" in str(exc):
        return f"its certificate is refused ({exc}). Renew it, or name a file with who signs it in SSL_CERT_FILE"
    if isinstance(exc, httpx.ConnectError | httpx2.ConnectError):
        return "no connection (ConnectError). Start the server, or correct the address"
    return f"no whole answer ({type(exc).__name__}). Look at the server's log"


def _known_models(llm: LLMEndpoint) -> str:
    try:
        names = offered_models(llm.base_url, llm.api_key)
    except UserError:
        return "Correct the name, or the address (it mostly ends in /v1)"
    return f"It offers {_listed(names)}" if names else "It offers no model"


def server_message(cause: BaseException | None) -> str:
    """The message in the body of an error answer, in whatever form it came; "" without a body."""
    body = getattr(cause, "body", None)
    if isinstance(body, dict):
        return str(body.get("message") or body.get("detail") or body)
    return str(body) if body else ""
