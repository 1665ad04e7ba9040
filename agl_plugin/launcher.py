"""agent-lightning's launcher, with this project's connections (foundation/http_connection.py) and without WebSockets.

Not covered: several workers, which gunicorn starts.
"""

from __future__ import annotations

import uvicorn
from agentlightning.utils.server_launcher import PythonServerLauncher

from foundation.http_connection import Connection


class Launcher(PythonServerLauncher):
    """Launches an ASGI application in each of upstream's modes."""

    def _create_uvicorn_server(self) -> uvicorn.Server:
        server = super()._create_uvicorn_server()
        server.config.http, server.config.ws = Connection, "none"
        return server
