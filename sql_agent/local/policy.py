"""The policy of a run in one process: model, optimizer, schedule, and the checkpoints that hold all three.

Guarantees: passes are those of the verl back end (agl_plugin.update.token_scores), optimizer and schedule are made of
its keys; a checkpoint global_step_N is there as a whole or not at all, and counts from the moment when
latest_checkpointed_iteration.txt names it; a run that goes on from it makes the same steps, bit for bit.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer

from agl_plugin.update.optimizer import actor_config, made_optimizer
from agl_plugin.update.plan import micro_batches
from agl_plugin.update.resuming import own_settings
from agl_plugin.update.rules import parts
from agl_plugin.update.teacher import is_address, teacher_log_probs
from agl_plugin.update.token_scores import response_scores
from foundation import run_folder
from foundation.chat_template import pad_id_of
from foundation.errors import RunError
from foundation.files import write_json, write_text
from foundation.weights import share
from sql_agent.config import TrainConfig
from sql_agent.local.arguments import MAKER
from sql_agent.serving.checkpoint_model import TRL_STATE
from sql_agent.training.models import load_model, lora_of

OPTIMIZER, SCHEDULE = "optimizer.pt", "scheduler.pt"


class Policy:
    """The policy with all that its updates need. `actor` are verl's keys of it; `step`: training steps behind it."""

    def __init__(self, config: TrainConfig, folder: Path, *, verl: Any) -> None:
        self._config, self.actor = config, actor_config(verl)
        self._dtype = torch.bfloat16 if config.trainer.in_bf16 else torch.float32
        resumed = Path(config.trainer.resume) / "actor" if config.trainer.resume else None
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=config.model.allow_remote_code)
        self.pad_id = pad_id_of(self.tokenizer)
        self.model = self._trained(folder, resumed)
        self._reference = self._loaded_reference(folder)
        if verl.actor_rollout_ref.model.enable_gradient_checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.optimizer, self.schedule = made_optimizer(self.model.parameters(), self.actor)
        self.step = 0
        if resumed:
            self.step = json.loads((resumed / TRL_STATE).read_text(encoding="utf-8"))["step"]
            with own_settings(self.optimizer, self.schedule):
                self.optimizer.load_state_dict(torch.load(resumed / OPTIMIZER, weights_only=True))
                self.schedule.load_state_dict(torch.load(resumed / SCHEDULE, weights_only=True))

    def _loaded_reference(self, start: Path) -> Any:
        """The teacher's model, or the start model; None without a KL loss, where an adapter is left out for it, and
        where the teacher is served."""
        optim = self._config.optim
        if not optim.kl_coef or is_address(optim.teacher):
            return None
        if optim.teacher:
            folder = Path(optim.teacher).expanduser().resolve()
            if AutoTokenizer.from_pretrained(folder).get_vocab() != self.tokenizer.get_vocab():
                raise RunError(f"optim.teacher = {folder}: its tokens are not the policy's; take one of its family")
            return self._loaded(folder)
        return None if self._config.model.lora_rank else self._loaded(start)

    def _trained(self, folder: Path, resumed: Path | None) -> Any:
        """The model to train: all weights, or an adapter; from the start, or as a checkpoint has it."""
        adapter = self._config.trained_adapter
        if not self._config.model.lora_rank:
            return self._loaded(resumed or folder)
        from peft import PeftModel, get_peft_model

        if resumed:
            return PeftModel.from_pretrained(self._loaded(folder), resumed, is_trainable=True, use_safetensors=True)
        if adapter:
            return self._loaded(folder, adapter=adapter)
        return get_peft_model(self._loaded(folder), lora_of(self._config.model))

    def _loaded(self, folder: Path, *, adapter: str = "") -> Any:
        kind = self._config.local.quantization
        model = load_model(self._config.model, folder, adapter=adapter, **_quantized(kind))
        for module in model.modules():
            # bitsandbytes 0.49 repacks 4-bit weights when an AVX-512 CPU samples, and no gradient passes through those.
            if hasattr(module, "support_avx512bf16_for_cpu"):
                module.support_avx512bf16_for_cpu = False
        return model if kind != "none" else model.to(self._config.trainer.device)

    def scores(self, rows: Any, *, with_entropy: bool, model: Any = None) -> dict[str, torch.Tensor]:
        """`log_probs` (and `entropy`) of the trained tokens of a micro batch, rows x response, elsewhere 0."""
        there = rows["attention_mask"].bool()
        ids = [row[seen] for row, seen in zip(rows["input_ids"], there, strict=True)]
        inputs = {
            "input_ids": pad_sequence(ids, batch_first=True, padding_value=self.pad_id),
            "attention_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
        }
        temperature = self._config.rollout.temperature
        return response_scores(
            model or self.model, inputs, rows, temperature=temperature, with_entropy=with_entropy, dtype=self._dtype
        )

    @torch.no_grad()
    def log_probs(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies of the trained tokens before an update, rows x response."""
        scores = self._in_micro_batches(batch, self.model.eval(), with_entropy=True)
        return scores["log_probs"], scores["entropy"]

    @torch.no_grad()
    def reference_log_probs(self, batch: Any) -> torch.Tensor:
        """Those of the start model, with LoRA the policy without its adapter; or of the teacher."""
        if is_address(self._config.optim.teacher):
            return teacher_log_probs(batch, self._config.optim.teacher)
        model = self._reference or self.model.eval()
        with nullcontext() if self._reference else self.model.disable_adapter():
            return self._in_micro_batches(batch, model, with_entropy=False)["log_probs"]

    def _in_micro_batches(self, batch: Any, model: Any, *, with_entropy: bool) -> dict[str, torch.Tensor]:
        """By length, so that little is padding."""
        n_tokens = batch["attention_mask"].sum(dim=1)
        optim = self._config.optim
        order = n_tokens.argsort(stable=True)
        limit = optim.micro_batch_tokens
        cuts = micro_batches(n_tokens[order].tolist(), limit) if limit else [optim.micro_batch_rows] * len(order)
        chunks = (batch[rows].to(model.device) for rows in parts(order.tolist(), cuts) if rows)
        outputs = [self.scores(rows, with_entropy=with_entropy, model=model) for rows in chunks]
        back = order.argsort()
        return {name: torch.cat([output[name].cpu() for output in outputs])[back] for name in outputs[0]}

    def save(self, checkpoints: Path, *, step: int, beside: Iterable[Callable[[Path], None]] = ()) -> None:
        """A checkpoint after `step` training steps, with what those `beside` put in; made elsewhere and then moved."""
        place = run_folder.step_folder(checkpoints, step)
        checkpoints.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=checkpoints, prefix=".saving-") as temp:
            part = Path(temp) / place.name
            actor = part / "actor"
            actor.mkdir(parents=True)
            self.model.save_pretrained(actor)
            share(actor)
            self.tokenizer.save_pretrained(actor)
            torch.save(self.optimizer.state_dict(), actor / OPTIMIZER)
            torch.save(self.schedule.state_dict(), actor / SCHEDULE)
            write_json(actor / TRL_STATE, {"step": step, "made_by": MAKER})
            for put_in in beside:
                put_in(part)
            shutil.rmtree(place, ignore_errors=True)
            os.replace(part, place)
        write_text(checkpoints / run_folder.NOTE, str(step))


def _quantized(kind: str) -> dict[str, Any]:
    if kind == "none":
        return {}
    from transformers import BitsAndBytesConfig

    settings: dict[str, Any] = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    return {"quantization_config": BitsAndBytesConfig(**settings, bnb_4bit_compute_dtype=torch.bfloat16)}
