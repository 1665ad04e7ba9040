"""Everything that an address can do instead of answering."""

from __future__ import annotations

import gzip
from typing import Any

from sql_agent.testing.server import HANG, RESET, Answer, Reply, error_reply


def broken_addresses(usable: dict[str, Any]) -> dict[str, Answer]:
    """By what goes wrong; `usable` is what the address would say."""
    page, packed = "<!doctype html><title>Sign in</title>", {"Content-Encoding": "gzip"}
    return {
        "hangs": HANG,
        "slow body": Reply(body=usable, chunk_pause_s=1.0),
        "reset": RESET,
        "no HTTP": Reply(raw=b"SSH-2.0-OpenSSH_9.2\r\n"),
        "nothing": Reply(raw=b" "),
        "web page": Reply(body=page, content_type="text/html"),
        "web page that says JSON": Reply(body=page),
        "gateway page": Reply(status=502, body=page, content_type="text/html"),
        "empty body": Reply(body=""),
        "error as a 200": Reply(body={"error": {"message": "overloaded", "code": 503}}),
        "cut body": Reply(body=usable, missing_bytes=10),
        "bomb": Reply(body=gzip.compress(b" " * (1 << 24)), headers=packed),
        "no gzip": Reply(body=usable, headers=packed),
        "long body": Reply(body="x" * 3_000_000),
        "no UTF-8": Reply(body=b'{"score": "\xff\xfe"}'),
        "deep JSON": Reply(body="[" * 100_000),
        "other JSON": Reply(body="[1, null]"),
        "500": error_reply(500, "boom"),
    }
