"""The names that HelloAgents documents for its training tool, so that its snippets run here as they stand.

    PYTHONPATH=sql_agent/api/compat python snippet.py

Each name stands for its namesake of sql_agent.api. Not covered: the rest of HelloAgents.
"""
