"""Each check before the start, on real files, a real socket and a real judge server: value, rule and remedy."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from foundation.errors import UserError
from foundation.files import size_text
from foundation.gpus import gpu_count
from sql_agent.config import (
    ModelConfig,
    RolloutConfig,
    StoreConfig,
    TrainConfig,
    TrainerConfig,
    build_config,
    resolve_system_prompt,
)
from sql_agent.scoring.build import build_context
from sql_agent.scoring.check import check_judge
from sql_agent.serving import checkpoints, models
from sql_agent.testing.server import chat_reply, error_reply, openai_server
from sql_agent.training import preflight
from sql_agent.training.memory import offloads, parameters
from tests.sql_db import make_database

TEMPLATE = {"chat_template": "{{ messages }}"}


def model(folder: Path, *, config: Any = None, tokenizer: Any = TEMPLATE, weights: str = "model.safetensors") -> Path:
    """A model folder as far as the checks look at it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3"} if config is None else config))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer.json").write_text("{}")
    save_file({"w": torch.zeros(100)}, folder / weights)
    return folder


def check(folder: Path, *, trusted: bool = False) -> None:
    models.check_model_folder(folder, allow_remote_code=trusted)


def test_a_whole_model_folder_passes(tmp_path: Path) -> None:
    check(model(tmp_path / "a"))
    jinja = model(tmp_path / "b", tokenizer={})
    (jinja / "chat_template.jinja").write_text("{{ messages }}")
    check(jinja)
    config = build_config({"model": {"path": str(tmp_path / "a")}})
    assert models.model_folder(config.model, tiny=False) == tmp_path / "a"


def test_the_tiny_policy_has_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sql_agent.tiny_policy.build.ensure_tiny_policy", lambda seed, task: Path(f"/made/{seed}"))
    config = build_config({"model": {"tiny_seed": 7}, "trainer": {"seed": 3}})
    assert models.model_folder(config.model, tiny=True) == Path("/made/7")
    assert models.model_folder(build_config({"trainer": {"seed": 3}}).model, tiny=True) == Path("/made/1")


CODE_KEYS = [
    {"auto_map": {"AutoModel": "x.y"}},
    {"vision_config": {"auto_map": {"AutoModel": "owner/name--x.y"}}},
    {"_attn_implementation_internal": "owner/kernel"},
    {"text_config": {"_attn_implementation": {"": "sdpa", "vision_config": "owner/kernel@main:attention"}}},
    {"attn_implementation": "paged|owner/kernel"},
    {"trust_remote_code": True},
    {"parts": [{"custom_generate": "owner/name"}]},
    {"quantization_config": {"loader": "owner/name--quantize.Quantizer"}},
]


@pytest.mark.parametrize("tree", CODE_KEYS)
def test_a_model_folder_that_names_code_is_refused_whichever_file_has_it(tmp_path: Path, tree: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="has .*, so loading it may run code.*model.allow_remote_code=true"):
        check(model(tmp_path / "config", config=tree))
    with pytest.raises(UserError, match="tokenizer_config.json has"):
        check(model(tmp_path / "tokenizer", tokenizer={**TEMPLATE, **tree}))
    folder = model(tmp_path / "generation")
    (folder / "generation_config.json").write_text(json.dumps(tree))
    with pytest.raises(UserError, match="generation_config.json has"):
        check(folder)
    check(folder, trusted=True)


def test_what_usual_model_folders_say_is_no_code(tmp_path: Path) -> None:
    usual = {
        "architectures": ["Qwen3ForCausalLM"],
        "_attn_implementation": "sdpa",
        "text_config": {"_attn_implementation": {"": "eager"}, "auto_map": None},
        "quantization_config": {"quant_method": "awq", "modules_to_not_convert": ["lm_head"]},
        "_name_or_path": "/models/Qwen--Qwen3-0.6B",
    }
    check(model(tmp_path, config=usual))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"weights": "pytorch_model.bin"}, r"no \*.safetensors there \(pickled weights can run code\)"),
        ({"tokenizer": {}}, "no chat template; use an instruct model"),
        ({"config": ["x"]}, "config.json must hold a JSON object"),
    ],
)
def test_an_unfit_model_folder_is_refused(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=f"--model {tmp_path}: .*{text}"):
        check(model(tmp_path, **changes))


@pytest.mark.parametrize("name", ["modeling_own.py", "custom_generate/generate.py"])
def test_code_in_a_model_folder_is_refused_though_no_key_names_it(tmp_path: Path, name: str) -> None:
    file = model(tmp_path) / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    with pytest.raises(UserError, match=f"{name} is code"):
        check(tmp_path)
    check(tmp_path, trusted=True)


def test_a_pickle_is_refused_where_a_loader_would_fall_back_on_it(tmp_path: Path) -> None:
    (model(tmp_path / "other", weights="other.safetensors") / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(UserError, match=r"pytorch_model.bin, a pickle"):
        check(tmp_path / "other")
    (model(tmp_path / "both") / "pytorch_model.bin").write_bytes(b"x")
    check(tmp_path / "both")


def cut_off(file: Path, *, kept: float = 0.5) -> None:
    file.write_bytes(file.read_bytes()[: int(kept * file.stat().st_size)])


@pytest.mark.parametrize("kept", [0, 0.01, 0.5, 0.99])
def test_weights_that_are_cut_off_are_named_before_anything_loads_them(tmp_path: Path, kept: float) -> None:
    cut_off(model(tmp_path) / "model.safetensors", kept=kept)
    with pytest.raises(UserError, match=f"--model {tmp_path}: model.safetensors cannot be read to its end .*again, or"):
        check(tmp_path)
    with pytest.raises(UserError, match="model.safetensors cannot be read to its end"):
        check(tmp_path, trusted=True)


def test_a_shard_that_an_index_names_is_there(tmp_path: Path) -> None:
    folder = model(tmp_path, weights="model-00001-of-00002.safetensors")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(UserError, match="index.json names model-00002-of-00002.safetensors, which does not exist"):
        check(folder)
    save_file({"b": torch.zeros(1)}, folder / shards["b"])
    check(folder)


def test_a_tokenizer_is_there_and_whole(tmp_path: Path) -> None:
    cut_off(model(tmp_path) / "tokenizer.json")
    with pytest.raises(UserError, match="tokenizer.json cannot be read to its end"):
        check(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(UserError, match="tokenizer.json is missing. The model was not saved, copied or downloaded"):
        check(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"sentences")
    check(tmp_path)


def test_an_adapter_that_is_cut_off_is_named(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    save_file({"lora_A": torch.zeros(100)}, tmp_path / "adapter_model.safetensors")
    settings = ModelConfig(lora_rank=8, lora_adapter_path=str(tmp_path))
    preflight.check_adapter(settings)
    cut_off(tmp_path / "adapter_model.safetensors")
    with pytest.raises(UserError, match="--lora-adapter-path .*: adapter_model.safetensors cannot be read to its end"):
        preflight.check_adapter(settings)


@pytest.mark.parametrize("content", [b"{", b"\xff", b""])
def test_a_broken_config_is_named(tmp_path: Path, content: bytes) -> None:
    (model(tmp_path) / "config.json").write_bytes(content)
    with pytest.raises(UserError, match="config.json cannot be read"):
        check(tmp_path)


@pytest.mark.parametrize("name", ["./none", "/none/at/all", "~/none", "none", "a/b/c"])
def test_what_is_neither_folder_nor_hub_name_is_refused_without_the_network(name: str) -> None:
    with pytest.raises(UserError, match="no such folder, and not a hub name like Qwen/Qwen3-0.6B"):
        models.model_folder(ModelConfig(path=name), tiny=False)


def test_a_runs_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file/runs: cannot be written"):
        preflight.check_disk(TrainerConfig(runs_dir=str(tmp_path / "file" / "runs")), tmp_path, lora=False)


def test_checkpoints_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    big = tmp_path / "model"
    big.mkdir()
    with (big / "model.safetensors").open("wb") as file:
        file.truncate(2**42)  # a sparse file of 4 TiB
    with pytest.raises(UserError, match=r" free, but 2 checkpoints, the best and another need about 112 TiB"):
        preflight.check_disk(TrainerConfig(runs_dir=str(tmp_path / "runs")), big, lora=False)
    preflight.check_disk(TrainerConfig(runs_dir=str(tmp_path / "runs"), save_every=-1), big, lora=False)
    assert list((tmp_path / "runs").iterdir()) == []


def prompted(tree: dict[str, Any]) -> TrainConfig:
    return resolve_system_prompt(build_config(tree), tiny=True)


def test_the_database_is_opened_and_its_tables_asked(tmp_path: Path) -> None:
    path = str(make_database(tmp_path))
    preflight.check_agent(prompted({"database": {"path": path}}))
    with pytest.raises(UserError, match="none"):
        preflight.check_agent(prompted({"database": {"path": path, "tables": ["none"]}}))
    (tmp_path / "text.db").write_text("no database at all" * 100)
    with pytest.raises(UserError, match="text.db"):
        preflight.check_agent(prompted({"database": {"path": str(tmp_path / "text.db")}}))


def judged(folder: Path) -> TrainConfig:
    return build_config({"reward": {"judge": {"folder": str(folder / "judge")}}})


def teacher(monkeypatch: pytest.MonkeyPatch, base_url: str) -> None:
    """Variables that name an LLM as the judge, or none."""
    for name, value in {"BASE_URL": base_url, "API_KEY": "sk-secret-value", "MODEL": "judge-model"}.items():
        monkeypatch.setenv(f"TEACHER_{name}", value if base_url else "")


def test_a_wrong_judge_key_is_found_before_the_first_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with openai_server(lambda _: error_reply(401, "wrong key")) as server:
        teacher(monkeypatch, server.base_url)
        with pytest.raises(UserError, match="judge: .*401") as caught:
            check_judge(build_context(judged(tmp_path).reward))
    assert "sk-secret-value" not in str(caught.value) and len(server.requests) == 1


def test_a_judge_that_answers_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    verdict = {"accuracy": 1, "completeness": 1, "clarity": 1, "professionalism": 1, "overall": 1, "reason": "ok"}
    with openai_server(lambda _: chat_reply(json.dumps(verdict))) as server:
        teacher(monkeypatch, server.base_url)
        context = build_context(judged(tmp_path).reward)
        check_judge(context)
        assert "judge-model" in context.judge_name
    teacher(monkeypatch, "")
    assert "offline" in build_context(judged(tmp_path).reward).judge_name


def devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, gpus: int) -> None:
    """Put an nvidia-smi on the PATH that lists so many GPUs; it is found before a real one."""
    script = tmp_path / "nvidia-smi"
    lines = "".join(f"echo 'GPU {n}: NVIDIA A800 (UUID: GPU-{n})'\n" for n in range(gpus))
    script.write_text(f"#!/bin/sh\n{lines}" + ("" if gpus else "echo 'No devices were found' >&2; exit 6\n"))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_gpus_are_counted_by_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpus: int) -> None:
    devices(monkeypatch, tmp_path, gpus=gpus)
    assert gpu_count() == gpus


def test_missing_gpus_are_named_unless_ray_has_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    devices(monkeypatch, tmp_path, gpus=1)
    config = build_config({"trainer": {"device": "cuda", "n_gpus": 2}})
    with pytest.raises(UserError, match=r"--n-gpus 2: the driver shows 1 GPU\(s\)"):
        preflight.check_devices(config.trainer, config.rollout)
    preflight.check_devices(TrainerConfig(device="cuda", n_gpus=1), config.rollout)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    preflight.check_devices(config.trainer, config.rollout)


def on_four(of: Callable[..., None], *folder: Path, tensor_parallel: int = 1, sequence_parallel: int = 1) -> None:
    """On four GPUs."""
    trainer = TrainerConfig(device="cuda", n_gpus=4, sequence_parallel=sequence_parallel)
    of(trainer, RolloutConfig(tensor_parallel=tensor_parallel), *folder)


@pytest.mark.parametrize("key", ["rollout.tensor_parallel", "trainer.sequence_parallel"])
def test_what_shares_a_model_or_a_row_divides_gpus_and_heads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str
) -> None:
    devices(monkeypatch, tmp_path, gpus=4)
    name = key.partition(".")[2]
    with pytest.raises(UserError, match=f"{key} = 3 must divide --n-gpus 4"):
        on_four(preflight.check_devices, **{name: 3})
    config = tmp_path / "config.json"
    for tree in ({"num_attention_heads": 14}, {"text_config": {"num_attention_heads": 14}}):  # the second sees images
        config.write_text(json.dumps(tree))
        on_four(preflight.check_parallel, tmp_path, **{name: 2})
        with pytest.raises(UserError, match=f"{key} = 4 must divide the 14 attention heads of"):
            on_four(preflight.check_parallel, tmp_path, **{name: 4})


@pytest.mark.parametrize("tree", [{"trainer": {"device": "cpu"}}, {"trainer": {"device": "cuda"}}])
def test_rows_are_shared_only_where_they_have_no_padding(tree: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"trainer.sequence_parallel = 2 needs a GPU and model.attention = flash_att"):
        build_config(tree, {"trainer": {"sequence_parallel": 2}})


def checkpoint(run: Path, step: int, *, complete: bool = True) -> Path:
    """A run folder with a checkpoint; verl writes latest_checkpointed_iteration.txt when it is complete."""
    folder = run / "checkpoints" / f"global_step_{step}"
    (folder / "actor").mkdir(parents=True)
    (run / "config.json").write_text("{}")
    if complete:
        (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_text(str(step))
    return folder


def found(resume: str, runs: Path) -> Path:
    return checkpoints.find_checkpoint(TrainerConfig(resume=resume, runs_dir=str(runs)), method="grpo")


def test_latest_is_the_newest_checkpoint_of_all_runs(tmp_path: Path) -> None:
    old = checkpoint(tmp_path / "runs" / "a", 40)
    new = checkpoint(tmp_path / "runs" / "b", 5)
    os.utime(old / "actor", (1, 1))
    assert found("latest", tmp_path / "runs") == new


def test_a_run_folder_means_its_highest_step(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "a"
    for step in (5, 100, 20):
        checkpoint(run, step)
    (run / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("100")
    for resume in (str(run), str(run / "checkpoints"), "a", str(run / "checkpoints" / "global_step_100")):
        assert found(resume, tmp_path / "runs") == run / "checkpoints" / "global_step_100"
    assert found(str(run / "checkpoints" / "global_step_5"), tmp_path) == run / "checkpoints" / "global_step_5"


def test_a_checkpoint_that_was_cut_off_is_not_resumed(tmp_path: Path) -> None:
    """Killed during a save: the last good one resumes."""
    run = tmp_path / "runs" / "a"
    good = checkpoint(run, 20)
    os.utime(good / "actor", (1, 1))
    checkpoint(run, 40, complete=False)
    assert found("latest", tmp_path / "runs") == good
    assert found("a", tmp_path / "runs") == good


@pytest.mark.parametrize("name", ["model_world_size_1_rank_0.pt", "optim_world_size_1_rank_0.pt", "model.safetensors"])
def test_a_checkpoint_with_a_file_that_is_cut_off_is_named(tmp_path: Path, name: str) -> None:
    file = checkpoint(tmp_path / "runs" / "a", 20) / "actor" / name
    tensors = {"w": torch.zeros(1000)}
    save_file(tensors, file) if file.suffix == ".safetensors" else torch.save(tensors, file)
    for resume in ("a", "latest"):
        assert found(resume, tmp_path / "runs") == file.parents[1]
    cut_off(file)
    for resume in ("a", "latest"):
        with pytest.raises(UserError, match=f"{file}: .*; the checkpoint is damaged .* Use another global_step_N"):
            found(resume, tmp_path / "runs")


def test_a_checkpoint_needs_the_weights_of_each_rank(tmp_path: Path) -> None:
    actor = checkpoint(tmp_path / "runs" / "a", 20) / "actor"
    (actor / "fsdp_config.json").write_text('{"world_size": 2}')
    torch.save({}, actor / "model_world_size_2_rank_0.pt")
    with pytest.raises(UserError, match="model_world_size_2_rank_1.pt: does not exist; the checkpoint is damaged"):
        found("a", tmp_path / "runs")


@pytest.mark.parametrize("name", ["global_step_", "global_step_x", "global_step_5.tmp"])
def test_odd_names_beside_checkpoints_are_no_trouble(tmp_path: Path, name: str) -> None:
    good = checkpoint(tmp_path / "runs" / "a", 20)
    (good.parent / name / "actor").mkdir(parents=True)
    assert found("a", tmp_path / "runs") == good


def test_only_own_runs_are_resumed(tmp_path: Path) -> None:
    """Checkpoints are unpickled: one from elsewhere could run anything."""
    run = tmp_path / "runs" / "a"
    folder = checkpoint(run, 20)
    (run / "config.json").unlink()
    for resume in (str(folder), str(run), "latest"):
        with pytest.raises(UserError, match=f"--resume {resume}"):
            found(resume, tmp_path / "runs")


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="latest: no complete global_step_N folder below .*Name a run that saved one"):
        found("latest", tmp_path)
    (tmp_path / "global_step_5").mkdir()
    for resume in ("none", str(tmp_path / "global_step_5")):
        with pytest.raises(UserError, match="no complete global_step_N folder below"):
            found(resume, tmp_path)


def test_sizes_are_told_in_units_that_show_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: SimpleNamespace(free=3_000_000))
    (tmp_path / "model.safetensors").write_bytes(b"x" * 4_000_000)
    with pytest.raises(UserError, match=r"2\.9 MiB free, but 2 checkpoints, the best and another need about \d+ MiB"):
        preflight.check_disk(TrainerConfig(runs_dir=str(tmp_path / "runs")), tmp_path, lora=False)
    assert [size_text(n) for n in (0, 999, 2000, 2**33)] == ["0 bytes", "999 bytes", "2.0 KiB", "8.0 GiB"]


@pytest.mark.parametrize(
    ("host", "token", "told"),
    [
        ("0.0.0.0", "", "AGL_SERVER_HOST 0.0.0.0: it would let in"),
        ("192.0.2.1", "x" * 20, "no address of this machine"),
    ],
)
def test_a_host_that_the_own_store_cannot_have_is_named(
    monkeypatch: pytest.MonkeyPatch, host: str, token: str, told: str
) -> None:
    monkeypatch.delenv("AGL_SERVER_PORT", raising=False)
    monkeypatch.setenv("AGL_SERVER_HOST", host)
    monkeypatch.setenv("AGL_STORE_TOKEN", token)
    with pytest.raises(UserError, match=told):
        preflight.check_store_port(StoreConfig(), role="both")
    preflight.check_store_port(StoreConfig(), role="runner")


def test_a_taken_port_of_the_own_store_is_named_with_a_free_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGL_SERVER_PORT", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"store\.port = {port}: .*choose another: store\.port=\d+ is free"):
            preflight.check_store_port(StoreConfig(port=port), role="both")
        preflight.check_store_port(StoreConfig(port=port, external_address="http://localhost:1"), role="both")
        preflight.check_store_port(StoreConfig(port=port), role="runner")
        preflight.check_store_port(StoreConfig(), role="both")
        monkeypatch.setenv("AGL_SERVER_PORT", str(port))
        with pytest.raises(UserError, match=f"AGL_SERVER_PORT = {port}: "):
            preflight.check_store_port(StoreConfig(), role="both")


@pytest.mark.parametrize(("name", "billions"), [("Qwen/Qwen2.5-7B-Instruct", 7.616), ("x/Other-7B", 7.0)])
def test_a_model_is_reckoned_with_its_real_size_where_it_is_known(name: str, billions: float) -> None:
    found, source = parameters(name)
    assert found == billions * 1e9 and ("round" in source) == (billions == 7.0)


def offloaded(tree: dict[str, Any]) -> bool:
    config = build_config(tree)
    return offloads(config.model, config.optim, config.rollout, config.trainer)


@pytest.mark.parametrize(
    ("mib", "model", "sets", "expected"),
    [
        (81_559, "Qwen/Qwen3-0.6B", {}, False),
        (24_576, "Qwen/Qwen3-0.6B", {}, False),
        (16_384, "Qwen/Qwen3-0.6B", {}, True),
        (81_559, "Qwen/Qwen2.5-7B-Instruct", {"n_gpus": 2}, True),
        (81_559, "Qwen/Qwen2.5-7B-Instruct", {"n_gpus": 8}, False),
        (81_559, "Qwen/Qwen2.5-7B-Instruct", {"offload": "never"}, False),
        (81_559, "Qwen/Qwen3-0.6B", {"offload": "always"}, True),
        (81_559, "some/model", {}, True),
        (None, "Qwen/Qwen3-0.6B", {}, True),
    ],
)
def test_the_update_is_offloaded_where_it_does_not_fit_beside_vllm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mib: int | None, model: str, sets: dict[str, Any], expected: bool
) -> None:
    if mib:
        driver = tmp_path / "nvidia-smi"
        driver.write_text(f"#!/bin/sh\necho {mib}\necho {mib + 1}\n")
        driver.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin" if mib else str(tmp_path))
    tree = {"model": {"path": model}, "rollout": {"gpu_memory_utilization": 0.5}, "trainer": {"device": "cuda", **sets}}
    assert offloaded(tree) is expected


def test_a_cpu_has_no_second_memory() -> None:
    assert not offloaded({"trainer": {"device": "cpu"}})
    with pytest.raises(UserError, match="needs a GPU"):
        build_config({"trainer": {"device": "cpu", "offload": "always"}})
