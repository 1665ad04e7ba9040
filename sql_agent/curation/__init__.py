"""Making question files: from chat logs, by an LLM's choice, without repetitions or leaks, neither easy nor hard."""
