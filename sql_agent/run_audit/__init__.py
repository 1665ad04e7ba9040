"""Questions to a run's audit file, and what people read of the answers."""
