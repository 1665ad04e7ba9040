"""The store's server in another process: Ray hands it to the trainer, which is a client of it there."""

from __future__ import annotations

import cloudpickle
from agentlightning.store.memory import InMemoryLightningStore

from agl_plugin.store.server import StoreServer
from foundation.net import free_port


def test_a_server_can_be_handed_to_another_process() -> None:
    server = StoreServer(InMemoryLightningStore(), host="127.0.0.1", port=free_port())
    copied = cloudpickle.loads(cloudpickle.dumps(server))
    assert copied.endpoint == server.endpoint
    assert server.server_launcher.app is not None  # the server itself keeps what it serves
