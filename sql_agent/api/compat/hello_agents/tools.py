"""hello_agents.tools: the training tool."""

from sql_agent.api import RLTrainingTool

__all__ = ["RLTrainingTool"]
