"""agent-lightning's store server, with the token and with requests that can be sent again.

A body that could be stored and never be sent (a lone surrogate, 200 levels) is refused with 400, so that no reader of
the store meets it; so is what the store refuses, in a few words: a traceback of it is neither sent nor logged.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from copy import copy
from typing import Any

from agentlightning.store.base import LightningStore
from agentlightning.store.client_server import LightningStoreServer
from agentlightning.utils.server_launcher import LaunchMode, PythonServerLauncherArgs
from fastapi.exceptions import RequestValidationError, ResponseValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from agl_plugin.patches.launcher import Launcher
from agl_plugin.store.client import StoreClient
from agl_plugin.store.request_key import Keyed
from foundation.store_token import Guarded, check_host, token

MOST_CHARS = 300  # of an error's text


class Sendable:
    """An ASGI application that gets no JSON which could not be sent again."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        if scope["type"] != "http" or not scope["path"].startswith("/v1/agl/"):
            return await self._app(scope, receive, send)
        with suppress(ClientDisconnect):
            body = await Request(scope, receive).body()
            sent = iter([{"type": "http.request", "body": body}])
            try:
                from_json(body or b"null")
            except ValueError as exc:
                return await refusal(400, f"the body is no JSON that can be stored: {exc}")(scope, receive, send)

            async def replay() -> Any:
                return next(sent, None) or await receive()

            await self._app(scope, replay, send)


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
    """Serves `store`; in another process it is a client of the server. Raises UserError where it would be open to all.

    With a token it has no health look of its own, which would come without.
    """

    def __init__(self, store: LightningStore, *, host: str, port: int, launch_mode: LaunchMode = "thread") -> None:
        check_host(host, "the store on")
        place = PythonServerLauncherArgs(
            host=host, port=port, launch_mode=launch_mode, healthcheck_url=None if token() else "/v1/agl/health"
        )
        super().__init__(store, launcher_args=place)
        assert self.app is not None
        self.server_launcher = Launcher(self.app, place)
        self.app.add_exception_handler(RequestValidationError, of_no_form)
        for kind in (ValueError, ResponseValidationError):  # the latter: there is no such rollout
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
