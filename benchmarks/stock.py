"""Train with agent-lightning's own VERL algorithm: the baseline of training.py, which starts it.

  .venv/bin/python -m benchmarks.stock --out FOLDER --steps 5 --max-prompt-tokens 512

agent-lightning's own are the trainer, daemon, runners (four, with one rollout at a time each), poll intervals, LLM
proxy, spans, adapter and rows (one per LLM call); verl's actor and vLLM are as they come. The agent, the judge, the
model, the questions and their order, and verl's keys are those of the recipe, and so is the environment with Ray's
start. Writes to FOLDER what a run of train_sql_agent.py writes: metrics.jsonl (verl's metrics), rollouts.jsonl (the
agent's records) and summary.json (peak memory).
"""

from __future__ import annotations

import asyncio
import json
import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from foundation import run_folder
from foundation.environment import prepare_environment
from foundation.files import append_lines, write_json
from foundation.net import free_port
from foundation.processes import ProcessTree
from sql_agent.config import TrainConfig, build_config, load_recipe, resolve_system_prompt
from sql_agent.scoring.build import build_context
from sql_agent.serving.models import model_folder
from sql_agent.training.questions import load_data

N_RUNNERS = 4
OWN_ENV = {
    "AGENTGRPO_WITHOUT_PATCHES": "no_cache_emptying",
    "VERL_USE_EXTERNAL_MODULES": "benchmarks.stock_cpu",
    "VLLM_PLUGINS": "",
    "TORCH_COMPILE_DISABLE": "0",
    "MALLOC_ARENA_MAX": "8",
}


def local_daemon(*args: Any, store: Any, **kwargs: Any) -> Any:
    """agent-lightning's daemon with its own LLM proxy, bound to the loopback interface."""
    from agentlightning import LLMProxy
    from agentlightning.verl.daemon import AgentModeDaemon

    kwargs["llm_proxy"] = LLMProxy(host="127.0.0.1", port=free_port(), model_list=[], store=store)
    return AgentModeDaemon(*args, store=store, **kwargs)


def noting_trainer(*args: Any, out: Path, **kwargs: Any) -> Any:
    """agent-lightning's trainer, with the metrics of each step written down."""
    from agentlightning.verl.trainer import AgentLightningTrainer

    trainer: Any = AgentLightningTrainer(*args, **kwargs)
    train_step = trainer._train_step

    def work(batch: dict[str, Any]) -> dict[str, Any]:
        metrics = train_step(batch)
        append_lines(out / run_folder.METRICS, [metrics])
        return metrics

    trainer._train_step = work
    return trainer


def stock_overrides(config: TrainConfig, *, model: Path, out: Path, steps: int) -> dict[str, Any]:
    """The recipe's keys for verl without this project's actor, advantage and metrics."""
    from sql_agent.training.verl_config import verl_overrides

    overrides = verl_overrides(config, model_path=str(model), run_dir=out, total_steps=steps)
    overrides["algorithm"]["adv_estimator"] = "grpo"
    return overrides


async def records_of(store: Any) -> list[dict[str, Any]]:
    """The agent's record of each rollout."""
    from agl_plugin.update.adapter import annotation_of
    from foundation.rollout_keys import RECORD_KEY

    spans = [
        await store.query_spans(rollout.rollout_id, attempt_id="latest") for rollout in await store.query_rollouts()
    ]
    return [json.loads(annotation_of(one, RECORD_KEY) or "{}") for one in spans]


def main(
    out: Annotated[Path, typer.Option(help="an empty folder for the results")],
    steps: Annotated[int, typer.Option(min=1, help="training steps")],
    max_prompt_tokens: Annotated[int, typer.Option(min=1, help="rollout.max_prompt_tokens")],
) -> None:
    """Train the tiny policy with stock agent-lightning and the recipe demo_cpu."""
    out = out.resolve()
    tree = {
        "rollout": {"level": "transition", "max_prompt_tokens": max_prompt_tokens},
        "trainer": {"validate_first": False, "validate_every": -1, "save_every": -1, "max_steps": steps},
    }
    config = resolve_system_prompt(build_config(load_recipe("demo_cpu"), tree), tiny=True)
    train, val = load_data(config, build_context(config.reward, config.database))
    model = model_folder(config, tiny=True)
    prepare_environment(cpu=True, offline=True)
    os.environ |= OWN_ENV
    import agentlightning as agl

    from agl_plugin.algorithm import start_ray
    from sql_agent.data.dataset import to_row
    from sql_agent.training.lit_agent import SqlAgent

    with ProcessTree() as processes:
        start_ray(cpu=True, n_gpus=1)  # agent-lightning's own start would not pretend a GPU
        store = agl.InMemoryLightningStore(thread_safe=True)
        trainer = agl.Trainer(
            algorithm=agl.VERL(
                stock_overrides(config, model=model, out=out, steps=steps),
                trainer_cls=partial(noting_trainer, out=out),  # pyright: ignore[reportArgumentType]
                daemon_cls=local_daemon,  # pyright: ignore[reportArgumentType]
            ),
            n_runners=N_RUNNERS,
            port=free_port(),
            store=store,
            tracer=agl.OtelTracer(),
            adapter=agl.LlmProxyTraceToTriplet(),
        )
        trainer.fit(SqlAgent(config), [to_row(q) for q in train], val_dataset=[to_row(q) for q in val])
    append_lines(out / run_folder.ROLLOUTS, asyncio.run(records_of(store)))
    write_json(out / run_folder.SUMMARY, {"peak_memory_gib": round(processes.peak_gib, 2)})


if __name__ == "__main__":
    typer.run(main)
