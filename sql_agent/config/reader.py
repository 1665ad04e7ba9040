"""Section `agent.reader`: a second model that reads long tool results."""

from __future__ import annotations

from pydantic import Field

from sql_agent.config.node import Node


class ReaderConfig(Node):
    """A second model that says what in a long tool result matters for the question. READER_ENDPOINTS names it."""

    min_chars: int = Field(default=0, ge=0, description="tool results with more characters are read first; 0: none")
    max_chars: int = Field(default=60_000, ge=1000, description="most characters of a result that the reader sees")
    max_tokens: int = Field(default=512, ge=16, description="longest answer of the reader")
    timeout_s: float = Field(default=60.0, gt=0, description="longest wait for one answer of it")
    attempts: int = Field(default=2, ge=1, description="tries per address")
