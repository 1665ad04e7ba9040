"""The documentation against the code, both ways: keys, flags, variables, links, examples, translations.

Covers all Markdown files of the project. Not covered: whether a sentence is true, and measured times.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
import typer.main

from foundation.command import OLD_NAMES
from foundation.errors import UserError
from foundation.modules import import_module
from sql_agent.config import ROOT, build_config, known_keys, parse_assignment
from sql_agent.offline_judge.judge import grade
from sql_agent.tiny_policy import build, demonstrations
from sql_agent.training.options import KEYS
from tests.pages import FENCE, Block, blocks_of
from tests.typed import every_command

SKIPPED = {".venv", "mined", ".tools", ".cache", "runs", "outputs", "node_modules", ".git", ".pytest_cache"}
PAGES = sorted(p for p in ROOT.rglob("*.md") if not SKIPPED & set(p.relative_to(ROOT).parts))
DOCS = ROOT / "docs"
TRANSLATED = [("README.md", "README_zh.md"), ("docs/01-quickstart.md", "docs/01-quickstart_zh.md")]
# Flags of other programs that appear in our commands: agl store, vllm serve (two lines), verl's merger, docker,
# tensorboard.
FOREIGN_FLAGS = {
    "--logdir",  # tensorboard
    *("--host", "--port", "--backend", "--mongo-uri"),
    *("--served-model-name", "--enable-auto-tool-choice", "--tool-call-parser", "--generation-config"),
    *("--dtype", "--enforce-eager", "--max-model-len"),
    *("--local_dir", "--target_dir"),
    *("--gpus", "--shm-size", "--logdir", "--build", "--build-arg", "--rm", "--profile"),  # docker
    *("--abort-on-container-exit", "--exit-code-from"),  # docker compose up
    "--log-dir",  # inspect-ai
    "--no-deps",  # pip
    # accelerate, and reward_modeling.py, whose parser is TRL's
    *("--num_processes", "--dataset_name", "--dataset_split", "--eval_dataset", "--eval_share", "--model_name_or_path"),
    *("--output_dir", "--resume_from_checkpoint", "--max_length", "--use_peft", "--lora_r", "--learning_rate"),
    *("--center_rewards_coefficient", "--num_train_epochs", "--per_device_train_batch_size"),
    *("--gradient_checkpointing", "--deepspeed"),
}
SPAN = re.compile(r"`([^`\n]+)`")


def text_of(name: str | Path) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code_of(page: Path) -> str:
    """Everything that a page sets in code: fenced blocks and code spans."""
    text = text_of(page)
    return "\n".join([*(body for _, body in blocks_of(text)), *SPAN.findall(FENCE.sub("", text))])


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=page_id)


def generator() -> ModuleType:
    return import_module(str(DOCS / "generate_configuration.py"))


# Configuration keys and flags


def test_the_generated_tables_are_up_to_date() -> None:
    for name in generator().BLOCKS:
        page = text_of(f"docs/{name}")
        assert generator().render(name, page) == page, "run: python docs/generate_configuration.py"
    page = text_of("docs/10-configuration.md")
    assert all(f"| `{key}` |" in page for key in known_keys())


@every_page
def test_every_key_named_in_a_page_exists(page: Path) -> None:
    keys = set(known_keys())
    sections = {key.rpartition(".")[0] for key in keys} - {""}
    named = set(re.findall(r"--set '?([\w.]+)=", text_of(page))) - {"KEY"}
    top = "|".join(sorted({section.partition(".")[0] for section in sections}))
    for span in SPAN.findall(FENCE.sub("", text_of(page))):
        if match := re.fullmatch(rf"((?:{top})(?:\.[a-z_]+)+)(?:\s*=.*)?", span):
            named.add(match[1])
    files = {name for name in named if (ROOT / name.replace(".", "/")).with_suffix(".py").exists()}
    verl = {name for name in named if name.startswith("verl.")}  # tests/unit/test_verl_keys.py
    assert named - files - verl <= keys | sections


PROSE = [*PAGES, *sorted(ROOT.glob("recipes/*/config.toml")), *sorted((ROOT / "sql_agent").rglob("*.py"))]
# --set KEY=VALUE, quoted or not; what stands for something, like PROMPT_FILE, "..." or {value}, is no value.
ASSIGNMENT = re.compile(r"--set (?:'([\w.]+=[^']+)'|([\w.]+=[^\s'\"`,;)|]+))")


def test_every_setting_in_prose_and_commands_is_accepted() -> None:
    found = {(path, (m[1] or m[2]).rstrip(".")) for path in PROSE for m in ASSIGNMENT.finditer(text_of(path))}
    values = {(path, text) for path, text in found if not re.search(r"=.*[{}\\…]|=\.\.|=[A-Z_]{2,}|KEY", text)}
    assert len(values) > 40
    for path, text in sorted(values):
        try:
            build_config(parse_assignment(text))
        except UserError as exc:
            # A value may need another key beside it; what is wrong with the key itself is told otherwise.
            wrong = re.sub(".* (?:needs|has nothing to do:) .*", "", str(exc))
            assert f"  {text.partition('=')[0]} = " not in wrong, (path, text, str(exc))


def test_defaults_in_the_help_are_those_of_the_configuration() -> None:
    tree, compared = build_config().model_dump(), 0
    for option in every_command()["train"].params:
        told = re.search(r"\(default: [^)\d]*(\d+)\)", option.help or "")
        if told and option.name in KEYS:
            section, _, key = KEYS[option.name].partition(".")
            assert tree[section][key] == int(told[1]), option.name
            compared += 1
    assert compared >= 2


@cache
def own_flags() -> set[str]:
    others = [typer.main.get_command(app) for app in (build.app, demonstrations.app)]
    options = [option for command in [*every_command().values(), *others] for option in command.params]
    flags = {flag for option in options for flag in [*option.opts, *option.secondary_opts]}
    for path in [*(ROOT / "utils").glob("*.py"), *(ROOT / "benchmarks").glob("*.py"), *DOCS.glob("*.py")]:
        flags |= set(re.findall(r'"(--[a-z-]+)"', text_of(path)))
    flags |= {"--help", "--install-completion", "--chat"}  # --chat: of sqlagent_test.py
    return flags | set(OLD_NAMES) | {flag.replace("-", "_").replace("__", "--", 1) for flag in OLD_NAMES}


@every_page
def test_every_flag_named_in_a_page_exists(page: Path) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", code_of(page)))
    assert named <= own_flags() | FOREIGN_FLAGS


# Examples


def test_the_examples_of_the_reference_judge_are_computed() -> None:
    page = text_of("docs/20-reward.md")
    given = {(m[1], m[2]): m[3] for m in re.finditer(r"^- (\w) (question|reference): `(.+)`$", page, re.MULTILINE)}
    rows = re.findall(r"^\| (\w) \| `(.+?)` \| ([\d.]+) \| ([\d.]+) \|", page, re.MULTILINE)
    assert len(rows) >= 8
    for which, answer, *numbers in rows:
        reference = given[which, "reference"]
        evidence = [sentence.partition("：")[2] for sentence in reference.split("。") if sentence]
        verdict = grade(question=given[which, "question"], reference=reference, answer=answer, evidence=evidence)
        assert verdict
        computed = [f"{value:.2f}" for value in (verdict.coverage, verdict.value)]
        assert (answer, numbers) == (answer, computed)


@every_page
def test_code_blocks_are_valid(page: Path) -> None:
    for language, body in blocks_of(text_of(page)):
        if language == "python":
            ast.parse(body)
        elif language == "toml":
            build_config(tomllib.loads(body))
        elif language == "bash":
            done = subprocess.run(["bash", "-n"], input=body, text=True, capture_output=True, check=False)
            assert done.returncode == 0, done.stderr


# Links, pictures, names


def anchors_of(text: str) -> set[str]:
    """GitHub's anchors of the headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@every_page
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text_of(page))):
        name, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors_of(text_of(linked)), target


def test_the_indices_name_every_page_and_recipe() -> None:
    index = text_of("docs/README.md")
    assert all(f"]({p.name})" in index for p in DOCS.glob("*.md") if p.name != "README.md")
    for recipe in ROOT.glob("recipes/*/config.toml"):
        if not (recipe.parent / "test_recipe.py").exists():  # a user's own, from `agentgrpo new`
            assert f"]({recipe.parent.name}/README.md)" in text_of("recipes/README.md"), recipe.parent.name


def test_every_page_says_first_what_it_is_for() -> None:
    for page in set(DOCS.glob("[0-9]*.md")) - {DOCS / "01-quickstart.md", DOCS / "01-quickstart_zh.md"}:
        assert text_of(page).split("\n\n")[1].startswith("After this page you "), page.name


def test_the_first_screen_is_short() -> None:
    for name in ("README.md", "README_zh.md"):
        lines = text_of(name).splitlines()
        assert len(lines) <= 150 and lines.index("make train") < 15
    assert len(text_of("CHANGELOG.md").partition("## 0.1.0")[2].splitlines()) <= 45


def test_the_picture_of_a_step_is_read_in_the_dark() -> None:
    root = ElementTree.fromstring(text_of("docs/data-flow.svg"))
    assert root.tag.endswith("svg") and "prefers-color-scheme: dark" in text_of("docs/data-flow.svg")


def test_make_targets_are_named_as_they_are() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", text_of("Makefile"), re.MULTILINE))
    named = {t for p in PAGES for line in re.findall(r"\bmake ([a-z][a-z -]*)", code_of(p)) for t in line.split()}
    assert named <= targets
    assert targets <= named


# Files that docs/50-extending.md lets the reader write; tests/wire/test_own_episodes.py runs them.
OF_THE_READER = {
    *("tools.py", "environment.py", "my_agent.py", "my_loss.py", "reward.py", "my_graph.py"),
    *("test_recipe.py", "recipes/shop_agent/test_recipe.py", "MY_FOLDER/test_recipe.py"),  # recipes/new.py writes it
    "tiny.py",  # agentgrpo mine writes it
}


@every_page
def test_scripts_named_in_a_page_exist(page: Path) -> None:
    for name in re.findall(r"(?<![\w*<])[\w/.-]*\w\.(?:py|sh)\b", code_of(page)):
        places = (ROOT, ROOT / "sql_agent", ROOT / "reward_model", ROOT / "sql_agent" / "data", page.parent)
        assert name in OF_THE_READER or any((place / name).is_file() for place in places), name


@every_page
def test_no_measurement_is_left_open(page: Path) -> None:
    assert re.findall(r"@@[A-Z_]+@@", text_of(page)) == []


# Translations


def comparable(block: Block) -> Block:
    """Commands and diagrams must be the same; of a listing, which is translated, the first column."""
    language, body = block
    return (language, body) if language != "text" else (language, " ".join(re.findall(r"^\S+", body, re.MULTILINE)))


@pytest.mark.parametrize(("english", "chinese"), TRANSLATED)
def test_translations_are_in_step(english: str, chinese: str) -> None:
    pair = [text_of(english), text_of(chinese)]
    levels = [re.findall(r"^(#+) ", FENCE.sub("", text), re.MULTILINE) for text in pair]
    assert levels[0] == levels[1]
    blocks: list[list[Any]] = [[comparable(block) for block in blocks_of(text)] for text in pair]
    assert blocks[0] == blocks[1]
    # A heading's anchor is in its page's language.
    links = [[re.sub(r"#.*", "#", t) for t in re.findall(r"\]\(([^)\s]+)\)", text)] for text in pair]
    names = [[t.rpartition("/")[2].replace("_zh.md", ".md") for t in found] for found in links]
    assert sorted(names[0]) == sorted(names[1])
