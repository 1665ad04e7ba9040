"""RLTrainingTool: training as one tool with four actions, for programs and for agents.

    RLTrainingTool().run({"action": "train", "algorithm": "grpo", "max_samples": 8, "num_epochs": 1})
    agents.Agent(..., tools=[RLTrainingTool().as_agent_tool()])

Guarantees: `run` returns JSON text and never raises for what it was asked: "status" is success or error, and an error
says what to change. What a model asks for is hostile input: files are written and models and questions read below
`root` alone, or by names of the hub and of registered sets; addresses are refused.
"""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from foundation.errors import RunError, UserError
from foundation.files import whole_lines
from foundation.gpus import gpu_count
from sql_agent.api import jobs
from sql_agent.api.rewards import PASS, create_reward, register_reward_function
from sql_agent.api.runs import Run
from sql_agent.config.data import QUESTION_FILES
from sql_agent.data.named import BUNDLED, load_dataset, register_dataset
from sql_agent.records import TrialRecord

if TYPE_CHECKING:
    from agents import FunctionTool

TINY, GSM8K = "tiny", "gsm8k"
LORA_RANK = 16
OBJECTS = ("custom_dataset", "custom_reward")  # of a program; a model names them


class Request(BaseModel):
    """What `run` takes; which fields count depends on the action. Unknown ones are errors."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    action: Literal["train", "load_dataset", "create_reward", "evaluate"] = "train"
    algorithm: Literal["grpo", "sft"] = "grpo"
    model_name: str = TINY
    model_path: str = ""
    dataset: str = ""
    format: Literal["sft", "rl"] = "sft"
    split: str = ""
    max_samples: int | None = Field(default=None, ge=1)
    num_epochs: int = Field(default=3, ge=1)
    max_steps: int = Field(default=0, ge=0)
    output_dir: str = "./output"
    use_lora: bool = True
    batch_size: int = Field(default=4, ge=1)
    learning_rate: float | None = Field(default=None, gt=0)
    reward_type: str = "accuracy"
    penalty_weight: float = 0.001
    max_length: int = 1024
    step_bonus: float = 0.1
    custom_dataset: Any = None
    custom_reward: Any = None
    use_wandb: bool = False
    use_tensorboard: bool = True
    wandb_project: str = ""


class RLTrainingTool:
    """The tool. `root` is the folder below which it reads and writes; the one that the program runs in by default."""

    name = "rl_training"
    description = (
        "Train and measure language models. action train: algorithm grpo or sft, model_name (tiny: the small model of "
        "this machine), dataset, max_samples, num_epochs, output_dir. action load_dataset: format sft or rl, split. "
        "action create_reward: reward_type accuracy, length_penalty or step. action evaluate: model_path, max_samples."
    )
    register_dataset = staticmethod(register_dataset)
    register_reward_function = staticmethod(register_reward_function)

    def __init__(self, root: str | Path = ".", *, quiet: bool = False) -> None:
        self._root, self._quiet = Path(root).resolve(), quiet

    def run(self, parameters: dict[str, Any]) -> str:
        """Do what is asked; JSON text with status, and what the action returns."""
        try:
            request = Request.model_validate(parameters)
            answer = getattr(self, f"_{request.action}")(request)
        except ValidationError as exc:
            text = "; ".join(f"{'.'.join(map(str, e['loc']))} = {e['input']!r:.80}: {e['msg']}" for e in exc.errors())
            return _json(status="error", message=text)
        except (UserError, RunError, OSError) as exc:
            return _json(status="error", message=str(exc))
        return _json(status="success", **answer)

    def as_agent_tool(self) -> FunctionTool:
        """The tool for an agent of openai-agents. Named sets and rewards alone, no objects."""
        from agents import FunctionTool

        async def invoke(context: Any, arguments: str) -> str:
            try:
                request = json.loads(arguments)
            except ValueError as exc:
                return _json(status="error", message=f"the arguments are no JSON ({exc})")
            if not isinstance(request, dict) or any(not isinstance(request.get(key, ""), str) for key in OBJECTS):
                return _json(status="error", message=f"an object is needed, in which {' and '.join(OBJECTS)} are names")
            return await asyncio.to_thread(self.run, request)

        schema = Request.model_json_schema()
        for name in OBJECTS:
            schema["properties"][name] = {"type": "string", "default": ""}
        return FunctionTool(
            name=self.name,
            description=self.description,
            params_json_schema=schema,
            on_invoke_tool=invoke,
            strict_json_schema=False,
        )

    def _train(self, request: Request) -> dict[str, Any]:
        if not request.model_fields_set:
            raise UserError("nothing is asked: name an action or algorithm, since a training is long")
        out = self._inside(request.output_dir, what="output_dir")
        if out.exists() and any(out.iterdir()):
            raise UserError(f"output_dir = {request.output_dir!r}: is there and not empty; name a new folder")
        dataset, n = self._dataset(request)
        train = self._grpo if request.algorithm == "grpo" else self._sft
        run = train(request, dataset, out)
        answer = request.model_dump(include={"algorithm", "model_name", "output_dir", "num_epochs", "use_lora"})
        answer |= {"num_samples": n, "dataset": dataset, "run": str(run.folder)}
        summary = run.summary
        return answer | {name: summary[name] for name in ("steps", "reward_mean", "validation") if name in summary}

    def _grpo(self, request: Request, dataset: str, out: Path) -> Run:
        trackers = {"console": True, "wandb": request.use_wandb, "tensorboard": request.use_tensorboard}
        tiny = request.model_name == TINY
        overrides = {
            "trainer.epochs": request.num_epochs,
            "trainer.max_steps": request.max_steps,
            "logging.trackers": [name for name, is_wanted in trackers.items() if is_wanted],
            "optim.questions_per_step": request.batch_size,
            "optim.mini_batch_questions": request.batch_size,
            "optim.micro_batch_rows": math.gcd(request.batch_size, 8),
        }
        overrides |= _given({"optim.lr": request.learning_rate, "logging.project": request.wandb_project})
        if request.use_lora:
            overrides["model.lora_rank"] = LORA_RANK
        of_task: dict[str, Any] = {"recipe": "smoke_cpu" if tiny else ""}
        if dataset == GSM8K:
            of_task = jobs.for_word_problems(dataset, request.max_samples, tiny=tiny)
        run = jobs.train(
            **of_task,
            model=self._model(request.model_name),
            dataset=dataset,
            max_samples=request.max_samples,
            quiet=self._quiet,
            reward=request.custom_reward or (request.reward_type if dataset != BUNDLED else ""),
            **overrides,
        )
        jobs.export(run, out, quiet=self._quiet)
        return run

    def _sft(self, request: Request, dataset: str, out: Path) -> Run:
        overrides: dict[str, Any] = {"sft.epochs": request.num_epochs, "sft.batch_size": request.batch_size}
        overrides |= _given({"sft.lr": request.learning_rate, "sft.max_steps": request.max_steps})
        return jobs.sft(
            model=self._model(request.model_name),
            dataset=dataset,
            max_samples=request.max_samples,
            output_dir=out,
            use_lora=request.use_lora,
            quiet=self._quiet,
            **overrides,
        )

    def _load_dataset(self, request: Request) -> dict[str, Any]:
        dataset, _ = self._dataset(request)
        form, split, n = request.format, request.split or "train", request.max_samples or 100
        is_templated = form == "rl" and "model_name" in request.model_fields_set
        model = self._folder_or_name(request.model_name) if is_templated else None
        rows = load_dataset(dataset, format=form, split=split, max_samples=n, model=model)
        about = {"format": form, "split": split, "dataset": dataset, "dataset_size": len(rows)}
        return about | {"sample_keys": list(rows[0]) if rows else []}

    def _create_reward(self, request: Request) -> dict[str, Any]:
        names = {"length_penalty": ["penalty_weight", "max_length"], "step": ["step_bonus"]}
        parameters = {name: getattr(request, name) for name in names.get(request.reward_type, [])}
        create_reward(request.reward_type, **parameters)
        return {"reward_type": request.reward_type, **parameters}

    def _evaluate(self, request: Request) -> dict[str, Any]:
        from sql_agent.evaluation.folder import TRIALS

        name = request.model_path or request.model_name
        split = request.dataset or request.split or "test"
        source = self._source(split)
        limit = request.max_samples or 100
        evaluation = jobs.evaluate(self._model(name), splits=[source], limit=limit, samples=1, quiet=self._quiet)
        (figures,) = evaluation.results.models.values()
        (greedy,) = [of_decoding for key, of_decoding in figures.items() if key.endswith("/greedy")]
        reward = greedy.measures["reward"]
        trials = [TrialRecord.model_validate_json(line) for line in whole_lines(evaluation.folder / TRIALS)]
        scored = [trial for trial in trials if trial.decoding == "greedy" and not trial.unscored]
        n_passed = sum((trial.answer_score or 0.0) >= PASS for trial in scored)
        return {
            "model_path": name,
            "split": split,
            "num_samples": reward.n,
            "unscored": sum(greedy.unscored.values()),
            "accuracy": n_passed / reward.n if reward.n else None,
            "average_reward": reward.mean,
            "interval": [reward.low, reward.high],
            "device": "cuda" if gpu_count() else "cpu",
            "evaluation": str(evaluation.folder),
        }

    def _dataset(self, request: Request) -> tuple[str, int]:
        """The data set that is meant, and how many of its rows count."""
        name = request.custom_dataset or request.dataset or BUNDLED
        if not isinstance(name, str):
            register_dataset("custom", name)
            name = "custom"
        source = self._source(name)
        return source, len(load_dataset(source, split=request.split or "train", max_samples=request.max_samples))

    def _source(self, name: str) -> str:
        is_path = Path(name).suffix in QUESTION_FILES
        return str(self._inside(name, what="dataset")) if is_path else name

    def _model(self, name: str) -> str:
        """What a call takes for it: nothing for the tiny policy."""
        return "" if name == TINY else self._folder_or_name(name)

    def _folder_or_name(self, name: str) -> str:
        """A folder below the root, or a name of the hub. Raises UserError."""
        if "://" in name:
            raise UserError(f"model {name!r}: an address; only folders and names of the hub are taken here")
        is_folder = name.startswith((".", "/", "~")) or (self._root / name).exists()
        return str(self._inside(name, what="model")) if is_folder else name

    def _inside(self, text: str, *, what: str) -> Path:
        path = (self._root / Path(text).expanduser()).resolve()
        if not path.is_relative_to(self._root):
            raise UserError(
                f"{what} = {text!r}: must lie below {self._root}; RLTrainingTool(root=...) names another folder"
            )
        return path


def _given(keys: dict[str, Any]) -> dict[str, Any]:
    """Without those that say nothing."""
    return {key: value for key, value in keys.items() if value}


def _json(**tree: Any) -> str:
    return json.dumps(tree, ensure_ascii=False, default=str)
