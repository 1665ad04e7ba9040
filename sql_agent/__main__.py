"""`python -m sql_agent` is `agentgrpo`."""

from sql_agent.cli import main

if __name__ == "__main__":
    main()
