"""What transformers samples for calls that wait: one `generate` for many of them, prompts padded on the left.

A prompt that several calls have is read once, and calls that have ended do not wait for the longest.
Guarantees: drawn from the policy itself, as each call asks, with the numbers of its seed; the same calls in the same
order give the same tokens. The folder's generation_config.json, whose repetition_penalty would make tokens that the
policy did not draw, says only what else ends a turn. Penalties count what was sampled, not the prompt, as vLLM's do.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig
from transformers.generation.logits_process import (
    LogitsProcessor,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)
from transformers.generation.stopping_criteria import StoppingCriteria, StoppingCriteriaList

from agl_plugin.cpu.sampling import looked_up
from agl_plugin.update.rows import NAN
from foundation.chat_template import pad_id_of
from foundation.grouping import grouped
from foundation.seeds import uniform
from sql_agent.agent.endpoint import Drawn
from sql_agent.local.endpoint import Call, Generated


class Sampler:
    """Samples from `model`, at most `max_batch` calls at once; with `log_probs` it tells how likely each token was."""

    def __init__(self, model: Any, tokenizer: Any, *, max_batch: int, log_probs: bool = False) -> None:
        self.model, self._max_batch, self._log_probs = model, max_batch, log_probs
        self._pad = pad_id_of(tokenizer)
        ends = getattr(model.generation_config, "eos_token_id", None) or []
        self._ends = sorted({tokenizer.eos_token_id, *([ends] if isinstance(ends, int) else ends)})

    def answers(self, calls: Sequence[Call]) -> list[Generated]:
        """Calls that are sampled alike share batches, which have prompts of like length."""
        by_length = sorted(calls, key=lambda call: len(call.prompt))
        by_call: dict[int, Generated] = {}
        for alike in grouped(by_length, lambda call: call.sampling).values():
            for batch in itertools.batched(alike, self._max_batch):
                by_call |= {id(call): answer for call, answer in zip(batch, self._batch(batch), strict=True)}
        return [by_call[id(call)] for call in calls]

    def _batch(self, calls: Sequence[Call]) -> list[Generated]:
        prompts = [torch.tensor(call.prompt) for call in calls]
        ids = pad_sequence(prompts, batch_first=True, padding_value=self._pad, padding_side="left")
        mask = pad_sequence([torch.ones_like(prompt) for prompt in prompts], batch_first=True, padding_side="left")
        was_training, recommended = self.model.training, self.model.generation_config
        self.model.eval()
        # transformers fills in what is not told from the model's own recommendations, which vLLM leaves out.
        self.model.generation_config = GenerationConfig()
        with torch.no_grad():
            sampled = self._sampled(calls, ids.to(self.model.device), mask.to(self.model.device))
        self.model.generation_config = recommended
        self.model.train(was_training)
        return [self._cut(ids[: call.max_tokens], p) for call, (ids, p) in zip(calls, sampled, strict=True)]

    def _sampled(
        self, calls: Sequence[Call], ids: torch.Tensor, mask: torch.Tensor
    ) -> list[tuple[list[int], list[float]]]:
        """Tokens and log-probabilities of each call, to its end or further.

        `generate` carries rows that have ended to the end of the longest: when half have, the others go on alone.
        """
        width = ids.shape[1]
        rows = list(range(len(calls)))
        cache = self._read(calls, ids, mask)
        longest = width + torch.tensor([call.max_tokens for call in calls], device=ids.device)
        max_length = int(longest.max())
        by_row: list[tuple[list[int], list[float]]] = [([], []) for _ in calls]
        while rows:
            draws = DrawnBySeed([calls[row].seed for row in rows], width=width, log_probs=self._log_probs)
            half = HalfEnded(self._ends, longest[rows])
            for module in self.model.modules():
                if hasattr(module, "rope_deltas"):
                    module.rope_deltas = None  # of the images of the rows before: here are none, and other rows
            output = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                past_key_values=cache,
                generation_config=greedy(max_length=max_length, pad_token_id=self._pad, eos_token_id=self._ends),
                logits_processor=processors(calls[0].sampling, draws, width=width),
                stopping_criteria=StoppingCriteriaList([half]),
            )
            ids, cache = output.sequences, output.past_key_values
            added = torch.stack(draws.log_probs, dim=1).tolist() if draws.log_probs else [[]] * len(rows)
            for row, tokens, log_probs in zip(rows, ids[:, width:].tolist(), added, strict=True):
                by_row[row] = (tokens, by_row[row][1] + log_probs)
            left = half.ended.logical_not().nonzero()[:, 0]
            rows = [rows[place] for place in left.tolist()]
            cache.reorder_cache(left)
            ids = ids[left]
            mask = torch.nn.functional.pad(mask[left], (0, ids.shape[1] - mask.shape[1]), value=1)
        return by_row

    def _read(self, calls: Sequence[Call], ids: torch.Tensor, mask: torch.Tensor) -> Any:
        """Keys and values of all but the prompts' last tokens where several calls, of one group, have one prompt: it is
        read once. Else None."""
        first = {tuple(call.prompt): row for row, call in reversed(list(enumerate(calls)))}
        if len(first) == len(calls):
            return None
        different = sorted(first.values())
        prefill = self.model.generate(
            input_ids=ids[different, :-1],
            attention_mask=mask[different, :-1],
            generation_config=greedy(max_new_tokens=1),
        )
        places = [different.index(first[tuple(call.prompt)]) for call in calls]
        prefill.past_key_values.reorder_cache(torch.tensor(places, device=ids.device))
        return prefill.past_key_values

    def _cut(self, ids: list[int], log_probs: list[float]) -> Generated:
        end = next((n for n, token in enumerate(ids, start=1) if token in self._ends), None)
        ids = ids[:end]
        return Generated(ids, log_probs[: len(ids)] or [NAN] * len(ids), end is not None)


def greedy(**settings: Any) -> GenerationConfig:
    """Without draws of transformers' own, and with the cache in the output."""
    return GenerationConfig(**settings, do_sample=False, use_cache=True, return_dict_in_generate=True)


class HalfEnded(StoppingCriteria):
    """Stops all rows where half of them `ended`: have drawn one of `ends`, or are as long as `longest` says."""

    def __init__(self, ends: Sequence[int], longest: torch.Tensor) -> None:
        self._ends, self._longest = torch.tensor(ends, device=longest.device), longest
        self.ended = torch.zeros_like(longest, dtype=torch.bool)

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        """For each row, after each token, whether to stop."""
        self.ended |= torch.isin(input_ids[:, -1], self._ends) | (input_ids.shape[1] >= self._longest)
        return torch.full_like(self.ended, bool(2 * self.ended.sum() >= len(self.ended)))


class Penalties(LogitsProcessor):
    """OpenAI's: each token's logit falls by `frequency` for each time that it was sampled, and by `presence` once."""

    def __init__(self, presence: float, frequency: float, *, width: int) -> None:
        self._presence, self._frequency, self._width = presence, frequency, width

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Rows x vocabulary; `input_ids` are the prompts, `width` wide, and what was drawn so far."""
        drawn = input_ids[:, self._width :]
        counts = torch.zeros_like(scores).scatter_add_(1, drawn, torch.ones_like(drawn, dtype=scores.dtype))
        return scores - self._frequency * counts - self._presence * (counts > 0)


class DrawnBySeed(LogitsProcessor):
    """Leaves each row the one token that its seed draws: transformers draws all rows from one generator.

    `log_probs`, where it keeps them: of each place the log-probability of the token in each row.
    """

    def __init__(self, seeds: Sequence[int], *, width: int, log_probs: bool = False) -> None:
        self._seeds, self._width, self._keeps = seeds, width, log_probs
        self.log_probs: list[torch.Tensor] = []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Rows x vocabulary, as Penalties."""
        place = input_ids.shape[1] - self._width
        numbers = torch.tensor([uniform(seed, place) for seed in self._seeds], dtype=torch.float64)
        chosen = looked_up(scores.softmax(dim=-1, dtype=torch.float32), numbers.to(scores.device))
        if self._keeps:
            self.log_probs.append(scores.log_softmax(dim=-1, dtype=torch.float32).gather(1, chosen[:, None])[:, 0])
        return torch.full_like(scores, -torch.inf).scatter_(1, chosen[:, None], 0.0)


def processors(sampling: Drawn, draws: DrawnBySeed, *, width: int) -> LogitsProcessorList:
    """What makes one token of a row's logits, in vLLM's order; greedy ones are not drawn."""
    chain: list[LogitsProcessor] = []
    if sampling.presence_penalty or sampling.frequency_penalty:
        chain.append(Penalties(sampling.presence_penalty, sampling.frequency_penalty, width=width))
    if sampling.temperature <= 0:
        return LogitsProcessorList(chain)
    chain.append(TemperatureLogitsWarper(float(sampling.temperature)))
    if sampling.top_k > 0:
        chain.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        chain.append(TopPLogitsWarper(sampling.top_p))
    return LogitsProcessorList([*chain, draws])
