"""Which command reads which key: one table, decided for each key, and obeyed on each command line."""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from pathlib import Path

import pytest
import typer

from foundation.command import shown_errors
from foundation.errors import UserError
from foundation.files import atomic_path
from sql_agent.commands import gsm8k
from sql_agent.config import build_config, command_tree, known_keys, load_recipe, parse_assignment
from sql_agent.config.commands import COMMANDS, DPO, GRPO, SFT, check_read, readers
from sql_agent.curation import pass_command
from sql_agent.training import options
from sql_agent.tuning import options as tuning_options
from tests.typed import every_command, params, status_of, train_flags

GOLDEN = Path(__file__).parents[1] / "golden" / "readers" / "keys.json"


def tree_of(key: str) -> dict[str, object]:
    return parse_assignment(f"{key}=1")


def test_each_key_has_the_readers_that_were_decided_on() -> None:
    # A new key: decide in sql_agent/config/commands.py, then write its line into the golden file.
    found = {key: [name for name in COMMANDS if name in readers(key)] for key in known_keys()}
    assert found == json.loads(GOLDEN.read_text())
    assert all(found.values())


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_takes_what_it_reads_and_refuses_the_rest(command: str) -> None:
    for key in known_keys():
        by = readers(key)
        if command in by:
            check_read(command, tree_of(key))
        else:
            with pytest.raises(UserError, match=rf"{command} does not read[^\n]*\n  {key} = 1: read by .*{min(by)}"):
                check_read(command, tree_of(key))


NO_KEY = {"fork", "backend", "recipe", "set_", "ci", "ci_fast", "dry_run"}
NO_KEY |= {"lora", "trajectory_level", "weave", "llm_proxy", "debug"}


def test_each_flag_is_a_key_that_its_command_reads_or_is_decided_on() -> None:
    for name in params("train").keys() - NO_KEY:
        assert GRPO in readers(options.KEYS[name])
    methods: dict[tuning_options.Method, str] = {"sft": SFT, "dpo": DPO}
    for method, command in methods.items():
        for name in params(method).keys() - NO_KEY:
            assert command in readers(tuning_options.key_of(method, name))


def words_of(source: object) -> set[str]:
    """The names and attributes in a function's or module's source."""
    nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(source)))))  # type: ignore[arg-type]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_each_flag_of_each_command_was_decided_on_and_is_read() -> None:
    # A new flag: have its command read it, then write it into the golden file.
    found: dict[str, list[str]] = {}
    for name, command in every_command().items():
        found[name] = [one.name for one in command.params if "--help" not in one.opts]
        function = inspect.unwrap(command.callback)
        own = function if function.__code__.co_argcount or not found[name] else inspect.getmodule(function)
        tuned = {flag for flag in found[name] if flag not in tuning_options.NO_KEYS}  # of a key that is read, see above
        keys = {"train": options.KEYS.keys(), "sft": tuned, "dpo": tuned, "gsm8k": gsm8k.KEYS.keys()}
        passed_on = words_of({"train": options, "sft": tuning_options, "dpo": tuning_options}.get(name, pass_command))
        assert set(found[name]) <= words_of(own) | passed_on | keys.get(name, set()), name
    assert found == json.loads(GOLDEN.with_name("flags.json").read_text())


@pytest.mark.parametrize("given", ["--mongo-uri x", "--store http://x:1", "--n-runners 2", "--set verl.a=1"])
def test_train_local_refuses_flags_of_the_other_trainer(given: str) -> None:
    flags = train_flags("--backend", "local", *given.split(), "--recipe", "smoke_cpu")
    with pytest.raises(UserError, match="agentgrpo train --backend local does not read"):
        options.resolve_config(flags)


def test_litellms_proxy_has_no_limit_of_calls() -> None:
    with pytest.raises(UserError, match=r"rollout\.calls_per_engine = 3 needs rollout\.proxy = gateway"):
        build_config({"rollout": {"calls_per_engine": 3, "proxy": "litellm"}})


@pytest.mark.parametrize("given", [{"proxy": "litellm"}, {}])
def test_gateways_on_several_machines_need_machines_and_the_gateway(given: dict[str, str]) -> None:
    n_nodes = 2 if given else 1
    with pytest.raises(
        UserError, match=r"rollout\.gateways = per_node needs (rollout\.proxy = gateway|several machines)"
    ):
        build_config({"rollout": {"gateways": "per_node", **given}, "trainer": {"n_nodes": n_nodes}})


@pytest.mark.long
def test_train_local_dry_run_trains_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    given = ["--dry-run", "--recipe", "smoke_cpu", "--set", f"trainer.runs_dir={runs}", "--set", "trainer.device=cpu"]
    assert status_of("train", "--backend", "local", *given) == 0
    printed = capfd.readouterr().out
    assert "nothing was trained" in printed and "verl's configuration" not in printed
    assert not list(runs.glob("*"))


def test_keys_of_a_recipe_may_be_for_another_command(tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text("[store]\nport = 4800\n[local]\nmax_batch = 3\n")
    flags = train_flags("--backend", "local", "--recipe", str(recipe), "--set", "trainer.device=cpu")
    assert options.resolve_config(flags).store.port == 4800


@pytest.mark.parametrize(
    ("text", "named"), [('agent.tools=["sql", "python"]', "python"), ('database.tables=["shop"]', "shop")]
)
def test_what_the_tiny_policy_does_not_know_is_told(text: str, named: str, caplog: pytest.LogCaptureFixture) -> None:
    options.resolve_config(train_flags("--set", "trainer.device=cpu", "--set", text))
    assert f"learns nothing of {named}; " in caplog.text and ("agentgrpo mine" in caplog.text) == (named == "shop")


def test_files_are_those_of_the_recipe_and_links_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    (tmp_path / "x.py").write_text("")
    (tmp_path / "config.toml").write_text(
        'agent.command = "python x.py --deep"\n[agent.mcp.files]\ncommand = "python"\nargs = ["x.py"]\n'
    )
    agent = build_config(load_recipe(str(tmp_path))).agent
    assert agent.mcp["files"].command == str(tmp_path / "python")
    assert agent.command == f"{tmp_path / 'python'} {tmp_path / 'x.py'} --deep"
    given = command_tree(GRPO, ['agent.tools=["x.py"]'], recipe=str(tmp_path), flags={})
    assert given["agent"]["tools"] == [str(tmp_path / "x.py")]
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "x.py").write_text("")
    monkeypatch.chdir(tmp_path / "here")
    assert command_tree(GRPO, ['agent.tools=["x.py"]'], recipe=str(tmp_path), flags={})["agent"]["tools"] == ["x.py"]


def test_set_takes_tables_of_toml() -> None:
    tree = parse_assignment('agent.mcp.files={command = "python", args = ["a.py"]}')
    assert build_config(tree).agent.mcp["files"].args == ["a.py"]


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (OSError(28, "No space left on device"), "No space left on device; its disk is full: free some space, or"),
        (PermissionError(13, "Permission denied", "/x"), "Permission denied: '/x'; name a path that this user may use"),
        (FileNotFoundError(2, "No such file or directory", "/x"), "No such file or directory: '/x'; name another path"),
        (ConnectionRefusedError(111, "Connection refused"), "[Errno 111] Connection refused\n"),
    ],
)
def test_what_the_system_refuses_is_told_with_a_remedy(
    raised: OSError, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, shown_errors():
        raise raised
    assert ended.value.exit_code == 2 and told in capsys.readouterr().err


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="pairs.jsonl"), atomic_path(tmp_path / "pairs.jsonl"):
        raise OSError(28, "No space left on device")
