"""The story of a run with TRL: look at everything, read and encode the data, train, sum up.

What can be known before the first step is a UserError of `prepare`; what breaks later ends the run with a summary that
says so. Run folder, names and checkpoints are those of GRPO.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from foundation import console, run_folder
from foundation.environment import prepare_environment
from foundation.errors import Unusable, UserError
from foundation.files import check_new_folder, fingerprint
from foundation.modules import hidden
from foundation.processes import keep_freed_memory
from sql_agent.config import DpoConfig, SftConfig, TrainConfig, TuneConfig
from sql_agent.data.bundled import ensure_data
from sql_agent.serving.checkpoints import find_checkpoint
from sql_agent.serving.merged_start import merged_start
from sql_agent.serving.models import model_folder
from sql_agent.training import preflight
from sql_agent.training.plan import EXIT, Plan, carry_out
from sql_agent.training.summary import summary_table
from sql_agent.tuning.arguments import trl_arguments
from sql_agent.tuning.chats import Chat
from sql_agent.tuning.encoding import Encoded, Encoder
from sql_agent.tuning.sources import FORMS, Pair, Source, read_source, stored_source

TRL = ("torch", "transformers", "trl", "peft", "datasets")  # what a run in this process imports
COMPARED_ON_RESUME = ("agent", "agents", "database", "data", "model", "trainer.seed")
# A longer run of the same kind goes on from a shorter one.
FREE_ON_RESUME = ("epochs", "max_steps", "output_dir")
Rows = Sequence[Encoded] | Sequence[tuple[Encoded, Encoded]]


@dataclass(frozen=True, kw_only=True)
class TunePlan(Plan):
    """A run of TRL's: its rows, encoded, and where they are from."""

    tokenizer: Any
    source: Source
    rows: Rows

    @property
    def tokens(self) -> dict[str, int]:
        """Of all rows: how many there are, and how many are learned."""
        rows = [row for entry in self.rows for row in (entry if isinstance(entry, tuple) else [entry])]
        return {"all": sum(map(len, rows)), "supervised": sum(sum(row.mask) for row in rows)}

    def facts(self) -> dict[str, Any]:
        source = self.source
        data: dict[str, Any] = {"source": source.name, "rows": len(self.rows), "left_out": source.left_out}
        if source.file:
            data["fingerprint"] = fingerprint(source.file)
        facts = {"method": self.config.method, "judge": "none", "data": {"train": data}, "tokens": self.tokens}
        return super().facts() | facts


def run_tuning(config: TrainConfig, terminal: Console | None = None) -> tuple[int, Path]:
    """Everything. Returns the exit status and the run folder. Raises UserError."""
    terminal = terminal or console.own_terminal()
    prepare_environment(cpu=config.trainer.device == "cpu", offline=False)  # before torch is imported
    plan = prepare(config)
    tokens, n_out = plan.tokens, sum(plan.source.left_out.values())
    unit = "rows" if config.method == "sft" else "pairs"
    terminal.print(
        f"{config.method} on {config.trainer.device}: {len(plan.rows)} {unit} of {plan.source.name}, {n_out} left out, "
        f"{tokens['supervised']} of {tokens['all']} tokens supervised, {plan.steps} steps\nmodel {plan.model}",
        markup=False,
    )
    if resumed := plan.config.trainer.resume:
        terminal.print(f"goes on from {resumed}", markup=False)
    for reason, n in plan.source.left_out.most_common(5):
        terminal.print(f"left out: {n} x {reason}", markup=False)
    plan.write_down()
    summary = carry_out(plan, lambda: fit(plan), begins="loading the model")
    terminal.print(summary_table(summary))
    return EXIT[summary["status"]], plan.run_dir


def light_trl(trackers: Sequence[str]) -> AbstractContextManager[None]:
    """Within it TRL is imported without vLLM, and without wandb where no tracker needs it: half of its time."""
    return hidden("vllm", *(() if "wandb" in trackers else ("wandb",)))


def prepare(config: TrainConfig) -> TunePlan:
    """Look at checkpoint, trackers, output folder, model, data and disk, in order. Raises UserError."""
    tune = config.tune
    preflight.check_installed(TRL, extra="reward-model")
    from transformers import AutoTokenizer

    ensure_data(config.data, config)
    preflight.check_devices(config.trainer, config.rollout)
    preflight.check_trackers(config.logging.trackers)
    preflight.check_adapter(config.model)
    out = Path(tune.output_dir).expanduser()
    if tune.output_dir:
        check_new_folder(out, name=f"--out {out}")
    checkpoint = find_checkpoint(config.trainer, method=config.method) if config.trainer.resume else None
    model = model_folder(config.model, tiny=config.is_tiny)
    tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=config.model.allow_remote_code)
    data, runs = config.data, config.trainer.runs
    source = stored_source(data, runs, model) if data.from_store else read_source(tune, data, config)
    rows = encoded(tune, source, Encoder(tokenizer, config.agent.chat_template_kwargs))
    steps = n_steps(len(rows), tune, passes=config.passes)
    if checkpoint:
        compared = (*COMPARED_ON_RESUME, config.method)
        free = [f"{config.method}.{key}" for key in FREE_ON_RESUME]
        preflight.check_resume(config, checkpoint, steps=steps, compared=compared, free=free)
        config = config.but(trainer={"resume": str(checkpoint)})
    preflight.check_disk(config.trainer, model, lora=config.model.lora_rank > 0)
    start = merged_start(model, config.merged_adapter)
    return TunePlan(
        config=config,
        run_dir=run_folder.new_run_folder(config.trainer.runs, name=config.run_name),
        model=start,
        steps=steps,
        tokenizer=tokenizer,
        source=source,
        rows=rows,
    )


def encoded(tune: SftConfig | DpoConfig, source: Source, encoder: Encoder) -> Rows:
    """The rows or pairs to train on; what is left out is counted in the source. Raises UserError when none is left."""
    left_out = source.left_out
    if isinstance(tune, SftConfig):
        if source.pairs and not source.chats:
            raise UserError(f"--data {source.name}: holds pairs; `agentgrpo dpo` learns from them")
        left_out["a pair, of which `agentgrpo dpo` learns"] += len(source.pairs)
        chats, dropped = best(source.chats, tune) if source.are_rollouts else (source.chats, Counter())
        turned = _each(encoder.rows, chats[: tune.max_samples or None], left_out)
        examples = [Encoded.of(row) for rows_of_chat in turned for row in rows_of_chat]
        rows: Any = [row for row in examples if len(row) <= tune.max_tokens]
    else:
        if not source.pairs and not source.are_rollouts:
            raise UserError(f"--data {source.name}: holds no pairs and no rollouts to make pairs of; {FORMS}")
        left_out["a conversation without a counterpart"] += sum(chat.reward is None for chat in source.chats)
        mined_pairs, dropped = mined(source.chats, tune)
        pairs = [*source.pairs, *mined_pairs][: tune.max_samples or None]
        examples = list(_each(lambda pair: _encoded_pair(pair, encoder), pairs, left_out))
        rows = [pair for pair in examples if max(map(len, pair)) <= tune.max_tokens]
    left_out.update(dropped)
    left_out["longer than max_tokens"] += len(examples) - len(rows)
    source.left_out = +left_out
    if not rows:
        raise UserError(f"--data {source.name}: nothing is left to train on; left out: {dict(source.left_out)}")
    return rows


def by_group(chats: Sequence[Chat]) -> list[list[Chat]]:
    """Different conversations of each group with a reward, the best first; the order of the file decides ties."""
    groups: dict[str, dict[str, Chat]] = defaultdict(dict)
    for chat in chats:
        if chat.reward is not None:
            groups[chat.group].setdefault(repr((chat.messages, chat.calls)), chat)
    return [sorted(group.values(), key=lambda chat: -(chat.reward or 0.0)) for group in groups.values()]


def best(chats: Sequence[Chat], settings: SftConfig) -> tuple[list[Chat], Counter[str]]:
    """Rejection sampling: rollouts of at least `min_reward`, of each question the best `best_of`."""
    chosen: list[Chat] = []
    left_out: Counter[str] = Counter()
    for group in by_group(chats):
        good = [chat for chat in group if (chat.reward or 0.0) >= settings.min_reward]
        taken = good[: settings.best_of or None]
        chosen += taken
        left_out["a reward below sft.min_reward"] += len(group) - len(good)
        left_out["not among the best sft.best_of of its question"] += len(good) - len(taken)
    left_out["the same as another rollout of its question"] += len(chats) - len(chosen) - left_out.total()
    return chosen, +left_out


def mined(chats: Sequence[Chat], settings: DpoConfig) -> tuple[list[Pair], Counter[str]]:
    """The best with the worst of each question, the second best with the second worst, and so on to the margin."""
    pairs: list[Pair] = []
    left_out: Counter[str] = Counter()
    for group in by_group(chats):
        sides = zip(group, reversed(group), strict=True)
        clear = [Pair(a, b) for a, b in sides if (a.reward or 0.0) - (b.reward or 0.0) >= settings.margin]
        pairs += clear[: settings.pairs_per_question]
        left_out["a question without a difference of dpo.margin"] += not clear
    return pairs, +left_out


def _each[A, B](make: Callable[[A], B], entries: Iterable[A], left_out: Counter[str]) -> Iterator[B]:
    """What `make` makes of each entry; Unusable ones are counted."""
    for entry in entries:
        try:
            yield make(entry)
        except Unusable as exc:
            left_out[str(exc)] += 1


def _encoded_pair(pair: Pair, encoder: Encoder) -> tuple[Encoded, Encoded]:
    sides = [encoder.rows(chat) for chat in (pair.chosen, pair.rejected)]
    if any(len(rows) != 1 for rows in sides):
        raise Unusable("a pair whose calls do not share one row")
    return Encoded.of(sides[0][0]), Encoded.of(sides[1][0])


def n_steps(n_rows: int, tune: TuneConfig, *, passes: int) -> int:
    """Optimizer steps of the whole run; one may hold rows of two epochs, and the last one fewer."""
    steps = -(-n_rows * passes // (tune.batch_size * tune.gradient_accumulation_steps))
    return min(steps, tune.max_steps or steps)


def fit(plan: TunePlan) -> None:
    config = plan.config
    with light_trl(config.logging.trackers):
        from foundation.processes import Stop
        from sql_agent.training.models import load_model, lora_of
        from sql_agent.tuning.trainers import trainer_of
        from sql_agent.tuning.watch import Watch

    keep_freed_memory()
    arguments = trl_arguments(config.tune, config.trainer, config.logging, run_dir=plan.run_dir, steps=plan.steps)
    lora = lora_of(config.model) if config.model.lora_rank and not config.trained_adapter else None
    model = load_model(config.model, plan.model, adapter=config.trained_adapter)
    with Stop() as stop:
        order = {"epochs": config.passes, "seed": config.data.seed}
        trainer = trainer_of(config.tune, model, plan.tokenizer, plan.rows, arguments=arguments, lora=lora, **order)
        trainer.keep_checkpoints = config.trainer.keep_checkpoints
        trainer.add_callback(Watch(plan.run_dir, stop, saves=config.trainer.save_every > 0))
        resume = config.trainer.resume
        trainer.train(resume_from_checkpoint=str(Path(resume) / "actor") if resume else None)
