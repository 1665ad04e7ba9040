"""What every HTTP server counts of its requests for Prometheus, in a registry of its own.

Paths are labels only where they are routes; all others count as `other`, so that a scanner cannot blow up the series.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class RequestMetrics:
    """What every server counts of its requests."""

    def __init__(self, prefix: str) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(f"{prefix}_requests", "answered requests", ["path", "status"], registry=registry)
        self.request_seconds = Histogram(
            f"{prefix}_request_seconds", "from head to answer", ["path"], buckets=SECONDS, registry=registry
        )

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)
