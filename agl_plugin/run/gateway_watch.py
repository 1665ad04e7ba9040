"""A gateway whose process is killed in the middle of a step: it is started again, and what was lost with it is played
again.

Guarantees: the new gateway listens at the address of the old one; whoever asks while it starts waits for the same
start; a rollout that was open when a gateway died and ends without a score runs again, once for each death, under its
own id, seed and question, also where its end is known before the gateway's; after MOST_DEATHS in one step the run ends
with what killed it, since a gateway that is killed again and again is no accident. Does not cover LiteLLM's proxy,
whose process is not watched.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any

from foundation.errors import RunError

logger = logging.getLogger(__name__)

MOST_DEATHS = 5
DYING_S = 0.25  # a process that is killed closes its connections before its end can be seen, by some 10 ms under load


class GatewayWatch:
    """What became of `proxy`, the LLM proxy, in the step under way."""

    def __init__(self, proxy: Any) -> None:
        self._proxy, self._starting = proxy, asyncio.Lock()
        self._exposed = set[str]()  # rollouts that were open when a gateway died, and were not played again since
        self.deaths = self.requeued = 0

    @property
    def counts(self) -> dict[str, float]:
        """Of the step, where there is anything to tell: deaths, and rollouts that were played again, each time."""
        return {"gateway_deaths": self.deaths, "requeued": self.requeued} if self.deaths else {}

    @property
    def warnings(self) -> list[str]:
        if not self.deaths:
            return []
        return [f"the LLM proxy died {self.deaths} x and was started again; rollouts that lost calls played again"]

    def begin(self, open_rollouts: Iterable[str] = ()) -> None:
        """A step begins, in which rollouts of earlier ones may play on."""
        self._exposed.intersection_update(open_rollouts)
        self.deaths = self.requeued = 0

    async def look(self, open_rollouts: Iterable[str], *, may_be_dying: bool = False) -> None:
        """Start the gateway again where its process has ended, or `may_be_dying` and then does. Raises RunError when it
        does so too often."""
        if not hasattr(self._proxy, "exit_code"):
            return
        deaths = self.deaths
        deadline = time.monotonic() + DYING_S
        while may_be_dying and self.deaths == deaths and self._proxy.exit_code is None and time.monotonic() < deadline:
            await asyncio.sleep(DYING_S / 10)
        async with self._starting:
            code = self._proxy.exit_code
            if code is None:
                return
            self.deaths += 1
            self._exposed.update(open_rollouts)
            how = f"its process ended with exit code {code}"
            if self.deaths > MOST_DEATHS:
                raise RunError(
                    f"the LLM proxy died {self.deaths} times in one step ({how}): is the machine short of memory "
                    "(-9: killed)? Then lower rollout.runner_concurrency, and continue with --resume"
                )
            await self._proxy.restart()
            logger.warning("the LLM proxy died (%s) and was started again", how)

    def plays_again(self, rollout_id: str) -> bool:
        """Whether a rollout that ended without a score may have lost a call with a gateway. Counts it."""
        if rollout_id not in self._exposed:
            return False
        self._exposed.remove(rollout_id)
        self.requeued += 1
        return True
