"""The small servers on 127.0.0.1 that an episode's calls go to: what holds for each, with aiohttp; answers as streams.

Guarantees: a path, a method or a size that is refused is told in the form of OpenAI's errors; a body counts as it came,
packed ones too, which are no JSON then; what is no HTTP leaves no traceback in the log.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

logger = logging.getLogger(__name__)
logger.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
MAX_BODY_BYTES = 32 << 20


def application() -> web.Application:
    """One without routes."""
    return web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_in_json])


async def listening(app: web.Application, **options: Any) -> tuple[web.AppRunner, int]:
    """What ends it, and its port."""
    runner = web.AppRunner(app, access_log=None, logger=logger, auto_decompress=False, **options)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, runner.addresses[0][1]


def refusal(status: int, text: str) -> web.Response:
    """An error as OpenAI words it."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return web.json_response({"error": {"message": text, "type": kind, "code": str(status)}}, status=status)


@web.middleware
async def _in_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as no:
        return refusal(no.status, no.text or no.reason)


def as_stream(answer: dict[str, Any], *, usage: bool) -> bytes:
    """A whole answer in the form of a stream; its usage too where it was asked for."""
    head = {name: answer.get(name) for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    events: list[dict[str, Any]] = []
    for choice in answer["choices"]:
        delta = {k: v for k, v in (choice.pop("message", None) or {}).items() if v is not None}
        if calls := delta.get("tool_calls"):
            delta["tool_calls"] = [{**call, "index": n} for n, call in enumerate(calls)]
        reason = choice.pop("finish_reason", None)
        events.append({**head, "choices": [{**choice, "delta": delta, "finish_reason": None}]})
        events.append({**head, "choices": [{"index": choice["index"], "delta": {}, "finish_reason": reason}]})
    if usage:
        events.append({**head, "choices": [], "usage": answer.get("usage")})
    return b"".join(map(as_event, events)) + b"data: [DONE]\n\n"


def as_event(event: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()
