"""The server's Prometheus metrics, in a registry of their own (several apps can live in one process).

Paths are labels only where they are routes; all others count as `other`, so that a scanner cannot blow up the series.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """All metrics; `queued` is asked when they are read."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        prefix, registry = "reward_api", self.registry
        self.requests = Counter(f"{prefix}_requests", "answered requests", ["path", "status"], registry=registry)
        self.request_seconds = Histogram(
            f"{prefix}_request_seconds", "from head to answer", ["path"], buckets=SECONDS, registry=registry
        )
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

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)
