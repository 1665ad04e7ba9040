"""The closed loop, each part by its command: an agent is served, a user asks and judges, the traffic is curated, the
agent learns from it, and answers the same user's next questions better: about drugs and diseases that were never asked.

The user is a script with wordings of its own (in none of the bundled questions), who knows what is right: an answer
with the fact in it is good, of another the right one is told. Held-out questions are played
before and after the training, and choose nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pyarrow.parquet as pq
import pytest

from foundation.files import read_lines
from foundation.net import free_port
from foundation.stats import difference, estimate
from sql_agent.config import ROOT
from sql_agent.data.bundled import ensure_bundled
from tests.smoke.test_serve import AGENTGRPO, served

WORDINGS = ("{name}，{field}请讲一讲。", "手头这份资料里{name}的{field}如何？", "我要{name}的{field}。")
N_ASKED, N_HELD_OUT, STEPS = 160, 80, 12


def own_questions(split: str, n: int) -> list[dict[str, Any]]:
    """The facts of a split, one field of one drug or disease each, asked in the user's words."""
    ensure_bundled(f"data/{split}.parquet")
    rows = pq.read_table(ROOT / "sql_agent" / "data" / f"{split}.parquet").to_pylist()
    single = [row for row in rows if json.loads(row["meta"])["intent"] == "single"]
    found = []
    for number, row in enumerate(single[:: len(single) // n][:n]):
        meta = json.loads(row["meta"])
        name = next(meta["entity"][key] for key in ("drug_name", "disease_name") if key in meta["entity"])
        text = WORDINGS[number % len(WORDINGS)].format(name=name, field=meta["labels"][0])
        keys = {"qid": f"own-{row['qid']}", "question": text, "ground_truth": row["answer"], "meta": {}}
        found.append({**keys, "sql": json.loads(row["sql"]), "evidence": json.loads(row["evidence"])})
    return found


def talk(address: str, row: dict[str, Any]) -> int:
    """Ask a question and judge its answer: the score."""
    with openai.OpenAI(base_url=address, api_key="EMPTY", timeout=300) as agent:
        said: Any = [{"role": "user", "content": row["question"]}]
        reply = agent.chat.completions.create(model=agent.models.list().data[0].id, messages=said)
    is_good = row["evidence"][0]["quote"] in (reply.choices[0].message.content or "")
    given = {"id": reply.id, "score": 1} if is_good else {"id": reply.id, "score": -1, "answer": row["ground_truth"]}
    httpx.post(f"{address}/feedback", json=given, timeout=60).raise_for_status()
    return given["score"]


def run(folder: Path, *command: str) -> str:
    """What a command printed."""
    done = subprocess.run([AGENTGRPO, *command], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_agent_answers_its_user_better_after_it_learned_from_the_traffic(tmp_path: Path) -> None:
    asked, held_out = own_questions("train", N_ASKED), own_questions("test_entities", N_HELD_OUT)
    kept, out, port = tmp_path / "kept.jsonl", tmp_path / "traffic", free_port()
    with (
        served(tmp_path, "--as-agent", "--port", str(port), "--set", f"serve.keep={kept}"),
        ThreadPoolExecutor(16) as users,
    ):
        scores = list(users.map(lambda row: talk(f"http://127.0.0.1:{port}/v1", row), asked))
    print(f"{len(scores)} questions asked, {scores.count(1)} answered right")
    print(run(tmp_path, "curate", "traffic", str(kept), str(out)))
    questions = list(read_lines(out / "questions.jsonl"))
    assert {row["question"] for row in questions} <= {row["question"] for row in asked}
    assert len(questions) > 0.9 * N_ASKED and all(row["ground_truth"] for row in questions)

    with (tmp_path / "held_out.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in held_out)
    keys = {"data.train_file": out / "questions.jsonl", "trainer.epochs": 2, "trainer.max_steps": STEPS}
    keys |= {"data.val_file": tmp_path / "held_out.jsonl", "data.val_max_rows": N_HELD_OUT}
    keys |= {"trainer.validate_first": "true", "trainer.validate_every": STEPS, "trainer.runs_dir": tmp_path / "runs"}
    flags = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
    trained = run(tmp_path, "train", "--backend", "local", "--recipe", "local_cpu", *flags)
    (folder,) = re.findall(r"^run: (.*)$", trained, re.MULTILINE)
    played = [row for row in read_lines(Path(folder) / "rollouts.jsonl") if row["mode"] == "val"]
    before, after = ({row["question"]: row["reward"] for row in played if row["step"] == at} for at in (0, STEPS))
    assert len(before) == len(after) == N_HELD_OUT
    gain = difference(before, after, test=False)
    print(f"held out, greedy: {estimate(before.values())} -> {estimate(after.values())}, {gain}")
    assert gain.low > 0
