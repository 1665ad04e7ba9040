"""agent-lightning's store client for a store that is started again, and for one that asks for a token.

Guarantees: while the store is away, a request waits up to `patience_s` and is sent again, with a key by which a store
that lasts does it once; an answer of 4xx is final, 5xx is asked for again as upstream's client does; with
AGL_STORE_TOKEN set, each request carries the token, which is in no pickle and no text.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import aiohttp
from agentlightning.store.client_server import LightningStoreClient
from agentlightning.types import AttemptedRollout

from agl_plugin.store.request_key import HEADER
from foundation.store_token import token_headers

logger = logging.getLogger(__name__)

AWAY = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError, TimeoutError)
PAUSE_S = 0.5


class StoreClient(LightningStoreClient):
    """A client of the store at `address`."""

    def __init__(self, address: str, *, patience_s: float = 10.0) -> None:
        super().__init__(address)
        self._patience_s = patience_s

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_patience_s": self._patience_s}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._patience_s = state["_patience_s"]

    async def _get_session(self) -> aiohttp.ClientSession:
        session = await super()._get_session()
        session.headers.update(token_headers())
        return session

    async def _request_json(
        self,
        method: Literal["get", "post"],
        path: str,
        *,
        json: Any | None = None,
        params: Mapping[str, Any] | Sequence[tuple[str, Any]] | None = None,
    ) -> Any:
        key = {HEADER: secrets.token_hex(16)}
        delays = list(self._retry_delays)
        deadline = time.monotonic() + self._patience_s
        away = False
        while True:
            try:
                session = await self._get_session()
                url = f"{self.server_address}/{path.removeprefix('/')}"
                async with session.request(method, url, json=json, params=params, headers=key) as reply:
                    reply.raise_for_status()
                    return await reply.json()
            except aiohttp.ClientResponseError as exc:
                if not delays or (exc.status < 500 and exc.status != 408):
                    raise
                pause_s = delays.pop(0)
            except AWAY as exc:
                if time.monotonic() > deadline:
                    raise
                if not away:
                    logger.warning("the store does not answer (%s); waiting %.0f s", exc, self._patience_s)
                pause_s, away = PAUSE_S, True
            await asyncio.sleep(pause_s)

    async def _dequeue_batch(self, *, limit: int, worker_id: str | None) -> list[AttemptedRollout]:
        """Nothing, where the store does not answer: upstream's runners ask again for ever."""
        if limit <= 0:
            return []
        wanted = {"limit": limit, "worker_id": worker_id}
        try:
            rollouts = await self._request_json("post", "/queues/rollouts/dequeue", json=wanted)
        except (aiohttp.ClientError, *AWAY) as exc:
            logger.warning("no rollouts could be taken: %s", exc)
            return []
        return [AttemptedRollout.model_validate(rollout) for rollout in rollouts]


@asynccontextmanager
async def store_at(address: str) -> AsyncIterator[StoreClient]:
    """A client of the store at `address`, closed after the block."""
    client = StoreClient(address)
    try:
        yield client
    finally:
        await client.close()
