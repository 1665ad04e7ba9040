"""The project as a library: train, evaluate, export, data sets and rewards, from a notebook or a program.

    from sql_agent import api
    run = api.train("smoke_cpu", ci_fast=True)
    run.rollouts()                                  # a data frame
    api.evaluate(run, limit=20).rewards

Guarantees: training, evaluation and export are the jobs of the commands of the same names, each in a process of its
own, so a call and a command do the same, several runs in one program do not disturb each other, and importing this
package loads neither torch nor agentlightning. Errors are UserError (wrong input) and RunError (a run that failed).
"""

from foundation.errors import RunError, UserError
from sql_agent.api.calls import keys
from sql_agent.api.jobs import TrainingFailed, dpo, evaluate, export, sft, train
from sql_agent.api.rewards import RewardStats, create_reward, evaluate_rewards, register_reward_function
from sql_agent.api.runs import Evaluation, Run
from sql_agent.api.training_tool import RLTrainingTool
from sql_agent.data.named import load_dataset, register_dataset

__all__ = [
    "Evaluation",
    "RLTrainingTool",
    "RewardStats",
    "Run",
    "RunError",
    "TrainingFailed",
    "UserError",
    "create_reward",
    "dpo",
    "evaluate",
    "evaluate_rewards",
    "export",
    "keys",
    "load_dataset",
    "register_dataset",
    "register_reward_function",
    "sft",
    "train",
]
