"""Talk to a model that train_gsm8k_agent.py trained: sqlagent_test.py --chat, with the tools that it was trained with.

python test_interactive.py --model_path outputs/Qwen2.5-0.5B/rl/epoch_1
"""

from __future__ import annotations

import argparse
from pathlib import Path

try:
    from dotenv import load_dotenv
except ModuleNotFoundError as missing:
    raise SystemExit(f"error: {missing}; run `make setup`, then `source .venv/bin/activate`") from None

from sql_agent.config import HOME
from sql_agent.sqlagent_test import app
from sql_agent.train_gsm8k_agent import recipe_of


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser(
        prog="test_interactive.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--model_path", "--model-path", required=True, help="model folder or hub name")
    p.add_argument("--max_new_tokens", "--max-new-tokens", default="", help="longest answer of one model call")
    p.add_argument("--temperature", default="0", help="0 is greedy (default)")
    p.add_argument("--recipe", default="", help="settings (default: those that the model was trained with here)")
    return p


def arguments(argv: list[str] | None = None) -> list[str]:
    """The arguments of sqlagent_test.py."""
    args = parser().parse_args(argv)
    recipe = args.recipe or recipe_of(Path(args.model_path))
    words = ["--chat", "--base-url", "", "--model", args.model_path, "--recipe", recipe]
    words += ["--set", "trainer.device=auto", "--temperature", args.temperature]
    return [*words, *(("--max-tokens", args.max_new_tokens) if args.max_new_tokens else ())]


if __name__ == "__main__":
    load_dotenv(HOME / ".env")
    app(arguments(), prog_name="test_interactive.py")
