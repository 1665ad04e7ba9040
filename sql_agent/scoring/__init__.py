"""What an episode earns: the scorers, who judges, and the checks before a run."""
