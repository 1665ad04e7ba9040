"""The one configuration tree: defaults < recipe TOML < command line.

Every value of a run stands here once; `verl_config.py` derives verl's keys from it. An unknown key is an error that
names the nearest known one. Secrets are not configuration: they stay in the environment (see env_template).
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from rapidfuzz import process

from sql_agent.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "recipes"


class Node(BaseModel):
    """Base of all configuration sections: immutable, unknown keys and infinite numbers are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class AgentConfig(Node):
    """How the agent talks to the model."""

    max_turns: int = Field(
        default=6, ge=1, le=64, description="most LLM calls in one episode; verl gets the same number"
    )
    system_prompt: str = Field(
        default="auto",
        description="a file of sql_agent/prompts without .txt, or a path; auto: the one that fits policy and tables",
    )
    llm_timeout_s: float = Field(default=120.0, gt=0, description="longest wait for one LLM call")
    repeat_limit: int = Field(default=3, ge=2, description="same SQL this often in a row ends the episode")


class DatabaseConfig(Node):
    """The database the tool reads, and the limits of one query."""

    path: str = Field(
        default="sql_agent/data/medical.db", description="SQLite file; relative paths start at the project root"
    )
    tables: list[str] = Field(default=["drugs_info", "disease"], description="tables the model may read")
    timeout_s: float = Field(default=2.0, gt=0, description="longest run of one query")
    max_rows: int = Field(default=50, ge=1, description="rows kept of one result")
    max_chars: int = Field(default=1000, ge=100, description="characters of JSON shown to the model per call")
    max_memory_mib: int = Field(default=64, ge=16, description="memory one query may use (SQLite heap limit)")


class DataConfig(Node):
    """The questions. Relative paths are looked up from the working directory, then from sql_agent/."""

    train_file: str = Field(default="data/train.parquet", description="training questions")
    val_file: str = Field(default="data/val.parquet", description="validation questions")
    val_max_rows: int = Field(default=64, ge=1, description="validation questions used in one validation")
    seed: int = Field(default=1, description="order of the training questions")


class JudgeConfig(Node):
    """Who grades answers, and how. Endpoints come from the environment (TEACHER_* or JUDGE_ENDPOINTS)."""

    kind: Literal["auto", "llm", "reference"] = Field(
        default="auto", description="auto: the LLM judge if an endpoint is set, else the offline reference judge"
    )
    mode: Literal["pointwise", "pairwise", "groupwise"] = Field(
        default="pointwise",
        description="training: grade each answer alone, by duels within its group, or by one ranking of the group",
    )
    language: Literal["zh", "en"] = Field(default="zh", description="language of the rubric")
    timeout_s: float = Field(default=60.0, gt=0, description="longest wait for one verdict")
    max_tokens: int = Field(default=512, ge=16, description="longest verdict")
    attempts: int = Field(default=3, ge=1, description="tries per verdict and endpoint, all kinds of failure together")
    concurrency: int = Field(
        default=16, ge=1, description="most calls in flight per endpoint, all processes together; falls on HTTP 429"
    )
    rpm: int = Field(default=0, ge=0, description="requests a minute per endpoint; 0: no limit")
    tpm: int = Field(default=0, ge=0, description="tokens a minute per endpoint; 0: no limit")
    budget_calls: int = Field(default=0, ge=0, description="most calls of one run, then nothing is graded; 0: no limit")
    budget_tokens: int = Field(default=0, ge=0, description="most tokens of one run; 0: no limit")
    budget_cost: float = Field(
        default=0.0, ge=0, description="most money of one run, in the currency of the endpoints' prices; 0: no limit"
    )
    folder: str = Field(
        default=".cache/judge",
        min_length=1,
        description="verdicts, limits and budget, shared by all processes; relative paths start at the project root",
    )


class RewardModelConfig(Node):
    """The reward model of the scorer `reward_model`. Its address comes from REWARD_MODEL_URL."""

    scale_file: str = Field(
        default="", description="JSON file that maps raw logits to [0, 1]; empty: the server must send rewards"
    )
    send_reference: bool = Field(
        default=False, description="send the reference answer too; a model that was trained with references needs it"
    )
    timeout_s: float = Field(default=30.0, gt=0, description="longest wait for one score, all tries together")
    attempts: int = Field(
        default=3, ge=1, description="failed tries per score; a server that starts again or asks to wait is waited for"
    )


class RewardConfig(Node):
    """reward = sql_bonus (once, for SQL that really executed) + score of the answer in [0, 1]."""

    sql_bonus: float = Field(default=0.1, ge=0, le=1, description="paid once for a query that ran without error")
    default_scorer: str = Field(default="judge", description="scorer of rows whose `scorer` column is empty")
    scorer_modules: list[str] = Field(
        default=[], description="modules or .py files with scorers of your own, imported before the run"
    )
    reward_model: RewardModelConfig = RewardModelConfig()
    judge: JudgeConfig = JudgeConfig()


class ModelConfig(Node):
    """The policy."""

    path: str = Field(
        default="", description="model folder or hub name; empty: the tiny policy, or Qwen/Qwen3-0.6B on a GPU"
    )
    lora_rank: int = Field(default=0, ge=0, description="0 trains all weights")
    lora_alpha: int = Field(default=32, ge=1, description="LoRA scale numerator")
    lora_adapter_path: str = Field(default="", description="LoRA adapter to continue from")
    attention: str = Field(
        default="sdpa", description="transformers attention; flash_attention_2 where it is installed"
    )
    allow_remote_code: bool = Field(default=False, description="accept a model folder whose config.json has auto_map")


class RolloutConfig(Node):
    """How the policy is sampled."""

    group_size: int = Field(default=4, ge=1, description="rollouts per question (n of GRPO)")
    temperature: float = Field(default=1.0, ge=0, description="training temperature; validation is always 0")
    max_prompt_tokens: int = Field(
        default=2048, ge=16, description="longer prompts are dropped from the update and counted"
    )
    max_response_tokens: int = Field(default=768, ge=8, description="longest answer of one LLM call")
    n_runners: int = Field(default=1, ge=1, description="runner processes")
    runner_concurrency: int = Field(default=64, ge=1, description="rollouts in flight per runner process")
    level: Literal["transition", "trajectory"] = Field(
        default="trajectory",
        description="one training row per call, or one per rollout where its calls continue each other",
    )
    trajectory_max_response_tokens: int = Field(
        default=4096,
        ge=8,
        description="longest row after its prompt (trajectory level); what is longer goes on in a row of its own",
    )
    poll_interval_s: float = Field(default=0.1, gt=0, description="idle poll of runners and of the trainer's wait loop")
    rollout_timeout_s: float = Field(default=600.0, gt=0, description="a rollout longer than this counts as failed")
    gpu_memory_utilization: float = Field(default=0.6, gt=0, le=0.95, description="share of GPU memory for vLLM")
    tensor_parallel: int = Field(default=1, ge=1, description="GPUs per vLLM engine")
    max_num_seqs: int = Field(default=64, ge=1, description="sequences vLLM runs at once")
    tool_parser: str = Field(default="hermes", description="vLLM's tool call parser")
    sampler_logprobs: bool = Field(
        default=True, description="let vLLM return the log-probability of each sampled token, and compare (sampler/...)"
    )
    resample_flat_groups: int = Field(
        default=0,
        ge=0,
        le=8,
        description="times per step that groups without variance are replaced by other questions (dynamic sampling)",
    )


class OptimConfig(Node):
    """The update."""

    lr: float = Field(default=1e-6, gt=0, description="AdamW learning rate")
    lr_schedule: Literal["constant", "cosine"] = Field(
        default="constant", description="constant, or falling over the run's steps as half a cosine"
    )
    lr_final_share: float = Field(
        default=0.1, ge=0, le=1, description="share of the rate that is left at the end of the cosine"
    )
    weight_decay: float = Field(
        default=0.0, ge=0, description="AdamW weight decay; 0: a step without signal moves nothing"
    )
    clip_low: float = Field(default=0.2, gt=0, lt=1, description="lower PPO clip")
    clip_high: float = Field(default=0.3, gt=0, description="upper PPO clip")
    kl_coef: float = Field(default=0.0, ge=0, description="KL loss to the start model; 0 loads no reference model")
    entropy_coef: float = Field(default=0.0, ge=0, description="entropy bonus")
    questions_per_step: int = Field(default=32, ge=1, description="questions sampled per step")
    mini_batch_questions: int = Field(
        default=32,
        ge=1,
        description="questions per optimizer step (verl's ppo_mini_batch_size; times group_size in rows)",
    )
    micro_batch_rows: int = Field(default=4, ge=1, description="rows per forward pass and GPU")
    grad_clip: float = Field(default=1.0, gt=0, description="gradient norm limit")
    importance_correction: Literal["off", "truncated"] = Field(
        default="off", description="weigh each token with min(p_trainer / p_sampler, importance_cap)"
    )
    importance_cap: float = Field(default=2.0, gt=1, description="largest weight of the truncated correction")


class HealthConfig(Node):
    """Limits that warn once per run, and rules that stop it. A limit of 0 is off; means are over `window` steps."""

    window: int = Field(default=5, ge=1, description="training steps that a limit is averaged over")
    entropy_min: float = Field(default=0.01, ge=0, description="entropy per sampled token, in nats")
    kl_max: float = Field(default=0.5, ge=0, description="KL to the start model per token (only with optim.kl_coef)")
    clip_share_max: float = Field(default=0.3, ge=0, le=1, description="share of tokens that PPO clips")
    truncation_share_max: float = Field(
        default=0.2, ge=0, le=1, description="share of LLM calls that end at rollout.max_response_tokens"
    )
    bonus_without_rows_share_max: float = Field(
        default=0.3, ge=0, le=1, description="share of rollouts with the SQL bonus whose queries found no row"
    )
    repeat_share_max: float = Field(default=0.3, ge=0, le=1, description="share of rollouts that repeat a query")
    answer_chars_max: float = Field(default=2000, ge=0, description="mean length of the final answer, in characters")
    unscored_share_max: float = Field(default=0.2, ge=0, le=1, description="share of rollouts without a reward")
    judge_fault_share_max: float = Field(
        default=0.1, ge=0, le=1, description="share of rollouts that the judge failed to grade"
    )
    zero_variance_share_max: float = Field(
        default=0.7, ge=0, le=1, description="share of groups in which all rewards are the same"
    )
    sampler_gap_max: float = Field(
        default=0.05, ge=0, description="mean difference of a token's log-probability, vLLM against the trainer"
    )
    max_bad_steps: int = Field(
        default=3, ge=0, description="stop after so many steps in a row with an update that is not finite; 0: never"
    )
    max_flat_steps: int = Field(
        default=10, ge=0, description="stop after so many steps in a row in which all rewards are the same; 0: never"
    )
    collapse_drop: float = Field(
        default=0.2, gt=0, description="collapse: mean reward of a window so far below the first window, and ..."
    )
    collapse_zero_share: float = Field(
        default=0.8, gt=0, le=1, description="... so many rollouts earn 0, or the entropy is below entropy_min"
    )
    on_collapse: Literal["warn", "stop"] = Field(default="warn", description="what a collapse does")


class TrainerConfig(Node):
    """Length, device, checkpoints."""

    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto: cuda where an NVIDIA driver answers"
    )
    n_gpus: int = Field(default=1, ge=1, description="GPUs (or one pretended GPU on the CPU)")
    epochs: int = Field(default=2, ge=1, description="passes over the training questions")
    max_steps: int = Field(default=0, ge=0, description="stop after this many steps; 0: as many as the epochs have")
    save_every: int = Field(default=20, ge=-1, description="steps between checkpoints, the last step too; -1: none")
    validate_every: int = Field(default=20, ge=-1, description="steps between validations; -1: none")
    validate_first: bool = Field(default=True, description="validate before the first step")
    keep_checkpoints: int = Field(
        default=2, ge=2, description="checkpoints kept; verl deletes the oldest before it writes, so 1 would risk all"
    )
    resume: str = Field(
        default="", description="empty: fresh; latest; or a global_step_N folder of a run of this project"
    )
    resume_changed: bool = Field(
        default=False, description="resume although model, data, database or training settings differ from the old run"
    )
    runs_dir: str = Field(default="runs", description="parent of run folders; relative paths start at the project root")
    seed: int = Field(default=1, description="seed of the tiny policy")


class StoreConfig(Node):
    """Where rollouts and spans live."""

    external_address: str = Field(
        default="", description="http://host:port of a running `agl store`; empty: managed in memory"
    )
    mongo_uri: str = Field(default="", description="MongoDB of a managed store; empty: memory")
    port: int = Field(default=4747, ge=1, le=65535, description="port of the managed store")
    proxy_host: str = Field(
        default="127.0.0.1",
        description="interface of the LLM proxy (it has no authentication); runners elsewhere need another",
    )
    proxy_port: int = Field(default=0, ge=0, le=65535, description="port of the LLM proxy; 0: a free one")


class LoggingConfig(Node):
    """Where metrics go besides the run folder."""

    trackers: list[Literal["console", "wandb", "swanlab", "tensorboard"]] = Field(
        default=["console", "wandb"], description="verl trackers"
    )
    project: str = Field(default="AgentGRPO", description="project name in the trackers")
    experiment: str = Field(
        default="sql_agent", description="experiment name in the trackers; part of the run folder's name"
    )
    debug: bool = Field(default=False, description="DEBUG log level")


class TrainConfig(Node):
    """The whole run."""

    recipe: str = Field(default="", description="name of the recipe this configuration started from")
    agent: AgentConfig = AgentConfig()
    database: DatabaseConfig = DatabaseConfig()
    data: DataConfig = DataConfig()
    reward: RewardConfig = RewardConfig()
    model: ModelConfig = ModelConfig()
    rollout: RolloutConfig = RolloutConfig()
    optim: OptimConfig = OptimConfig()
    health: HealthConfig = HealthConfig()
    trainer: TrainerConfig = TrainerConfig()
    store: StoreConfig = StoreConfig()
    logging: LoggingConfig = LoggingConfig()

    @model_validator(mode="after")
    def _keys_fit(self) -> TrainConfig:
        """Keys that only make sense together."""
        rollout = self.rollout
        if self.optim.importance_correction != "off" and not rollout.sampler_logprobs:
            raise ValueError(
                f"optim.importance_correction = {self.optim.importance_correction} needs what vLLM says of its tokens: "
                "set rollout.sampler_logprobs = true"
            )
        if rollout.level == "trajectory" and rollout.trajectory_max_response_tokens < rollout.max_response_tokens:
            raise ValueError(
                f"rollout.trajectory_max_response_tokens = {rollout.trajectory_max_response_tokens} must not be below "
                f"rollout.max_response_tokens = {rollout.max_response_tokens}: a single answer would be cut"
            )
        return self

    @model_validator(mode="after")
    def _batches_divide(self) -> TrainConfig:
        """verl asserts these in a worker, minutes later."""
        optim, rows = self.optim, self.optim.mini_batch_questions * self.rollout.group_size
        if optim.mini_batch_questions > optim.questions_per_step:
            raise ValueError(
                f"optim.mini_batch_questions = {optim.mini_batch_questions} must not exceed optim.questions_per_step = "
                f"{optim.questions_per_step}"
            )
        if optim.questions_per_step * self.rollout.group_size % self.trainer.n_gpus:
            raise ValueError(
                f"optim.questions_per_step x rollout.group_size = {optim.questions_per_step * self.rollout.group_size} "
                f"must be a multiple of trainer.n_gpus = {self.trainer.n_gpus}"
            )
        if rows % (optim.micro_batch_rows * self.trainer.n_gpus):
            raise ValueError(
                f"optim.mini_batch_questions x rollout.group_size = {rows} must be a multiple of "
                f"optim.micro_batch_rows x trainer.n_gpus = {optim.micro_batch_rows * self.trainer.n_gpus}"
            )
        return self


def known_keys(model: type[BaseModel] = TrainConfig, prefix: str = "") -> dict[str, Any]:
    """All dotted keys of the tree with their field descriptions, in order."""
    keys: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys |= known_keys(field.annotation, f"{prefix}{name}.")
        else:
            keys[f"{prefix}{name}"] = field
    return keys


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """A new tree: `over` wins, sections are merged key by key."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def parse_assignment(text: str) -> dict[str, Any]:
    """Turn `a.b=value` into a tree. The value is JSON where it parses as JSON, else text.

    Raises UserError when there is no `=`.
    """
    key, sep, raw = text.partition("=")
    if not sep or not key.strip():
        raise UserError(f"--set {text!r}: expected KEY=VALUE, for example --set optim.lr=2e-6")
    try:
        value: Any = json.loads(raw)
    except json.JSONDecodeError:
        value = raw
    tree: dict[str, Any] = {}
    node = tree
    *parents, leaf = key.strip().split(".")
    for name in parents:
        node = node.setdefault(name, {})
    node[leaf] = value
    return tree


def recipe_path(name: str) -> Path:
    """The TOML file of a recipe: a folder name of recipes/, a folder, or a file.

    Raises UserError naming the recipes there are.
    """
    for path in (RECIPES / name / "config.toml", Path(name) / "config.toml", Path(name)):
        if path.is_file():
            return path
    names = ", ".join(sorted(p.parent.name for p in RECIPES.glob("*/config.toml")))
    raise UserError(f"--recipe {name!r}: no such recipe or TOML file. Recipes: {names}")


def load_recipe(name: str) -> dict[str, Any]:
    """The tree of a recipe, with `recipe` set to its name. Raises UserError when it is not TOML."""
    path = recipe_path(name)
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise UserError(f"{path}: not valid TOML ({exc})") from exc
    return {**tree, "recipe": path.parent.name if path.name == "config.toml" else path.stem}


def build_config(*trees: dict[str, Any]) -> TrainConfig:
    """Validate the merged trees, the last one winning. Raises UserError listing each bad key, value and rule."""
    merged: dict[str, Any] = {}
    for tree in trees:
        merged = merge(merged, tree)
    try:
        return TrainConfig.model_validate(merged)
    except ValidationError as exc:
        raise UserError("configuration:\n" + "\n".join(_explain(error) for error in exc.errors())) from exc


def _explain(error: Any) -> str:
    key = ".".join(str(part) for part in error["loc"])
    if not key:
        return f"  {error['msg'].removeprefix('Value error, ')}"
    if error["type"] == "extra_forbidden":
        near = process.extractOne(key, list(known_keys()), score_cutoff=60)
        hint = f"; did you mean {near[0]}?" if near else "; docs/10-configuration.md lists all keys"
        return f"  {key} = {error['input']!r}: unknown key{hint}"
    return f"  {key} = {error['input']!r}: {error['msg']}"


def resolve_path(text: str, *bases: Path) -> Path:
    """The first existing candidate of a user's path: as given, then below each base; else the last candidate."""
    path = Path(text).expanduser()
    candidates = [path] if path.is_absolute() else [Path.cwd() / path, *(base / path for base in bases)]
    return next((c for c in candidates if c.exists()), candidates[-1]).resolve()


def database_path(config: DatabaseConfig) -> Path:
    """Absolute path of the database file (it may not exist)."""
    return resolve_path(config.path, ROOT)


def data_path(text: str) -> Path:
    """Absolute path of a question file (it may not exist)."""
    return resolve_path(text, ROOT / "sql_agent", ROOT)


def prompt_file(name: str) -> Path:
    """The file of a system prompt: a name in sql_agent/prompts without .txt, or a path.

    Raises UserError naming the prompts there are.
    """
    folder = ROOT / "sql_agent" / "prompts"
    for path in (folder / f"{name}.txt", resolve_path(name, ROOT)):
        if path.is_file():
            return path
    names = ", ".join(sorted(p.stem for p in folder.glob("*.txt")))
    raise UserError(f"agent.system_prompt = {name!r}: neither a file nor one of {names}")


def resolve_system_prompt(config: TrainConfig, *, tiny: bool) -> TrainConfig:
    """The same configuration with agent.system_prompt "auto" replaced by the prompt that fits policy and database.

    Raises UserError when the prompt does not exist.
    """
    if config.agent.system_prompt != "auto":
        prompt_file(config.agent.system_prompt)
        return config
    bundled = config.database.tables == DatabaseConfig().tables
    name = "system_short" if tiny else "system_zh" if bundled else "generic_zh"
    return build_config(config.model_dump(), {"agent": {"system_prompt": name}})
