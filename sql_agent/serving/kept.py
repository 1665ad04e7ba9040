"""What a served agent keeps of its conversations, where the configuration says so: a file of JSON lines, appended to.

Guarantees: nothing is written without `serve.keep`, nor of a request with `store` false; a conversation in which a
client sent private data (curation/private.py) is not written, and a corrected answer with such is left out; the file
is its owner's alone; writing happens beside the answers, and what cannot be written is a line in the log, never a
fault of the answer. Not covered: private data in the rows of one's own database, and how long the file is kept.
"""

from __future__ import annotations

import logging
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from foundation.errors import UserError
from foundation.files import append_lines
from sql_agent.curation.private import private
from sql_agent.serving.agent_answer import Sample

logger = logging.getLogger(__name__)


class Feedback(BaseModel):
    """What a client says of an answer: its id, whether it was good, and what would have been right."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: str = Field(pattern=r"^(chatcmpl-|resp_)[0-9a-f]{32}$")
    score: Literal[1, -1]
    answer: str | None = Field(default=None, min_length=1, max_length=20_000)


class Keeper:
    """Writes to one file. A context manager, whose end waits for what is on its way."""

    def __init__(self, path: Path) -> None:
        """Raises UserError where the file cannot be written."""
        self._path, self._writer = path, ThreadPoolExecutor(1, "kept")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(0o600)
            path.chmod(0o600)
            os.close(os.open(path, os.O_APPEND | os.O_WRONLY))
        except OSError as exc:
            raise UserError(f"serve.keep = {path}: cannot be written ({exc.strerror}); name another file") from exc

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._writer.shutdown()

    def conversation(self, about: dict[str, Any], messages: list[dict[str, str]], sample: Sample) -> None:
        """Write an answered conversation, later: the client's `messages`, and what the agent did and said then."""
        row = {"kind": "conversation", **about, "at": int(time.time()), "said": messages}
        queries = [call.sql for call in sample.context.sql_calls if call.result.ok]
        row |= {"messages": sample.context.messages, "answer": sample.text, "queries": queries}
        self._writer.submit(self._write_unless_private, row)

    def feedback(self, feedback: Feedback) -> Future[str]:
        """Write feedback; why its answer was left out, "" where it was not. The future raises OSError."""
        return self._writer.submit(self._write_feedback, feedback)

    def _write_unless_private(self, row: dict[str, Any]) -> None:
        try:
            if not any(private(message["content"]) for message in row["said"]):
                append_lines(self._path, [row])
        except OSError as exc:
            logger.error("%s: a conversation was not kept: %s", self._path, exc)

    def _write_feedback(self, feedback: Feedback) -> str:
        why = private(feedback.answer or "")
        row = feedback.model_dump(exclude_none=True, exclude={"answer"} if why else None)
        append_lines(self._path, [{"kind": "feedback", **row, "at": int(time.time())}])
        return f"holds {why}" if why else ""
