"""Where things are: the project root, where runs go, and the first existing candidate of a user's path."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from foundation.environment import HOME as HOME
from foundation.errors import UserError
from sql_agent.config.data import QUESTION_FILES
from sql_agent.config.database import DatabaseConfig

ROOT = Path(__file__).resolve().parents[2]
# What lies beside this package in the checkout lies in it when it is installed (utils/one_package.py).
BESIDE = ROOT if (ROOT / "pyproject.toml").is_file() else ROOT / "sql_agent"
RECIPES = BESIDE / "recipes"
LONGEST_PROMPT = 1 << 18  # bytes
# `agentgrpo` in a process of its own; -P: the folder that one works in holds no modules of ours.
COMMAND = (sys.executable, "-P", "-m", "sql_agent")


def resolve_path(text: str, *bases: Path) -> Path:
    """The first existing candidate of a user's path: as given, then below each base; else as given."""
    path = Path(text).expanduser()
    candidates = [path] if path.is_absolute() else [Path.cwd() / path, *(base / path for base in bases)]
    return next((c for c in candidates if c.exists()), candidates[0]).resolve()


def database_path(config: DatabaseConfig) -> Path:
    """Absolute path of the database file, or of the folder of databases (it may not exist)."""
    return resolve_path(config.folder or config.path, ROOT)


def database_place(config: DatabaseConfig) -> Path | str:
    """The file or folder, as `database_path` has it; of a server, its URL."""
    if config.dialect == "duckdb":
        return resolve_path(unquote(urlsplit(config.url).path[1:]), ROOT)
    return config.url or database_path(config)


def data_path(text: str) -> Path:
    """Absolute path of a question file (it may not exist)."""
    return resolve_path(text, ROOT / "sql_agent", ROOT)


def existing_file(path: str | Path, *, key: str = "") -> Path:
    """The path of a question file, which a `key` may have named. Raises UserError."""
    path = Path(path)
    if not path.is_file():
        named, searched = (f"{key} = ", ", nor is it beside the recipe") if key else ("", "")
        problem = "is a folder" if path.is_dir() else f"does not exist{searched}"
        is_bundled = path.parent.resolve() == ROOT / "sql_agent" / "data"
        how = "`agentgrpo data` makes the bundled ones" if is_bundled else ", ".join(QUESTION_FILES)
        raise UserError(f"{named}{path}: {problem}; a question file is needed ({how})")
    return path


def prompt_file(name: str) -> Path:
    """The file of a system prompt: a name in sql_agent/prompts without .txt, or a path.

    Raises UserError naming the prompts there are.
    """
    folder = ROOT / "sql_agent" / "prompts"
    for path in (folder / f"{name}.txt", resolve_path(name, ROOT)):
        if path.is_file():
            return path
    names = ", ".join(sorted(p.stem for p in folder.glob("*.txt")))
    raise UserError(f"agent.system_prompt = {name!r}: neither a file nor one of {names}")


def prompt_text(name: str) -> str:
    """What a system prompt says. Raises UserError where there is none, or it is no plain text of LONGEST_PROMPT."""
    path = prompt_file(name)
    data = path.read_bytes() if path.stat().st_size <= LONGEST_PROMPT else b"\0"
    text = data.decode("utf-8-sig", errors="replace").strip()
    if any(char == "\ufffd" or (char < " " and not char.isspace()) for char in text):
        raise UserError(f"{path}: no UTF-8 text of at most {LONGEST_PROMPT} bytes. Name another agent.system_prompt")
    return text


def carried_prompt(folder: Path, agent: str = "") -> Path:
    """Where a model folder has the system prompt that its policy was trained with, of one of [agents] by its name."""
    return folder / f"system_prompt{agent and f'-{agent}'}.txt"
