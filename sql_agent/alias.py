"""The older names of the commands: `python train_sql_agent.py ...` is `agentgrpo train ...`, and so on.

The scripts of these names are links to this file. Each takes the flags that it was known by too, with the names that
they had; cli.py has the table of scripts, foundation/command.py that of the flags.
"""

from pathlib import Path

try:
    from sql_agent.cli import run_script
except ModuleNotFoundError as missing:
    raise SystemExit(f"error: {missing}; run `make setup`, then `source .venv/bin/activate`") from None

if __name__ == "__main__":
    run_script(Path(__file__).name)
