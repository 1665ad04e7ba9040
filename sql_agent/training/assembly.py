"""The parts of agent-lightning that a run is made of: store, trainer, runners.

agent-lightning is imported inside the functions: it takes seconds, and what is wrong with a run shows before that.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from agl_plugin.options import DaemonOptions
from foundation import run_folder
from foundation.net import free_port
from sql_agent.config import RolloutConfig, StoreConfig
from sql_agent.scoring.groups import grader_of
from sql_agent.scoring.registry import ScoringContext


def make_store(config: StoreConfig, *, run_dir: Path | None) -> Any:
    """The agent-lightning store that the configuration means; runners alone, without a run folder, are its clients."""
    from agl_plugin.store.client import StoreClient

    address = config.external_address
    if address or not run_dir:
        place = address or f"http://localhost:{config.port_in('runner')}"
        return StoreClient(place, patience_s=config.patience_s)
    if config.mongo_uri:
        from agentlightning.store.mongo import MongoLightningStore

        return MongoLightningStore(mongo_uri=os.path.expandvars(config.mongo_uri))
    from agl_plugin.store.sqlite import SqliteLightningStore

    return SqliteLightningStore(run_dir / run_folder.STORE, keep_spans=config.keep_spans)


def make_trainer(
    rollout: RolloutConfig, store: StoreConfig, *, role: str, algorithm: Any, run_dir: Path | None, debug: bool = False
) -> Any:
    import agentlightning as agl

    from agl_plugin.run.supervision import SupervisedExecution
    from agl_plugin.runner import ConcurrentRunner

    agl.setup_logging("DEBUG" if debug else "INFO")
    tracer = agl.OtelTracer()
    return agl.Trainer(
        algorithm=algorithm,
        n_runners=rollout.n_runners,
        store=make_store(store, run_dir=run_dir),
        tracer=tracer,
        runner=ConcurrentRunner(
            tracer=tracer, concurrency=rollout.runner_concurrency, poll_interval_s=rollout.poll_interval_s
        ),
        strategy=SupervisedExecution(
            role=role,  # pyright: ignore[reportArgumentType]
            n_runners=rollout.n_runners,
            server_port=None if os.environ.get("AGL_SERVER_PORT") else store.port_in(role) or free_port(),
        ),
    )


def daemon_options(rollout: RolloutConfig, store: StoreConfig, *, seed: int, scoring: ScoringContext) -> DaemonOptions:
    """How the trainer's side treats rollouts."""
    return DaemonOptions(
        poll_interval_s=rollout.poll_interval_s,
        rollout_timeout_s=rollout.rollout_timeout_s,
        stall_s=rollout.rollout_timeout_s + 60.0,
        proxy=rollout.proxy,
        proxy_host=store.proxy_host,
        proxy_port=store.proxy_port,
        gateways=rollout.gateways,
        grade_group=grader_of(scoring),
        resample=rollout.resample_flat_groups,
        log_probs=rollout.sampler_logprobs,
        seed=seed,
        calls_per_engine=rollout.calls_per_engine or 2 * rollout.max_num_seqs,
        plain_spans=rollout.plain_spans,
        async_groups=rollout.async_groups,
        max_staleness=rollout.max_staleness,
    )
