"""The audit chain: from a run's questions over tokens and verdicts to its updates, in one SQLite file beside it."""
