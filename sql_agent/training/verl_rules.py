"""Which of verl's keys a recipe's section [verl] may set, as data: docs/10-configuration.md shows this table.

Guarantees, kept by tests/unit/test_verl_keys.py: each key of verl's composed configuration has a rule, the one with the
longest name; what is passed on reaches verl, and what is not is refused with the reason given here. Written for verl
0.9.1. Not covered: whether a value that verl accepts helps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sql_agent.config import TrainConfig
from sql_agent.config.losses import CLIPPED

ACTOR, REF, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.ref.", "actor_rollout_ref.rollout."
MODEL, VLLM = "actor_rollout_ref.model.", "actor_rollout_ref.rollout.engine_kwargs.vllm."


@dataclass(frozen=True)
class Need:
    """What a key works with only. `holds` gets the run's and verl's keys.

    `settings` is one way to fulfil it; `unmet` one not to, where the defaults do.
    """

    text: str
    settings: tuple[str, ...]
    holds: Callable[[TrainConfig, Mapping[str, Any]], bool]
    unmet: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """What happens to a key of verl, or to all of a section (a name that ends with a dot).

    `own` is the key of this project that sets it; `sample` a value that is passed on; `kind` the type where verl's
    default (null) tells none; `values` the choices; `must` a condition in words, with its function.
    """

    key: str
    how: Literal["own key", "passed on", "refused"]
    why: str
    own: str = ""
    sample: Any = None
    need: Need | None = None
    kind: type | None = None
    values: tuple[str, ...] = ()
    must: tuple[str, Callable[[Any], bool]] | None = None


GPU = Need("a GPU", ("trainer.device=cuda",), lambda config, _: config.trainer.device != "cpu")
FLASH = Need(
    'a GPU and `model.attention = "flash_attention_2"`',
    ("trainer.device=cuda", "model.attention=flash_attention_2"),
    lambda config, _: config.trainer.device != "cpu" and config.model.attention == "flash_attention_2",
)
KL = Need("`optim.kl_coef` above 0", ("optim.kl_coef=0.01",), lambda config, _: config.optim.kl_coef > 0)
PPO = Need(
    "`optim.loss` grpo, dapo or dr_grpo",
    ("optim.loss=grpo",),
    lambda config, _: config.optim.loss in CLIPPED,
    unmet=("optim.loss=gspo",),
)
COSINE = Need(
    '`optim.lr_schedule = "cosine"`',
    ("optim.lr_schedule=cosine",),
    lambda config, _: config.optim.lr_schedule == "cosine",
)
LORA = Need("`model.lora_rank` above 0", ("model.lora_rank=8",), lambda config, _: config.model.lora_rank > 0)
NEW_LORA = Need(
    "`model.lora_rank` above 0, and no adapter to continue from",
    ("model.lora_rank=8",),
    lambda config, _: config.model.lora_rank > 0 and (config.merges_adapter or not config.model.lora_adapter_path),
)
FSDP2 = Need(
    'a GPU and `verl.actor_rollout_ref.actor.strategy = "fsdp2"`',
    ("trainer.device=cuda", f"verl.{ACTOR}strategy=fsdp2"),
    lambda config, verl: config.trainer.device != "cpu" and verl.get(f"{ACTOR}strategy") == "fsdp2",
)


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < 1


def _passed(key: str, sample: Any, why: str, **more: Any) -> Rule:
    return Rule(key, "passed on", why, sample=sample, **more)


def _own(key: str, own: str, why: str = "") -> Rule:
    return Rule(key, "own key", why, own=own)


def _refused(key: str, why: str) -> Rule:
    return Rule(key, "refused", why)


_ADVANTAGE = [
    _own("algorithm.adv_estimator", "optim.advantage", "where each rollout counts once, however many rows it has"),
    _own("algorithm.norm_adv_by_std_in_grpo", "optim.advantage"),
    _refused("algorithm.", "these advantages read neither discounts, nor critics, nor a KL term in the reward"),
    _own("algorithm.rollout_correction.rollout_is", "optim.importance_correction"),
    _own("algorithm.rollout_correction.rollout_is_threshold", "optim.importance_cap"),
    _refused(
        "algorithm.rollout_correction.",
        "this project's loop does not read it, and corrects per token (optim.importance_correction)",
    ),
]

_LOSS = [
    _own(f"{ACTOR}clip_ratio", "optim.clip_low", "and optim.clip_high: verl reads it only where those are missing"),
    _own(f"{ACTOR}clip_ratio_low", "optim.clip_low"),
    _own(f"{ACTOR}clip_ratio_high", "optim.clip_high"),
    _passed(
        f"{ACTOR}clip_ratio_c", 5.0, "bound of the loss where the advantage is negative (dual clip)",
        need=PPO, must=("above 1", lambda value: value > 1),
    ),
    _own(f"{ACTOR}use_kl_loss", "optim.kl_coef"),
    _own(f"{ACTOR}kl_loss_coef", "optim.kl_coef"),
    _own(f"{ACTOR}kl_loss_type", "optim.kl_estimator"),
    _own(f"{ACTOR}entropy_coeff", "optim.entropy_coef"),
    _own(f"{ACTOR}policy_loss.loss_mode", "optim.loss"),
    _refused(
        f"{ACTOR}policy_loss.",
        "it belongs to clip_cov and kl_cov, which choose tokens by micro batch: the update would depend on its size",
    ),
    _own(f"{ACTOR}loss_agg_mode", "optim.loss_aggregation"),
]  # fmt: skip

_OPTIMIZER = [
    _own(f"{ACTOR}optim.lr", "optim.lr"),
    _own(f"{ACTOR}optim.lr_scheduler_type", "optim.lr_schedule"),
    _own(f"{ACTOR}optim.warmup_style", "optim.lr_schedule"),
    _own(f"{ACTOR}optim.min_lr_ratio", "optim.lr_final_share"),
    _own(f"{ACTOR}optim.weight_decay", "optim.weight_decay"),
    _own(f"{ACTOR}optim.clip_grad", "optim.grad_clip"),
    _own(f"{ACTOR}grad_clip", "optim.grad_clip"),
    _own(f"{ACTOR}optim.total_training_steps", "trainer.max_steps"),
    _passed(
        f"{ACTOR}optim.betas", [0.9, 0.95], "AdamW's two decay rates",
        must=("two numbers in [0, 1)", lambda value: len(value) == 2 and all(_is_share(beta) for beta in value)),
    ),
    _own(f"{ACTOR}optim.lr_warmup_steps", "optim.warmup"),
    _own(f"{ACTOR}optim.lr_warmup_steps_ratio", "optim.warmup"),
    _passed(f"{ACTOR}optim.num_cycles", 0.5, "waves of the cosine", need=COSINE),
    _passed(f"{ACTOR}optim.zero_indexed_step", False, "false: the cosine counts steps from 1", need=COSINE),
    _passed(f"{ACTOR}optim.optimizer", "Adam", "class in optimizer_impl that takes lr, weight_decay and betas"),
    _passed(f"{ACTOR}optim.optimizer_impl", "torch.optim", "module of the optimizer; install its package yourself"),
    _passed(f"{ACTOR}optim.override_optimizer_config.", {"eps": 1e-6}, "more arguments of the optimizer"),
]  # fmt: skip

_BATCHES = [
    _own(f"{ACTOR}ppo_mini_batch_size", "optim.mini_batch_questions"),
    _own(f"{ACTOR}ppo_micro_batch_size", "optim.micro_batch_rows"),
    _own(f"{ACTOR}ppo_micro_batch_size_per_gpu", "optim.micro_batch_rows"),
    _own(f"{ACTOR}use_dynamic_bsz", "optim.micro_batch_tokens", "which keeps the number of optimizer steps"),
    _own(f"{ACTOR}ppo_max_token_len_per_gpu", "optim.micro_batch_tokens"),
    _passed(
        f"{ACTOR}ppo_epochs", 2, "passes over the rows of a step, each with all its optimizer steps",
        must=("1 or more", lambda value: value >= 1),
    ),
    _refused(f"{ACTOR}shuffle", "verl's FSDP actor does not read it"),
    _refused("trainer.balance_batch", "the update deals the rows over the GPUs itself"),
]  # fmt: skip

_ACTOR = [
    _passed(
        f"{ACTOR}strategy", "fsdp2", "fsdp or fsdp2; actor and reference model share it. fsdp2 was not tried here",
        need=GPU, values=("fsdp", "fsdp2"),
    ),
    _own(f"{ACTOR}fsdp_config.param_offload", "trainer.offload"),
    _own(f"{ACTOR}fsdp_config.optimizer_offload", "trainer.offload"),
    _passed(f"{ACTOR}fsdp_config.offload_policy", True, "FSDP2's own offloading", need=FSDP2),
    _passed(f"{ACTOR}fsdp_config.reshard_after_forward", False, "FSDP2: keep weights whole until backward", need=FSDP2),
    _passed(f"{ACTOR}fsdp_config.forward_prefetch", True, "FSDP: fetch the next layer early", need=GPU),
    _passed(f"{ACTOR}fsdp_config.fsdp_size", 8, "GPUs that share one copy of the weights; -1: all", need=GPU),
    _passed(f"{ACTOR}fsdp_config.wrap_policy.min_num_params", 1000, "smallest part that FSDP wraps", need=GPU),
    _passed(f"{ACTOR}fsdp_config.use_orig_params", True, "FSDP keeps the model's own parameters", need=GPU),
    _passed(
        f"{ACTOR}fsdp_config.model_dtype", "bf16", "precision of the weights and of AdamW",
        need=GPU, values=("fp32", "bf16", "fp16"),
    ),
    _own(f"{ACTOR}fsdp_config.dtype", "trainer.precision"),
    _refused(f"{ACTOR}fsdp_config.", "it would change what the update of this project relies on"),
    _refused(f"{ACTOR}ulysses_sequence_parallel_size", "the update gives each GPU rows of its own"),
    _passed(f"{ACTOR}fsdp_config.entropy_from_logits_with_chunking", True, "of verl's own forward pass", need=FLASH),
    _passed(f"{ACTOR}fsdp_config.entropy_checkpointing", True, "read by verl's own forward pass", need=FLASH),
    _passed(f"{ACTOR}fsdp_config.use_torch_compile", False, "whether verl compiles its entropy", need=FLASH),
    _own(f"{ACTOR}use_remove_padding", "model.attention"),
    _refused(f"{ACTOR}use_fused_kernels", "it follows verl.actor_rollout_ref.model.use_fused_kernels"),
    _refused(f"{ACTOR}freeze_vision_tower", "the agent's model reads text alone"),
    _refused(f"{ACTOR}checkpoint.", "resuming and `agentgrpo export` need all that verl writes by default"),
    _refused(f"{ACTOR}profiler.", "verl's profilers are driven by its own loop, which this project's replaces"),
    _refused(ACTOR, "the update of this project does not read it"),
]  # fmt: skip

_REFERENCE = [
    _own(f"{REF}fsdp_config.param_offload", "trainer.offload"),
    _own(f"{REF}log_prob_use_dynamic_bsz", "optim.micro_batch_tokens"),
    _own(f"{REF}log_prob_max_token_len_per_gpu", "optim.micro_batch_tokens"),
    _own(f"{REF}log_prob_micro_batch_size", "optim.micro_batch_rows"),
    _own(f"{REF}log_prob_micro_batch_size_per_gpu", "optim.micro_batch_rows"),
    _refused(REF, "the reference model is the start model, run as the actor is"),
]

_SAMPLER = [
    _own(f"{ROLLOUT}temperature", "rollout.temperature"),
    _own(f"{ROLLOUT}top_p", "rollout.top_p"),
    _own(f"{ROLLOUT}top_k", "rollout.top_k"),
    _refused(
        f"{ROLLOUT}val_kwargs.",
        "agent-lightning does not read it: each request says how it samples (rollout.validation)",
    ),
    _refused(f"{ROLLOUT}do_sample", "each request says how it samples"),
    _refused(f"{ROLLOUT}ignore_eos", "vLLM's server does not read it, and an answer without an end is of no use"),
    _own(f"{ROLLOUT}n", "rollout.group_size"),
    _own(f"{ROLLOUT}prompt_length", "rollout.max_prompt_tokens"),
    _own(f"{ROLLOUT}response_length", "rollout.max_response_tokens"),
    _own(f"{ROLLOUT}calculate_log_probs", "rollout.sampler_logprobs"),
]

_VLLM = [
    _own(f"{ROLLOUT}tensor_model_parallel_size", "rollout.tensor_parallel"),
    _own(f"{ROLLOUT}gpu_memory_utilization", "rollout.gpu_memory_utilization"),
    _own(f"{ROLLOUT}max_num_seqs", "rollout.max_num_seqs"),
    _own(f"{ROLLOUT}max_model_len", "rollout.max_model_len"),
    _passed(
        f"{ROLLOUT}max_num_batched_tokens", 16384, "tokens of one step of vLLM",
        must=("1 or more", lambda value: value >= 1),
    ),
    _passed(f"{ROLLOUT}enable_chunked_prefill", True, "whether vLLM cuts long prompts"),
    _passed(f"{ROLLOUT}enable_prefix_caching", False, "false: vLLM computes each turn's history again"),
    _passed(f"{ROLLOUT}disable_log_stats", False, "false: vLLM logs its load"),
    _passed(f"{ROLLOUT}enforce_eager", True, "true: no CUDA graphs", need=GPU),
    _passed(f"{ROLLOUT}cudagraph_capture_sizes", [1, 8, 64], "batch sizes with a CUDA graph", need=GPU, kind=list),
    _passed(f"{ROLLOUT}free_cache_engine", False, "false: vLLM keeps its memory during the update", need=GPU),
    _own(f"{ROLLOUT}dtype", "trainer.precision"),
    _own(f"{VLLM}dtype", "trainer.precision"),
    _passed(
        f"{ROLLOUT}load_format", "safetensors", "dummy: weights come with the first synchronization",
        values=("dummy", "auto", "safetensors"),
    ),
    _passed(f"{ROLLOUT}layered_summon", True, "synchronize adapters layer by layer", need=LORA),
    _refused(f"{ROLLOUT}data_parallel_size", "rollout.tensor_parallel alone divides the GPUs"),
    _refused(f"{ROLLOUT}expert_parallel_size", "rollout.tensor_parallel alone divides the GPUs"),
    _passed(VLLM, {"seed": 3}, "any flag of `vllm serve`, with _ for -; objects as JSON text; verl leaves out a false"),
    _own(f"{VLLM}tool_call_parser", "rollout.tool_parser"),
    _own(f"{VLLM}max_model_len", "rollout.max_model_len"),
    _own(f"{VLLM}logprobs_mode", "rollout.temperature", "which decides whether vLLM's default is right"),
    *(
        _refused(f"{VLLM}{flag}", why)
        for flag, why in {
            "enable_auto_tool_choice": "the agent calls tools",
            "enable_sleep_mode": "trainer and vLLM share a GPU's memory",
            "override_generation_config": "each request says how it samples: rollout.temperature, top_p and top_k",
            "generation_config": "each request says how it samples: rollout.temperature, top_p and top_k",
            "distributed_executor_backend": "verl sets it",
            "model": "verl sets it: model.path",
            "served_model_name": "agent-lightning asks for the model by its path",
            "api_key": "agent-lightning sends none",
            "host": "verl chooses it",
            "port": "verl chooses it",
        }.items()
    ),
    _own(f"{ROLLOUT}multi_turn.format", "rollout.tool_parser"),
    _own(f"{ROLLOUT}multi_turn.max_assistant_turns", "agent.max_turns"),
    _own(f"{ROLLOUT}log_prob_micro_batch_size", "optim.micro_batch_rows"),
    _own(f"{ROLLOUT}log_prob_micro_batch_size_per_gpu", "optim.micro_batch_rows"),
    _own(f"{ROLLOUT}log_prob_use_dynamic_bsz", "optim.micro_batch_tokens"),
    _own(f"{ROLLOUT}log_prob_max_token_len_per_gpu", "optim.micro_batch_tokens"),
    _refused(ROLLOUT, "it belongs to verl's own agent loop or to SGLang; here agent-lightning's runners ask vLLM"),
]  # fmt: skip

_MODEL = [
    _own(f"{MODEL}path", "model.path"),
    _own(f"{MODEL}lora_rank", "model.lora_rank"),
    _own(f"{MODEL}lora_alpha", "model.lora_alpha"),
    _own(f"{MODEL}lora_adapter_path", "model.lora_adapter_path"),
    _passed(f"{MODEL}target_modules", "all-linear", "layers that get an adapter: a name, or a pattern", need=NEW_LORA),
    _passed(f"{MODEL}exclude_modules", "lm_head", "layers that get none", need=NEW_LORA, kind=str),
    _own(f"{MODEL}trust_remote_code", "model.allow_remote_code"),
    _own(f"{MODEL}override_config.attn_implementation", "model.attention"),
    _passed(f"{MODEL}override_config.", {"attention_dropout": 0.0}, "keys of the model's config.json, in training"),
    _own(f"{MODEL}use_remove_padding", "model.attention"),
    _passed(f"{MODEL}use_fused_kernels", True, "log-probabilities without whole logits; not tried here", need=GPU),
    _passed(
        f"{MODEL}fused_kernel_options.impl_backend", "triton", "kernels of use_fused_kernels",
        need=GPU, values=("torch", "triton"),
    ),
    _passed(f"{MODEL}enable_gradient_checkpointing", False, "false: more memory, no second forward pass", need=GPU),
    _passed(f"{MODEL}enable_activation_offload", True, "activations wait in the machine's memory", need=GPU),
    _passed(f"{MODEL}use_shm", True, "copy the model to /dev/shm first"),
    _refused(f"{MODEL}external_lib", "it loads this project's part of the update"),
    _refused(f"{MODEL}use_liger", "its package is not part of this project's environment"),
    _refused(MODEL, "tokenizer, template and config.json are those of model.path, which vLLM reads too"),
    _refused("actor_rollout_ref.nccl_timeout", "verl's workers do not read it"),
    _refused("actor_rollout_ref.hybrid_engine", "trainer and vLLM share the GPUs"),
]  # fmt: skip

_DATA = [
    _own("data.train_files", "data.train_file"),
    _own("data.val_files", "data.val_file"),
    _own("data.val_max_samples", "data.val_max_rows"),
    _own("data.train_batch_size", "optim.questions_per_step"),
    _own("data.max_prompt_length", "rollout.max_prompt_tokens"),
    _own("data.max_response_length", "rollout.max_response_tokens"),
    _own("data.seed", "data.seed"),
    _own("data.trust_remote_code", "model.allow_remote_code"),
    _refused(
        "data.",
        "agent-lightning gets the questions as read from data.train_file or data.train_files, in an order that follows "
        "from data.seed",
    ),
]

_TRAINER = [
    _own("trainer.device", "trainer.device"),
    _own("trainer.n_gpus_per_node", "trainer.n_gpus"),
    _refused("trainer.nnodes", "the checks of batches, GPUs and memory are for one machine"),
    _own("trainer.total_epochs", "trainer.epochs"),
    _own("trainer.total_training_steps", "trainer.max_steps"),
    _own("trainer.save_freq", "trainer.save_every"),
    _own("trainer.test_freq", "trainer.validate_every"),
    _own("trainer.val_before_train", "trainer.validate_first"),
    _own("trainer.resume_mode", "trainer.resume"),
    _own("trainer.resume_from_path", "trainer.resume"),
    _own("trainer.default_local_dir", "trainer.runs_dir"),
    _own("trainer.max_actor_ckpt_to_keep", "trainer.keep_checkpoints"),
    _own("trainer.logger", "logging.trackers"),
    _own("trainer.project_name", "logging.project"),
    _own("trainer.experiment_name", "logging.experiment"),
    _passed("trainer.ray_wait_register_center_timeout", 600, "seconds that Ray's workers have to start"),
    _refused("trainer.val_only", "`agentgrpo evaluate` measures a model without training it"),
    _refused("trainer.", "this project's loop does not read it, or the run folder has it (rollouts.jsonl)"),
]

_REST = [
    _refused("critic.", "GRPO has no critic"),
    _refused("reward_model.", "rewards come from reward.terms; a reward model is asked over HTTP"),
    _refused("custom_reward_function.", "rewards come from reward.terms"),
    _refused("global_profiler.", "verl's profilers are driven by its own loop, which this project's replaces"),
    _refused("transfer_queue.", "this project's loop does not use it"),
    _refused("skip.", "this project's loop does not use it"),
    _refused("reward.", "rewards come from reward.terms; a reward model is asked over HTTP"),
    _refused("distillation.", "the policy learns from rewards, without a teacher's tokens"),
    _refused("sandbox_fusion.", "rewards come from reward.terms"),
    _refused("model_engine", "the update is built on verl's FSDP engine"),
    _refused("ray_kwargs.", "Ray is started by this project, or found by RAY_ADDRESS"),
    _own("agentlightning.trace_aggregator.level", "rollout.level"),
    _own("agentlightning.trace_aggregator.trajectory_max_prompt_length", "rollout.max_prompt_tokens"),
    _own("agentlightning.trace_aggregator.trajectory_max_response_length", "rollout.trajectory_max_response_tokens"),
]

_CLASS = _refused("_target_", "it names a class of verl")

RULES: list[Rule] = [
    *_ADVANTAGE, *_LOSS, *_OPTIMIZER, *_BATCHES, *_ACTOR, *_REFERENCE, *_SAMPLER, *_VLLM, *_MODEL, *_DATA,
    *_TRAINER, *_REST, _CLASS,
]  # fmt: skip


# Free-form sections: verl's configuration does not list their keys.
OPEN_SECTIONS = tuple(rule.key for rule in RULES if rule.how == "passed on" and rule.key.endswith("."))


def rule_of(key: str) -> Rule:
    """The rule with the longest name that covers a key of verl. Raises ValueError when there is none."""
    if key.endswith(f".{_CLASS.key}"):
        return _CLASS
    fitting = [rule for rule in RULES if f"{key}.".startswith(rule.key if rule.key.endswith(".") else f"{rule.key}.")]
    if not fitting:
        raise ValueError(f"{key}: verl has it, but RULES do not say what happens to it")
    return max(fitting, key=lambda rule: len(rule.key))
