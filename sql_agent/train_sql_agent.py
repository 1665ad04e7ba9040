"""Train the medical SQL agent with GRPO.

  make train                                   everything below in one command

  agl store --host 127.0.0.1 --port 9999       a store, in its own terminal
  AGL_MANAGED_STORE=0 python train_sql_agent.py --ci-fast --llm-proxy \\
      --external-store-address http://localhost:9999

--ci-fast runs one step and shows that everything works; without it the recipe's full length runs. Without a GPU and
without --model a tiny policy is built and trained on the CPU, by the same code. Settings come from the defaults, then
the recipe, then this command line; docs/10-configuration.md lists them all.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import logging
import math
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dotenv import load_dotenv
from rich.console import Console

from agl_plugin import console as run_console
from agl_plugin import run_folder
from agl_plugin.errors import RunError
from agl_plugin.processes import ProcessTree
from sql_agent import preflight
from sql_agent.config import (
    ROOT,
    TrainConfig,
    build_config,
    data_path,
    database_path,
    load_recipe,
    merge,
    parse_assignment,
    resolve_system_prompt,
)
from sql_agent.dataset import fingerprint, load_questions, to_row
from sql_agent.errors import UserError
from sql_agent.group_grading import GroupGrader
from sql_agent.records import Question
from sql_agent.report import report_line
from sql_agent.scorers import build_context, check_scorers, needs_answer
from sql_agent.summary import build_summary, summary_table
from sql_agent.versions import versions

logger = logging.getLogger(__name__)

# Command line flags that only set a key of the configuration tree.
FLAGS = {
    "train_file": "data.train_file",
    "val_file": "data.val_file",
    "model": "model.path",
    "n_runners": "rollout.n_runners",
    "n_gpus": "trainer.n_gpus",
    "external_store_address": "store.external_address",
    "mongo_uri": "store.mongo_uri",
    "resume_checkpoint": "trainer.resume",
    "lora_rank": "model.lora_rank",
    "lora_adapter_path": "model.lora_adapter_path",
}
DEFAULT_LORA_RANK = 32
CI_STEPS = 20
INTERRUPTED = 130
DISK_FULL = "the disk of {run_dir} is full. Free space there, then go on with --resume_checkpoint latest"


def parser() -> argparse.ArgumentParser:
    """The command line. argparse, because --resume_checkpoint takes an optional value."""
    p = argparse.ArgumentParser(
        prog="train_sql_agent.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    data = p.add_argument_group("data and model")
    data.add_argument("--train-file", help="training questions, parquet or jsonl (default: data/train.parquet)")
    data.add_argument("--val-file", help="validation questions (default: data/val.parquet)")
    data.add_argument("--model", help="model folder or hub name (default: the recipe's; the tiny policy on a CPU)")
    data.add_argument(
        "--lora", action="store_true", help=f"train LoRA adapters (rank {DEFAULT_LORA_RANK} unless given)"
    )
    data.add_argument("--lora-rank", type=int, help="rank of the adapters; implies --lora")
    data.add_argument("--lora-adapter-path", help="adapter to continue from; implies --lora")
    run = p.add_argument_group("run")
    run.add_argument("--recipe", help="a folder of recipes/, or a TOML file (default: smoke_cpu or qwen3_0_6b)")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set any key, e.g. optim.lr=2e-6")
    run.add_argument("--ci", action="store_true", help=f"at most {CI_STEPS} steps")
    run.add_argument("--ci-fast", action="store_true", help="one small step, then validation (implies --ci)")
    run.add_argument("--n-runners", type=int, help="runner processes (default: 4)")
    run.add_argument("--n-gpus", type=int, help="GPUs to train on (default: 1)")
    run.add_argument("--trajectory-level", action="store_true", help="one training row per rollout instead of per turn")
    run.add_argument(
        "--resume_checkpoint",
        "--resume-checkpoint",
        nargs="?",
        const="latest",
        metavar="PATH|latest",
        help="continue from a global_step_N folder, a run folder, or the newest checkpoint",
    )
    store = p.add_argument_group("store and tracing")
    store.add_argument("--external-store-address", help="http://host:port of `agl store`; needs AGL_MANAGED_STORE=0")
    store.add_argument("--mongo-uri", help="keep the managed store in this MongoDB instead of in memory")
    store.add_argument("--llm-proxy", action="store_true", help="accepted; the LLM proxy is always used")
    store.add_argument("--weave", action="store_true", help="not available: the proxy's spans are what trains")
    store.add_argument("--debug", action="store_true", help="DEBUG log, and everything on the console")
    return p


def command_line_tree(args: argparse.Namespace) -> dict[str, Any]:
    """The configuration tree that the flags mean."""
    pairs = [(key, getattr(args, name)) for name, key in FLAGS.items() if getattr(args, name) is not None]
    if args.trajectory_level:
        pairs.append(("rollout.level", "trajectory"))
    if args.debug:
        pairs.append(("logging.debug", True))
    tree: dict[str, Any] = {}
    for key, value in pairs:
        node = tree
        *parents, leaf = key.split(".")
        for name in parents:
            node = node.setdefault(name, {})
        node[leaf] = value
    return tree


def resolve_config(args: argparse.Namespace) -> TrainConfig:
    """defaults < recipe < flags < --set, with the device decided. Raises UserError."""
    if args.weave:
        raise UserError(
            "--weave: Weave's tracer is not wired in, because token ids come from the LLM proxy's spans. Leave the "
            "flag out; for dashboards use --set 'logging.trackers=[\"wandb\"]'"
        )
    flags = functools.reduce(merge, [parse_assignment(text) for text in args.set], command_line_tree(args))
    named = load_recipe(args.recipe) if args.recipe else {}
    device = merge(named, flags).get("trainer", {}).get("device", "auto")
    if device == "auto":
        device = "cuda" if preflight.gpu_count() else "cpu"
    recipe = named or load_recipe("smoke_cpu" if device == "cpu" else "qwen3_0_6b")
    config = build_config(recipe, flags)
    extra: dict[str, Any] = {"trainer": {"device": device}} if config.trainer.device == "auto" else {}
    if (args.lora or args.lora_adapter_path) and not config.model.lora_rank:
        extra["model"] = {"lora_rank": DEFAULT_LORA_RANK}
    config = build_config(config.model_dump(), extra) if extra else config
    config = resolve_system_prompt(config, tiny=is_tiny(config))
    return shorten(config, ci=args.ci or args.ci_fast, fast=args.ci_fast)


def is_tiny(config: TrainConfig) -> bool:
    """True when the run trains the tiny policy: no GPU, and no model named."""
    return config.trainer.device == "cpu" and not config.model.path


def shorten(config: TrainConfig, *, ci: bool, fast: bool) -> TrainConfig:
    """--ci and --ci-fast: fewer steps; fast also takes few questions, and validates once, at the end."""
    if not ci:
        return config
    steps = min(config.trainer.max_steps or CI_STEPS, 1 if fast else CI_STEPS)
    tree: dict[str, Any] = {"trainer": {"max_steps": steps}}
    if fast:
        questions = math.lcm(min(config.optim.mini_batch_questions, 4), config.trainer.n_gpus)
        tree["trainer"]["validate_first"] = False
        tree["optim"] = {
            "questions_per_step": questions,
            "mini_batch_questions": questions,
            "micro_batch_rows": math.gcd(
                questions * config.rollout.group_size // config.trainer.n_gpus, config.optim.micro_batch_rows
            ),
        }
        tree["data"] = {"val_max_rows": min(config.data.val_max_rows, 8)}
    return build_config(config.model_dump(), tree)


def total_steps(config: TrainConfig, n_questions: int) -> int:
    """Optimizer steps of the run. Raises UserError when the questions do not fill one step."""
    per_epoch = n_questions // config.optim.questions_per_step
    if per_epoch == 0:
        raise UserError(
            f"{config.data.train_file}: {n_questions} questions, but a step takes optim.questions_per_step = "
            f"{config.optim.questions_per_step}. Add questions, or --set optim.questions_per_step={n_questions} "
            f"--set optim.mini_batch_questions={n_questions} --set optim.micro_batch_rows=1"
        )
    steps = per_epoch * config.trainer.epochs
    return min(steps, config.trainer.max_steps) if config.trainer.max_steps else steps


def load_data(config: TrainConfig) -> tuple[list[Question], list[Question]]:
    """Training and validation questions that the configured judge can grade. Raises UserError naming the others."""
    scoring = build_context(config.reward, config.database)
    train = load_questions(data_path(config.data.train_file))
    every_val = load_questions(data_path(config.data.val_file))
    # Evenly over the file, whose rows are ordered by kind.
    val = every_val[:: max(1, len(every_val) // config.data.val_max_rows)][: config.data.val_max_rows]
    for file, questions in ((config.data.train_file, train), (config.data.val_file, every_val)):
        check_scorers(questions, scoring, source=file)
        missing = [str(row) for row, q in enumerate(questions, start=1) if not q.answer and needs_answer(q, scoring)]
        if missing:
            raise UserError(
                f"{file}: {len(missing)} of {len(questions)} questions have no reference answer (rows "
                f"{', '.join(missing[:10])}{', ...' if len(missing) > 10 else ''}), and the offline judge needs one. "
                "Add answers, or set TEACHER_API_KEY, TEACHER_MODEL and TEACHER_BASE_URL for an LLM judge"
            )
    return train, val


def make_store(config: TrainConfig) -> Any:
    """The agent-lightning store that the configuration means."""
    import agentlightning as agl

    if config.store.external_address:
        return agl.LightningStoreClient(config.store.external_address)
    if config.store.mongo_uri:
        from agentlightning.store.mongo import MongoLightningStore

        return MongoLightningStore(mongo_uri=config.store.mongo_uri)
    return agl.InMemoryLightningStore(thread_safe=True)


def make_trainer(config: TrainConfig, *, role: str, algorithm: Any) -> Any:
    """agent-lightning's Trainer with this project's parts."""
    import agentlightning as agl

    from agl_plugin.adapter import ScoredTriplets
    from agl_plugin.runner import ConcurrentRunner
    from agl_plugin.supervision import SupervisedExecution

    tracer = agl.OtelTracer()
    return agl.Trainer(
        algorithm=algorithm,
        n_runners=config.rollout.n_runners,
        store=make_store(config),
        tracer=tracer,
        adapter=ScoredTriplets(),
        runner=ConcurrentRunner(
            tracer=tracer,
            concurrency=config.rollout.runner_concurrency,
            poll_interval_s=config.rollout.poll_interval_s,
        ),
        strategy=SupervisedExecution(
            role=role,  # pyright: ignore[reportArgumentType]
            n_runners=config.rollout.n_runners,
            server_port=None if os.environ.get("AGL_SERVER_PORT") else config.store.port,
        ),
    )


def group_grader(config: TrainConfig, *, run: str) -> GroupGrader | None:
    """Who rewards whole groups; None where every answer is graded alone. Raises UserError as `build_context` does."""
    mode = config.reward.judge.mode
    judge = build_context(config.reward, run=run).llm
    return GroupGrader(judge, mode) if judge and mode != "pointwise" else None


def fit(config: TrainConfig, *, role: str, run_dir: Path | None, model: Path | None, data: Any, steps: int) -> None:
    """Run the algorithm, the runners, or both."""
    import agentlightning as agl

    agl.setup_logging("DEBUG" if config.logging.debug else "INFO")
    from sql_agent.lit_agent import SqlAgent

    algorithm = None
    run = run_dir.name if run_dir else secrets.token_hex(8)  # the judge's account: shared by forked runners
    if run_dir is not None and model is not None:
        from agl_plugin.algorithm import Grpo
        from sql_agent.health_rules import health_of
        from sql_agent.verl_config import check_keys, update_rules, verl_overrides

        overrides = verl_overrides(config, model_path=str(model), run_dir=run_dir, total_steps=steps)
        daemon = {
            "poll_interval_s": config.rollout.poll_interval_s,
            "stall_s": config.rollout.rollout_timeout_s + 60.0,
            "llm_timeout_seconds": config.rollout.rollout_timeout_s,
            "proxy_host": config.store.proxy_host,
            "proxy_port": config.store.proxy_port,
            "grade_group": group_grader(config, run=run),
            "resample": config.rollout.resample_flat_groups,
            "log_probs": config.rollout.sampler_logprobs,
        }
        parts = {"health": health_of(config), "update": update_rules(config)}
        cpu = config.trainer.device == "cpu"
        algorithm = Grpo(overrides, run_dir=run_dir, cpu=cpu, daemon=daemon, trainer=parts, check_keys=check_keys)
    trainer = make_trainer(config, role=role, algorithm=algorithm)
    train, val = ([to_row(q) for q in questions] for questions in data)
    trainer.fit(SqlAgent(config, run=run), train, val_dataset=val)


def run_training(config: TrainConfig, *, role: str, terminal: Console) -> int:
    """Preflight, training and summary of the algorithm's side. Returns the exit status."""
    from agl_plugin.environment import prepare_environment, prepare_trackers

    tiny = is_tiny(config)
    runs_dir = ROOT / Path(config.trainer.runs_dir).expanduser()
    data = load_data(config)
    steps = total_steps(config, len(data[0]))
    if config.trainer.resume:
        checkpoint = preflight.find_checkpoint(config, runs_dir)
        preflight.check_resume(config, checkpoint, steps=steps)
        config = build_config(config.model_dump(), {"trainer": {"resume": str(checkpoint)}})
    preflight.check_adapter(config)
    preflight.check_trackers(config.logging.trackers)
    model = preflight.model_folder(config, tiny=tiny)
    judge = preflight.check_judge(config)
    saves, lora = config.trainer.save_every > 0, config.model.lora_rank > 0
    preflight.check_disk(runs_dir, model, keep=config.trainer.keep_checkpoints, saves=saves, lora=lora)
    prepare_environment(cpu=config.trainer.device == "cpu", offline=True, lora=lora)
    run_dir = run_folder.new_run_folder(runs_dir, name=f"{config.recipe}-{config.logging.experiment}")
    prepare_trackers(run_dir)
    run_folder.write_json(run_dir / run_folder.CONFIG, config.model_dump())
    facts = {
        "status": "running",
        "error": "",
        "recipe": config.recipe,
        "total_steps": steps,
        "device": config.trainer.device,
        "judge": judge,
        "versions": versions(),
        "model": {"path": str(model), "tiny_policy": tiny, "lora_rank": config.model.lora_rank},
        "data": {
            "train": {"fingerprint": fingerprint(data_path(config.data.train_file)), "questions": len(data[0])},
            "val": {"fingerprint": fingerprint(data_path(config.data.val_file)), "questions": len(data[1])},
            "database": {"fingerprint": fingerprint(database_path(config.database))},
        },
    }
    terminal.print(f"recipe {config.recipe} on {config.trainer.device}: {steps} steps, judge: {judge}\nmodel {model}")
    with claimed_store(config, run_dir=run_dir):
        return _run(config, role=role, run_dir=run_dir, model=model, data=data, steps=steps, facts=facts)


@contextlib.contextmanager
def claimed_store(config: TrainConfig, *, run_dir: Path) -> Iterator[None]:
    """Keep other runs off an external store. Raises UserError while one is there; then no run folder is left."""
    if not config.store.external_address:
        yield
        return
    from agl_plugin.store_claim import StoreClaim

    claim = StoreClaim(config.store.external_address, run=run_dir.name)
    try:
        claim.__enter__()
    except RunError as exc:
        shutil.rmtree(run_dir)
        raise UserError(str(exc)) from exc
    try:
        yield
    finally:
        claim.__exit__()


def _run(
    config: TrainConfig, *, role: str, run_dir: Path, model: Path, data: Any, steps: int, facts: dict[str, Any]
) -> int:
    started = time.monotonic()
    with (
        run_console.quiet(run_dir / run_folder.LOG, enabled=not config.logging.debug) as terminal,
        ProcessTree() as tree,
    ):
        try:
            with run_console.Progress(terminal, run_dir):
                fit(config, role=role, run_dir=run_dir, model=model, data=data, steps=steps)
        except RunError as exc:
            facts["error"] = str(exc)
        except Exception as exc:
            # The one boundary between the whole stack and a person: the traceback goes to the log.
            logger.exception("training failed")
            facts["error"] = (
                f"{type(exc).__name__}: {str(exc)[:2000]}\nThe log has the details: {run_dir / 'train.log'}"
            )
            if os.strerror(errno.ENOSPC) in str(exc):
                facts["error"] += "\n" + DISK_FULL.format(run_dir=run_dir)
    summary = build_summary(run_dir, total_s=time.monotonic() - started, peak_memory_gib=tree.peak_gib, facts=facts)
    done = summary["last_step"] == steps
    summary["status"] = "failed" if facts["error"] else ("finished" if done else "interrupted")
    try:
        run_folder.write_json(run_dir / run_folder.SUMMARY, summary)
    except OSError as exc:
        why = f"summary.json could not be written: {exc}"
        summary |= {"status": "failed", "error": "\n".join(filter(None, [summary["error"], why]))}
    terminal = Console(highlight=False)
    terminal.print(summary_table(summary))
    terminal.print(f"{report_line(run_dir)}\nrun: {run_dir}", soft_wrap=True, markup=False)
    return {"finished": 0, "failed": 1, "interrupted": INTERRUPTED}[summary["status"]]


def run_runners(config: TrainConfig) -> int:
    """The runners' side alone (AGL_CURRENT_ROLE=runner): no model is loaded, no run folder is made."""
    from agl_plugin.environment import prepare_environment

    prepare_environment(cpu=True, offline=False)
    fit(config, role="runner", run_dir=None, model=None, data=([], []), steps=0)
    return 0


def interrupt(*_: Any) -> None:
    """The handler of SIGINT and SIGTERM.

    Python's own would do, but asyncio.run replaces that one (and only that one) by a handler which waits for the loop,
    and the loop waits for the training.
    """
    raise KeyboardInterrupt


def main(argv: list[str] | None = None) -> int:
    """The command line. Exit status: 0 done, 1 the run failed, 2 wrong input, 130 interrupted."""
    args = parser().parse_args(argv)
    # SIGTERM ends a run in order, as Ctrl-C does: runners, Ray and vLLM are children that must not outlive it.
    # A shell starts background jobs with SIGINT ignored; then neither would do anything.
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    load_dotenv(ROOT / ".env")
    logging.basicConfig(level=logging.DEBUG if args.debug else logging.WARNING)
    terminal = Console(highlight=False, soft_wrap=True)
    try:
        config = resolve_config(args)
        role = os.environ.get("AGL_CURRENT_ROLE", "both")
        preflight.check_store_flags(config, role=role)
        if role != "runner":
            preflight.check_devices(config)
        preflight.check_database(config)
        if config.store.external_address:
            preflight.check_store(config.store.external_address)
        if role == "runner":
            return run_runners(config)
        return run_training(config, role=role, terminal=terminal)
    except UserError as exc:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {exc}", markup=False)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
