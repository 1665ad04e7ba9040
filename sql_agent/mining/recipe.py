"""The recipe folder of a database: questions, prompts that name its tables, configuration, tiny policy, README.

Guarantees: every file appears as a whole; no value that is held out stands in a prompt; the configuration names the
database by its absolute path and everything else by its name in the folder.
"""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

from foundation.files import write_lines, write_text
from sql_agent.config import TITLES, DatabaseConfig, load_recipe, merge
from sql_agent.mining.questions import Mined, side_of
from sql_agent.mining.schema import Column, Schema, Table
from sql_agent.mining.state import PROMPT, SCHEMA, SHORT_PROMPT, Settled

HERE = Path(__file__).resolve().parent  # of prompt_en.txt, prompt_zh.txt and readme.txt
GPU_RECIPE, CPU_RECIPE = "qwen3_0_6b", "spider_cpu"  # whose sizes are taken
SHOWN_VALUES, MODEL_PROMPT_TOKENS = 3, 6144
SLOWER = 5  # times, beside a training
TOOL = {
    "en": "Run one read-only SQL query ({dialect}, SELECT only) on the database; returns JSON. The system prompt has "
    "its tables.",
    "zh": "在数据库中执行一条只读 SQL 查询（{dialect} 语法，仅限 SELECT），返回 JSON。可查询的表和列见系统提示。",
}
MARKS = {"en": ("double quotes", "backticks"), "zh": ("双引号", "反引号")}  # the second are MySQL's
SHORT = {"en": "Answer from the database. Tables: {tables}.", "zh": "依据查询结果作答。数据表：{tables}。"}
TERMS = """terms = [
    {scorer = "judge", weight = 0.5, name = "answer"},
    {scorer = "sql_result", weight = 0.5, name = "query"},
]"""
CPU_STEPS = {"max_steps": 45, "save_every": 15, "validate_every": 15}
TINY = '''"""The tiny policy of this database; see agentgrpo mine."""

from pathlib import Path

from sql_agent.mining.tiny import task_of

TASK = task_of(Path(__file__).resolve().parent)
'''
ABOUT_SPLITS = {
    "train": "to train on",
    "val": "values that training never names",
    "test": "other such values",
    "test_wordings": "other such values, in wordings that training never uses",
    "test_tables": "tables that no training question touches",
}


def write_recipe(folder: Path, schema: Schema, mined: Mined, settled: Settled, *, gpu: bool) -> None:
    """Write everything. The questions' files are read again by every later stage."""
    write_text(folder / SCHEMA, schema.model_dump_json(indent=1))
    for name, questions in mined.splits.items():
        write_lines(folder / f"{name}.jsonl", (question.model_dump(exclude_defaults=True) for question in questions))
    write_text(folder / PROMPT, long_prompt(schema, settled))
    names = ("、" if settled.language == "zh" else ", ").join(table.name for table in schema.tables)
    write_text(folder / SHORT_PROMPT, SHORT[settled.language].format(tables=names))
    write_text(folder / "tiny.py", TINY)
    write_text(folder / "config.toml", config_text(schema, settled, gpu=gpu, slowest_s=mined.slowest_s))
    write_text(folder / "README.md", readme(folder, schema, mined, settled))


def long_prompt(schema: Schema, settled: Settled) -> str:
    """The prompt for a language model."""
    tables = "\n".join(_table_text(table, settled) for table in schema.tables)
    links = "\n".join(link.on(schema.table(link.table).sql, schema.table(link.parent).sql) for link in schema.links)
    heading = {"en": "\nForeign keys:\n", "zh": "\n外键：\n"}[settled.language]
    names = {"dialect": TITLES[schema.dialect], "marks": MARKS[settled.language][schema.dialect == "mysql"]}
    text = (HERE / f"prompt_{settled.language}.txt").read_text(encoding="utf-8")
    return text.format(tables=tables, links=f"{heading}{links}\n" if links else "", **names)


def _table_text(table: Table, settled: Settled) -> str:
    def column_text(column: Column) -> str:
        shown = [value for value in column.samples if side_of(value, settled.seed) == "train"][:SHOWN_VALUES]
        values = f" ({', '.join(map(str, shown))})" if shown and column.role != "key" else ""
        return column.sql + values

    return f"- {table.sql}{' [view]' if table.is_view else ''}: {', '.join(map(column_text, table.columns))}"


def config_text(schema: Schema, settled: Settled, *, gpu: bool, slowest_s: float) -> str:
    """The recipe's TOML. A query may take what the slowest reference took several times, on a machine that trains."""
    sizes = load_recipe(GPU_RECIPE) if gpu else merge(load_recipe(CPU_RECIPE), {"trainer": CPU_STEPS})
    if settled.model:  # its prompt has all columns
        sizes = merge(sizes, {"rollout": {"max_prompt_tokens": MODEL_PROMPT_TOKENS}})
    tree: dict[str, dict[str, Any]] = {
        "agent": {
            "tools": ["sql"],
            "system_prompt": PROMPT if settled.model else SHORT_PROMPT,
            "tool_description": TOOL[settled.language].format(dialect=TITLES[schema.dialect]),
            "max_turns": 8 if settled.model else 3,
        },
        "database": {
            "url" if "://" in settled.database else "path": settled.database,
            "tables": [table.name for table in schema.tables],
            "timeout_s": max(DatabaseConfig().timeout_s, float(math.ceil(SLOWER * slowest_s))),
        },
        "data": {"train_file": "train.jsonl", "val_file": "val.jsonl", "val_max_rows": 64},
        "reward": {"sql_bonus": 0.0},
        "model": {"path": settled.model} if settled.model else {"tiny": "tiny.py", "tiny_seed": settled.seed},
        **{name: sizes[name] for name in ("rollout", "optim", "trainer")},
        "logging": {"trackers": ["console"], "experiment": "mined"},
    }
    lines = ["# Made by agentgrpo mine. Half of the reward is for the answer, half for the result of the query."]
    for section, keys in tree.items():
        lines += ["", f"[{section}]", *(f"{key} = {toml(value)}" for key, value in keys.items())]
        if section == "reward":
            lines.append(TERMS)
    return "\n".join(lines) + "\n"


def toml(value: Any) -> str:
    """A text, number, truth or list of them, as TOML has it; JSON says the same but for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def readme(folder: Path, schema: Schema, mined: Mined, settled: Settled) -> str:
    files = "\n".join(f"| `{n}.jsonl` | {len(split)} | {ABOUT_SPLITS[n]} |" for n, split in mined.splits.items())
    text = (HERE / "readme.txt").read_text(encoding="utf-8")
    return text.format(
        database=settled.database,
        language=settled.language,
        seed=settled.seed,
        name=settled.name,
        typed_database=shlex.quote(settled.database),
        typed_folder=shlex.quote(str(folder)),
        files=files,
        held=", ".join(mined.held_tables) or "none",
        phrased=f" Asked {mined.phrased}." if mined.phrased else "",
        n_tables=len(schema.tables),
        n_links=len(schema.links),
        dropped=told_drops(mined.dropped),
    )


def told_drops(dropped: Counter[str]) -> str:
    return ", ".join(f"{n} x {why}" for why, n in dropped.most_common() if n and why) or "none"
