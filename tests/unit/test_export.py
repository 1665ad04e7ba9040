"""Export of checkpoints as verl writes them: one rank, two ranks of real FSDP, a LoRA adapter, and what is broken."""

from __future__ import annotations

import copy
import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from typer.testing import CliRunner

from foundation.errors import UserError
from sql_agent.commands.ask import resolve_config
from sql_agent.commands.export import export_checkpoint, probe
from sql_agent.config import agents_of, build_config, nested, parse_assignment, prompt_text
from sql_agent.config.paths import LONGEST_PROMPT
from sql_agent.evaluation.targets import look_at
from sql_agent.tiny_policy.tokenizer import train_tokenizer
from tests.fsdp_shards import policy, write_two_ranks
from tests.typed import app_of, status_of

TOKENIZER = train_tokenizer(["甲药的适应症是什么？用于头痛。"] * 50)
VOCABULARY = len(TOKENIZER)
CONFIG = {"recipe": "demo_cpu", "trainer": {"device": "cpu"}, "agent": {"system_prompt": "system_short"}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a checkpoint whose shards are still to be written."""
    run = tmp_path / "20260101-demo"
    actor_of(run).mkdir(parents=True)
    (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("4")
    (run / "config.json").write_text(json.dumps(CONFIG))
    model = policy(VOCABULARY)
    model.config.save_pretrained(actor_of(run) / "huggingface")
    model.generation_config.update(temperature=0.7, do_sample=True)
    model.generation_config.save_pretrained(actor_of(run) / "huggingface")
    TOKENIZER.save_pretrained(actor_of(run) / "huggingface")
    return run


def actor_of(run: Path) -> Path:
    return run / "checkpoints" / "global_step_4" / "actor"


def write_shards(actor: Path, shards: list[dict[str, Any]]) -> None:
    for rank, shard in enumerate(shards):
        torch.save(shard, actor / f"model_world_size_{len(shards)}_rank_{rank}.pt")
    (actor / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 1, "world_size": len(shards)}))


def logits(folder: Path) -> torch.Tensor:
    return probe(AutoModelForCausalLM.from_pretrained(folder, dtype="auto"))


def test_the_folder_gives_the_checkpoints_logits_in_its_precision(run: Path, tmp_path: Path) -> None:
    model = policy(VOCABULARY)
    write_shards(actor_of(run), [model.state_dict()])
    found = CliRunner().invoke(app_of("export"), [str(run), str(tmp_path / "out")])
    served = f"agentgrpo serve --model {tmp_path / 'out'} --set rollout.tool_parser=hermes"
    assert "agent.system_prompt" not in found.stdout  # the folder has it
    assert found.exit_code == 0 and served in found.stdout, found.output
    modes = {path.stat().st_mode for path in (tmp_path / "out").iterdir()}
    assert len(modes) == 1  # who may read the tokenizer may read the weights
    assert torch.equal(logits(tmp_path / "out"), probe(model))  # no bit is lost: the run was on a CPU, in float32
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "float32"
    assert "lm_head.weight" not in load_file(tmp_path / "out" / "model.safetensors")  # shared with the embeddings
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text())["temperature"] == 0.7
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "vllm serve out --enable-auto-tool-choice --tool-call-parser hermes" in card
    assert prompt_text(str(tmp_path / "out" / "system_prompt.txt")) == prompt_text("system_short")
    assert "Not for decisions about health." in card  # of the bundled database
    assert "| precision | float32 |" in card and re.search(r"export, relative \| 0 \|", card)


def test_the_card_names_the_tools_of_all_agents_and_how_it_was_trained(run: Path, tmp_path: Path) -> None:
    write_shards(actor_of(run), [policy(VOCABULARY).state_dict()])
    others = {"math": {"agent": {"tools": ["python", "/somewhere/tools.py:add"]}}}
    own = {"database": {"path": "/somewhere/shop.db"}}
    config = {"agent": {"tools": ["sql"], "mcp": {"search": {}}}, "agents": others, **own}
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (run / "summary.json").write_text(json.dumps({"method": "local", "reward_last_step": 2 / 3}), "utf-8")
    found = CliRunner().invoke(app_of("export"), [str(run), str(tmp_path / "out")])
    assert found.exit_code == 0, found.output
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "names them | `sql`, `search`, `python`, `tools.py:add` |" in card and "GRPO in one process" in card
    assert "health" not in card and "| training reward, last step | 0.6667 |" in card


def test_the_exported_template_renders_as_in_training(run: Path, tmp_path: Path) -> None:
    """As transformers and vLLM read it: from the folder, with the request's keys before the run's."""
    write_shards(actor_of(run), [policy(VOCABULARY).state_dict()])
    agent = {"chat_template_kwargs": {"enable_thinking": False, "style": "it's 短"}}
    (run / "config.json").write_text(json.dumps({"trainer": {"device": "cpu"}, "agent": agent}))
    tokenizer = copy.deepcopy(TOKENIZER)
    tokenizer.chat_template = "{{ messages[0].content }}|{{ enable_thinking }}|{{ style }}"
    tokenizer.save_pretrained(actor_of(run) / "huggingface")
    export = export_checkpoint(run, tmp_path / "out")
    found, said = AutoTokenizer.from_pretrained(export.folder), [{"role": "user", "content": "q"}]
    assert found.apply_chat_template(said, tokenize=False) == "q|False|it's 短"
    assert found.apply_chat_template(said, tokenize=False, enable_thinking=True) == "q|True|it's 短"
    assert '{"enable_thinking": false' in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_another_precision_is_rounded_and_says_by_how_much(run: Path, tmp_path: Path) -> None:
    write_shards(actor_of(run), [policy(VOCABULARY).state_dict()])
    export = export_checkpoint(run, tmp_path / "out", dtype="bfloat16")
    loaded = AutoModelForCausalLM.from_pretrained(export.folder, dtype="auto")
    assert loaded.dtype == torch.bfloat16 and 0 < export.gap < 0.1


def test_an_adapter_is_merged_with_its_scale(run: Path, tmp_path: Path) -> None:
    base = policy(VOCABULARY)
    unchanged = probe(base)
    adapted: Any = get_peft_model(base, LoraConfig(r=4, lora_alpha=32, target_modules=["q_proj", "down_proj"]))
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    write_shards(actor_of(run), [adapted.state_dict()])
    adapter = asdict(adapted.peft_config["default"])
    adapter |= {"peft_type": "LORA", "target_modules": list(adapter["target_modules"])}
    folder = actor_of(run) / "lora_adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(adapter))

    export = export_checkpoint(run, tmp_path / "out")
    meant = probe(adapted)
    assert torch.allclose(logits(export.folder), meant, atol=1e-4) and export.gap < 1e-4
    assert (meant - unchanged).abs().max() > 0.1  # the adapter does something

    shutil.rmtree(folder)
    with pytest.raises(UserError, match="no adapter_config.json, which holds the scale"):
        export_checkpoint(run, tmp_path / "again")


def test_a_folder_brings_the_prompts_of_its_training(run: Path, tmp_path: Path, capsys: Any) -> None:
    """Alone, wherever it was copied; each agent its own. A prompt that is named wins."""
    write_shards(actor_of(run), [policy(VOCABULARY).state_dict()])
    (prompt := tmp_path / "mine.txt").write_text("表：{schema}", encoding="utf-8")
    agents = {"math": {"agent": {"tools": [], "system_prompt": "tools"}}, "old": {"agent": {"tools": []}}}
    config = {**CONFIG, "agent": {"system_prompt": str(prompt)}, "agents": agents}
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    exported = export_checkpoint(run, tmp_path / "out")
    prompt.unlink()
    shutil.move(exported.folder, folder := tmp_path / "copied")
    assert "no system prompt in the folder ('system_prompt')" in capsys.readouterr().err

    def prompts(*assignments: str) -> dict[str, str]:
        tree = nested({"agents.math.agent.tools": [], "agents.new.agent.tools": []})
        config = build_config(tree, *map(parse_assignment, assignments))
        asked = look_at(str(folder), config, option="--model").config
        return {name: one.agent.system_prompt for name, one in agents_of(asked).items()}

    files = {"": str(folder / "system_prompt.txt"), "math": str(folder / "system_prompt-math.txt")}
    assert prompts() == {**files, "new": "tools"} and prompt_text(files[""]) == "表：{schema}"
    assert prompts("agent.system_prompt=system_en")[""] == "system_en"
    asked = resolve_config("", [], database=None, model=str(folder), endpoint=False)
    assert asked.agent.system_prompt == files[""]

    for text in (b"\xff\xfe", b"a\x1b[2J", b"a" * (LONGEST_PROMPT + 1)):
        Path(files[""]).write_bytes(text)
        with pytest.raises(UserError, match=r"system_prompt\.txt: no UTF-8 text of at most 262144 bytes"):
            prompts()
        assert prompts("agent.system_prompt=system_en")[""] == "system_en"
    Path(files[""]).unlink()
    Path(files[""]).symlink_to(folder / "config.json")
    with pytest.raises(UserError, match="a link, which may show a model any file"):
        prompts()


def test_a_prompt_that_is_gone_stops_no_export(run: Path, tmp_path: Path) -> None:
    write_shards(actor_of(run), [policy(VOCABULARY).state_dict()])
    (run / "config.json").write_text(json.dumps({**CONFIG, "agent": {"system_prompt": "/gone.txt"}}))
    export = export_checkpoint(run, tmp_path / "out")
    assert (export.folder / "README.md").exists() and not list(export.folder.glob("system_prompt*"))


@pytest.mark.long
def test_the_shards_of_two_ranks_make_one_model(run: Path, tmp_path: Path) -> None:
    write_two_ranks(actor_of(run), VOCABULARY)
    (actor_of(run) / "fsdp_config.json").write_text('{"FSDP_version": 1, "world_size": 2}')
    export = export_checkpoint(run, tmp_path / "out")
    assert torch.equal(logits(export.folder), probe(policy(VOCABULARY))) and export.gap == 0


def test_nothing_is_said_to_begin_where_a_path_is_wrong(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_shards(actor_of(run), [policy(VOCABULARY).state_dict()])
    for line in ([str(run), str(tmp_path)], [str(run), str(tmp_path / "out"), "--evaluation", str(tmp_path / "none")]):
        assert status_of("export", *line) == 2
        said = capsys.readouterr()
        assert not said.out and said.err.startswith("error: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("damage", ["cut off", "missing", "no config", "other tensors", "code", "nan"])
def test_what_is_no_checkpoint_exports_nothing(run: Path, tmp_path: Path, damage: str) -> None:
    state = policy(VOCABULARY).state_dict()
    if damage == "nan":
        state["model.norm.weight"][0] = float("nan")
    shard = actor_of(run) / "model_world_size_1_rank_0.pt"
    write_shards(actor_of(run), [{**state, **({"more": torch.ones(1)} if damage == "other tensors" else {})}])
    if damage == "cut off":
        shard.write_bytes(shard.read_bytes()[:1000])
    if damage == "missing":
        shard.unlink()
    if damage == "no config":
        shutil.rmtree(actor_of(run) / "huggingface")
    if damage == "code":
        torch.save({**state, "x": Path(tmp_path)}, shard)  # a pickle that makes an object of its own
    rule = "nan of the largest logit" if damage == "nan" else "the checkpoint is damaged or was not written whole"
    with pytest.raises(UserError, match=rule):
        export_checkpoint(run, tmp_path / "out")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".exporting-*"))


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tokenizer.json", None),
        ("tokenizer.json", '{"version": '),
        ("generation_config.json", '{"temper'),
        ("chat_template.jinja", None),
        ("chat_template.jinja", "{% for message in"),
    ],
)
def test_a_folder_that_nobody_could_serve_is_not_exported(
    run: Path, tmp_path: Path, file: str, text: str | None
) -> None:
    write_shards(actor_of(run), [policy(VOCABULARY).state_dict()])
    damaged = actor_of(run) / "huggingface" / file
    damaged.unlink()
    if text is not None:
        damaged.write_text(text)
    with pytest.raises(UserError, match="the checkpoint is damaged or was not written whole"):
        export_checkpoint(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_configuration_of_the_run_must_be_whole(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_shards(actor_of(run), [policy(VOCABULARY).state_dict()])
    for text in ("", '{"trainer": {', "[]"):
        (run / "config.json").write_text(text)
        assert status_of("export", str(run), str(tmp_path / "out")) == 2
        assert "config.json: is damaged, or was not written whole; name another" in capsys.readouterr().err
    (run / "config.json").write_text(json.dumps({**CONFIG, "database": {"of_another_version": 1}}))
    (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_bytes(b"\xf5\x00")
    with pytest.raises(UserError, match="no complete global_step_N folder"):
        export_checkpoint(run, tmp_path / "out")
    (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("4")
    export_checkpoint(run, tmp_path / "out")
    assert "Not for decisions about health" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
