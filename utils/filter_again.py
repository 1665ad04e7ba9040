"""A second, strict reading of the questions that `filter_with_llm.py` kept. `--help` says how."""

from __future__ import annotations

import sys
from pathlib import Path

from dotenv import load_dotenv

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sql_agent.config import ROOT
from sql_agent.curation.pass_command import pass_app

app = pass_app(
    "keep_again",
    """Let an LLM look for faults in questions that were kept: ambiguous, of one day, guessable, beside the reference.

    \b
    python utils/filter_again.py kept.jsonl kept_twice.jsonl

    As filter_with_llm.py, with a stricter rubric and progress of its own. In doubt a question is dropped.
    """,
)

if __name__ == "__main__":
    load_dotenv(ROOT / ".env")
    app()
