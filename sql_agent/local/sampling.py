"""What transformers samples for calls that wait: one `generate` for many of them, prompts padded on the left.

Guarantees: drawn from the policy itself, as each call asks, with the numbers of its seed; the same calls in the same
order give the same tokens. The folder's generation_config.json, whose
repetition_penalty would make tokens that the policy did not draw, says only what else ends a turn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.logits_process import (
    LogitsProcessor,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from agl_plugin.cpu.sampling import looked_up
from foundation.seeds import uniform
from sql_agent.local.endpoint import Call, Drawn


class Sampler:
    """Samples from `model`, at most `max_batch` calls at once."""

    def __init__(self, model: Any, tokenizer: Any, *, max_batch: int) -> None:
        self.model, self._max_batch = model, max_batch
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        ends = getattr(model.generation_config, "eos_token_id", None) or []
        self._ends = sorted({tokenizer.eos_token_id, *([ends] if isinstance(ends, int) else ends)})

    def answers(self, calls: Sequence[Call]) -> list[tuple[list[int], bool]]:
        """The sampled ids of each call, the end of its turn included, and whether there was one."""
        alike: defaultdict[Drawn, list[Call]] = defaultdict(list)
        for call in sorted(calls, key=lambda call: len(call.prompt)):
            alike[call.sampling].append(call)
        found: dict[int, tuple[list[int], bool]] = {}
        for order in alike.values():
            for start in range(0, len(order), self._max_batch):
                batch = order[start : start + self._max_batch]
                found |= {id(call): answer for call, answer in zip(batch, self._batch(batch), strict=True)}
        return [found[id(call)] for call in calls]

    def _batch(self, calls: Sequence[Call]) -> list[tuple[list[int], bool]]:
        width, sampling = max(len(call.prompt) for call in calls), calls[0].sampling
        ids = torch.tensor([[self._pad] * (width - len(call.prompt)) + call.prompt for call in calls])
        mask = torch.tensor([[0] * (width - len(call.prompt)) + [1] * len(call.prompt) for call in calls])
        told = {"max_new_tokens": max(call.max_tokens for call in calls), "do_sample": False, "use_cache": True}
        told |= {"pad_token_id": self._pad, "eos_token_id": self._ends}
        was_training, recommended = self.model.training, self.model.generation_config
        self.model.eval()
        # transformers fills in what is not told from the model's own recommendations, which vLLM leaves out.
        self.model.generation_config = GenerationConfig()
        with torch.no_grad():
            whole = self.model.generate(
                input_ids=ids.to(self.model.device),
                attention_mask=mask.to(self.model.device),
                generation_config=GenerationConfig(**told),
                logits_processor=processors(sampling, [call.seed for call in calls], width=width),
            )
        self.model.generation_config = recommended
        self.model.train(was_training)
        return [self._cut(row[width:], call.max_tokens) for row, call in zip(whole.tolist(), calls, strict=True)]

    def _cut(self, ids: list[int], max_tokens: int) -> tuple[list[int], bool]:
        ids = ids[:max_tokens]
        end = next((n for n, token in enumerate(ids) if token in self._ends), None)
        return (ids, False) if end is None else (ids[: end + 1], True)


class DrawnBySeed(LogitsProcessor):
    """Leaves each row the one token that its seed draws: transformers draws all rows from one generator."""

    def __init__(self, seeds: Sequence[int], *, width: int) -> None:
        self._seeds, self._width = seeds, width

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Rows x vocabulary; `input_ids` are the prompts, `width` wide, and what was drawn so far."""
        place = input_ids.shape[1] - self._width
        numbers = torch.tensor([uniform(seed, place) for seed in self._seeds], dtype=torch.float64)
        chosen = looked_up(scores.softmax(dim=-1, dtype=torch.float32), numbers.to(scores.device))
        return torch.full_like(scores, -torch.inf).scatter_(1, chosen[:, None], 0.0)


def processors(sampling: Drawn, seeds: Sequence[int], *, width: int) -> LogitsProcessorList:
    """What makes one token of a row's logits; none for greedy."""
    if sampling.temperature <= 0:
        return LogitsProcessorList()
    found: list[LogitsProcessor] = [TemperatureLogitsWarper(float(sampling.temperature))]
    if sampling.top_k > 0:
        found.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        found.append(TopPLogitsWarper(sampling.top_p))
    return LogitsProcessorList([*found, DrawnBySeed(seeds, width=width)])
