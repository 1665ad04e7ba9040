"""The medical SQL agent: its environment, its scoring and its training job.

Importing this package is light: no torch, ray, vllm, verl or agentlightning is loaded.
"""
