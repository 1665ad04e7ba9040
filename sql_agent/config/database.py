"""Section `database`: what the SQL tool reads, and the limits of one query."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from sql_agent.config.node import Node


class DatabaseConfig(Node):
    """The database the tool reads, and the limits of one query."""

    path: str = Field(
        default="sql_agent/data/medical.db", description="SQLite file; relative paths start at the project root"
    )
    folder: str = Field(
        default="",
        description="instead of path, a folder with a database for each question, ID/ID.sqlite as in Spider and BIRD; "
        "the column db_id of a question names its database",
    )
    tables: list[str] = Field(
        default=["drugs_info", "disease"], description="tables the model may read; none: all; of a folder always all"
    )
    timeout_s: float = Field(default=2.0, gt=0, description="longest run of one query")
    max_rows: int = Field(default=50, ge=1, description="rows kept of one result")
    max_chars: int = Field(default=1000, ge=100, description="characters of JSON shown to the model per call")
    max_memory_mib: int = Field(default=64, ge=16, description="memory one query may use (growth of its process)")

    @model_validator(mode="before")
    @classmethod
    def _all_tables_of_a_folder(cls, tree: Any) -> Any:
        if not isinstance(tree, dict) or not tree.get("folder"):
            return tree
        for key in ("path", "tables"):
            default = cls.model_fields[key].default
            if tree.get(key, default) not in (default, []):
                raise ValueError(
                    f"database.{key} = {tree[key]!r} is of one database, and database.folder = {tree['folder']!r} has "
                    "a database for each question, whose tables may all be read: leave one of the two out"
                )
        return {**tree, "tables": []}
