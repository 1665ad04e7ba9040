"""Train the agent with GRPO in one process: transformers samples, TRL updates. No Ray, no store, no vLLM.

  python train_local.py                              the tiny policy, on any machine
  python train_local.py --recipe local_cpu           a policy that gets better, in minutes
  python train_local.py --model Qwen/Qwen2.5-0.5B-Instruct --lora --set local.quantization=nf4

For one small GPU or a notebook. Recipes, questions, tools, scorers, run folder, report, export and evaluation are those
of train_sql_agent.py, which is the faster one for long runs; keys that mean nothing here are refused.
docs/10-configuration.md has all settings.
"""

from __future__ import annotations

import sys
from pathlib import Path

try:
    from dotenv import load_dotenv
except ModuleNotFoundError as missing:
    raise SystemExit(f"error: {missing}; run `make setup`, then `source .venv/bin/activate`") from None

from rich.console import Console

from sql_agent.config import HOME
from sql_agent.local.job import dry_run_local, run_local
from sql_agent.training.options import parser, resolve_config
from sql_agent.tuning.command import run_to_end


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 the run failed, 2 wrong input, 130 interrupted."""
    args = parser(__doc__ or "", prog="train_local.py").parse_args(argv)

    def work(terminal: Console) -> tuple[int, Path | None]:
        config = resolve_config(args)
        return (dry_run_local(config, terminal), None) if args.dry_run else run_local(config, terminal)

    return run_to_end(work, debug=args.debug)


if __name__ == "__main__":
    load_dotenv(HOME / ".env")
    sys.exit(main())
