"""What happens to verl's keys in a recipe's section [verl]: passed on, set by a key of this project, or refused.

A key falls under the longest name that covers it; a name that ends with a dot is a section, and "" is everything.
Guarantees, kept by tests/unit/test_verl_keys.py: what is passed on reaches verl, and what is not is refused with the
reason given here. Written for verl 0.9.1. Not covered: values, which are verl's to check, and whether one that verl
accepts helps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sql_agent.config import TrainConfig
from sql_agent.config.losses import CLIPPED

ACTOR, REF, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.ref.", "actor_rollout_ref.rollout."
MODEL, VLLM = "actor_rollout_ref.model.", "actor_rollout_ref.rollout.engine_kwargs.vllm."

OF_THE_SERVER = (
    *("enable_auto_tool_choice", "enable_sleep_mode", "distributed_executor_backend"),
    *("model", "served_model_name", "api_key", "host", "port"),
)

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
        config.model.lora_rank > 0 and (config.merged_adapter is not None or not config.model.lora_adapter_path)
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
    f"{ACTOR}strategy": (
        "fsdp or fsdp2; actor and reference model share it. fsdp2 was tried on two ranks of a CPU alone",
        GPU,
    ),
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
        lambda value: len(value) == 2 and all(isinstance(number, int | float) and 0 <= number < 1 for number in value),
    ),
    f"{ACTOR}ppo_epochs": ("1 or more", lambda value: value >= 1),
    f"{ACTOR}strategy": _one_of("fsdp", "fsdp2"),
    f"{ACTOR}fsdp_config.model_dtype": _one_of("fp32", "bf16", "fp16"),
    f"{ROLLOUT}max_num_batched_tokens": ("1 or more", lambda value: value >= 1),
    f"{ROLLOUT}load_format": _one_of("dummy", "auto", "safetensors"),
}

# A key of this project, and the keys of verl that follow from it, those of actor_rollout_ref without that word; a key
# behind = gets the very value, of the others verl_config makes what they need.
FOLLOWING = """
optim.micro_batch_tokens actor.use_dynamic_bsz actor.ppo_max_token_len_per_gpu ref.log_prob_use_dynamic_bsz
optim.micro_batch_tokens ref.log_prob_max_token_len_per_gpu rollout.log_prob_use_dynamic_bsz
optim.micro_batch_tokens rollout.log_prob_max_token_len_per_gpu
trainer.offload actor.fsdp_config.param_offload actor.fsdp_config.optimizer_offload ref.fsdp_config.param_offload
optim.advantage algorithm.adv_estimator algorithm.norm_adv_by_std_in_grpo
optim.importance_correction algorithm.rollout_correction.rollout_is
optim.importance_cap algorithm.rollout_correction.rollout_is_threshold
optim.clip_low actor.clip_ratio =actor.clip_ratio_low
optim.clip_high =actor.clip_ratio_high
optim.kl_coef actor.use_kl_loss =actor.kl_loss_coef
optim.kl_estimator =actor.kl_loss_type
optim.entropy_coef =actor.entropy_coeff
optim.loss actor.policy_loss.loss_mode
optim.loss_aggregation =actor.loss_agg_mode
optim.lr =actor.optim.lr
optim.lr_schedule =actor.optim.lr_scheduler_type actor.optim.warmup_style
optim.lr_final_share =actor.optim.min_lr_ratio
optim.weight_decay =actor.optim.weight_decay
optim.grad_clip =actor.optim.clip_grad actor.grad_clip
trainer.max_steps actor.optim.total_training_steps trainer.total_training_steps
optim.warmup actor.optim.lr_warmup_steps actor.optim.lr_warmup_steps_ratio
optim.mini_batch_questions =actor.ppo_mini_batch_size
optim.micro_batch_rows actor.ppo_micro_batch_size =actor.ppo_micro_batch_size_per_gpu ref.log_prob_micro_batch_size
optim.micro_batch_rows =ref.log_prob_micro_batch_size_per_gpu rollout.log_prob_micro_batch_size
optim.micro_batch_rows =rollout.log_prob_micro_batch_size_per_gpu
trainer.precision actor.fsdp_config.dtype rollout.dtype rollout.engine_kwargs.vllm.dtype
model.attention actor.use_remove_padding =model.override_config.attn_implementation model.use_remove_padding
rollout.temperature =rollout.temperature rollout.engine_kwargs.vllm.logprobs_mode
rollout.top_p =rollout.top_p
rollout.top_k rollout.top_k
rollout.group_size =rollout.n
rollout.max_prompt_tokens =rollout.prompt_length =data.max_prompt_length
rollout.max_prompt_tokens =agentlightning.trace_aggregator.trajectory_max_prompt_length
rollout.max_response_tokens =rollout.response_length =data.max_response_length
rollout.sampler_logprobs rollout.calculate_log_probs
rollout.tensor_parallel =rollout.tensor_model_parallel_size
trainer.sequence_parallel =actor.ulysses_sequence_parallel_size
rollout.gpu_memory_utilization =rollout.gpu_memory_utilization
rollout.max_num_seqs =rollout.max_num_seqs
rollout.max_model_len rollout.max_model_len rollout.engine_kwargs.vllm.max_model_len
rollout.tool_parser =rollout.engine_kwargs.vllm.tool_call_parser rollout.multi_turn.format
agent.max_turns rollout.multi_turn.max_assistant_turns
model.path model.path
model.lora_rank model.lora_rank
model.lora_alpha model.lora_alpha
model.lora_adapter_path model.lora_adapter_path
model.allow_remote_code =model.trust_remote_code =data.trust_remote_code
data.train_file data.train_files
data.val_file data.val_files
data.val_max_rows data.val_max_samples
optim.questions_per_step =data.train_batch_size
data.seed =data.seed
trainer.device trainer.device
trainer.n_gpus =trainer.n_gpus_per_node
trainer.n_nodes =trainer.nnodes
trainer.epochs =trainer.total_epochs
trainer.save_every =trainer.save_freq
trainer.validate_every =trainer.test_freq
trainer.validate_first =trainer.val_before_train
trainer.resume trainer.resume_mode trainer.resume_from_path
trainer.runs_dir trainer.default_local_dir
trainer.keep_checkpoints =trainer.max_actor_ckpt_to_keep
logging.trackers =trainer.logger
logging.project =trainer.project_name
logging.experiment =trainer.experiment_name
rollout.level =agentlightning.trace_aggregator.level
rollout.trajectory_max_response_tokens =agentlightning.trace_aggregator.trajectory_max_response_length
"""
SECTIONS = ("actor.", "model.", "ref.", "rollout.")


def _full_key(key: str) -> str:
    return f"actor_rollout_ref.{key}" if key.startswith(SECTIONS) else key


_ROWS = [(own, key) for own, *keys in map(str.split, FOLLOWING.strip().splitlines()) for key in keys]
OWN: dict[str, str] = {_full_key(key.removeprefix("=")): own for own, key in _ROWS}
COPIED: dict[str, str] = {_full_key(key[1:]): own for own, key in _ROWS if key.startswith("=")}

# Why all keys of a section, or one of them, are refused.
REFUSED: dict[str, str] = {
    "": "rewards, questions, logs and the loop over steps are this project's, and read no such key",
    CLASS: "it names a class of verl",
    "algorithm.": "these advantages read neither discounts, nor critics, nor a KL term in the reward",
    ACTOR: "the update of this project does not read it, or relies on verl's own value",
    f"{ACTOR}policy_loss.": "it chooses tokens by micro batch: the update would depend on its size",
    f"{ACTOR}checkpoint.": "resuming and `agentgrpo export` need all that verl writes by default",
    REF: "the reference model is the start model, run as the actor is",
    ROLLOUT: "it belongs to verl's own agent loop or to SGLang; each request to vLLM says how it samples",
    **dict.fromkeys(
        (f"{VLLM}override_generation_config", f"{VLLM}generation_config"),
        "each request says how it samples: rollout.temperature, top_p and top_k",
    ),
    **dict.fromkeys(
        (f"{VLLM}{name}" for name in OF_THE_SERVER),
        "verl, agent-lightning or this project sets it, for an agent that calls tools on a GPU that is shared",
    ),
    MODEL: "tokenizer, template and config.json are those of model.path, which vLLM reads too",
    "trainer.val_only": "`agentgrpo evaluate` measures a model without training it",
    "critic.": "GRPO has no critic",
}

ROWS = (*OWN, *PASSED_ON, *REFUSED)
# Free-form sections: verl's configuration does not list their keys.
OPEN_SECTIONS = tuple(key for key in PASSED_ON if key.endswith("."))


def row_of(key: str) -> str:
    """The longest name above that covers a key of verl."""
    if key.endswith(f".{CLASS}"):
        return CLASS
    return max((row for row in ROWS if not row or f"{key}.".startswith(f"{row.rstrip('.')}.")), key=len)
