"""An LLM reads each question of a file and keeps it or drops it with a reason. `--help` says how."""

from __future__ import annotations

import sys
from pathlib import Path

from dotenv import load_dotenv

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sql_agent.config import ROOT
from sql_agent.curation.pass_command import pass_app

app = pass_app(
    "keep",
    """Let an LLM choose questions by a rubric: keep or drop, with its reason.

    \b
    python utils/filter_with_llm.py raw.jsonl kept.jsonl --language zh --max-calls 5000

    The LLM is that of TEACHER_* or JUDGE_ENDPOINTS. Answers are kept in OUT.progress: the same command goes on where it
    was stopped or killed, and asks nothing twice. Dropped rows and reasons go to NAME.dropped.jsonl. Exit status: 0
    all are decided, 1 some stay unasked (a fault, or the budget), 2 wrong input.
    """,
)

if __name__ == "__main__":
    load_dotenv(ROOT / ".env")
    app()
