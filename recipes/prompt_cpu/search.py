"""`agentgrpo prompt` where no language model is at hand: a list of prompts stands in for the one that edits.

    python -m recipes.prompt_cpu.search --out runs/prompt

All flags are those of `agentgrpo prompt`, and so is all the rest: the search, the episodes, the scorers, the report.
Limits: the list reads no critique. What it shows is that a better prompt is found, and what finding one costs.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from sql_agent.config import COMMAND, prompt_file
from sql_agent.testing.server import Answer, Handler, chat_reply, openai_server

CANDIDATES = ("system_en", "system_short", "system_zh")
CRITIQUE = "The prompt should say which tables there are."
FLAGS = ("--recipe", "prompt_cpu", "--rounds", "1", "--beam", "1", "--branch", "3", "--train", "16", "--val", "48")


def editor() -> Handler:
    """APO asks twice for an edit: the critique comes back in the second call, which gets the next prompt."""
    prompts = itertools.cycle(prompt_file(name).read_text(encoding="utf-8").strip() for name in CANDIDATES)

    def answer(request: dict[str, Any]) -> Answer:
        return chat_reply(next(prompts) if CRITIQUE in json.dumps(request["messages"]) else CRITIQUE)

    return answer


def main(argv: Sequence[str]) -> int:
    """The exit status of `agentgrpo prompt`."""
    with openai_server(editor()) as server:
        teacher = {"TEACHER_API_KEY": "none", "TEACHER_MODEL": "a-list", "TEACHER_BASE_URL": server.base_url}
        environment = os.environ | teacher | {"JUDGE_ENDPOINTS": ""}
        return subprocess.run([*COMMAND, "prompt", *FLAGS, *argv], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
