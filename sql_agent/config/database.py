"""Section `database`: what the SQL tool reads, and the limits of one query."""

from __future__ import annotations

from pydantic import Field

from sql_agent.config.node import Node


class DatabaseConfig(Node):
    """The database the tool reads, and the limits of one query."""

    path: str = Field(
        default="sql_agent/data/medical.db", description="SQLite file; relative paths start at the project root"
    )
    tables: list[str] = Field(default=["drugs_info", "disease"], description="tables the model may read")
    timeout_s: float = Field(default=2.0, gt=0, description="longest run of one query")
    max_rows: int = Field(default=50, ge=1, description="rows kept of one result")
    max_chars: int = Field(default=1000, ge=100, description="characters of JSON shown to the model per call")
    max_memory_mib: int = Field(default=64, ge=16, description="memory one query may use (growth of its process)")
