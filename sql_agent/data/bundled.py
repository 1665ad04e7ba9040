"""The bundled database and questions, built where they are asked for and are not there, as in an installed package."""

from __future__ import annotations

from pathlib import Path

from sql_agent.config import AgentTree, DatabaseConfig, DataConfig, agents_of

DATA = Path(__file__).resolve().parent
SPLITS = ("train", "val", "test", "test_entities")
NAMES = {DatabaseConfig().path, *(f"data/{split}.parquet" for split in SPLITS)}


def ensure_bundled(*texts: str) -> None:
    """Build them if one of these, paths as a configuration has them, is theirs and is not there. Raises UserError."""
    if all((DATA / Path(text).name).is_file() for text in texts if text in NAMES):
        return
    from sql_agent.data.build import build_bundled

    build_bundled()


def ensure_databases(agents: AgentTree) -> None:
    """The same for the databases of these agents. Raises UserError."""
    ensure_bundled(
        *(
            settings.database.path
            for settings in agents_of(agents).values()
            if "sql" in settings.agent.tools and not (settings.database.folder or settings.database.url)
        )
    )


def ensure_data(data: DataConfig, agents: AgentTree) -> None:
    """The same for what a run reads: questions, and the databases of its agents. Raises UserError."""
    ensure_bundled(*(settings.file for settings in (*data.training, *data.validation)))
    ensure_databases(agents)
