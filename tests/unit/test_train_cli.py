"""The command line of training: its flags, what they imply, and the message for each wrong input before the start.

The checks are the real ones, on a small real database and question file; no training is started.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest

from foundation.errors import UserError
from foundation.net import free_port
from sql_agent.config import ROOT, TrainConfig, build_config, parse_assignment
from sql_agent.data.dataset import write_parquet
from sql_agent.records import Question
from sql_agent.scoring.build import build_context
from sql_agent.training import external_store
from sql_agent.training.options import DEFAULT_LORA_RANK, resolve_config
from sql_agent.training.questions import load_data, total_steps
from sql_agent.tuning import options as tuning
from tests.sql_db import make_database
from tests.typed import params, status_of, train_flags, tune_flags

COMMANDS = ("train_sql_agent.py", "evaluate.py", "sqlagent_test.py", "export.py", "report.py", "judge_report.py")
CPU = ["--set", "trainer.device=cpu"]


def resolve(*arguments: str) -> TrainConfig:
    return resolve_config(train_flags(*CPU, *arguments))


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AGL_MANAGED_STORE", "AGL_CURRENT_ROLE", "TEACHER_API_KEY", "TEACHER_MODEL", "TEACHER_BASE_URL"):
        # Set, because main() reads .env, which fills only what is not there.
        monkeypatch.setenv(name, {"AGL_MANAGED_STORE": "1", "AGL_CURRENT_ROLE": "both"}.get(name, ""))
    handlers = [(s, signal.getsignal(s)) for s in (signal.SIGTERM, signal.SIGINT)]
    yield
    for number, handler in handlers:
        signal.signal(number, handler)  # main() sets its own


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Flags that name a small real database and question file."""
    questions = [
        Question(id=f"q{n}", question=f"药品{n:03d}的适应症是什么？", answer="发热；头痛") for n in range(1, 17)
    ]
    write_parquet(questions, tmp_path / "questions.parquet")
    data = str(tmp_path / "questions.parquet")
    database = f"database.path={make_database(tmp_path)}"
    runs = f"trainer.runs_dir={tmp_path / 'runs'}"
    return [*CPU, "--data", data, "--val-data", data, "--set", database, "--set", runs]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_python_without_the_packages_is_told_where_they_are(command: str) -> None:
    done = subprocess.run([sys.executable, "-S", ROOT / "sql_agent" / command], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("error: No module named")
    assert "`make setup`" in done.stderr and "Traceback" not in done.stderr


def test_all_documented_flags_are_accepted() -> None:
    arguments = [
        *("--data", "t.parquet", "--val-data", "v.parquet", "--model", "/m", "--ci", "--ci-fast"),
        *("--n-runners", "3", "--n-gpus", "1", "--store", "http://localhost:9999"),
        *("--mongo-uri", "mongodb://localhost", "--trajectory-level", "--lora", "--lora-rank", "8"),
        *("--lora-adapter-path", "/a", "--debug", "--resume"),
    ]
    config = resolve(*arguments)
    assert (config.data.train_file, config.data.val_file, config.model.path) == ("t.parquet", "v.parquet", "/m")
    assert (config.rollout.n_runners, config.trainer.n_gpus, config.rollout.level) == (3, 1, "trajectory")
    assert (config.store.external_address, config.store.mongo_uri) == ("http://localhost:9999", "mongodb://localhost")
    assert (config.model.lora_rank, config.model.lora_adapter_path) == (8, "/a")
    assert config.logging.debug and config.trainer.resume == "latest" and config.trainer.max_steps == 1


@pytest.mark.parametrize(
    ("flags", "key", "value"),
    [
        ("", "trainer.resume", ""),
        ("--resume", "trainer.resume", "latest"),
        ("--resume --ci", "trainer.resume", "latest"),
        ("--resume latest", "trainer.resume", "latest"),
        ("--resume runs/a", "trainer.resume", "runs/a"),
        ("", "model.lora_rank", 0),
        ("--lora", "model.lora_rank", 32),
        ("--lora-adapter-path /a", "model.lora_rank", 32),
        ("--lora-rank 8", "model.lora_rank", 8),
        ("--lora --lora-rank 4", "model.lora_rank", 4),
        ("--ci", "trainer.max_steps", 20),
        ("--ci --set trainer.max_steps=5", "trainer.max_steps", 5),
        ("--ci --set trainer.max_steps=100", "trainer.max_steps", 20),
        ("--set trainer.max_steps=100", "trainer.max_steps", 100),
        ("--n-runners 3 --set rollout.n_runners=5 --set rollout.n_runners=6", "rollout.n_runners", 6),
        # 16 questions a step fit smoke_cpu's mini batch of 8, though not the default's of 32.
        ("--set optim.questions_per_step=16", "optim.mini_batch_questions", 8),
    ],
)
def test_what_flags_mean(flags: str, key: str, value: object) -> None:
    assert attrgetter(key)(resolve(*flags.split())) == value


def test_flags_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    """--lora must not be taken for the beginning of --lora-rank, nor a typo for a flag."""
    assert status_of("train", "--n-runner", "3") == 2 and "--n-runner" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("train --fork --dry-run", "--fork': a value is missing: --dry-run is a flag of its own"),
        ("ask --question --json", "--question': a value is missing: --json is a flag of its own"),
        ("evaluate --before a --model b", "--before and --model set the same; give one"),
        ("mine shop.db --no-train --train", "--no-train and --train set the same; give one"),
    ],
)
def test_flags_that_are_no_values_and_names_of_one_flag_are_told(
    line: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert status_of(*line.split()) == 2
    assert told in capfd.readouterr().err


def test_a_value_may_look_like_a_flag_behind_an_equals_sign() -> None:
    assert params("ask", "--question=--json", "--limit", "2", "--limit", "3")["question"] == ["--json"]


@pytest.mark.parametrize("zero", [("--lora-rank", "0"), ("--set", "model.lora_rank=0")])
def test_adapters_of_rank_0_are_refused(zero: tuple[str, str]) -> None:
    with pytest.raises(UserError, match="--lora trains adapters, and a rank of 0 all weights"):
        resolve("--lora", *zero)
    assert resolve("--recipe", "qwen2_5_7b_lora", *zero).model.lora_rank == 0


def test_lora_keeps_the_rank_of_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "wide.toml").write_text("[model]\nlora_rank = 64\n", encoding="utf-8")
    assert resolve("--recipe", str(tmp_path / "wide.toml"), "--lora").model.lora_rank == 64


def test_without_a_gpu_the_smoke_recipe_runs() -> None:
    config = resolve()
    assert (config.recipe, config.trainer.device, config.trainer.max_steps) == ("smoke_cpu", "cpu", 20)
    assert config.agent.system_prompt == "system_short"
    assert resolve("--model", "/m").agent.system_prompt == "system_zh"


def test_ci_fast_is_one_small_step_with_one_validation() -> None:
    config = resolve("--ci-fast")
    assert (config.trainer.max_steps, config.trainer.validate_first) == (1, False)
    assert (config.optim.questions_per_step, config.optim.mini_batch_questions, config.data.val_max_rows) == (4, 4, 8)
    assert config.trainer.save_every > 0 and config.trainer.validate_every > 0
    assert total_steps(config, 1000) == 1


@pytest.mark.parametrize("group_size", [2, 3, 4, 5, 8])
def test_ci_fast_works_with_every_group_size(group_size: int) -> None:
    """What fits the recipe's batch must not fail because --ci-fast made the batch smaller."""
    settings = f"rollout.group_size={group_size}"
    assert resolve("--set", settings).rollout.group_size == group_size
    assert resolve("--ci-fast", "--set", settings).trainer.max_steps == 1


def test_steps_follow_from_questions_and_epochs() -> None:
    config = build_config({"optim": {"questions_per_step": 8, "mini_batch_questions": 8}, "trainer": {"epochs": 3}})
    assert total_steps(config, 20) == 6
    assert total_steps(build_config(config.model_dump(), {"trainer": {"max_steps": 4}}), 20) == 4


@pytest.mark.parametrize("n_questions", [1, 2, 5, 7])
def test_too_few_questions_are_refused_with_a_remedy_that_works(n_questions: int) -> None:
    config = resolve()
    with pytest.raises(UserError, match=f"{n_questions} questions, but a step takes .* = 8") as caught:
        total_steps(config, n_questions)
    sets = [parse_assignment(text) for text in re.findall(r"--set (\S+)", str(caught.value))]
    assert total_steps(build_config(config.model_dump(), *sets), n_questions) >= 1


def loaded(config: TrainConfig) -> tuple[list[Question], list[Question]]:
    return load_data(config, build_context(config.reward, config.database))


def test_questions_and_their_scorers_are_checked(tmp_path: Path, files: list[str]) -> None:
    train, val = loaded(resolve(*files, "--set", "data.val_max_rows=3"))
    assert (len(train), len(val)) == (16, 3)
    odd = [Question(id="a", question="?", answer="x"), Question(id="b", question="?", answer="x", scorer="exct")]
    write_parquet(odd, tmp_path / "odd.parquet")
    with pytest.raises(UserError, match=r"row 2 \(b\): scorer 'exct'.*did you mean exact"):
        loaded(resolve(*files, "--data", str(tmp_path / "odd.parquet")))
    write_parquet([Question(id="a", question="?")], tmp_path / "bare.parquet")
    with pytest.raises(UserError, match=r"bare.parquet: 1 of 1 questions have no reference answer \(rows 1\)"):
        loaded(resolve(*files, "--data", str(tmp_path / "bare.parquet")))


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What main() prints on stderr when it refuses its input."""
    assert status_of("train", *arguments) == 2
    text = capsys.readouterr().err
    assert text.startswith("error: ") and "Traceback" not in text
    return text


@pytest.mark.parametrize(
    ("variables", "flags", "text"),
    [
        ("", "--weave", "token ids come from the LLM proxy"),
        ("", "--recipe none", "Recipes: "),
        ("", "--n-gpus 2", "--n-gpus 2: on a CPU"),
        ("AGL_MANAGED_STORE=1", "--store http://localhost:1", "with AGL_MANAGED_STORE=1"),
        ("AGL_MANAGED_STORE=0", "--store http://localhost:1 --mongo-uri mongodb://h", "exclude each other"),
        ("", "--dry-run --mongo-uri garbage", "--mongo-uri garbage: Invalid URI scheme"),
        ("", "--dry-run --mongo-uri $NO_SUCH", "--mongo-uri $NO_SUCH: Invalid URI scheme"),
        ("", "--dry-run --mongo-uri mongodb://:99999", "--mongo-uri mongodb://:99999: "),
        ("", "--mongo-uri mongodb://127.0.0.1:1", "mongodb://127.0.0.1:1: 127.0.0.1:1: [Errno 111] Connection refused"),
        ("AGL_MANAGED_STORE=maybe", "", "AGL_MANAGED_STORE=maybe: must be 1 for a store of the run's own, or 0"),
        ("AGL_SERVER_PORT=abc", "--dry-run", "AGL_SERVER_PORT = 'abc': not a port"),
        ("AGL_MANAGED_STORE=0", "--dry-run --store localhost:1", "--store localhost:1: no agent-lightning store"),
        ("AGL_CURRENT_ROLE=worker", "", "AGL_CURRENT_ROLE=worker: must be algorithm, runner or both"),
        ("", "--resume", "--resume latest: no complete global_step_N folder below"),
        ("", "--set database.path=/none.db", "none.db"),
    ],
)
def test_main_refuses_what_cannot_be(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    files: list[str],
    variables: str,
    flags: str,
    text: str,
) -> None:
    monkeypatch.setattr(external_store, "MONGO_LIMIT_S", 0.1, raising=False)
    for variable in variables.split():
        monkeypatch.setenv(*variable.split("="))
    assert text in refusal(capsys, *files, *flags.split())


@pytest.mark.parametrize("is_named", [True, False])
def test_a_password_of_mongodb_is_in_no_argument_and_no_error(
    capsys: pytest.CaptureFixture[str], files: list[str], monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    """Settings are written into the run folder; a variable may hold it."""
    address = "mongodb://me:sekret99@127.0.0.1:1/x"
    monkeypatch.setattr(external_store, "MONGO_LIMIT_S", 0.1)
    monkeypatch.setenv("MINE", address)
    text = refusal(capsys, *files, "--mongo-uri", "$MINE" if is_named else address)
    assert ("Connection refused" if is_named else "holds a password") in text and "sekret99" not in text


@pytest.mark.parametrize("is_named", [True, False])
def test_main_refuses_a_store_that_does_not_answer(
    capsys: pytest.CaptureFixture[str], files: list[str], monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    """One that is named, and one of one's own at the usual address."""
    address = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("AGL_MANAGED_STORE", "0")
    monkeypatch.setattr(external_store, "START_LIMIT_S", 0.0)
    if not is_named:
        monkeypatch.setattr(external_store, "USUAL_ADDRESS", address)
    text = refusal(capsys, *files, *(["--store", address] if is_named else []))
    assert f"{address}: no agent-lightning store answers there" in text and "agl store --host 127.0.0.1" in text


def test_a_runner_machine_needs_no_gpu(
    capsys: pytest.CaptureFixture[str], files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runners load no model; the recipe of the GPU machine, given here too, is about the other half."""
    monkeypatch.setenv("AGL_MANAGED_STORE", "0")
    monkeypatch.setenv("AGL_CURRENT_ROLE", "runner")
    monkeypatch.setattr(external_store, "START_LIMIT_S", 0.0)
    arguments = [*files, "--recipe", "qwen2_5_7b", "--set", "trainer.device=cuda", "--n-gpus", "16"]
    text = refusal(capsys, *arguments, "--store", "http://127.0.0.1:1")
    assert "no agent-lightning store answers" in text


@pytest.mark.long
def test_main_refuses_files_that_cannot_be_used(
    capsys: pytest.CaptureFixture[str], files: list[str], tmp_path: Path
) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no parquet")
    for flag, value, text in (
        ("--data", str(tmp_path / "broken.parquet"), "broken.parquet: not a readable parquet file"),
        ("--val-data", str(tmp_path / "none.parquet"), "none.parquet: does not exist"),
        ("--set", "data.val_file=nope.jsonl", f"data.val_file = {Path.cwd()}/nope.jsonl: does not exist, nor is it"),
        ("--model", "./no-such-model", "--model ./no-such-model: no such folder"),
        ("--model", str(tmp_path), "config.json is missing"),
    ):
        assert text in refusal(capsys, *files, flag, value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("folder", ["sql_agent", "."])
def test_help_works_from_both_folders(folder: str) -> None:
    script = "train_sql_agent.py" if folder == "sql_agent" else "sql_agent/train_sql_agent.py"
    done = subprocess.run(
        [sys.executable, script, "--help"], cwd=ROOT / folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "--resume" in done.stdout and "agl store" in done.stdout


@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_adapters_of_rank_0_are_refused_by_the_others_too(method: tuning.Method) -> None:
    flags = tune_flags(method, *CPU, "--lora", "--lora-rank", "0")
    with pytest.raises(UserError, match="--lora trains adapters, and a rank of 0 all weights"):
        tuning.resolve_config(method, flags)
    assert tuning.resolve_config(method, tune_flags(method, *CPU, "--lora")).model.lora_rank == DEFAULT_LORA_RANK


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("judge-report --probe 5 --items x.jsonl --threshold 0.3", "leave out --items, --threshold"),
        ("judge-report --probe 5 --no-flips", "leave out --flips"),
        ("ask --question hi --limit 4", "--limit 4: is for the questions of a --file"),
        ("demo --questions -5", "--questions"),
        ("demo --steps -1", "--steps"),
    ],
)
def test_flags_without_an_effect_are_refused(line: str, told: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert status_of(*line.split()) == 2
    assert told in capfd.readouterr().err


def test_what_is_forked_is_named_as_such(capfd: pytest.CaptureFixture[str]) -> None:
    assert status_of("train", "--fork", "nowhere", "--dry-run") != 0
    assert "--fork nowhere: no complete" in capfd.readouterr().err
