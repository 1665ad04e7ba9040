"""What this project adds to agent-lightning. Knows nothing of SQL or medicine."""
