"""agent-lightning's store server around the store that lasts."""

from __future__ import annotations

from agentlightning.store.client_server import LightningStoreServer
from agentlightning.utils.server_launcher import PythonServerLauncherArgs

from agl_plugin.store.sqlite import SqliteLightningStore


def make_server(store: SqliteLightningStore, *, host: str, port: int) -> LightningStoreServer:
    """A server that serves in the event loop of its caller."""
    place = PythonServerLauncherArgs(host=host, port=port, launch_mode="asyncio")
    return LightningStoreServer(store, launcher_args=place)
