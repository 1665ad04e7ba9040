"""The one configuration tree: defaults < recipe TOML < command line.

Every value of a run stands here once, in the file of its section; training/verl_config.py derives verl's keys from it.
An unknown key is an error that names the nearest known one. Secrets are not configuration: they stay in the
environment (see env_template).
"""

from sql_agent.config.agent import AgentConfig
from sql_agent.config.build import (
    agent_config,
    agents_of,
    build_config,
    flatten,
    known_keys,
    load_recipe,
    merge,
    nested,
    parse_assignment,
    recipe_path,
    resolve_system_prompt,
    with_prompts,
)
from sql_agent.config.commands import command_tree
from sql_agent.config.data import CurriculumConfig, DataConfig, FileConfig
from sql_agent.config.database import TITLES, DatabaseConfig, PythonConfig
from sql_agent.config.health import HealthConfig
from sql_agent.config.optim import OptimConfig
from sql_agent.config.paths import (
    COMMAND,
    HOME,
    RECIPES,
    ROOT,
    carried_prompt,
    data_path,
    database_path,
    database_place,
    prompt_file,
    prompt_text,
    resolve_path,
)
from sql_agent.config.reward import JudgeConfig, RewardConfig
from sql_agent.config.rollout import RolloutConfig
from sql_agent.config.trainer import LocalConfig, LoggingConfig, ModelConfig, StoreConfig, TrainerConfig
from sql_agent.config.tree import AgentTree, TrainConfig
from sql_agent.config.tune import DpoConfig, SftConfig, TuneConfig
