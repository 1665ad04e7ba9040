"""Which judges there are: the list in the file that JUDGE_ENDPOINTS names, or the one of the three TEACHER_* variables.

Guarantees: keys come from the environment or that file alone; no error text shows one. The file is TOML with
[[endpoint]] tables, or a JSON list; an entry has api_key, base_url and model, and what else JudgeEndpoint knows.
Not covered: whether an endpoint exists (see `LLMJudge.preflight`).
"""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError
from pydantic_core import ErrorDetails

from foundation.errors import UserError, problems_of
from reward_client.schema import JudgeEndpoint

ENV_NAMES = {"api_key": "TEACHER_API_KEY", "model": "TEACHER_MODEL", "base_url": "TEACHER_BASE_URL"}


def endpoints_from_env() -> list[JudgeEndpoint]:
    """The judges in order of preference; [] when neither JUDGE_ENDPOINTS nor any TEACHER_* variable is set.

    Raises ValueError when the file or a variable is malformed; its text names the place and never shows a key.
    """
    file = os.environ.get("JUDGE_ENDPOINTS", "").strip()
    if file:
        return read_endpoints(Path(file).expanduser())
    values = {field: os.environ.get(name, "").strip() for field, name in ENV_NAMES.items()}
    missing = [ENV_NAMES[field] for field, value in values.items() if not value]
    if len(missing) == len(values):
        return []
    if missing:
        present = ", ".join(sorted(set(ENV_NAMES.values()) - set(missing)))
        raise ValueError(
            f"{', '.join(missing)} not set, but {present} set: the LLM judge needs all three. "
            "Set the rest in .env, or unset all three to use the offline reference judge"
        )
    try:
        return [JudgeEndpoint(api_key=SecretStr(values["api_key"]), base_url=values["base_url"], model=values["model"])]
    except ValidationError as exc:
        raise ValueError("; ".join(_explain(error, values) for error in exc.errors())) from None


def needed_endpoints(what: str) -> list[JudgeEndpoint]:
    """The same where there must be one, for `what`. Raises UserError."""
    try:
        endpoints = endpoints_from_env()
    except ValueError as exc:
        raise UserError(str(exc)) from exc
    if not endpoints:
        raise UserError(f"no {what}: set TEACHER_API_KEY, TEACHER_MODEL and TEACHER_BASE_URL, or JUDGE_ENDPOINTS")
    return endpoints


def read_endpoints(path: Path, *, variable: str = "JUDGE_ENDPOINTS") -> list[JudgeEndpoint]:
    """The endpoints of a file, at least one. Raises ValueError naming file, entry and key."""
    place = f"{variable} = {str(path)!r}"
    try:
        text = path.read_text(encoding="utf-8")
        tree: Any = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as exc:
        what = exc.strerror if isinstance(exc, OSError) else f"neither valid TOML nor (named *.json) JSON: {exc}"
        raise ValueError(f"{place}: cannot be read ({what})") from None
    entries = tree.get("endpoint") if isinstance(tree, dict) and tree.keys() == {"endpoint"} else tree
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{place}: must hold [[endpoint]] tables (TOML) or a list (JSON), at least one entry")
    return [_entry(place, number, entry) for number, entry in enumerate(entries, start=1)]


def _entry(place: str, number: int, entry: Any) -> JudgeEndpoint:
    try:
        return JudgeEndpoint.model_validate(entry)
    except ValidationError as exc:
        raise ValueError(f"{place}: entry {number}: {problems_of(exc)}") from None


def _explain(error: ErrorDetails, values: dict[str, str]) -> str:
    field = str(error["loc"][0])
    shown = "" if field == "api_key" or "@" in values[field] else f" = {values[field]!r}"
    return f"{ENV_NAMES[field]}{shown}: {error['msg'].removeprefix('Value error, ')}"
