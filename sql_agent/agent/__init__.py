"""One episode: the agent on openai-agents, its tools, what was said, and how people see it."""
