"""Section `store`: where rollouts and spans live."""

from __future__ import annotations

from pydantic import Field

from sql_agent.config.node import Node


class StoreConfig(Node):
    """Where rollouts and spans live."""

    external_address: str = Field(
        default="",
        description="http://host:port of a running `python -m agl_plugin.store` or `agl store`; empty: managed",
    )
    mongo_uri: str = Field(default="", description="MongoDB of a managed store; empty: rollouts.db of the run folder")
    patience_s: float = Field(
        default=60.0, ge=0, description="how long requests wait for a store that is away, and may be started again"
    )
    keep_spans: int = Field(
        default=4,
        ge=0,
        description="the store deletes spans of ended rollouts this many steps and validations after theirs; 0: never",
    )
    port: int = Field(default=4747, ge=1, le=65535, description="port of the managed store")
    proxy_host: str = Field(
        default="127.0.0.1",
        description="interface of the LLM proxy; another one, for runners elsewhere, needs AGL_STORE_TOKEN",
    )
    proxy_port: int = Field(default=0, ge=0, le=65535, description="port of the LLM proxy; 0: a free one")
