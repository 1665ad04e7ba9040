"""What transformers samples for calls that wait: one `generate` for many of them, prompts padded on the left.

Guarantees: drawn from the policy itself, as each call asks. The folder's generation_config.json, whose
repetition_penalty would make tokens that the policy did not draw, says only what else ends a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import GenerationConfig

from sql_agent.local.endpoint import Call


class Sampler:
    """Samples from `model`, at most `max_batch` calls at once. Random numbers are torch's."""

    def __init__(self, model: Any, tokenizer: Any, *, max_batch: int) -> None:
        self.model, self._max_batch = model, max_batch
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        ends = getattr(model.generation_config, "eos_token_id", None) or []
        self._ends = sorted({tokenizer.eos_token_id, *([ends] if isinstance(ends, int) else ends)})

    def answers(self, calls: Sequence[Call]) -> list[tuple[list[int], bool]]:
        """The sampled ids of each call, the end of its turn included, and whether there was one."""
        order = sorted(calls, key=lambda call: len(call.prompt))
        found: dict[int, tuple[list[int], bool]] = {}
        for start in range(0, len(order), self._max_batch):
            batch = order[start : start + self._max_batch]
            found |= {id(call): answer for call, answer in zip(batch, self._batch(batch), strict=True)}
        return [found[id(call)] for call in calls]

    def _batch(self, calls: Sequence[Call]) -> list[tuple[list[int], bool]]:
        width, sampling = max(len(call.prompt) for call in calls), calls[0].sampling
        ids = torch.tensor([[self._pad] * (width - len(call.prompt)) + call.prompt for call in calls])
        mask = torch.tensor([[0] * (width - len(call.prompt)) + [1] * len(call.prompt) for call in calls])
        drawn = sampling.temperature > 0
        keys = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k} if drawn else {}
        told = {"max_new_tokens": max(call.max_tokens for call in calls), "do_sample": drawn, "use_cache": True}
        told |= {"pad_token_id": self._pad, "eos_token_id": self._ends}
        was_training = self.model.training
        self.model.eval()
        with torch.no_grad():
            whole = self.model.generate(
                input_ids=ids.to(self.model.device),
                attention_mask=mask.to(self.model.device),
                generation_config=GenerationConfig(**told, **keys),
                use_model_defaults=False,
            )
        self.model.train(was_training)
        return [self._cut(row[width:], call.max_tokens) for row, call in zip(whole.tolist(), calls, strict=True)]

    def _cut(self, ids: list[int], max_tokens: int) -> tuple[list[int], bool]:
        ids = ids[:max_tokens]
        end = next((n for n, token in enumerate(ids) if token in self._ends), None)
        return (ids, False) if end is None else (ids[: end + 1], True)
