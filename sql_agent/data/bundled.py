"""The bundled database and questions, built where they are asked for and are not there, as in an installed package."""

from __future__ import annotations

from pathlib import Path

from sql_agent.config import DatabaseConfig, TrainConfig, agents_of

DATA = Path(__file__).resolve().parent
SPLITS = ("train", "val", "test", "test_entities")
NAMES = {DatabaseConfig().path, *(f"data/{split}.parquet" for split in SPLITS)}


def ensure_bundled(*texts: str) -> None:
    """Build them if one of these, paths as a configuration has them, is theirs and is not there. Raises UserError."""
    if all((DATA / Path(text).name).is_file() for text in texts if text in NAMES):
        return
    from sql_agent.data.build import build_bundled

    build_bundled()


def ensure_data(config: TrainConfig) -> None:
    """The same for what a run reads. Raises UserError."""
    databases = [
        one.database.path
        for one in agents_of(config).values()
        if "sql" in one.agent.tools and not (one.database.folder or one.database.url)
    ]
    files = [one.file for one in (*config.data.training, *config.data.validation)]
    ensure_bundled(*files, *databases)
