"""What a run can learn from the stored rollouts of another one (`data.from_store`), and why it cannot.

Guarantees: tokens mean the same to both models, and the log-probabilities are of the temperature that is trained at; a
UserError names what differs. Nothing here loads torch.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from agl_plugin.audit.stored import StoredRun
from foundation.chat_template import read_template
from foundation.errors import UserError
from sql_agent.config import ROOT, DataConfig, RolloutConfig, resolve_path
from sql_agent.records import Question

TOKENIZER = "tokenizer.json"


def stored_folder(data: DataConfig, runs: Path) -> Path:
    """The run that data.from_store names, as a path or below `runs`."""
    return resolve_path(data.from_store, runs, ROOT)


def stored_run(data: DataConfig, runs: Path) -> StoredRun:
    """That run. Raises UserError."""
    try:
        return StoredRun(stored_folder(data, runs))
    except UserError as exc:
        raise UserError(f"data.from_store = {data.from_store}: {exc}") from exc


def stored_questions(stored: StoredRun, rollout: RolloutConfig) -> list[Question]:
    """The question of each stored group, which GRPO with these settings can learn from. Raises UserError."""
    name = stored.folder
    for key, configured, recorded in (
        ("rollout.group_size", rollout.group_size, stored.group_size),
        ("rollout.temperature", rollout.temperature, stored.temperature),
    ):
        if configured != recorded:
            raise UserError(
                f"data.from_store = {name}: was sampled with {key} = {recorded}, not {configured}. Set that"
            )
    if n := stored.n_without_log_probs:
        raise UserError(
            f"data.from_store = {name}: {n} of its LLM calls have no log-probabilities, of which weights are made. "
            "Name a run with rollout.sampler_logprobs = true, or learn from it with `agentgrpo sft`"
        )
    return [Question.model_validate(group.question) for group in stored.groups]


def source_of(data: DataConfig, runs: Path, model: Path) -> dict[str, Any]:
    """What the audit keeps of the run whose rollouts `model` learns from; {} without data.from_store. UserError."""
    if not data.from_store:
        return {}
    with closing(stored_run(data, runs)) as stored:
        check_tokens(stored, model)
        return stored.facts(uses=data.from_store_uses)


def check_tokens(stored: StoredRun, model: Path) -> None:
    """The model has the tokenizer and the chat template of the one that sampled. Raises UserError."""
    name = stored.folder
    sampled_by = stored.model
    for folder in (sampled_by, model):
        if not (folder / TOKENIZER).is_file():
            raise UserError(
                f"data.from_store = {name}: its rollouts are tokens of {sampled_by}, and {folder} has no {TOKENIZER}, "
                "by which tokens are compared. Put it back, or learn from the run's texts: `agentgrpo sft --data`"
            )
    for part, load in (("tokenizer", _vocabulary), ("chat template", read_template)):
        if load(sampled_by) != load(model):
            raise UserError(
                f"data.from_store = {name}: {model} has another {part} than {sampled_by}, which sampled its rollouts. "
                "Train that model or one made of it, or learn from the run's texts: `agentgrpo sft --data`"
            )


def _vocabulary(folder: Path) -> dict[str, int]:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / TOKENIZER)).get_vocab(with_added_tokens=True)
