"""The commands of before, word for word, with the flags that they had, from both folders; and the door itself.

Not covered: what the commands do, which their own tests say.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from foundation.command import renamed
from sql_agent.cli import SCRIPTS
from sql_agent.config import ROOT
from tests.typed import status_of

STORE = "--external-store-address http://localhost:9999"
DRY = "--dry-run --recipe smoke_cpu"
TYPED = [
    ("sql_agent", f"AGL_MANAGED_STORE=0 python train_sql_agent.py --llm-proxy {DRY}", "nothing was trained"),
    ("sql_agent", f"AGL_MANAGED_STORE=0 python train_sql_agent.py --llm-proxy {STORE} --ci-fast {DRY}", "nothing was"),
    (".", f"python sql_agent/train_sql_agent.py --ci-fast {DRY}", "nothing was trained"),
    ("sql_agent", "python sqlagent_test.py --help", "agentgrpo ask"),
    (".", "agl store --port 9999 --help", "--port"),
    (
        ".",
        "python scripts/train_sft.py --model_path Qwen/Qwen2.5-0.5B --dataset gsm8k --num_epochs 3 "
        "--output_dir ./outputs/Qwen2.5-0.5B/sft --batch_size 2 --gradient_accumulation_steps 4 --help",
        "agentgrpo sft",
    ),
    (
        ".",
        "python scripts/train_gsm8k_agent.py --model_path ./outputs/Qwen2.5-0.5B/sft --dataset gsm8k "
        "--samples_per_prompt 4 --max_new_tokens 256 --total_epochs 3 --output_dir ./outputs/Qwen2.5-0.5B/rl --help",
        "--group-size",
    ),
    (
        ".",
        "python scripts/test_interactive.py --model_path ./outputs/Qwen2.5-0.5B/rl/epoch_3 --max_new_tokens 64 "
        "--temperature 0.7 --help",
        "--temperature",
    ),
    ("reward_model", "python convert_dpo_format.py --input=none.jsonl --output=converted.jsonl", "none.jsonl: cannot"),
    ("reward_model", "python inference_api.py --model_path ./none", "no config.json there"),
    (".", "python utils/check_install.py --no-imports --help", "--json"),
]


@pytest.mark.long
@pytest.mark.parametrize(("folder", "line", "said"), TYPED)
def test_a_command_of_before_works_word_for_word(folder: str, line: str, said: str) -> None:
    variables, words = {"COLUMNS": "120"}, shlex.split(line)
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    program = Path(sys.executable).with_name(words[0]) if words[0] != "python" else Path(sys.executable)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AGL_")} | variables
    done = subprocess.run([program, *words[1:]], cwd=ROOT / folder, env=environment, capture_output=True, text=True)
    text = done.stdout + done.stderr
    assert said in text and "No such option" not in text and "Traceback" not in text
    assert done.returncode == (2 if "none" in line else 0), text


def test_every_script_is_a_link_to_the_one_alias() -> None:
    for name in SCRIPTS:
        found = [path for path in (ROOT / "sql_agent" / name, ROOT / "utils" / name) if path.exists()]
        assert found and {path.resolve() for path in found} == {ROOT / "sql_agent" / "alias.py"}


def test_old_names_are_those_of_scripts_alone(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"--lora-rank", "--n-runners", "--set", "--data"}
    assert renamed(["--lora_r=8", "--set", "a.b_c=--x", "--n_runners", "2", "--dataset", "f"], known) == (
        ["--lora-rank=8", "--set", "a.b_c=--x", "--n-runners", "2", "--data", "f"]
    )
    assert renamed(["--llm_proxy", "--model_path", "x"], known) == ["--llm_proxy", "--model_path", "x"]
    assert status_of("train", "--train-file", "x") == 2 and "--train-file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "flag"), [("ask what?", "--question"), ("sft talks.jsonl", "--data"), ("evaluate runs/x", "--model")]
)
def test_a_word_without_its_flag_is_told_which(words: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(*words.split()) == 2
    assert f"it needs a flag before it, most likely {flag}" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "flags", "said"),
    [
        ("train_local.py", ["--llm-proxy"], "--llm-proxy: agentgrpo train --backend local has no LLM proxy"),
        ("sqlagent_test.py", ["--llm-proxy"], "No such option: --llm-proxy"),
        ("train_sql_agent.py", ["--steps", "5"], "a setting is given as --set SECTION.KEY=VALUE"),
        ("evaluate.py", ["--external-store-address", "http://127.0.0.1:1"], "No such option: --external-store-address"),
    ],
)
def test_an_old_flag_that_a_command_cannot_obey_is_refused_by_the_name_that_was_typed(
    script: str, flags: list[str], said: str
) -> None:
    done = subprocess.run([sys.executable, script, *flags], cwd=ROOT / "sql_agent", capture_output=True, text=True)
    assert done.returncode == 2 and said in done.stderr, done.stderr


@pytest.mark.parametrize("words", [["--help"], ["curate", "--help"], ["reward-model", "--help"]])
def test_help_imports_no_command(words: list[str]) -> None:
    code = (
        "import sys; from sql_agent.cli import app\n"
        f"try: app(args={words}, prog_name='agentgrpo')\n"
        "finally: print(sorted(n for n in sys.modules if n.split('.')[0] in ('torch', 'ray', 'vllm', 'verl',"
        " 'agentlightning', 'reward_model') or n.startswith('sql_agent.commands')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def test_completion_names_commands_and_flags() -> None:
    def complete(line: str) -> list[str]:
        variables = {"_AGENTGRPO_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        agentgrpo = Path(sys.executable).with_name("agentgrpo")
        return subprocess.run(agentgrpo, env=os.environ | variables, capture_output=True, text=True).stdout.split()

    assert complete("agentgrpo rep") == ["report"] and complete("agentgrpo curate l") == ["leakage"]
    assert "--resume" in complete("agentgrpo train --re")


def test_a_defect_keeps_its_traceback_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("\x1b[31mred")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sql_agent.commands.report.write_report", broken)
    assert status_of("report", "x") == 1
    (file,) = tmp_path.glob("agentgrpo-*.txt")
    told = capsys.readouterr().err
    assert str(file) in told and "\x1b" not in told and "in broken" in file.read_text()
