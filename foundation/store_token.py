"""The token that store, gateway and runners of a run share: AGL_STORE_TOKEN of the environment, and nowhere else.

With it set, a guarded server answers 401 to each request without it; without it all are let in, so that such a server
listens on this machine alone (`check_host`). It is compared in constant time, and is in no text of this module.
"""

from __future__ import annotations

import hmac
import os

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from foundation.errors import UserError
from foundation.net import is_own_host

VARIABLE = "AGL_STORE_TOKEN"
REFUSAL = f"this server asks for a token: set {VARIABLE} to the same value here and where it was started"


def token() -> str:
    """The token of this process, or ""."""
    return os.environ.get(VARIABLE, "").strip()


def token_headers() -> dict[str, str]:
    """What a request carries."""
    return {"Authorization": f"Bearer {token()}"} if token() else {}


def check_host(host: str, setting: str) -> None:
    """Raises UserError for an interface beyond this machine's own without a token."""
    if not token() and not is_own_host(host.strip("[]")):
        raise UserError(
            f"{setting} {host}: it would let in whoever reaches this machine. Set {VARIABLE} to a secret of your own "
            "(python -c 'import secrets; print(secrets.token_urlsafe())'), here and where the runners start, or keep "
            "127.0.0.1"
        )


class Guarded:
    """An ASGI application behind the token that this process has when it is made."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._wanted = app, token_headers().get("Authorization", "").encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or not self._wanted or self._has_token(scope):
            await self._app(scope, receive, send)
        else:
            await JSONResponse({"detail": REFUSAL}, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)

    def _has_token(self, scope: Scope) -> bool:
        header = b"".join(value for name, value in scope.get("headers", []) if name == b"authorization")
        return hmac.compare_digest(header, self._wanted)
