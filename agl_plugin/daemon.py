"""The trainer's side of agent-lightning's store: rollouts are queued there, awaited, and made into rows.

Guarantees: a rollout without a reward never counts as 0, neither in the batch nor in a mean; a group with fewer than
two scored rollouts gives no update; a store that dies, restarts or has no runner ends the run with one message.
How turns become rows is agl_plugin.update.batch's work; which groups are sampled anew, agl_plugin.run.resampling's.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
from agentlightning.store.base import LightningStore
from agentlightning.types import (
    Attempt,
    AttemptedRollout,
    EnqueueRolloutRequest,
    Rollout,
    RolloutConfig,
    RolloutStatus,
    Span,
)
from verl import DataProto

from agl_plugin.audit.facts import Batched
from agl_plugin.audit.log import AuditLog
from agl_plugin.audit.spans import seen_rollout
from agl_plugin.audit.stored import StoredRollout
from agl_plugin.options import DaemonOptions
from agl_plugin.outcome import Outcome, as_played
from agl_plugin.proxy.gate import Gate
from agl_plugin.proxy.gateway import Gateway
from agl_plugin.proxy.spans import CALL_SPAN
from agl_plugin.run.ahead import Finished, InFlight
from agl_plugin.run.gateway_watch import GatewayWatch
from agl_plugin.run.group_rewards import GroupRewards
from agl_plugin.run.resampling import Places, SpareQuestions, key_of
from agl_plugin.run.statistics import BROKEN_TOKEN_IDS
from agl_plugin.run.time_split import Stopwatch
from agl_plugin.update.adapter import annotation_of, n_missing, read_calls, reward_of, scored_calls
from agl_plugin.update.rows import Call, Limits
from foundation.background import LoopThread
from foundation.errors import RunError
from foundation.net import free_port
from foundation.rollout_keys import (
    AWAITS_GROUP,
    LLM_CALLS_KEY,
    MAIN_LLM,
    NO_LLM_CALL,
    RECORD_KEY,
    SEED_KEY,
    TIMED_OUT,
    UNSCORED_KEY,
    RunKeys,
)
from foundation.seeds import rollout_seed
from foundation.store_token import check_host

if TYPE_CHECKING:
    from agl_plugin.run.node_gateways import NodeGateways

FINISHED: list[RolloutStatus] = ["succeeded", "failed", "cancelled"]
SET_UP_S = 300.0
LATE_SPANS_S, LOOK_EVERY_S = 5.0, 0.05
SETTLED_S = 0.5  # from the end of a rollout that does not tell how many calls it made
WATCH_EVERY_S = 10.0
STORE_ERRORS = (aiohttp.ClientError, ConnectionError, TimeoutError)


def _make_proxy(options: DaemonOptions, store: LightningStore, gate: Gate) -> Any:
    """The LLM proxy of a run. LiteLLM and Ray are imported where they are wanted only."""
    host, port = options.proxy_host, options.proxy_port or free_port()
    check_host(host, "store.proxy_host")
    if options.proxy == "litellm":
        from agl_plugin.proxy.llm_proxy import make_proxy

        return make_proxy(store, gate=gate, host=host, port=port, log_probs=options.log_probs)
    rules: dict[str, Any] = {
        "log_probs": options.log_probs,
        "drain_s": options.rollout_timeout_s,
        "calls_per_engine": options.calls_per_engine,
        "plain_spans": options.plain_spans,
    }
    gateway = Gateway(port, store=store, host=host, gate=gate, **rules)
    if options.gateways == "one":
        return gateway
    from agl_plugin.run.node_gateways import NodeGateways

    return NodeGateways(gateway, rules)


@dataclass(kw_only=True, eq=False, repr=False)
class GrpoDaemon:
    """Enqueues rollouts, waits for them, and turns the scored ones into a batch.

    `model` is the policy's name at the model servers. `run_dir` receives rollouts.jsonl, and `audit` what stands behind
    it. Groups without variance are sampled anew with questions of `spare_questions`. Its work runs in a thread's loop.
    """

    store: LightningStore
    model: str
    group_size: int
    temperature: float
    pad_token_id: int
    merge: bool
    run_dir: Path
    options: DaemonOptions
    audit: AuditLog | None = None

    def __post_init__(self) -> None:
        gate = Gate()
        self.llm_proxy = _make_proxy(self.options, self.store, gate)
        self._one = self.options.gateways == "one"
        self.gate: Gate | NodeGateways = gate if self._one else self.llm_proxy
        self.gateway_watch = GatewayWatch(self.llm_proxy)
        self.grade_group = self.options.grade_group
        self.batched: Batched | None = None
        self.spare_questions: SpareQuestions | None = None
        self.step = 0
        self.is_train = True
        self.stats: dict[str, float] = {}
        self.watch = Stopwatch()
        self._queued_at_s = 0.0
        self._places = Places([])
        self._copies = Counter[str]()  # question -> its rollouts in this step so far
        self._resources_id = ""
        self._addresses: list[str] = []
        self.rollouts = InFlight()  # of the step
        self.playing_on = InFlight()  # over the ends of steps
        self._too_old, self._dropped = set[str](), set[str]()  # rollouts of the step, and groups
        self._loop = LoopThread("rollouts")

    def close(self) -> None:
        """End the loop; whoever waits for a step hears of it."""
        self._loop.close(limit_s=30.0)

    def collect(
        self, questions: list[dict[str, Any]], addresses: Sequence[str], *, is_train: bool, n_groups: int = 0
    ) -> None:
        """Play these questions with the model servers at `addresses`, to the end.

        With `n_groups` until so many groups, of this step or earlier ones, can be trained: the others are `playing_on`.
        """
        self._wait(self._set_up(questions, addresses, is_train=is_train, resumes=n_groups > 0), timeout_s=SET_UP_S)
        self._wait(self._play(n_groups))

    def take(self, rollouts: Sequence[StoredRollout]) -> None:
        """Let these, which a finished run stored, be the rollouts of the step; nothing is played."""
        self._queued_at_s = time.time()
        self.is_train = True
        self.batched = None
        self.gateway_watch.begin()
        self.rollouts = as_played(rollouts)
        self._places = Places(sorted(self.rollouts.groups))
        self._write_down()

    def _wait[T](self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        return self._loop.submit(self._with_store(work)).result(timeout_s)

    async def _with_store[T](self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives. Raises RunError where the store is gone."""
        try:
            return await work
        except STORE_ERRORS as exc:
            store = self.store
            address = getattr(store, "server_address_root", None) or getattr(store, "server_address", "the store")
            raise RunError(
                f"the store at {address} stopped answering ({type(exc).__name__}) and did not come back within "
                "store.patience_s. Start it again (`python -m agl_plugin.store --port ...`), then continue with "
                "--resume"
            ) from exc

    async def _set_up(
        self, questions: list[dict[str, Any]], addresses: Sequence[str], *, is_train: bool, resumes: bool
    ) -> None:
        """Serve the model at these addresses, and queue the step's rollouts."""
        self._queued_at_s, self.is_train = time.time(), is_train
        self._copies.clear()
        self._too_old.clear()
        self._dropped.clear()
        self.gateway_watch.begin(self.playing_on.pending)
        if self.playing_on.questions:
            await self._look()  # it may have died between the steps
            self.rollouts = self.playing_on
            # Before newer resources, by which the store counts what spans it may delete.
            await self._collect(sorted(self.playing_on.pending), enough=lambda: True)
        self.rollouts = self.playing_on if resumes else InFlight()
        if resumes:
            questions = [*questions, *self._drop_groups()]
        if list(addresses) != self._addresses:
            self._addresses = list(addresses)
            servers = [{"model": f"hosted_vllm/{self.model}", "api_base": f"http://{a}/v1/"} for a in addresses]
            models: Any = [{"model_name": self.model, "litellm_params": server} for server in servers]
            self.llm_proxy.update_model_list(models)
            await self.llm_proxy.restart()
        elif not self.llm_proxy.is_running():
            await self.llm_proxy.restart()  # its process was killed
        sampling = {"temperature": self.temperature}
        if self._one:
            policies = {MAIN_LLM: self.llm_proxy.as_resource(sampling_parameters=sampling)}
        else:
            policies = self.llm_proxy.as_resources(sampling)
        self._resources_id = (await self.store.add_resources(policies)).resources_id
        await self._enqueue(questions)

    @property
    def outcome(self) -> Outcome:
        return Outcome(self.rollouts, self.run_dir, self._too_old)

    def _complete_groups(self) -> tuple[list[str], list[str]]:
        """Those to train with the weights of now, and those in which too few rollouts are young enough."""
        return self.rollouts.complete(weights=self.gate.weights, bound=self.options.max_staleness)

    def _drop_groups(self) -> list[dict[str, Any]]:
        """Leave out the complete groups that are too old, and give their questions, which are asked again."""
        _, too_old = self._complete_groups()
        fresh = [name for name in too_old if name not in self._dropped]
        groups = self.rollouts.groups
        self._dropped.update(fresh)
        return [self.rollouts.questions[groups[name][0]] for name in fresh]

    async def _play_ahead(self, n_groups: int) -> None:
        """Until so many groups are complete and young enough; what else was asked plays on."""

        def ready() -> list[str]:
            return self._complete_groups()[0][:n_groups]

        while len(ready()) < n_groups:
            await self._collect(sorted(self.rollouts.pending), enough=lambda: len(ready()) == n_groups)
            if len(ready()) < n_groups:
                if not (again := self._drop_groups()):
                    break  # fewer were asked
                await self._enqueue(again)
        everything, taken = self.rollouts, {*ready(), *self._dropped}
        self.playing_on = everything.of(taken, others=True)
        self.rollouts = everything.of(taken)
        too_old = self.rollouts.too_old(weights=self.gate.weights, bound=self.options.max_staleness)
        self._too_old = too_old & self.outcome.scored.keys()
        self._places = Places(sorted(taken))

    async def _play(self, n_groups: int = 0) -> None:
        self.batched = None
        try:
            if n_groups:
                return await self._play_ahead(n_groups)
            await self._collect(list(self.rollouts.questions))
            self._places = Places(sorted(self.rollouts.groups))
            for _ in range(self.options.resample if self.is_train else 0):
                if not await self._replace_flat_groups():
                    break
        finally:
            self._write_down()

    def _write_down(self) -> None:
        """The rollouts of the step, in rollouts.jsonl and the audit."""
        for row in self.rollouts.rows:
            row["step"] = self.step  # that of the update, if it finished before
        self.outcome.write_down(self.audit, step=self.step)

    async def _replace_flat_groups(self) -> bool:
        """Roll out other questions in the place of flat groups; False when there is nothing to replace."""
        flat = self._places.flat(self.outcome.rewards)
        used = {key_of(sample) for sample in self.rollouts.questions.values()}
        questions = self.spare_questions.draw(len(flat), used=used) if self.spare_questions else []
        if not questions:
            return False
        fresh = await self._enqueue(questions, resampled=True)
        await self._collect([rollout_id for rollout_ids in fresh.values() for rollout_id in rollout_ids])
        self._places.fill(dict(zip(flat, fresh, strict=False)), self.outcome.rewards)
        return True

    async def _enqueue(self, questions: list[dict[str, Any]], *, resampled: bool = False) -> dict[str, list[str]]:
        """Queue the rollouts of each question, with the resources of this step. Returns data id -> rollout ids."""
        samples = {str(uuid.uuid4()): question for question in questions}
        requests = self._requests(samples, resampled=resampled)
        rollouts = await self.store.enqueue_many_rollouts(requests)
        groups: dict[str, list[str]] = {data_id: [] for data_id in samples}
        for rollout in rollouts:
            data_id = (rollout.metadata or {})["data_id"]
            groups[data_id].append(rollout.rollout_id)
            self.rollouts.questions[rollout.rollout_id] = {**samples[data_id], "data_id": data_id}
        return groups

    def _requests(self, samples: dict[str, dict[str, Any]], *, resampled: bool) -> list[EnqueueRolloutRequest]:
        """The rollouts of each question (data id -> row)."""
        limit_s = self.options.rollout_timeout_s
        config = RolloutConfig(
            unresponsive_seconds=limit_s,
            timeout_seconds=limit_s,
            # One whose runner was killed runs once more; one that fails or takes too long does not.
            max_attempts=2,
            retry_condition=["unresponsive"],
        )
        return [
            EnqueueRolloutRequest(
                input={**question, "data_id": data_id},
                mode="train" if self.is_train else "val",
                resources_id=self._resources_id,
                config=config,
                metadata={
                    "data_id": data_id,
                    "is_train": self.is_train,
                    "resampled": resampled,
                    SEED_KEY: self._seed_of(question),
                },
            )
            for data_id, question in samples.items()
            for _ in range(self.group_size if self.is_train else 1)
        ]

    def _seed_of(self, question: dict[str, Any]) -> int:
        key, mode = key_of(question), "train" if self.is_train else "val"
        self._copies[key] += 1
        return rollout_seed(self.options.seed, mode=mode, step=self.step, question=key, copy=self._copies[key] - 1)

    async def _collect(self, rollout_ids: list[str], *, enough: Callable[[], bool] = lambda: False) -> None:
        """Wait until all these rollouts have finished and have their rewards, or there are `enough`."""
        pending = set(rollout_ids)
        groups = {i: self.rollouts.questions[i]["data_id"] for i in rollout_ids}
        rewards = GroupRewards(self.grade_group, self.rollouts.rows, self.rollouts.finished, Counter(groups.values()))
        last_change = last_watch = time.monotonic()
        while pending:
            # Each has its latest attempt; a store reads no others for it.
            finished = await self.store.query_rollouts(rollout_id_in=sorted(pending), status_in=FINISHED)
            await self._look()
            validated = await asyncio.gather(*(self._ended(rollout) for rollout in finished))
            for rollout, seen in zip(finished, validated, strict=True):
                if seen is None:
                    continue
                self.rollouts.finished[rollout.rollout_id] = seen
                pending.discard(rollout.rollout_id)
                rewards.finished(groups[rollout.rollout_id])
            if enough():
                break
            now = time.monotonic()
            last_change = now if finished else last_change
            if pending and now - last_watch > WATCH_EVERY_S:
                await self._watch(pending, idle_s=now - last_change)
                last_watch = now
            if pending:
                with self.watch.measure("idle"):
                    await asyncio.sleep(self.options.poll_interval_s)
        with self.watch.measure("judge"):
            await rewards.all_graded()

    async def _look(self, *, may_be_dying: bool = False) -> None:
        """Start a dead gateway again; whatever plays may have lost a call with it."""
        await self.gateway_watch.look(self.rollouts.pending | self.playing_on.pending, may_be_dying=may_be_dying)

    async def _watch(self, pending: set[str], *, idle_s: float) -> None:
        """Notice a store that lost its rollouts, and runners that do not come."""
        stored = await self.store.query_rollouts(rollout_id_in=sorted(pending))
        if len(stored) < len(pending):
            raise RunError(
                f"the store knows {len(stored)} of {len(pending)} open rollouts: it was restarted and lost the others. "
                "Continue with --resume"
            )
        if idle_s > self.options.stall_s:
            states = Counter(str(r.status) for r in stored)
            raise RunError(
                f"no rollout finished for {idle_s:.0f} s (limit {self.options.stall_s:.0f} s); open rollouts by "
                f"status: {dict(states)}. queuing: no runner takes work (with AGL_CURRENT_ROLE=algorithm start a "
                "runner process); running: the model server hangs (see the log)"
            )

    async def _spans(self, rollout: Rollout) -> tuple[list[Span], list[Call]]:
        """Spans and calls of the latest attempt, waiting shortly for spans that the proxy exports late."""
        deadline = time.monotonic() + LATE_SPANS_S
        settled_s = min(rollout.end_time or 0.0, time.time()) + SETTLED_S
        while True:
            spans = list(await self.store.query_spans(rollout.rollout_id, attempt_id="latest"))
            n_calls = annotation_of(spans, LLM_CALLS_KEY)
            if n_calls is None:  # a runner of somebody else's
                has_all = reward_of(spans) is None or time.time() > settled_s
            else:
                has_all = sum(span.name == CALL_SPAN for span in spans) >= int(n_calls)
            if (has_all and not n_missing(spans)) or time.monotonic() > deadline:
                return spans, scored_calls(spans)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _ended(self, rollout: Rollout) -> Finished | None:
        """A rollout with its reward or why it has none, written down; None where it plays again."""
        spans, calls = await self._spans(rollout)
        reward = reward_of(spans)
        unscored = annotation_of(spans, UNSCORED_KEY) or ""
        if reward is None and not unscored:
            unscored = await self._why_nothing(rollout)
        elif (reward is not None or unscored == AWAITS_GROUP) and not calls:
            no_call = annotation_of(spans, LLM_CALLS_KEY) == 0
            unscored = NO_LLM_CALL if no_call else BROKEN_TOKEN_IDS if read_calls(spans)[1] else "no_token_ids"
        if unscored not in ("", AWAITS_GROUP):
            await self._look(may_be_dying=True)
            if self.gateway_watch.plays_again(rollout.rollout_id):
                await self.store.update_rollout(rollout.rollout_id, status="requeuing")
                return None
        self.rollouts.rows.append(self._row(rollout, spans, calls, unscored=unscored))
        if self.audit:
            self.rollouts.seen.append(seen_rollout(rollout, await self._attempts(rollout), spans, calls))
        return Finished(None if unscored else reward, unscored, calls)

    async def _why_nothing(self, rollout: Rollout) -> str:
        if rollout.status != "failed":
            return "no_reward"
        attempt = await self.store.get_latest_attempt(rollout.rollout_id)
        return TIMED_OUT if attempt and attempt.status == "timeout" else "agent_error"

    async def _attempts(self, rollout: Rollout) -> Sequence[Attempt]:
        """All of them, which are asked for where the latest is not the only one."""
        if isinstance(rollout, AttemptedRollout) and rollout.attempt.sequence_id == 1:
            return [rollout.attempt]
        return await self.store.query_attempts(rollout.rollout_id)

    def _row(self, rollout: Rollout, spans: list[Span], calls: list[Call], *, unscored: str) -> dict[str, Any]:
        record = annotation_of(spans, RECORD_KEY)
        keys = RunKeys(
            step=self.step,
            mode="train" if rollout.mode == "train" else "val",
            rollout_id=rollout.rollout_id,
            group=(rollout.metadata or {}).get("data_id", ""),
            resampled=bool((rollout.metadata or {}).get("resampled")),
            status=str(rollout.status),
            unscored=unscored,
            prompt_tokens_by_call=[len(call.prompt) for call in calls],
            response_tokens=[len(call.sampled) for call in calls],
            finish_reasons=[call.finish_reason for call in calls],
        )
        question = rollout.input if isinstance(rollout.input, dict) else {}
        return {"agent": question.get("agent") or "", **(json.loads(record) if record else {}), **keys.model_dump()}

    def batch(self, limits: Limits, *, by_turn: bool = False) -> tuple[DataProto, dict[str, Any]]:
        """The rows of the step, from scored rollouts in groups of at least two, and their metrics.

        With `by_turn` they have the phases of their turns. A group that another one replaced is left out; statistics
        are over all rollouts of the step. Raises RunError with the likely causes when nothing can be learned from it.
        """
        outcome, places = self.outcome, self._places
        if not outcome.scored:
            n_rollouts = len(self.rollouts.questions)
            raise outcome.no_data(f"step {self.step}: none of {n_rollouts} rollouts can be trained on")
        batch, self.batched = outcome.batch(
            places, limits, merge=self.merge, pad_id=self.pad_token_id, by_turn=by_turn, step=self.step
        )
        stats = outcome.counts_of_step(places)
        self.stats = stats | self.gateway_watch.counts | self._staleness(outcome.trainable(places.in_batch))
        self.watch.played(self.rollouts.rows)
        self.watch.add("rollouts", self._queued_at_s, time.time())  # their time ends now
        return batch.data, {**batch.metrics, "training/reward": stats["reward_mean"]}

    def _staleness(self, trainable: dict[str, Finished]) -> dict[str, float]:
        """Of the rollouts that are trained, and what was left out for it; {} where every step waits for all."""
        if not self.options.async_groups:
            return {}
        ages = [rollout.staleness(weights=self.gate.weights) for rollout in trainable.values()]
        metrics = {"staleness_mean": sum(ages) / len(ages), "staleness_max": max(ages), "too_old": len(self._too_old)}
        return {**metrics, "asked_again": len(self._dropped), "groups_in_flight": len(self.playing_on.groups)}

    def validation(self) -> dict[str, Any]:
        """Validation metrics over scored rollouts; raises RunError when there is none."""
        outcome = self.outcome
        if not outcome.scored:
            raise outcome.no_data(f"validation: none of {len(self.rollouts.questions)} rollouts was scored")
        return {f"val/{name}": value for name, value in outcome.counts.items()}
