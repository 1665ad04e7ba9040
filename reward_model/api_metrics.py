"""The reward server's Prometheus metrics: those of requests, and those of the model's batches."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter, Gauge, Histogram

from foundation.request_metrics import SECONDS, RequestMetrics

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics(RequestMetrics):
    """All metrics of the reward server; `queued` is asked when they are read."""

    def __init__(self) -> None:
        prefix = "reward_api"
        super().__init__(prefix)
        registry = self.registry
        self.items = Counter(f"{prefix}_items", "scored responses", registry=registry)
        self.truncated = Counter(f"{prefix}_truncated_items", "responses that were cut", registry=registry)
        self.refused = Counter(f"{prefix}_overloads", "requests refused because the queue was full", registry=registry)
        self.batch_items = Histogram(
            f"{prefix}_batch_items", "items per forward pass", buckets=SIZES, registry=registry
        )
        self.batch_seconds = Histogram(
            f"{prefix}_batch_seconds", "seconds per forward pass", buckets=SECONDS, registry=registry
        )
        self._queued = Gauge(f"{prefix}_queued_items", "items that wait for the model", registry=registry)

    def watch_queue(self, n_queued: Callable[[], int]) -> None:
        """Read the queue's length from this function."""
        self._queued.set_function(n_queued)

    def on_batch(self, size: int, seconds: float) -> None:
        """Count one forward pass."""
        self.items.inc(size)
        self.batch_items.observe(size)
        self.batch_seconds.observe(seconds)
