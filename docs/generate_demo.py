"""Write the demo's results into README.md and README_zh.md: the curve of a run, and before and after of several.

    python docs/generate_demo.py runs/DEMO_SEED_1 runs/DEMO_SEED_2 runs/DEMO_SEED_3

Each folder is what `make demo` named in its last line. The picture is drawn from the first one, by the report's own
plot code. Nothing is measured or rounded differently from summary.json and rollouts.jsonl of these runs.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = "docs/images/demo_reward.png"
MARKS = ("<!-- demo: docs/generate_demo.py -->", "<!-- /demo -->")
HEADS = {
    "README.md": (
        "| `make demo`, unseen entities | decoding | before | after | difference [95 %] |",
        "Reward per training step, and on held-out questions with 95 % intervals",
    ),
    "README_zh.md": (
        "| `make demo`，未见过的实体 | 解码方式 | 训练前 | 训练后 | 差值 [95 %] |",
        "每个训练步的奖励，以及留出问题上的奖励（带 95 % 区间）",
    ),
}
SPLIT, DECODINGS = "test_entities", ("sampled", "greedy")
FIGURES = ("before", "after", "delta", "delta_ci95")


def rows(folder: Path) -> list[str]:
    """Table rows of one run."""
    summary, config = (json.loads((folder / f"{name}.json").read_text("utf-8")) for name in ("summary", "config"))
    lines: list[str] = []
    for how in DECODINGS:
        before, after, delta, (low, high) = (summary[name][f"{SPLIT}/{how}"] for name in FIGURES)
        change = f"{delta:+.3f} [{low:.3f}, {high:.3f}]"
        lines.append(f"| SEED={config['trainer']['seed']} | {how} | {before:.3f} | {after:.3f} | {change} |")
    return lines


def draw(folder: Path) -> None:
    """The reward's curve of a run, as in its report."""
    from sql_agent.run_report import measures, plots
    from sql_agent.run_report.folder import read_run

    run = read_run(folder, evaluation=None)
    curve = plots.reward(measures.training_reward(run), measures.validations(run))
    (ROOT / PICTURE).parent.mkdir(exist_ok=True)
    plots.png([("reward, demo_cpu on two CPU cores", curve)], path=ROOT / PICTURE)


def render(page: str, head: tuple[str, str], lines: list[str]) -> str:
    """The page with its block written anew."""
    columns, caption = head
    table = [columns, "|---|---|---|---|---|", *lines]
    block = "\n".join([MARKS[0], f"![{caption}]({PICTURE})", "", *table, MARKS[1]])
    pattern = re.escape(MARKS[0]) + ".*?" + re.escape(MARKS[1])
    return re.sub(pattern, lambda _: block, page, count=1, flags=re.DOTALL)


def main(folders: list[Path]) -> None:
    """Draw, and rewrite both pages."""
    draw(folders[0])
    lines = [line for folder in folders for line in rows(folder)]
    for name, head in HEADS.items():
        page = ROOT / name
        page.write_text(render(page.read_text(encoding="utf-8"), head, lines), encoding="utf-8")


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit("usage: python docs/generate_demo.py RUN_FOLDER [RUN_FOLDER ...]")
    main([Path(text) for text in sys.argv[1:]])
