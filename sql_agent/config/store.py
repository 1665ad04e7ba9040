"""Section `store`: where rollouts and spans live."""

from __future__ import annotations

from pydantic import Field

from sql_agent.config.node import Node


class StoreConfig(Node):
    """Where rollouts and spans live."""

    external_address: str = Field(
        default="", description="http://host:port of a running `agl store`; empty: managed in memory"
    )
    mongo_uri: str = Field(default="", description="MongoDB of a managed store; empty: memory")
    port: int = Field(default=4747, ge=1, le=65535, description="port of the managed store")
    proxy_host: str = Field(
        default="127.0.0.1",
        description="interface of the LLM proxy (it has no authentication); runners elsewhere need another",
    )
    proxy_port: int = Field(default=0, ge=0, le=65535, description="port of the LLM proxy; 0: a free one")
