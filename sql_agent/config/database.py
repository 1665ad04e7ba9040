"""Sections `database` and `python`: what the tools of these names may read and import, and the limits of one call."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from pydantic import field_validator, model_validator

from sql_agent.config.node import Node, option

# Schemes of database.url, and what sqlglot calls their SQL.
DIALECTS = {"duckdb": "duckdb", "postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql"}
TITLES = {"sqlite": "SQLite", "duckdb": "DuckDB", "postgres": "PostgreSQL", "mysql": "MySQL"}
# What the tool `python` may import.
MODULES = ["math", "cmath", "itertools", "fractions", "decimal", "statistics", "functools", "collections"]
MODULES += ["operator", "random", "datetime", "bisect", "heapq"]


class DatabaseConfig(Node):
    """The database the tool reads, and the limits of one query."""

    path: str = option("sql_agent/data/medical.db", "SQLite file; relative paths start at the project root")
    folder: str = option("", "instead of path, a folder of ID/ID.sqlite as in Spider; a question's db_id names its own")
    url: str = option("", "instead of path, duckdb:///FILE, postgresql://USER@HOST/NAME ...; DATABASE_PASSWORD is read")
    tables: list[str] = option(
        ["drugs_info", "disease"],
        "tables the model may read; none: all; of a url all unless named; of a folder always all",
    )
    timeout_s: float = option(2.0, "longest run of one query", gt=0)
    max_rows: int = option(50, "rows kept of one result", ge=1)
    max_chars: int = option(1000, "characters of JSON shown to the model per call", ge=100)
    max_memory_mib: int = option(64, "memory one query may use (growth of its process)", ge=16)

    @model_validator(mode="before")
    @classmethod
    def _one_place(cls, tree: Any) -> Any:
        """A folder or a url stands beside no other place. Of a folder all tables are read, of a url unless named."""
        if not isinstance(tree, dict):
            return tree
        fields = cls.model_fields
        named = {key for key in fields.keys() & tree.keys() if tree[key] not in ("", [], fields[key].default)}
        for other, place in (("folder", "url"), ("path", "url"), ("path", "folder"), ("tables", "folder")):
            if {other, place} <= named:
                raise ValueError(
                    f"database.{other} = {tree[other]!r} stands beside database.{place}, which says already what is "
                    "read: leave one of the two out"
                )
        if "folder" in named:
            return {**tree, "tables": []}
        return {"tables": [], **tree} if "url" in named else tree

    @field_validator("url")
    @classmethod
    def _readable_url(cls, url: str) -> str:
        if not url:
            return url
        try:
            parts = urlsplit(url)
            has_password = parts.password is not None or "password" in parts.query or "passwd" in parts.query
        except ValueError as exc:
            raise ValueError(f"database.url is no URL: {exc}") from None
        if has_password:
            raise ValueError("database.url holds a password: leave it out, and set DATABASE_PASSWORD instead")
        if parts.scheme not in DIALECTS:
            known = ", ".join(f"{scheme}://" for scheme in DIALECTS)
            raise ValueError(
                f"database.url: {parts.scheme or 'no scheme'} is none of {known}; database.path names a SQLite file"
            )
        if parts.scheme == "duckdb" and (parts.netloc or len(parts.path) < 2):
            raise ValueError("database.url: duckdb:///FILE, or duckdb:////FILE with the path from the root, is wanted")
        return url

    @property
    def dialect(self) -> str:
        """What sqlglot calls the SQL of this database."""
        return DIALECTS[urlsplit(self.url).scheme] if self.url else "sqlite"


class PythonConfig(Node):
    """What the tool `python` may import, and the limits of one run."""

    modules: list[str] = option(MODULES, "modules that code may import, of these")
    cpu_s: float = option(2.0, "processor time of one run", gt=0, le=60)
    max_memory_mib: int = option(128, "memory one run may use (growth of its process)", ge=16)

    @field_validator("modules")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        if unknown := [name for name in names if name not in MODULES]:
            raise ValueError(
                f"python.modules: {unknown[0]!r} is none of {', '.join(MODULES)}; make a tool of what it gives"
            )
        return names
