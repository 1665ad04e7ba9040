"""How spans that the store refuses are told from those beside them."""

from __future__ import annotations

from collections.abc import Sequence

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from agl_plugin.proxy.span_writer import CallSpan, Refused, SpanWriter
from agl_plugin.store.client import StoreClient

N = 256


class Picky(SpanWriter):
    """Before a store that refuses every request with a span of `unknown`."""

    unknown: frozenset[str] = frozenset()

    async def _post(self, spans: Sequence[CallSpan]) -> None:
        self.sent = [*getattr(self, "sent", []), [span.rollout_id for span in spans]]
        if self.unknown & {span.rollout_id for span in spans}:
            raise Refused("unknown")


@pytest.mark.parametrize("n_refused", [0, 1, 3])
async def test_a_refused_span_does_not_take_its_batch_apart(n_refused: int) -> None:
    counts = Counter("spans", "", ["outcome"], registry=CollectorRegistry())
    async with aiohttp.ClientSession() as http:
        writer = Picky(StoreClient("http://127.0.0.1:1"), http, counts=counts)
        writer.unknown = frozenset(f"ro-{n * 80}" for n in range(n_refused))
        await writer._send([CallSpan(f"ro-{n}", "at", n, n, {}) for n in range(N)])
    assert len(writer.sent) <= 1 + n_refused * 16  # log2(256) halvings of two requests each
    assert counts.labels("stored")._value.get() == N - n_refused
    assert counts.labels("refused")._value.get() == n_refused
