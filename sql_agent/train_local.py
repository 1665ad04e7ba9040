"""Train the agent with GRPO in one process: transformers samples, TRL updates. No Ray, no store, no vLLM.

  python train_local.py                              the tiny policy, on any machine
  python train_local.py --recipe demo_cpu --set trainer.max_steps=20
  python train_local.py --model Qwen/Qwen2.5-0.5B-Instruct --lora --set local.quantization=nf4

For one small GPU or a notebook. Recipes, questions, tools, scorers, run folder, report, export and evaluation are those
of train_sql_agent.py, which is the faster one for long runs; keys that mean nothing here are refused.
docs/10-configuration.md has all settings.
"""

from __future__ import annotations

import logging
import signal
import sys

try:
    from dotenv import load_dotenv
    from rich.console import Console
except ModuleNotFoundError as missing:
    raise SystemExit(f"error: {missing}; run `make setup`, then `source .venv/bin/activate`") from None

from foundation import console
from foundation.errors import UserError
from sql_agent.config import ROOT
from sql_agent.local.job import run_local
from sql_agent.run_report.line import report_line
from sql_agent.training.job import EXIT
from sql_agent.training.options import parser, resolve_config


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 the run failed, 2 wrong input, 130 interrupted."""
    args = parser(__doc__ or "", prog="train_local.py").parse_args(argv)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    logging.basicConfig(level=logging.DEBUG if args.debug else logging.WARNING)
    terminal = console.own_terminal()
    try:
        status, run_dir = run_local(resolve_config(args), terminal)
    except UserError as exc:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {exc}", markup=False)
        return 2
    except KeyboardInterrupt:
        return EXIT["interrupted"]
    terminal.print(f"{report_line(run_dir)}\nrun: {run_dir}", markup=False)
    return status


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    load_dotenv(ROOT / ".env")
    sys.exit(main())
