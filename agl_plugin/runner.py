"""agent-lightning's runner, which ends when the process that started it is gone.

A runner is a forked child; without this, one whose parent was killed would poll the store for ever.
"""

from __future__ import annotations

import os
from typing import Any

from agentlightning import LitAgentRunner
from agentlightning.execution.events import ExecutionEvent
from agentlightning.store.base import LightningStore


class GuardedRunner(LitAgentRunner[Any]):
    """Takes rollouts from the store one after the other, as long as its parent lives."""

    _parent_pid = 0

    def init_worker(self, worker_id: int, store: LightningStore, **kwargs: Any) -> None:
        """Remember the parent, then start as usual."""
        self._parent_pid = os.getppid()
        super().init_worker(worker_id, store, **kwargs)

    async def _sleep_until_next_poll(self, event: ExecutionEvent | None = None) -> None:
        if os.getppid() != self._parent_pid:
            raise SystemExit("the process that started this runner is gone")
        await super()._sleep_until_next_poll(event)
