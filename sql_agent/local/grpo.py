"""GRPO on one page, in one process: questions, episodes, rewards, advantages, update, save, validate.

`agentgrpo train` does the same with vLLM for the sampler and verl's workers for the update; rows, masks, advantages,
plan and loss are the same functions there (agl_plugin.update). Guarantees: a fault is never a reward; runs of one
configuration are equal bit for bit, resumed ones too; SIGTERM or Ctrl-C ends the run after its step, which is saved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_

from agl_plugin.audit.facts import Batched
from agl_plugin.audit.stored import StoredRun
from agl_plugin.notes import Notes
from agl_plugin.outcome import Outcome, as_played
from agl_plugin.run.kept import Checkpoints
from agl_plugin.run.question_order import QuestionOrder
from agl_plugin.run.resampling import Places, key_of
from agl_plugin.update.advantage import add_advantages
from agl_plugin.update.batch import Batch
from agl_plugin.update.policy_loss import micro_batch_loss
from agl_plugin.update.prepare import needs_pass, prepare, result
from agl_plugin.update.rows import Limits
from agl_plugin.update.rules import PLAN, Plan, parts
from agl_plugin.update.telling import Telling
from foundation.processes import Stop
from foundation.run_folder import step_folder
from sql_agent.local.policy import Policy
from sql_agent.local.rollouts import Player
from sql_agent.local.sampling import Sampler
from sql_agent.records import Question
from sql_agent.training.job import GrpoPlan


@dataclass(frozen=True)
class Run:
    """What a run is made of."""

    plan: GrpoPlan
    policy: Policy
    sampler: Sampler
    player: Player
    notes: Notes
    order: QuestionOrder
    checkpoints: Checkpoints
    stop: Stop
    stored: StoredRun | None = None


def train(run: Run) -> None:
    """All steps from where the policy is. Raises RunError when one has nothing to learn from, or health says stop."""
    trainer, policy, notes, checkpoints = run.plan.config.trainer, run.policy, run.notes, run.checkpoints
    if trainer.validate_first and not policy.step:
        validate(run, step=0)
    if run.order.to_probe and not policy.step:
        probe(run)
    for step in range(policy.step + 1, run.plan.steps + 1):
        train_step(run, step)
        if trainer.validate_every > 0 and (step == run.plan.steps or step % trainer.validate_every == 0):
            checkpoints.validated(step, validate(run, step=step))
        last = step == run.plan.steps or run.stop.asked or checkpoints.gets_no_better
        wanted = last or step % max(1, trainer.save_every) == 0 or checkpoints.is_best(step)
        if trainer.save_every > 0 and wanted and notes.health.weights_are_finite:
            policy.save(checkpoints.folder, step=step, beside=(run.order.save, notes.health.save))
            checkpoints.saved()
            notes.saved(step_folder(checkpoints.folder, step), step=step)
        if last:
            return


def train_step(run: Run, step: int) -> None:
    """Questions become episodes, their rewards advantages, and those an update of the weights."""
    config, rules, policy, notes = run.plan.config, run.plan.trainer.update, run.policy, run.notes
    torch.manual_seed(config.trainer.seed * 1_000_003 + step)  # dropout; what is sampled has seeds of its own
    notes.begin()
    # Episodes of the step's questions, a group of each, graded as they end. A fault leaves one without a reward.
    with notes.timed("rollouts"):
        outcome, places = episodes(run, step)
    notes.played(outcome, step=step)
    # Rows: what the policy saw and sampled, one row an episode where its calls continue each other.
    batch, batched = batch_of(run, outcome, places, step)
    # Advantages: how much more an episode earned than the others of its question, for each token sampled in it.
    add_advantages(batch.data, config.optim.advantage, rules)
    data: Any = batch.data[~batch.data.batch["is_drop_mask"]]  # no prompts over the limit, no rows with no token
    # What policy and start model (or teacher) say of those tokens before the update, where it does not find that out.
    tensors = data.batch
    if needs_pass(data, rules, epochs=policy.actor.ppo_epochs):
        with notes.timed("old_log_prob"):
            tensors["old_log_probs"], tensors["entropys"] = policy.log_probs(tensors)
    if config.optim.kl_coef:
        with notes.timed("ref"):
            tensors["ref_log_prob"] = policy.reference_log_probs(tensors)
    # Which rows make which optimizer step; those that cannot move a weight are left out.
    prepared = prepare(data, rules, step=step)
    with notes.timed("update_actor"):
        metrics, updated = result(prepared, [update(policy, prepared.data, micro_rows=config.optim.micro_batch_rows)])
    counts = outcome.counts_of_step(places)
    metrics |= batch.metrics | {"perf/total_num_tokens": int(tensors["attention_mask"].sum())}
    metrics |= {"training/reward": counts["reward_mean"], **run.order.learned(step, outcome.asked_groups)}
    notes.trained(step, metrics, counts=counts, rows=outcome.rollouts.rows, batched=batched, updated=updated)


def episodes(run: Run, step: int) -> tuple[Outcome, Places]:
    """The rollouts of a step, played or stored, and which groups are in its batch. With `rollout.resample_flat_groups`
    groups that all earned the same give their places to other questions."""
    at, run_dir = run.order.of_step(step), run.plan.run_dir
    if run.stored:
        outcome = Outcome(as_played(run.stored.rollouts(at, use=run.order.use(step), step=step)), run_dir)
    else:
        questions = [run.plan.train[place] for place in at]
        outcome = Outcome(run.player.play(questions, run.sampler, step=step, mode="train"), run_dir)
    places, spare = Places(sorted(outcome.rollouts.groups)), run.order.spare(step)
    used = {key_of(question) for question in outcome.rollouts.questions.values()}
    for _ in range(run.plan.config.rollout.resample_flat_groups):
        flat, n_played = places.flat(outcome.rewards), len(outcome.rollouts.questions)
        others = [Question.model_validate(row) for row in spare.draw(len(flat), used=used)]
        if not others:
            break
        fresh = run.player.play(others, run.sampler, step=step, mode="train", first=n_played)
        outcome = Outcome(outcome.rollouts.with_more(fresh), run_dir)
        places.fill(dict(zip(flat, fresh.groups, strict=False)), outcome.rewards)
    return outcome, places


def probe(run: Run) -> None:
    """Play questions with the first weights, from which nothing is learned but how hard they are."""
    run.notes.begin()
    questions = [run.plan.train[place] for place in run.order.to_probe]
    outcome = Outcome(run.player.play(questions, run.sampler, step=0, mode="train"), run.plan.run_dir)
    run.notes.played(outcome, step=0)
    run.notes.write("probe", 0, run.order.probed(outcome.asked_groups))


def batch_of(run: Run, outcome: Outcome, places: Places, step: int) -> tuple[Batch, Batched]:
    """The rows of scored rollouts whose group has at least two. Raises RunError when there are none."""
    rollout = run.plan.config.rollout
    return outcome.batch(
        places,
        Limits(rollout.max_prompt_tokens, rollout.row_response_tokens),
        merge=rollout.level == "trajectory",
        pad_id=run.policy.pad_id,
        by_turn=run.plan.trainer.update.by_turn,
        step=step,
    )


def update(policy: Policy, data: Any, *, micro_rows: int) -> dict[str, list[Any]]:
    """The optimizer steps of the plan: of each its rows in micro batches, whose gradients add up. What it tells."""
    plan: Plan = data.meta_info[PLAN]
    model, optimizer, keys = policy.model.train(), policy.optimizer, policy.actor
    telling = Telling(model, optimizer, clip=keys.optim.clip_grad)

    def step() -> float:
        norm = clip_grad_norm_(model.parameters(), keys.optim.clip_grad)
        if norm.isfinite():
            optimizer.step()
        optimizer.zero_grad()
        return norm.item()

    for places, cuts in plan.steps * keys.ppo_epochs:
        passed: list[dict[str, torch.Tensor]] = []
        for micro_batch in filter(None, parts(places, cuts or [micro_rows] * len(places))):
            rows = data.batch[micro_batch].to(model.device)
            scores = policy.scores(rows, with_entropy=keys.entropy_coeff > 0 or plan.only_pass)
            loss, metrics = micro_batch_loss(keys, scores, rows, plan=plan, epochs=keys.ppo_epochs)
            loss.backward()
            telling.passed(metrics)
            passed.append({name: values.detach() for name, values in scores.items()})
        if plan.only_pass:
            telling.scored(*(torch.cat([of_rows[name] for of_rows in passed]) for name in ("log_probs", "entropy")))
        telling.stepped(step)
    policy.schedule.step()
    return telling.metrics(plan, epochs=keys.ppo_epochs)


def validate(run: Run, *, step: int) -> float | None:
    """Play the validation questions once each, as `rollout.validation` samples; their mean reward."""
    run.notes.begin()
    outcome = Outcome(run.player.play(run.plan.val, run.sampler, step=step, mode="val"), run.plan.run_dir)
    run.notes.played(outcome, step=step)
    counts = outcome.counts
    run.notes.write("val", step, {f"val/{name}": value for name, value in counts.items()})
    return counts.get("reward_mean")
