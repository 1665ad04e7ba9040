"""Teach a model from conversations: supervised fine-tuning with TRL's SFTTrainer.

  python train_sft.py --dataset chats.jsonl                        rows with messages, tool calls included
  python train_sft.py --dataset ../runs/RUN --best_of 1            the best rollout of each question of a run
  python train_sft.py --dataset ../runs/evaluations/TIME           the same of an evaluation with --samples 8
  python train_sft.py --model_path Qwen/Qwen2.5-0.5B --dataset gsm8k --num_epochs 3 --output_dir OUT

Only what the assistant says is learned, token for token what GRPO would train. Without --dataset the training questions
are shown with their reference SQL and answer; without a GPU and without --model_path the tiny policy learns. The run
folder is that of train_sql_agent.py: report.py, export.py and evaluate.py take it, and --resume_checkpoint goes on.
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
    sys.exit(run_command("sft", __doc__ or ""))
