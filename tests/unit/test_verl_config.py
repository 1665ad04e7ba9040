"""TrainConfig -> verl's keys. What verl itself says of the result is in tests/golden (importing verl is slow)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from sql_agent.config import TrainConfig, build_config, known_keys, parse_assignment
from sql_agent.config.losses import Advantage
from sql_agent.training.verl_config import flatten, update_rules, verl_overrides

# Who reads what verl need not know: settings, and the beginnings of some.
READ_ELSEWHERE = {
    "name of the run folder": "recipe",
    "the command line": "method",
    "sql_agent.tuning, see test_tuning_run.py": "sft. dpo.",
    "sql_agent.local, see test_local_training.py": "local.",
    "sql_agent.agent.episode": "agent.",
    "config.build.agent_config": "agents",
    "sql_agent.environment.database": "database.",
    "sql_agent.agent.toolset, the sandbox": "python.",
    "sql_agent.agent.reader": "reader.",
    "agl_plugin.run.curriculum": "data.curriculum.",
    "agl_plugin.run.kept": "trainer.best_over trainer.early_stop",
    "questions.load_data": "data.train_file data.val_file data.val_max_rows",
    "questions.load_data, agl_plugin.audit.stored": "data.from_store",
    "sql_agent.scoring.scorers": "reward.",
    "preflight.model_folder": "model.path",
    "assembly.make_trainer": "rollout.n_runners rollout.runner_concurrency rollout.poll_interval_s",
    "assembly.daemon_options": (
        "rollout.proxy rollout.calls_per_engine rollout.plain_spans rollout.gateways rollout.sampler_logprobs "
        "rollout.resample_flat_groups rollout.async_groups rollout.max_staleness"
    ),
    "the daemon": "rollout.rollout_timeout_s",
    "lit_agent": "rollout.presence_penalty rollout.frequency_penalty rollout.stop rollout.validation.",
    "evaluation.trials": "rollout.evaluation.",
    "verl_config.update_rules": (
        "optim.importance_ optim.teacher optim.imit optim.credit optim.turn_shaping optim.overlong_filter "
        "optim.positive_only optim.micro_batch_tokens"
    ),
    "verl_config, see test_the_plugin_knows_each_advantage": "optim.advantage",
    "health_rules.health_of": "health.",
    "preflight.check_resume": "trainer.resume_changed",
    "preflight": "trainer.device",
    "questions.total_steps": "trainer.max_steps",
    "memory.offloads, see test_preflight.py": "trainer.offload",
    "the run folder": "trainer.runs_dir",
    "agl_plugin.run.between_steps": "trainer.seed",
    "assembly.make_store": "store.",
    "commands.serve": "serve.",
    "the console": "logging.debug",
    "assembly, agl_plugin.audit": "logging.audit",
    "models.model_folder": "model.tiny",
    "verl_keys, see test_verl_keys.py": "verl",
}

# Another valid value for every other setting. Where verl needs it, a second setting comes along.
CHANGED = [
    "data.seed=7",
    "model.lora_rank=16",
    "model.lora_rank=16 model.lora_alpha=64",
    "model.lora_rank=16 model.lora_adapter_path=/adapter",
    "model.attention=flash_attention_2",
    "model.allow_remote_code=true",
    "trainer.precision=float32",
    "rollout.group_size=8",
    "rollout.temperature=0.7",
    "rollout.top_p=0.9",
    "rollout.top_k=50",
    "rollout.max_prompt_tokens=4096",
    "rollout.max_model_len=3000",
    "rollout.max_response_tokens=512",
    "rollout.level=transition",
    "rollout.trajectory_max_response_tokens=2000",
    "rollout.gpu_memory_utilization=0.4",
    "rollout.tensor_parallel=2",
    "rollout.max_num_seqs=8",
    "rollout.tool_parser=llama3_json",
    "optim.lr=1e-5",
    "optim.loss=minirl",
    "optim.loss_aggregation=seq-mean-token-sum",
    "optim.warmup=3",
    "optim.kl_coef=0.01 optim.kl_estimator=k2",
    "optim.weight_decay=0.01",
    "optim.clip_low=0.1",
    "optim.lr_schedule=cosine",
    "optim.lr_final_share=0.3",
    "optim.clip_high=0.4",
    "optim.kl_coef=0.01",
    "optim.entropy_coef=0.01",
    "optim.questions_per_step=64",
    "optim.mini_batch_questions=16",
    "optim.micro_batch_rows=2",
    "optim.grad_clip=0.5",
    "trainer.n_gpus=2",
    "trainer.n_nodes=2",
    "model.attention=flash_attention_2 trainer.n_gpus=2 trainer.sequence_parallel=2",
    "trainer.epochs=3",
    "trainer.save_every=5",
    "trainer.validate_every=5",
    "trainer.validate_first=false",
    "trainer.keep_checkpoints=4",
    "trainer.resume=/runs/a/checkpoints/global_step_5",
    'logging.trackers=["tensorboard"]',
    "logging.project=other",
    "logging.experiment=other",
]


def config_of(settings: str = "") -> TrainConfig:
    return build_config({"trainer": {"device": "cuda"}}, *[parse_assignment(text) for text in settings.split()])


def keys_of(settings: str = "", **changes: Any) -> dict[str, Any]:
    """The flat verl overrides of a GPU configuration with some settings changed."""
    config = build_config(config_of(settings).model_dump(), changes)
    return flatten(verl_overrides(config, model_path="/m", run_dir=Path("/run"), total_steps=10))


def test_every_setting_has_a_reader() -> None:
    """A setting that nobody reads would be accepted and ignored."""
    changed = {text.split()[-1].partition("=")[0] for text in CHANGED}
    elsewhere = {key for key in known_keys() if key.startswith(tuple(" ".join(READ_ELSEWHERE.values()).split()))}
    assert changed | elsewhere == known_keys().keys() and not changed & elsewhere


@pytest.mark.parametrize("settings", CHANGED)
def test_a_changed_setting_changes_what_verl_gets(settings: str) -> None:
    *first, last = settings.split()
    value = next(iter(flatten(parse_assignment(last)).values()))
    before, after = keys_of(" ".join(first)), keys_of(settings)
    new = [after[key] for key in after if key not in before or after[key] != before[key]]
    assert new and (value in new or value is True or last.startswith("model.attention"))


def test_the_run_is_written_into_its_folder() -> None:
    keys = keys_of()
    assert keys["actor_rollout_ref.model.path"] == "/m" and keys["trainer.total_training_steps"] == 10
    assert keys["trainer.default_local_dir"] == "/run/checkpoints"


def test_limits_are_told_to_verl_once() -> None:
    keys = keys_of("rollout.max_prompt_tokens=9000 rollout.max_response_tokens=1000")
    assert keys["data.max_prompt_length"] == keys["actor_rollout_ref.rollout.prompt_length"] == 9000
    assert keys["data.max_response_length"] == keys["actor_rollout_ref.rollout.response_length"] == 1000
    assert keys["actor_rollout_ref.rollout.max_num_batched_tokens"] >= 10000


ACTOR, ROLLOUT, MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "model"))
FLASH = "model.attention=flash_attention_2"
# vLLM's default probabilities are those before temperature, and before top_p and top_k cut the distribution.
MODE, PROCESSED = f"{ROLLOUT}.engine_kwargs.vllm.logprobs_mode", "processed_logprobs"


@pytest.mark.parametrize(
    ("settings", "key", "value"),
    [
        ("", f"{ACTOR}.use_kl_loss", False),
        ("optim.kl_coef=0.1", f"{ACTOR}.use_kl_loss", True),
        ("", f"{MODEL}.use_remove_padding", False),
        (FLASH, f"{MODEL}.use_remove_padding", True),
        (f"{FLASH} trainer.device=cpu", f"{MODEL}.use_remove_padding", False),
        ("", "trainer.resume_mode", "disable"),
        ("", "trainer.resume_from_path", None),
        ("trainer.resume=/a/global_step_5", "trainer.resume_mode", "resume_path"),
        ("trainer.resume=/a/global_step_5", "trainer.resume_from_path", "/a/global_step_5"),
        ("", MODE, None),
        ("rollout.temperature=0.7", MODE, PROCESSED),
        ("rollout.top_p=0.9", MODE, PROCESSED),
        ("rollout.top_k=20", MODE, PROCESSED),
        ("rollout.frequency_penalty=0.5 optim.importance_correction=truncated", MODE, PROCESSED),
        ("rollout.temperature=0.7 rollout.sampler_logprobs=false", MODE, None),
    ],
)
def test_what_settings_are_to_verl(settings: str, key: str, value: object) -> None:
    assert keys_of(settings).get(key) == value


def test_a_cpu_gets_float32_and_no_gpu_feature() -> None:
    """The settings under which verl and vLLM were seen to run without a GPU."""
    keys = keys_of(trainer={"device": "cpu"})
    rollout, actor = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
    assert keys[f"{rollout}.dtype"] == "float32" and keys[f"{rollout}.enforce_eager"] is True
    assert keys[f"{rollout}.free_cache_engine"] is False
    assert keys[f"{rollout}.engine_kwargs.vllm.enable_sleep_mode"] is False
    assert keys[f"{actor}.fsdp_config.model_dtype"] == "fp32" and keys[f"{actor}.fsdp_config.dtype"] == "float32"
    assert not any(value for key, value in keys.items() if key.endswith(("_offload", "use_torch_compile")))
    assert keys["actor_rollout_ref.model.enable_gradient_checkpointing"] is False
    assert keys["trainer.device"] == "cpu"


def test_a_gpu_offloads_and_keeps_bfloat16() -> None:
    keys = keys_of()
    assert keys["actor_rollout_ref.actor.fsdp_config.param_offload"] is True
    assert keys["actor_rollout_ref.actor.fsdp_config.optimizer_offload"] is True
    assert not any("dtype" in key for key in keys)


def test_precision_is_a_choice_of_its_own() -> None:
    cpu, gpu = keys_of("trainer.precision=bfloat16", trainer={"device": "cpu"}), keys_of("trainer.precision=float32")
    assert not any("dtype" in key for key in cpu) and cpu["actor_rollout_ref.rollout.enforce_eager"] is True
    assert cpu["actor_rollout_ref.model.enable_gradient_checkpointing"] is True
    assert gpu["actor_rollout_ref.rollout.dtype"] == "float32" and "actor_rollout_ref.rollout.enforce_eager" not in gpu
    for role in ("actor", "ref"):
        assert gpu[f"actor_rollout_ref.{role}.fsdp_config.model_dtype"] == "fp32"
        assert gpu[f"actor_rollout_ref.{role}.fsdp_config.param_offload"] is True


def test_lora_keys_come_with_a_rank_only() -> None:
    assert not any("lora" in key for key in keys_of())
    keys = keys_of("model.lora_rank=16")
    assert keys["actor_rollout_ref.model.target_modules"] == "all-linear"
    assert keys["actor_rollout_ref.rollout.load_format"] == "safetensors"
    assert "actor_rollout_ref.model.lora_adapter_path" not in keys


def test_with_a_kl_term_the_adapter_is_in_the_model() -> None:
    """verl measures the KL term to the model without an adapter."""
    going_on = "model.lora_rank=16 model.lora_adapter_path=/adapter"
    assert keys_of(going_on)["actor_rollout_ref.model.lora_adapter_path"] == "/adapter"
    keys = keys_of(f"{going_on} optim.kl_coef=0.1")
    assert keys["actor_rollout_ref.model.lora_rank"] == 16
    assert "actor_rollout_ref.model.lora_adapter_path" not in keys


@pytest.mark.parametrize(("questions", "mini", "n_updates"), [(32, 32, 1), (32, 16, 2), (30, 16, 2), (8, 2, 4)])
def test_the_optimizer_steps_follow_from_the_questions(questions: int, mini: int, n_updates: int) -> None:
    rules = update_rules(config_of(f"optim.questions_per_step={questions} optim.mini_batch_questions={mini}"))
    assert (rules.n_updates, rules.correction, rules.cap) == (n_updates, "off", 2.0)


def test_the_correction_is_a_setting() -> None:
    settings = "optim.importance_correction=masked optim.importance_cap=3 optim.importance_level=sequence"
    rules = update_rules(config_of(settings))
    assert (rules.correction, rules.cap, rules.level) == ("masked", 3, "sequence")


def test_the_plugin_knows_each_advantage() -> None:
    from agl_plugin.update.advantage import ESTIMATES

    assert set(get_args(Advantage)) == ESTIMATES.keys()
    for advantage in ESTIMATES:
        assert keys_of(f"optim.advantage={advantage}")["algorithm.adv_estimator"] == f"{advantage}_rollouts"
