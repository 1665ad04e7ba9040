"""agent-lightning's launcher, with this project's connections (foundation/http_connection.py) and without WebSockets.

Not covered: several workers, which gunicorn starts.
"""

from __future__ import annotations

import uvicorn
from agentlightning.utils.server_launcher import PythonServerLauncher

from foundation.http_connection import Connection
from foundation.store_token import token


class Launcher(PythonServerLauncher):
    """Launches an ASGI application in each of upstream's modes."""

    @property
    def health_url(self) -> str | None:
        """None where requests need a token: the launcher's own look would come without it."""
        return None if token() else super().health_url

    def _create_uvicorn_server(self) -> uvicorn.Server:
        server = super()._create_uvicorn_server()
        server.config.http, server.config.ws = Connection, "none"
        return server
