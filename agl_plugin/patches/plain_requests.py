"""Chat requests without the OpenAI client's walk over its types.

The client compares each part of a request with its declared types, to rename fields and encode files; for messages
that are plain JSON it gives back what it got, and takes a seventh of the CPU of the proxy and the runner.
`plain` leaves only what has an effect: parameters that were not given are not sent. What is no JSON still
fails, as the body is encoded.
"""

from __future__ import annotations

from typing import Any

from openai import NotGiven, Omit


async def plain(data: dict[str, Any], _expected_type: object) -> dict[str, Any]:
    """The parameters that were given."""
    return {name: value for name, value in data.items() if not isinstance(value, (NotGiven, Omit))}
