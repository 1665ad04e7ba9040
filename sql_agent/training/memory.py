"""What a run needs of a GPU's memory, by arithmetic over parameters and settings; not measured on GPUs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from foundation.gpus import gpu_memory_gb
from sql_agent.config import ROOT, ModelConfig, OptimConfig, RolloutConfig, TrainerConfig, resolve_path
from sql_agent.serving.models import GPU_MODEL, language_model
from sql_agent.tiny_policy.sources import fingerprint
from sql_agent.tiny_policy.task import load_task

GB = 1e9
TINY_PARAMETERS = 1.12e6
VOCABULARIES = {"qwen3.5": 248_320}  # words of the models whose folder is not here
QWEN_VOCABULARY = 151_936
TRAINED_BYTES = 16  # per parameter: float32 weight and gradient, two moments of Adam
FROZEN_BYTES = 4  # per parameter beside adapters: verl keeps float32
LOGIT_BYTES = 6.2  # per sampled token and word: bf16 logits, their gradient, float32 scores; measured on a CPU
SAMPLED_BYTES = 2  # per parameter in vLLM: bf16
# Billions of parameters of the models whose names round them, as their configurations give them.
REAL_SIZES = {
    "qwen2.5": {"0.5": 0.494, "1.5": 1.544, "3": 3.086, "7": 7.616, "14": 14.770, "32": 32.764, "72": 72.706},
    "qwen3": {"0.6": 0.596, "1.7": 1.721, "4": 4.022, "8": 8.191, "14": 14.768, "32": 32.762},
}
LORA_SHARE = 0.011  # of the parameters at rank 32, all linear layers: 81 of 7,616 million
SPARE = 1.1  # room that allocators leave unused


def local_model(name: str) -> Path | None:
    path = resolve_path(name, ROOT / "sql_agent", ROOT) if name else None
    return path if path is not None and path.is_dir() else None


def model_name(model: ModelConfig, *, tiny: bool, seed: int) -> str:
    """Folder or hub name of the policy."""
    if tiny:
        return f".cache/tiny_policy/{fingerprint(seed, load_task(model.tiny))}"
    return str(local_model(model.path) or model.path or GPU_MODEL)


def parameters(path: str, *, tiny: bool = False) -> tuple[float, str]:
    """How many parameters the model of `model.path` has, 0 where nothing tells, and where the number is from."""
    if tiny:
        return TINY_PARAMETERS, "tiny policy"
    if folder := local_model(path):
        n_bytes = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        stored = str(json.loads((folder / "config.json").read_text(encoding="utf-8")).get("torch_dtype", "bfloat16"))
        return n_bytes / (4 if stored == "float32" else 2), "size of the weights"
    name = Path(path or GPU_MODEL).name
    size = re.search(r"(\d+(?:\.\d+)?)[bB]\b", name)
    if size is None:
        return 0.0, ""
    real = REAL_SIZES.get(_family(path), {}).get(size[1])
    return (real * 1e9, "what its name stands for") if real else (float(size[1]) * 1e9, "its name, which may round it")


def vocabulary(path: str) -> int:
    """Words of the model of `model.path`, by its folder or its family."""
    if folder := local_model(path):
        return int(language_model(folder).get("vocab_size", QWEN_VOCABULARY))
    return VOCABULARIES.get(_family(path), QWEN_VOCABULARY)


def _family(path: str) -> str:
    return Path(path or GPU_MODEL).name.lower().split("-")[0]


def update_bytes(n: float, *, lora: int) -> float:
    """Weights, gradients and moments of a model of `n` parameters, adapters of rank `lora`; all GPUs together."""
    return FROZEN_BYTES * n + TRAINED_BYTES * LORA_SHARE * n * lora / 32 if lora else TRAINED_BYTES * n


def offloads(model: ModelConfig, optim: OptimConfig, rollout: RolloutConfig, trainer: TrainerConfig) -> bool:
    """Whether the update's weights and moments wait in the machine's memory while vLLM samples.

    They need not where they fit beside vLLM's share; they do where the driver or the model's name tells no size.
    """
    if trainer.device == "cpu" or trainer.offload != "auto":
        return trainer.device != "cpu" and trainer.offload == "always"
    n, _ = parameters(model.path)
    reference = FROZEN_BYTES * n if optim.kl_coef and not model.lora_rank else 0.0
    needed = SPARE * (update_bytes(n, lora=model.lora_rank) + reference) / trainer.n_ranks
    return not n or needed > GB * gpu_memory_gb() * (1 - rollout.gpu_memory_utilization)


def memory(
    model: ModelConfig, optim: OptimConfig, rollout: RolloutConfig, trainer: TrainerConfig, *, tiny: bool
) -> Iterator[str]:
    """What the update and vLLM need, in GB; nothing where the model's size is unknown."""
    n, source = parameters(model.path, tiny=tiny)
    if not n:
        yield "memory: unknown, because neither files nor name tell the model's size"
        return
    state = update_bytes(n, lora=model.lora_rank)
    yield f"memory ({n / 1e9:.3g} billion parameters, from {source}; calculated, not measured):"
    where = "; offloaded while vLLM samples" if offloads(model, optim, rollout, trainer) else ""
    per_gpu = state / trainer.n_ranks / GB
    yield f"  update: {per_gpu:.3g} GB per GPU for weights, gradients and Adam ({state / GB:.3g} in all){where}"
    if not tiny:
        trained = rollout.row_tokens - rollout.max_prompt_tokens
        tokens = (
            max(optim.micro_batch_tokens, trained) if optim.micro_batch_tokens else optim.micro_batch_rows * trained
        )
        words = vocabulary(model.path)
        tokens = -(-tokens // trainer.sequence_parallel)
        n_bytes = LOGIT_BYTES * tokens * words
        yield f"  logits: {n_bytes / GB:.3g} GB at most, for {tokens} tokens after the prompt x {words} words"
    weights = SAMPLED_BYTES * n / rollout.tensor_parallel
    yield f"  vLLM: {weights / GB:.3g} GB of weights per GPU, within {rollout.gpu_memory_utilization:.0%} of its memory"
    if optim.kl_coef:
        yield f"  reference model (optim.kl_coef > 0): {FROZEN_BYTES * n / GB:.3g} GB in float32"
