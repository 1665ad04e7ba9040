"""What happens to verl's keys in a recipe's section [verl], as data: docs/10-configuration.md shows what is passed on.

A key that is in none of them falls under the longest section (a name that ends with a dot) that it is in. Guarantees,
kept by tests/unit/test_verl_keys.py: each key of verl's composed configuration falls under a row, what is passed on
reaches verl, and what is not is refused with the reason given here. Written for verl 0.9.1. Not covered: values, which
are verl's to check, and whether one that verl accepts helps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from sql_agent.config import TrainConfig
from sql_agent.config.losses import CLIPPED

ACTOR, REF, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.ref.", "actor_rollout_ref.rollout."
MODEL, VLLM = "actor_rollout_ref.model.", "actor_rollout_ref.rollout.engine_kwargs.vllm."

CLASS = "_target_"  # the last name of a key, in any section

GPU = "a GPU"
PPO, COSINE = "`optim.loss` grpo, dapo or dr_grpo", '`optim.lr_schedule = "cosine"`'
LORA, NEW_LORA = "`model.lora_rank` above 0", "`model.lora_rank` above 0, and no adapter to continue from"
FSDP2 = 'a GPU and `verl.actor_rollout_ref.actor.strategy = "fsdp2"`'


# What a key works with only, in words, and whether a run has it, by its configuration and its section [verl].
NEEDS: dict[str, Callable[[TrainConfig, Mapping[str, Any]], bool]] = {
    GPU: lambda config, _: config.trainer.device != "cpu",
    PPO: lambda config, _: config.optim.loss in CLIPPED,
    COSINE: lambda config, _: config.optim.lr_schedule == "cosine",
    LORA: lambda config, _: config.model.lora_rank > 0,
    NEW_LORA: lambda config, _: (
        config.model.lora_rank > 0 and (config.merges_adapter or not config.model.lora_adapter_path)
    ),
    FSDP2: lambda config, verl: config.trainer.device != "cpu" and verl.get(f"{ACTOR}strategy") == "fsdp2",
}

# What it does, and what it needs.
PASSED_ON: dict[str, tuple[str, str]] = {
    f"{ACTOR}clip_ratio_c": ("bound of the loss where the advantage is negative (dual clip)", PPO),
    f"{ACTOR}optim.betas": ("AdamW's two decay rates", ""),
    f"{ACTOR}optim.num_cycles": ("waves of the cosine", COSINE),
    f"{ACTOR}optim.zero_indexed_step": ("false: the cosine counts steps from 1", COSINE),
    f"{ACTOR}optim.optimizer": ("class in optimizer_impl that takes lr, weight_decay and betas", ""),
    f"{ACTOR}optim.optimizer_impl": ("module of the optimizer; install its package yourself", ""),
    f"{ACTOR}optim.override_optimizer_config.": ("more arguments of the optimizer", ""),
    f"{ACTOR}ppo_epochs": ("passes over the rows of a step, each with all its optimizer steps", ""),
    f"{ACTOR}strategy": ("fsdp or fsdp2; actor and reference model share it. fsdp2 was not tried here", GPU),
    f"{ACTOR}fsdp_config.offload_policy": ("FSDP2's own offloading", FSDP2),
    f"{ACTOR}fsdp_config.reshard_after_forward": ("FSDP2: keep weights whole until backward", FSDP2),
    f"{ACTOR}fsdp_config.forward_prefetch": ("FSDP: fetch the next layer early", GPU),
    f"{ACTOR}fsdp_config.fsdp_size": ("GPUs that share one copy of the weights; -1: all", GPU),
    f"{ACTOR}fsdp_config.wrap_policy.min_num_params": ("smallest part that FSDP wraps", GPU),
    f"{ACTOR}fsdp_config.use_orig_params": ("FSDP keeps the model's own parameters", GPU),
    f"{ACTOR}fsdp_config.model_dtype": ("precision of the weights and of AdamW; fp32, bf16, fp16", GPU),
    f"{ROLLOUT}max_num_batched_tokens": ("tokens of one step of vLLM", ""),
    f"{ROLLOUT}enable_chunked_prefill": ("whether vLLM cuts long prompts", ""),
    f"{ROLLOUT}enable_prefix_caching": ("false: vLLM computes each turn's history again", ""),
    f"{ROLLOUT}disable_log_stats": ("false: vLLM logs its load", ""),
    f"{ROLLOUT}enforce_eager": ("true: no CUDA graphs", GPU),
    f"{ROLLOUT}cudagraph_capture_sizes": ("batch sizes with a CUDA graph", GPU),
    f"{ROLLOUT}free_cache_engine": ("false: vLLM keeps its memory during the update", GPU),
    f"{ROLLOUT}load_format": ("dummy: weights come with the first synchronization", ""),
    f"{ROLLOUT}layered_summon": ("synchronize adapters layer by layer", LORA),
    VLLM: ("any flag of `vllm serve`, with _ for -; objects as JSON text; verl leaves out a false", ""),
    f"{MODEL}target_modules": ("layers that get an adapter: a name, or a pattern", NEW_LORA),
    f"{MODEL}exclude_modules": ("layers that get none", NEW_LORA),
    f"{MODEL}override_config.": ("keys of the model's config.json, in training", ""),
    f"{MODEL}enable_gradient_checkpointing": ("false: more memory, no second forward pass", GPU),
    f"{MODEL}enable_activation_offload": ("activations wait in the machine's memory", GPU),
    f"{MODEL}use_shm": ("copy the model to /dev/shm first", ""),
    "trainer.ray_wait_register_center_timeout": ("seconds that Ray's workers have to start", ""),
}


def _one_of(*values: str) -> tuple[str, Callable[[Any], bool]]:
    return f"one of {', '.join(values)}", values.__contains__


# Values that verl, torch or vLLM would refuse late or in no words, and those for which an update would be none.
FITS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    f"{ACTOR}clip_ratio_c": ("above 1", lambda value: value > 1),
    f"{ACTOR}optim.betas": (
        "two numbers in [0, 1)",
        lambda value: len(value) == 2 and all(isinstance(one, int | float) and 0 <= one < 1 for one in value),
    ),
    f"{ACTOR}ppo_epochs": ("1 or more", lambda value: value >= 1),
    f"{ACTOR}strategy": _one_of("fsdp", "fsdp2"),
    f"{ACTOR}fsdp_config.model_dtype": _one_of("fp32", "bf16", "fp16"),
    f"{ROLLOUT}max_num_batched_tokens": ("1 or more", lambda value: value >= 1),
    f"{ROLLOUT}load_format": _one_of("dummy", "auto", "safetensors"),
}

# The key of this project from which it follows.
OWN: dict[str, str] = {
    f"{ACTOR}use_dynamic_bsz": "optim.micro_batch_tokens",
    f"{ACTOR}ppo_max_token_len_per_gpu": "optim.micro_batch_tokens",
    f"{REF}log_prob_use_dynamic_bsz": "optim.micro_batch_tokens",
    f"{REF}log_prob_max_token_len_per_gpu": "optim.micro_batch_tokens",
    f"{ROLLOUT}log_prob_use_dynamic_bsz": "optim.micro_batch_tokens",
    f"{ROLLOUT}log_prob_max_token_len_per_gpu": "optim.micro_batch_tokens",
    f"{ACTOR}fsdp_config.param_offload": "trainer.offload",
    f"{ACTOR}fsdp_config.optimizer_offload": "trainer.offload",
    f"{REF}fsdp_config.param_offload": "trainer.offload",
    "algorithm.adv_estimator": "optim.advantage",
    "algorithm.norm_adv_by_std_in_grpo": "optim.advantage",
    "algorithm.rollout_correction.rollout_is": "optim.importance_correction",
    "algorithm.rollout_correction.rollout_is_threshold": "optim.importance_cap",
    f"{ACTOR}clip_ratio": "optim.clip_low",
    f"{ACTOR}clip_ratio_low": "optim.clip_low",
    f"{ACTOR}clip_ratio_high": "optim.clip_high",
    f"{ACTOR}use_kl_loss": "optim.kl_coef",
    f"{ACTOR}kl_loss_coef": "optim.kl_coef",
    f"{ACTOR}kl_loss_type": "optim.kl_estimator",
    f"{ACTOR}entropy_coeff": "optim.entropy_coef",
    f"{ACTOR}policy_loss.loss_mode": "optim.loss",
    f"{ACTOR}loss_agg_mode": "optim.loss_aggregation",
    f"{ACTOR}optim.lr": "optim.lr",
    f"{ACTOR}optim.lr_scheduler_type": "optim.lr_schedule",
    f"{ACTOR}optim.warmup_style": "optim.lr_schedule",
    f"{ACTOR}optim.min_lr_ratio": "optim.lr_final_share",
    f"{ACTOR}optim.weight_decay": "optim.weight_decay",
    f"{ACTOR}optim.clip_grad": "optim.grad_clip",
    f"{ACTOR}grad_clip": "optim.grad_clip",
    f"{ACTOR}optim.total_training_steps": "trainer.max_steps",
    f"{ACTOR}optim.lr_warmup_steps": "optim.warmup",
    f"{ACTOR}optim.lr_warmup_steps_ratio": "optim.warmup",
    f"{ACTOR}ppo_mini_batch_size": "optim.mini_batch_questions",
    f"{ACTOR}ppo_micro_batch_size": "optim.micro_batch_rows",
    f"{ACTOR}ppo_micro_batch_size_per_gpu": "optim.micro_batch_rows",
    f"{ACTOR}fsdp_config.dtype": "trainer.precision",
    f"{ACTOR}use_remove_padding": "model.attention",
    f"{REF}log_prob_micro_batch_size": "optim.micro_batch_rows",
    f"{REF}log_prob_micro_batch_size_per_gpu": "optim.micro_batch_rows",
    f"{ROLLOUT}temperature": "rollout.temperature",
    f"{ROLLOUT}top_p": "rollout.top_p",
    f"{ROLLOUT}top_k": "rollout.top_k",
    f"{ROLLOUT}n": "rollout.group_size",
    f"{ROLLOUT}prompt_length": "rollout.max_prompt_tokens",
    f"{ROLLOUT}response_length": "rollout.max_response_tokens",
    f"{ROLLOUT}calculate_log_probs": "rollout.sampler_logprobs",
    f"{ROLLOUT}tensor_model_parallel_size": "rollout.tensor_parallel",
    f"{ACTOR}ulysses_sequence_parallel_size": "trainer.sequence_parallel",
    f"{ROLLOUT}gpu_memory_utilization": "rollout.gpu_memory_utilization",
    f"{ROLLOUT}max_num_seqs": "rollout.max_num_seqs",
    f"{ROLLOUT}max_model_len": "rollout.max_model_len",
    f"{ROLLOUT}dtype": "trainer.precision",
    f"{VLLM}dtype": "trainer.precision",
    f"{VLLM}tool_call_parser": "rollout.tool_parser",
    f"{VLLM}max_model_len": "rollout.max_model_len",
    f"{VLLM}logprobs_mode": "rollout.temperature",
    f"{ROLLOUT}multi_turn.format": "rollout.tool_parser",
    f"{ROLLOUT}multi_turn.max_assistant_turns": "agent.max_turns",
    f"{ROLLOUT}log_prob_micro_batch_size": "optim.micro_batch_rows",
    f"{ROLLOUT}log_prob_micro_batch_size_per_gpu": "optim.micro_batch_rows",
    f"{MODEL}path": "model.path",
    f"{MODEL}lora_rank": "model.lora_rank",
    f"{MODEL}lora_alpha": "model.lora_alpha",
    f"{MODEL}lora_adapter_path": "model.lora_adapter_path",
    f"{MODEL}trust_remote_code": "model.allow_remote_code",
    f"{MODEL}override_config.attn_implementation": "model.attention",
    f"{MODEL}use_remove_padding": "model.attention",
    "data.train_files": "data.train_file",
    "data.val_files": "data.val_file",
    "data.val_max_samples": "data.val_max_rows",
    "data.train_batch_size": "optim.questions_per_step",
    "data.max_prompt_length": "rollout.max_prompt_tokens",
    "data.max_response_length": "rollout.max_response_tokens",
    "data.seed": "data.seed",
    "data.trust_remote_code": "model.allow_remote_code",
    "trainer.device": "trainer.device",
    "trainer.n_gpus_per_node": "trainer.n_gpus",
    "trainer.total_epochs": "trainer.epochs",
    "trainer.total_training_steps": "trainer.max_steps",
    "trainer.save_freq": "trainer.save_every",
    "trainer.test_freq": "trainer.validate_every",
    "trainer.val_before_train": "trainer.validate_first",
    "trainer.resume_mode": "trainer.resume",
    "trainer.resume_from_path": "trainer.resume",
    "trainer.default_local_dir": "trainer.runs_dir",
    "trainer.max_actor_ckpt_to_keep": "trainer.keep_checkpoints",
    "trainer.logger": "logging.trackers",
    "trainer.project_name": "logging.project",
    "trainer.experiment_name": "logging.experiment",
    "agentlightning.trace_aggregator.level": "rollout.level",
    "agentlightning.trace_aggregator.trajectory_max_prompt_length": "rollout.max_prompt_tokens",
    "agentlightning.trace_aggregator.trajectory_max_response_length": "rollout.trajectory_max_response_tokens",
}

# Why.
REFUSED: dict[str, str] = {
    CLASS: "it names a class of verl",
    "algorithm.": "these advantages read neither discounts, nor critics, nor a KL term in the reward",
    "algorithm.rollout_correction.": (
        "this project's loop does not read it, and corrects per token (optim.importance_correction)"
    ),
    f"{ACTOR}policy_loss.": (
        "it belongs to clip_cov and kl_cov, which choose tokens by micro batch: the update would depend on its size"
    ),
    f"{ACTOR}shuffle": "verl's FSDP actor does not read it",
    "trainer.balance_batch": "the update deals the rows over the GPUs itself",
    f"{ACTOR}fsdp_config.": "it would change what the update of this project relies on",
    f"{ACTOR}use_fused_kernels": "logits are those of the trained tokens alone, and scored in parts",
    f"{ACTOR}freeze_vision_tower": "the agent's model reads text alone",
    f"{ACTOR}checkpoint.": "resuming and `agentgrpo export` need all that verl writes by default",
    f"{ACTOR}profiler.": "verl's profilers are driven by its own loop, which this project's replaces",
    ACTOR: "the update of this project does not read it",
    REF: "the reference model is the start model, run as the actor is",
    f"{ROLLOUT}val_kwargs.": "agent-lightning does not read it: each request says how it samples (rollout.validation)",
    f"{ROLLOUT}do_sample": "each request says how it samples",
    f"{ROLLOUT}ignore_eos": "vLLM's server does not read it, and an answer without an end is of no use",
    f"{ROLLOUT}data_parallel_size": "rollout.tensor_parallel alone divides the GPUs",
    f"{ROLLOUT}expert_parallel_size": "rollout.tensor_parallel alone divides the GPUs",
    f"{VLLM}enable_auto_tool_choice": "the agent calls tools",
    f"{VLLM}enable_sleep_mode": "trainer and vLLM share a GPU's memory",
    f"{VLLM}override_generation_config": "each request says how it samples: rollout.temperature, top_p and top_k",
    f"{VLLM}generation_config": "each request says how it samples: rollout.temperature, top_p and top_k",
    f"{VLLM}distributed_executor_backend": "verl sets it",
    f"{VLLM}model": "verl sets it: model.path",
    f"{VLLM}served_model_name": "agent-lightning asks for the model by its path",
    f"{VLLM}api_key": "agent-lightning sends none",
    f"{VLLM}host": "verl chooses it",
    f"{VLLM}port": "verl chooses it",
    ROLLOUT: "it belongs to verl's own agent loop or to SGLang; here agent-lightning's runners ask vLLM",
    f"{MODEL}use_fused_kernels": "logits are those of the trained tokens alone, and scored in parts",
    f"{MODEL}fused_kernel_options.": "it belongs to use_fused_kernels",
    f"{MODEL}external_lib": "it loads this project's part of the update",
    f"{MODEL}use_liger": "its package is not part of this project's environment",
    MODEL: "tokenizer, template and config.json are those of model.path, which vLLM reads too",
    "actor_rollout_ref.nccl_timeout": "verl's workers do not read it",
    "actor_rollout_ref.hybrid_engine": "trainer and vLLM share the GPUs",
    "data.": (
        "agent-lightning gets the questions as read from data.train_file or data.train_files, in an order "
        "that follows from data.seed"
    ),
    "trainer.nnodes": "the checks of batches, GPUs and memory are for one machine",
    "trainer.val_only": "`agentgrpo evaluate` measures a model without training it",
    "trainer.": "this project's loop does not read it, or the run folder has it (rollouts.jsonl)",
    "critic.": "GRPO has no critic",
    "reward_model.": "rewards come from reward.terms; a reward model is asked over HTTP",
    "custom_reward_function.": "rewards come from reward.terms",
    "global_profiler.": "verl's profilers are driven by its own loop, which this project's replaces",
    "transfer_queue.": "this project's loop does not use it",
    "skip.": "this project's loop does not use it",
    "reward.": "rewards come from reward.terms; a reward model is asked over HTTP",
    "distillation.": "the policy learns from rewards, without a teacher's tokens",
    "sandbox_fusion.": "rewards come from reward.terms",
    "model_engine": "the update is built on verl's FSDP engine",
    "ray_kwargs.": "Ray is started by this project, or found by RAY_ADDRESS",
}

How = Literal["passed on", "own key", "refused"]
HOW: dict[str, How] = {
    **dict.fromkeys(REFUSED, "refused"),
    **dict.fromkeys(OWN, "own key"),
    **dict.fromkeys(PASSED_ON, "passed on"),
}
# Free-form sections: verl's configuration does not list their keys.
OPEN_SECTIONS = tuple(key for key in PASSED_ON if key.endswith("."))


def row_of(key: str) -> str:
    """The longest name above that covers a key of verl. Raises ValueError when there is none."""
    if key.endswith(f".{CLASS}"):
        return CLASS
    fitting = [row for row in HOW if f"{key}.".startswith(row if row.endswith(".") else f"{row}.")]
    if not fitting:
        raise ValueError(f"{key}: verl has it, but this module does not say what happens to it")
    return max(fitting, key=len)
