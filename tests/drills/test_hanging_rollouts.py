"""Rollouts that hang over the end of their step, on real vLLM: the steps after it are those of a run without them."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from agl_plugin.run.question_order import QuestionOrder
from foundation import run_folder
from foundation.files import read_lines
from sql_agent.config import build_config, data_path, load_recipe
from sql_agent.data.bundled import ensure_bundled
from sql_agent.data.dataset import load_questions, to_row
from sql_agent.tiny_policy.build import ensure_tiny_policy
from tests.drills.conftest import Training, gone, training

pytestmark = pytest.mark.slow
N_STEPS, LIMIT_S = 3, 30
SETS = {
    "rollout.group_size": 4,
    "rollout.temperature": 2,  # at 1 a group's four answers are often the same, and teach nothing
    "rollout.rollout_timeout_s": LIMIT_S,
    "trainer.max_steps": N_STEPS,
    "trainer.save_every": N_STEPS,
}
# Question HANGS of the first step never ends: it swallows its cancelling, and calls the model all the while, or does
# nothing. The others make one call.
AGENT = '''
    """An agent loop of one's own."""
    import asyncio
    import openai

    async def play(question, endpoint, tools):
        async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key="x", max_retries=0) as client:
            async def ask(text):
                said = [{{"role": "user", "content": text}}]
                reply = await client.chat.completions.create(model=endpoint.model, messages=said)
                return reply.choices[0].message.content

            while question.id == {hangs!r}:
                try:
                    await asyncio.shield(asyncio.ensure_future(ask("?" * 9) if {calls} else asyncio.sleep(1)))
                    await asyncio.sleep(0.2)
                except BaseException:
                    await asyncio.sleep(0.2)
            return await ask(question.question)
'''
SCORER = """
    from sql_agent.scorers import scorer

    @scorer("length")
    def length(question, episode, context):
        return len(episode.final_answer) % 7 / 7
"""


def of_the_rest(run: Training, hangs: str) -> list[tuple[Any, ...]]:
    """What the other rollouts said and earned; one that was ended by its runner has no question."""
    rows = [row for row in read_lines(run.folder / run_folder.ROLLOUTS) if row["mode"] == "train"]
    hung = [row for row in rows if row.get("question_id", hangs) == hangs]
    assert [row["unscored"] for row in hung] == ["timed_out"] * 4 and {row["step"] for row in hung} == {1}
    rows = [row for row in rows if row not in hung]
    told = [(row["step"], row["question_id"], row["answer"], row["reward"], row["response_tokens"]) for row in rows]
    return sorted(told, key=repr)


def weights_of(run: Training) -> dict[str, Any]:
    (file,) = run.folder.glob(f"checkpoints/global_step_{N_STEPS}/actor/model_*.pt")
    return torch.load(file, weights_only=False)


def test_rollouts_that_hang_leave_the_next_steps_untouched(tmp_path: Path) -> None:
    ensure_tiny_policy(1)
    found: list[tuple[list[tuple[Any, ...]], dict[str, Any]]] = []
    config = build_config(
        load_recipe("demo_cpu"), {"optim": {"questions_per_step": 2, "mini_batch_questions": 2, "micro_batch_rows": 2}}
    )
    ensure_bundled(config.data.training[0].file)
    questions = load_questions(data_path(config.data.training[0].file))
    order = QuestionOrder([to_row(question) for question in questions], n=2, seed=config.data.seed)
    hangs = questions[order.of_step(1)[0]].id
    for calls in (True, False):
        folder = tmp_path / str(calls)
        folder.mkdir()
        own = folder / "own.py"
        own.write_text(textwrap.dedent(AGENT).format(hangs=hangs, calls=calls), encoding="utf-8")
        (folder / "length.py").write_text(textwrap.dedent(SCORER), encoding="utf-8")
        sets = [f"{key}={value}" for key, value in SETS.items()]
        sets += [f"agent.episode={own}:play", "agent.system_prompt=system_short"]
        sets += ["reward.default_scorer=length", f'reward.scorer_modules=["{folder / "length.py"}"]']
        with training(folder / "runs", *[part for text in sets for part in ("--set", text)]) as run:
            run.wait_for("train", 1)
            tree = psutil.Process(run.process.pid).children(recursive=True)
            text = run.end()
            assert run.process.returncode == 0, text
            assert gone(tree) == []  # also the runner whose agent swallows its end
            assert all(line["actor/weights_changed_share"] > 0 for line in run.metrics("train"))
            found.append((of_the_rest(run, hangs), weights_of(run)))
    (rows, weights), (usual, usual_weights) = found
    assert len(rows) == 4 + 8 * (N_STEPS - 1) and {row[0] for row in rows} == {1, 2, 3} and rows == usual
    assert all(torch.equal(torch.as_tensor(weights[k]), torch.as_tensor(usual_weights[k])) for k in usual_weights)
