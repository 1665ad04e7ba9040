"""A run: its options, its job, its checks before the start, and its summary."""
