"""sql_agent.api without a model: configurations, data sets, rewards, run folders, the training tool."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation import run_folder
from foundation.errors import RunError
from foundation.files import write_json, write_lines
from sql_agent import api
from sql_agent.api import jobs
from sql_agent.api.calls import run_job
from sql_agent.api.rewards import term_of
from sql_agent.config import ROOT
from sql_agent.records import Episode, Question
from sql_agent.scoring.functions import load_function
from sql_agent.scoring.registry import SCORERS, ScoringContext
from sql_agent.training.options import resolve_config
from tests.typed import train_call, train_flags

COMPAT = ROOT / "sql_agent" / "api" / "compat"


@pytest.fixture(autouse=True)
def caches_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sql_agent.data.named.HOME", tmp_path)
    monkeypatch.setattr("sql_agent.api.given.HOME", tmp_path)


def composed(overrides: dict[str, Any], **given: Any) -> dict[str, Any]:
    return train_call(**given, **overrides).model_dump()


def test_word_problems_are_played_with_their_own_tools_and_the_reward_that_was_given() -> None:
    api.register_dataset("sums", [{"question": "1 + 1?", "answer": "2"}, {"question": "1 + 2?", "answer": "3"}])
    of_task = jobs.for_word_problems("sums")
    steps = {"optim.questions_per_step": 2, "optim.mini_batch_questions": 2, "optim.micro_batch_rows": 2}
    asked = {"recipe": of_task.pop("recipe"), "dataset": "sums", "reward": api.create_reward("accuracy")}
    config = composed({**of_task, **steps}, **asked)
    assert [Path(name).name for name in config["agent"]["tools"]] == ["python", "tools.py"]
    assert Path(config["agent"]["system_prompt"]).name == "prompt.txt" and len(config["reward"]["terms"]) == 1
    assert config["data"]["train_file"] == config["data"]["val_file"] and not config["trainer"]["validate_first"]


@pytest.mark.parametrize(
    "overrides",
    [
        {"optim__lr": 2e-6, "trainer__max_steps": 3},
        {"optim": {"lr": 2e-6}, "trainer": {"max_steps": 3}},
        {"optim.lr": 2e-6, "trainer.max_steps": 3},
    ],
)
def test_a_call_is_the_command_that_a_person_types(overrides: dict[str, Any]) -> None:
    typed = ["--recipe", "smoke_cpu", "--ci", "--set", "optim.lr=2e-6", "--set", "trainer.max_steps=3"]
    called = composed(overrides, recipe="smoke_cpu", ci=True)
    assert called == resolve_config(train_flags(*typed)).model_dump()


def test_any_value_reaches_the_configuration_as_it_is() -> None:
    overrides = {"database.tables": ["a", "b"], "logging.experiment": "true", "trainer.resume": "x y"}
    tree = composed(overrides, recipe="smoke_cpu")
    assert tree["database"]["tables"] == ["a", "b"]
    assert (tree["logging"]["experiment"], tree["trainer"]["resume"]) == ("true", "x y")


def test_a_misspelt_key_is_named_before_anything_starts() -> None:
    with pytest.raises(api.UserError, match=r"optim\.lrr.*did you mean optim\.lr\?"):
        api.train(optim__lrr=1)


def test_what_a_command_refuses_is_a_user_error() -> None:
    with pytest.raises(api.UserError, match="no such recipe"):
        api.train("no_such_recipe", quiet=True)


JOB = """
from foundation.errors import UserError
def work(path, status):
    print(f"at work on {path}")
    if status == 2:
        raise UserError("no such thing")
    return status, path
"""


@pytest.mark.parametrize("status", [0, 1])
def test_a_job_gives_its_status_its_words_and_what_it_made(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a_job.py").write_text(JOB, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = run_job("a_job:work", quiet=False, path=Path("a b"), status=status)
    assert (done.status, done.path, done.lines[-1:]) == (status, Path("a b"), ["at work on a b"])
    assert capsys.readouterr().out.endswith("at work on a b\n")
    with pytest.raises(api.UserError, match="^no such thing$"):
        run_job("a_job:work", quiet=True, path=Path(), status=2)


def test_a_command_ends_in_order_after_one_interrupt_of_the_group(tmp_path: Path) -> None:
    """As a terminal and a notebook do it: the signal goes to caller and command alike. Background jobs ignore it."""
    heed, told = (
        "import signal, sys, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n",
        tmp_path / "told",
    )
    child = f"{heed}try:\n print('up', flush=True)\n time.sleep(600)\n"
    child += f"except KeyboardInterrupt:\n time.sleep(1)\n open({str(told)!r}, 'w').write('in order')"
    code = f"{heed}from sql_agent.api.calls import run_process\nrun_process([sys.executable, '-c', {child!r}])"
    pipe: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **pipe) as one:
        assert one.stdout and one.stdout.readline() == b"up\n"
        os.killpg(one.pid, signal.SIGINT)
        err: Any = one.communicate(timeout=300)[1]
    assert one.returncode != 0 and b"KeyboardInterrupt" in err and told.read_text() == "in order"


def test_data_sets_in_three_forms(tmp_path: Path) -> None:
    rows = api.load_dataset("medical", split="test", max_samples=3)
    assert len(rows) == 3 and rows[0]["question"] and rows[0]["answer"]
    sft = api.load_dataset("medical", format="sft", split="test", max_samples=1)[0]
    assert sft == {"prompt": rows[0]["question"], "completion": rows[0]["answer"], "text": sft["text"]}
    assert sft["text"] == f"{sft['prompt']}\n{sft['completion']}"
    rl = api.load_dataset("medical", format="rl", split="test", max_samples=1)[0]
    assert (rl["prompt"], rl["ground_truth"]) == (rows[0]["question"], rows[0]["answer"])
    api.register_dataset("sums", [{"problem": "1+1?", "solution": "2"}, {"question": "1+2?", "answer": 3}])
    assert [row["answer"] for row in api.load_dataset("sums")] == ["2", "3"]
    write_lines(tmp_path / "own.jsonl", [{"qid": 1, "question": "a?", "ground_truth": "b"}])
    assert api.load_dataset(tmp_path / "own.jsonl", format="rl")[0]["ground_truth"] == "b"
    assert len(api.load_dataset(composed({}, dataset="sums", max_samples=1)["data"]["train_file"])) == 1


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda: api.load_dataset("medicl"), "did you mean medical"),
        (lambda: api.load_dataset("medical", split="tset"), "did you mean test"),
        (lambda: api.load_dataset(max_samples=0), "at least 1"),
        (lambda: api.register_dataset("x", [{"text": "?"}]), "row 1: has text"),
        (lambda: api.register_dataset("x", []), "no rows"),
        (lambda: api.create_reward("accurcy"), "did you mean accuracy"),
        (lambda: api.create_reward("step", bonus=1), "bonus"),
        (lambda: api.create_reward("step", step_bonus=2), r"\[0, 1\]"),
        (lambda: api.evaluate_rewards("accuracy", ["a"]), "no truths"),
        (lambda: api.evaluate_rewards("accuracy", ["a"], ["b", "c"]), "1 completions and 2 truths"),
        (lambda: api.evaluate_rewards(lambda completions, **_: [1.0, 2.0], ["a"]), "2 rewards for 1"),
        (lambda: api.evaluate_rewards(lambda completions, **_: [float("nan")], ["a"]), "finite"),
        (lambda: api.evaluate_rewards(lambda completions, **_: [None], ["a"]), "none of 1"),
        (lambda: api.Run(Path("/nowhere")), "no run folder"),
    ],
)
def test_errors_name_the_rule(call: Any, rule: str) -> None:
    with pytest.raises(api.UserError, match=rule):
        call()


def test_accuracy_reads_answers_as_people_write_them() -> None:
    truths = ["5*9=45 and so on #### 1,234", "72", "0.5", "72", "阿司匹林", ""]
    answers = ["it is 1234 dollars", "#### 72", r"\boxed{\frac{1}{2}}", "no", "阿司匹林。", "x"]
    assert api.create_reward("accuracy")(answers, ground_truth=truths) == [1, 1, 1, 0, 1, None]


@pytest.mark.long
@given(st.lists(st.tuples(st.text(max_size=40), st.integers(0, 99).map(str)), min_size=1, max_size=4))
def test_made_rewards_stay_where_training_wants_them(pairs: list[tuple[str, str]]) -> None:
    completions, truths = ([pair[n] for pair in pairs] for n in (0, 1))
    for kind in ("length_penalty", "step"):
        assert all(0 <= (value or 0) <= 1 for value in api.create_reward(kind)(completions, ground_truth=truths))


def test_steps_and_length_count_beside_the_answer() -> None:
    text = "Step 1: add\nStep 2: carry\n#### 3"
    assert api.create_reward("step", step_bonus=0.2, max_steps=4)([text, "3"], ground_truth="3") == [0.9, 0.8]
    length = api.create_reward("length_penalty", penalty_weight=0.5, max_length=10)
    assert length(["3", "3".rjust(20), "4"], ground_truth="3") == [0.95, 0.5, 0]


def test_figures_of_a_reward_function() -> None:
    found = api.evaluate_rewards(lambda completions, **_: [0, 1, 1, 0.6, None], list("abcde"))
    assert (found.n, found.unscored, found.min, found.max) == (4, 1, 0, 1)
    assert (found.mean, found.accuracy, found.share_zero, found.share_one) == (0.65, 0.75, 0.25, 0.5)
    assert found.low <= found.mean <= found.high and found.as_dict()["std"] == pytest.approx(0.4093, abs=1e-4)


async def test_a_coroutine_gives_rewards_while_a_loop_runs() -> None:
    async def short(completions: list[str], **_: Any) -> list[float]:
        await asyncio.sleep(0)
        return [float(len(text) < 4) for text in completions]

    assert api.evaluate_rewards(short, ["yes", "no, not at all"]).mean == 0.5


async def test_a_function_of_a_notebook_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """What training loads is a module of its own that needs nothing of the program that named the function."""
    monkeypatch.setattr("sql_agent.api.rewards._registered", {})
    secret = "阿司匹林"
    api.register_reward_function(
        "mine", lambda completions, ground_truth, **_: [float(secret in c) for c in completions]
    )
    term = term_of("mine")
    load_function(term["scorer"])
    episode = Episode.model_construct(final_answer="用阿司匹林")
    context = ScoringContext.__new__(ScoringContext)
    scorer: Any = SCORERS.pop(term["scorer"])
    assert await scorer(Question(id="1", question="?", answer="x"), episode, context) == 1.0


def test_a_run_as_data_frames_and_pictures(tmp_path: Path) -> None:
    write_json(tmp_path / run_folder.CONFIG, {"recipe": "r"})
    with pytest.raises(api.UserError, match="goes on, or was killed"):
        _ = api.Run(tmp_path).summary
    write_json(tmp_path / run_folder.SUMMARY, {"status": "finished"})
    metrics = [{"kind": "train", "step": n, "rollout/reward_mean": n / 2} for n in (1, 2)]
    write_lines(tmp_path / run_folder.METRICS, [*metrics, {"kind": "val", "step": 2, "val/reward_mean": 0.5}])
    write_lines(tmp_path / run_folder.ROLLOUTS, [{"mode": "train", "reward": None, "unscored": "llm_fault"}])
    for step in (10, 2):
        (tmp_path / run_folder.CHECKPOINTS / f"global_step_{step}").mkdir(parents=True)
    run = api.Run(tmp_path)
    assert (run.status, run.config["recipe"], [path.name[-2:] for path in run.checkpoints]) == (
        "finished",
        "r",
        ["_2", "10"],
    )
    assert list(run.metrics("train")["rollout/reward_mean"]) == [0.5, 1.0]
    assert (
        len(run.metrics()) == 3 and run.rollouts("train").unscored[0] == "llm_fault" and len(run.rollouts("val")) == 0
    )
    for wrong in (run.metrics, run.rollouts):
        with pytest.raises(api.UserError, match=r"'trian': there is train, val"):
            wrong("trian")
    picture = run.plot()
    assert picture._repr_png_().startswith(b"\x89PNG") and len(picture.figure.axes[0].lines) == 2


# The training tool


def asked(folder: Path, **parameters: Any) -> dict[str, Any]:
    return json.loads(api.RLTrainingTool(folder).run(parameters))


def test_the_tool_loads_data_and_makes_rewards(tmp_path: Path) -> None:
    found = asked(tmp_path, action="load_dataset", format="sft", split="train", max_samples=100)
    assert found["status"] == "success" and found["dataset_size"] == 100
    assert found["sample_keys"] == ["prompt", "completion", "text"]
    made = asked(tmp_path, action="create_reward", reward_type="step")
    assert made == {"status": "success", "reward_type": "step", "step_bonus": 0.1}


@pytest.mark.parametrize(
    ("parameters", "rule"),
    [
        ({"action": "fly"}, "load_dataset"),
        ({}, "action or algorithm"),
        ({"algorithm": "ppo"}, "grpo"),
        ({"batch": 3}, "batch"),
        ({"output_dir": "/etc/model"}, "must lie below"),
        ({"output_dir": "a/../../model"}, "must lie below"),
        ({"output_dir": "full"}, "not empty"),
        ({"dataset": "../../etc/passwd.jsonl"}, "must lie below"),
        ({"model_name": "/etc", "dataset": "medical"}, "must lie below"),
        ({"action": "evaluate", "model_path": "a@http://169.254.169.254/v1"}, "an address"),
        ({"action": "load_dataset", "max_samples": 0}, "max_samples"),
    ],
)
def test_the_tool_refuses_what_a_model_must_not_ask(tmp_path: Path, parameters: dict[str, Any], rule: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    found = asked(tmp_path, **parameters)
    assert found["status"] == "error" and rule in found["message"]


async def test_an_agent_may_call_the_tool_with_anything(tmp_path: Path) -> None:
    tool = api.RLTrainingTool(tmp_path).as_agent_tool()
    context: Any = None
    for arguments in ("{torn", "[]", "null", '{"action": "load_dataset", "custom_dataset": {"a": 1}}'):
        answer = await tool.on_invoke_tool(context, arguments)
        assert isinstance(answer, str) and json.loads(answer)["status"] == "error"
    good = await tool.on_invoke_tool(context, '{"action": "load_dataset", "max_samples": 2}')
    assert isinstance(good, str) and json.loads(good)["dataset_size"] == 2


SNIPPET = """
from hello_agents.rl import TRL_AVAILABLE, MathRewardFunction, TrainingConfig, create_accuracy_reward
from hello_agents.rl import create_rl_dataset, create_sft_dataset, evaluate_rewards
from hello_agents.tools import RLTrainingTool
from typing import List
from sql_agent import api
api.register_dataset("gsm8k", [{"question": "1+1?", "answer": "add #### 2"}] * 2)

class CustomReward(MathRewardFunction):
    def __call__(self, completions: List[str], **kwargs) -> List[float]:
        ground_truths = kwargs.get("ground_truth", [])
        rewards = []
        for completion, truth in zip(completions, ground_truths):
            pred = self.extract_answer(completion)
            if pred and self.compare_answers(pred, truth):
                reward = 1.0
            else:
                reward = 0.0
            rewards.append(reward)
        return rewards

rows = create_rl_dataset(split="test", max_samples=100)
truths = [row["ground_truth"] for row in rows]
print(TRL_AVAILABLE, len(create_sft_dataset(max_samples=1000)))
print(evaluate_rewards(CustomReward(), ["2", "3"], truths).mean)
print(evaluate_rewards(create_accuracy_reward(), ["so 2", "so 2"], truths).accuracy)
print(RLTrainingTool().run({"action": "load_dataset", "format": "rl", "split": "train", "max_samples": 100}))
"""


def test_the_names_of_hello_agents_are_there(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": f"{COMPAT}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", SNIPPET], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    *first, last = done.stdout.splitlines()
    assert first == ["True 2", "0.5", "1.0"] and json.loads(last)["status"] == "success"


def test_what_a_call_hands_to_its_job_is_what_the_job_takes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def bound(function: str, *, quiet: bool, **given: Any) -> None:
        module, _, name = function.partition(":")
        inspect.signature(getattr(importlib.import_module(module), name)).bind(**given)
        raise RunError(f"{name} takes it")

    monkeypatch.setattr(jobs, "run_job", bound)
    calls = (lambda: jobs.evaluate(out=tmp_path / "e"), lambda: jobs.export(tmp_path, tmp_path / "m"))
    for call in (*calls, lambda: jobs.train("smoke_cpu"), lambda: jobs.sft(recipe="sft_cpu")):
        with pytest.raises(RunError, match="takes it"):
            call()
