"""One file a command of `agentgrpo`: its flags, what it calls, what it prints. sql_agent/cli.py lists them."""
