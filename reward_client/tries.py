"""When to ask again, and whom: the one rule for the judge's endpoints (chain.py) and for the reward model's API.

Guarantees: at most `attempts` failed tries per endpoint, all within `timeout_s`; after one the next endpoint is asked
at once, and one that refuses is not asked again. A server that is busy is no failed try as long as what it asks for
fits, and without a time of its own it gets a growing random pause, at the same endpoint BUSY_TRIES times where there is
another.
"""

from __future__ import annotations

import random
import time

from reward_client.client import JudgeBusy
from reward_client.errors import JudgeFault, JudgeRejected

FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 8.0  # at most, doubled with each try
BUSY_TRIES = 2  # at an endpoint that names no time, before the next endpoint is asked


class Tries[E]:
    """One question's: the endpoints left, the first of them next, and the time left (seconds)."""

    def __init__(self, endpoints: list[E], *, timeout_s: float, attempts: int) -> None:
        self.left, self.ends_s = endpoints, time.monotonic() + timeout_s
        self._tries_left = attempts * len(endpoints)
        # What one try may take: a server that hangs leaves time for a second try, or for the other endpoints.
        self._share_s = timeout_s / (1 if self._tries_left == 1 else max(2, len(endpoints)))
        self._n_tries = self._n_busy = 0

    @property
    def left_s(self) -> float:
        """Seconds until the whole question must be answered."""
        return max(0.0, self.ends_s - time.monotonic())

    @property
    def try_s(self) -> float:
        """Seconds that the next try may take."""
        return max(0.001, min(self._share_s, self.left_s))

    def pause_s(self, fault: JudgeFault) -> float | None:
        """Seconds until the next try, of the first of `left`; None where nobody is left, or no try."""
        jitter_s = random.uniform(0, min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._n_tries, 10)))
        self._n_tries += 1
        here, *others = self.left
        if isinstance(fault, JudgeRejected):
            self.left = others
            return 0.0 if others else None
        is_busy = isinstance(fault, JudgeBusy)
        asked_s = getattr(fault, "retry_after_s", 0.0)
        if asked_s and (pause_s := asked_s + jitter_s / 10) < self.left_s:
            return pause_s
        if is_busy and not asked_s:
            self._n_busy += 1
            self.left = self.left if self._n_busy % BUSY_TRIES else [*others, here]
            return jitter_s
        self._tries_left -= 1
        self.left = [*others, here]
        if self._tries_left == 0 or (is_busy and not others):
            return None
        return 0.0 if others else jitter_s
