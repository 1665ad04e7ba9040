"""agent-lightning's store server, with the token and with requests that can be sent again."""

from __future__ import annotations

import os
from copy import copy
from typing import Any

from agentlightning.store.base import LightningStore
from agentlightning.store.client_server import LightningStoreServer
from agentlightning.utils.server_launcher import LaunchMode, PythonServerLauncherArgs

from agl_plugin.store.client import StoreClient
from agl_plugin.store.request_key import Keyed
from foundation.store_token import Guarded, check_host, token


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
