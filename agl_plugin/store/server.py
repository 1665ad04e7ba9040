"""agent-lightning's store server, with the token and with requests that can be sent again.

A body that could be stored and never be sent (a lone surrogate, 200 levels) is refused with 400, so that no reader of
the store meets it; so is what the store refuses, in a few words: a traceback of it is neither sent nor logged. A body
has at most MOST_BODY_BYTES, unpacked too, and BODY_S to come.
"""

from __future__ import annotations

import json
import os
import zlib
from copy import copy
from typing import Any

from agentlightning.store.base import LightningStore
from agentlightning.store.client_server import LightningStoreServer
from agentlightning.utils.server_launcher import LaunchMode
from fastapi.exceptions import RequestValidationError, ResponseValidationError
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response

from agl_plugin.launcher import Launcher
from agl_plugin.store.client import StoreClient
from agl_plugin.store.request_key import Keyed
from foundation.http_body import BodyRefused, body_of, too_large
from foundation.store_token import Guarded, check_host

MOST_CHARS = 300  # of an error's text
MOST_BODY_BYTES = 128 * 2**20  # four of the gateway's longest requests, as a span holds them
BODY_S = 60.0
GZIP = (b"content-encoding", b"gzip")


class Sendable:
    """An ASGI application that gets whole bodies, unpacked, of a bounded size, and no JSON that could not be sent
    again."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        try:
            if (body := await body_of(receive, most_bytes=MOST_BODY_BYTES, within_s=BODY_S)) is None:
                return None
            if scope["path"].startswith("/v1/agl/"):
                from_json(body or b"null")
            elif GZIP in scope["headers"]:
                body = unpacked(body)
                scope = {**scope, "headers": [header for header in scope["headers"] if header != GZIP]}
        except BodyRefused as no:
            return await refusal(no.code, str(no))(scope, receive, send)
        except ValueError as exc:
            return await refusal(400, f"the body is no JSON that can be stored: {exc}")(scope, receive, send)
        except zlib.error as exc:
            return await refusal(400, f"the body is not packed as gzip packs, as its head says: {exc}")(
                scope, receive, send
            )
        sent = iter([{"type": "http.request", "body": body}])

        async def replay() -> Any:
            return next(sent, None) or await receive()

        await self._app(scope, replay, send)


def unpacked(body: bytes) -> bytes:
    """What gzip packed, as long as a body may be. Raises BodyRefused, and zlib.error."""
    reader = zlib.decompressobj(wbits=31)
    whole = reader.decompress(body, MOST_BODY_BYTES + 1)
    if len(whole) > MOST_BODY_BYTES:
        raise too_large(len(whole), MOST_BODY_BYTES, more=True)
    if not reader.eof or reader.unused_data:
        raise zlib.error("it has no end, or goes on after it")
    return whole


def refusal(status: int, detail: object) -> Response:
    """An answer in ASCII, whatever the detail holds."""
    return Response(json.dumps({"detail": detail}), status, media_type="application/json")


async def of_no_form(_: Request, exc: Any) -> Response:
    """Places and rules; values are the client's, and may be longer than anything else."""
    return refusal(422, [{key: error[key] for key in ("type", "loc", "msg")} for error in exc.errors()[:5]])


async def refused(_: Request, exc: Exception) -> Response:
    """What the store says of a request that it cannot do."""
    return refusal(400, f"{type(exc).__name__}: {exc}"[:MOST_CHARS])


class StoreServer(LightningStoreServer):
    """Serves `store`; in another process a client of the server. Raises UserError where it would be open to all."""

    def __init__(self, store: LightningStore, *, host: str, port: int, launch_mode: LaunchMode = "thread") -> None:
        check_host(host, "the store on")
        super().__init__(store, host=host, port=port, launch_mode=launch_mode)
        assert self.app is not None
        self.server_launcher = Launcher(self.app, self.launcher_args)
        self.app.add_exception_handler(RequestValidationError, of_no_form)
        # The second: a number that no column holds; the third: there is no such rollout.
        for kind in (ValueError, OverflowError, ResponseValidationError):
            self.app.add_exception_handler(kind, refused)
        self.app.add_middleware(Sendable)
        self.app.add_middleware(Keyed)
        self.app.add_middleware(Guarded)

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs to be a client: the address. FastAPI's app holds locks and stays here."""
        state = super().__getstate__()
        state["server_launcher"] = launcher = copy(state["server_launcher"])
        launcher.app = None
        return state

    async def _call_store_method(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        if os.getpid() != self._owner_pid and self._client is None:
            self._client = StoreClient(self.endpoint)
        return await super()._call_store_method(method_name, *args, **kwargs)
