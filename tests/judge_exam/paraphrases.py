"""Answers in other words, and what `reward.reword` adds: `REWARD_MODEL_URL=... python -m tests.judge_exam.paraphrases`.

Measured are the answers of paraphrases.toml by part, and the judged answers of the bundled sets; the part `held` was
looked at once. Printed are the mean value without and with the model, and how many wrong answers rose by .1 or more.
"""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sql_agent.config import ROOT, RewardConfig
from sql_agent.records import Episode, Evidence, QueryResult, Question, SqlCall
from sql_agent.scoring.build import build_context
from sql_agent.scoring.reward import score

HERE = Path(__file__).parent
CALL = SqlCall(sql="SELECT 1", result=QueryResult(columns=["a"], rows=[[1]]))
RISE, WRONG = 0.1, 0.5


def items() -> Iterator[tuple[str, Question, str, bool]]:
    """(group, question, answer, whether it is right)."""
    for ask in tomllib.loads((HERE / "paraphrases.toml").read_text(encoding="utf-8"))["ask"]:
        joint, sign = ("；", "：") if ask["language"] == "zh" else ("; ", ": ")
        cell = Evidence(source_table="records", row_id="1", field="text", quote=joint.join(ask["facts"]))
        reference = f"{ask['name']}{sign}{cell.quote}"
        question = Question(id=ask["name"], question=ask["question"], answer=reference, evidence=[cell])
        for why in ("right", "wrong"):
            for answer in ask[why]:
                yield f"{ask['part']} {ask['language']} {why}", question, answer, why == "right"
    for file in ("judge_items", "judge_prose"):
        for line in (ROOT / "sql_agent" / "data" / f"{file}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            cells = [
                Evidence(source_table="records", row_id=str(n), field="text", quote=quote)
                for n, quote in enumerate(row["evidence"])
            ]
            question = Question(id=row["id"], question=row["question"], answer=row["reference"], evidence=cells)
            is_right = row["label"] >= WRONG
            kind = "paraphrase" if row["kind"] == "paraphrase" else "right" if is_right else "wrong"
            yield f"{file} {kind}", question, row["answer"], is_right


def main(cap: Annotated[float, typer.Option(help="reward.reword")] = 0.6, part: str = "") -> None:
    """Print what each group of answers earns without the reward model and with it."""
    model = {"send_reference": True}
    contexts = [build_context(RewardConfig.model_validate({"reword": c, "reward_model": model})) for c in (0, cap)]
    earned: dict[str, list[tuple[float, float, bool]]] = defaultdict(list)

    async def value(question: Question, answer: str, n: int) -> float:
        found = await score(Episode(question=question, final_answer=answer, sql_calls=[CALL]), contexts[n])
        assert not found.unscored, found.explanation
        return found.parts["answer"]

    async def all_values() -> None:
        for group, question, answer, is_right in items():
            if group.startswith(part):
                before, after = [await value(question, answer, n) for n in (0, 1)]
                earned[group].append((before, after, is_right))

    asyncio.run(all_values())
    table = Table("answers", "n", "without", "with", f"rose by {RISE}", f"wrong and rose by {RISE}")
    for group, values in earned.items():
        rose = [is_right for before, after, is_right in values if after - before >= RISE]
        means = (f"{fmean(one):.2f}" for one in ([v[0] for v in values], [v[1] for v in values]))
        table.add_row(group, str(len(values)), *means, str(len(rose)), str(rose.count(False)))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
