"""What can be evaluated: a checkpoint of a run, a model folder or hub name, an OpenAI-compatible endpoint.

    runs/NAME, runs/NAME@best or runs/NAME@STEP     a checkpoint: exported first; the export is kept in .cache/exports
    FOLDER or hub name                              served here with vLLM
    NAME@http://host:8000/v1                        asked where it is; the key comes from OPENAI_API_KEY
    ""                                              the tiny policy (on a GPU the configured model)

Guarantees: what can be known of a target is known before the first trial of any; without a recipe, a run brings the
settings that it was trained with. Not covered: two endpoints with different keys.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from foundation import gpus, run_folder
from foundation.errors import UserError
from sql_agent.agent.endpoint import LLMEndpoint
from sql_agent.config import (
    COMMAND,
    HOME,
    ROOT,
    AgentTree,
    TrainConfig,
    agents_of,
    load_recipe,
    resolve_path,
    resolve_system_prompt,
    with_prompts,
)
from sql_agent.errors import LLMFault
from sql_agent.serving import checkpoints, models
from sql_agent.serving.endpoint import Words, check_reachable, checked_endpoint, explain_fault
from sql_agent.serving.server import serve_model

EXPORTS = HOME / ".cache" / "exports"
FORMS = "a run folder, RUN@best, RUN@STEP, one of its checkpoints/global_step_N, a model folder, a hub name, or NAME@http://host:8000/v1"
TINY_RECIPE = "smoke_cpu"
BROUGHT = ("agent", "agents", "database", "rollout", "reward")
Kind = Literal["endpoint", "checkpoint", "folder", "tiny"]
Tell = Callable[..., None]  # gets what is being waited for, and a detail for a display that changes


@dataclass(frozen=True)
class Target:
    """A target that was looked at. `text` finds the same thing again: an address, an absolute path, or a hub name."""

    option: str
    kind: Kind
    text: str
    config: TrainConfig
    llm: LLMEndpoint | None = None

    def facts(self) -> dict[str, Any]:
        """What makes two evaluations of it the same."""
        files = checkpoints.stamps(Path(self.text)) if self.kind in ("checkpoint", "folder") else {}
        digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16] if files else ""
        prompt, agents = self.config.agent.system_prompt, self.config.agents
        facts = {"target": self.text, "kind": self.kind, "system_prompt": prompt, "files": digest}
        return facts | ({"agents": agents} if agents else {})


def _words(option: str) -> Words:
    return Words(
        base_url=option,
        api_key="OPENAI_API_KEY",
        model=option,
        give_key="in OPENAI_API_KEY",
        give_model=f"with {option} NAME@ADDRESS",
    )


def settings_for(targets: Iterable[str]) -> dict[str, Any]:
    """What targets bring along where no recipe is named: the first run its own settings, the tiny policy its recipe.

    Raises UserError when a run has no checkpoint.
    """
    texts = list(targets)
    for text in texts:
        if (path := _path(text)) and _is_run(path):
            tree = checkpoints.run_config(checkpoints.own_checkpoint(path, option=text))
            return {section: tree[section] for section in BROUGHT if section in tree}
    return load_recipe(TINY_RECIPE) if "" in texts and gpus.gpu_count() == 0 else {}


def _path(text: str) -> Path | None:
    is_path = text and "://" not in text
    return checkpoints.checkpoint_path(text, ROOT / "sql_agent", ROOT, option=text) if is_path else None


def served_checkpoint(name: str) -> Path | None:
    """The checkpoint that is meant by the name of a model at an address: where a run of that name is here."""
    path = resolve_path(name, ROOT / "sql_agent", ROOT)
    is_run = name and path.is_dir() and _is_run(path)
    return checkpoints.own_checkpoint(path, option=f"--model {name}") if is_run else None


def look_at(text: str, config: TrainConfig, *, option: str) -> Target:
    """Find out what a target is and check it. Raises UserError with value, rule and remedy."""
    if "://" in text:
        llm = _endpoint(text, max_tokens=config.rollout.max_response_tokens, option=option)
        address = f"{llm.model}@{llm.base_url}"
        return Target(option, "endpoint", address, resolve_system_prompt(config, tiny=False), llm)
    path = _path(text)
    if path is not None and _is_run(path):
        step = checkpoints.own_checkpoint(path, option=f"{option} {text}")
        return Target(option, "checkpoint", str(step), resolve_system_prompt(_as_trained(step, config), tiny=False))
    if path is None and not config.model.path and gpus.gpu_count() == 0:
        return Target(option, "tiny", "", resolve_system_prompt(config, tiny=True))
    config = config.but(model={"path": text or config.model.path})
    try:
        folder = models.model_folder(config.model, tiny=False)
    except UserError as exc:
        raise UserError(f"{str(exc).replace('--model', option, 1)}. A target is {FORMS}") from exc
    return Target(option, "folder", str(folder), resolve_system_prompt(config, tiny=False))


def _endpoint(text: str, *, max_tokens: int, option: str) -> LLMEndpoint:
    scheme_at = text.index("://")
    name, at, _ = text[:scheme_at].rpartition("@")
    address = text[len(name) + len(at) :]
    llm = checked_endpoint(
        address,
        model=name,
        api_key=os.environ.get("OPENAI_API_KEY", ""),
        temperature=0.0,
        max_tokens=max_tokens,
        words=_words(option),
    )
    check_reachable(llm, words=_words(option))
    return llm


def _is_run(path: Path) -> bool:
    """True for a run folder, its checkpoints, or one of them; a model folder has none of these names."""
    marks = (run_folder.CHECKPOINTS, run_folder.METRICS, run_folder.SUMMARY)
    inside = path.name.startswith("global_step_") or path.name == run_folder.CHECKPOINTS
    return inside or any((path / mark).exists() for mark in marks)


def _as_trained[T: AgentTree](step: Path, config: T) -> T:
    """The configuration with the system prompts of the run, where `config` leaves them open."""
    run = checkpoints.run_config(step)
    prompts: dict[str, str] = {}
    for name, settings in agents_of(config).items():
        tree = run.get("agents", {}).get(name, {}) if name else run
        prompt = tree.get("agent", {}).get("system_prompt")
        if prompt and settings.agent.system_prompt == "auto":
            prompts[name] = prompt
    return with_prompts(config, prompts)


def label(target: Target) -> str:
    if target.kind == "endpoint":
        name, _, address = target.text.rpartition("@")
        return f"{name} at {urlsplit(address).netloc}"
    path = Path(target.text)
    return f"{path.parents[1].name}/{path.name}" if target.kind == "checkpoint" else path.name or "the tiny policy"


@dataclass(frozen=True)
class Running:
    """A target that answers, how to explain a fault of it that ends the evaluation, and whether a server of ours ended:
    its last words, empty while it runs.
    """

    llm: LLMEndpoint
    explain: Callable[[LLMFault], str]
    why_it_died: Callable[[], str] = lambda: ""


@contextmanager
def running(target: Target, *, tell: Tell) -> Iterator[Running]:
    """Serve the target where it needs it; `tell` gets what is being waited for. Raises UserError and LLMFault."""
    timeout_s = target.config.agent.llm_timeout_s
    if target.llm is not None:
        llm = target.llm
        yield Running(llm, lambda fault: explain_fault(fault, llm, timeout_s=timeout_s, words=_words(target.option)))
        return
    config, folder = target.config, model_folder(target, tell=tell)
    assert folder is not None

    def on_wait(waited_s: float) -> None:
        tell(f"starting vLLM with {folder.name}", f", {waited_s:.0f} s")

    with serve_model(folder, config, on_wait=on_wait) as server:
        llm = server.endpoint()
        yield Running(llm, lambda fault: server.why_it_died() or str(fault), server.why_it_died)


def model_folder(target: Target, *, tell: Tell) -> Path | None:
    """The folder to serve, made now if it is not there yet; None for an endpoint. Raises UserError."""
    if target.kind == "endpoint":
        return None
    if target.kind == "tiny":
        tell("the tiny policy (built in minutes if it is not there yet)")
        return models.model_folder(target.config.model, tiny=True)
    return exported(Path(target.text), tell=tell) if target.kind == "checkpoint" else Path(target.text)


def export_folder(step: Path) -> Path:
    """Where the model of a checkpoint is kept, whose name is that of the served model too."""
    digest = hashlib.sha256(json.dumps([str(step), checkpoints.stamps(step)]).encode()).hexdigest()[:10]
    return EXPORTS / f"{step.parents[1].name}-{step.name.rpartition('_')[2]}-{digest}"


def exported(step: Path, *, tell: Tell) -> Path:
    """The model folder of a checkpoint, exported unless that was done before. Raises UserError when it cannot be."""
    folder = export_folder(step)
    if folder.exists():
        return folder
    tell(f"exporting {step.name}")
    # A process of its own: torch and verl would stay in the memory of this one.
    command = [*COMMAND, "export", str(step), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode and not folder.exists():  # another evaluation may have been faster
        *_, why = done.stderr.strip().splitlines() or ["it printed nothing"]
        raise UserError(
            f"{step}: cannot be exported: {why.removeprefix('error: ')}. Try `agentgrpo export` on it alone"
        )
    return folder
