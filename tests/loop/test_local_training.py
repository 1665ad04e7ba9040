"""Training in one process: real episodes of the tiny policy, real updates, the run's files."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from typer.testing import CliRunner

from agl_plugin.audit.verify import verify
from agl_plugin.update.composed import verl_config
from foundation.errors import UserError
from foundation.files import read_lines
from foundation.run_folder import NOTE
from sql_agent.commands.export import export_checkpoint
from sql_agent.config import ROOT, TrainConfig, build_config, load_recipe
from sql_agent.environment.database import Database
from sql_agent.local import grpo
from sql_agent.local.arguments import check_checkpoint, check_keys
from sql_agent.local.endpoint import PolicyEndpoint
from sql_agent.local.job import run_local
from sql_agent.local.policy import Policy
from sql_agent.local.rollouts import Player
from sql_agent.records import Question
from sql_agent.scoring.registry import ScoringContext
from sql_agent.serving.checkpoints import own_checkpoint
from sql_agent.training.verl_config import verl_overrides
from tests.exact_rows import small_tokenizer
from tests.typed import app_of

app = app_of("audit")

pytestmark = pytest.mark.usefixtures("environment")
WAIT_S = 300.0
SMALL: dict[str, Any] = {
    "rollout": {"group_size": 4, "max_response_tokens": 80, "rollout_timeout_s": 900.0},
    "optim": {"questions_per_step": 4, "mini_batch_questions": 4, "micro_batch_rows": 4},
    "trainer": {"device": "cpu", "max_steps": 1, "validate_first": False, "validate_every": -1, "save_every": 1},
    "data": {"val_max_rows": 4},
    "agent": {"system_prompt": "system_short"},
}


def config_of(folder: Path, *more: dict[str, Any]) -> TrainConfig:
    return build_config(load_recipe("smoke_cpu"), SMALL, {"trainer": {"runs_dir": str(folder)}}, *more)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


OF_TIME = {"timeline", "llm_seconds", "episode_s", "elapsed_s", "id", "tool_call_id"}


def without_times(value: Any) -> Any:
    """A record without the seconds and the random ids of calls in it."""
    if isinstance(value, list):
        return [without_times(one) for one in value]
    return {k: without_times(v) for k, v in value.items() if k not in OF_TIME} if isinstance(value, dict) else value


def state_of(run: Path, step: int) -> dict[str, torch.Tensor]:
    """Weights and the optimizer's state after a step."""
    folder = run / "checkpoints" / f"global_step_{step}" / "actor"
    moments = torch.load(folder / "optimizer.pt", weights_only=True)["state"]
    found = {f"{n} {name}": torch.as_tensor(value) for n, of in moments.items() for name, value in of.items()}
    return {**found, **load_file(folder / "model.safetensors")}


def assert_same_run(one: Path, other: Path, *, steps: range) -> None:
    """Rollouts, but for times and ids, health, and weights and optimizer, bit for bit, of these steps."""
    rows = [
        [without_times(row) for row in lines(run / "rollouts.jsonl") if row["step"] in steps] for run in (one, other)
    ]
    assert rows[0] == rows[1] and {row["step"] for row in rows[0]} == set(steps)
    health = [
        [
            {name: value for name, value in row.items() if name.startswith("health/")}
            for row in lines(run / "metrics.jsonl")
            if row["kind"] == "train" and row["step"] in steps
        ]
        for run in (one, other)
    ]
    assert health[0] == health[1] and len(health[0]) == len(steps)
    for step in steps:
        first, second = state_of(one, step), state_of(other, step)
        assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, Any]]:
    """What the last update was made of, and its gradient's norm by another computation."""
    found: dict[str, Any] = {}
    patch, update = pytest.MonkeyPatch(), grpo.update

    def watched(policy: Policy, data: Any, *, micro_rows: int) -> Any:
        found["model"], found["rows"] = policy.model, data.batch
        batch, width = data.batch, data.batch["responses"].shape[1]
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask", "position_ids")}
        chosen = torch.log_softmax(policy.model(**inputs).logits[:, -width - 1 : -1], -1)
        chosen = chosen.gather(-1, batch["responses"][..., None])[..., 0]
        # At a ratio of 1 the clipped loss has the gradient of -A log p.
        loss = -(chosen * batch["advantages"] * batch["response_mask"]).sum() / batch["response_mask"].sum()
        grads = torch.autograd.grad(loss, [p for p in policy.model.parameters() if p.requires_grad])
        found["grad_norm"] = float(torch.cat([grad.flatten() for grad in grads]).norm())
        return update(policy, data, micro_rows=micro_rows)

    patch.setattr(grpo, "update", watched)
    yield found
    patch.undo()


@pytest.fixture(scope="module")
def run(seen: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One step."""
    status, run_dir = run_local(config_of(tmp_path_factory.mktemp("runs")), Console(quiet=True))
    assert status == 0
    return run_dir


@pytest.mark.long
def test_a_step_leaves_what_a_run_leaves(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    rollouts, (train, *_) = lines(run / "rollouts.jsonl"), lines(run / "metrics.jsonl")
    assert (summary["status"], summary["scored"], summary["weights_changed"]) == ("finished", 16, True)
    assert len(rollouts) == 16 and {row["mode"] for row in rollouts} == {"train"}
    assert all(row["reward"] is not None and row["response_tokens"] for row in rollouts)
    assert train["rollout/scored"] == 16 and train["actor/grad_norm"] > 0 and train["health/reward_mean"] >= 0


def test_the_audit_computes_the_step_again(run: Path) -> None:
    """Rows, masks and advantages from the calls, by other code than training's."""
    found = verify(run)
    assert not found.problems and not found.notes
    assert (found.counts["updates"], found.counts["verdicts"], found.counts["calls"]) == (1, 16, 32)
    done = CliRunner().invoke(app, ["why", str(run), "train-1-0"])
    assert done.exit_code == 0 and "in update step-1, optimizer step 1" in done.output, done.output
    assert "checkpoints/global_step_1" in done.output and "weights after 0 updates" in done.output
    assert CliRunner().invoke(app, ["replay", str(run), "1"]).exit_code == 2


def test_each_sampled_token_is_trained_once(run: Path, seen: dict[str, Any]) -> None:
    rollouts = lines(run / "rollouts.jsonl")
    assert int(seen["rows"]["response_mask"].sum()) == sum(sum(row["response_tokens"]) for row in rollouts)
    assert len(seen["rows"]) < sum(len(row["response_tokens"]) for row in rollouts)  # calls share rows


def test_the_gradient_is_that_of_the_formula(run: Path, seen: dict[str, Any]) -> None:
    (train, *_) = lines(run / "metrics.jsonl")
    assert train["actor/grad_norm"] == pytest.approx(seen["grad_norm"], rel=1e-3)
    assert train["sampler/log_prob_diff_mean"] < 1e-5  # what the sampler told of each token is what is trained


def test_the_checkpoint_is_exported(run: Path, tmp_path: Path) -> None:
    assert export_checkpoint(run, tmp_path / "model").gap < 1e-4


@pytest.mark.long
def test_one_seed_is_one_run_and_a_resume_equals_no_stop(run: Path, tmp_path: Path) -> None:
    """Two steps at once, with tools that are late now and then, against one step and its resume."""
    two = {"trainer": {"max_steps": 2, "runs_dir": str(tmp_path)}}
    with pytest.MonkeyPatch.context() as patch:
        ask = Database._ask

        def late(self: Database, *args: Any, **kwargs: Any) -> Any:
            time.sleep(random.Random().choice([0.0, 0.0, 0.1]))
            return ask(self, *args, **kwargs)

        patch.setattr(Database, "_ask", late)
        status, whole = run_local(config_of(tmp_path, two), Console(quiet=True))
    assert status == 0
    assert_same_run(run, whole, steps=range(1, 2))
    resume = {"resume": str(run / "checkpoints" / "global_step_1"), "resume_changed": True}
    status, resumed = run_local(config_of(tmp_path, two, {"trainer": resume}), Console(quiet=True))
    assert status == 0
    assert_same_run(whole, resumed, steps=range(2, 3))
    faster = config_of(tmp_path, two, {"trainer": resume, "optim": {"lr": 2e-4}})
    status, forked = run_local(faster, Console(quiet=True))
    rates = [row["actor/lr"] for row in read_lines(forked / "metrics.jsonl") if row["kind"] == "train"]
    assert status == 0 and rates == [2e-4] and config_of(tmp_path, two).optim.lr != 2e-4
    checked = verify(forked)
    assert checked.problems == [] and f"goes on from {run.name}@1" in checked.notes


@pytest.mark.slow
def test_the_recipe_trains_and_validates(tmp_path: Path) -> None:
    """Two small steps of local_cpu, with validation before and after."""
    few = {"questions_per_step": 2, "mini_batch_questions": 2, "micro_batch_rows": 8}
    small = {"max_steps": 2, "validate_every": 2, "save_every": 2, "runs_dir": str(tmp_path)}
    trees: list[dict[str, Any]] = [{"optim": few, "trainer": small, "data": {"val_max_rows": 3}}]
    trees.append({"agent": {"system_prompt": "system_short"}})
    status, run_dir = run_local(build_config(load_recipe("local_cpu"), *trees), Console(quiet=True))
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    assert status == 0 and (summary["scored"], summary["weights_changed"]) == (32, True)
    assert [one["step"] for one in summary["validation"]] == [0, 2]
    assert (run_dir / "checkpoints" / "global_step_2" / "actor").is_dir()
    found = verify(run_dir)
    assert not found.problems and (found.counts["updates"], found.counts["verdicts"]) == (2, 32 + 2 * 3)


@pytest.mark.slow
def test_a_step_on_weights_in_four_bits(tmp_path: Path, seen: dict[str, Any]) -> None:
    """NF4, quantised twice, with LoRA, by bitsandbytes' code for CPUs: the gradient is that of the weights unpacked."""
    bnb: Any = pytest.importorskip("bitsandbytes", reason="the extra quantized is not installed")
    config = config_of(tmp_path, {"model": {"lora_rank": 8}, "local": {"quantization": "nf4"}})
    status, run_dir = run_local(config, Console(quiet=True))
    (train, *_) = lines(run_dir / "metrics.jsonl")
    assert status == 0 and train["rollout/scored"] == 16 and train["actor/weights_changed_share"] > 0
    layers = [module for module in seen["model"].modules() if isinstance(module, bnb.nn.Linear4bit)]
    assert len(layers) == 7 * seen["model"].config.num_hidden_layers
    assert all((one.weight.quant_type, one.weight.quant_state.nested) == ("nf4", True) for one in layers)
    trained = [name for name, weight in seen["model"].named_parameters() if weight.requires_grad]
    assert len(trained) == 2 * len(layers) and all("lora_" in name for name in trained)
    assert train["actor/grad_norm"] == pytest.approx(seen["grad_norm"], rel=0.02)  # computed in bfloat16
    assert export_checkpoint(run_dir, tmp_path / "model").gap < 1e-3


def test_a_kill_in_a_save_leaves_no_half_checkpoint(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends within each part of the second save: the first one is what a resume finds, and it is whole."""
    config, model = config_of(tmp_path), json.loads((run / "summary.json").read_text(encoding="utf-8"))["model"]["path"]
    overrides = verl_overrides(config, model_path=model, run_dir=tmp_path, total_steps=2)
    policy, place = Policy(config, Path(model), verl=verl_config(overrides)), tmp_path / "run" / "checkpoints"
    policy.save(place, step=1)
    (place.parent / "config.json").write_text("{}")
    first = {file.name: file.read_bytes() for file in (place / "global_step_1" / "actor").iterdir()}

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for name in ("torch.save", "sql_agent.local.policy.os.replace", "sql_agent.local.policy.write_text"):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(name, killed)
            policy.save(place, step=2)
        assert own_checkpoint(place, option="test").name == "global_step_1" and not list(place.glob(".saving*"))
        assert {file.name: file.read_bytes() for file in (place / "global_step_1" / "actor").iterdir()} == first
    for step in (2, 3):
        policy.save(place, step=step)
    assert sorted(path.name for path in place.iterdir()) == ["global_step_1", "global_step_2", "global_step_3", NOTE]


@pytest.mark.slow
def test_runs_that_are_killed_go_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    """Real processes, kill -9 as a checkpoint appears and its save has not ended, and others that go on."""
    sets = ["trainer.max_steps=4", "trainer.save_every=1", "trainer.keep_checkpoints=4"]
    sets += ["trainer.validate_first=false", "trainer.validate_every=-1"]
    sets += ["optim.questions_per_step=2", "optim.mini_batch_questions=1", "optim.micro_batch_rows=2"]
    sets += ["data.curriculum.on=true", "data.curriculum.probe=3", "rollout.resample_flat_groups=1"]
    sets += [
        "rollout.group_size=4",
        "optim.lr_schedule=cosine",
        "optim.kl_coef=0.01",
        "agent.system_prompt=system_short",
    ]
    command = [sys.executable, "-m", "sql_agent", "train", "--backend", "local", "--recipe", "smoke_cpu"]
    command += [part for text in sets for part in ("--set", text)]

    def start(runs: Path, *more: str) -> subprocess.Popen[bytes]:
        given = [*command, "--set", f"trainer.runs_dir={runs}", *more]
        return subprocess.Popen(given, cwd=ROOT, stdout=subprocess.DEVNULL)

    assert start(tmp_path / "whole").wait() == 0
    (whole,) = (tmp_path / "whole").iterdir()
    for sign in ("global_step_2", "global_step_3"):
        runs = tmp_path / f"killed at {sign}"
        process, began = start(runs), time.monotonic()
        try:
            while not list(runs.glob(f"*/checkpoints/{sign}")):
                assert process.poll() is None and time.monotonic() - began < WAIT_S
        finally:
            process.kill()
            process.wait()
        done = int(own_checkpoint(runs, option="test").name.rpartition("_")[2])
        assert start(runs, "--resume").wait() == 0 and done in (1, 2, 3)
        last = max(runs.iterdir(), key=lambda path: path.name)
        assert json.loads((last / "summary.json").read_text(encoding="utf-8"))["last_step"] == 4
        assert_same_run(whole, last, steps=range(done + 1, 5))
        known = [run / "checkpoints" / "global_step_4" / "curriculum.json" for run in (whole, last)]
        assert known[0].read_bytes() == known[1].read_bytes()


def test_a_fault_is_no_reward(tmp_path: Path) -> None:
    """A scorer that breaks leaves all rollouts unscored, and the run says why."""
    scorer = tmp_path / "broken.py"
    scorer.write_text(
        "from sql_agent.scorers import scorer\n\n\n@scorer('broken')\ndef broken(question, episode, context):\n"
        "    raise RuntimeError('no disk')\n"
    )
    few = {"questions_per_step": 1, "mini_batch_questions": 1, "micro_batch_rows": 2}
    reward = {"default_scorer": "broken", "scorer_modules": [str(scorer)]}
    config = config_of(tmp_path, {"reward": reward, "optim": few, "rollout": {"group_size": 2}})
    status, run_dir = run_local(config, Console(quiet=True))
    summary = json.loads((run_dir / "summary.json").read_text(encoding="utf-8"))
    assert status == 1 and summary["unscored"] == {"scorer_error": 2} and not summary["weights_changed"]
    assert "no question has two scored rollouts" in summary["error"] and "no disk" in summary["error"]


@pytest.mark.long
def test_nothing_of_an_episode_counts_after_its_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One that swallows its end and answers all the same, and one that goes on for ever."""
    text = """
        import asyncio

        async def play(question, endpoint, tools):
            for _ in range(1 if question.id == "0" else 10**6):
                try:
                    await asyncio.sleep(0.3 if question.id == "2" else 60)
                except asyncio.CancelledError:
                    pass
                if question.id == "2":
                    break
            return "42"
    """
    (tmp_path / "own.py").write_text(textwrap.dedent(text))
    agent = {"tools": [], "episode": f"{tmp_path / 'own.py'}:play", "system_prompt": "tools"}
    config = config_of(tmp_path, {"agent": agent, "rollout": {"rollout_timeout_s": 6.0}})
    tokenizer = small_tokenizer("?")
    sampler: Any = SimpleNamespace(answers=lambda calls: [])
    with (
        PolicyEndpoint(tokenizer, context_tokens=100, max_tokens=5) as endpoint,
        closing(Player(config, endpoint, ScoringContext(config.reward, judge_name="none"), seed=1)) as player,
    ):
        player.play(questions_of([0] * 3)[2:], sampler, step=1, mode="val")  # starts the processes of episodes
        began_s = time.monotonic()
        played = player.play(questions_of([0] * 3), sampler, step=2, mode="val")
        assert time.monotonic() - began_s < 20
    assert [row["unscored"] for row in played.rows] == ["timed_out", "timed_out", "no_reference"]
    assert [row["answer"] for row in played.rows] == ["", "", "42"]
    assert all(rollout.reward is None for rollout in played.finished.values())
    assert all("was ended" in row["reason"] for row in played.rows[:2])


def test_an_agent_that_asks_no_model_earns_nothing_and_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("async def play(question, endpoint, tools):\n    return '42'\n", encoding="utf-8")
    agent = {"tools": [], "episode": f"{tmp_path / 'own.py'}:play", "system_prompt": "tools"}
    config = config_of(tmp_path, {"agent": agent, "reward": {"default_scorer": "exact"}})
    sampler: Any = SimpleNamespace(answers=lambda calls: [])
    with (
        PolicyEndpoint(small_tokenizer("?"), context_tokens=100, max_tokens=5) as endpoint,
        closing(Player(config, endpoint, ScoringContext(config.reward, judge_name="none"), seed=1)) as player,
    ):
        question = questions_of([0])[0].model_copy(update={"answer": "42"})
        played = player.play([question], sampler, step=1, mode="val")
    assert [(row["answer"], row["unscored"]) for row in played.rows] == [("42", "no_llm_call")]
    assert [rollout.reward for rollout in played.finished.values()] == [None]


def questions_of(files: list[int]) -> list[Question]:
    return [Question(id=str(n), question="?", file=file) for n, file in enumerate(files)]


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"trainer": {"n_gpus": 2}}, "trainer.n_gpus = 2 must be 1 here"),
        ({"verl": {"actor_rollout_ref": {"actor": {"strategy": "fsdp2"}}}}, "strategy.: has no meaning in one process"),
        ({"verl": {"actor_rollout_ref": {"actor": {"optim": {"lr": 1}}}}}, "set optim.lr"),
        ({"rollout": {"tool_parser": "llama3_json"}}, "rollout.tool_parser = 'llama3_json' must be 'hermes'"),
        (
            {"rollout": {"async_groups": 4}, "optim": {"importance_correction": "truncated"}},
            "rollout.async_groups = 4 must be 0 here; --backend verl does it",
        ),
        ({"local": {"optimizer": "adamw_8bit"}}, "local.optimizer = 'adamw_8bit' needs a GPU and bitsandbytes"),
        ({"local": {"quantization": "nf4"}}, "add --lora"),
    ],
)
def test_what_has_no_meaning_here_is_refused(tmp_path: Path, tree: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        check_keys(config_of(tmp_path, tree))


def test_a_checkpoint_of_another_back_end_is_refused(run: Path, tmp_path: Path) -> None:
    check_checkpoint(str(run / "checkpoints" / "global_step_1"))
    for state in (None, '{"global_step": 1, "log_history": []}'):  # verl's, TRL's
        actor = tmp_path / str(bool(state)) / "actor"
        actor.mkdir(parents=True)
        if state:
            (actor / "trainer_state.json").write_text(state)
        with pytest.raises(UserError, match="was not made by `agentgrpo train --backend local`"):
            check_checkpoint(str(actor.parent))


@pytest.mark.long
def test_keys_of_the_update_are_obeyed(tmp_path: Path) -> None:
    """Mini-batches, epochs, warmup, a KL term, entropy, another loss and advantage, a correction and a cut sampler, one
    row a call, and other questions in the place of flat groups."""
    config = config_of(tmp_path, EVERYTHING)
    status, run_dir = run_local(config, Console(quiet=True))
    first, second = (row for row in lines(run_dir / "metrics.jsonl") if row["kind"] == "train")
    assert status == 0 and (first["actor/lr"], second["actor/lr"]) == (
        0.0,
        config.optim.lr / 2,
    )  # warms up in two steps
    assert not first["actor/weights_changed_share"] and second["actor/weights_changed_share"] > 0
    n_updates = 2 * (2 - second["actor/updates_without_signal"])  # epochs x mini-batches
    assert second["actor/updates"] == n_updates and second["actor/kl_coef"] == pytest.approx(0.02)
    assert second["actor/kl_to_start"] >= 0 and second["sampler/effective_sample_share"] <= 1 + 1e-6
    assert second["batch/rows"] == second["batch/calls"] > second["batch/rollouts"]
    replaced = first["rollout/replaced_groups"], second["rollout/replaced_groups"]
    assert first["rollout/resampled_groups"] >= replaced[0] and second["rollout/resampled_groups"] >= replaced[1]
    rows = lines(run_dir / "rollouts.jsonl")
    fresh = [row for row in rows if row["resampled"]]
    assert len(fresh) == 4 * (first["rollout/resampled_groups"] + second["rollout/resampled_groups"]) > 0
    assert len({(row["step"], row["rollout_id"]) for row in rows}) == len(rows)
    found = verify(run_dir)
    assert not found.problems and found.counts["updates"] == 2


@pytest.mark.long
def test_a_teacher_and_what_succeeded_are_learned_from(run: Path, tmp_path: Path) -> None:
    """The teacher is the start model: before the first update nothing is between them."""
    model = json.loads((run / "summary.json").read_text(encoding="utf-8"))["model"]["path"]
    optim = {"teacher": model, "kl_coef": 1.0, "kl_estimator": "k2", "imitation_coef": 0.1, "imitated_from": 0.3}
    probe = {"data": {"curriculum": {"on": True, "probe": 2}}}
    status, run_dir = run_local(config_of(tmp_path, {"optim": optim}, probe), Console(quiet=True))
    (probed, train, *_) = lines(run_dir / "metrics.jsonl")
    assert (probed["kind"], probed["probe/groups"]) == ("probe", 2)
    assert 0 < probed["curriculum/new"] - train["curriculum/new"] <= 4
    assert status == 0 and train["actor/kl_to_teacher"] == pytest.approx(0, abs=1e-9) and not verify(run_dir).problems
    assert train["actor/imitation_loss"] > 0 and train["actor/kl_coef"] == 1.0 and "actor/kl_to_start" not in train
    with pytest.raises(UserError, match=r"optim\.teacher = '/nowhere': no model folder"):
        run_local(config_of(tmp_path, {"optim": {**optim, "teacher": "/nowhere"}}), Console(quiet=True))


EVERYTHING: dict[str, Any] = {
    "trainer": {"max_steps": 2, "save_every": -1},
    "rollout": {"level": "transition", "top_p": 0.9, "resample_flat_groups": 2, "temperature": 0.7},
    "optim": {
        **{"loss": "cispo", "advantage": "group_no_std", "loss_aggregation": "seq-mean-token-mean", "warmup": 2},
        **{"mini_batch_questions": 2, "kl_coef": 0.02, "kl_estimator": "k2", "entropy_coef": 0.001},
        "importance_correction": "truncated",
        **{"credit": "phases", "turn_shaping": 0.2},
    },
    "verl": {"actor_rollout_ref": {"actor": {"ppo_epochs": 2}}},
}
