"""Write the reference tables from the code: configuration and verl's keys (10-configuration.md), patches (60-).

  .venv/bin/python docs/generate_configuration.py

Guarantees: only the text between `<!-- generated: NAME -->` and `<!-- end: NAME -->` changes. Not covered: environment
variables, whose table is written by hand and compared with the code by tests/test_docs.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sql_agent.config import TrainConfig, known_keys
from sql_agent.training.verl_rules import PASSED_ON

DOCS = Path(__file__).resolve().parent
SIGNS = {"ge": "&ge;", "gt": "&gt;", "le": "&le;", "lt": "&lt;"}
Row = tuple[str, ...]


def values_of(field: FieldInfo) -> str:
    """What a key may hold: its choices, or its type with its bounds."""
    kind: Any = field.annotation
    if get_origin(kind) is dict:
        inner = get_args(kind)[1]
        is_node = isinstance(inner, type) and issubclass(inner, BaseModel)
        return f"sections of {', '.join(f'`{key}`' for key in inner.model_fields)}" if is_node else "a section"
    is_list = get_origin(kind) is list
    prefix, kind = ("list of ", get_args(kind)[0]) if is_list else ("", kind)
    if get_origin(kind) is Literal:
        return prefix + ", ".join(f"`{choice}`" for choice in get_args(kind))
    if issubclass(kind, BaseModel):
        return f"{prefix}tables of {', '.join(f'`{key}`' for key in kind.model_fields)}"
    type_name = str(kind.__name__)
    name = {"str": "text", "bool": "true, false"}.get(type_name, type_name)
    bounds = [f"{sign} {getattr(m, key)}" for m in field.metadata for key, sign in SIGNS.items() if hasattr(m, key)]
    return " ".join([prefix + name, ", ".join(bounds)]).strip()


def default_of(field: FieldInfo) -> str:
    """The default as it is written in a recipe's TOML."""
    value = field.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).replace("'", '"')


def table(header: Row, rows: list[Row]) -> str:
    """A Markdown table; a bar inside a cell is escaped."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def configuration() -> str:
    sections: dict[str, list[Row]] = {}
    for key, field in known_keys().items():
        section = key.rpartition(".")[0]
        row = (f"`{key}`", f"`{default_of(field)}`", values_of(field), field.description or "")
        sections.setdefault(section, []).append(row)
    parts = []
    for section, rows in sections.items():
        about = _section_doc(section)
        title = f"`{section}`" if section else "top level"
        parts.append(f"### {title}\n\n{about}\n\n{table(('key', 'default', 'values', 'meaning'), rows)}")
    return "\n\n".join(parts)


def verl_keys() -> str:
    """The keys of verl that the section [verl] may hold."""
    rows = [
        (f"`verl.{key}{'*' if key.endswith('.') else ''}`", why + (f"; needs {need}" if need else ""))
        for key, (why, need) in sorted(PASSED_ON.items())
    ]
    return table(("key", "is"), rows)


def _section_doc(section: str) -> str:
    node: Any = TrainConfig
    for name in section.split(".") if section else ():
        node = node.model_fields[name].annotation
    return (node.__doc__ or "").strip()


def patches() -> str:
    from agl_plugin.patches.register import PATCHES

    header = ("patch", "where", "what", "why", "unnecessary when")
    rows = []
    for patch in PATCHES:
        names = ", ".join(f"`{target.at}`" for target in patch.targets)
        rows.append((f"`{patch.name}`", patch.place, f"{patch.how}: {names}", patch.why, patch.until))
    return table(header, rows)


def patch_places() -> str:
    """Where the patches are made, and the versions they are for."""
    from agl_plugin.patches.register import PLACES, VERSIONS

    places = table(("where", "process"), [(f"`{name}`", text) for name, text in PLACES.items()])
    rows = [(f"`{name}`", " or ".join(f"`{k}=={v}`" for k, v in wanted.items())) for name, wanted in VERSIONS.items()]
    return f"{places}\n\n{table(('package', 'version'), rows)}"


BLOCKS: dict[str, dict[str, Callable[[], str]]] = {
    "10-configuration.md": {"configuration": configuration, "verl": verl_keys},
    "60-patches.md": {"places and versions": patch_places, "patches": patches},
}


def render(name: str, page: str) -> str:
    """The page `name` with all marked blocks written anew. Raises ValueError when a block's marks are missing."""
    for block, make in BLOCKS[name].items():
        start, end = f"<!-- generated: {block} -->", f"<!-- end: {block} -->"
        if page.count(start) != 1 or page.count(end) != 1:
            raise ValueError(f"{name}: needs exactly one {start} and one {end}")
        body = f"{start}\n\n{make()}\n\n{end}"
        page = re.sub(f"{re.escape(start)}.*?{re.escape(end)}", lambda _, body=body: body, page, flags=re.DOTALL)
    return page


def main() -> None:
    for name in BLOCKS:
        page = DOCS / name
        page.write_text(render(name, page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
