"""train_sft.py and train_dpo.py on a small policy: the run folder, resumption, export, and TRL's losses recomputed."""

from __future__ import annotations

import copy
import importlib.util
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.kto_config import KTOConfig
from trl.trainer.sft_config import SFTConfig
from typer.testing import CliRunner

from foundation import run_folder
from foundation.errors import UserError
from foundation.files import read_lines, write_lines
from foundation.modules import hidden
from sql_agent.commands.export import export_checkpoint
from sql_agent.config import ROOT, DpoConfig, SftConfig, build_config, parse_assignment
from sql_agent.evaluation.targets import look_at
from sql_agent.run_report.folder import read_run
from sql_agent.run_report.page import build
from sql_agent.serving.checkpoint_model import checkpoint_model
from sql_agent.serving.checkpoints import own_checkpoint
from sql_agent.tiny_policy.build import app as build_app
from sql_agent.tiny_policy.demonstrations import app as demonstrations_app
from sql_agent.training.models import load_model
from sql_agent.training.verl_config import flatten
from sql_agent.tuning import trainers
from sql_agent.tuning.arguments import trl_arguments
from sql_agent.tuning.encoding import Encoded
from sql_agent.tuning.trainers import alike
from tests.fsdp_shards import policy
from tests.typed import status_of

WAIT_S = 240.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    """A model folder with random weights and the tiny policy's tokenizer."""
    folder = tmp_path_factory.mktemp("policy")
    policy(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Conversations and pairs, 24 of each."""
    folder = tmp_path_factory.mktemp("data")
    rows = [{"prompt": f"{n}的适应症", "chosen": f"用于{n}痛。", "rejected": f"不知道{n * n}。"} for n in range(24)]
    write_lines(folder / "pairs.jsonl", rows)
    write_lines(folder / "chats.jsonl", [{"prompt": row["prompt"], "completion": row["chosen"]} for row in rows])
    return folder


def flags(method: str, model: Path, data: Path, runs: Path, *more: str) -> list[str]:
    file = {"sft": "chats.jsonl", "dpo": "pairs.jsonl"}[method]
    given = ["--model", str(model), "--data", str(data / file), "--batch-size", "4", "--lr", "1e-2"]
    sets = ['logging.trackers=["console"]', "trainer.device=cpu", f"trainer.runs_dir={runs}", "trainer.save_every=3"]
    return [*given, "--gradient-accumulation-steps", "2", *(part for text in sets for part in ("--set", text)), *more]


Run = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path, model: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls a command in this process; gives the new run folder."""
    monkeypatch.setattr("sql_agent.commands.tune.report_line", lambda folder: f"report: {folder}")

    def call(method: Any, *more: str, status: int = 0) -> Path:
        runs, handlers = tmp_path / "runs", [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
        before = set(runs.glob("*"))
        try:
            assert status_of(method, *flags(method, model, data, runs, *more)) == status
        finally:
            for number, handler in zip((signal.SIGINT, signal.SIGTERM), handlers, strict=True):
                signal.signal(number, handler)
        (folder,) = set(runs.glob("*")) - before
        return folder

    return call


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoint_model(own_checkpoint(folder, option="test") / "actor").state_dict()


@pytest.mark.long
@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_a_run_leaves_what_a_run_of_grpo_leaves(method: str, run: Run, model: Path, tmp_path: Path) -> None:
    folder = run(method, "--epochs", "2")
    summary = json.loads((folder / run_folder.SUMMARY).read_text())
    assert (summary["status"], summary["steps"], summary["method"]) == ("finished", 6, method)
    assert summary["weights_changed"] and summary["loss"] < summary["loss_first_step"]
    assert 0 < summary["tokens"]["supervised"] < summary["tokens"]["all"]
    metrics = read_lines(folder / run_folder.METRICS)
    assert [(row["kind"], row["step"]) for row in metrics if row["kind"] == "checkpoint"] == [
        ("checkpoint", 3),
        ("checkpoint", 6),
    ]
    assert not list(folder.glob("**/training_args.bin"))
    page = build(read_run(folder))
    assert "loss" in page.charts and "Gradient norm" in {series.title for series, _ in page.panels}
    export_checkpoint(folder, tmp_path / "out")
    assert "(TRL)" in (tmp_path / "out" / "README.md").read_text()
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    assert all(torch.equal(exported[name], value) for name, value in weights(folder).items())
    assert (tmp_path / "out" / "chat_template.jinja").is_file() and not list((tmp_path / "out").glob("trainer*"))
    target = look_at(str(folder), build_config(), option="--before")
    assert target.kind == "checkpoint" and target.text.endswith("global_step_6")


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "more"), [("sft", []), ("dpo", []), pytest.param("dpo", ["--loss", "kto"], marks=pytest.mark.slow)]
)
def test_a_stopped_run_goes_on_to_the_same_weights(
    method: str, more: list[str], run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM comes from the run itself, within its fourth step: after it the checkpoint of that step is there."""
    whole = run(method, "--epochs", "2", *more)
    from sql_agent.tuning import watch

    told = watch.Watch.on_step_begin

    def on_step_begin(self: Any, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        told(self, args, state, control, **more)

    monkeypatch.setattr(watch.Watch, "on_step_begin", on_step_begin)
    stopped = run(method, "--epochs", "2", *more, status=130)
    monkeypatch.undo()
    monkeypatch.setattr("sql_agent.commands.tune.report_line", lambda folder: "report: none")
    assert json.loads((stopped / run_folder.SUMMARY).read_text())["status"] == "interrupted"
    assert own_checkpoint(stopped, option="test").name == "global_step_4"
    resumed = run(method, "--epochs", "2", *more, "--resume", str(stopped))
    assert [row["step"] for row in read_lines(resumed / run_folder.METRICS) if row["kind"] == "train"] == [5, 6]
    expected, found = weights(whole), weights(resumed)
    assert max(float((found[name] - value).abs().max()) for name, value in expected.items()) < 1e-6


@pytest.mark.long
def test_an_adapter_is_trained_resumed_and_merged(run: Run, model: Path, tmp_path: Path) -> None:
    first = run("sft", "--lora-rank", "4", "--max-steps", "3")
    more = ["--max-steps", "4", "--lr", "3e-3", "--set", "trainer.resume_changed=true"]
    second = run("sft", "--lora-rank", "4", *more, "--resume", str(first))
    rates = [row["actor/lr"] for row in read_lines(second / run_folder.METRICS) if row["kind"] == "train"]
    assert rates == [pytest.approx(3e-3 / 4)]  # of this run, in the last of its four steps
    export = export_checkpoint(second, tmp_path / "merged")
    assert export.gap < 1e-4
    start, merged = (AutoModelForCausalLM.from_pretrained(path).state_dict() for path in (model, tmp_path / "merged"))
    assert set(start) == set(merged) and any(not torch.equal(start[name], merged[name]) for name in start)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["dpo", "kto"])
def test_preferences_compare_with_the_adapter_that_they_go_on_from(
    loss: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first update a policy is as likely as its reference to say anything: no pair has a margin."""
    monkeypatch.setattr("sql_agent.serving.merged_start.MERGED", tmp_path / "merged")
    first = run("sft", "--lora-rank", "4", "--max-steps", "3")
    adapter = own_checkpoint(first, option="test") / "actor"
    given = ["--lora-rank", "4", "--set", f"model.lora_adapter_path={adapter}", "--max-steps", "2", "--loss", loss]
    folder = run("dpo", *given)
    start, moved = [row for row in read_lines(folder / run_folder.METRICS) if row["kind"] == "train"]
    assert start["train/pair_margin"] == pytest.approx(0.0, abs=1e-6) != moved["train/pair_margin"]
    assert export_checkpoint(folder, tmp_path / "out").gap < 1e-4


@pytest.mark.long
def test_an_untrained_tiny_policy_learns_from_its_demonstrations(run: Run, tmp_path: Path) -> None:
    start, shown = tmp_path / "untrained", tmp_path / "shown.jsonl"
    assert CliRunner().invoke(build_app, ["--seed", "3", "--untrained", "--out", str(start)]).exit_code == 0
    assert CliRunner().invoke(demonstrations_app, ["--rows", "40", "--out", str(shown)]).exit_code == 0
    given = ["--recipe", "warm_start_cpu", "--model", str(start), "--data", str(shown)]
    folder = run("sft", *given, "--lr", "3e-3", "--set", "sft.warmup_share=0", "--max-steps", "4")
    losses = [row["train/loss"] for row in read_lines(folder / run_folder.METRICS) if row["kind"] == "train"]
    assert len(losses) == 4 and losses[-1] < losses[0] - 0.5
    again = CliRunner().invoke(build_app, ["--untrained", "--out", str(start)])
    assert again.exit_code == 2 and "name a new folder" in again.output


@pytest.mark.long
def test_what_cannot_be_resumed_is_refused(run: Run, model: Path, data: Path, tmp_path: Path, capfd: Any) -> None:
    folder = run("sft", "--max-steps", "3")
    runs = tmp_path / "runs"
    for more, rule in {
        ("--max-steps", "3"): "step 3 is done, and the run has 3",
        ("--max-steps", "6", "--best-of", "2"): "sft.best_of: 1 -> 2",
        ("--max-steps", "6", "--set", "data.seed=3"): "data.seed: 1 -> 3",  # another order of the rows
    }.items():
        assert status_of("sft", *flags("sft", model, data, runs, "--resume", str(folder), *more)) == 2
        assert rule in capfd.readouterr().err.replace("\n", " ")
    given = flags("dpo", model, data, runs, "--resume")
    assert status_of("dpo", *given) == 2 and "method = dpo" in capfd.readouterr().err
    out = flags("sft", model, data, runs, "--out", str(tmp_path))
    assert status_of("sft", *out) == 2 and "name a new folder" in capfd.readouterr().err


# The losses


PAIRS = [
    (Encoded([1, 2, 3, 4, 5], [0, 0, 1, 0, 1]), Encoded([1, 2, 6], [0, 0, 1])),
    (Encoded([2, 2, 7, 8], [0, 0, 1, 1]), Encoded([2, 2, 9, 4, 4, 1], [0, 0, 1, 1, 0, 1])),
]


@torch.no_grad()
def log_prob(model: Any, row: Encoded) -> tuple[float, int]:
    """The sum of the policy tokens' log-probabilities, in float64, token by token and without padding."""
    logits = model.double()(input_ids=torch.tensor([row.ids])).logits[0]
    said = [n for n, on in enumerate(row.mask) if on]
    return sum(float(torch.log_softmax(logits[n - 1], -1)[row.ids[n]]) for n in said), len(said)


def trainer_of(loss: str, model: Path, tokenizer: Any, tmp_path: Path) -> Any:
    """A trainer of PAIRS whose policy has moved away from the reference."""
    tree = {"method": "dpo", "dpo": {"loss": loss, "beta": 0.3, "batch_size": 2}, "trainer": {"device": "cpu"}}
    config = build_config(tree, {"logging": {"trackers": ["console"]}})
    arguments = trl_arguments(config.tune, config.trainer, config.logging, run_dir=tmp_path, steps=1)
    given = {"arguments": arguments, "lora": None, "epochs": 1, "seed": 0}
    trainer = trainers.trainer_of(config.tune, load_model(config.model, model), tokenizer, PAIRS, **given)
    with torch.no_grad():
        for n, weight in enumerate(trainer.model.parameters()):
            weight += 0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(n))
    return trainer


def ratio(trainer: Any, row: Encoded) -> tuple[float, int]:
    """log p - log p_start of the policy's tokens, and their number."""
    (new, n), (old, _) = (log_prob(one, row) for one in (trainer.model, trainer.ref_model))
    return new - old, n


@pytest.mark.parametrize("loss", ["dpo", "ipo"])
def test_the_loss_is_the_papers(loss: str, model: Path, tokenizer: Any, tmp_path: Path) -> None:
    trainer = trainer_of(loss, model, tokenizer, tmp_path)
    batch = trainer.data_collator([trainer.train_dataset[n] for n in range(2)])
    with torch.no_grad():
        found = trainer.compute_loss(trainer.model.eval(), batch)
    expected = []
    for pair in PAIRS:
        sides = [total / (n if loss == "ipo" else 1) for total, n in (ratio(trainer, row) for row in pair)]
        gap = sides[0] - sides[1]
        expected.append((gap - 1 / (2 * 0.3)) ** 2 if loss == "ipo" else math.log1p(math.exp(-0.3 * gap)))
    assert float(found) == pytest.approx(sum(expected) / 2, abs=1e-5)
    assert trainer._metrics["eval"]["rewards/margins"] != [0]


@pytest.mark.parametrize("far", [False, True])
def test_kto_is_the_papers(far: bool, model: Path, tokenizer: Any, tmp_path: Path) -> None:
    """Each prompt with what the row before it says tells how far the policy has moved; that counts where it is > 0."""
    trainer = trainer_of("kto", model, tokenizer, tmp_path)
    if far:  # the other direction, in which what other rows say has become likelier
        moved = copy.deepcopy(trainer.model.state_dict())
        trainer.model.load_state_dict(trainer.ref_model.state_dict())
        trainer.ref_model.load_state_dict(moved)
    batch = trainer.data_collator([trainer.train_dataset[n] for n in range(2)])
    with torch.no_grad():
        found = trainer.compute_loss(trainer.model.eval(), batch)
    order = [PAIRS[n] for n in ((0, 1) if trainer.train_dataset[0]["sides"][0][0] == PAIRS[0][0].ids else (1, 0))]
    rows = [pair[0] for pair in order] + [pair[1] for pair in order]
    swapped = []
    for row, other in zip(rows, [rows[-1], *rows], strict=False):
        at, start = row.mask.index(1), other.mask.index(1)
        swapped.append(Encoded(row.ids[:at] + other.ids[start:], row.mask[:at] + other.mask[start:]))
    distance = max(0.0, sum(ratio(trainer, row)[0] for row in swapped) / 4)
    signs = [1, 1, -1, -1]
    gaps = [sign * (ratio(trainer, row)[0] - distance) for sign, row in zip(signs, rows, strict=True)]
    assert float(found) == pytest.approx(sum(1 - 1 / (1 + math.exp(-0.3 * gap)) for gap in gaps) / 4, abs=1e-5)
    assert (distance > 0) is far


@pytest.mark.long
def test_the_supervised_loss_is_over_the_masked_tokens_alone(run: Run, model: Path, data: Path, tokenizer: Any) -> None:
    """The loss of the first step, before any update, recomputed in float64."""
    from sql_agent.tuning.encoding import Encoder
    from sql_agent.tuning.sources import read_source

    folder = run("sft", "--max-steps", "1", "--max-samples", "8")
    (row,) = [row for row in read_lines(folder / run_folder.METRICS) if row["kind"] == "train"]
    config = build_config({"sft": {"dataset": str(data / "chats.jsonl")}})
    rows = [
        Encoded.of(Encoder(tokenizer).rows(chat)[0]) for chat in read_source(config.sft, config.data, config).chats[:8]
    ]
    start = AutoModelForCausalLM.from_pretrained(model)
    found = [log_prob(start, row) for row in rows]
    mean = -sum(total for total, _ in found) / sum(n for _, n in found)
    assert row["train/loss"] == pytest.approx(mean, abs=1e-4)  # the log has four digits


def test_rows_of_like_length_share_a_batch() -> None:
    lengths = [17 * n % 101 for n in range(100)]
    order = random.Random(1).sample(range(100), 100) + random.Random(2).sample(range(100), 100)
    found = trainers.alike(order, lengths, batch_rows=4, rng=random.Random(3))
    assert sorted(found) == sorted(order) and found == trainers.alike(
        order, lengths, batch_rows=4, rng=random.Random(3)
    )
    assert sorted(found[:32]) == sorted(order[:32]) and found[:32] != sorted(found[:32], key=lambda n: lengths[n])

    def padded(rows: list[int]) -> int:
        return sum(4 * max(lengths[n] for n in rows[at : at + 4]) for at in range(0, len(rows), 4))

    assert padded(found) < 0.8 * padded(order)
    assert sorted(alike([2, 0, 1], lengths, batch_rows=2, rng=random.Random(3))) == [0, 1, 2]


# Settings

CHANGED = [
    *("epochs=9", "max_steps=7", "batch_size=2", "gradient_accumulation_steps=3", "lr=0.1", "lr_schedule=cosine"),
    *("warmup_share=0.5", "weight_decay=0.1", "grad_clip=0.5"),
]
READ_ELSEWHERE = {"dataset", "output_dir", "max_samples", "max_tokens", "min_reward", "best_of", "margin"}
READ_ELSEWHERE |= {"pairs_per_question", "epochs", "max_steps"}  # sources, choice and job


@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_every_setting_has_a_reader(method: str) -> None:
    def arguments(*texts: str) -> dict[str, Any]:
        config = build_config({"method": method}, *(parse_assignment(f"{method}.{text}") for text in texts))
        return flatten(trl_arguments(config.tune, config.trainer, config.logging, run_dir=Path("/r"), steps=5))

    changed = [*CHANGED, *(["loss=ipo", "beta=0.5"] if method == "dpo" else [])]
    names = {text.partition("=")[0] for text in changed}
    fields = {"sft": SftConfig, "dpo": DpoConfig}[method].model_fields
    assert names | READ_ELSEWHERE >= set(fields)
    silent = [text for text in changed if arguments(text) == arguments()]
    assert {text.partition("=")[0] for text in silent} <= READ_ELSEWHERE


def test_trl_takes_the_arguments(tmp_path: Path) -> None:
    kto = {"dpo": {"loss": "kto", "batch_size": 2}}
    for method, more, kind in (("sft", {}, SFTConfig), ("dpo", {}, DPOConfig), ("dpo", kto, KTOConfig)):
        tree = {"method": method, "trainer": {"device": "cpu"}, "logging": {"trackers": ["console"]}}
        config = build_config(tree, more)
        args = trl_arguments(config.tune, config.trainer, config.logging, run_dir=tmp_path, steps=3)
        assert kind(**args).max_steps == 3
    with pytest.raises(UserError, match="give 2 or more pairs"):
        build_config({"dpo": {"loss": "kto"}})


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_the_command_can_be_killed_and_is_resumed_by_name(method: str, model: Path, data: Path, tmp_path: Path) -> None:
    """A real process and kill -9: what it saved is gone on with."""
    command = [sys.executable, str(ROOT / "sql_agent" / f"train_{method}.py")]
    given = flags(method, model, data, tmp_path / "runs", "--epochs", "2000")
    process = subprocess.Popen([*command, *given], cwd=ROOT / "sql_agent", stdout=subprocess.DEVNULL)
    began = time.monotonic()
    try:
        while not list(tmp_path.glob("runs/*/checkpoints/latest_checkpointed_iteration.txt")):
            assert process.poll() is None and time.monotonic() - began < WAIT_S
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    done = int(own_checkpoint(tmp_path / "runs", option="test").name.rpartition("_")[2])
    more = ["--resume", "--max-steps", str(done + 2), "--out", str(tmp_path / "new" / "model")]
    again = subprocess.run([*command, *given, *more], cwd=ROOT, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    last = max(tmp_path.glob("runs/*"), key=lambda path: path.stat().st_mtime)
    metrics = [row["step"] for row in read_lines(last / run_folder.METRICS) if row["kind"] == "train"]
    assert metrics == [done + 1, done + 2]
    assert (last / "report.html").is_file() and (tmp_path / "new" / "model" / "model.safetensors").is_file()


def test_a_hidden_package_is_not_installed_for_others() -> None:
    with hidden("tabnanny", "sys"):
        assert importlib.util.find_spec("tabnanny") is None
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("tabnanny")
        assert importlib.import_module("sys") is sys  # loaded already
    assert importlib.util.find_spec("tabnanny") is not None


@pytest.mark.slow
def test_trl_comes_without_vllm_and_wandb() -> None:
    code = (
        "import sys\nfrom sql_agent.tuning.job import light_trl\n"
        "with light_trl(['console']):\n    import sql_agent.tuning.trainers\n"
        "assert 'trl' in sys.modules and not {'vllm', 'wandb'} & sys.modules.keys()\nimport wandb"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
