"""The table that processes which judge together share."""

from __future__ import annotations

from pathlib import Path

import pytest

from reward_client import ledger
from reward_client.ledger import Ledger


def test_a_table_that_grew_too_large_loses_the_older_half_of_its_verdicts_and_no_money(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Ledger(tmp_path / "judge")
    with kept.change("spent:run") as spent:
        spent["calls"] = 7
    for n in range(200):
        kept.put(f"value:{n}", "x" * 40_000)
    monkeypatch.setattr(ledger, "MAX_BYTES", 2**20)
    ledger._open.cache_clear()  # another process opens it
    left = [n for n in range(200) if kept.get(f"value:{n}") is not None]
    assert kept.get("spent:run") == {"calls": 7}
    assert left == list(range(100, 200))
    assert (tmp_path / "judge" / ledger.FILE).stat().st_size < 6 * 2**20
