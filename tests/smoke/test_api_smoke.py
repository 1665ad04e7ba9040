"""The API with real training: as the command line, twice in one process, by an agent, in a notebook; and the wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Literal

import nbformat
import pytest
from nbclient import NotebookClient

from foundation.files import write_lines
from sql_agent import api
from sql_agent.api.calls import run_process
from sql_agent.config import COMMAND, ROOT
from sql_agent.testing.server import Answer, chat_reply, openai_server, tool_call_reply

pytestmark = pytest.mark.slow
FIGURES = ("reward_mean", "reward_parts", "validation", "loss", "grad_norm", "scored", "groups", "triplets")


def run_of(*words: str) -> api.Run:
    """The run of a command line."""
    lines = run_process([*COMMAND, *words], quiet=True).lines
    return api.Run(Path(lines[-1].removeprefix("run: ")))


def figures(run: api.Run) -> dict[str, Any]:
    """What a run measured, but for clocks and memory."""
    return {name: run.summary[name] for name in FIGURES}


def test_a_call_and_a_command_and_a_second_call_measure_the_same(tmp_path: Path) -> None:
    """One rollout after the other: vLLM's samples depend on which requests it has at once."""
    same: dict[str, Any] = {"rollout.runner_concurrency": 1, "trainer.runs_dir": str(tmp_path)}
    calls = [api.train("smoke_cpu", ci_fast=True, quiet=True, **same) for _ in range(2)]
    flags = ["--recipe", "smoke_cpu", "--ci-fast"]
    typed = [part for key, value in same.items() for part in ("--set", f"{key}={value}")]
    runs = [*calls, run_of("train", *flags, *typed)]
    assert len({run.folder for run in runs}) == 3
    played = [
        sorted(zip(frame.question, frame.answer, frame.reward, strict=True))
        for frame in (run.rollouts() for run in runs)
    ]
    assert played[0] == played[1] == played[2]
    assert figures(runs[0]) == figures(runs[1]) == figures(runs[2])


@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_tuning_by_a_call_and_by_a_command_measures_the_same(method: Literal["sft", "dpo"], tmp_path: Path) -> None:
    """Two calls in this process, and the command: the same losses, gradients and weights at each step."""
    rows = [{"prompt": f"{n}的适应症", "chosen": f"用于{n}痛。", "rejected": f"不知道{n * n}。"} for n in range(12)]
    told = rows if method == "dpo" else [{"prompt": row["prompt"], "completion": row["chosen"]} for row in rows]
    write_lines(tmp_path / "rows.jsonl", told)
    keys = {f"{method}.max_steps": 3, f"{method}.batch_size": 4, "trainer.runs_dir": str(tmp_path / "runs")}
    call = {"sft": api.sft, "dpo": api.dpo}[method]
    runs = [call(dataset=tmp_path / "rows.jsonl", quiet=True, **keys) for _ in range(2)]
    typed = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
    runs.append(run_of(method, "--data", str(tmp_path / "rows.jsonl"), *typed))
    names = ["step", "train/loss", "actor/grad_norm", "actor/lr", "actor/weights_changed_share"]
    steps = [run.metrics("train")[names].to_numpy().tolist() for run in runs]
    assert len(steps[0]) == 3 and steps[0] == steps[1] == steps[2]
    assert len({run.folder for run in runs}) == 3 and all(run.status == "finished" for run in runs)
    weights = [file.read_bytes() for run in runs for file in run.checkpoints[-1].glob("actor/model.safetensors")]
    assert len(weights) == 3 and len(set(weights)) == 1


def test_an_agent_trains_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HelloAgents' snippet, with a scripted model as the agent's LLM: it trains, measures and tells."""
    monkeypatch.chdir(tmp_path)
    train = {
        "action": "train",
        "algorithm": "grpo",
        "max_samples": 2,
        "num_epochs": 1,
        "batch_size": 2,
        "use_lora": False,
    }
    train |= {"output_dir": "model", "use_tensorboard": False}
    told: list[dict[str, Any]] = []

    def llm(request: dict[str, Any]) -> Answer:
        results = [message["content"] for message in request["messages"] if message["role"] == "tool"]
        told[:] = [json.loads(result) for result in results]
        if not results:
            assert request["tools"][0]["function"]["name"] == "rl_training"
            return tool_call_reply(("rl_training", train))
        if len(results) == 1:
            return tool_call_reply(("rl_training", {"action": "evaluate", "model_path": "model", "max_samples": 2}))
        return chat_reply(f"Trained; average reward {told[1].get('average_reward')}.")

    code = (
        "from hello_agents.agents import SimpleAgent\nfrom hello_agents.tools import RLTrainingTool\n"
        "from hello_agents.core import LLMConfig\n"
        'agent = SimpleAgent(name="TrainingAgent", llm_config=LLMConfig(model="gpt-4o-mini"), '
        "tools=[RLTrainingTool()])\n"
        'response = agent.run("train a model for me")\nprint(response)'
    )
    with openai_server(llm) as server:
        path = f"{ROOT / 'sql_agent' / 'api' / 'compat'}{os.pathsep}{ROOT}"
        env = {**os.environ, "PYTHONPATH": path, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "key"}
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [result["status"] for result in told] == ["success", "success"], told
    assert told[0]["num_samples"] == 2 and (tmp_path / "model" / "config.json").is_file()
    assert told[1]["num_samples"] == 2 and "average reward" in done.stdout.splitlines()[-1]


def test_the_tour_runs() -> None:
    notebook = nbformat.read(ROOT / "docs" / "tour.ipynb", as_version=4)
    NotebookClient(notebook, timeout=1200, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in shown) == 2


WHEEL = """
from sql_agent import api
from sql_agent.config import COMMAND, HOME, load_recipe
from sql_agent.api.calls import run_process
assert "/wheel/" in api.__file__, api.__file__
command = [*COMMAND, "train", "--recipe", "smoke_cpu", "--ci-fast", "--dry-run"]
told = run_process(command, quiet=True).lines[-1]  # the first that asks for the bundled data
print(HOME, load_recipe("smoke_cpu")["recipe"], len(api.load_dataset("medical", split="val", max_samples=5)))
print(told)
command = [*COMMAND, "train", "--backend", "local", "--ci-fast", "--set", "data.val_max_rows=2"]
run = run_process(command, quiet=True).lines[-1].removeprefix("run: ")
print(api.Run(run).status, len(api.Run(run).rollouts("train")), api.Run(run).folder.parent)
"""


def test_the_wheel_stands_alone(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "wheel")
    home = tmp_path / "home"
    home.mkdir()
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "wheel")}
    done = subprocess.run([sys.executable, "-c", WHEEL], cwd=home, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *(f"{home} smoke_cpu 5", "dry run: the checks passed; nothing was trained"),
        f"finished 16 {home / 'runs'}",
    ]
    assert (home / ".cache").is_dir() and not (tmp_path / "wheel" / "runs").exists()
