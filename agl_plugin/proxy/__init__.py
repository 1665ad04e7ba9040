"""The LLM proxy of a run, and the order of its spans."""
