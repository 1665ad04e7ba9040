"""Teach a model from preferences: DPO or IPO with TRL's DPOTrainer.

  python train_dpo.py --dataset ../runs/RUN                        pairs of a run's rollouts, by reward
  python train_dpo.py --dataset ../runs/evaluations/TIME --margin 0.3
  python train_dpo.py --dataset converted.jsonl --model_path MODEL pairs as convert_dpo_format.py writes them

Two rollouts of one question are a pair when their rewards differ by --margin or more; unscored ones never are. Only
what the assistant says counts, tool results do not. The run folder is that of train_sql_agent.py: report.py, export.py
and evaluate.py take it, and --resume_checkpoint goes on.
docs/16-sft-and-preferences.md has the formats, docs/10-configuration.md all settings.
"""

from __future__ import annotations

import sys

try:
    from dotenv import load_dotenv
except ModuleNotFoundError as missing:
    raise SystemExit(f"error: {missing}; run `make setup`, then `source .venv/bin/activate`") from None

from sql_agent.config import HOME
from sql_agent.tuning.command import run_command

if __name__ == "__main__":
    load_dotenv(HOME / ".env")
    sys.exit(run_command("dpo", __doc__ or ""))
