"""Targets of an evaluation: what each text means, the settings that come along, and a real checkpoint's export."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from foundation.errors import UserError
from sql_agent.commands.ask import resolve_config as asking
from sql_agent.commands.serve import ask_line
from sql_agent.config import agents_of, build_config, load_recipe, prompt_file
from sql_agent.evaluation import targets as eval_targets
from sql_agent.evaluation.targets import (
    Target,
    export_folder,
    exported,
    label,
    look_at,
    served_checkpoint,
    settings_for,
)
from sql_agent.testing.server import chat_reply, openai_server
from tests.sql_db import make_database
from tests.typed import app_of, params, status_of

CONFIG = build_config({"trainer": {"device": "cpu"}})


def make_run(folder: Path, *, steps: tuple[int, ...] = (1,)) -> Path:
    """The files of a run that are looked at, without weights."""
    run = folder / "20260101-demo"
    for step in steps:
        (run / "checkpoints" / f"global_step_{step}" / "actor").mkdir(parents=True)
    (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_text(str(max(steps)))
    tree = build_config({"agent": {"system_prompt": "system_short", "max_turns": 3}}).model_dump(mode="json")
    (run / "config.json").write_text(json.dumps(tree))
    return run


def make_folder(folder: Path) -> Path:
    """A model folder as far as it is looked at before it is served."""
    model = folder / "my-model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "tokenizer_config.json").write_text('{"chat_template": "x"}')
    (model / "tokenizer.json").write_text("{}")
    save_file({"w": torch.zeros(1)}, model / "model.safetensors")
    return model


def test_a_run_is_its_newest_checkpoint_with_its_own_settings(tmp_path: Path) -> None:
    run = make_run(tmp_path, steps=(2, 10))
    target = look_at(str(run), build_config(settings_for([str(run)])), option="--before")
    assert (target.kind, target.text) == ("checkpoint", str(run / "checkpoints" / "global_step_10"))
    assert (target.config.agent.max_turns, target.config.agent.system_prompt) == (3, "system_short")
    assert label(target) == "20260101-demo/global_step_10"


def test_a_run_that_is_asked_or_talked_to_brings_its_prompt_and_settings(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    asked = asking("", ["agent.max_turns=7"], database=None, model=str(run), endpoint=False)
    assert (asked.agent.system_prompt, asked.agent.max_turns, asked.model.path) == ("system_short", 7, str(run))


def test_the_line_of_a_served_run_plays_the_agent_of_the_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "my runs")
    settings = json.loads((run / "config.json").read_text())
    settings["agent"]["tool_description"] = "Ask the depot."
    settings["database"] |= {"path": str(make_database(tmp_path))}
    (run / "config.json").write_text(json.dumps(settings))
    target = look_at(str(run), build_config(settings_for([str(run)])), option="--model")
    with openai_server(lambda _: chat_reply("It is full.")) as server:
        line = ask_line(target, address=server.base_url, name="", recipe="", assignments=["rollout.max_num_seqs=2"])
        done = CliRunner().invoke(app_of("ask"), [*shlex.split(line)[2:], "--question", "?"])
    assert done.exit_code == 0, done.output
    sent = server.requests[0].json
    assert sent["model"] == export_folder(run / "checkpoints" / "global_step_1").name
    assert sent["tools"][0]["function"]["description"] == "Ask the depot."
    assert sent["messages"][0]["content"] == prompt_file("system_short").read_text(encoding="utf-8").strip()


def test_the_line_of_a_served_folder_names_recipe_and_prompt(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    (file := tmp_path / "our recipe.toml").write_text('[agent]\nmax_turns = 5\nsystem_prompt = "system_en"\n')
    target = look_at(str(folder), build_config(load_recipe(str(file))), option="--model")
    line = ask_line(target, address="http://a/v1", name="my-model", recipe=str(file), assignments=["model.path=x y"])
    given = params("ask", *shlex.split(line)[2:])
    flags = {"base_url": "http://a/v1", "model": "my-model", "recipe": str(file)}
    flags |= {"set_": ["agent.system_prompt=system_en", "model.path=x y"]}
    assert flags.items() <= given.items()


def test_a_name_at_an_address_is_no_run_where_none_is_here(tmp_path: Path) -> None:
    for name in ("", "org/model", "claude@20240620", "model@best", str(tmp_path)):
        assert served_checkpoint(name) is None


def test_a_port_in_use_is_told_before_the_model_is_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with openai_server(lambda _: chat_reply("foreign")) as other:
        port = other.base_url.split(":")[2].split("/")[0]
        assert status_of("serve", str(make_run(tmp_path)), "--port", port) == 2
    said = capsys.readouterr()
    assert f"--port {port}: cannot be taken" in said.err and "choose another one with --port" in said.err
    assert "try:" not in said.err and "serving" not in said.out


@pytest.mark.parametrize("below", ["checkpoints", "checkpoints/global_step_2"])
def test_a_checkpoint_may_be_named_itself(below: str, tmp_path: Path) -> None:
    run = make_run(tmp_path, steps=(2,))
    assert look_at(str(run / below), CONFIG, option="--after").kind == "checkpoint"


def test_the_prompt_of_the_run_yields_to_a_prompt_that_is_given(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    given = build_config({"agent": {"system_prompt": "system_zh"}})
    assert look_at(str(run), given, option="--before").config.agent.system_prompt == "system_zh"
    assert look_at(str(run), CONFIG, option="--before").config.agent.system_prompt == "system_short"


def test_a_checkpoint_that_was_cut_off_does_not_count(tmp_path: Path) -> None:
    run = make_run(tmp_path, steps=(2,))
    (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("1")
    with pytest.raises(UserError, match=r"--before .*no complete global_step_N folder"):
        look_at(str(run), CONFIG, option="--before")


def test_a_model_folder_and_nothing(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    found = look_at(str(folder), CONFIG, option="--before")
    assert (found.kind, found.text, label(found)) == ("folder", str(folder), "my-model")
    files = found.facts()["files"]
    save_file({"w": torch.zeros(2)}, folder / "model.safetensors")
    assert files and look_at(str(folder), CONFIG, option="--before").facts()["files"] != files


def test_a_model_folder_that_lacks_something_is_named_with_the_flag(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"^--after .*no \*\.safetensors there.*A target is a run folder"):
        look_at(str(folder), CONFIG, option="--after")


def test_an_endpoint_needs_no_name_where_it_has_one_model() -> None:
    with openai_server(lambda _: chat_reply("x")) as server:
        named = look_at(f"org/model@{server.base_url}", CONFIG, option="--before")
        found = look_at(server.base_url, CONFIG, option="--before")
    assert named.llm and named.llm.model == "org/model" and named.text == f"org/model@{server.base_url}"
    assert found.llm and found.llm.model == "fake-model" and found.kind == "endpoint"
    assert label(found) == f"fake-model at {server.base_url.removeprefix('http://').removesuffix('/v1')}"


@pytest.mark.slow
def test_a_real_checkpoint_is_exported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from safetensors.torch import load_file
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from sql_agent.tiny_policy.tokenizer import train_tokenizer

    monkeypatch.setattr(eval_targets, "EXPORTS", tmp_path / "exports")
    run = make_run(tmp_path, steps=(4,))
    actor = run / "checkpoints" / "global_step_4" / "actor"
    tokenizer = train_tokenizer(["甲药的适应症是什么？"] * 50)
    sizes: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8}
    heads: dict[str, Any] = {"num_attention_heads": 2, "num_key_value_heads": 1}
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=len(tokenizer), **sizes, **heads))
    model.config.architectures = ["Qwen3ForCausalLM"]
    model.config.save_pretrained(actor / "huggingface")
    tokenizer.save_pretrained(actor / "huggingface")
    torch.save(model.state_dict(), actor / "model_world_size_1_rank_0.pt")
    (actor / "fsdp_config.json").write_text('{"FSDP_version": 1, "world_size": 1}')
    target = look_at(str(run), CONFIG, option="--before")
    said: list[str] = []
    folder = exported(Path(target.text), tell=lambda text, detail="": said.append(text))
    assert exported(Path(target.text), tell=lambda text, detail="": said.append(text)) == folder
    assert said == ["exporting global_step_4"]
    weights = load_file(folder / "model.safetensors")
    assert torch.equal(weights["model.norm.weight"].float(), model.state_dict()["model.norm.weight"])

    (actor / "model_world_size_1_rank_0.pt").write_bytes(b"cut off")
    broken: Target = look_at(str(run), CONFIG, option="--before")
    with pytest.raises(UserError, match="global_step_4: cannot be exported"):
        exported(Path(broken.text), tell=lambda text, detail="": None)


def test_each_agent_of_a_run_has_its_own_prompt_again(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    agents = {"sql": {"agent": {"system_prompt": "system_en"}}, "math": {"agent": {"system_prompt": "tools"}}}
    tree = build_config({"agent": {"system_prompt": "system_short"}, "agents": agents}).model_dump(mode="json")
    (run / "config.json").write_text(json.dumps(tree))
    open_ones = {"sql": {}, "math": {"agent": {"tools": [], "system_prompt": "generic_zh"}}}
    for config, wanted in (
        (build_config(settings_for([str(run)])), {"": "system_short", "sql": "system_en", "math": "tools"}),
        (build_config({"agents": open_ones}), {"": "system_short", "sql": "system_en", "math": "generic_zh"}),
    ):
        found = look_at(str(run), config, option="--before").config
        assert {name: one.agent.system_prompt for name, one in agents_of(found).items()} == wanted
