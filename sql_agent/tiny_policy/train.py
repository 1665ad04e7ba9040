"""Warm start: echo exercises, then queries, then clean, then flawed demonstrations, in fixed numbers of steps.

Guarantees: the same seed, sources and library versions give the same weights (own generators, two threads,
deterministic kernels); the state of torch's generator and threads is put back. Loss counts on assistant tokens only.
Why the echo stage and Muon: without either, a model this small does not learn to copy names it never saw. Why echo
exercises go on among the queries: copying is forgotten there otherwise, and with some seeds it never comes back.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from foundation.errors import UserError
from foundation.processes import keep_freed_memory
from sql_agent.tiny_policy.task import Lesson, Message, Settings
from sql_agent.tiny_policy.tokenizer import IM_END, IM_START, MAX_TOKENS
from sql_agent.tiny_policy.wired import wire

logger = logging.getLogger(__name__)

N_THREADS = 2
IGNORED = -100
# Rows whose lengths are sorted together: batches of like length waste little padding, and still mix.
BUCKET_BATCHES = 8
ATTEMPTS = 3
SEEDS_APART = 1_000_000
LAST_STEPS = 25
Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Batch:
    """Token ids and labels, both rows x tokens, padded on the right; a label of -100 does not count."""

    ids: torch.Tensor
    labels: torch.Tensor


def build_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """A Qwen3 of about 1.2M parameters for this tokenizer, wired to copy, else random from torch's generator."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=MAX_TOKENS,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        use_cache=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,  # pyright: ignore[reportArgumentType]
        pad_token_id=tokenizer.pad_token_id,  # pyright: ignore[reportArgumentType]
        dtype="float32",
    )
    return wire(Qwen3ForCausalLM(config))


def train_policy(
    tokenizer: PreTrainedTokenizerFast,
    lesson: Lesson,
    *,
    seed: int,
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> Qwen3ForCausalLM:
    """Build and warm-start the policy. `progress` gets (steps done, all steps, loss) after each step.

    A policy that copies ends with losses of 0.1 to 0.15, one that did not learn to with 0.4: where the mean of the last
    steps is above `settings.loss_max`, training starts again from a seed derived from this one.
    Raises UserError when that happens ATTEMPTS times in a row.
    """
    settings = settings or lesson.settings
    keep_freed_memory()
    losses: list[float] = []
    for attempt in range(1, ATTEMPTS + 1):
        model, loss = _train(tokenizer, lesson, seed + (attempt - 1) * SEEDS_APART, settings, progress)
        if loss <= settings.loss_max:
            return model
        losses.append(loss)
        logger.warning("tiny policy: loss %.3f, above %g: attempt %d of %d", loss, settings.loss_max, attempt, ATTEMPTS)
    found = ", ".join(f"{loss:.3f}" for loss in losses)
    raise UserError(
        f"the warm start of seed {seed} ended with the losses {found}, all above {settings.loss_max:g}: it did not "
        "learn to copy. Give another seed"
    )


def _train(
    tokenizer: PreTrainedTokenizerFast, lesson: Lesson, seed: int, settings: Settings, progress: Progress | None
) -> tuple[Qwen3ForCausalLM, float]:
    """The trained policy and the mean loss of its last steps."""
    losses: deque[float] = deque(maxlen=LAST_STEPS)
    with _reproducible(seed):
        model = build_model(tokenizer).train()
        optimizers = _optimizers(model, settings)
        for step, batch in enumerate(training_batches(tokenizer, lesson, seed=seed, settings=settings), start=1):
            scale = _lr_scale(step, settings)
            losses.append(_train_step(model, batch, optimizers, scale))
            if progress:
                progress(step, settings.n_steps, losses[-1])
    return model.eval(), fmean(losses)


@contextmanager
def _reproducible(seed: int) -> Iterator[None]:
    """Fixed seed, threads and kernels inside; the caller's afterwards."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(N_THREADS)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(deterministic)


def _optimizers(model: Qwen3ForCausalLM, settings: Settings) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for embeddings and norms."""
    from pytorch_optimizer.optimizer.muon import Muon

    hidden = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    rest = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    # use_adjusted_lr is the original scale of Muon, for which 0.02 is meant.
    muon = Muon(
        [{"params": hidden, "use_muon": True, "use_adjusted_lr": True}],
        lr=settings.muon_lr,
        weight_decay=settings.weight_decay,
    )
    return [muon, torch.optim.AdamW(rest, lr=settings.adamw_lr, betas=(0.9, 0.95), weight_decay=0.0)]


def _lr_scale(step: int, settings: Settings) -> float:
    """1 until the flawed stage, then linear down to `final_lr_share`."""
    done = (step - settings.n_steps + settings.flawed_steps) / max(1, settings.flawed_steps)
    return 1.0 - max(0.0, done) * (1.0 - settings.final_lr_share)


def _train_step(
    model: Qwen3ForCausalLM, batch: Batch, optimizers: list[torch.optim.Optimizer], lr_scale: float
) -> float:
    hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state[:, :-1]
    labels = batch.labels[:, 1:]
    counted = labels != IGNORED
    # Logits only where they count: the vocabulary is a third of the work.
    loss = cross_entropy(model.lm_head(hidden[counted]), labels[counted])
    loss.backward()
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("start_lr", group["lr"]) * lr_scale
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach())


def training_batches(
    tokenizer: PreTrainedTokenizerFast, lesson: Lesson, *, seed: int, settings: Settings
) -> Iterator[Batch]:
    """The batches of all stages, in order."""
    rng = random.Random(seed)
    clean, flawed = lesson.teacher(rng, False), lesson.teacher(rng, True)

    def query() -> list[Message]:
        return clean.echo() if rng.random() < settings.echo_share else clean.query()

    stages: list[tuple[int, int, Callable[[], list[Message]]]] = [
        (settings.echo_steps, settings.echo_rows, clean.echo),
        (settings.query_steps, settings.query_rows, query),
        (settings.clean_steps, settings.batch_rows, clean.demonstrate),
        (settings.flawed_steps, settings.batch_rows, flawed.demonstrate),
    ]
    for n_steps, n_rows, make in stages:
        for start in range(0, n_steps, BUCKET_BATCHES):
            n = min(BUCKET_BATCHES, n_steps - start)
            rows = sorted(_tokenize([make() for _ in range(n * n_rows)], tokenizer, lesson.tools), key=len)
            batches = [rows[i : i + n_rows] for i in range(0, len(rows), n_rows)]
            rng.shuffle(batches)
            yield from (_to_batch(batch, tokenizer) for batch in batches)


def _tokenize(
    chats: list[list[Message]], tokenizer: PreTrainedTokenizerFast, offered: list[dict[str, Any]]
) -> list[list[int]]:
    # An echo exercise has no system turn: it saves a third of its tokens.
    tools: list[Any] | None = offered if chats[0][0]["role"] == "system" else None
    texts = tokenizer.apply_chat_template(chats, tools=tools, tokenize=False)
    return tokenizer(texts, add_special_tokens=False)["input_ids"]  # type: ignore[return-value]


def _to_batch(rows: list[list[int]], tokenizer: PreTrainedTokenizerFast) -> Batch:
    width = max(map(len, rows))
    pad = int(tokenizer.pad_token_id)  # type: ignore[arg-type]
    labels = [assistant_labels(row, tokenizer) for row in rows]
    return Batch(
        ids=torch.tensor([row + [pad] * (width - len(row)) for row in rows]),
        labels=torch.tensor([row + [IGNORED] * (width - len(row)) for row in labels]),
    )


def assistant_labels(ids: list[int], tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """The ids where the assistant speaks, its <|im_end|> included, and -100 elsewhere."""
    opening = tokenizer.encode(f"{IM_START}assistant\n", add_special_tokens=False)
    end = tokenizer.convert_tokens_to_ids(IM_END)
    labels, speaking = [], False
    for i, token in enumerate(ids):
        labels.append(token if speaking else IGNORED)
        speaking = token != end if speaking else ids[i + 1 - len(opening) : i + 1] == opening
    return labels
