"""Files of text and JSON: whole ones that appear complete or not at all, and JSON lines, appended and read.

Appended lines are flushed, so a killed process keeps what it had; a torn last line is left out on reading. Lines that
people write are decoded one by one (`numbered_lines`, `decode_line`), and a bad one spoils nothing but itself. A lone
surrogate, which UTF-8 lacks, is written as a question mark. Knows nothing of what the JSON means.
"""

from __future__ import annotations

import codecs
import errno
import hashlib
import json
import math
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foundation.errors import AgentGRPOError, UserError


def writable(text: str) -> str:
    """The text without lone surrogates, which JSON may hold and UTF-8 lacks."""
    return text.encode("utf-8", "replace").decode()


def jsonable(value: Any) -> Any:
    """Numbers as JSON has them: numpy and torch scalars become Python's, NaN and Inf become None."""
    if isinstance(value, dict):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def refuse_input(out: Path, *inputs: Path) -> None:
    """Raise UserError where the results would take the place of a file that they are made from."""
    if os.path.realpath(out) in {os.path.realpath(path) for path in inputs}:  # of a loop of links too
        raise UserError(f"{out}: is read from; name another place for the results")


def check_new_folder(out: Path, *, name: str) -> None:
    """Raise UserError where `out` is there already, OSError where it cannot be made; its parents are made."""
    if out.exists():
        raise UserError(f"{name}: exists; name a new folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent):
        pass


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A new name beside `path`; the file made there takes its place when the block ends, and goes when it fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temp = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temp
        temp.replace(path)
    except OSError as exc:
        if exc.errno == errno.ENOSPC and not exc.filename:  # writing to an open file names none
            exc.filename = str(path)
        raise
    finally:
        temp.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, making its folder."""
    with atomic_path(path) as temp:
        temp.write_text(text, encoding="utf-8", errors="replace")


def write_json(path: Path, tree: dict[str, Any]) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(jsonable(tree), ensure_ascii=False, indent=2) + "\n")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; {} where there is none that can be read."""
    return _object_in(path) or {}


def whole_object(path: Path) -> dict[str, Any]:
    """The same. Raises UserError where there is none."""
    if (tree := _object_in(path)) is not None:
        return tree
    problem = "is damaged, or was not written whole" if path.is_file() else "does not exist"
    raise UserError(f"{path}: {problem}; name another folder, or put a copy of the file back")


def _object_in(path: Path) -> dict[str, Any] | None:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write one JSON object per line, atomically."""
    write_text(path, "".join(map(_line, rows)))


def append_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Append one JSON object per line and flush."""
    with path.open("a", encoding="utf-8", errors="replace") as file:
        file.writelines(map(_line, rows))


def _line(row: dict[str, Any]) -> str:
    return json.dumps(jsonable(row), ensure_ascii=False) + "\n"


def whole_lines(path: Path) -> list[bytes]:
    """All complete lines of a file that `append_lines` wrote; [] when it does not exist."""
    if not path.exists():
        return []
    data = path.read_bytes()
    # Bytes, and only \n: a torn line may end inside a character, and an answer may hold any other line separator.
    return [line for line in data[: data.rfind(b"\n") + 1].split(b"\n") if line.strip()]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What `whole_lines` say."""
    return [json.loads(line) for line in whole_lines(path)]


def fingerprint(path: str | Path) -> str:
    """The first 16 hex digits of the file's SHA-256. Raises UserError where it cannot be read."""
    try:
        with Path(path).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()[:16]
    except OSError as exc:
        raise UserError(f"{path}: cannot be read ({exc})") from exc


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that people wrote, from 1, without blank ones, as `in_utf8` has them.

    Of a file that is one JSON list they are its entries.
    """
    text = in_utf8(path.read_bytes())
    for number, line in enumerate(_entries(text) or text.split(b"\n"), start=1):
        if line.strip():
            yield number, line


def in_utf8(data: bytes) -> bytes:
    """A text without its byte order mark; one of UTF-16, which needs it, as UTF-8. Others as they are."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace").encode()
    return data.removeprefix(codecs.BOM_UTF8)


def json_objects(path: Path, skip: Callable[[str, int], None]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and object of each of these lines that holds one; `skip` gets the reason and the number of the others."""
    for number, line in numbered_lines(path):
        try:
            value = decode_line(line)
        except BadLine as exc:
            skip(exc.kind, number)
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            skip("not a JSON object", number)


def _entries(text: bytes) -> list[bytes]:
    """A line for each entry of a JSON list; none for what is no list."""
    if not text.lstrip().startswith(b"["):
        return []
    try:
        return [json.dumps(entry).encode() for entry in json.loads(text)]
    except (ValueError, RecursionError):
        return []


class BadLine(AgentGRPOError, ValueError):
    """A line that is no JSON of UTF-8 texts. `kind` is a reason that lines may share; the text adds the place."""

    def __init__(self, kind: str, place: str = "") -> None:
        super().__init__(f"{kind} {place}".rstrip())
        self.kind = kind


def decode_line(line: bytes) -> Any:
    """What a line says. Raises BadLine."""
    try:
        value = json.loads(line.decode("utf-8"))
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as exc:
        raise BadLine("not UTF-8", f"at byte {exc.start + 1} of the line") from None
    except UnicodeEncodeError:
        raise BadLine("a lone surrogate in a text") from None
    except json.JSONDecodeError as exc:
        raise BadLine("not JSON", f"({exc.msg} at column {exc.colno})") from None
    except (ValueError, RecursionError) as exc:
        raise BadLine("not JSON", f"that can be read ({exc})") from None
    return value


def size_text(n_bytes: int) -> str:
    """A size for people in the unit that fits, as 3.2 GiB or 47 MiB: never 0 for what is not."""
    size, units = float(n_bytes), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.0f} {units[0]}" if size >= 10 or units[0] == "bytes" else f"{size:.1f} {units[0]}"
