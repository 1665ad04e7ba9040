"""Train the medical SQL agent with GRPO.

  make train                                   everything below in one command

  agl store --host 127.0.0.1 --port 9999       a store, in its own terminal
  AGL_MANAGED_STORE=0 python train_sql_agent.py --ci-fast --llm-proxy

AGL_MANAGED_STORE=0 alone means http://localhost:9999; --external-store-address names another store. One that is still
starting is waited for. --ci-fast runs one step and shows that everything works; without it the recipe's full length
runs. Without a GPU and without --model a tiny policy is built and trained on the CPU, by the same code. Settings come
from the defaults, then the recipe, then this command line; docs/10-configuration.md lists them all.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import Any

try:
    from dotenv import load_dotenv
except ModuleNotFoundError as missing:
    raise SystemExit(f"error: {missing}; run `make setup`, then `source .venv/bin/activate`") from None
from rich.console import Console

from foundation import console
from foundation.errors import UserError
from sql_agent.config import HOME
from sql_agent.data.bundled import ensure_data
from sql_agent.run_report.line import report_line
from sql_agent.training import preflight
from sql_agent.training.dry_run import dry_run
from sql_agent.training.external_store import wait_for_store, with_store_address
from sql_agent.training.job import EXIT, run_runners, run_training
from sql_agent.training.options import parser, resolve_config


def interrupt(*_: Any) -> None:
    """The handler of SIGINT and SIGTERM.

    Python's own would do, but asyncio.run replaces that one (and only that one) by a handler which waits for the loop,
    and the loop waits for the training.
    """
    raise KeyboardInterrupt


def main(argv: list[str] | None = None) -> int:
    """The command line. Exit status: 0 done, 1 the run failed, 2 wrong input, 130 interrupted."""
    args = parser(__doc__ or "").parse_args(argv)
    # SIGTERM ends a run in order, as Ctrl-C does: runners, Ray and vLLM are children that must not outlive it.
    # A shell starts background jobs with SIGINT ignored; then neither would do anything.
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    load_dotenv(HOME / ".env")
    logging.basicConfig(level=logging.DEBUG if args.debug else logging.WARNING)
    terminal = console.own_terminal()
    try:
        config = with_store_address(resolve_config(args))
        role = os.environ.get("AGL_CURRENT_ROLE", "both")
        preflight.check_role(role)
        if role != "runner":
            preflight.check_installed(("torch", "verl", "vllm"), extra="gpu] or agentgrpo[cpu")
        ensure_data(config)
        if args.dry_run:
            return dry_run(config, terminal)
        if role != "runner":
            preflight.check_devices(config)
        preflight.check_agent(config)
        if config.store.external_address:
            wait_for_store(config.store.external_address, say=terminal.print)
        if role == "runner":
            return run_runners(config)
        status, run_dir = run_training(config, role=role, terminal=terminal)
    except UserError as exc:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {exc}", markup=False)
        return 2
    except KeyboardInterrupt:
        return EXIT["interrupted"]
    terminal.print(f"{report_line(run_dir)}\nrun: {run_dir}", markup=False)
    return status


if __name__ == "__main__":
    sys.exit(main())
